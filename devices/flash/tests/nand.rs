//! The device by itself: every rule, every fault, every byte of a header and of a page.

use std::collections::BTreeSet;

use runstone_flash::nand::{
    FaultPlan, FileImage, Geometry, Image, MemoryImage, Nand, Oob, PageTag, PageType, Ppa, Spare,
    Timing,
};
use runstone_flash::{Error, Result, Rule};

const SMALL: Geometry = Geometry {
    page_bytes: 1024,
    spare_bytes: 128,
    block_pages: 4,
    block_count: 6,
    channel_count: 2,
    die_count: 1,
};

fn at(block: u32, page: u32) -> Ppa {
    Ppa { block, page }
}

fn tag(program_seq: u64) -> PageTag {
    PageTag { page_type: PageType::Kv, level: 3, program_seq, txn: 7, owner: 11, index: 13 }
}

fn page(byte: u8) -> Vec<u8> {
    (0..SMALL.page_bytes).map(|at| (at as u8).wrapping_mul(31) ^ byte).collect()
}

fn fresh() -> (MemoryImage, Nand) {
    let image = MemoryImage::new();
    let nand = Nand::create(Box::new(image.clone()), SMALL, Timing::PAPER).unwrap();
    (image, nand)
}

fn open(image: &MemoryImage) -> Result<Nand> {
    Nand::open(Box::new(image.clone()), None, Timing::PAPER)
}

fn read(nand: &mut Nand, ppa: Ppa) -> Result<(Vec<u8>, Oob)> {
    let mut data = vec![0; nand.geometry().page_bytes as usize];
    let oob = nand.read(ppa, &mut data)?;
    Ok((data, oob))
}

#[track_caller]
fn broken<T>(result: Result<T>) -> Rule {
    match result {
        Err(Error::RuleBroken(_, rule)) => rule,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("was allowed"),
    }
}

#[test]
fn what_was_programmed_is_read_and_survives_reopening() {
    let (image, mut nand) = fresh();
    nand.program(at(2, 0), &page(1), tag(5)).unwrap();
    nand.program(at(2, 1), &page(2), tag(6)).unwrap();
    for reopened in [false, true] {
        if reopened {
            drop(nand);
            nand = open(&image).unwrap();
        }
        let (data, oob) = read(&mut nand, at(2, 0)).unwrap();
        assert_eq!((data, oob.tag, oob.erase_count), (page(1), tag(5), 0));
        assert_eq!(read(&mut nand, at(2, 1)).unwrap().0, page(2));
        let spares = nand.read_spares(2).unwrap();
        assert!(matches!(spares[1], Spare::Valid(oob) if oob.tag.program_seq == 6));
        assert_eq!(spares[2..], [Spare::Erased, Spare::Erased]);
        assert_eq!(nand.read_spare(at(2, 1)).unwrap(), spares[1]);
    }
    nand.program(at(2, 2), &page(3), tag(7)).unwrap();
}

#[test]
fn an_erased_page_reads_all_ones() {
    let (_, mut nand) = fresh();
    for round in 0..3 {
        let mut data = page(0);
        assert_eq!(nand.read_unchecked(at(1, 0), &mut data).unwrap(), Spare::Erased);
        assert!(data.iter().all(|&byte| byte == 0xff));
        assert!(matches!(nand.read(at(1, 0), &mut data), Err(Error::PageErased(_))));
        assert_eq!(nand.erase_count(1), round);
        nand.program(at(1, 0), &page(9), tag(1)).unwrap();
        nand.erase(1).unwrap();
    }
}

#[test]
fn rules_are_kept() {
    let (_, mut nand) = fresh();
    assert_eq!(broken(nand.program(at(0, 1), &page(1), tag(1))), Rule::ProgramInOrder);
    nand.program(at(0, 0), &page(1), tag(1)).unwrap();
    assert_eq!(broken(nand.program(at(0, 0), &page(2), tag(2))), Rule::ProgramErasedOnly);
    assert_eq!(broken(nand.program(at(0, 2), &page(2), tag(2))), Rule::ProgramInOrder);
    assert_eq!(broken(nand.program(at(0, 1), &page(2)[1..], tag(2))), Rule::WholePage);
    assert_eq!(broken(nand.read(at(0, 0), &mut [0; 512])), Rule::WholePage);
    nand.retire(0).unwrap();
    assert_eq!(broken(nand.program(at(0, 1), &page(2), tag(2))), Rule::NotRetired);
    assert_eq!(broken(nand.erase(0)), Rule::NotRetired);
    assert_eq!(read(&mut nand, at(0, 0)).unwrap().0, page(1), "a retired block is readable");
    for nowhere in [at(6, 0), at(0, 4), at(u32::MAX, u32::MAX)] {
        assert!(matches!(nand.program(nowhere, &page(1), tag(1)), Err(Error::NoSuchPage(_))));
        assert!(matches!(read(&mut nand, nowhere), Err(Error::NoSuchPage(_))));
        assert!(matches!(nand.read_spare(nowhere), Err(Error::NoSuchPage(_))));
    }
    assert!(matches!(nand.erase(6), Err(Error::NoSuchPage(_))));
    assert_eq!(nand.counters().of(PageType::Kv).programs, 1, "what is refused is not done");
}

#[test]
fn marks_of_bad_blocks_survive() {
    let (image, mut nand) = fresh();
    nand.retire(4).unwrap();
    drop(nand);
    let nand = open(&image).unwrap();
    assert!(nand.is_retired(4) && !nand.is_retired(3));
    assert_eq!((nand.wear().block_count, nand.wear().retired_count), (5, 1));
}

#[test]
fn geometries_that_cannot_be_are_refused() {
    let bad = [
        Geometry { page_bytes: 1000, ..SMALL },
        Geometry { page_bytes: 2 << 20, ..SMALL },
        Geometry { spare_bytes: 51, ..SMALL },
        Geometry { block_pages: 1, ..SMALL },
        Geometry { block_count: 1, ..SMALL },
        Geometry { block_count: 1 << 20, block_pages: 4096, ..SMALL },
        Geometry { channel_count: 0, ..SMALL },
        Geometry { die_count: 65, ..SMALL },
    ];
    for geometry in bad {
        let made = Nand::create(Box::new(MemoryImage::new()), geometry, Timing::PAPER);
        assert!(matches!(made, Err(Error::BadGeometry(_))), "{geometry}");
    }
}

#[test]
fn an_image_of_another_geometry_is_refused() {
    let (image, nand) = fresh();
    drop(nand);
    let other = Geometry { block_count: 7, ..SMALL };
    let opened = Nand::open(Box::new(image.clone()), Some(other), Timing::PAPER);
    let text = opened.unwrap_err().to_string();
    assert!(text.contains("6 blocks of 4 pages") && text.contains("not 7 blocks"), "{text}");
    Nand::open(Box::new(image), Some(SMALL), Timing::PAPER).unwrap();
}

/// Changes each byte of the header in three ways; then tests a newer format with a valid checksum.
#[test]
fn every_flipped_byte_of_the_header_is_found() {
    let (image, nand) = fresh();
    drop(nand);
    let mut header = vec![0; 4096];
    image.read_at(0, &mut header).unwrap();
    for offset in 0..header.len() {
        for changed in [header[offset] ^ 1, 0x00, 0xff] {
            if changed == header[offset] {
                continue;
            }
            image.write_at(offset as u64, &[changed]).unwrap();
            let error = open(&image).unwrap_err();
            match offset {
                0..8 => assert!(matches!(error, Error::NotAnImage)),
                _ => assert!(matches!(error, Error::HeaderDamaged)),
            }
        }
        image.write_at(offset as u64, &header[offset..=offset]).unwrap();
    }
    open(&image).unwrap();
    header[8] = 2;
    let crc = crc32c::crc32c(&header[..4092]);
    header[4092..].copy_from_slice(&crc.to_le_bytes());
    image.write_at(0, &header).unwrap();
    let newer = open(&image).unwrap_err();
    assert!(matches!(newer, Error::NewerFormat { found: 2, supported: 1 }));
}

#[test]
fn an_image_cut_short_is_refused() {
    let (image, nand) = fresh();
    drop(nand);
    let whole = image.len_bytes().unwrap();
    for len_bytes in [0, 1, 4095, 4096, 5000, whole / 2, whole - 1] {
        let cut = image.duplicate();
        cut.set_len(len_bytes).unwrap();
        let error = open(&cut).unwrap_err();
        assert!(matches!(error, Error::CutShort { found_bytes, .. } if found_bytes == len_bytes));
    }
}

/// Changes every byte of a block: its record, its spare area, the data of its first page.
#[test]
fn no_flipped_byte_of_a_block_gives_wrong_data() {
    let (image, mut nand) = fresh();
    nand.erase(0).unwrap();
    nand.program(at(0, 0), &page(1), tag(5)).unwrap();
    nand.program(at(0, 1), &page(2), tag(6)).unwrap();
    drop(nand);
    let (mut found, mut harmless) = (0, 0);
    for offset in 4096..4096 + 8192 + 1024 {
        let mut byte = [0];
        image.read_at(offset, &mut byte).unwrap();
        for changed in [byte[0] ^ 0x10, 0x00, 0xff] {
            image.write_at(offset, &[changed]).unwrap();
            let outcome = open(&image).and_then(|mut nand| read(&mut nand, at(0, 0)));
            match outcome {
                Ok((data, oob)) => {
                    assert_eq!((data, oob.tag), (page(1), tag(5)), "byte {offset}");
                    harmless += 1;
                }
                Err(Error::BlockRecordDamaged { block: 0 } | Error::PageDamaged(..)) => found += 1,
                Err(other) => panic!("byte {offset}: {other}"),
            }
        }
        image.write_at(offset, &byte).unwrap();
    }
    assert!(found > 2 * (24 + 128 + 1024), "{found} found, {harmless} harmless");
}

/// Swaps the data, then the spare bytes, of two pages.
#[test]
fn swapped_pages_are_found() {
    let (image, mut nand) = fresh();
    nand.program(at(0, 0), &page(1), tag(5)).unwrap();
    nand.program(at(0, 1), &page(2), tag(6)).unwrap();
    drop(nand);
    let swap = |first: u64, second: u64, len: usize| {
        let (mut one, mut two) = (vec![0; len], vec![0; len]);
        image.read_at(first, &mut one).unwrap();
        image.read_at(second, &mut two).unwrap();
        image.write_at(first, &two).unwrap();
        image.write_at(second, &one).unwrap();
    };
    swap(4096 + 8192, 4096 + 8192 + 1024, 1024);
    assert!(matches!(read(&mut open(&image).unwrap(), at(0, 0)), Err(Error::PageDamaged(..))));
    swap(4096 + 4096, 4096 + 4096 + 144, 144);
    assert!(matches!(read(&mut open(&image).unwrap(), at(0, 0)), Err(Error::PageDamaged(..))));
}

/// Cuts the power in the middle of a program, with many seeds. The page is old, torn or new, but
/// never wrong, and the pages before it are untouched. A page that only looks erased cannot be
/// programmed.
#[test]
fn a_power_cut_tears_one_page() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..64 {
        let (image, mut nand) = fresh();
        nand.set_faults(FaultPlan { power_cut_at: Some(1), seed, ..FaultPlan::default() });
        nand.program(at(0, 0), &page(1), tag(5)).unwrap();
        let cut = nand.program(at(0, 1), &page(2), tag(6));
        assert!(matches!(cut, Err(Error::PowerCut)));
        assert!(matches!(nand.program(at(0, 2), &page(3), tag(7)), Err(Error::PowerCut)));
        assert!(matches!(read(&mut nand, at(0, 0)), Err(Error::PowerCut)));
        assert!(matches!(nand.erase(1), Err(Error::PowerCut)));
        assert!(matches!(nand.sync(), Err(Error::PowerCut)));
        assert_eq!(nand.fired_faults().power_cuts, 1);
        drop(nand);
        let mut nand = open(&image).unwrap();
        assert_eq!(read(&mut nand, at(0, 0)).unwrap().0, page(1));
        let torn = read(&mut nand, at(0, 1));
        let again = nand.program(at(0, 1), &page(4), tag(8));
        let outcome = match (&torn, &again) {
            (Err(Error::PageErased(_)), Ok(())) => "not begun",
            (Err(Error::PageErased(_)), Err(Error::RuleBroken(_, Rule::NotPastTorn))) => "looks",
            (Err(Error::PageDamaged(_, what)), Err(Error::RuleBroken(..))) => what,
            (Ok((data, _)), Err(Error::RuleBroken(..))) if *data == page(2) => "complete",
            _ => panic!("{torn:?} {again:?}"),
        };
        outcomes.insert(outcome.to_string());
        nand.erase(0).unwrap();
        nand.program(at(0, 0), &page(5), tag(9)).unwrap();
    }
    assert_eq!(outcomes.len(), 5, "{outcomes:?}");
}

#[test]
fn a_power_cut_tears_an_erase() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..32 {
        let (image, mut nand) = fresh();
        nand.program(at(3, 0), &page(1), tag(5)).unwrap();
        nand.set_faults(FaultPlan { power_cut_at: Some(0), seed, ..FaultPlan::default() });
        assert!(matches!(nand.erase(3), Err(Error::PowerCut)));
        drop(nand);
        let mut nand = open(&image).unwrap();
        let outcome = match (read(&mut nand, at(3, 0)), nand.read_spare(at(3, 3)).unwrap()) {
            (Ok(_), Spare::Erased) => "not begun",
            (Err(Error::PageDamaged(..)), Spare::Damaged) => "half",
            (Err(Error::PageErased(_)), Spare::Erased) => "complete",
            other => panic!("{other:?}"),
        };
        assert_eq!(nand.program(at(3, 0), &page(2), tag(6)).is_ok(), outcome == "complete");
        outcomes.insert(outcome);
        nand.erase(3).unwrap();
        nand.program(at(3, 0), &page(2), tag(6)).unwrap();
    }
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
}

#[test]
fn programs_erases_and_reads_fail_on_demand() {
    let (_, mut nand) = fresh();
    nand.set_faults(FaultPlan {
        failing_programs: [1].into(),
        failing_erases: [0].into(),
        uncorrectable: [at(0, 0)].into(),
        ..FaultPlan::default()
    });
    nand.program(at(0, 0), &page(1), tag(5)).unwrap();
    let failed = nand.program(at(0, 1), &page(2), tag(6));
    assert!(matches!(failed, Err(Error::ProgramFailed(ppa)) if ppa == at(0, 1)));
    assert!(matches!(read(&mut nand, at(0, 1)), Err(Error::PageDamaged(..))));
    assert!(matches!(read(&mut nand, at(0, 0)), Err(Error::Uncorrectable(_))));
    assert_eq!(nand.read_spare(at(0, 0)).unwrap(), Spare::Damaged);
    assert!(matches!(nand.erase(0), Err(Error::EraseFailed { block: 0 })));
    assert_eq!(nand.read_spare(at(0, 3)).unwrap(), Spare::Damaged);
    assert_eq!(nand.mutation_count(), 3);
    let fired = nand.fired_faults();
    assert_eq!((fired.failed_programs, fired.failed_erases, fired.uncorrectable_reads), (1, 1, 2));
    nand.set_faults(FaultPlan::default());
    nand.erase(0).unwrap();
    assert_eq!(nand.mutation_count(), 1, "a new plan counts anew");
}

#[test]
fn counters_count_by_type_and_wear_adds_up() {
    let (image, mut nand) = fresh();
    nand.program(at(0, 0), &page(1), tag(5)).unwrap();
    nand.program(at(1, 0), &page(1), PageTag { page_type: PageType::Meta, ..tag(6) }).unwrap();
    read(&mut nand, at(0, 0)).unwrap();
    nand.read_spares(1).unwrap();
    for block in [0, 1, 1, 5] {
        nand.erase(block).unwrap();
    }
    let counters = nand.counters();
    let kv = counters.of(PageType::Kv);
    let meta = counters.of(PageType::Meta);
    assert_eq!((kv.programs, kv.reads, kv.erases), (1, 1, 1));
    assert_eq!((meta.programs, meta.reads, meta.erases), (1, 4, 1));
    let total = counters.total();
    assert_eq!((total.programs, total.reads, total.erases), (2, 5, 4));
    drop(nand);
    let wear = open(&image).unwrap().wear();
    assert_eq!((wear.min, wear.max, wear.sum), (0, 2, 4), "wear survives");
}

/// The preset of the paper: 25 ns for each of 1152 bytes, 200 us for a program, 25 us for a read,
/// 1.5 ms for an erase.
#[test]
fn time_is_simulated() {
    let (_, mut nand) = fresh();
    nand.program(at(0, 0), &page(1), tag(5)).unwrap();
    assert_eq!(nand.elapsed_ns(), 28_800 + 200_000);
    read(&mut nand, at(0, 0)).unwrap();
    assert_eq!(nand.elapsed_ns(), 228_800 + 25_000 + 28_800);
    nand.erase(1).unwrap();
    nand.erase(0).unwrap();
    assert_eq!(nand.elapsed_ns(), 282_600 + 1_500_000, "two channels erase at once");
}

#[test]
fn an_image_file_is_locked_private_and_sparse() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nand.img");
    let open_file = || FileImage::open(&path);
    assert!(matches!(open_file(), Err(Error::Image { .. })));
    let image = Box::new(FileImage::create(&path).unwrap());
    let mut nand = Nand::create(image, Geometry::default(), Timing::TLC).unwrap();
    assert!(matches!(open_file(), Err(Error::InUse { .. })));
    let data = vec![7; 32 << 10];
    nand.program(at(383, 0), &data, tag(1)).unwrap();
    nand.sync().unwrap();
    drop(nand);
    assert!(FileImage::create(&path).is_err(), "nothing is overwritten");
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert!(metadata.len() > 1_600_000_000 && metadata.blocks() * 512 < 1 << 20);
    let image = Box::new(open_file().unwrap());
    let mut nand = Nand::open(image, None, Timing::TLC).unwrap();
    assert_eq!(read(&mut nand, at(383, 0)).unwrap().0, data);
}
