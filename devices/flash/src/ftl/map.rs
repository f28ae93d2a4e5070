//! Which physical page contains which logical page, both ways, and how many valid pages a block
//! has. In RAM only; recovery rebuilds it. No I/O.

use crate::nand::{Geometry, Ppa};

const NONE: u32 = u32::MAX;

/// The mapping. Invariant: `physical[l] == p` iff `logical[p] == l`, and `valid[b]` counts the
/// mapped pages of block `b`.
#[derive(Debug)]
pub(super) struct Map {
    geometry: Geometry,
    physical: Vec<u32>,
    logical: Vec<u32>,
    valid: Vec<u32>,
}

impl Map {
    pub(super) fn new(geometry: Geometry, logical_pages: u32) -> Map {
        Map {
            geometry,
            physical: vec![NONE; logical_pages as usize],
            logical: vec![NONE; geometry.page_count() as usize],
            valid: vec![0; geometry.block_count as usize],
        }
    }

    pub(super) fn logical_pages(&self) -> u32 {
        self.physical.len() as u32
    }

    pub(super) fn find(&self, logical: u32) -> Option<Ppa> {
        let flat = self.physical[logical as usize];
        (flat != NONE).then(|| self.geometry.page(flat))
    }

    /// The logical page at a physical page, if that is its newest version.
    pub(super) fn owner(&self, ppa: Ppa) -> Option<u32> {
        let logical = self.logical[self.geometry.flat(ppa) as usize];
        (logical != NONE).then_some(logical)
    }

    pub(super) fn valid_pages(&self, block: u32) -> u32 {
        self.valid[block as usize]
    }

    /// Maps a logical page to a physical page. Its former physical page becomes garbage.
    pub(super) fn assign(&mut self, logical: u32, ppa: Ppa) {
        self.remove(logical);
        let flat = self.geometry.flat(ppa);
        debug_assert_eq!(self.logical[flat as usize], NONE, "a page gets two logical pages");
        self.physical[logical as usize] = flat;
        self.logical[flat as usize] = logical;
        self.valid[ppa.block as usize] += 1;
    }

    pub(super) fn remove(&mut self, logical: u32) {
        if let Some(old) = self.find(logical) {
            self.logical[self.geometry.flat(old) as usize] = NONE;
            self.valid[old.block as usize] -= 1;
            self.physical[logical as usize] = NONE;
        }
    }

    /// Whether the invariant holds; for tests.
    pub(super) fn is_consistent(&self) -> bool {
        let mut valid = vec![0; self.valid.len()];
        for (flat, &logical) in (0..).zip(&self.logical) {
            if logical != NONE {
                valid[self.geometry.page(flat).block as usize] += 1;
                if self.physical[logical as usize] != flat {
                    return false;
                }
            }
        }
        let mapped = self.physical.iter().filter(|&&flat| flat != NONE).count();
        valid == self.valid && valid.iter().sum::<u32>() as usize == mapped
    }
}
