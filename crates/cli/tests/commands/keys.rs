//! `keys`: what is big and what is hot, beside an application and without one.

use runstone::{Background, Options, Store};

use crate::Place;

fn text_of(value: &serde_json::Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn big_keys_are_found_beside_an_application_and_without_it() {
    let place = Place::new();
    let store = Store::open(place.path("s"), Options::default()).expect("a store");
    for number in 0..1_000 {
        store.put(format!("user/{number:04}"), [b'v'; 50]).expect("a put");
    }
    // Random bytes do not compress, so the stored size is the size of the values.
    let mut random = runstone_random::Random::new(7);
    let large: Vec<u8> = (0..400_000).map(|_| random.draw() as u8).collect();
    store.put("log/1\n", large).expect("a put");
    store.open_keyspace("other", None).expect("made").put("key", "value").expect("a put");
    for is_open in [true, false] {
        let big = place.json(&["keys", "s", "--big", "--limit", "5"]);
        assert_eq!((&big["entries"], &big["keyspace"]), (&1001.into(), &"default".into()));
        assert_eq!(big["largest"][0]["key"], "log/1\\n", "{big}");
        assert_eq!(big["largest"][0]["encoding"], "escaped", "{big}");
        assert_eq!(big["largest"][0]["bytes"], 400_006, "{big}");
        assert_eq!(big["prefixes"][0]["prefix"], "log/1\\n", "{big}");
        assert!(big["prefixes"][0]["is_key"] == true && big["prefixes"][0]["bytes"].is_u64());
        let text = place.ok(&["keys", "s", "--big", "--hex", "--limit", "5"]);
        assert!(text.contains("6c6f672f310a"), "{text}");
        let sample = place.json(&["keys", "s", "--sample", "--limit", "50"]);
        let sample = sample["sample"].as_array().expect("a list");
        let logs = sample.iter().filter(|one| text_of(&one["key"]).starts_with("log/")).count();
        assert!(sample.len().abs_diff(50) <= 1 && logs > 30, "{is_open}: {logs}");
        let other = place.ok(&["keys", "s", "--big", "--keyspace", "other"]);
        assert!(
            other.contains("all of it was looked at") && other.starts_with("1 entry of other, "),
            "{other}"
        );
        if is_open {
            // A follower reads the log; the next round reads tables.
            store.flush().expect("a flush");
        }
    }
    store.close().expect("a close");
    assert_eq!(place.json(&["keys", "s", "--big"])["largest"][0]["bytes"], 400_006);
    assert_eq!(place.run(&["keys", "s", "--big", "--keyspace", "no"]).code, 3);
    assert_eq!(place.run(&["keys", "s"]).code, 3);
    assert_eq!(place.run(&["keys", "s", "--big", "--hot"]).code, 3);
}

#[test]
fn hot_keys_are_told_by_the_application_alone() {
    let place = Place::new();
    let store = Store::open(place.path("s"), Options::default()).expect("a store");
    for number in 0..20_000 {
        let key = if number % 3 == 0 { "user/7".into() } else { format!("log/{number}") };
        store.get(key).expect("a get");
    }
    let hot = place.json(&["keys", "s", "--hot", "--limit", "4"]);
    assert_eq!(hot["keys"][0]["key"], "user/7", "{hot}");
    let samples = hot["samples"].as_u64().expect("a number");
    assert!(samples.abs_diff(312) < 100 && hot["store_samples"] == samples, "{hot}");
    assert_eq!(hot["prefixes"].as_array().map(Vec::len), Some(4), "{hot}");
    let text = place.ok(&["keys", "s", "--hot"]);
    assert!(text.contains("user/7") && text.contains("about one in 64"), "{text}");
    store.open_keyspace("unread", None).expect("made");
    let text = place.ok(&["keys", "s", "--hot", "--keyspace", "unread"]);
    assert!(text.starts_with("no read of unread is among those"), "{text}");
    store.close().expect("a close");
    let ran = place.run(&["keys", "s", "--hot"]);
    let told = "which keys are hot is not known: no process has the store open";
    assert!(ran.code == 4 && ran.stderr.contains(told), "{}", ran.stderr);
    // No thread does the housekeeping of such a store.
    let options = Options::default().background(Background::Manual);
    let _store = Store::open(place.path("s"), options).expect("a store");
    let ran = place.run(&["keys", "s", "--hot"]);
    assert!(ran.code == 4 && ran.stderr.contains("does not tell"), "{}", ran.stderr);
}
