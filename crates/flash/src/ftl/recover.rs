//! Rebuilds the mapping from the spare bytes of all pages.
//!
//! 1. Of all intact pages of a logical page, the one with the largest program number is current.
//! 2. A torn page is the last programmed page of its block, for nothing is programmed past it: so
//!    the data of the last page of each block are read and checked, and a bad one does not count.
//!    Its older version is then current: nobody acknowledged the new one.
//! 3. Any other damaged page is rot: one might have been current, so the device is refused.
//! 4. No block is resumed: every block that holds anything is sealed. One that reads as erased may
//!    be disturbed, so it is erased before use.
//!
//! What `trim` forgot comes back, as far as it was not collected.

use super::Ftl;
use super::space::Use;
use crate::error::{Error, Result};
use crate::nand::{Oob, PageType, Ppa, Spare};

impl Ftl {
    pub(super) fn recover(&mut self) -> Result<()> {
        let geometry = self.nand.geometry();
        let mut newest: Vec<u64> = vec![0; self.map.logical_pages() as usize];
        for block in 0..geometry.block_count {
            let spares = self.nand.read_spares(block)?;
            let used = spares.iter().rposition(|spare| *spare != Spare::Erased);
            self.uses[block as usize] = match (self.nand.is_retired(block), used) {
                (true, _) => Use::Retired,
                (false, None) => Use::FreeUnerased,
                (false, Some(_)) => Use::Sealed,
            };
            let Some(last) = used else { continue };
            let is_half_erased = spares.iter().all(|spare| *spare == Spare::Damaged);
            if is_half_erased {
                continue;
            }
            for (page, spare) in (0..).zip(&spares[..=last]) {
                let ppa = Ppa { block, page };
                match spare {
                    Spare::Valid(oob) => {
                        self.program_seq = self.program_seq.max(oob.tag.program_seq);
                        if page < last as u32 || self.is_whole(ppa)? {
                            self.take(ppa, oob, &mut newest)?;
                        }
                    }
                    _ if page < last as u32 => {
                        return Err(Error::PageDamaged(ppa, "spare bytes, and not by a power cut"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn is_whole(&mut self, ppa: Ppa) -> Result<bool> {
        let mut data = std::mem::take(&mut self.gc_page);
        let read = self.nand.read(ppa, &mut data);
        self.gc_page = data;
        match read {
            Ok(_) => Ok(true),
            Err(Error::PageDamaged(..)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    fn take(&mut self, ppa: Ppa, oob: &Oob, newest: &mut [u64]) -> Result<()> {
        let tag = &oob.tag;
        let corrupt = |why: String| Err(Error::Corrupt { what: "block SSD", why });
        if tag.page_type != PageType::Host {
            return corrupt(format!("{ppa} is a {} page", tag.page_type.name()));
        }
        let Some(slot) = newest.get_mut(usize::try_from(tag.owner).unwrap_or(usize::MAX)) else {
            let (owner, limit) = (tag.owner, self.map.logical_pages());
            return corrupt(format!("{ppa} holds logical page {owner} of {limit}"));
        };
        if tag.program_seq > *slot {
            *slot = tag.program_seq;
            self.map.assign(tag.owner as u32, ppa);
        }
        Ok(())
    }
}
