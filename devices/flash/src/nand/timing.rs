//! How long flash takes, in simulated nanoseconds: one bus per channel, several dies on it. No
//! clock is read; equal operations give equal times.
//!
//! 1. A read occupies its die for the array read, then the bus for the transfer. The reader waits.
//! 2. A program occupies the bus, then the die. Nobody waits for it, but a die without a cache
//!    register takes nothing new until it is done.
//! 3. An erase occupies the die.

use crate::geometry::Geometry;

/// Times of a kind of flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The name in reports.
    pub name: &'static str,
    /// Array read of a page.
    pub read_ns: u64,
    /// Array program of a page.
    pub program_ns: u64,
    /// Erase of a block.
    pub erase_ns: u64,
    /// Transfer of a byte, in picoseconds.
    pub byte_ps: u64,
}

impl Timing {
    /// The times of the paper's simulator: the defaults of the SSD extension of DiskSim.
    pub const PAPER: Timing = Timing {
        name: "paper",
        read_ns: 25_000,
        program_ns: 200_000,
        erase_ns: 1_500_000,
        byte_ps: 25_000,
    };
    /// Two bits per cell on a 400 MB/s bus.
    pub const MLC: Timing = Timing {
        name: "mlc",
        read_ns: 50_000,
        program_ns: 900_000,
        erase_ns: 3_000_000,
        byte_ps: 2_500,
    };
    /// Three bits per cell on an 800 MB/s bus.
    pub const TLC: Timing = Timing {
        name: "tlc",
        read_ns: 80_000,
        program_ns: 700_000,
        erase_ns: 5_000_000,
        byte_ps: 1_250,
    };
    /// Every preset.
    pub const PRESETS: [Timing; 3] = [Timing::PAPER, Timing::MLC, Timing::TLC];

    /// The preset of this name.
    pub fn by_name(name: &str) -> Option<Timing> {
        Timing::PRESETS.into_iter().find(|preset| preset.name == name)
    }

    fn transfer_ns(&self, bytes: u64) -> u64 {
        (bytes * self.byte_ps).div_ceil(1_000)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Clock {
    timing: Timing,
    die_count: usize,
    /// The moment up to which the caller has waited.
    now_ns: u64,
    bus_free_ns: Vec<u64>,
    die_free_ns: Vec<u64>,
}

impl Clock {
    pub(super) fn new(timing: Timing, geometry: &Geometry) -> Clock {
        let channels = geometry.channel_count as usize;
        let die_count = geometry.die_count as usize;
        Clock {
            timing,
            die_count,
            now_ns: 0,
            bus_free_ns: vec![0; channels],
            die_free_ns: vec![0; channels * die_count],
        }
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    /// The moment at which everything issued so far is done.
    pub(super) fn idle_ns(&self) -> u64 {
        let busiest = self.die_free_ns.iter().chain(&self.bus_free_ns).max();
        busiest.map_or(self.now_ns, |&free_ns| free_ns.max(self.now_ns))
    }

    pub(super) fn read(&mut self, block: u32, bytes: u64) {
        let (channel, die) = self.place(block);
        let array_done_ns = self.now_ns.max(self.die_free_ns[die]) + self.timing.read_ns;
        let start_ns = array_done_ns.max(self.bus_free_ns[channel]);
        let done_ns = start_ns + self.timing.transfer_ns(bytes);
        self.bus_free_ns[channel] = done_ns;
        self.die_free_ns[die] = done_ns;
        self.now_ns = done_ns;
    }

    pub(super) fn program(&mut self, block: u32, bytes: u64) {
        let (channel, die) = self.place(block);
        let start_ns = self.now_ns.max(self.die_free_ns[die]).max(self.bus_free_ns[channel]);
        let sent_ns = start_ns + self.timing.transfer_ns(bytes);
        self.bus_free_ns[channel] = sent_ns;
        self.die_free_ns[die] = sent_ns + self.timing.program_ns;
        self.now_ns = sent_ns;
    }

    pub(super) fn erase(&mut self, block: u32) {
        let (_, die) = self.place(block);
        self.die_free_ns[die] = self.now_ns.max(self.die_free_ns[die]) + self.timing.erase_ns;
    }

    /// Blocks go round the channels first, then round their dies.
    fn place(&self, block: u32) -> (usize, usize) {
        let channels = self.bus_free_ns.len();
        let channel = block as usize % channels;
        (channel, channel * self.die_count + block as usize / channels % self.die_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(channel_count: u32, die_count: u32) -> Clock {
        let geometry = Geometry { channel_count, die_count, ..Geometry::default() };
        let timing =
            Timing { name: "test", read_ns: 10, program_ns: 100, erase_ns: 1_000, byte_ps: 1_500 };
        Clock::new(timing, &geometry)
    }

    #[test]
    fn one_die_does_one_thing_at_a_time() {
        let mut clock = clock(1, 1);
        clock.read(0, 3);
        assert_eq!(clock.now_ns, 15, "10 and 4.5, rounded up");
        clock.program(7, 2);
        assert_eq!((clock.now_ns, clock.idle_ns()), (18, 118));
        clock.program(8, 2);
        assert_eq!((clock.now_ns, clock.idle_ns()), (121, 221));
        clock.erase(1);
        assert_eq!((clock.now_ns, clock.idle_ns()), (121, 1_221));
        clock.read(2, 2);
        assert_eq!(clock.now_ns, 1_234);
    }

    #[test]
    fn dies_overlap_and_a_bus_is_shared() {
        let mut two_dies = clock(1, 2);
        two_dies.program(0, 2);
        two_dies.program(1, 2);
        assert_eq!((two_dies.now_ns, two_dies.idle_ns()), (6, 106));
        let mut channels = clock(2, 2);
        for block in 0..4 {
            channels.erase(block);
        }
        assert_eq!(channels.idle_ns(), 1_000, "four dies at once");
        channels.erase(4);
        assert_eq!(channels.idle_ns(), 2_000, "the fifth block is on the first die");
    }

    #[test]
    fn presets_are_found_by_name() {
        for preset in Timing::PRESETS {
            assert_eq!(Timing::by_name(preset.name), Some(preset));
        }
        assert_eq!(Timing::by_name("slc?"), None);
    }
}
