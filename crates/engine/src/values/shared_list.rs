//! A sorted list whose copies share their common parts. A pure data structure.
//!
//! A value file may have millions of segments and of dead records. Each edit makes a new version of
//! their lists, while readers hold the old one. So a list consists of chunks. A change copies the
//! chunks that it touches, and only the pointers to the other chunks. A search first looks through
//! the first keys of the chunks, which are next to each other, and then one chunk.

use std::ops::Range;
use std::sync::Arc;

/// The most elements of a chunk. A larger chunk costs more to copy; smaller ones need more
/// pointers.
const CHUNK: usize = 256;

/// What a list is sorted by.
pub trait Keyed: Copy {
    /// The key. Several elements may have the same key.
    fn key(&self) -> u64;
}

/// Elements by key, ascending.
#[derive(Clone, Debug)]
pub struct SharedList<T> {
    /// No chunk is empty, but a chunk may have few elements. So there are at most as many chunks as
    /// elements.
    chunks: Vec<Chunk<T>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Chunk<T> {
    /// The key of the first element.
    first: u64,
    items: Arc<Vec<T>>,
}

impl<T> Default for SharedList<T> {
    fn default() -> Self {
        SharedList { chunks: Vec::new(), len: 0 }
    }
}

impl<T: PartialEq> PartialEq for SharedList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for SharedList<T> {}

impl<T> SharedList<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.iter_from((0, 0))
    }

    /// The elements from a place on. A place is a chunk, and an index in it.
    fn iter_from(&self, (at, inside): (usize, usize)) -> impl Iterator<Item = &T> {
        let (first, rest) = match self.chunks[at..].split_first() {
            Some((first, rest)) => (&first.items[inside..], rest),
            None => (&[][..], &[][..]),
        };
        first.iter().chain(rest.iter().flat_map(|chunk| chunk.items.iter()))
    }
}

impl<T: Keyed> Chunk<T> {
    fn of(items: Vec<T>) -> Chunk<T> {
        Chunk { first: items.first().map_or(0, Keyed::key), items: Arc::new(items) }
    }
}

impl<T: Keyed> SharedList<T> {
    /// A list of these elements. The caller checks that they are sorted.
    pub fn of(items: &[T]) -> SharedList<T> {
        let chunks = items.chunks(CHUNK).map(|items| Chunk::of(items.to_vec()));
        SharedList { chunks: chunks.collect(), len: items.len() }
    }

    pub fn to_vec(&self) -> Vec<T> {
        self.iter().copied().collect()
    }

    pub fn first(&self) -> Option<&T> {
        self.chunks.first()?.items.first()
    }

    pub fn last(&self) -> Option<&T> {
        self.chunks.last()?.items.last()
    }

    /// The last element whose key is at most `key`.
    pub fn at_or_before(&self, key: u64) -> Option<&T> {
        let (at, inside) = self.find(key)?;
        self.chunks[at].items.get(inside)
    }

    /// The last element with this key.
    pub fn get(&self, key: u64) -> Option<&T> {
        self.at_or_before(key).filter(|item| item.key() == key)
    }

    /// The elements with keys in this range.
    pub fn range(&self, keys: Range<u64>) -> impl Iterator<Item = &T> {
        let inside = self.iter_from(self.place(keys.start));
        inside.take_while(move |item| item.key() < keys.end)
    }

    /// The elements with this key, and also the element before them and the element after them.
    pub fn around(&self, key: u64) -> impl Iterator<Item = &T> {
        let (chunk, at) = self.place(key);
        let before = match (chunk, at) {
            (0, 0) => (0, 0),
            (chunk, 0) => (chunk - 1, self.chunks[chunk - 1].items.len() - 1),
            (chunk, at) => (chunk, at - 1),
        };
        let mut is_past = false;
        let not_past = move |item: &&T| !std::mem::replace(&mut is_past, item.key() > key);
        self.iter_from(before).take_while(not_past)
    }

    /// Adds an element, after those with the same key.
    pub fn insert(&mut self, item: T) {
        self.len += 1;
        let (at, inside) = self.find(item.key()).map_or((0, 0), |(at, inside)| (at, inside + 1));
        let is_last = at + 1 >= self.chunks.len();
        let Some(chunk) = self.chunks.get_mut(at) else {
            return self.chunks.push(Chunk::of(vec![item]));
        };
        let items = Arc::make_mut(&mut chunk.items);
        items.insert(inside, item);
        chunk.first = items[0].key();
        if items.len() > CHUNK {
            // Most lists grow at the end. Then their chunks stay full.
            let rest = items.split_off(if is_last && inside == CHUNK { CHUNK } else { CHUNK / 2 });
            items.shrink_to_fit();
            self.chunks.insert(at + 1, Chunk::of(rest));
        }
    }

    /// Replaces the last element with the same key, or adds the element if there is none. Returns
    /// the replaced one.
    pub fn put(&mut self, item: T) -> Option<T> {
        match self.find(item.key()) {
            Some((at, inside)) if self.chunks[at].items[inside].key() == item.key() => {
                let items = Arc::make_mut(&mut self.chunks[at].items);
                Some(std::mem::replace(&mut items[inside], item))
            }
            _ => {
                self.insert(item);
                None
            }
        }
    }

    /// Removes the last element with this key.
    pub fn remove(&mut self, key: u64) -> Option<T> {
        let (at, inside) = self.find(key)?;
        if self.chunks[at].items[inside].key() != key {
            return None;
        }
        self.len -= 1;
        let chunk = &mut self.chunks[at];
        let items = Arc::make_mut(&mut chunk.items);
        let gone = items.remove(inside);
        match items.first() {
            Some(item) => chunk.first = item.key(),
            None => drop(self.chunks.remove(at)),
        }
        Some(gone)
    }

    /// Removes and returns the elements that `leaves` selects. Their number is known, so the search
    /// ends at the last of them. They are usually at the front.
    pub fn extract(&mut self, count: usize, leaves: impl Fn(&T) -> bool) -> Vec<T> {
        let mut gone = Vec::with_capacity(count.min(self.len));
        for chunk in &mut self.chunks {
            if gone.len() >= count {
                break;
            }
            if chunk.items.iter().any(&leaves) {
                let (leaving, staying) =
                    chunk.items.iter().partition::<Vec<T>, _>(|one| leaves(one));
                gone.extend(leaving);
                *chunk = Chunk::of(staying);
            }
        }
        self.chunks.retain(|chunk| !chunk.items.is_empty());
        self.len -= gone.len();
        gone
    }

    /// The place of the last element whose key is at most `key`: its chunk, and its index in the
    /// chunk.
    fn find(&self, key: u64) -> Option<(usize, usize)> {
        let at = self.chunks.partition_point(|chunk| chunk.first <= key).checked_sub(1)?;
        let inside = self.chunks[at].items.partition_point(|item| item.key() <= key);
        Some((at, inside.checked_sub(1)?))
    }

    /// The place of the first element whose key is at least `key`. It may be the end of the list.
    fn place(&self, key: u64) -> (usize, usize) {
        let at = self.chunks.partition_point(|chunk| chunk.first < key).saturating_sub(1);
        let Some(chunk) = self.chunks.get(at) else { return (at, 0) };
        match chunk.items.partition_point(|item| item.key() < key) {
            inside if inside == chunk.items.len() => (at + 1, 0),
            inside => (at, inside),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    impl Keyed for u64 {
        fn key(&self) -> u64 {
            *self
        }
    }

    fn chunks_not_shared(list: &SharedList<u64>, with: &SharedList<u64>) -> usize {
        let is_shared = |chunk: &&Chunk<u64>| {
            with.chunks.iter().any(|other| Arc::ptr_eq(&chunk.items, &other.items))
        };
        list.chunks.len() - list.chunks.iter().filter(is_shared).count()
    }

    #[test]
    fn a_change_copies_only_the_chunks_that_it_touches() {
        let all: Vec<u64> = (0..100_000).map(|i| i * 2).collect();
        let list = SharedList::of(&all);
        type Change = fn(&mut SharedList<u64>);
        let changes: [(Change, usize); 5] = [
            (|list| list.insert(200_001), 1),
            (|list| list.insert(77_777), 2),
            (|list| _ = list.put(77_778), 1),
            (|list| _ = list.remove(77_778), 1),
            (|list| _ = list.extract(300, |one| *one < 600), 1),
        ];
        for (i, (change, most)) in changes.iter().enumerate() {
            let mut changed = list.clone();
            change(&mut changed);
            assert!(chunks_not_shared(&changed, &list) <= *most, "change {i}");
            assert_eq!(list.to_vec(), all, "change {i} leaves the other list as it was");
        }
    }

    #[test]
    fn elements_of_one_key_stay_in_order() {
        let mut list = SharedList::of(&[(1, 0), (1, 1)]);
        list.insert((1, 2));
        list.insert((0, 3));
        assert_eq!(list.to_vec(), [(0, 3), (1, 0), (1, 1), (1, 2)]);
        assert_eq!(list.get(1), Some(&(1, 2)));
        assert_eq!(list.put((1, 4)), Some((1, 2)));
        assert_eq!(list.remove(1), Some((1, 4)));
        assert_eq!(list.around(1).count(), 3);
    }

    #[test]
    fn an_empty_list_has_nothing() {
        let mut list = SharedList::<u64>::default();
        assert_eq!((list.first(), list.last(), list.at_or_before(u64::MAX)), (None, None, None));
        assert_eq!((list.around(3).count(), list.range(0..u64::MAX).count()), (0, 0));
        assert_eq!((list.remove(3), list.extract(1, |_| true)), (None, Vec::new()));
        assert_eq!(list, SharedList::of(&[]));
    }

    proptest! {
        #[test]
        fn a_list_is_a_map(
            loaded in 0..1000u64,
            changes in prop::collection::vec((0..4u8, 0..3000u64, 1..40u64), 0..200),
        ) {
            let items: Vec<u64> = (0..loaded).map(|i| i * 3).collect();
            let mut list = SharedList::of(&items);
            let mut map: BTreeMap<u64, u64> = items.iter().map(|item| (*item, *item)).collect();
            for (change, key, count) in changes {
                match change {
                    0 => {
                        prop_assert_eq!(list.put(key), map.insert(key, key));
                    }
                    1 => {
                        prop_assert_eq!(list.remove(key), map.remove(&key));
                    }
                    2 => (key..key + count).for_each(|key| {
                        list.put(key);
                        map.insert(key, key);
                    }),
                    _ => {
                        let gone: Vec<u64> = map.range(key..key + count).map(|(k, _)| *k).collect();
                        let leaves = |one: &u64| (key..key + count).contains(one);
                        prop_assert_eq!(&list.extract(gone.len(), leaves), &gone);
                        gone.iter().for_each(|key| _ = map.remove(key));
                    }
                }
                prop_assert!(list.iter().eq(map.keys()));
                prop_assert_eq!(list.len(), map.len());
                let before = map.range(..=key).next_back();
                prop_assert_eq!(list.at_or_before(key), before.map(|(k, _)| k));
                let range = || map.range(key..key + count).map(|(k, _)| k);
                prop_assert!(list.range(key..key + count).eq(range()));
                let around = map.range(..key).next_back().into_iter();
                let around = around.chain(map.get_key_value(&key));
                let around = around.chain(map.range(key + 1..).next()).map(|(k, _)| k);
                prop_assert!(list.around(key).eq(around));
            }
        }
    }
}
