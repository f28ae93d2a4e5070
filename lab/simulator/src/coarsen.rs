//! Makes tables larger for larger sizes, so that a simulation of terabytes ends in seconds. It
//! reports its changes, and results are shown together with them.

use super::{KeyOrder, SimWorkload};
use runstone_policy::options::{Numbers, PolicyOptions};

/// The factors that multiply sizes, so that a shape stays within a number of tables. They are
/// powers of two.
///
/// Their effect on results is as follows. A policy that compacts whole levels or runs writes the
/// same with tables of any size. A policy that sinks single tables treats a level that is smaller
/// than one table as a whole, so its upper levels behave like full leveling. Fragmented leveling,
/// 10 TiB, T = 10: write amplification 30.7, 31.8 and 34.3 with 1,024, 4,096 and 16,384 tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coarsening {
    /// The factor of `table_bytes`.
    pub table_factor: u64,
    /// The factor of `split_bytes`.
    pub split_factor: u64,
    /// The factor of `flush_bytes`. It is above 1 only for an ascending load: tables of such a load
    /// are never compacted, so they stay as small as the flush made them.
    pub flush_factor: u64,
}

impl Coarsening {
    /// The smallest factors with which `size_bytes` fit into `max_tables` tables.
    pub fn of(
        options: &PolicyOptions,
        workload: &SimWorkload,
        size_bytes: u64,
        max_tables: u64,
    ) -> Coarsening {
        let wanted = size_bytes.div_ceil(max_tables.max(1));
        let factor = |bytes: u64| wanted.div_ceil(bytes.max(1)).max(1).next_power_of_two();
        Coarsening {
            table_factor: factor(options.table_bytes()),
            split_factor: factor(Numbers::of(options).split_bytes),
            flush_factor: match workload.order {
                KeyOrder::Uniform => 1,
                KeyOrder::Sequential => factor(workload.flush_bytes),
            },
        }
    }

    /// The options and workload with the factors applied.
    pub fn apply(
        &self,
        options: &PolicyOptions,
        workload: &SimWorkload,
    ) -> (PolicyOptions, SimWorkload) {
        let numbers = Numbers::of(options);
        let options = Numbers {
            table_bytes: numbers.table_bytes.saturating_mul(self.table_factor),
            split_bytes: numbers.split_bytes.saturating_mul(self.split_factor),
            ..numbers.clone()
        }
        .into_options();
        let flush_bytes = workload.flush_bytes.saturating_mul(self.flush_factor);
        (options, SimWorkload { flush_bytes, ..workload.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_the_least_that_fit() {
        let options = PolicyOptions::default();
        let mut workload = SimWorkload {
            flush_bytes: 64 << 20,
            entry_bytes: 128,
            key_space: 1 << 60,
            order: KeyOrder::Uniform,
            seed: 1,
            prefix_count: 1,
        };
        let small = Coarsening::of(&options, &workload, 1 << 30, 4096);
        assert_eq!((small.table_factor, small.split_factor, small.flush_factor), (1, 1, 1));
        assert_eq!(small.apply(&options, &workload), (options.clone(), workload.clone()));
        workload.order = KeyOrder::Sequential;
        let large = Coarsening::of(&options, &workload, 10 << 40, 4096);
        assert_eq!((large.table_factor, large.split_factor, large.flush_factor), (64, 1024, 64));
        let (coarse, _) = large.apply(&options, &workload);
        assert_eq!(coarse.table_bytes(), 4 << 30);
    }
}
