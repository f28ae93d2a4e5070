//! Flash images: any pages under valid checksums, opened as a KVSSD and as a block SSD.
//!
//! ```text
//! input  flags u8 | part: what the capacitor saved | part per page
//! page   number u16 | type u8 | level u8 | program_seq u32 | txn u32 | owner u32 | index u16
//!        | data, to its last byte that is not 0
//! ```
//!
//! 1. The pages are programmed as firmware would program them; in marked pages, the checksums
//!    inside the page are made valid first. Pages that the rules of flash refuse stay erased.
//! 2. A device is opened. It refuses to open, or it answers: if its verification succeeds, scans
//!    show each key once and in order. The files of a block SSD are read, and have the lengths that
//!    they report.

use runstone::storage::{Category, Storage};
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::kvssd::{Direction, KvSsd};
use runstone_flash::nand::{
    Geometry, Image, MemoryImage, Nand, PageTag, PageType, Ppa, Spare, Timing,
};

use super::parts::{parts, put_part};

/// Flag: the image is that of a block SSD.
const IS_BLOCK_SSD: u8 = 1;
const TAG_BYTES: usize = 18;

/// The geometry of a KVSSD: the smallest that is possible.
pub const KVSSD: Geometry = Geometry {
    page_bytes: 1024,
    spare_bytes: 64,
    block_pages: 8,
    block_count: 24,
    channel_count: 1,
    die_count: 1,
};

/// The geometry of a block SSD, where a page is a host block.
pub const BLOCK_SSD: Geometry = Geometry { page_bytes: 4096, ..KVSSD };

/// Judges an input.
pub fn judge(data: &[u8]) {
    let Some((flags, rest)) = data.split_first() else { return };
    let all = parts(rest);
    let Some((saved, pages)) = all.split_first() else { return };
    let is_block_ssd = flags & IS_BLOCK_SSD != 0;
    let geometry = if is_block_ssd { BLOCK_SSD } else { KVSSD };
    let image = MemoryImage::new();
    let nand = Nand::create(Box::new(image.clone()), geometry, Timing::PAPER);
    let mut nand = nand.expect("a valid geometry");
    for page in pages {
        program(&mut nand, &geometry, page.bytes, page.is_marked);
    }
    drop(nand);
    if is_block_ssd {
        look_at_files(image);
    } else {
        let mut frames = saved.bytes.to_vec();
        if saved.is_marked {
            seal_frames(&mut frames);
        }
        let side = MemoryImage::new();
        side.write_at(0, &frames).expect("memory");
        look(image, side);
    }
}

fn program(nand: &mut Nand, geometry: &Geometry, page: &[u8], is_marked: bool) -> Option<()> {
    let (head, data) = page.split_at_checked(TAG_BYTES)?;
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let u32_at =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let flat = u32::from(u16_at(0)) % geometry.page_count() as u32;
    let tag = PageTag {
        page_type: PageType::ALL[usize::from(head[2]) % PageType::ALL.len()],
        level: head[3],
        program_seq: u32_at(4).into(),
        txn: u32_at(8).into(),
        owner: u32_at(12).into(),
        index: u16_at(16).into(),
    };
    let mut data = data.to_vec();
    data.resize(geometry.page_bytes as usize, 0);
    if is_marked {
        seal(tag.page_type, &mut data);
    }
    nand.program(geometry.page(flat), &data, tag).ok()
}

/// Rewrites the checksums inside a page.
fn seal(page_type: PageType, data: &mut [u8]) {
    let word = |data: &[u8], at: usize| {
        u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]) as usize
    };
    let put = |data: &mut [u8], at: usize, sum: u32| {
        data[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    };
    match page_type {
        PageType::Meta => {
            let used = word(data, 56).clamp(64, data.len());
            let sum = crc32c::crc32c_append(crc32c::crc32c(&data[..60]), &data[64..used]);
            put(data, 60, sum);
        }
        PageType::Log => seal_frames(&mut data[8..]),
        PageType::Host => {
            let end = (36 + word(data, 24)).min(data.len());
            let sum = crc32c::crc32c(&data[36..end]);
            put(data, 28, sum);
            let sum = crc32c::crc32c(&data[..32]);
            put(data, 32, sum);
        }
        _ => {}
    }
}

fn seal_frames(mut bytes: &mut [u8]) {
    while let Some((header, rest)) = std::mem::take(&mut bytes).split_first_chunk_mut::<12>() {
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some((body, behind)) = rest.split_at_mut_checked(len) else { return };
        header[4..8].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        let sum = crc32c::crc32c(&header[..8]);
        header[8..12].copy_from_slice(&sum.to_le_bytes());
        bytes = behind;
    }
}

fn look(image: MemoryImage, side: MemoryImage) {
    let opened = KvSsd::open(Box::new(image), Box::new(side), None, Timing::PAPER, None);
    let Ok(mut device) = opened else { return };
    // Which of two versions counts depends on levels, which may be made up. The order of a scan
    // does not depend on levels.
    let is_sound = device.verify().is_ok();
    let forward = walk(&mut device, Direction::Forward);
    let backward = walk(&mut device, Direction::Reverse);
    if is_sound {
        assert!(forward.is_sorted_by(|one, two| one.0 < two.0), "each key once, ascending");
        assert!(backward.is_sorted_by(|one, two| one.0 > two.0), "each key once, descending");
    }
    for (key, _) in forward.iter().chain(&backward) {
        let _ = device.get(key);
    }
    // An open device continues to work, or reports why not.
    let _ = device.put(b"key", b"value").and_then(|()| device.flush());
    let _ = device.checkpoint();
    let _ = device.get(b"key");
}

fn walk(device: &mut KvSsd, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let snapshot = device.snapshot();
    let _ = device.scan(None, direction, snapshot, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        found.len() < 1_000
    });
    device.release(snapshot);
    found
}

fn look_at_files(image: MemoryImage) {
    let Ok(storage) = BlockStorage::open(Box::new(image), None, BlockOptions::default()) else {
        return;
    };
    for info in storage.list().unwrap_or_default().iter().take(50) {
        let Ok(file) = storage.open(&info.name, Category::Other) else { continue };
        assert_eq!(file.len().ok(), Some(info.len_bytes), "a file is as long as it says");
        let len = info.len_bytes.min(1 << 20);
        let _ = file.read_at(0, &mut vec![0; len as usize]);
        let _ = file.read_at(info.len_bytes.saturating_sub(10), &mut [0; 10]);
    }
    let Ok(file) = storage.create("a new file", Category::Other) else { return };
    let _ = file.write_at(0, b"its bytes").and_then(|()| file.sync());
    let _ = storage.sync_dir();
}

/// The input that makes the pages of an image.
pub fn input_of(image: MemoryImage, geometry: Geometry, side: &[u8]) -> Vec<u8> {
    let mut input = vec![u8::from(geometry == BLOCK_SSD)];
    put_part(&mut input, true, side);
    let mut nand = Nand::open(Box::new(image), None, Timing::PAPER).expect("own bytes");
    for flat in 0..geometry.page_count() as u32 {
        let ppa: Ppa = geometry.page(flat);
        let Ok(Spare::Valid(oob)) = nand.read_spare(ppa) else { continue };
        let mut data = vec![0; geometry.page_bytes as usize];
        nand.read(ppa, &mut data).expect("own bytes");
        let used = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let tag = oob.tag;
        let kind = PageType::ALL.iter().position(|kind| *kind == tag.page_type).expect("a type");
        let mut page = (flat as u16).to_le_bytes().to_vec();
        page.extend([kind as u8, tag.level]);
        for word in [tag.program_seq as u32, tag.txn as u32, tag.owner as u32] {
            page.extend_from_slice(&word.to_le_bytes());
        }
        page.extend_from_slice(&(tag.index as u16).to_le_bytes());
        page.extend_from_slice(&data[..used]);
        put_part(&mut input, is_sealed(tag.page_type, &data), &page);
    }
    input
}

/// Whether the checksums inside a page are where `seal` puts them.
fn is_sealed(page_type: PageType, data: &[u8]) -> bool {
    let mut sealed = data.to_vec();
    seal(page_type, &mut sealed);
    sealed == data && matches!(page_type, PageType::Meta | PageType::Log | PageType::Host)
}
