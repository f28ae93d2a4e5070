//! Judges whether a key behaved as one register, from what clients saw of it.
//!
//! Every put writes a value of its own. So a get names the put that it saw, and a history can be
//! judged without a search (Gibbons and Korach, *Testing Shared Memories*, 1997):
//!
//! 1. A put without an answer that no get saw is left out: it may never have happened, or may have
//!    happened after everything else. A put that a get saw did happen, and ended at the latest when
//!    the first such get returned.
//! 2. A put and the gets that saw it are a *group*. Each call takes effect at a moment between its
//!    call and its return, and no moment of another group is between the moments of a group.
//! 3. Let `first_return` be the earliest return and `last_call` the latest call of a group. If
//!    `first_return < last_call`, the value was there during all of that span: such *fixed* spans
//!    must not overlap. Otherwise the whole group can happen at one moment, anywhere from
//!    `last_call` to `first_return`. This is impossible only if one fixed span covers that whole
//!    interval.
//! 4. No get returned before its put was called.
//!
//! The initial absence of the key is a put before all others.

use std::collections::BTreeMap;

/// A call that a client made for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was written, or what was seen; `None` is the absence of the key.
    pub value: Option<String>,
    pub is_put: bool,
    pub called: u64,
    /// `None` if nobody knows whether the put was made.
    pub returned: Option<u64>,
}

/// A put and the gets that saw it.
#[derive(Clone, Debug)]
struct Group {
    put_called: Option<u64>,
    is_known: bool,
    is_seen: bool,
    first_return: u64,
    last_call: u64,
}

/// Reports answers that no register could have given.
pub fn judge(calls: &[Call]) -> Result<(), String> {
    let new = Group {
        put_called: None,
        is_known: false,
        is_seen: false,
        first_return: u64::MAX,
        last_call: 0,
    };
    let absent = Group { put_called: Some(0), is_known: true, first_return: 0, ..new.clone() };
    let mut groups: BTreeMap<Option<&str>, Group> = BTreeMap::from([(None, absent)]);
    for call in calls {
        let group = groups.entry(call.value.as_deref()).or_insert_with(|| new.clone());
        group.first_return = group.first_return.min(call.returned.unwrap_or(u64::MAX));
        group.last_call = group.last_call.max(call.called);
        group.is_seen |= !call.is_put;
        if call.is_put {
            if group.put_called.replace(call.called).is_some() {
                return Err(format!("{:?} was put twice: it cannot be judged", call.value));
            }
            group.is_known |= call.returned.is_some();
        }
    }
    for call in calls.iter().filter(|call| !call.is_put) {
        let put = groups[&call.value.as_deref()].put_called;
        let put = put.ok_or(format!("{:?} was read, and nobody wrote it", call.value))?;
        if call.returned.is_some_and(|returned| returned < put) {
            return Err(format!("{:?} was read before it was written", call.value));
        }
    }
    groups.retain(|_, group| group.is_known || group.is_seen);
    let (mut fixed, free): (Vec<_>, Vec<_>) =
        groups.iter().partition(|(_, group)| group.first_return < group.last_call);
    fixed.sort_by_key(|(_, group)| group.first_return);
    for pair in fixed.windows(2) {
        if pair[1].1.first_return <= pair[0].1.last_call {
            return Err(format!("two values at a time: {pair:?}"));
        }
    }
    for (value, group) in free {
        let covers = |one: &&(&Option<&str>, &Group)| {
            one.1.first_return < group.last_call && group.first_return < one.1.last_call
        };
        if let Some(around) = fixed.iter().find(covers) {
            return Err(format!("{value:?} has no moment: {group:?} inside {around:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(value: &str, called: u64, returned: u64) -> Call {
        let value = Some(value.to_string());
        Call { value, is_put: true, called, returned: Some(returned) }
    }

    fn get(value: &str, called: u64, returned: u64) -> Call {
        Call { is_put: false, ..put(value, called, returned) }
    }

    fn none(called: u64, returned: u64) -> Call {
        Call { value: None, is_put: false, called, returned: Some(returned) }
    }

    fn unknown(value: &str, called: u64) -> Call {
        Call { returned: None, ..put(value, called, 0) }
    }

    /// Tries every order: this is slow, but obviously right.
    fn search(left: &[Call], value: &Option<String>) -> bool {
        let earliest = left.iter().filter_map(|call| call.returned).min();
        if left.iter().all(|call| call.returned.is_none()) {
            return true;
        }
        (0..left.len()).any(|at| {
            let call = &left[at];
            if earliest.is_some_and(|earliest| call.called > earliest) {
                return false;
            }
            let mut rest = left.to_vec();
            rest.remove(at);
            match call.is_put {
                true => search(&rest, &call.value),
                false => call.value == *value && search(&rest, value),
            }
        })
    }

    #[test]
    fn what_a_register_does_is_accepted_and_the_rest_is_not() {
        let (a, b) = (put("a", 1, 2), put("b", 3, 6));
        let accepted = |calls: &[Call]| judge(calls).is_ok();
        assert!(accepted(&[a.clone(), b.clone(), get("a", 4, 8), get("b", 5, 9)]));
        assert!(!accepted(&[a.clone(), b.clone(), get("a", 7, 8)]), "an old value");
        assert!(!accepted(&[a.clone(), none(3, 4)]), "a lost value");
        assert!(!accepted(&[get("a", 1, 2), put("a", 3, 4)]), "of the future");
        assert!(!accepted(&[get("c", 1, 2)]), "of nobody");
        // A put without an answer may be seen late, or never, but not seen and then lost.
        assert!(accepted(&[a.clone(), unknown("u", 3), get("a", 10, 11), get("u", 20, 21)]));
        assert!(accepted(&[a.clone(), unknown("u", 3), get("a", 10, 11)]));
        assert!(!accepted(&[a, unknown("u", 3), get("u", 10, 11), get("a", 20, 21)]));
    }

    /// Compares the judgements of random histories of few calls with the search.
    #[test]
    fn judgements_are_those_of_a_search_through_all_orders() {
        let mut random = runstone_random::Random::new(7);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let count = 2 + random.below(5);
            let mut moments: Vec<u64> = (1..=2 * count).collect();
            random.shuffle(&mut moments);
            let mut calls = Vec::new();
            for at in 0..count as usize {
                let pair = [moments[2 * at], moments[2 * at + 1]];
                let (called, returned) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
                let name = random.below(count).to_string();
                let is_new = !calls
                    .iter()
                    .any(|call: &Call| call.is_put && call.value.as_ref() == Some(&name));
                calls.push(match random.below(5) {
                    0 if is_new => unknown(&name, called),
                    1 | 2 if is_new => put(&name, called, returned),
                    3 => none(called, returned),
                    _ => get(&name, called, returned),
                });
            }
            let expected = search(&calls, &None);
            assert_eq!(judge(&calls).is_ok(), expected, "{calls:#?}");
            *if expected { &mut good } else { &mut bad } += 1;
        }
        assert!(good > 500 && bad > 500, "{good} accepted, {bad} not");
    }
}
