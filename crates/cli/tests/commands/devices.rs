//! Commands on emulated devices: a KVSSD by its own commands, a block SSD under the ordinary ones.

use super::Place;

const MAKE: &str = "kvssd:n.img?blocks=48&page=2048&block_pages=8&memtable=8&l1=24&ratio=4&l0=2";

#[test]
fn a_kvssd_takes_the_commands_of_a_store() {
    let place = Place::new();
    let lines: String = (0..900).map(|at| format!("key{at:04}\tvalue {at}\n")).collect();
    place.write("in.tsv", &lines);
    let run = |arguments: &[&str]| {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
        ran.stdout
    };
    run(&["put", MAKE, "a", "1", "--sync"]);
    let verified = run(&["verify", "kvssd:n.img"]);
    assert!(verified.contains("0 records and 1 in the memtable: no damage"), "{verified}");
    run(&["import", "kvssd:n.img", "in.tsv"]);
    assert_eq!(run(&["get", "kvssd:n.img", "key0100"]), "value 100");
    run(&["delete", "kvssd:n.img", "key0100", "key0101"]);
    assert_eq!(place.run(&["get", "kvssd:n.img", "key0100"]).code, 1);
    assert_eq!(run(&["count", "kvssd:n.img"]), "899\n");
    assert_eq!(run(&["count", "kvssd:n.img", "--prefix", "key08"]), "100\n");
    let scanned = run(&["scan", "kvssd:n.img", "--from", "key0099", "--limit", "2", "--keys-only"]);
    assert_eq!(scanned, "key0099\nkey0102\n");
    let back = run(&["scan", "kvssd:n.img", "--to", "key0103", "--reverse", "--limit", "2"]);
    assert_eq!(back, "key0102\tvalue 102\nkey0099\tvalue 99\n");
    run(&["export", "kvssd:n.img", "out.tsv"]);
    run(&["compact", "kvssd:n.img"]);
    assert!(run(&["verify", "kvssd:n.img"]).contains("899 records: no damage"));
    assert!(run(&["stats", "kvssd:n.img"]).contains("rlsm: 48 blocks"));
    assert!(run(&["shape", "kvssd:n.img"]).contains("flash:"));
    run(&["shape", "kvssd:n.img", "--svg", "map.svg", "--html", "map.html"]);
    for name in ["map.svg", "map.html"] {
        let map = std::fs::read_to_string(place.path(name)).expect("a file");
        for told in ["kvssd:n.img", " UTC", "48 blocks of flash", ">metadata<", "block 47: "] {
            assert!(map.contains(told), "{name}: {told}");
        }
    }
    assert!(run(&["dump", "kvssd:n.img", "--entries"]).contains("stratum 0"));
    let refused = place.run(&["count", "kvssd:n.img", "--keyspace", "other"]);
    assert!(refused.code == 3 && refused.stderr.contains("no keyspaces"), "{}", refused.stderr);
    let refused = place.run(&["put", "kvssd:n.img", "a", "1", "--policy", "tiering"]);
    assert!(refused.code == 3 && refused.stderr.contains("URL"), "{}", refused.stderr);
}

/// Once, operations that a KVSSD does not have were skipped, as if they had been done.
#[test]
fn flags_that_mean_nothing_to_a_kvssd_are_refused() {
    let place = Place::new();
    place.ok(&["put", MAKE, "a", "1"]);
    for (arguments, word) in [
        (&["stats", "kvssd:n.img", "--prometheus"][..], "--json"),
        (&["dump", "kvssd:n.img", "000001.table"], "no files"),
        (&["bench", "fillseq", "--num", "1", "--store", "kvssd:b.img", "--bloom-bits", "9"], "URL"),
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 3, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{arguments:?}: {}", ran.stderr);
    }
    assert!(!place.path("b.img").exists());
}

/// Once, such a checkpoint reported "wrote copy", but the copy was on the device itself, where no
/// command could open it.
#[test]
fn a_checkpoint_that_nothing_could_open_is_refused() {
    let place = Place::new();
    place.ok(&["put", "blockssd:b.img?blocks=64", "a", "1"]);
    let ran = place.run(&["checkpoint", "blockssd:b.img", "copy"]);
    assert!(ran.code == 3 && ran.stderr.contains("copy the image"), "{}", ran.stderr);
    assert_eq!(place.ok(&["get", "blockssd:b.img", "a"]), "1");
}

/// Runs every benchmark on both devices.
#[test]
fn benchmarks_run_on_devices() {
    let place = Place::new();
    let listed = place.json(&["bench"]);
    let names: Vec<&str> = listed["workloads"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].as_str().expect("a name"))
        .collect();
    assert!(names.len() > 20 && names.contains(&"seekrandom") && names.contains(&"ycsb-f"));
    for store in ["kvssd:k.img?blocks=64", "blockssd:b.img?blocks=64"] {
        let list = names.join(",");
        let run = ["bench", &list, "--store", store, "--num", "300", "--scan-length", "5"];
        let ran = place.json(&run);
        let ran: Vec<&str> = ran["benchmarks"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["name"].as_str().expect("a name"))
            .collect();
        assert_eq!(ran, names, "{store}");
    }
}

#[test]
fn a_demonstration_runs_on_devices() {
    let place = Place::new();
    for at in 0..60 {
        let content = format!("content {at} ").repeat(40 * (at % 7));
        place.write(&format!("in/{}/{at}", at % 5), content);
    }
    place.write("in/large", vec![b'x'; 40_000]);
    for store in [MAKE, "blockssd:b.img?blocks=48"] {
        let report = place.json(&["demo", "in", "--store", store]);
        assert_eq!((&report["verified"], &report["differences"]), (&true.into(), &0.into()));
        let is_kvssd = store == MAKE;
        assert_eq!(report["cut_files"], u64::from(is_kvssd), "a value has a block at most");
        assert_eq!(report["device"].is_object(), is_kvssd);
        assert_eq!(report["bytes"].is_object(), !is_kvssd);
        let again = place.run(&["demo", "in", "--store", store]);
        assert!(again.code == 3 && again.stderr.contains("holds data"), "{}", again.stderr);
    }
    let refused = place.run(&["demo", "in", "--store", "kvssd:o.img", "--policy", "tiering"]);
    assert!(refused.code == 3 && refused.stderr.contains("URL"), "{}", refused.stderr);
    let text = place.ok(&["demo", "in", "--store", "kvssd:t.img?blocks=48"]);
    assert!(text.contains("flash:") && text.contains("verified: "), "{text}");
}

#[test]
fn a_block_ssd_is_a_place_for_stores() {
    let place = Place::new();
    assert_eq!(place.run(&["put", "blockssd:b.img?blocks=48", "k", "v"]).code, 0);
    assert_eq!(place.run(&["get", "blockssd:b.img", "k"]).stdout, "v");
    assert_eq!(place.run(&["verify", "blockssd:b.img"]).code, 0);
    assert!(place.run(&["stats", "blockssd:b.img"]).stdout.contains("read-modify-write"));
    place.write("in.tsv", "a\t1\nb\t2\n");
    place.ok(&["import", "blockssd:b.img", "in.tsv"]);
    assert_eq!(place.ok(&["count", "blockssd:b.img"]), "3\n");
    assert_eq!(place.ok(&["scan", "blockssd:b.img", "--keys-only"]), "a\nb\nk\n");
    place.ok(&["export", "blockssd:b.img", "out.tsv"]);
    place.ok(&["compact", "blockssd:b.img"]);
    assert!(place.ok(&["shape", "blockssd:b.img"]).contains("level"));
    let files = place.ok(&["dump", "blockssd:b.img"]);
    let table = files.split_whitespace().find(|word| word.ends_with(".table"));
    let table = table.unwrap_or_else(|| panic!("no table: {files}"));
    let dumped = place.ok(&["dump", "blockssd:b.img", table, "--entries"]);
    assert!(dumped.contains("keys"), "{dumped}");
    let missing = place.run(&["dump", "blockssd:none.img"]);
    assert_eq!(missing.code, 4, "{}", missing.stderr);
    let stats = place.run(&["stats", "blockssd:b.img", "--json"]).stdout;
    assert!(stats.contains("\"flash\""), "{stats}");
    let bench = ["bench", "fillrandom", "--store", "blockssd:f.img?blocks=48", "--num", "50000"];
    let ran = place.run(&[&bench[..], &["--policy", "tiering"]].concat()).stdout;
    let factor = |name: &str| -> f64 {
        let line = ran.lines().find(|line| line.trim_start().starts_with(name));
        let word = line.and_then(|line| line[name.len()..].split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{name}: {ran}"))
    };
    let layers = ["store and files ", "read-modify-write", "collection"].map(factor);
    let product: f64 = layers.iter().product();
    assert!((product / factor("all") - 1.0).abs() < 0.002, "{ran}");
    let wrong = place.run(&["get", "kvssd:b.img", "k"]);
    assert!(wrong.code == 3 && wrong.stderr.contains("block SSD"), "{}", wrong.stderr);
    let other = place.run(&["get", "blockssd:b.img?blocks=99", "k"]);
    assert!(other.code == 3 && other.stderr.contains("48 blocks"), "{}", other.stderr);
}

/// Damage is reported by name, with what to do, and damaged data is never an answer.
#[test]
fn a_damaged_image_is_named() {
    let place = Place::new();
    for value in ["1", "2"] {
        assert_eq!(place.run(&["put", MAKE, "key", value]).code, 0);
    }
    let mut image = std::fs::read(place.path("n.img")).expect("an image");
    let saved = place.path("n.img.plp");
    let mut side = std::fs::read(&saved).expect("a side file");
    side[14] ^= 1;
    std::fs::write(&saved, &side).expect("writable");
    let ran = place.run(&["get", "kvssd:n.img", "key"]);
    assert!(ran.code == 2 && ran.stderr.contains("saved memtable"), "{}", ran.stderr);
    image.truncate(100_000);
    std::fs::write(place.path("n.img"), &image).expect("writable");
    let ran = place.run(&["get", "kvssd:n.img", "key"]);
    assert!(ran.code == 2 && ran.stderr.contains("cut short"), "{}", ran.stderr);
    assert!(ran.stderr.contains("restore the image"), "{}", ran.stderr);
}
