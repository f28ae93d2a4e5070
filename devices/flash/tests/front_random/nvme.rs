//! Random NVMe commands.

use std::rc::Rc;

use crate::bench::{
    Bench, COMMANDS, Cut, Limits, Pairs, Past, ROUNDS, Sums, TALKS, between, is_done,
};
use crate::random::{Random, one_of};
use runstone_flash::Error;
use runstone_flash::front::{NvmeError, NvmeKv, OnMissing, StoreIf};

/// A host that sends NVMe commands.
struct NvmeHost<'a> {
    nvme: NvmeKv<'a>,
    past: &'a mut Past<Pairs>,
    limits: Limits,
    sums: &'a mut Sums,
}

/// The code of a status; 0 means success.
fn status<T>(result: &Result<T, NvmeError>) -> Result<u8, Cut> {
    match result {
        Ok(_) => Ok(0),
        Err(NvmeError::Internal(Error::PowerCut)) => Err(Cut),
        Err(error) => Ok(error.code()),
    }
}

fn nvme_key_status(key: &[u8]) -> u8 {
    if (1..=16).contains(&key.len()) { 0 } else { 0x86 }
}

impl NvmeHost<'_> {
    /// Whether the device accepted the write. A full device may refuse it.
    fn is_taken(&mut self, found: u8, foretold: u8) -> bool {
        if foretold == 0 && found == 0x81 {
            self.sums.refusals += 1;
            return false;
        }
        assert_eq!(found, foretold);
        found == 0
    }

    fn step(&mut self, random: &mut Random, deletes: u64) -> Result<(), Cut> {
        let key = self.limits.nvme_key(random);
        match random.below(10) {
            0..6 if random.below(100) < deletes => self.delete(&key, random)?,
            0..6 => self.store(&key, random)?,
            6 => self.list(&key, random)?,
            _ => {}
        }
        self.check(&key, random)
    }

    fn store(&mut self, key: &[u8], random: &mut Random) -> Result<(), Cut> {
        let value = self.limits.value(random);
        let condition =
            one_of(random, &[StoreIf::Always, StoreIf::Always, StoreIf::Exists, StoreIf::Missing]);
        let is_there = self.past.now().contains_key(key);
        let foretold = match (nvme_key_status(key), condition) {
            (0, _) if value.len() > self.limits.max_value => 0x85,
            (0, StoreIf::Exists) if !is_there => 0x87,
            (0, StoreIf::Missing) if is_there => 0x89,
            (other, _) => other,
        };
        let found = status(&self.nvme.store(key, &value, condition))?;
        if self.is_taken(found, foretold) {
            self.past.change(|pairs| _ = pairs.insert(key.to_vec(), Rc::new(value)));
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8], random: &mut Random) -> Result<(), Cut> {
        let on_missing = one_of(random, &[OnMissing::Succeed, OnMissing::Fail]);
        let is_there = self.past.now().contains_key(key);
        let foretold = match nvme_key_status(key) {
            0 if on_missing == OnMissing::Fail && !is_there => 0x87,
            other => other,
        };
        let found = status(&self.nvme.delete(key, on_missing))?;
        if self.is_taken(found, foretold) {
            self.past.change(|pairs| _ = pairs.remove(key));
        }
        Ok(())
    }

    /// Checks a key against the model with the commands exist and retrieve.
    fn check(&mut self, key: &[u8], random: &mut Random) -> Result<(), Cut> {
        let value = self.past.now().get(key);
        let foretold = match nvme_key_status(key) {
            0 if value.is_none() => 0x87,
            other => other,
        };
        assert_eq!(status(&self.nvme.exist(key))?, foretold);
        let most = value.map_or(0, |value| value.len()) as u64;
        let mut buffer = vec![0xee; random.below(most + 3) as usize];
        let found = self.nvme.retrieve(key, &mut buffer);
        assert_eq!(status(&found)?, foretold);
        let Some(value) = value.filter(|_| foretold == 0) else { return Ok(()) };
        let part = value.len().min(buffer.len());
        assert!(found.is_ok_and(|bytes| bytes == value.len()));
        assert!(buffer[..part] == value[..part] && buffer[part..].iter().all(|b| *b == 0xee));
        Ok(())
    }

    fn list(&mut self, from: &[u8], random: &mut Random) -> Result<(), Cut> {
        let most = one_of(random, &[8, 100, 9000]);
        let mut buffer = vec![0xee; random.below(most) as usize];
        let mut whole = vec![0; 4];
        let mut count = 0_u32;
        let keys = self.past.now().range(from.to_vec()..).map(|(key, _)| key);
        for key in keys.filter(|key| key.len() <= 16) {
            let mut entry = (key.len() as u16).to_le_bytes().to_vec();
            entry.extend_from_slice(key);
            entry.resize(entry.len().next_multiple_of(4), 0);
            if whole.len() + entry.len() > buffer.len() {
                break;
            }
            whole.append(&mut entry);
            count += 1;
        }
        whole[..4].copy_from_slice(&count.to_le_bytes());
        let foretold = match from.len() {
            17.. => 0x86,
            _ if buffer.len() < 4 => 0x85,
            _ => 0,
        };
        let found = self.nvme.list(from, &mut buffer);
        assert_eq!(status(&found)?, foretold);
        if let Ok(used) = found {
            assert!(buffer[..used] == whole, "a list from {from:?}");
            self.sums.listed += u64::from(count);
        }
        Ok(())
    }
}

pub fn run_nvme(seed: u64, sums: &mut Sums) {
    let mut random = Random::new(seed ^ 0x6e76_6d65);
    let Some(mut bench) = Bench::new(&mut random) else { return };
    let mut past = Past::new(bench.has_log());
    for _ in 0..ROUNDS {
        bench.set_faults(&mut random);
        let deletes = one_of(&mut random, &[5, 20, 70]);
        let limits = bench.limits();
        let mut talk = |bench: &mut Bench, past: &mut Past<Pairs>| {
            for _ in 0..TALKS {
                let nvme = NvmeKv::new(&mut bench.device);
                let mut host = NvmeHost { nvme, past, limits, sums };
                (0..COMMANDS).try_for_each(|_| host.step(&mut random, deletes))?;
                put_foreign(bench, past, &mut random)?;
                between(bench, past, &mut random)?;
            }
            Ok(())
        };
        if let Err(Cut) = talk(&mut bench, &mut past) {
            sums.cuts += 1;
            reopen_as_known(&mut bench, &mut past, &mut random);
        } else if random.one_in(6) {
            reopen_as_known(&mut bench, &mut past, &mut random);
        }
        assert!(bench.entries() == *past.now());
        bench.device.verify().expect("nothing is damaged");
    }
}

fn reopen_as_known(bench: &mut Bench, past: &mut Past<Pairs>, random: &mut Random) {
    bench.reopen(random);
    let found = bench.entries();
    assert!(past.states.contains(&found), "the device holds a state that never existed");
    past.settle(found);
}

/// Writes a key that is too long for the command set, directly to the device.
fn put_foreign(bench: &mut Bench, past: &mut Past<Pairs>, random: &mut Random) -> Result<(), Cut> {
    let most = bench.device.max_key_bytes() as u64;
    let key = vec![random.below(256) as u8; 17 + random.below(most - 16) as usize];
    let value = vec![1; random.below(bench.value_bytes) as usize];
    if random.one_in(3) && is_done(bench.device.put(&key, &value))? {
        past.change(|pairs| _ = pairs.insert(key, Rc::new(value)));
    }
    Ok(())
}
