//! Separated values of a KVSSD: how much is written for them, when their room is freed, which
//! options can be combined, large values, and damage. Tests that such a device is a map under power
//! cuts are in `kvssd_device/` and `kvssd_random.rs`.

mod support;

use std::collections::BTreeSet;

use runstone_flash::kvssd::{
    Cause, Direction, Form, KvSsd, KvSsdOptions, Partitioner, ValuePlacement,
};
use runstone_flash::nand::{FaultPlan, Geometry, MemoryImage, PageType, Timing};
use runstone_flash::{Error, Result};
use support::{Random, State, apply, model, scanned};

const SMALL: Geometry = Geometry {
    page_bytes: 4096,
    spare_bytes: 64,
    block_pages: 16,
    block_count: 100,
    channel_count: 1,
    die_count: 1,
};

fn options(values: ValuePlacement) -> KvSsdOptions {
    KvSsdOptions {
        memtable_pages: 16,
        level1_pages: 16,
        size_ratio: 4,
        l0_trigger: 2,
        checkpoint_commits: 32,
        cuts: Partitioner::Size,
        values,
        values_from: 100,
        ..KvSsdOptions::default()
    }
}

#[derive(Clone, Default)]
struct Images {
    flash: MemoryImage,
    side: MemoryImage,
}

impl Images {
    fn create(&self, options: &KvSsdOptions) -> KvSsd {
        let (flash, side) = (Box::new(self.flash.clone()), Box::new(self.side.clone()));
        KvSsd::create(flash, side, SMALL, Timing::PAPER, options.clone()).unwrap()
    }

    fn open(&self, options: Option<KvSsdOptions>) -> Result<KvSsd> {
        let (flash, side) = (Box::new(self.flash.clone()), Box::new(self.side.clone()));
        KvSsd::open(flash, side, None, Timing::PAPER, options)
    }
}

fn key(at: u64) -> Vec<u8> {
    format!("user{:020}", at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

fn value(at: u64, turn: u64) -> Vec<u8> {
    (0..400).map(|byte| (at * 7 + turn * 31 + byte) as u8).collect()
}

fn expect(device: &mut KvSsd, state: &State) {
    device.verify().unwrap();
    device.write_amplification();
    let expected: Vec<_> = state.clone().into_iter().collect();
    assert!(scanned(device, Direction::Forward, u64::MAX) == expected);
    let backwards: Vec<_> = expected.into_iter().rev().collect();
    assert!(scanned(device, Direction::Reverse, u64::MAX) == backwards);
}

/// Keys that fill two fifths of the device are overwritten until ten times the size of the device
/// has been written. Returns the bytes written to the flash per byte of the user, in thousandths.
fn overwrite(options: &KvSsdOptions, draw: impl Fn(&mut Random, u64) -> u64) -> (u64, KvSsd) {
    let images = Images::default();
    let mut device = images.create(options);
    let mut random = Random::new(7);
    let mut state = State::new();
    let record_bytes = 24 + 400;
    let keys = SMALL.data_bytes() * 2 / 5 / record_bytes;
    let writes = 10 * SMALL.data_bytes() / record_bytes;
    for turn in 0..writes {
        let at = if turn < keys { turn } else { draw(&mut random, keys) };
        if let Err(error) = device.put(&key(at), &value(at, turn)) {
            let values = options.values.name();
            panic!("{values}: write {turn} of {writes}: {error}: {:?}", device.counters());
        }
        state.insert(key(at), value(at, turn));
    }
    expect(&mut device, &state);
    let total = device.write_amplification().total_milli();
    drop(device);
    let mut device = images.open(None).unwrap();
    expect(&mut device, &state);
    for turn in 0..2000 {
        let at = draw(&mut random, keys);
        device.put(&key(at), &value(at, turn)).unwrap();
        state.insert(key(at), value(at, turn));
    }
    expect(&mut device, &state);
    (total, device)
}

fn uniform(random: &mut Random, keys: u64) -> u64 {
    random.below(keys)
}

/// Room is freed, and collection writes each value of a group at most two more times. Reading a
/// group finds garbage before compactions do, so groups write less than the log.
#[test]
fn ten_times_the_device_in_updates_finds_room_and_writes_little() {
    let [log, groups] = [ValuePlacement::Log, ValuePlacement::Groups].map(|values| {
        let (total, device) = overwrite(&options(values), uniform);
        assert!(device.counters().moved_values > 0, "{values:?}");
        assert_eq!(device.counters().group_reads > 0, values == ValuePlacement::Groups);
        total
    });
    println!("all writes, log / groups: {log} / {groups} thousandths");
    assert!(groups < 3500 && groups * 4 < log * 3, "{log} {groups}");
}

/// The same test where few keys are overwritten and the others stay.
#[test]
fn cold_values_among_hot_ones_are_moved_and_not_lost() {
    for values in [ValuePlacement::Log, ValuePlacement::Groups] {
        let hot = |random: &mut Random, keys: u64| match random.below(10) {
            0 => random.below(keys),
            _ => random.below(keys / 20),
        };
        let (total, device) = overwrite(&options(values), hot);
        println!("all writes, {values:?}: {total} thousandths");
        assert!(total < 4500, "{values:?}: {total} thousandths");
        assert!(device.counters().moved_values > 0);
    }
}

/// A full device accepts deletes, and frees the space of the deleted values.
#[test]
fn deletes_give_the_room_of_values_back() {
    for (values, form) in [
        (ValuePlacement::Log, Form::Remap),
        (ValuePlacement::Groups, Form::Remap),
        (ValuePlacement::Groups, Form::Append),
        (ValuePlacement::Log, Form::Delay),
    ] {
        let images = Images::default();
        let mut device = images.create(&KvSsdOptions { form, threshold: 4, ..options(values) });
        let mut counts = Vec::new();
        for turn in 0..3 {
            let refused = |at: &u64| match device.put(&key(*at), &value(*at, turn)) {
                Ok(()) => false,
                Err(error) => {
                    assert!(matches!(error, Error::Full { .. }), "{error}");
                    true
                }
            };
            let count = (0..1_000_000).find(refused).unwrap();
            counts.push(count);
            device.verify().unwrap();
            if turn == 1 {
                device.sync().unwrap();
                drop(device);
                device = images.open(None).unwrap();
            }
            (0..count).for_each(|at| device.delete(&key(at)).unwrap());
            expect(&mut device, &State::new());
        }
        let (least, most) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
        let whole = SMALL.data_bytes() / 444;
        assert!(least * 20 > most * 17 && least * 2 > whole, "{values:?} {form:?}: {counts:?}");
    }
}

/// A reader holds a snapshot while the values that it sees are overwritten and their blocks are
/// collected.
#[test]
fn a_snapshot_keeps_its_values_through_collections() {
    for values in [ValuePlacement::Log, ValuePlacement::Groups] {
        let mut device = Images::default().create(&options(values));
        let mut seen = State::new();
        for at in 0..2000 {
            device.put(&key(at), &value(at, 0)).unwrap();
            seen.insert(key(at), value(at, 0));
        }
        let snapshot = device.snapshot();
        for turn in 1..=12 {
            (0..2000).for_each(|at| device.put(&key(at), &value(at, turn)).unwrap());
        }
        assert!(device.counters().collections > 0, "{:?}", device.counters());
        let expected: Vec<_> = seen.into_iter().collect();
        assert!(scanned(&mut device, Direction::Forward, snapshot) == expected);
        assert_eq!(device.get_at(&key(3), snapshot).unwrap(), Some(value(3, 0)));
        device.verify().unwrap();
        device.release(snapshot);
        for turn in 13..=16 {
            (0..2000).for_each(|at| device.put(&key(at), &value(at, turn)).unwrap());
        }
        device.verify().unwrap();
        assert_eq!(device.get(&key(3)).unwrap(), Some(value(3, 16)));
    }
}

/// Values from the threshold on are separated, even those larger than a page. Others are not.
#[test]
fn the_threshold_decides_and_large_values_have_pages_of_their_own() {
    let mut device = Images::default().create(&options(ValuePlacement::Groups));
    let lengths = [0, 1, 99, 100, 101, 4000, 4096, 9000, device.max_value_bytes() as u64];
    let mut state = State::new();
    for (at, len) in (0..).zip(lengths) {
        let value = vec![at as u8 + 1; len as usize];
        device.put(&key(at), &value).unwrap();
        state.insert(key(at), value);
    }
    device.flush().unwrap();
    let verified = device.verify().unwrap();
    assert_eq!(verified.values, 6);
    assert_eq!(device.counters().values_apart, 6);
    let pages = device.programs().of(Cause::Flush, PageType::Value);
    assert_eq!(verified.value_pages, pages);
    expect(&mut device, &state);
    let before = device.counters();
    assert_eq!(device.get(&key(7)).unwrap().map(|value| value.len()), Some(9000));
    let after = device.counters();
    assert_eq!(after.value_pages_read - before.value_pages_read, 3);
    // The other two pages belong to the table: its metadata, and a page of records.
    assert_eq!(after.get_pages - before.get_pages, 5);
    for turn in 0..60 {
        for (at, len) in (0..).zip(lengths) {
            let step = vec![(key(at), Some(vec![turn; len as usize]))];
            apply(&mut device, &step).unwrap();
            model(&mut state, &step);
        }
    }
    expect(&mut device, &state);
}

/// Until the first collection after a restart the device need not know which values are needed.
#[test]
fn values_are_counted_once_after_a_restart_and_not_before_they_must_be() {
    let images = Images::default();
    let mut device = images.create(&options(ValuePlacement::Log));
    (0..6000).for_each(|turn| device.put(&key(turn % 3000), &value(turn, 0)).unwrap());
    device.sync().unwrap();
    assert_eq!(device.counters().value_counts, 0, "it knows from the start");
    drop(device);
    let mut device = images.open(None).unwrap();
    assert_eq!(device.get(&key(1)).unwrap(), Some(value(3001, 0)));
    assert_eq!(device.counters().value_counts, 0);
    (0..24_000).for_each(|turn| device.put(&key(turn % 3000), &value(turn, 0)).unwrap());
    assert_eq!(device.counters().value_counts, 1);
    device.verify().unwrap();
}

/// The formats of all checkpoints on the flash, whether or not they are whole.
fn formats(images: &Images) -> BTreeSet<u8> {
    use runstone_flash::nand::Image as _;
    let mut bytes = vec![0; images.flash.len_bytes().unwrap() as usize];
    images.flash.read_at(0, &mut bytes).unwrap();
    let heads = bytes.windows(8).filter(|head| head.starts_with(b"RCKP"));
    heads.map(|head| head[4]).collect()
}

/// The option can be set on a device that has values, and unset again. Its values stay where they
/// are, and readers find them.
#[test]
fn values_stay_where_they_are_when_the_option_changes() {
    let images = Images::default();
    let mut device = images.create(&options(ValuePlacement::Inline));
    let mut state = State::new();
    let mut write = |device: &mut KvSsd, turn: u64| {
        for at in (turn * 300)..(turn * 300 + 900) {
            device.put(&key(at), &value(at, turn)).unwrap();
            state.insert(key(at), value(at, turn));
        }
        // Options are kept in checkpoints.
        device.checkpoint().unwrap();
        device.sync().unwrap();
        expect(device, &state);
    };
    write(&mut device, 0);
    assert_eq!(device.verify().unwrap().values, 0);
    for (turn, values) in
        [(1, ValuePlacement::Groups), (2, ValuePlacement::Inline), (3, ValuePlacement::Groups)]
    {
        drop(device);
        device = images.open(Some(options(values))).unwrap();
        let before = device.verify().unwrap().values;
        write(&mut device, turn);
        let is_more = device.verify().unwrap().values > before;
        assert_eq!(is_more, values == ValuePlacement::Groups);
    }
    drop(device);
    assert_eq!(formats(&images), [1].into(), "one form, with separated values and without");
    let error = images.open(Some(options(ValuePlacement::Log))).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("in groups; open it as it is"), "{text}");
    let mut device = images.open(None).unwrap();
    assert_eq!(device.options().values, ValuePlacement::Groups, "a device keeps its options");
    expect(&mut device, &state);
}

/// Options are kept in checkpoints, and the next checkpoint may be far away.
#[test]
fn the_option_stays_after_the_first_flush() {
    let images = Images::default();
    drop(images.create(&options(ValuePlacement::Inline)));
    let mut device = images.open(Some(options(ValuePlacement::Groups))).unwrap();
    device.put(&key(1), &value(1, 0)).unwrap();
    device.flush().unwrap();
    drop(device);
    let device = images.open(None).unwrap();
    assert_eq!(device.options().values, ValuePlacement::Groups);
}

#[test]
fn thresholds_that_cannot_be_are_refused() {
    let most = Images::default().create(&options(ValuePlacement::Log)).max_value_bytes() as u32;
    for (values_from, is_possible) in [(0, false), (1, true), (most, true), (most + 1, false)] {
        for values in ValuePlacement::ALL {
            let options = KvSsdOptions { values_from, ..options(values) };
            let checked = options.check(&SMALL);
            if is_possible || values == ValuePlacement::Inline {
                checked.unwrap();
            } else {
                let text = checked.unwrap_err().to_string();
                assert!(text.contains("values_from") && text.contains(&most.to_string()), "{text}");
            }
        }
    }
}

/// A byte of each page in turn is flipped. A read returns an error or the old value, and a device
/// with a value that cannot be read continues with the others.
#[test]
fn damage_to_values_is_found_and_costs_no_other_value() {
    let images = Images::default();
    let mut device = images.create(&options(ValuePlacement::Groups));
    let count = 1500;
    (0..count).for_each(|at| device.put(&key(at), &value(at, 0)).unwrap());
    device.flush().unwrap();
    let is_value = |block: &u32| device.block(*block).page_type == Some(PageType::Value);
    let blocks: Vec<u32> = (0..SMALL.block_count).filter(is_value).collect();
    assert!(blocks.len() > 4);
    // Reads of the fifth page of the first of these blocks cannot be corrected.
    let lost = blocks[0] * SMALL.block_pages + 4;
    let plan = FaultPlan {
        uncorrectable: [SMALL.page(lost)].into_iter().collect(),
        ..FaultPlan::default()
    };
    device.nand_mut().set_faults(plan);
    let (mut found, mut lost_count) = (0, 0);
    for at in 0..count {
        match device.get(&key(at)) {
            Ok(read) => {
                assert_eq!(read, Some(value(at, 0)));
                found += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Uncorrectable(_)), "{error}");
                lost_count += 1;
            }
        }
    }
    assert!(lost_count > 0 && lost_count < 12 && found + lost_count == count);
    for turn in 1..=12 {
        for at in count..2 * count {
            device.put(&key(at), &value(at, turn)).unwrap();
        }
    }
    assert!(device.counters().collections > 0);
    let still_lost = (0..count).filter(|at| device.get(&key(*at)).is_err()).count() as u64;
    assert_eq!(still_lost, lost_count, "it was not lost silently, nor another with it");
}
