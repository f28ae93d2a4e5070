//! The fronts of the KVSSD: each status and each limit of the NVMe commands and of the SNIA API.

use runstone_flash::front::{
    KeyFilter, NvmeError, NvmeKv, OnMissing, OnRetrieve, Snia, SniaError, StoreIf, StoreMode,
};
use runstone_flash::kvssd::{KvSsd, KvSsdOptions, Write};
use runstone_flash::nand::{FaultPlan, Geometry, MemoryImage, Timing};

/// Pages of 8 KiB allow keys of 512 bytes.
fn device() -> KvSsd {
    device_of(8 << 10, 16)
}

fn device_of(page_bytes: u32, block_pages: u32) -> KvSsd {
    let geometry = Geometry {
        page_bytes,
        spare_bytes: 64,
        block_pages,
        block_count: 40,
        channel_count: 1,
        die_count: 1,
    };
    let options = KvSsdOptions { memtable_pages: 8, level1_pages: 24, ..KvSsdOptions::default() };
    let image = || Box::new(MemoryImage::new());
    KvSsd::create(image(), image(), geometry, Timing::PAPER, options).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, NvmeError>) -> u8 {
    result.unwrap_err().code()
}

#[test]
fn nvme_conditions_and_statuses() {
    let mut device = device();
    let too_long = vec![0; device.max_value_bytes() + 1];
    let mut nvme = NvmeKv::new(&mut device);
    assert_eq!(code(nvme.store(b"a", b"1", StoreIf::Exists)), 0x87);
    nvme.store(b"a", b"1", StoreIf::Missing).unwrap();
    assert_eq!(code(nvme.store(b"a", b"2", StoreIf::Missing)), 0x89);
    nvme.store(b"a", b"three", StoreIf::Exists).unwrap();
    nvme.store(b"empty", b"", StoreIf::Always).unwrap();
    let mut buffer = [0; 3];
    assert_eq!(nvme.retrieve(b"a", &mut buffer).unwrap(), 5, "the full size");
    assert_eq!(&buffer, b"thr");
    assert_eq!(nvme.retrieve(b"empty", &mut buffer).unwrap(), 0);
    assert_eq!(code(nvme.retrieve(b"b", &mut buffer)), 0x87);
    nvme.exist(b"empty").unwrap();
    assert_eq!(code(nvme.exist(b"b")), 0x87);
    assert_eq!(code(nvme.store(b"a", &too_long, StoreIf::Always)), 0x85);
    nvme.store(b"a", &too_long[1..], StoreIf::Always).unwrap();
    assert_eq!(nvme.retrieve(b"a", &mut buffer).unwrap(), too_long.len() - 1);
    nvme.delete(b"b", OnMissing::Succeed).unwrap();
    assert_eq!(code(nvme.delete(b"b", OnMissing::Fail)), 0x87);
    nvme.delete(b"a", OnMissing::Fail).unwrap();
    assert_eq!(code(nvme.exist(b"a")), 0x87);
}

#[test]
fn nvme_keys_have_1_to_16_bytes() {
    let mut device = device();
    let mut nvme = NvmeKv::new(&mut device);
    for key in [&b""[..], &[7; 17]] {
        assert_eq!(code(nvme.store(key, b"1", StoreIf::Always)), 0x86);
        assert_eq!(code(nvme.retrieve(key, &mut [])), 0x86);
        assert_eq!(code(nvme.delete(key, OnMissing::Succeed)), 0x86);
        assert_eq!(code(nvme.exist(key)), 0x86);
    }
    assert_eq!(code(nvme.list(&[7; 17], &mut [0; 64])), 0x86);
    for key in [&[0][..], &[255; 16]] {
        nvme.store(key, b"1", StoreIf::Missing).unwrap();
        nvme.exist(key).unwrap();
    }
}

/// The keys of a list, as a host reads them.
fn listed(buffer: &[u8], used: usize) -> Vec<Vec<u8>> {
    let count = u32::from_le_bytes(buffer[..4].try_into().unwrap());
    let (mut at, mut keys) = (4, Vec::new());
    for _ in 0..count {
        let bytes = usize::from(u16::from_le_bytes(buffer[at..at + 2].try_into().unwrap()));
        keys.push(buffer[at + 2..at + 2 + bytes].to_vec());
        let end = at + (2 + bytes).next_multiple_of(4);
        assert!(buffer[at + 2 + bytes..end].iter().all(|byte| *byte == 0), "padding");
        at = end;
    }
    assert_eq!(at, used);
    keys
}

#[test]
fn nvme_lists_sorted_keys_in_small_buffers() {
    let mut device = device();
    // A key written without the front is not a key of the command set.
    device.put(&[b'k'; 20], b"").unwrap();
    let mut expected: Vec<Vec<u8>> =
        (0..300_u32).map(|i| format!("k{i:0width$}", width = 3 + i as usize % 12).into()).collect();
    let mut nvme = NvmeKv::new(&mut device);
    for key in &expected {
        nvme.store(key, b"value", StoreIf::Missing).unwrap();
    }
    let gone = expected.remove(17);
    nvme.delete(&gone, OnMissing::Fail).unwrap();
    expected.sort();
    let mut buffer = [0xee; 100];
    let (mut all, mut from) = (Vec::new(), Vec::new());
    loop {
        let used = nvme.list(&from, &mut buffer).unwrap();
        let keys = listed(&buffer, used);
        let is_last = keys.len() < 2;
        all.extend(keys);
        all.dedup();
        if is_last {
            break;
        }
        from.clone_from(all.last().unwrap());
    }
    assert_eq!(all, expected);
    let used = nvme.list(&gone, &mut buffer).unwrap();
    let next = expected.iter().find(|key| **key > gone);
    assert_eq!(listed(&buffer, used).first(), next, "a start that is gone");
    assert_eq!(nvme.list(b"z", &mut buffer).unwrap(), 4);
    assert_eq!(nvme.list(b"", &mut buffer[..4]).unwrap(), 4, "no room but for the count");
    assert_eq!(code(nvme.list(b"", &mut buffer[..3])), 0x85);
}

#[test]
fn nvme_capacity_and_unreadable_pages() {
    let mut device = device();
    let value = vec![1; 8000];
    let mut nvme = NvmeKv::new(&mut device);
    let mut stored = 0_u32;
    let full = loop {
        match nvme.store(&stored.to_be_bytes(), &value, StoreIf::Missing) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full.code(), 0x81);
    assert!(stored > 280, "{stored}");
    for at in 0..stored / 2 {
        nvme.delete(&at.to_be_bytes(), OnMissing::Fail).unwrap();
    }
    nvme.store(b"again", &value, StoreIf::Missing).unwrap();
    device.flush().unwrap();
    let pages = (0..40 * 16).map(|page| device.nand().geometry().page(page)).collect();
    device.nand_mut().set_faults(FaultPlan { uncorrectable: pages, ..FaultPlan::default() });
    assert_eq!(code(NvmeKv::new(&mut device).exist(b"again")), 0x88);
    let plan = FaultPlan { power_cut_at: Some(0), ..FaultPlan::default() };
    device.nand_mut().set_faults(plan);
    let mut nvme = NvmeKv::new(&mut device);
    let mut at = 0_u32;
    let cut = loop {
        match nvme.store(&at.to_le_bytes(), &value, StoreIf::Always) {
            Ok(()) => at += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(cut.code(), 0x06);
}

#[test]
fn snia_store_modes() {
    let mut device = device();
    let mut api = Snia::new(&mut device).unwrap();
    let space = api.create_key_space(b"photos").unwrap();
    let key = b"key1";
    let is_missing = |result| matches!(result, Err(SniaError::KeyNotExist));
    assert!(is_missing(api.store(&space, key, b"1", StoreMode::UpdateOnly)));
    api.store(&space, key, b"one", StoreMode::NoOverwrite).unwrap();
    let refused = api.store(&space, key, b"2", StoreMode::NoOverwrite);
    assert!(matches!(refused, Err(SniaError::UpdateNotAllowed)));
    api.store(&space, key, b" two", StoreMode::Append).unwrap();
    api.store(&space, b"key2", b"new", StoreMode::Append).unwrap();
    let mut buffer = [0; 16];
    let keep = OnRetrieve::Keep;
    assert_eq!(api.retrieve(&space, key, 0, &mut buffer, keep).unwrap(), 7);
    assert_eq!(&buffer[..7], b"one two");
    assert_eq!(api.retrieve(&space, key, 4, &mut buffer[..2], keep).unwrap(), 7);
    assert_eq!(&buffer[..2], b"tw");
    assert_eq!(api.retrieve(&space, key, 7, &mut buffer, keep).unwrap(), 7);
    let past = api.retrieve(&space, key, 8, &mut buffer, keep);
    assert!(matches!(past, Err(SniaError::ValueOffsetInvalid(8))));
    api.store(&space, key, b"three", StoreMode::UpdateOnly).unwrap();
    let small = api.retrieve(&space, key, 0, &mut buffer[..4], OnRetrieve::Delete);
    assert!(matches!(small, Err(SniaError::BufferSmall(5))), "and the pair stays");
    assert_eq!(api.retrieve(&space, key, 0, &mut buffer, OnRetrieve::Delete).unwrap(), 5);
    assert!(is_missing(api.retrieve(&space, key, 0, &mut buffer, keep).map(|_| ())));
    assert!(is_missing(api.delete(&space, key)));
    api.store(&space, key, b"", StoreMode::Post).unwrap();
    assert_eq!(api.exist(&space, &[key, b"key2", b"key3"]).unwrap(), [0b011]);
    let keys: Vec<&[u8]> = (0..9).map(|at| if at == 8 { &key[..] } else { b"none" }).collect();
    assert_eq!(api.exist(&space, &keys).unwrap(), [0, 1]);
    api.delete(&space, key).unwrap();
    assert_eq!(api.exist(&space, &[key]).unwrap(), [0]);
}

#[test]
fn snia_sizes() {
    const MOST: usize = 2 << 20;
    let mut device = device_of(32 << 10, 128);
    let mut api = Snia::new(&mut device).unwrap();
    let space = api.create_key_space(b"s").unwrap();
    for bytes in [0, 3, 256] {
        let refused = api.store(&space, &vec![1; bytes], b"", StoreMode::Post);
        assert!(matches!(refused, Err(SniaError::KeyLengthInvalid(found)) if found == bytes));
    }
    for bytes in [4, 255] {
        api.store(&space, &vec![1; bytes], b"v", StoreMode::Post).unwrap();
    }
    let mut value = vec![5; MOST];
    api.store(&space, b"long", &value, StoreMode::Post).unwrap();
    let longer = api.store(&space, b"long", b"1", StoreMode::Append);
    assert!(matches!(longer, Err(SniaError::ValueLengthInvalid(found)) if found == MOST + 1));
    value.fill(0);
    let full = api.retrieve(&space, b"long", 0, &mut value, OnRetrieve::Keep).unwrap();
    assert!(full == MOST && value.iter().all(|byte| *byte == 5));
    for name in [vec![], vec![1; 256]] {
        assert!(matches!(api.create_key_space(&name), Err(SniaError::KeySpaceNameInvalid)));
    }
}

/// On a device of small pages the device's own limit is the lower one. The error counts the
/// caller's bytes without the prefix.
#[test]
fn keys_that_the_device_cannot_take_are_refused_by_their_length() {
    let mut device = device_of(1024, 8);
    let limit = device.max_key_bytes();
    let mut nvme = NvmeKv::new(&mut device);
    nvme.store(&[7; 16], b"1", StoreIf::Always).unwrap();
    let mut api = Snia::new(&mut device).unwrap();
    let space = api.create_key_space(b"s").unwrap();
    let mut longest = 0;
    for bytes in 4..=255 {
        match api.store(&space, &vec![1; bytes], b"v", StoreMode::Post) {
            Ok(()) => longest = bytes,
            Err(SniaError::KeyLengthInvalid(found)) => assert_eq!(found, bytes),
            Err(other) => panic!("{bytes} bytes: {other}"),
        }
    }
    assert_eq!(longest + 5, limit, "a prefix of five bytes tells key spaces apart");
}

#[test]
fn snia_key_spaces_are_apart_and_survive() {
    let mut device = device();
    let mut api = Snia::new(&mut device).unwrap();
    let one = api.create_key_space(b"one").unwrap();
    let two = api.create_key_space(b"two").unwrap();
    assert!(matches!(api.create_key_space(b"two"), Err(SniaError::KeySpaceExist)));
    for at in 0..600_u32 {
        api.store(&one, &at.to_be_bytes(), b"1", StoreMode::Post).unwrap();
    }
    api.store(&two, &[0; 4], b"2", StoreMode::NoOverwrite).unwrap();
    drop(api);
    let mut api = Snia::new(&mut device).unwrap();
    assert_eq!(api.open_key_space(b"one").unwrap(), one);
    assert_eq!(api.key_spaces().collect::<Vec<_>>(), [b"one", b"two"]);
    api.delete_key_space(one.clone()).unwrap();
    assert!(matches!(api.delete(&one, &[0; 4]), Err(SniaError::KeySpaceNotExist)));
    assert!(matches!(api.open_key_space(b"one"), Err(SniaError::KeySpaceNotExist)));
    let again = api.create_key_space(b"again").unwrap();
    assert_eq!(api.exist(&again, &[&[0; 4]]).unwrap(), [0], "a number that is used again");
    assert_eq!(api.exist(&two, &[&[0; 4]]).unwrap(), [1]);
    api.store(&again, &[1; 4], b"left", StoreMode::Post).unwrap();
    drop(api);
    // A removal that stopped after its first write.
    let number = [0, 0, 0, 1];
    let name = [&[0], &b"again"[..]].concat();
    let doomed = [&[2], &number[..]].concat();
    let removal = [Write::Delete { key: &name }, Write::Put { key: &doomed, value: b"" }];
    device.write(&removal).unwrap();
    let mut api = Snia::new(&mut device).unwrap();
    let again = api.create_key_space(b"again").unwrap();
    assert_eq!(api.exist(&again, &[&[1; 4]]).unwrap(), [0]);
}

#[test]
fn snia_iterators_match_four_bytes_and_see_one_moment() {
    let mut device = device();
    let mut api = Snia::new(&mut device).unwrap();
    let space = api.create_key_space(b"s").unwrap();
    let other = api.create_key_space(b"other").unwrap();
    let key = |at: u32| [&at.to_be_bytes()[..], b"tail"].concat();
    for at in 0..1000 {
        api.store(&space, &key(at), &[0; 10], StoreMode::Post).unwrap();
    }
    api.store(&other, &key(1), b"", StoreMode::Post).unwrap();
    let filters = [
        KeyFilter::default(),
        KeyFilter { mask: [255; 4], pattern: [0, 0, 1, 7] },
        KeyFilter { mask: [255, 255, 255, 0], pattern: [0, 0, 2, 9] },
        KeyFilter { mask: [0, 0, 0, 0x0f], pattern: [9, 9, 9, 0xf3] },
    ];
    for filter in filters {
        let id = api.open_iterator(&space, filter).unwrap();
        let mut found = Vec::new();
        loop {
            // The iterator does not see later writes.
            api.delete(&space, &key(263)).unwrap();
            let pairs = api.next_pairs(id, 100).unwrap();
            api.store(&space, &key(263), &[0; 10], StoreMode::Post).unwrap();
            assert!(pairs.len() <= 5, "pairs of 18 bytes");
            if pairs.is_empty() {
                break;
            }
            found.extend(pairs.into_iter().map(|(key, _)| key));
        }
        let matches = |key: &Vec<u8>| {
            (0..4).all(|i| key[i] & filter.mask[i] == filter.pattern[i] & filter.mask[i])
        };
        let expected: Vec<Vec<u8>> = (0..1000).map(key).filter(matches).collect();
        assert_eq!(found, expected, "{filter:?}");
        api.close_iterator(id).unwrap();
        assert!(matches!(api.next_pairs(id, 100), Err(SniaError::IteratorNotExist)));
        assert!(matches!(api.close_iterator(id), Err(SniaError::IteratorNotExist)));
    }
    let id = api.open_iterator(&space, KeyFilter::default()).unwrap();
    assert!(matches!(api.next_pairs(id, 17), Err(SniaError::BufferSmall(18))));
    assert_eq!(api.next_pairs(id, 18).unwrap().len(), 1, "and it goes on");
    for _ in 1..16 {
        api.open_iterator(&space, KeyFilter::default()).unwrap();
    }
    let more = api.open_iterator(&space, KeyFilter::default());
    assert!(matches!(more, Err(SniaError::IteratorMax)));
}

/// Once, after an unreadable page, the pairs that the iterator had found before the page were lost
/// for good.
#[test]
fn an_iterator_that_met_an_error_goes_on_where_it_was() {
    let mut device = device();
    let mut api = Snia::new(&mut device).unwrap();
    let space = api.create_key_space(b"s").unwrap();
    for at in 0..100_u32 {
        api.store(&space, &at.to_be_bytes(), &[1; 1000], StoreMode::Post).unwrap();
    }
    drop(api);
    device.flush().unwrap();
    let pages: Vec<_> = (0..40 * 16).map(|page| device.nand().geometry().page(page)).collect();
    let mut repeated = 0;
    for page in pages {
        let plan = FaultPlan { uncorrectable: [page].into(), ..FaultPlan::default() };
        device.nand_mut().set_faults(plan);
        let Ok(mut api) = Snia::new(&mut device) else { continue };
        let id = api.open_iterator(&space, KeyFilter::default()).unwrap();
        if api.next_pairs(id, usize::MAX).is_ok() {
            continue;
        }
        // If the first page is readable, its first pair is returned again.
        if let Ok(pairs) = api.next_pairs(id, 1004) {
            assert_eq!(pairs, [(vec![0; 4], vec![1; 1000])]);
            repeated += 1;
        }
    }
    assert!(repeated > 5, "{repeated}");
}
