//! Mutations from a seed, for tests: what a fuzzer does first. Not here: coverage.

use super::parts::put_varint;
use crate::random::Random;

/// Numbers at which formats change their behaviour.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    (1 << 56) - 1,
    i64::MAX as u64,
    u64::MAX,
];

/// An input with one to four changes. Pieces are copied from `other`.
pub fn mutated(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + random.below(4) {
        mutate(&mut bytes, other, random);
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len() as u64 + 1) as usize;
    let end = (at + 1 + random.below(16) as usize).min(bytes.len());
    match random.below(8) {
        0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.draw() as u8),
        2 => drop(bytes.drain(at..end)),
        3 => bytes.insert(at, random.draw() as u8),
        4 => {
            let from = random.below(other.len() as u64 + 1) as usize;
            let piece = other[from..].iter().take(1 + random.below(40) as usize);
            drop(bytes.splice(at..at, piece.copied()));
        }
        5 => {
            let edge = EDGES[random.below(EDGES.len() as u64) as usize].to_le_bytes();
            let width = 1 << random.below(4);
            for (byte, edge) in bytes.iter_mut().skip(at).zip(edge.iter().take(width)) {
                *byte = *edge;
            }
        }
        6 => {
            let edge = EDGES[random.below(EDGES.len() as u64) as usize];
            let mut varint = Vec::new();
            put_varint(&mut varint, edge);
            drop(bytes.splice(at..(at + 1).min(bytes.len()), varint));
        }
        _ => {
            let from = random.below(bytes.len() as u64 + 1) as usize;
            let piece: Vec<u8> = bytes[from..].iter().take(end - at).copied().collect();
            drop(bytes.splice(at..end, piece));
        }
    }
}
