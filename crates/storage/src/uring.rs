//! Many positioned reads of a file at once, with io_uring. It does not write and does not cache.
//! Kernel errors are returned unchanged. If the kernel has no rings or forbids them, or if all
//! rings are in use and no more can be made, the caller must read in another way.
//!
//! 1. A ring belongs to one call at a time; idle ones are kept for the next calls.
//! 2. Up to [`DEPTH`] reads are pending; as some complete, others are submitted.
//! 3. Reads that end early, or fail with a request to try again, are finished with `pread`.
//! 4. After an error nothing more is submitted, but the call waits for all pending reads.
//!
//! Obligations of the unsafe code, cited by number below:
//!
//! * O1 the descriptor is open until every submitted read has completed: the caller keeps the file
//!   open.
//! * O2 each buffer stays where it is, and nobody else touches it, until its read has completed.
//!   Buffers are vectors that are borrowed for the whole call, and the call ends when no read is
//!   pending. If the ring itself fails, nobody knows whether reads are pending, and the buffers are
//!   leaked.
//! * O3 the requested length is at most that of the buffer.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use io_uring::{IoUring, Probe, opcode, types};
use parking_lot::Mutex;

use crate::ReadRequest;

/// The most reads that are pending at once.
const DEPTH: u32 = 32;
/// The most rings that are kept while idle.
const MOST_IDLE: usize = 4;
/// The longest single read: the kernel's length has 32 bits.
const MOST_READ_BYTES: usize = 1 << 30;

pub(crate) struct Rings {
    idle: Mutex<Vec<IoUring>>,
}

impl fmt::Debug for Rings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rings").field("idle", &self.idle.lock().len()).finish()
    }
}

impl Rings {
    /// Makes a ring, to see whether the kernel allows us to read through one.
    pub(crate) fn probe() -> Option<Rings> {
        let ring = IoUring::new(DEPTH).ok()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        let reads = probe.is_supported(opcode::Read::CODE);
        reads.then(|| Rings { idle: Mutex::new(vec![ring]) })
    }

    /// Fills all buffers. Returns `false` if no ring is available; then nothing was read.
    pub(crate) fn read(&self, file: &File, reads: &mut [ReadRequest]) -> io::Result<bool> {
        let idle = self.idle.lock().pop();
        let Some(ring) = idle.or_else(|| IoUring::new(DEPTH).ok()) else { return Ok(false) };
        let mut batch = Batch { ring, file, next: 0, flying: 0, unfinished: Vec::new() };
        let outcome = batch.run(reads);
        if batch.flying > 0 {
            // The ring failed: the kernel may still write to any of the buffers (O2).
            reads.iter_mut().for_each(|read| std::mem::forget(std::mem::take(&mut read.buffer)));
            return outcome.map(|()| true);
        }
        let Batch { ring, unfinished, .. } = batch;
        let mut idle = self.idle.lock();
        if idle.len() < MOST_IDLE {
            idle.push(ring);
        }
        drop(idle);
        outcome?;
        for (index, done) in unfinished {
            let read = &mut reads[index];
            file.read_exact_at(&mut read.buffer[done..], read.offset + done as u64)?;
        }
        Ok(true)
    }
}

struct Batch<'a> {
    ring: IoUring,
    file: &'a File,
    /// The next request to submit.
    next: usize,
    /// Reads that were submitted and have not completed.
    flying: usize,
    /// Reads to finish in another way: their indices, and the bytes read so far.
    unfinished: Vec<(usize, usize)>,
}

impl Batch<'_> {
    /// Step 2. An error while reads are pending means that the ring failed.
    fn run(&mut self, reads: &mut [ReadRequest]) -> io::Result<()> {
        let mut failed = Ok(());
        loop {
            self.fill(reads);
            if self.flying == 0 {
                return failed;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                // Waiting completions are handled below.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            while let Some(completion) = self.ring.completion().next() {
                self.flying -= 1;
                let index = completion.user_data() as usize;
                let outcome = match usize::try_from(completion.result()) {
                    Ok(done) => Ok(done),
                    Err(_) => Err(io::Error::from_raw_os_error(-completion.result())),
                };
                match outcome {
                    Ok(done) if done == reads[index].buffer.len() => {}
                    Ok(done) => self.unfinished.push((index, done)),
                    Err(error) if is_passing(&error) => self.unfinished.push((index, 0)),
                    Err(error) => {
                        // Step 4.
                        failed = failed.and(Err(error));
                        self.next = reads.len();
                    }
                }
            }
        }
    }

    /// Submits as many reads as the ring accepts.
    fn fill(&mut self, reads: &mut [ReadRequest]) {
        while self.flying < DEPTH as usize
            && let Some(read) = reads.get_mut(self.next)
        {
            let len = read.buffer.len().min(MOST_READ_BYTES) as u32;
            let fd = types::Fd(self.file.as_raw_fd());
            let entry = opcode::Read::new(fd, read.buffer.as_mut_ptr(), len)
                .offset(read.offset)
                .build()
                .user_data(self.next as u64);
            // SAFETY: the caller keeps the file open (O1). `Rings::read` borrows the buffer, and
            // returns when no read is pending or leaks the buffer (O2). `len` is at most its length
            // (O3). Each request is submitted once, so no two reads share a buffer.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_err() {
                // The queue is full: the next wait makes room.
                return;
            }
            self.next += 1;
            self.flying += 1;
        }
    }
}

/// Whether trying again may help.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
    )
}
