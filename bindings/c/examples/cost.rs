//! What the boundary costs: puts and gets by Rust and through the functions of C, in turns, on one
//! store. `cargo run --release -p runstone-c --example cost`

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::time::{Duration, Instant};

use runstone::Keyspace;
use runstone_boundary::pointers::Kept;
use runstone_c::bytes::{runstone_bytes, runstone_bytes_free};
use runstone_c::handles::runstone_keyspace;
use runstone_c::keyspace::{runstone_get, runstone_put};
use runstone_c::status::runstone_status::RUNSTONE_OK;
use runstone_c::store::{runstone_close, runstone_default_keyspace, runstone_open};

const KEYS: u64 = 10_000;
const ROUNDS: usize = 60;

fn key(number: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn each(mut work: impl FnMut(&[u8; 16])) -> Duration {
    let start = Instant::now();
    (0..KEYS).for_each(|number| work(&key(number)));
    start.elapsed() / KEYS as u32
}

/// The least of the rounds: what others do to the machine only adds.
fn least(times: Vec<f64>) -> f64 {
    times.into_iter().fold(f64::INFINITY, f64::min)
}

fn in_rust(keyspace: &Keyspace, value: &[u8]) -> [Duration; 2] {
    let put = each(|key| keyspace.put(key, value).expect("room"));
    let get = each(|key| {
        black_box(keyspace.get(key).expect("readable").expect("there"));
    });
    [put, get]
}

fn in_c(keyspace: *mut runstone_keyspace, value: &[u8]) -> [Duration; 2] {
    let at = |bytes: &[u8]| bytes.as_ptr().cast::<c_void>();
    let put = each(|key| {
        // SAFETY: the bytes are alive.
        let status = unsafe { runstone_put(keyspace, at(key), 16, at(value), value.len(), 0) };
        assert_eq!(status, RUNSTONE_OK);
    });
    let get = each(|key| {
        let mut found = runstone_bytes { data: ptr::null(), size: 0, owner: ptr::null_mut() };
        // SAFETY: the bytes and the place are alive.
        let status = unsafe { runstone_get(keyspace, ptr::null(), at(key), 16, &mut found) };
        assert!(status == RUNSTONE_OK && !found.data.is_null());
        // SAFETY: it was just given.
        unsafe { runstone_bytes_free(black_box(&mut found)) };
    });
    [put, get]
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("c").display().to_string() + "\0";
    let (mut store, mut keyspace) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the path is a zero-terminated string, and both out-pointers are valid.
    unsafe {
        assert_eq!(runstone_open(path.as_ptr().cast(), ptr::null(), &mut store), RUNSTONE_OK);
        assert_eq!(runstone_default_keyspace(store, &mut keyspace), RUNSTONE_OK);
    }
    let value = [7u8; 100];
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..ROUNDS {
        let by_rust = || in_rust(&runstone_keyspace::get(keyspace).expect("open"), &value);
        let by_c = || in_c(keyspace, &value);
        // Each goes first in every other round: the second finds more versions of each key.
        let (rust, c) = match round % 2 {
            0 => (by_rust(), by_c()),
            _ => {
                let c = by_c();
                (by_rust(), c)
            }
        };
        for (times, took) in times.iter_mut().zip([rust[0], c[0], rust[1], c[1]]) {
            times.push(took.as_nanos() as f64);
        }
    }
    let [rust_put, c_put, rust_get, c_get] = times.map(least);
    println!("put: {rust_put:.0} ns in Rust, {:+.0} ns in C", c_put - rust_put);
    println!("get: {rust_get:.0} ns in Rust, {:+.0} ns in C", c_get - rust_get);
    assert_eq!(runstone_close(store), RUNSTONE_OK);
}
