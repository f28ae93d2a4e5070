//! Measures the cost of the boundary: puts and gets in Rust and through the C functions,
//! alternating, on one store. `cargo run --release -p runstone-c --example cost`

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use runstone::Keyspace;
use runstone_boundary::pointers::Kept;
use runstone_c::bytes::{runstone_bytes, runstone_bytes_free};
use runstone_c::handles::runstone_keyspace;
use runstone_c::keyspace::{runstone_get, runstone_put};
use runstone_c::status::runstone_status::RUNSTONE_OK;
use runstone_c::store::{runstone_close, runstone_default_keyspace, runstone_open};

const KEYS: u64 = 10_000;
/// Both sides have their turns within a fifth of a millisecond, so other load on the machine
/// affects both alike.
const KEYS_OF_A_TURN: u64 = 200;
const TURNS: u64 = 4_000;

fn key(number: u64) -> [u8; 16] {
    let mut key = [b'k'; 16];
    key[8..].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Nanoseconds per call, averaged over the keys of one turn.
fn each(turn: u64, mut work: impl FnMut(&[u8; 16])) -> f64 {
    let start = Instant::now();
    let first = turn * KEYS_OF_A_TURN;
    (first..first + KEYS_OF_A_TURN).for_each(|number| work(&key(number % KEYS)));
    start.elapsed().as_nanos() as f64 / KEYS_OF_A_TURN as f64
}

fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn in_rust(turn: u64, keyspace: &Keyspace, value: &[u8]) -> [f64; 2] {
    let put = each(turn, |key| keyspace.put(key, value).expect("room"));
    let get = each(turn, |key| {
        black_box(keyspace.get(key).expect("readable").expect("there"));
    });
    [put, get]
}

fn in_c(turn: u64, keyspace: *mut runstone_keyspace, value: &[u8]) -> [f64; 2] {
    let at = |bytes: &[u8]| bytes.as_ptr().cast::<c_void>();
    let put = each(turn, |key| {
        // SAFETY: the bytes are alive.
        let status = unsafe { runstone_put(keyspace, at(key), 16, at(value), value.len(), 0) };
        assert_eq!(status, RUNSTONE_OK);
    });
    let get = each(turn, |key| {
        let mut found = runstone_bytes { data: ptr::null(), size: 0, owner: ptr::null_mut() };
        // SAFETY: the bytes and the place are alive.
        let status = unsafe { runstone_get(keyspace, ptr::null(), at(key), 16, &mut found) };
        assert!(status == RUNSTONE_OK && !found.data.is_null());
        // SAFETY: the library has just returned these bytes.
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
    for turn in 0..TURNS {
        let by_rust = || in_rust(turn, &runstone_keyspace::get(keyspace).expect("open"), &value);
        let by_c = || in_c(turn, keyspace, &value);
        // The sides alternate in going first, because the second one finds more versions of each
        // key.
        let (rust, c) = match turn % 2 {
            0 => (by_rust(), by_c()),
            _ => {
                let c = by_c();
                (by_rust(), c)
            }
        };
        let more = [c[0] - rust[0], c[1] - rust[1]];
        for (times, took) in times.iter_mut().zip([rust[0], more[0], rust[1], more[1]]) {
            times.push(took);
        }
    }
    let [put, more_of_put, get, more_of_get] = times.map(middle);
    println!("put: {put:.0} ns in Rust, {more_of_put:+.0} ns in C");
    println!("get: {get:.0} ns in Rust, {more_of_get:+.0} ns in C");
    assert_eq!(runstone_close(store), RUNSTONE_OK);
}
