//! Decides how much memory a database's cache may use of the size that the program requested.
//!
//! LevelDB fills a cache up to its size, however small the machine is. CometBFT requests 1 GiB for
//! each of its databases, so a node would use several GiB on any machine. Therefore all open
//! databases of a process share a limit:
//!
//! 1. The limit is `RUNSTONE_LEVELDB_CACHE`, such as `256M`, or else half of the memory of the
//!    machine or of the control group.
//! 2. A database gets the size that it requests, but at most half of the part that the others leave
//!    free. The first database gets the most, and every later one gets something. A share is not
//!    changed while its database is open.
//! 3. A database always gets LevelDB's default if it requests at least as much. So all together use
//!    less than the limit plus 8 MiB for each.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use runstone::unstable::limit_bytes;
use runstone_boundary::Failure;
use runstone_policy::units::parse_size;

use crate::Result;

/// LevelDB's default size of a cache.
const DEFAULT_BYTES: u64 = 8 << 20;
/// The name of the limit in the environment.
const VARIABLE: &str = "RUNSTONE_LEVELDB_CACHE";

/// The total size of the caches of open databases.
static TAKEN_BYTES: AtomicU64 = AtomicU64::new(0);

/// The share of an open database. Dropping the value frees the share.
#[derive(Debug)]
pub(crate) struct CacheShare {
    pub(crate) bytes: u64,
}

impl CacheShare {
    /// Takes a share for a database that requests this many bytes; `None` for LevelDB's default.
    ///
    /// # Errors
    /// If the limit in the environment is not a size.
    pub(crate) fn take(asked_bytes: Option<u64>) -> Result<CacheShare> {
        let (asked_bytes, limit_bytes) = (asked_bytes.unwrap_or(DEFAULT_BYTES), limit()?);
        let share = |taken_bytes| share_bytes(asked_bytes, taken_bytes, limit_bytes);
        let mut taken_bytes = TAKEN_BYTES.load(Relaxed);
        loop {
            let bytes = share(taken_bytes);
            let with_it = taken_bytes + bytes;
            match TAKEN_BYTES.compare_exchange_weak(taken_bytes, with_it, Relaxed, Relaxed) {
                Ok(_) => return Ok(CacheShare { bytes }),
                Err(now_bytes) => taken_bytes = now_bytes,
            }
        }
    }
}

impl Drop for CacheShare {
    fn drop(&mut self) {
        TAKEN_BYTES.fetch_sub(self.bytes, Relaxed);
    }
}

/// The size of the cache that a database gets.
fn share_bytes(asked_bytes: u64, taken_bytes: u64, limit_bytes: u64) -> u64 {
    let half_bytes = limit_bytes.saturating_sub(taken_bytes) / 2;
    asked_bytes.min(half_bytes.max(DEFAULT_BYTES))
}

/// The limit. It does not change while the process runs.
fn limit() -> Result<u64> {
    static LIMIT: OnceLock<std::result::Result<u64, String>> = OnceLock::new();
    let limit = LIMIT.get_or_init(|| match std::env::var(VARIABLE) {
        Ok(text) => parse_size(&text).map_err(|error| format!("{VARIABLE}: {error}")),
        Err(_) => Ok(machine_bytes().min(limit_bytes().unwrap_or(u64::MAX)) / 2),
    });
    limit.clone().map_err(Failure::invalid)
}

/// The memory of the machine.
fn machine_bytes() -> u64 {
    // SAFETY: these calls read two numbers, and return -1 if a number is not known.
    let (pages, bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(bytes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_databases_share_the_limit_and_one_alone_gets_half() {
        let limit_bytes = 256 << 20;
        assert_eq!(share_bytes(1 << 30, 0, limit_bytes), 128 << 20);
        assert_eq!(share_bytes(100 << 20, 0, limit_bytes), 100 << 20);
        for databases in [1, 6, 1000] {
            let mut taken_bytes = 0;
            for _ in 0..databases {
                let bytes = share_bytes(1 << 30, taken_bytes, limit_bytes);
                assert!(bytes >= DEFAULT_BYTES);
                taken_bytes += bytes;
            }
            assert!(taken_bytes < limit_bytes + databases * DEFAULT_BYTES);
        }
    }

    #[test]
    fn a_small_cache_stays_small_and_a_limit_of_zero_leaves_the_default() {
        assert_eq!(share_bytes(1000, 0, 1 << 30), 1000);
        assert_eq!(share_bytes(1000, 2 << 30, 1 << 30), 1000);
        assert_eq!(share_bytes(1 << 40, 0, 0), DEFAULT_BYTES);
        assert_eq!(share_bytes(1 << 40, u64::MAX, u64::MAX), DEFAULT_BYTES);
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(machine_bytes() > 64 << 20 && limit().is_ok());
    }
}
