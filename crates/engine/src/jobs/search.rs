//! What the search for a job knows of readers and of the time.

use std::cell::OnceCell;

use crate::env::Env;
use crate::jobs::liveness::Past;
use crate::keys::SeqNo;
use crate::visibility::snapshot::{Readers, Visibility};

/// A search for the next job, which may look at very many keyspaces. The readers and the time are
/// taken once for all of them, and only if some keyspace needs them, because a list of the readers
/// takes O(snapshots). Decisions made with them stay right although readers begin and end
/// meanwhile: new readers see the present or a later state, and readers that end only allow more to
/// be dropped.
pub(super) struct Search<'a> {
    env: &'a Env,
    visibility: &'a Visibility,
    readers: OnceCell<Readers>,
    past: OnceCell<Past>,
}

impl<'a> Search<'a> {
    pub(super) fn new(env: &'a Env, visibility: &'a Visibility) -> Search<'a> {
        Search { env, visibility, readers: OnceCell::new(), past: OnceCell::new() }
    }

    /// The readers.
    pub(super) fn readers(&self) -> &Readers {
        self.readers.get_or_init(|| self.visibility.readers())
    }

    /// The sequence numbers at which the readers read, ascending.
    pub(super) fn points(&self) -> &[SeqNo] {
        &self.readers().points
    }

    /// Decides which expired entries nobody sees.
    pub(super) fn past(&self) -> Past {
        *self.past.get_or_init(|| Past::now(self.env, self.visibility))
    }
}
