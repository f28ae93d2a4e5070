//! Bytes that are not what was written: reads tell it, or show what was there (P6).

mod checksums;
mod every_byte;
mod samples;
mod synced;
