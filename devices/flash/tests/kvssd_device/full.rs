//! A device without room: for pages, for the tables of a commit, for versions in a block.

use crate::support::{Random, State, Step, apply, model, scanned};
use crate::tiny::{Images, TINY, apart, appended, delayed, expect, key, step, tiered, tiny};
use runstone_flash::kvssd::{
    Direction, Durability, Form, KvSsd, KvSsdOptions, Partitioner, Placement, ValuePlacement,
};
use runstone_flash::nand::{FaultPlan, Geometry};
use runstone_flash::{Error, Result};

#[test]
fn a_full_device_refuses_puts_and_recovers_by_deletes() {
    for options in [
        tiny(),
        KvSsdOptions { placement: Placement::PerTable, threshold: 0, ..tiny() },
        KvSsdOptions { cuts: Partitioner::GlobalRange, ..tiny() },
        delayed(),
        appended(),
        apart(ValuePlacement::Log),
        apart(ValuePlacement::Groups),
    ] {
        let images = Images::new();
        let mut device = images.create(&options);
        let mut state = State::new();
        for turn in 0..3 {
            let value = vec![turn; 100];
            let refused = (0..100_000).find(|at| match device.put(&key(*at), &value) {
                Ok(()) => {
                    state.insert(key(*at), value.clone());
                    false
                }
                Err(error) => {
                    assert!(matches!(error, Error::Full { .. }), "{error}");
                    true
                }
            });
            let count = refused.expect("it is finite");
            assert!(device.put(&key(count), &value).is_err(), "still full");
            device.verify().unwrap();
            for at in (0..count).filter(|at| at % 3 > 0) {
                device.delete(&key(at)).unwrap();
                state.remove(&key(at));
            }
            let expected: Vec<_> = state.clone().into_iter().collect();
            assert!(scanned(&mut device, Direction::Forward, u64::MAX) == expected);
            device = images.open().unwrap();
            for at in 0..count / 3 {
                device.put(&key(200_000 + at), &value).unwrap();
                state.insert(key(200_000 + at), value.clone());
            }
            let expected: Vec<_> = state.clone().into_iter().collect();
            assert!(scanned(&mut device, Direction::Forward, u64::MAX) == expected);
            for at in 0..count / 3 {
                device.delete(&key(200_000 + at)).unwrap();
                state.remove(&key(200_000 + at));
            }
            device.verify().unwrap();
        }
    }
}

/// A batch too large for the device makes it search for room in vain. Once, the device did not
/// search again until something was deleted. It refused overwrites for ever, although the
/// overwritten versions took all the room.
#[test]
fn a_device_that_refused_a_large_batch_finds_room_for_overwrites() {
    for options in [tiny(), delayed(), tiered(), apart(ValuePlacement::Log)] {
        let mut device = Images::new().create_on(Geometry { block_count: 80, ..TINY }, &options);
        let count = (0..).take_while(|at| {
            device.put(&key(*at), &[1; 100]).unwrap();
            device.live_pages() * 10 < device.limit_pages() * 7
        });
        let count = count.count() as u64;
        let large: Step = (0..90).map(|at| (key(count + at), Some(vec![2; 5000]))).collect();
        assert!(matches!(apply(&mut device, &large), Err(Error::Full { .. })));
        for at in 0..20 * count {
            device.put(&key(at % count), &[3; 100]).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
        device.verify().unwrap();
    }
}

/// No other table may use the room that a table reserves for its segments: fewer keys fit, and a
/// restart finds the same budget. Under other forms nothing is reserved.
#[test]
fn tables_of_llsm_reserve_room() {
    let fill = |options: KvSsdOptions| {
        let images = Images::new();
        let mut device = images.create_on(TINY, &options);
        let mut random = Random::new(4);
        let count = (0..).take_while(|_| device.put(&key(random.below(90_000)), &[7; 90]).is_ok());
        let count = count.count();
        let reserved = device.reserved_pages();
        assert!(device.live_pages() + reserved + 8 > device.limit_pages(), "it is full");
        drop(device);
        assert_eq!(images.open().unwrap().reserved_pages(), reserved);
        (count, reserved)
    };
    let (nlsm, none) = fill(KvSsdOptions { form: Form::Remap, threshold: 0, ..appended() });
    let (llsm, some) = fill(appended());
    assert!(none == 0 && some > 20, "{some} pages reserved");
    assert!(llsm * 10 < nlsm * 9, "{llsm} keys fit, {nlsm} without reserved room");
}

/// When blocks turn bad, the device may have more data than its limit allows. It still accepts
/// deletes.
#[test]
fn a_full_device_with_fewer_blocks_recovers_by_deletes() {
    let images = Images::new();
    let mut device = images.create(&tiny());
    let value = [7; 100];
    let count = (0..).take_while(|at| device.put(&key(*at), &value).is_ok()).count() as u64;
    for block in (0..TINY.block_count).step_by(16) {
        device.nand_mut().retire(block).unwrap();
    }
    drop(device);
    let mut device = images.open().unwrap();
    assert!(device.live_pages() > device.limit_pages() + 8, "not even a memtable of deletes");
    assert!(device.put(&key(count), &value).is_err(), "still full");
    (0..count).filter(|at| at % 3 > 0).for_each(|at| device.delete(&key(at)).unwrap());
    device.put(&key(count), &value).unwrap();
    device.verify().unwrap();
    for at in 0..=count {
        let is_there = at % 3 == 0 || at == count;
        assert_eq!(device.get(&key(at)).unwrap().is_some(), is_there, "{at}");
    }
}

/// The tables of a flush may not fit one journal page, because a large batch makes too many of them
/// or because long keys make their fences too large. Once, the device accepted these writes, and no
/// others after them.
#[test]
fn a_flush_larger_than_a_journal_page_is_one_commit() {
    const ROOMY: Geometry = Geometry { block_count: 64, ..TINY };
    let value = vec![7; 900];
    let batch: Step = (0..130).map(|at| (key(at), Some(value.clone()))).collect();
    let long_key = |at: u64| ([&[b'k'; 56][..], &at.to_be_bytes()].concat(), vec![1; 10]);
    let long_keys = (0..900).map(long_key).map(|(key, value)| vec![(key, Some(value))]);
    let plain = KvSsdOptions { memtable_pages: 100, ..tiny() };
    let cases: [(KvSsdOptions, Vec<Step>); 3] = [
        (tiny(), vec![batch.clone(), step(&mut Random::new(1), 9)]),
        (KvSsdOptions { durability: Durability::Log, ..tiny() }, vec![batch]),
        (plain, long_keys.collect()),
    ];
    for (options, steps) in cases {
        let fill = |device: &mut KvSsd| -> Result<()> {
            steps.iter().try_for_each(|step| apply(device, step))?;
            device.flush()
        };
        let mut whole = Images::new().create_on(ROOMY, &options);
        fill(&mut whole).unwrap();
        let mut state = State::new();
        steps.iter().for_each(|step| model(&mut state, step));
        assert!(whole.verify().unwrap().tables > 10);
        for cut in 2..whole.nand().mutation_count() {
            let images = Images::new();
            let mut device = images.create_on(ROOMY, &options);
            let plan = FaultPlan { power_cut_at: Some(cut - 1), seed: cut, ..FaultPlan::default() };
            device.nand_mut().set_faults(plan);
            assert!(fill(&mut device).is_err());
            device = images.open().unwrap();
            let found = device.tree().last_seq() as usize;
            let ends = steps.iter().scan(0, |end, step| {
                *end += step.len();
                Some(*end)
            });
            assert!(found == 0 || ends.into_iter().any(|end| end == found), "cut {cut}: {found}");
            fill(&mut device).unwrap();
            expect(&mut device, &state, u64::MAX, 130);
            device.verify().unwrap();
        }
    }
}

/// When there is little room, a run sinks in parts. Its keys up to some key sink, and the others
/// stay above.
#[test]
fn runs_sink_in_parts_where_room_is_short() {
    let images = Images::new();
    let geometry = Geometry { block_count: 44, ..TINY };
    let mut device = images.create_on(geometry, &tiered());
    let (mut state, mut random) = (State::new(), Random::new(2));
    for round in 0..6000 {
        let step = step(&mut random, 500);
        apply(&mut device, &step).unwrap();
        model(&mut state, &step);
        if round % 1000 == 999 {
            device.verify().unwrap();
            expect(&mut device, &state, u64::MAX, 500);
        }
    }
    assert!(device.counters().split_compactions > 1, "{:?}", device.counters());
}

/// All versions of a key that snapshots hold end up in one page group, and a group is in one block.
/// Once, a flush programmed past the end of the block, and the device accepted no more writes.
#[test]
fn versions_that_snapshots_hold_never_outgrow_a_block() {
    for durability in [Durability::Capacitor, Durability::Log] {
        let mut device = Images::new().create(&KvSsdOptions { durability, ..tiny() });
        let large = vec![1; device.max_value_bytes()];
        device.put(b"k", &large).unwrap();
        let mut snapshots = vec![device.snapshot()];
        let refused = device.put(b"k", &large);
        assert!(matches!(refused, Err(Error::VersionsHeld { .. })), "{refused:?}");
        device.put(b"other", &large).unwrap();
        // Both snapshots see the same version, so it is stored once.
        snapshots.push(device.snapshot());
        let mut newest = large.clone();
        loop {
            match device.put(b"k", &[snapshots.len() as u8; 200]) {
                Ok(()) => newest = vec![snapshots.len() as u8; 200],
                Err(error) => break assert!(matches!(error, Error::VersionsHeld { .. })),
            }
            snapshots.push(device.snapshot());
            device.flush().unwrap();
        }
        assert!((6..12).contains(&snapshots.len()), "{}", snapshots.len());
        assert_eq!(device.get(b"k").unwrap(), Some(newest), "what is refused is not there");
        device.compact().unwrap();
        assert_eq!(device.get_at(b"k", snapshots[0]).unwrap().as_ref(), Some(&large));
        assert_eq!(device.get_at(b"k", snapshots[3]).unwrap(), Some(vec![3; 200]));
        snapshots.drain(..).for_each(|snapshot| device.release(snapshot));
        device.put(b"k", &large).unwrap();
        device.flush().unwrap();
        assert_eq!(device.get(b"k").unwrap(), Some(large));
        device.verify().unwrap();
    }
}

/// A full device whose blocks have few pages can be emptied like any other.
#[test]
fn full_devices_of_small_blocks_take_deletes() {
    for (block_pages, block_count) in
        [(2, 40), (3, 32), (4, 24), (4, 28), (4, 40), (5, 24), (6, 24)]
    {
        let geometry = Geometry { block_pages, block_count, ..TINY };
        for memtable_pages in [1, 4] {
            let options = KvSsdOptions { memtable_pages, ..tiny() };
            let place = format!("{block_count} blocks of {block_pages}, {memtable_pages}");
            let images = Images::new();
            let mut device = images.create_on(geometry, &options);
            let mut written = 0;
            while device.put(&key(written), &[1; 200]).is_ok() {
                written += 1;
            }
            for at in 0..written {
                device.delete(&key(at)).unwrap_or_else(|error| panic!("{place}: {at}: {error}"));
            }
            device.compact().unwrap_or_else(|error| panic!("{place}: {error}"));
            let mut again = 0;
            while device.put(&key(again), &[1; 200]).is_ok() {
                again += 1;
            }
            assert!(again * 10 >= written * 8, "{place}: {again} after {written}");
        }
    }
}

/// Once, with long keys, no part of a compaction of level 0 had a commit that fits a journal page.
/// The device reported that it was full when a third of it was in use, and level 0 kept growing.
#[test]
fn compactions_of_long_keys_find_a_commit() {
    let long_key = |at: u64| {
        let spread = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        [&[b'k'; 56][..], &spread].concat()
    };
    for l0_trigger in [2, 4, 8] {
        let device_options = KvSsdOptions { l0_trigger, ..tiny() };
        let images = Images::new();
        let mut device = images.create(&device_options);
        let mut state = State::new();
        for at in 0..1500 {
            let (key, value) = (long_key(at % 150), vec![at as u8; 60]);
            device.put(&key, &value).unwrap_or_else(|error| panic!("{l0_trigger}: {at}: {error}"));
            state.insert(key, value);
        }
        assert!(device.tree().level(0).len() <= l0_trigger as usize + 1);
        drop(device);
        let mut device = images.open().unwrap();
        device.verify().unwrap();
        let found: State = scanned(&mut device, Direction::Forward, u64::MAX).into_iter().collect();
        assert!(found == state);
        device.write_amplification();
    }
}

/// A sixteenth of a page of 1 MiB does not fit the 16 bits of a length. Once, a key of 65,535 bytes
/// was accepted but could never be flushed, and a key of 65,536 bytes was saved with the length 0.
#[test]
fn the_longest_keys_of_the_largest_pages_are_kept() {
    let geometry = Geometry { page_bytes: 1 << 20, block_count: 24, ..TINY };
    let images = Images::new();
    let mut device = images.create_on(geometry, &tiny());
    let most = device.max_key_bytes();
    device.put(&vec![1; most + 1], b"").expect_err("longer than the longest");
    let state: State = (1..6).map(|at| (vec![at; most], vec![at])).collect();
    for (key, value) in &state {
        device.put(key, value).unwrap();
    }
    drop(device);
    let mut device = images.open().unwrap();
    device.flush().unwrap();
    drop(device);
    let mut device = images.open().unwrap();
    device.verify().unwrap();
    let found: State = scanned(&mut device, Direction::Forward, u64::MAX).into_iter().collect();
    assert!(found == state);
}
