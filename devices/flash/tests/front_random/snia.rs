//! Random calls of the API in SNIA's style.

use std::fmt::Debug;
use std::rc::Rc;

use crate::bench::{
    Bench, COMMANDS, Cut, Limits, Pairs, Past, ROUNDS, Rest, Spaces, Sums, TALKS, between,
};
use crate::random::{Random, one_of};
use runstone_flash::Error;
use runstone_flash::front::{
    IteratorId, KeyFilter, KeySpace, OnRetrieve, Snia, SniaError, StoreMode,
};
use runstone_flash::nand::FaultPlan;

/// A host that calls the API in the style of SNIA's.
struct SniaHost<'a> {
    api: Snia<'a>,
    past: &'a mut Past<Spaces>,
    limits: Limits,
    sums: &'a mut Sums,
    iterators: Vec<(IteratorId, Rest)>,
    /// The key space that is being deleted; after a power cut it may be there or not.
    doomed: Option<Vec<u8>>,
}

/// A status as text: variant and number.
fn said<T>(result: &Result<T, SniaError>) -> Result<String, Cut> {
    match result {
        Ok(_) => Ok("Ok".to_string()),
        Err(SniaError::Device(Error::PowerCut)) => Err(Cut),
        Err(error) => Ok(format!("{error:?}")),
    }
}

fn ok_or<E: Debug>(refusal: Option<E>) -> String {
    refusal.map_or("Ok".to_string(), |error| format!("{error:?}"))
}

impl SniaHost<'_> {
    fn is_taken(&mut self, found: &str, foretold: &str) -> bool {
        if foretold == "Ok" && found == "CapacityExceeded" {
            self.sums.refusals += 1;
            return false;
        }
        assert_eq!(found, foretold);
        found == "Ok"
    }

    fn step(&mut self, random: &mut Random, deletes: u64) -> Result<(), Cut> {
        if random.one_in(25) {
            return self.spaces(random);
        }
        if random.one_in(5) {
            return self.iterate(random);
        }
        let Some(space) = self.space(random) else { return self.spaces(random) };
        let key = self.limits.snia_key(random);
        match random.below(10) {
            0..6 if random.below(100) < deletes => self.delete(&space, &key)?,
            0..6 => self.store(&space, &key, random)?,
            6 => self.exist(&space, random)?,
            _ => {}
        }
        self.retrieve(&space, &key, random, deletes)
    }

    fn space(&mut self, random: &mut Random) -> Option<KeySpace> {
        let spaces = self.past.now();
        let name = spaces.keys().nth(random.below(spaces.len().max(1) as u64) as usize)?;
        Some(self.api.open_key_space(name).expect("it was made"))
    }

    fn pairs(&self, space: &KeySpace) -> (Vec<u8>, &Pairs) {
        let spaces = self.past.now().iter();
        let is_this = |name: &[u8]| self.api.open_key_space(name).ok().as_ref() == Some(space);
        let (name, pairs) = spaces.into_iter().find(|(name, _)| is_this(name)).expect("open");
        (name.clone(), pairs)
    }

    /// Makes, opens or deletes a key space.
    fn spaces(&mut self, random: &mut Random) -> Result<(), Cut> {
        let most = (self.limits.max_key - 1).min(255);
        let mut name = vec![b'0' + random.below(5) as u8];
        match random.below(12) {
            0 => name.clear(),
            1 => name.resize(most, 1),
            2 => name.resize(most + 1, 1),
            _ => {}
        }
        let is_legal = (1..=most).contains(&name.len());
        let is_there = self.past.now().contains_key(&name);
        if random.one_in(2) {
            let foretold = match is_legal {
                false => "KeySpaceNameInvalid",
                true if is_there => "KeySpaceExist",
                true => "Ok",
            };
            let found = said(&self.api.create_key_space(&name))?;
            if self.is_taken(&found, foretold) {
                self.past.change(|spaces| _ = spaces.insert(name, Pairs::new()));
            }
        } else if is_there {
            let space = self.api.open_key_space(&name).expect("it was made");
            self.doomed = Some(name.clone());
            let found = said(&self.api.delete_key_space(space.clone()))?;
            self.doomed = None;
            if self.is_taken(&found, "Ok") {
                self.past.change(|spaces| _ = spaces.remove(&name));
                let gone = said(&self.api.store(&space, b"some", b"", StoreMode::Post))?;
                assert_eq!(gone, "KeySpaceNotExist");
            }
        } else {
            assert_eq!(said(&self.api.open_key_space(&name))?, "KeySpaceNotExist");
        }
        assert!(self.api.key_spaces().eq(self.past.now().keys()));
        Ok(())
    }

    fn key_refusal(&self, key: &[u8]) -> Option<SniaError> {
        let is_legal = (4..=self.limits.snia_key_bytes()).contains(&key.len());
        (!is_legal).then_some(SniaError::KeyLengthInvalid(key.len()))
    }

    fn store(&mut self, space: &KeySpace, key: &[u8], random: &mut Random) -> Result<(), Cut> {
        let value = self.limits.value(random);
        let modes =
            [StoreMode::Post, StoreMode::UpdateOnly, StoreMode::NoOverwrite, StoreMode::Append];
        let mode = one_of(random, &modes);
        let (name, pairs) = self.pairs(space);
        let old = pairs.get(key);
        let mut new = value.clone();
        if let (Some(old), StoreMode::Append) = (old, mode) {
            new = [old.as_slice(), &value].concat();
        }
        let (too_long, too_long_now) =
            (new.len() > self.limits.max_value, value.len() > self.limits.max_value);
        let refusal = self.key_refusal(key).or(match mode {
            _ if too_long_now => Some(SniaError::ValueLengthInvalid(value.len())),
            StoreMode::UpdateOnly if old.is_none() => Some(SniaError::KeyNotExist),
            StoreMode::NoOverwrite if old.is_some() => Some(SniaError::UpdateNotAllowed),
            _ if too_long => Some(SniaError::ValueLengthInvalid(new.len())),
            _ => None,
        });
        let found = said(&self.api.store(space, key, &value, mode))?;
        if self.is_taken(&found, &ok_or(refusal)) {
            let insert = |pairs: &mut Pairs| _ = pairs.insert(key.to_vec(), Rc::new(new));
            self.past.change(|spaces| spaces.get_mut(&name).map_or((), insert));
        }
        Ok(())
    }

    fn delete(&mut self, space: &KeySpace, key: &[u8]) -> Result<(), Cut> {
        let (name, pairs) = self.pairs(space);
        let missing = (!pairs.contains_key(key)).then_some(SniaError::KeyNotExist);
        let foretold = ok_or(self.key_refusal(key).or(missing));
        let found = said(&self.api.delete(space, key))?;
        if self.is_taken(&found, &foretold) {
            self.forget(&name, key);
        }
        Ok(())
    }

    fn forget(&mut self, name: &[u8], key: &[u8]) {
        let remove = |pairs: &mut Pairs| _ = pairs.remove(key);
        self.past.change(|spaces| spaces.get_mut(name).map_or((), remove));
    }

    /// Retrieves a value, which also shows whether a store or a delete changed anything.
    fn retrieve(
        &mut self,
        space: &KeySpace,
        key: &[u8],
        random: &mut Random,
        deletes: u64,
    ) -> Result<(), Cut> {
        let (name, pairs) = self.pairs(space);
        let value = pairs.get(key).cloned();
        let len = value.as_ref().map_or(0, |value| value.len());
        let offset = if random.one_in(3) { random.below(len as u64 + 3) as usize } else { 0 };
        let rest = len.saturating_sub(offset);
        let mut buffer = vec![0xee; random.below(rest as u64 * 2 + 2) as usize];
        let is_last = random.below(400) < deletes;
        let then = if is_last { OnRetrieve::Delete } else { OnRetrieve::Keep };
        let refusal = self.key_refusal(key).or(match &value {
            None => Some(SniaError::KeyNotExist),
            Some(_) if offset > len => Some(SniaError::ValueOffsetInvalid(offset)),
            Some(_) if is_last && buffer.len() < rest => Some(SniaError::BufferSmall(rest)),
            Some(_) => None,
        });
        let found = self.api.retrieve(space, key, offset, &mut buffer, then);
        if self.is_taken(&said(&found)?, &ok_or(refusal)) {
            let (value, part) = (value.expect("it is there"), rest.min(buffer.len()));
            assert!(found.is_ok_and(|bytes| bytes == len));
            assert!(buffer[..part] == value[offset..offset + part]);
            assert!(buffer[part..].iter().all(|byte| *byte == 0xee));
            if is_last {
                self.forget(&name, key);
            }
        }
        Ok(())
    }

    fn exist(&mut self, space: &KeySpace, random: &mut Random) -> Result<(), Cut> {
        let keys: Vec<Vec<u8>> =
            (0..random.below(20)).map(|_| self.limits.snia_key(random)).collect();
        let (_, pairs) = self.pairs(space);
        let mut foretold = vec![0_u8; keys.len().div_ceil(8)];
        for (at, _) in keys.iter().enumerate().filter(|(_, key)| pairs.contains_key(*key)) {
            foretold[at / 8] |= 1 << (at % 8);
        }
        let refusal = keys.iter().find_map(|key| self.key_refusal(key));
        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = self.api.exist(space, &slices);
        assert_eq!(said(&found)?, ok_or(refusal));
        assert!(found.map_or(true, |bitmap| bitmap == foretold));
        Ok(())
    }

    /// Opens, closes or advances an iterator.
    fn iterate(&mut self, random: &mut Random) -> Result<(), Cut> {
        if random.one_in(3) || self.iterators.is_empty() {
            return self.open_iterator(random);
        }
        let at = random.below(self.iterators.len() as u64) as usize;
        if random.one_in(5) {
            let (id, _) = self.iterators.swap_remove(at);
            assert_eq!(said(&self.api.close_iterator(id))?, "Ok");
            assert_eq!(said(&self.api.next_pairs(id, 1))?, "IteratorNotExist");
            return Ok(());
        }
        let (id, rest) = &mut self.iterators[at];
        let limit = random.below(6 * self.limits.value_bytes) as usize;
        let (mut count, mut used) = (0, 0);
        while let Some((key, value)) = rest.get(count) {
            if used + key.len() + value.len() > limit {
                break;
            }
            used += key.len() + value.len();
            count += 1;
        }
        let first = rest.first().filter(|_| count == 0);
        let refusal = first.map(|(key, value)| SniaError::BufferSmall(key.len() + value.len()));
        let found = self.api.next_pairs(*id, limit);
        assert_eq!(said(&found)?, ok_or(refusal));
        let foretold: Vec<_> = rest.drain(..count).collect();
        let pairs = found.unwrap_or_default().into_iter().map(|(k, v)| (k, Rc::new(v)));
        assert!(pairs.eq(foretold), "an iterator shows the moment of its opening");
        self.sums.listed += count as u64;
        Ok(())
    }

    fn open_iterator(&mut self, random: &mut Random) -> Result<(), Cut> {
        let Some(space) = self.space(random) else { return Ok(()) };
        let mask: [u8; 4] = std::array::from_fn(|_| one_of(random, &[0, 0, 0xff, 0xff, 1]));
        let pattern = [b'a', random.below(3) as u8, random.below(5) as u8, random.below(7) as u8];
        let admits = |key: &&Vec<u8>| (0..4).all(|i| (key[i] ^ pattern[i]) & mask[i] == 0);
        let (_, pairs) = self.pairs(&space);
        let pairs = pairs.iter().filter(|(key, _)| admits(key));
        let rest = pairs.map(|(key, value)| (key.clone(), Rc::clone(value))).collect();
        let refusal = (self.iterators.len() >= 16).then_some(SniaError::IteratorMax);
        let found = self.api.open_iterator(&space, KeyFilter { mask, pattern });
        assert_eq!(said(&found)?, ok_or(refusal));
        self.iterators.extend(found.map(|id| (id, rest)));
        Ok(())
    }
}

/// The content of a device as the API shows it. Also checks that the device has nothing else.
fn spaces_of(bench: &mut Bench) -> Spaces {
    let mut api = Snia::new(&mut bench.device).expect("it can be spoken to");
    let names: Vec<Vec<u8>> = api.key_spaces().map(<[u8]>::to_vec).collect();
    let mut spaces = Spaces::new();
    for name in names {
        let space = api.open_key_space(&name).expect("it is named");
        let id = api.open_iterator(&space, KeyFilter::default()).expect("the only one");
        let pairs = api.next_pairs(id, usize::MAX).expect("it can be read");
        api.close_iterator(id).expect("it is open");
        let pairs = pairs.into_iter().map(|(key, value)| (key, Rc::new(value))).collect();
        spaces.insert(name, pairs);
    }
    drop(api);
    let entries = bench.entries();
    // A full device marks the pairs that it cannot remove yet, by the number of their key space.
    let is_doomed = |key: &[u8]| entries.contains_key(&[&[2], &key[1..5]].concat());
    let is_named = |key: &[u8]| key[0] == 0 || (key[0] == 1 && !is_doomed(key));
    let count = spaces.values().map(|pairs| 1 + pairs.len()).sum::<usize>();
    assert_eq!(entries.keys().filter(|key| is_named(key)).count(), count, "nothing else is left");
    spaces
}

/// Runs a host for a while. Returns the key space that was being deleted at a power cut.
fn talk(
    bench: &mut Bench,
    past: &mut Past<Spaces>,
    random: &mut Random,
    sums: &mut Sums,
) -> Result<(), (Cut, Option<Vec<u8>>)> {
    let limits = bench.limits();
    let deletes = one_of(random, &[5, 20, 70]);
    for _ in 0..TALKS {
        let api = match Snia::new(&mut bench.device) {
            Ok(api) => api,
            Err(SniaError::Device(Error::PowerCut)) => return Err((Cut, None)),
            Err(error) => panic!("{error}"),
        };
        let (iterators, doomed) = (Vec::new(), None);
        let mut host = SniaHost { api, past, limits, sums, iterators, doomed };
        for _ in 0..COMMANDS {
            host.step(random, deletes).map_err(|cut| (cut, host.doomed.take()))?;
        }
        drop(host);
        between(bench, past, random).map_err(|cut| (cut, None))?;
    }
    Ok(())
}

pub fn run_snia(seed: u64, sums: &mut Sums) {
    let mut random = Random::new(seed ^ 0x736e_6961);
    let Some(mut bench) = Bench::new(&mut random) else { return };
    let mut past = Past::new(bench.has_log());
    for _ in 0..ROUNDS {
        bench.set_faults(&mut random);
        let talked = talk(&mut bench, &mut past, &mut random, sums);
        sums.cuts += u64::from(talked.is_err());
        if talked.is_err() || random.one_in(6) {
            bench.reopen(&mut random);
            let found = spaces_of(&mut bench);
            let mut without = past.now().clone();
            let doomed = talked.err().and_then(|(Cut, doomed)| doomed);
            doomed.iter().for_each(|name| _ = without.remove(name));
            let is_known = past.states.contains(&found) || without == found;
            assert!(is_known, "the device holds a state that never existed");
            past.settle(found);
        }
        // The comparison must not run into the power cut of this round.
        bench.device.nand_mut().set_faults(FaultPlan::default());
        assert!(spaces_of(&mut bench) == *past.now());
        bench.device.verify().expect("nothing is damaged");
    }
}
