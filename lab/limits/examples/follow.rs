//! Measures a follower beside a writer in another process: `cargo run --release -p runstone-limits
//! --example follow -- [SECONDS] [PUTS_PER_SECOND] [PUTS_PER_SECOND_IN_TURNS]`, in a temporary
//! directory below the working directory. The writer puts at a steady rate, or at full speed (0),
//! and notes the time in one key. The follower refreshes every 50 ms and reports how far behind it
//! was just before each refresh. Then the writer runs as fast as it can, unless a rate is given.
//! It runs in turn alone, beside a follower that only holds its lease, and beside one that
//! refreshes. Last, a store of 10,000 tables is followed.

use std::env::{args, current_exe};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use runstone::{Background, KeyspaceOptions, Options, Result, Store, policy};

const EVERY: Duration = Duration::from_millis(50);
const VALUE: [u8; 100] = [7; 100];

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_nanos()).expect("before 2500")
}

/// The writer: prints how many puts it made in each second.
fn write(path: &Path, seconds: u64, rate: u64) -> Result<()> {
    let store = Store::open(path, Options::default())?;
    let (began, mut number) = (Instant::now(), 0u64);
    while began.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..500 {
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 5_000_000;
            store.put(key.to_be_bytes(), VALUE)?;
            number += 1;
        }
        store.put("now", now_ns().to_le_bytes())?;
        let due = (number * 1_000_000).checked_div(rate).map(Duration::from_micros);
        sleep(due.unwrap_or_default().saturating_sub(began.elapsed()));
    }
    println!("{}", number * 1000 / u64::try_from(began.elapsed().as_millis()).expect("short"));
    store.close()
}

fn start(path: &Path, seconds: u64, rate: u64) -> Child {
    let mut command = Command::new(current_exe().expect("this program"));
    command.args(["--write", &path.display().to_string()]);
    command.args([seconds.to_string(), rate.to_string()]);
    command.stdout(Stdio::piped()).spawn().expect("a child")
}

fn puts_per_second(child: Child) -> u64 {
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8(output.stdout).expect("text").trim().parse().expect("a number")
}

/// Follows until the writer ends. Returns how far behind it was and how long refreshes took, in ms.
fn follow(path: &Path, child: &mut Child, refreshes: bool) -> Result<(Vec<f64>, Vec<f64>)> {
    while !path.join("CURRENT").exists() {
        sleep(Duration::from_millis(5));
    }
    let follower = Store::follow(path, Options::default().memory_budget_bytes(128 << 20))?;
    let (mut behind, mut took) = (Vec::new(), Vec::new());
    while child.try_wait().expect("a child").is_none() {
        sleep(EVERY);
        if !refreshes {
            continue;
        }
        if let Some(told) = follower.store().get("now")? {
            let told = u64::from_le_bytes(told[..].try_into().expect("eight bytes"));
            behind.push(now_ns().saturating_sub(told) as f64 / 1e6);
        }
        let began = Instant::now();
        follower.refresh()?;
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok((behind, took))
}

fn percentile(sorted: &mut [f64], percent: usize) -> f64 {
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}

fn many_tables(path: &Path) -> Result<()> {
    let policy = policy::Policy::tiering();
    let keyspace = KeyspaceOptions::default().policy(policy);
    let options = Options::default().background(Background::Manual).keyspace(keyspace);
    let store = Store::open(path, options)?;
    for table in 0..10_000u32 {
        store.default_keyspace().bulk_load([(table.to_be_bytes(), VALUE)])?;
    }
    let began = Instant::now();
    let follower = Store::follow(path, Options::default())?;
    let opened = began.elapsed();
    let found = follower.store().get(9_999u32.to_be_bytes())?.is_some();
    println!("10,000 tables: followed in {opened:?}, the last key is there: {found}");
    store.close()
}

fn main() -> Result<()> {
    let given: Vec<String> = args().skip(1).collect();
    let number =
        |at: usize, default| given.get(at).map_or(default, |n| n.parse().expect("a number"));
    if given.first().is_some_and(|first| first == "--write") {
        return write(Path::new(&given[1]), number(2, 1), number(3, 0));
    }
    let (seconds, rate) = (number(0, 60), number(1, 100_000));
    let place = tempfile::tempdir_in(".").expect("a directory");
    let path = place.path().join("steady");
    let mut child = start(&path, seconds, rate);
    let (mut behind, mut took) = follow(&path, &mut child, true)?;
    println!(
        "{} puts/s, refreshed every 50 ms: behind p50 {:.0} ms, p99 {:.0} ms, most {:.0} ms; \
         a refresh took p50 {:.1} ms, p99 {:.1} ms",
        puts_per_second(child),
        percentile(&mut behind, 50),
        percentile(&mut behind, 99),
        behind.last().copied().unwrap_or_default(),
        percentile(&mut took, 50),
        percentile(&mut took, 99),
    );
    for turn in 0..3 {
        let mut rates = Vec::new();
        for how in ["alone", "held", "followed"] {
            let path = place.path().join(how);
            let mut child = start(&path, seconds / 6, number(2, 0));
            if how != "alone" {
                follow(&path, &mut child, how == "followed")?;
            }
            rates.push(puts_per_second(child));
            std::fs::remove_dir_all(path).expect("a directory");
        }
        let of_alone = |rate: u64| rate as f64 / rates[0] as f64;
        println!(
            "turn {turn}: {} puts/s alone, {:.3} of it with a lease, {:.3} followed",
            rates[0],
            of_alone(rates[1]),
            of_alone(rates[2])
        );
    }
    many_tables(&place.path().join("many"))
}
