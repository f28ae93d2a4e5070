//! A crash at every I/O operation of 200-operation workloads, eight seeds, with and without power
//! loss: promises P1-P5, P8 and P10.

use runstone_sim::crash::{Crash, count_operations, crash_at};
use runstone_sim::workload::generate;

const OPERATIONS: usize = 200;

fn crash_everywhere(seed: u64) {
    let operations = generate(seed, OPERATIONS);
    let (count, hash) = count_operations(seed, &operations);
    assert_eq!(count_operations(seed, &operations), (count, hash), "a seed is a run");
    assert!(count > 100, "the workload touches the disk: {count} operations");
    let mut lost = 0;
    for at in 0..count {
        let crashes = [Crash::Process, Crash::Power(at), Crash::Power(at.wrapping_mul(31) + 7)];
        let survived = crash_at(seed, &operations, at, &crashes);
        lost += survived.iter().filter(|one| one.batches < one.attempted).count();
    }
    assert!(lost > 0, "some crash loses an unsynced suffix, or the faults prove nothing");
}

macro_rules! seeds {
    ($($name:ident = $seed:literal),+) => {
        $(#[test] fn $name() { crash_everywhere($seed); })+
    };
}

seeds!(
    seed_1 = 1,
    seed_2 = 2,
    seed_3 = 3,
    seed_4 = 4,
    seed_5 = 5,
    seed_6 = 6,
    seed_7 = 7,
    seed_8 = 8
);
