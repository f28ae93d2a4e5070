//! Many threads on one store: batches, single keys, the scheduler, and who waits for its jobs.

mod batches;
mod callbacks;
mod commit_lock;
mod jobs;
mod linearizable;
mod scheduler;
