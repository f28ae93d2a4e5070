//! How long flash takes, in simulated nanoseconds: one bus per channel, several dies on it. No
//! clock is read; equal operations give equal times.
//!
//! 1. A read occupies its die for the array read, then the bus for the transfer. The reader waits.
//! 2. A program occupies the bus, then the die. Nobody waits for it, but a die without a cache
//!    register accepts nothing new until it is done.
//! 3. An erase occupies the die.
//! 4. Requests may be queued, up to a depth: the caller then waits for a place in the queue, and
//!    not for the request. A program leaves the queue when its page is sent.
//!
//! A block is on one die, or it is striped: its pages rotate over all dies, and an erase occupies
//! all dies. Firmware that writes one block at a time needs stripes to use more than one die.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::geometry::{Geometry, Ppa};

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
    pub(super) is_striped: bool,
    queue: Queue,
}

/// Requests that the caller does not wait for.
#[derive(Clone, Debug)]
struct Queue {
    /// The most requests that may be under way. One means that there is no queue.
    depth: usize,
    /// Whether the requests that follow are queued.
    is_on: bool,
    /// When the requests under way end.
    ends_ns: BinaryHeap<Reverse<u64>>,
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
            is_striped: false,
            queue: Queue { depth: 1, is_on: false, ends_ns: BinaryHeap::new() },
        }
    }

    pub(super) fn set_queue_depth(&mut self, depth: usize) {
        self.queue.depth = depth;
    }

    pub(super) fn queue_depth(&self) -> usize {
        self.queue.depth.max(1)
    }

    /// From now on, queues each request, or waits for each one.
    pub(super) fn set_queued(&mut self, is_on: bool) {
        self.queue.is_on = is_on && self.queue.depth > 1;
    }

    pub(super) fn wait_until(&mut self, ns: u64) {
        self.now_ns = self.now_ns.max(ns);
    }

    /// Waits for all that is queued.
    pub(super) fn drain(&mut self) {
        let last_ns = self.queue.ends_ns.drain().map(|Reverse(ns)| ns).max();
        self.wait_until(last_ns.unwrap_or(0));
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    /// The moment at which everything issued so far is done.
    pub(super) fn idle_ns(&self) -> u64 {
        let busiest = self.die_free_ns.iter().chain(&self.bus_free_ns).max();
        busiest.map_or(self.now_ns, |&free_ns| free_ns.max(self.now_ns))
    }

    /// Returns when the page has arrived.
    pub(super) fn read(&mut self, ppa: Ppa, bytes: u64) -> u64 {
        let (channel, die) = self.place(ppa);
        self.take_turn();
        let array_done_ns = self.now_ns.max(self.die_free_ns[die]) + self.timing.read_ns;
        let start_ns = array_done_ns.max(self.bus_free_ns[channel]);
        let done_ns = start_ns + self.timing.transfer_ns(bytes);
        self.bus_free_ns[channel] = done_ns;
        self.die_free_ns[die] = done_ns;
        self.end_turn(done_ns)
    }

    pub(super) fn program(&mut self, ppa: Ppa, bytes: u64) {
        let (channel, die) = self.place(ppa);
        self.take_turn();
        let start_ns = self.now_ns.max(self.die_free_ns[die]).max(self.bus_free_ns[channel]);
        let sent_ns = start_ns + self.timing.transfer_ns(bytes);
        self.bus_free_ns[channel] = sent_ns;
        self.die_free_ns[die] = sent_ns + self.timing.program_ns;
        self.end_turn(sent_ns);
    }

    pub(super) fn erase(&mut self, block: u32) {
        let (_, first) = self.place(Ppa { block, page: 0 });
        let dies = if self.is_striped { 0..self.die_free_ns.len() } else { first..first + 1 };
        for die in dies {
            self.die_free_ns[die] = self.now_ns.max(self.die_free_ns[die]) + self.timing.erase_ns;
        }
    }

    /// Waits for a place in the queue.
    fn take_turn(&mut self) {
        while self.queue.is_on && self.queue.ends_ns.len() >= self.queue.depth {
            if let Some(Reverse(first_ns)) = self.queue.ends_ns.pop() {
                self.wait_until(first_ns);
            }
        }
    }

    fn end_turn(&mut self, end_ns: u64) -> u64 {
        match self.queue.is_on {
            true => self.queue.ends_ns.push(Reverse(end_ns)),
            false => self.now_ns = end_ns,
        }
        end_ns
    }

    /// Blocks, or pages of striped blocks, rotate over the channels first, then over their dies.
    fn place(&self, ppa: Ppa) -> (usize, usize) {
        let channels = self.bus_free_ns.len();
        let turn = ppa.block as usize + if self.is_striped { ppa.page as usize } else { 0 };
        let channel = turn % channels;
        (channel, channel * self.die_count + turn / channels % self.die_count)
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

    fn first_of(block: u32) -> Ppa {
        Ppa { block, page: 0 }
    }

    #[test]
    fn one_die_does_one_thing_at_a_time() {
        let mut clock = clock(1, 1);
        clock.read(first_of(0), 3);
        assert_eq!(clock.now_ns, 15, "10 and 4.5, rounded up");
        clock.program(first_of(7), 2);
        assert_eq!((clock.now_ns, clock.idle_ns()), (18, 118));
        clock.program(first_of(8), 2);
        assert_eq!((clock.now_ns, clock.idle_ns()), (121, 221));
        clock.erase(1);
        assert_eq!((clock.now_ns, clock.idle_ns()), (121, 1_221));
        clock.read(first_of(2), 2);
        assert_eq!(clock.now_ns, 1_234);
    }

    #[test]
    fn dies_overlap_and_a_bus_is_shared() {
        let mut two_dies = clock(1, 2);
        two_dies.program(first_of(0), 2);
        two_dies.program(first_of(1), 2);
        assert_eq!((two_dies.now_ns, two_dies.idle_ns()), (6, 106));
        let mut channels = clock(2, 2);
        for block in 0..4 {
            channels.erase(block);
        }
        assert_eq!(channels.idle_ns(), 1_000, "four dies at once");
        channels.erase(4);
        assert_eq!(channels.idle_ns(), 2_000, "the fifth block is on the first die");
    }

    /// Pages of one block that are read together take as long as the pages of the busiest channel.
    #[test]
    fn queued_requests_overlap_where_blocks_are_striped() {
        let pages = || (0..8).map(|page| Ppa { block: 0, page });
        for (depth, is_striped, taken_ns) in
            [(1, true, 104), (8, true, 26), (8, false, 104), (4, true, 26), (2, true, 52)]
        {
            let mut clock = clock(4, 1);
            clock.set_queue_depth(depth);
            clock.is_striped = is_striped;
            clock.set_queued(true);
            let last_ns = pages().map(|ppa| clock.read(ppa, 2)).max();
            assert_eq!(last_ns, Some(taken_ns), "depth {depth}, striped {is_striped}");
            assert!(clock.now_ns <= taken_ns);
            clock.drain();
            assert_eq!(clock.now_ns, taken_ns);
            clock.set_queued(false);
            clock.read(first_of(0), 2);
            assert_eq!(clock.now_ns, taken_ns + 13, "waited for");
        }
    }

    #[test]
    fn queued_programs_are_sent_side_by_side() {
        let mut clock = clock(2, 1);
        (clock.is_striped, clock.now_ns) = (true, 0);
        clock.set_queue_depth(4);
        clock.set_queued(true);
        (0..4).for_each(|page| clock.program(Ppa { block: 0, page }, 2));
        assert_eq!(clock.now_ns, 0, "all four are queued");
        clock.drain();
        assert_eq!((clock.now_ns, clock.idle_ns()), (106, 206), "two on each die");
        clock.erase(0);
        assert_eq!(clock.die_free_ns, [1_206, 1_206], "its pages are on both");
    }

    #[test]
    fn presets_are_found_by_name() {
        for preset in Timing::PRESETS {
            assert_eq!(Timing::by_name(preset.name), Some(preset));
        }
        assert_eq!(Timing::by_name("slc?"), None);
    }
}
