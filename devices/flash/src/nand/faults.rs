//! Faults on demand: what goes wrong and when. This module decides; the device acts.

use std::collections::BTreeSet;

use runstone_random::Random;

use crate::geometry::Ppa;

/// A plan of faults. Programs and erases are counted from 0, starting when the plan is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// The power is cut during the n-th program or erase, counted together.
    pub power_cut_at: Option<u64>,
    /// Decides how far an operation gets if the power is cut during it.
    pub seed: u64,
    /// Programs that fail, by their ordinal among programs.
    pub failing_programs: BTreeSet<u64>,
    /// Erases that fail, by their ordinal among erases.
    pub failing_erases: BTreeSet<u64>,
    /// Pages that cannot be read.
    pub uncorrectable: BTreeSet<Ppa>,
}

/// How often each fault happened: a test whose faults never fired tested nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FiredFaults {
    /// Power cuts.
    pub power_cuts: u64,
    /// Failed programs.
    pub failed_programs: u64,
    /// Failed erases.
    pub failed_erases: u64,
    /// Uncorrectable reads.
    pub uncorrectable_reads: u64,
}

/// How far a program gets when the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TornProgram {
    /// The page is erased as before.
    NotBegun,
    /// The page reads as erased, but its cells are disturbed: nothing may be programmed there.
    LooksErased,
    /// The data are programmed up to some point; the spare bytes are erased.
    Prefix { bytes: usize },
    /// The spare bytes are intact, but a stretch of the data is damaged.
    Garbled { from: usize, bytes: usize },
    /// The program is complete.
    Complete,
}

/// How far an erase gets when the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TornErase {
    NotBegun,
    /// Every page is damaged, and the block must be erased again before it is programmed.
    Half,
    Complete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate<T> {
    Done,
    Fails,
    PowerCut(T),
}

/// A plan and how far it has come.
#[derive(Debug, Default)]
pub(super) struct Faults {
    plan: FaultPlan,
    program_count: u64,
    erase_count: u64,
    pub(super) fired: FiredFaults,
    pub(super) is_power_cut: bool,
}

impl Faults {
    pub(super) fn set(&mut self, plan: FaultPlan) {
        *self =
            Faults { plan, fired: self.fired, is_power_cut: self.is_power_cut, ..Faults::default() }
    }

    pub(super) fn mutation_count(&self) -> u64 {
        self.program_count + self.erase_count
    }

    pub(super) fn fate_of_program(&mut self, page_bytes: usize) -> Fate<TornProgram> {
        let is_cut = self.cuts_power();
        let ordinal = self.program_count;
        self.program_count += 1;
        if is_cut {
            return Fate::PowerCut(self.tear_program(page_bytes));
        }
        if self.plan.failing_programs.contains(&ordinal) {
            self.fired.failed_programs += 1;
            return Fate::Fails;
        }
        Fate::Done
    }

    pub(super) fn fate_of_erase(&mut self) -> Fate<TornErase> {
        let is_cut = self.cuts_power();
        let ordinal = self.erase_count;
        self.erase_count += 1;
        if is_cut {
            let outcomes = [TornErase::NotBegun, TornErase::Half, TornErase::Complete];
            let drawn = Random::new(self.plan.seed).below(outcomes.len() as u64);
            return Fate::PowerCut(outcomes[drawn as usize]);
        }
        if self.plan.failing_erases.contains(&ordinal) {
            self.fired.failed_erases += 1;
            return Fate::Fails;
        }
        Fate::Done
    }

    pub(super) fn is_uncorrectable(&mut self, ppa: Ppa) -> bool {
        let is_hit = self.plan.uncorrectable.contains(&ppa);
        self.fired.uncorrectable_reads += u64::from(is_hit);
        is_hit
    }

    fn cuts_power(&mut self) -> bool {
        let is_cut = self.plan.power_cut_at == Some(self.mutation_count());
        self.fired.power_cuts += u64::from(is_cut);
        self.is_power_cut |= is_cut;
        is_cut
    }

    fn tear_program(&self, page_bytes: usize) -> TornProgram {
        let mut random = Random::new(self.plan.seed);
        match random.below(5) {
            0 => TornProgram::NotBegun,
            1 => TornProgram::LooksErased,
            2 => TornProgram::Prefix { bytes: random.below(page_bytes as u64 + 1) as usize },
            3 => {
                let from = random.below(page_bytes as u64) as usize;
                let bytes = 1 + random.below((page_bytes - from) as u64) as usize;
                TornProgram::Garbled { from, bytes }
            }
            _ => TornProgram::Complete,
        }
    }
}
