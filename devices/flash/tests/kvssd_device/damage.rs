//! Damaged images, images of other devices, and images that refuse a write.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::failing::Failing;
use crate::support::{State, scanned};
use crate::tiny::{
    Images, TINY, apart, appended, cut_workload, delayed, key, run, tiered, tiny, under,
};
use runstone_flash::kvssd::{
    Clip, Direction, Durability, Entry, KvSsd, KvSsdOptions, Partitioner, Placement, ValuePlacement,
};
use runstone_flash::nand::{FaultPlan, Geometry, Image, MemoryImage, Timing};
use runstone_flash::{Error, Result};

/// A device with tables, a journal, checkpoints and a memtable, and its content.
fn filled() -> (Images, State) {
    let images = Images::new();
    let mut device = images.create(&tiny());
    let mut state = State::new();
    let steps = cut_workload();
    assert!(run(&mut device, &steps[..1200], &mut state).1.is_none());
    // Damaged bytes that were never synced count as lost by the machine.
    device.sync().unwrap();
    (images, state)
}

/// Opens a damaged device and reads everything. Each answer is right or an error.
fn judge(images: &Images, state: &State, place: &str) -> bool {
    let Ok(mut device) = images.open() else { return false };
    let mut found = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        true
    };
    let scanned = device.scan(None, Direction::Forward, u64::MAX, &mut visit);
    let expected: Vec<_> = state.clone().into_iter().collect();
    if scanned.is_ok() {
        assert!(found == expected, "{place}: a wrong answer");
    }
    for (key, value) in state.iter().step_by(16) {
        if let Ok(found) = device.get(key) {
            assert_eq!(found.as_ref(), Some(value), "{place}: a wrong answer");
        }
    }
    scanned.is_ok()
}

/// Flips a byte of the data or the spare area of one page at a time. A read returns an error or the
/// old data.
#[test]
fn flipped_bytes_are_found() {
    let (images, state) = filled();
    let len = images.flash.len_bytes().unwrap();
    let (mut refused, mut harmless) = (0, 0);
    for at in (4096..len).step_by(397) {
        let damaged = images.duplicate();
        let mut byte = [0];
        damaged.flash.read_at(at, &mut byte).unwrap();
        if byte[0] == 0 {
            continue;
        }
        damaged.flash.write_at(at, &[byte[0] ^ 0x24]).unwrap();
        match judge(&damaged, &state, &format!("byte {at}")) {
            true => harmless += 1,
            false => refused += 1,
        }
    }
    assert!(refused > 50 && harmless > 50, "{refused} refused, {harmless} harmless");
}

#[test]
fn a_damaged_side_file_is_refused_or_cut() {
    let (images, state) = filled();
    let len = images.side.len_bytes().unwrap();
    assert!(len > 500, "the memtable holds something");
    for at in (0..len).step_by(13) {
        let damaged = images.duplicate();
        let mut byte = [0];
        damaged.side.read_at(at, &mut byte).unwrap();
        damaged.side.write_at(at, &[byte[0] ^ 0x24]).unwrap();
        assert!(!judge(&damaged, &state, &format!("byte {at}")));
    }
    let mut cut = images.duplicate();
    cut.side.set_len(len - 1).unwrap();
    assert!(!judge(&cut, &state, "the last write was synced"));
    let mut device = images.open().unwrap();
    device.put(b"one more", b"never synced").unwrap();
    drop(device);
    let longer_len = images.side.len_bytes().unwrap();
    for at in [len, longer_len - 1] {
        cut = images.duplicate();
        cut.side.write_at(at, &[0x24]).unwrap();
        assert!(judge(&cut, &state, "the machine lost the last write"));
        cut = images.duplicate();
        cut.side.set_len(at).unwrap();
        assert!(judge(&cut, &state, "the last write was cut short"));
    }
    cut = images.duplicate();
    cut.flash.set_len(len).unwrap();
    assert!(matches!(cut.open().err(), Some(Error::CutShort { .. })));
}

#[test]
fn other_devices_are_refused_by_name() {
    let (images, _) = filled();
    let other = Geometry { block_count: TINY.block_count + 1, ..TINY };
    let open = |geometry, options| {
        let (flash, side) = (Box::new(images.flash.clone()), Box::new(images.side.clone()));
        KvSsd::open(flash, side, Some(geometry), Timing::PAPER, options)
    };
    assert!(matches!(open(other, None).err(), Some(Error::OtherGeometry { .. })));
    let of = |policy: &str, options| KvSsdOptions { policy: policy.to_string(), ..options };
    for (wrong, why) in [
        (of("universal", tiny()), "choose among: fragmented-leveling"),
        (KvSsdOptions { size_ratio: 16, ..tiered() }, "tiering with a size ratio of 16"),
        (of("tiering", delayed()), "tiering: dlsm keeps runs in a form of its own"),
        (of("tiering", appended()), "tiering: llsm keeps runs in a form of its own"),
    ] {
        let error = open(TINY, Some(wrong)).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains(why)), "{error:?}");
    }
    let wrong = KvSsdOptions { cuts: Partitioner::Prefix, ..tiny() };
    let error = open(TINY, Some(wrong)).err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("size, global-range")));
    let mut device = open(TINY, Some(KvSsdOptions { threshold: 4, ..tiny() })).unwrap();
    assert_eq!(device.options().threshold, 4);
    let limit = device.max_key_bytes();
    assert!(matches!(device.put(&vec![1; limit + 1], b""), Err(Error::KeySize { .. })));
    assert!(matches!(device.put(b"", b""), Err(Error::KeySize { .. })));
    let limit = device.max_value_bytes();
    assert!(matches!(device.put(b"k", &vec![1; limit + 1]), Err(Error::ValueSize { .. })));
    device.put(b"k", &vec![1; limit]).unwrap();
    device.flush().unwrap();
    assert_eq!(device.get(b"k").unwrap().map(|value| value.len()), Some(limit));
    let fresh = MemoryImage::new();
    let (flash, side) = (Box::new(fresh.clone()), Box::new(MemoryImage::new()));
    let options = runstone_flash::ftl::FtlOptions::default();
    let geometry = Geometry { page_bytes: 4096, ..TINY };
    let mut ftl =
        runstone_flash::ftl::Ftl::create(flash, geometry, Timing::PAPER, options).unwrap();
    ftl.write(0, &[1; 4096]).unwrap();
    let error = KvSsd::open(Box::new(fresh), side, None, Timing::PAPER, None).err();
    assert!(matches!(error, Some(Error::NotAKvSsd { .. })), "{error:?}");
}

/// Once, when a log page could not be programmed, the write reported an error, but readers saw it
/// all the same, and a later flush would have kept it.
#[test]
fn a_write_that_is_refused_is_not_there() {
    let options = KvSsdOptions { durability: Durability::Log, ..tiny() };
    let mut device = Images::new().create(&options);
    let failing_programs = (0..10_000).collect();
    device.nand_mut().set_faults(FaultPlan { failing_programs, ..FaultPlan::default() });
    let mut taken = State::new();
    let refused = loop {
        let key = (taken.len() as u32).to_be_bytes().to_vec();
        match device.put(&key, &[1; 300]) {
            Ok(()) => taken.insert(key, vec![1; 300]),
            Err(error) => break error,
        };
    };
    assert!(matches!(refused, Error::OutOfBlocks) && taken.len() > 1, "{refused}, {taken:?}");
    let found = scanned(&mut device, Direction::Forward, u64::MAX);
    assert!(found.into_iter().eq(taken), "what was taken, and nothing else");
}

/// Once, the image stored only part of a page group, and the retry began the group again at the
/// same page.
#[test]
fn a_flush_that_the_image_refuses_can_be_tried_again() {
    let mut refusals = 0;
    for place in 0.. {
        let images = Images::new();
        let (flash, side) = (Failing::refuses_one(&images.flash), Box::new(images.side.clone()));
        let left = Arc::clone(&flash.left);
        let mut device = KvSsd::create(Box::new(flash), side, TINY, Timing::PAPER, tiny()).unwrap();
        let large = vec![1; device.max_value_bytes()];
        for key in [b"a", b"k"] {
            device.put(key, &large).unwrap();
        }
        left.store(place, Ordering::Relaxed);
        let Err(error) = device.flush() else { break };
        assert!(matches!(error, Error::Image { .. }), "write {place}: {error}");
        refusals += 1;
        device.flush().unwrap_or_else(|error| panic!("after write {place}: {error}"));
        device.write_amplification();
        drop(device);
        let mut device = images.open().unwrap();
        device.verify().unwrap();
        assert_eq!(device.get(b"a").unwrap(), Some(large.clone()));
        assert_eq!(device.get(b"k").unwrap(), Some(large));
    }
    assert!(refusals > 20, "{refusals}");
}

/// Once, a refused save left bytes after the next, shorter save. These bytes were taken for damage,
/// and the device did not open again. A refused clearing had the same effect.
#[test]
fn what_the_side_file_refuses_leaves_nothing_behind() {
    for is_flushed in [false, true] {
        let images = Images::new();
        let (flash, side) = (Box::new(images.flash.clone()), Failing::refuses_one(&images.side));
        let left = Arc::clone(&side.left);
        let mut device = KvSsd::create(flash, Box::new(side), TINY, Timing::PAPER, tiny()).unwrap();
        device.put(b"a", b"1").unwrap();
        device.put(b"k", &[7; 700]).unwrap();
        left.store(0, Ordering::Relaxed);
        let refused = match is_flushed {
            true => device.flush(),
            false => device.put(b"k", &[8; 900]),
        };
        assert!(matches!(refused, Err(Error::Image { .. })), "{refused:?}");
        device.put(b"bb", b"2").unwrap();
        for _ in 0..2 {
            assert_eq!(device.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
            assert_eq!(device.get(b"k").unwrap().as_deref(), Some(&[7; 700][..]));
            assert_eq!(device.get(b"bb").unwrap().as_deref(), Some(&b"2"[..]));
            drop(device);
            device = images.open().unwrap();
            device.verify().unwrap();
        }
    }
}

/// Blocks in use that contain no live page.
fn idle_blocks(device: &KvSsd) -> BTreeSet<u32> {
    let is_idle = |block: &u32| {
        let report = device.block(*block);
        report.page_type.is_some() && report.live_pages == 0 && !report.is_retired
    };
    (0..device.nand().geometry().block_count).filter(is_idle).collect()
}

/// Once, a program failed in a block, and the image refused to mark the block as bad. The block was
/// then neither free nor collected until the device was opened again.
#[test]
fn a_block_that_could_not_be_marked_as_bad_is_not_lost() {
    let mut refusals = 0;
    for place in 0..20 {
        let images = Images::new();
        let (flash, side) = (Failing::refuses_one(&images.flash), Box::new(images.side.clone()));
        let left = Arc::clone(&flash.left);
        let options = KvSsdOptions { placement: Placement::Mixed, ..tiny() };
        let mut device =
            KvSsd::create(Box::new(flash), side, TINY, Timing::PAPER, options).unwrap();
        let cycle = |device: &mut KvSsd, round: u64| -> Result<()> {
            (0..30).try_for_each(|at| device.put(&key(at), &[round as u8; 300]))?;
            device.flush()?;
            device.compact()?;
            device.checkpoint()
        };
        cycle(&mut device, 0).unwrap();
        let mut plan = FaultPlan::default();
        plan.failing_programs.insert(2);
        device.nand_mut().set_faults(plan);
        left.store(place, Ordering::Relaxed);
        refusals += u64::from(cycle(&mut device, 1).is_err());
        left.store(u64::MAX, Ordering::Relaxed);
        // Open blocks are filled and new ones begun. A block that stays idle is lost.
        let mut idle: BTreeSet<u32> = (0..TINY.block_count).collect();
        for round in 2..60 {
            cycle(&mut device, round).unwrap();
            if round > 20 {
                idle = &idle & &idle_blocks(&device);
            }
        }
        assert!(idle.is_empty(), "write {place}: {idle:?}");
        device.verify().unwrap();
    }
    assert!(refusals > 10, "{refusals}");
}

/// Chooses a table that sank, and makes one of its pages unreadable. Returns the keys of the page.
fn lose_a_page(device: &mut KvSsd) -> Clip {
    let deep = device.tree().nodes().find(|node| node.level > 0);
    let table = device.table(deep.expect("a table sank").id).unwrap();
    let Entry { page, clip, .. } = &table.entries[table.entries.len() / 2];
    let uncorrectable = [device.nand().geometry().page(*page)].into();
    device.nand_mut().set_faults(FaultPlan { uncorrectable, ..FaultPlan::default() });
    clip.clone()
}

/// Once, a compaction that found an unreadable page failed the put that had caused it, and was
/// picked again at the next put: every put that found the memtable full failed, whatever its key.
/// Now the tables of such a page are left alone, and the others are compacted.
#[test]
fn a_page_that_cannot_be_read_does_not_end_compactions() {
    let nlsm = KvSsdOptions { threshold: 0, placement: Placement::PerTable, ..tiny() };
    let (log, policies) = (ValuePlacement::Log, ["leveling", "garnering"].map(under));
    let forms = [nlsm, tiny(), delayed(), appended(), tiered(), apart(log)];
    for options in forms.into_iter().chain(policies) {
        let mut device = Images::new().create(&options);
        let keys: Vec<Vec<u8>> = (0..160).map(key).collect();
        let mut turn = 0;
        while turn < 3 || device.tree().nodes().all(|node| node.level == 0) {
            keys.iter().for_each(|key| device.put(key, &[turn; 100]).unwrap());
            device.flush().unwrap();
            turn += 1;
        }
        let lost = lose_a_page(&mut device);
        let before = device.counters().compactions;
        for turn in turn..turn + 12 {
            for key in keys.iter().filter(|key| !lost.contains(key)) {
                device.put(key, &[turn; 100]).unwrap();
            }
            for key in keys.iter().filter(|key| !lost.contains(key)) {
                assert_eq!(device.get(key).unwrap(), Some(vec![turn; 100]));
            }
        }
        let place = format!("{} {}", device.options().name(), options.policy);
        let (counters, level0) = (device.counters(), device.tree().level(0).len());
        assert!(counters.compactions > before + 3 && level0 <= 10, "{place}: {level0}");
        assert!(counters.stuck_tables > 0, "{place}");
        let mut found = keys.iter().filter(|key| lost.contains(key)).map(|key| device.get(key));
        assert!(found.any(|found| found.is_err()), "{place}: the page is needed");
        assert!(matches!(device.compact(), Err(Error::Uncorrectable(_))), "{place}");
        device.nand_mut().set_faults(FaultPlan::default());
        device.compact().unwrap();
        device.verify().unwrap();
        assert!(keys.iter().all(|key| device.get(key).unwrap().is_some()), "{place}");
    }
}

/// Once, a full device with a page that cannot be read refused every put and every delete with the
/// error of this page, because the search for space ended there.
#[test]
fn a_full_device_with_an_unreadable_page_can_be_emptied() {
    for options in [tiny(), delayed(), appended(), apart(ValuePlacement::Groups)] {
        let mut device = Images::new().create(&options);
        let mut count = 0;
        let mut lost = None;
        let full = loop {
            match device.put(&key(count), &[1; 100]) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
            if count == 500 {
                lost = Some(lose_a_page(&mut device));
            }
        };
        assert!(matches!(full, Error::Full { .. }), "{full}");
        let lost = lost.expect("it takes 500 keys");
        let others = || (0..count).map(key).filter(|key| !lost.contains(key));
        for key in others() {
            device.delete(&key).unwrap();
        }
        for key in others().take(count as usize / 2) {
            device.put(&key, &[2; 100]).unwrap();
        }
        for (at, key) in others().enumerate() {
            let expected = (at < count as usize / 2).then(|| vec![2; 100]);
            assert_eq!(device.get(&key).unwrap(), expected, "{at}");
        }
    }
}
