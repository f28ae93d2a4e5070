//! Sets of range deletes, compared with a search through all range deletes.

use proptest::prelude::*;

use super::*;

fn range(start: u8, end: Option<u8>, seq: SeqNo) -> RangeDelete {
    RangeDelete { start: [start].into(), end: end.map(|end| [end].into()), seq }
}

fn added(all: impl IntoIterator<Item = RangeDelete>) -> RangeDeletes {
    let mut set = RangeDeletes::default();
    for (one, before) in all.into_iter().zip(0..) {
        set.add(vec![Arc::new(one)], before);
    }
    set
}

/// The range delete that decides about a key, found by a search through all of them.
fn expected<'a>(
    all: impl IntoIterator<Item = &'a RangeDelete>,
    key: &[u8],
    seq: SeqNo,
) -> Option<&'a RangeDelete> {
    let sees = |range: &&RangeDelete| range.seq <= seq && range.covers(key, key);
    all.into_iter().filter(sees).max_by_key(|range| range.seq)
}

/// Three sizes of blocks and a tail give the same answers as a search through all range deletes:
/// before and after the skyline over the whole set was made, and for readers at any sequence
/// number.
#[test]
fn blocks_of_each_size_answer_alike() {
    const COUNT: u64 = 16 * 16 * 64 + 16 * 64 + 3 * 64 + 17;
    let key = |i: u64| format!("{}{i:05}", if i < 9_000 { "a" } else { "a long beginning/" });
    let bytes = |i: u64| -> Box<[u8]> { key(i).into_bytes().into() };
    let all = (0..COUNT).map(|i| {
        let from = i * 7919 % 18_000;
        let end = (i % 1_000 != 3).then(|| bytes(from + 1 + i * i % 50));
        RangeDelete { start: bytes(from), end, seq: i + 1 }
    });
    let all: Vec<RangeDelete> = all.collect();
    let set = added(all.clone());
    assert_eq!((set.len, set.blocks.len(), set.loose().count()), (COUNT as usize, 5, 17));
    check_as_a_list(&all, &set);
    // Sets of some of the range deletes, appended one after another: blocks of all sizes follow
    // each other.
    let mut set = RangeDeletes::default();
    for some in [0..70, 70..75, 75..5_000, 5_000..5_200, 5_200..all.len()] {
        set.append(&RangeDeletes::of(all[some].iter().cloned().map(Arc::new).collect()));
        assert!(set.blocks.is_sorted_by(|one, other| one.level >= other.level));
    }
    check_as_a_list(&all, &set);
}

fn check_as_a_list(all: &[RangeDelete], set: &RangeDeletes) {
    let count = all.len() as u64;
    let key = |i: u64| format!("{}{i:05}", if i < 9_000 { "a" } else { "a long beginning/" });
    let deletes = |range: &&RangeDelete| range.end.as_ref().is_none_or(|end| range.start < *end);
    assert!(set.iter().eq(all.iter().filter(deletes).cloned()));
    for (number, seq) in [count, count - 5, count - 60, 9_999, 1_023, 64, 3].iter().enumerate() {
        for i in (0..40).map(|i| (i * 457 + number as u64) % 18_100) {
            for key in [key(i), key(i) + "x", key(i)[..1 + i as usize % 5].to_string()] {
                let key = key.as_bytes();
                let found = expected(all, key, *seq).map_or(0, |range| range.seq);
                assert_eq!(set.over(key, *seq), found, "{i} as of {seq}");
                let mut stretch = Stretch::default();
                set.narrow(key, *seq, &mut stretch);
                assert_eq!(stretch.seq, found);
                assert!(stretch.start.is_none_or(|start| start <= key));
                assert!(stretch.end.is_none_or(|end| key < end));
            }
        }
    }
    (0..all.len() / 4).for_each(|_| _ = set.over(b"a", SeqNo::MAX));
    assert!(set.whole.get().is_some(), "that many searches pay for it");
    for i in (0..18_100).step_by(7) {
        let found = expected(all, key(i).as_bytes(), SeqNo::MAX).map_or(0, |range| range.seq);
        assert_eq!(set.over(key(i).as_bytes(), SeqNo::MAX), found, "{i}");
    }
    let hidden = |at: usize| {
        let newer = RangeDeletes::of(all[at + 1..].iter().cloned().map(Arc::new).collect());
        let Whole { skyline, .. } = newer.whole();
        let high = all[at].end.as_deref().map_or(High::None, High::Below);
        skyline.least(&all[at].start, high) > 0
    };
    // The places include the borders of the sets that were appended.
    let borders = [0, 69, 70, 74, 75, 4_999, 5_000, 5_199, 5_200, all.len() - 1];
    for at in (0..all.len()).step_by(997).chain(borders) {
        assert_eq!(set.hides_range(&all[at], count, true), hidden(at), "{at}");
    }
}

/// Two sets of several sizes, the newer one appended to the older one. No member hides another.
/// Once, the last member of the older set counted as hidden if the newer set had 64 or more.
#[test]
fn appended_sets_hide_nothing_of_each_other() {
    for (older, newer) in [(1, 100), (63, 64), (64, 65), (65, 130), (100, 100)] {
        let of = |numbers: std::ops::Range<u64>| -> Vec<RangeDelete> {
            let one = |i: u64| {
                let bytes = |i: u64| -> Box<[u8]> { i.to_be_bytes().into() };
                RangeDelete { start: bytes(i), end: Some(bytes(i + 1)), seq: i + 1 }
            };
            numbers.map(one).collect()
        };
        let set_of =
            |all: &[RangeDelete]| RangeDeletes::of(all.iter().cloned().map(Arc::new).collect());
        let all = of(0..older + newer);
        let (before, after) = all.split_at(older as usize);
        let mut set = set_of(before);
        set.append(&set_of(after));
        for one in &all {
            for is_last in [true, false] {
                let seq = SeqNo::MAX;
                assert!(!set.hides_range(one, seq, is_last), "{} of {older}, {newer}", one.seq);
            }
            assert_eq!(set.over(&one.start, SeqNo::MAX), one.seq);
        }
        let again = RangeDelete { seq: older + newer + 1, ..all[0].clone() };
        set.append(&set_of(&[again]));
        assert!(set.hides_range(&all[0], SeqNo::MAX, true));
    }
}

/// Each range delete takes at most 200 bytes besides its keys, whatever its form.
#[test]
fn range_deletes_are_small() {
    type Form = (&'static str, fn(u64) -> (u64, Option<u64>));
    let forms: [Form; 4] = [
        ("the end of a log", |i| (i, None)),
        ("nested", |i| (i, Some(400_000 - i))),
        ("shifted", |i| (i, Some(i + 100))),
        ("apart", |i| (2 * (i * 7919 % 100_003), Some(2 * (i * 7919 % 100_003) + 1))),
    ];
    for (name, form) in forms {
        let all = (0..100_000).map(|i| {
            let (start, end) = form(i);
            let key = |i: u64| -> Box<[u8]> { format!("key{i:013}").into_bytes().into() };
            RangeDelete { start: key(start), end: end.map(key), seq: i + 1 }
        });
        let all: Vec<RangeDelete> = all.collect();
        let of_keys =
            |range: &RangeDelete| range.start.len() + range.end.as_ref().map_or(0, |e| e.len());
        let key_bytes: usize = all.iter().map(of_keys).sum();
        let set = added(all);
        let each = (set.bytes() - key_bytes) / set.len;
        assert!(each <= 200, "{name}: {each} bytes each");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A set gives the same answers as a search through all range deletes, for every key and
    /// sequence number, in whatever order its members were added.
    #[test]
    fn the_newest_visible_range_delete_decides(
        drawn in prop::collection::vec((0..20u8, prop::option::of(0..22u8)), 0..150),
        rotate in 0..12usize,
        border in 0..150usize,
        is_whole in any::<bool>(),
    ) {
        let all: Vec<RangeDelete> =
            (1..).zip(&drawn).map(|(i, (start, end))| range(*start, *end, 10 * i)).collect();
        let mut set = RangeDeletes::default();
        let (older, newer) = all.split_at(border.min(all.len()));
        for some in older.chunks(12) {
            let mut order = some.to_vec();
            order.rotate_left(rotate.min(some.len()));
            let settled = some[0].seq - 1;
            order.into_iter().for_each(|one| set.add(vec![Arc::new(one)], settled));
        }
        if !newer.is_empty() {
            set.append(&RangeDeletes::of(newer.iter().cloned().map(Arc::new).collect()));
        }
        if is_whole && !set.is_empty() {
            set.whole();
        }
        for key in 0..24u8 {
            for seq in (0..10 * all.len() as u64 + 20).step_by(5) {
                let found = expected(&all, &[key], seq).map_or(0, |range| range.seq);
                prop_assert_eq!(set.over(&[key], seq), found, "key {} at {}", key, seq);
                for entry in [found.saturating_sub(1), found, seq] {
                    prop_assert_eq!(set.hide(&[key], entry, seq), found > entry);
                }
                let mut stretch = Stretch::default();
                set.narrow(&[key], seq, &mut stretch);
                prop_assert_eq!(stretch.seq, found);
                for other in 0..24u8 {
                    let inside = stretch.start.is_none_or(|start| start <= &[other][..])
                        && stretch.end.is_none_or(|end| &[other][..] < end);
                    let as_here = expected(&all, &[other], seq).map_or(0, |range| range.seq);
                    prop_assert!(!inside || as_here == found);
                }
                let to = [key + 3];
                let numbers = (key..=key + 3).map(|key| set.over(&[key], seq)).min();
                prop_assert!(set.over_all(&[key], &to, seq) <= numbers.unwrap_or(0));
            }
            let to = [key + 3];
            let numbers = |to: u8| (key..to).map(|key| set.over(&[key], SeqNo::MAX)).max();
            prop_assert!(set.over_any(&[key], &to) >= numbers(key + 4).unwrap_or(0));
            prop_assert!(set.newest_in(&[key], Some(&to)) >= numbers(key + 3).unwrap_or(0));
            prop_assert_eq!(set.newest_in(&[key], Some(&[key])), 0);
        }
        for (at, one) in all.iter().enumerate() {
            let covered = |seq: SeqNo| {
                let newer = all[at + 1..].iter().filter(|range| range.seq <= seq);
                let newer: Vec<&RangeDelete> = newer.collect();
                let last = one.end.as_ref().map_or(30, |end| end[0]);
                // Bounds have one byte, so every piece between two bounds has one of these keys.
                let is_covered = |key: u8| expected(newer.iter().copied(), &[key], seq).is_some();
                (one.start[0]..last).all(is_covered)
            };
            prop_assert_eq!(set.hides_range(one, SeqNo::MAX, true), covered(SeqNo::MAX));
            let seq = one.seq + 300;
            prop_assert!(!set.hides_range(one, seq, false) || covered(seq));
        }
    }
}

/// The costs of a write and of a search grow with the number of levels, that is, with the logarithm
/// of the number of range deletes.
#[test]
fn costs_grow_with_the_logarithm() {
    for (count, levels) in [(10u64, 0), (1_000, 1), (100_000, 3)] {
        let before = skyline::LAID.get();
        let all = (0..count).map(|i| RangeDelete {
            start: i.to_be_bytes().into(),
            end: Some((2 * count - i).to_be_bytes().into()),
            seq: i + 1,
        });
        let set = added(all);
        let laid = skyline::LAID.get() - before;
        assert!(laid <= 2 * levels * count, "{count}: {laid} steps");
        for seq in (1..count).step_by(count as usize / 10) {
            let mut pieces = 0;
            set.visit(seq, |_| {
                pieces += 1;
                Continue(())
            });
            assert!(pieces <= 2 * LEAF as u64 + 16 * levels, "{count}, {seq}: {pieces} pieces");
        }
    }
}

/// A batch adds its range deletes before its own sequence numbers are settled. The next write makes
/// blocks of them, so that a reader at a snapshot between the two does not search them one by one.
#[test]
fn range_deletes_of_a_batch_become_blocks_at_the_next_write() {
    for count in [1_000u64, 100_000] {
        let range = |seq: u64| Arc::new(range((seq % 200) as u8, None, seq));
        let mut set = RangeDeletes::default();
        set.add((1..=count).map(range).collect(), 0);
        set.add(vec![range(count + 1)], count);
        let loose = set.loose().count();
        assert!(loose <= LEAF, "{count}: {loose} are in no block");
        assert_eq!(set.over(&[255], count), count);
    }
}

/// While a sequence number is withheld, nothing newer is settled. Even then, a write copies few of
/// the pointers to newer range deletes.
#[test]
fn unsettled_range_deletes_are_seldom_copied() {
    const COUNT: u64 = 20_000;
    let (mut set, mut copied) = (RangeDeletes::default(), 0);
    for seq in 1..=COUNT {
        let before = (Arc::as_ptr(&set.waiting), set.waiting.len());
        // Readers hold the old set meanwhile.
        let old = set.clone();
        set.add(vec![Arc::new(range(7, None, seq))], 0);
        copied += set.fresh.len();
        copied += if Arc::as_ptr(&set.waiting) == before.0 { 0 } else { before.1 };
        drop(old);
    }
    assert!(copied < COUNT as usize * 400, "{copied} pointers for {COUNT} range deletes");
}
