//! Changed bytes: reads report them or show the right data (P6).

mod checksums;
mod ends;
mod every_byte;
mod random_ends;
mod samples;
mod synced;
