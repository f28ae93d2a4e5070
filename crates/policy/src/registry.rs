//! The list of compaction policies, the only place that names them all. Options, help, docs tables,
//! the benchmark sweep and the property tests read it. A new policy needs one line here.

use std::sync::{PoisonError, RwLock};

use crate::policies::{
    adaptive_tiering, bigtable, binomial, constant, fluid, fragmented_leveling, garnering, guards,
    lazy_leveling, leveling, min_latency, tiering, universal,
};
use crate::policy::CompactionPolicy;

/// Every policy that is built in, in the order of help and docs tables.
pub static POLICIES: &[&dyn CompactionPolicy] = &[
    &fragmented_leveling::FRAGMENTED_LEVELING,
    &leveling::LEVELING,
    &tiering::TIERING,
    &lazy_leveling::LAZY_LEVELING,
    &fluid::FLUID,
    &garnering::GARNERING,
    &adaptive_tiering::AdaptiveTiering,
    &guards::Guards,
    &bigtable::BIGTABLE,
    &constant::CONSTANT,
    &universal::UNIVERSAL,
    &binomial::BINOMIAL,
    &min_latency::MIN_LATENCY,
];

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no compaction policy is named {name:?}{}; there are: {}",
    suggest(nearest),
    all.join(", ")
)]
#[non_exhaustive]
pub struct UnknownPolicy {
    /// The name that was requested.
    pub name: String,
    /// Names that are close to it, closest first; often empty.
    pub nearest: Vec<&'static str>,
    /// All names, in registry order.
    pub all: Vec<&'static str>,
}

/// Policies that programs registered.
static REGISTERED: RwLock<Vec<&'static dyn CompactionPolicy>> = RwLock::new(Vec::new());

/// A policy of this name exists already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a compaction policy named {0:?} is there already: choose another name")]
#[non_exhaustive]
pub struct NameTaken(pub String);

/// Adds a policy of the program to those that keyspaces may name, for the life of the process.
/// Register it before you open a store that uses it: a store whose policy is unknown does not open.
///
/// ```
/// use runstone_policy::options::PolicyOptions;
/// use runstone_policy::plan::Plan;
/// use runstone_policy::policy::{CompactionPolicy, Job, LevelTarget};
/// use runstone_policy::registry;
/// use runstone_policy::shape::Shape;
///
/// /// Tiering by day and leveling by night.
/// struct DayAndNight;
///
/// impl DayAndNight {
///     fn now(&self) -> &'static dyn CompactionPolicy {
///         let is_night = false;
///         registry::find(if is_night { "leveling" } else { "tiering" }).expect("built in")
///     }
/// }
///
/// impl CompactionPolicy for DayAndNight {
///     fn name(&self) -> &'static str {
///         "day-and-night"
///     }
///
///     fn doc(&self) -> &'static str {
///         "tiering by day, leveling by night"
///     }
///
///     fn targets(&self, shape: &Shape, options: &PolicyOptions) -> Vec<LevelTarget> {
///         self.now().targets(shape, options)
///     }
///
///     fn decide(&self, job: &Job<'_>) -> Option<Plan> {
///         self.now().decide(job)
///     }
/// }
///
/// registry::register(&DayAndNight).expect("the name is free");
/// assert_eq!(registry::find("day-and-night").expect("it is there").name(), "day-and-night");
/// assert!(registry::register(&DayAndNight).is_err());
/// ```
pub fn register(policy: &'static dyn CompactionPolicy) -> Result<(), NameTaken> {
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    if POLICIES.iter().chain(&*registered).any(|other| other.name() == policy.name()) {
        return Err(NameTaken(policy.name().to_owned()));
    }
    registered.push(policy);
    Ok(())
}

/// The policy of that name, including registered ones.
pub fn find(name: &str) -> Result<&'static dyn CompactionPolicy, UnknownPolicy> {
    let own = POLICIES.iter().find(|policy| policy.name() == name);
    if let Some(policy) = own {
        return Ok(*policy);
    }
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(policy) = registered.iter().find(|policy| policy.name() == name) {
        return Ok(*policy);
    }
    let all = POLICIES.iter().chain(&*registered).map(|policy| policy.name());
    let all: Vec<&'static str> = all.collect();
    Err(UnknownPolicy { name: name.to_owned(), nearest: nearest(name, &all), all })
}

/// The names that somebody may have meant, closest first; often none.
pub fn nearest<'a>(name: &str, all: &[&'a str]) -> Vec<&'a str> {
    // A third of the letters wrong is still a typing error; more is another word.
    let allowed = (name.chars().count() / 3).max(2);
    let mut nearest: Vec<(usize, &str)> = all
        .iter()
        .map(|known| (edit_distance(name, known), *known))
        .filter(|(distance, known)| *distance <= allowed || is_part_of(name, known))
        .collect();
    nearest.sort_unstable();
    nearest.into_iter().map(|(_, known)| known).collect()
}

/// Whether a name is a part of a known one, as `fragmented` is of `fragmented-leveling`. Needs at
/// least three letters, because shorter names would match almost everything.
fn is_part_of(name: &str, known: &str) -> bool {
    name.len() >= 3 && known.contains(name)
}

/// ` (did you mean ..?)`, or nothing.
pub fn suggest(nearest: &[&str]) -> String {
    match nearest {
        [] => String::new(),
        names => format!(" (did you mean {}?)", names.join(" or ")),
    }
}

/// Levenshtein distance in characters. O(|a| |b|) time, O(|b|) memory.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replace = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for policy in POLICIES {
            assert_eq!(find(policy.name()).unwrap().name(), policy.name());
            assert_eq!(POLICIES.iter().filter(|p| p.name() == policy.name()).count(), 1);
            assert!(!policy.doc().contains('\n') && !policy.doc().is_empty());
        }
    }

    #[test]
    fn an_unknown_name_says_what_is_near() {
        let error = find("levelling").err().unwrap();
        assert_eq!(error.nearest, ["leveling"]);
        assert!(error.to_string().contains("did you mean leveling?"), "{error}");
        assert!(find("zzz").err().unwrap().nearest.is_empty());
        assert_eq!(find("fragmented").err().unwrap().nearest, ["fragmented-leveling"]);
    }

    #[test]
    fn distances() {
        for (a, b, distance) in [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3)] {
            assert_eq!(edit_distance(a, b), distance);
        }
    }
}
