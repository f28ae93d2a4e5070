//! Measures readers of a store's history: `cargo run --release -p runstone-limits --example changes
//! -- [MILLIONS] [PUTS_PER_SECOND]`, in a temporary directory below the working directory. A
//! process writes this many million entries and is killed. Then, alternately, all changes are read
//! from its log and its log is replayed by an open. Last, the puts of a process are counted in
//! three settings in turn: alone, with a kept log, and beside an archiver in another process that
//! appends every half second. The process writes at the given rate, or as fast as it can (0).

use std::env::{args, current_exe};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use runstone::{Backups, Change, Changes, ChangesFrom, KeyspaceOptions, Options, Result, Store};

const VALUE: [u8; 100] = [7; 100];
const SECONDS: u64 = 10;

fn key(number: u64) -> [u8; 8] {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 50_000_000).to_be_bytes()
}

/// Writes this many entries, which are only in the log, and dies.
fn fill(path: &Path, entries: u64) -> Result<()> {
    let mut keyspace = KeyspaceOptions::default();
    keyspace.write_buffer_bytes = 8 << 30;
    let options = Options::default().keyspace(keyspace).max_wal_bytes(8 << 30);
    let store = Store::open(path, options.memory_budget_bytes(8 << 30))?;
    (0..entries).try_for_each(|number| store.put(key(number), VALUE))?;
    std::process::abort()
}

/// Writes at a rate, and prints how many puts it made in a second.
fn write(path: &Path, keeps: u64, rate: u64) -> Result<()> {
    let store = Store::open(path, Options::default().keep_log_bytes(keeps))?;
    let (began, mut number) = (Instant::now(), 0u64);
    while began.elapsed() < Duration::from_secs(SECONDS) {
        for _ in 0..500 {
            store.put(key(number), VALUE)?;
            number += 1;
        }
        let due = (number * 1_000_000).checked_div(rate).map(Duration::from_micros);
        sleep(due.unwrap_or_default().saturating_sub(began.elapsed()));
    }
    println!("{}", number * 1000 / u64::try_from(began.elapsed().as_millis()).expect("short"));
    store.close()
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(current_exe().expect("this program"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("a child")
}

fn read_changes(path: &Path) -> Result<u64> {
    let mut changes = Changes::open(path, ChangesFrom::Oldest)?;
    let mut entries = 0;
    while let Some(changed) = changes.next()? {
        if let Change::Writes(batch) = changed.change {
            entries += batch.len();
        }
    }
    Ok(entries)
}

fn archive(path: &Path, backups: &Path, child: &mut Child) -> Result<()> {
    while !path.join("CURRENT").exists() {
        sleep(Duration::from_millis(5));
    }
    let mut archiver = Backups::open(backups)?.archive(path)?;
    while child.try_wait().expect("a child").is_none() {
        if archiver.advance(Duration::ZERO)?.is_drained {
            sleep(Duration::from_millis(500));
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let given: Vec<String> = args().skip(1).collect();
    let number = |at: usize, default: u64| {
        given.get(at).map_or(default, |text| text.parse().expect("a number"))
    };
    match given.first().map(String::as_str) {
        Some("--fill") => return fill(Path::new(&given[1]), number(2, 1)),
        Some("--write") => return write(Path::new(&given[1]), number(2, 0), number(3, 0)),
        _ => {}
    }
    let entries = number(0, 4) * 1_000_000;
    let place = tempfile::tempdir_in(".").expect("a directory");
    for turn in 0..3 {
        let path = place.path().join(format!("log{turn}"));
        let text = path.display().to_string();
        start(&["--fill", &text, &entries.to_string()]).wait().expect("a child");
        let began = Instant::now();
        let found = read_changes(&path)?;
        let read = began.elapsed();
        let began = Instant::now();
        let store = Store::open(&path, Options::default())?;
        let replayed = began.elapsed();
        store.close()?;
        println!(
            "turn {turn}: {found} changes read in {read:.2?}, replayed by an open in \
             {replayed:.2?}: {:.2} of its speed",
            replayed.as_secs_f64() / read.as_secs_f64()
        );
        std::fs::remove_dir_all(path).expect("a directory");
    }
    let rate = number(1, 0).to_string();
    for turn in 0..3 {
        let mut rates = Vec::new();
        for how in ["alone", "kept", "archived"] {
            let (path, backups) = (place.path().join(how), place.path().join("backups"));
            let keeps = if how == "alone" { "0" } else { "1073741824" };
            let mut child = start(&["--write", &path.display().to_string(), keeps, &rate]);
            if how == "archived" {
                archive(&path, &backups, &mut child)?;
                std::fs::remove_dir_all(backups).expect("a directory");
            }
            let output = child.wait_with_output().expect("it ends");
            let text = String::from_utf8(output.stdout).expect("text");
            rates.push(text.trim().parse::<f64>().expect("a number"));
            std::fs::remove_dir_all(path).expect("a directory");
        }
        println!(
            "turn {turn}: {:.0} puts/s alone, {:.3} of it with a log that is kept, {:.3} archived",
            rates[0],
            rates[1] / rates[0],
            rates[2] / rates[0]
        );
    }
    Ok(())
}
