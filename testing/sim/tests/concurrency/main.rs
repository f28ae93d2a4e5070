//! Many threads on one store: batches, single keys, the scheduler, and threads that wait for jobs.

mod batches;
mod callbacks;
mod commit_lock;
mod jobs;
mod linearizable;
mod scheduler;
