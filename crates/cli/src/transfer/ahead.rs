//! A source that was read ahead of its reader, to find out whether its keys ascend.

use std::collections::VecDeque;

use super::directory::Skipped;
use super::source::{Item, Part, Position, Source};
use crate::failure::Result;

/// The items read so far, and the source after them.
pub struct Ahead<'a> {
    source: &'a mut dyn Source,
    read: VecDeque<Read>,
    /// The item that was returned last.
    last: Option<Read>,
}

/// An item with its file and line, and the position after it.
#[derive(Clone, Debug)]
struct Read {
    item: Item,
    place: (String, u64),
    position: Position,
}

impl<'a> Ahead<'a> {
    pub fn new(source: &'a mut dyn Source) -> Ahead<'a> {
        Ahead { source, read: VecDeque::new(), last: None }
    }

    /// Whether the keys of the next `records` records ascend, or those of the next records with
    /// this many bytes in total. `false` if there are fewer. Malformed records do not count.
    pub fn ascends(&mut self, records: usize, most_bytes: u64) -> Result<bool> {
        let (mut count, mut bytes) = (0, 0);
        let mut last: Option<Vec<u8>> = None;
        for at in 0.. {
            if count >= records || bytes >= most_bytes {
                return Ok(true);
            }
            if at == self.read.len() {
                let Some(item) = self.source.next()? else { return Ok(false) };
                let (place, position) = (self.source.place(), self.source.position());
                self.read.push_back(Read { item, place, position });
            }
            if let Ok(record) = &self.read[at].item {
                if last.as_ref().is_some_and(|last| record.key <= *last) {
                    return Ok(false);
                }
                last = Some(record.key.clone());
                bytes += (record.key.len() + record.value.len()) as u64;
                count += 1;
            }
        }
        Ok(false)
    }

    /// Takes back the item that was returned last; `before` was the position before it.
    pub fn put_back(&mut self, item: Item, before: Position) {
        let (place, position) = (self.place(), self.position());
        self.read.push_front(Read { item, place: place.clone(), position });
        self.last = Some(Read { item: Ok(Default::default()), place, position: before });
    }
}

impl Source for Ahead<'_> {
    fn next(&mut self) -> Result<Option<Item>> {
        match self.read.pop_front() {
            Some(mut read) => {
                let item = std::mem::replace(&mut read.item, Ok(Default::default()));
                self.last = Some(read);
                Ok(Some(item))
            }
            None => {
                self.last = None;
                self.source.next()
            }
        }
    }

    fn place(&self) -> (String, u64) {
        self.last.as_ref().map_or_else(|| self.source.place(), |last| last.place.clone())
    }

    fn position(&self) -> Position {
        self.last.as_ref().map_or_else(|| self.source.position(), |last| last.position.clone())
    }

    fn resume(&mut self, position: &Position) -> Result<bool> {
        self.read.clear();
        self.last = None;
        self.source.resume(position)
    }

    fn total_bytes(&self) -> u64 {
        self.source.total_bytes()
    }

    fn skipped(&self) -> Skipped {
        self.source.skipped()
    }

    fn escaped(&self) -> u64 {
        self.source.escaped()
    }

    fn parts(&self) -> Vec<Part> {
        self.source.parts()
    }

    fn turn_to(&mut self, part: usize) {
        self.read.clear();
        self.last = None;
        self.source.turn_to(part);
    }
}
