//! Tests owners and visitors with real threads. `model` tests them with a model checker.

use std::sync::Arc;

use super::standing::{Owner, visit};
use crate::sync::cores::heavy_barrier;

/// Two halves that are equal whenever no thread is inside.
fn walk_and_visit(steps: u64, visits: u64) -> (u64, u64) {
    let mut owner = Owner::new((0u64, 0u64));
    let standing = [Arc::clone(owner.standing())];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..visits {
                visit(&standing, |halves| {
                    assert_eq!(halves.0, halves.1, "the owner was outside");
                    halves.0 += 1 << 32;
                    halves.1 += 1 << 32;
                });
            }
        });
        for _ in 0..steps {
            let mut inside = owner.enter();
            inside.0 += 1;
            std::hint::black_box(&mut inside);
            inside.1 += 1;
        }
    });
    let last = owner.look();
    (last.0, last.1)
}

#[test]
fn nothing_of_either_is_lost() {
    let (steps, visits) = if cfg!(miri) { (200, 50) } else { (2_000_000, 2_000) };
    let (first, second) = walk_and_visit(steps, visits);
    assert_eq!((first, first & 0xffff_ffff), (second, steps));
    assert!(first >> 32 <= visits, "each visit shows the state once");
}

#[test]
fn an_owner_who_stands_is_visited_and_told() {
    let mut owner = Owner::new(1);
    assert!(!owner.enter().is_called);
    visit(&[Arc::clone(owner.standing())], |state| *state += 1);
    assert_eq!(*owner.look(), if heavy_barrier() { 2 } else { 1 });
    assert!(owner.enter().is_called);
    assert!(!owner.enter().is_called, "once for each call");
}

#[test]
fn an_owner_inside_is_told_and_not_visited() {
    let mut owner = Owner::new(1);
    let standing = [Arc::clone(owner.standing())];
    let inside = owner.enter();
    visit(&standing, |state| *state += 1);
    assert_eq!(*inside, 1);
    drop(inside);
    assert!(owner.enter().is_called);
}
