//! Options of a store: TOML, and the caller's functions.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use runstone::{CompactionFilter, EventListener, MergeOperator, Options, Resources};
use runstone_boundary::Failure;
use runstone_boundary::options::{check_sharing, of_resources, of_store};
use runstone_boundary::stores::OpenStore;

use runstone_boundary::alone::Alone;
use runstone_boundary::handle;
use runstone_boundary::pointers::Kept;

use crate::Result;
use crate::bytes::{Place, optional_text, text};
use crate::callbacks::{
    Context, EventCallback, FilterCallback, MergeCallback, runstone_end, runstone_filter,
    runstone_listener, runstone_merger,
};
use crate::handles::{runstone_options, runstone_resources};
use crate::status::{answer, runstone_status};

handle!(inherited 8 "options" runstone_options: Alone<OpenOptions>);

handle!(9 "resources" runstone_resources: Resources);

/// Options that are given at each open.
#[derive(Debug)]
pub struct OpenOptions {
    options: Options,
    toml: String,
    resources: Option<Resources>,
}

impl OpenOptions {
    pub(crate) fn open(&self, path: &str) -> runstone::Result<OpenStore> {
        match &self.resources {
            Some(resources) => OpenStore::open_sharing(resources, path, self.options.clone()),
            None => OpenStore::open(path, self.options.clone()),
        }
    }

    /// The options that a repair uses.
    pub(crate) fn to_repair(&self) -> Options {
        self.options.clone()
    }

    /// Follows a store with these options.
    pub(crate) fn follow(&self, path: &str) -> runstone::Result<OpenStore> {
        match &self.resources {
            Some(resources) => OpenStore::follow_sharing(resources, path, self.options.clone()),
            None => OpenStore::follow(path, self.options.clone()),
        }
    }

    /// The options for a call that cannot share resources; an error if there are resources.
    pub(crate) fn without_resources(&self, what: &str) -> Result<Options> {
        match &self.resources {
            Some(_) => Err(Failure::invalid(format!(
                "{what} without shared resources; give it options of its own"
            ))),
            None => Ok(self.options.clone()),
        }
    }
}

/// Makes resources that many stores of the process share: one memory budget, threads, open files,
/// and a write rate for background work. `toml` has `memory_budget_bytes`, `background_threads`,
/// `max_open_files` and `background_bytes_per_second`; null or empty gives the defaults of a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_resources_create(
    toml: *const c_char,
    resources: *mut *mut runstone_resources,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings and a valid place.
        let (toml, place) =
            unsafe { (optional_text("toml", toml)?, Place::new("resources", resources)?) };
        place.keep(of_resources(toml.unwrap_or_default())?)
    })
}

/// Closes resources. They exist until no store and no options use them any more. Null is not an
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_resources_close(resources: *mut runstone_resources) -> runstone_status {
    answer(|| runstone_resources::close(resources))
}

/// Makes stores that are opened or followed with these options share `resources`, which set the
/// memory budget, the threads and the open files. Options whose TOML names one of the three are
/// refused.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_options_set_resources(
    options: *mut runstone_options,
    resources: *const runstone_resources,
) -> runstone_status {
    answer(|| {
        let resources = Resources::clone(&*runstone_resources::get(resources)?);
        let options = runstone_options::get(options)?;
        let mut options = options.lock()?;
        check_sharing(&options.toml)?;
        let before = options.resources.replace(resources);
        // This may end the threads of the resources.
        drop(options);
        drop(before);
        Ok(())
    })
}

/// Reads options from TOML; null or empty gives the defaults. The first part has the options of the
/// store, such as `memory_budget_bytes = "1G"`. The options of the default keyspace follow below
/// `[keyspace]`, as `runstone help options` lists them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_options_create(
    toml: *const c_char,
    options: *mut *mut runstone_options,
) -> runstone_status {
    answer(|| {
        // SAFETY: the caller promises valid strings and a valid place.
        let (toml, place) =
            unsafe { (optional_text("toml", toml)?, Place::new("options", options)?) };
        let toml = toml.unwrap_or_default();
        let (options, toml) = (of_store(toml)?, toml.to_string());
        place.keep(Alone::new(OpenOptions { options, toml, resources: None }))
    })
}

/// Closes options; stores that were opened with them stay open. Null is not an error.
#[unsafe(no_mangle)]
pub extern "C" fn runstone_options_close(options: *mut runstone_options) -> runstone_status {
    answer(|| runstone_options::close(options))
}

/// Registers a merge operator, which keyspaces name in `merge_operator`. An operator that behaves
/// differently needs another name, because stores keep the name. `end` may be null. It is called
/// with `context` when nothing needs the operator any more, even if this function fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_options_add_merge_operator(
    options: *mut runstone_options,
    name: *const c_char,
    merge: runstone_merger,
    context: *mut c_void,
    end: runstone_end,
) -> runstone_status {
    let context = Context::new(context, end);
    answer(|| {
        // SAFETY: the caller promises valid strings.
        let name = unsafe { text("name", name) }?.to_string();
        let call = merge.ok_or_else(|| Failure::invalid("merge is null"))?;
        let operator: Arc<dyn MergeOperator> = Arc::new(MergeCallback { name, call, context });
        let options = runstone_options::get(options)?;
        options.lock()?.options.merge_operators.push(operator);
        Ok(())
    })
}

/// Registers a compaction filter, which keyspaces name in `compaction_filter`. Several threads may
/// call it. `end` is as for a merge operator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_options_add_compaction_filter(
    options: *mut runstone_options,
    name: *const c_char,
    filter: runstone_filter,
    context: *mut c_void,
    end: runstone_end,
) -> runstone_status {
    let context = Context::new(context, end);
    answer(|| {
        // SAFETY: the caller promises valid strings.
        let name = unsafe { text("name", name) }?.to_string();
        let call = filter.ok_or_else(|| Failure::invalid("filter is null"))?;
        let filter: Arc<dyn CompactionFilter> = Arc::new(FilterCallback { name, call, context });
        let options = runstone_options::get(options)?;
        options.lock()?.options.compaction_filters.push(filter);
        Ok(())
    })
}

/// Sets the listener that receives events, in place of an earlier one. With a null listener, events
/// are dropped. `end` is as for a merge operator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn runstone_options_set_listener(
    options: *mut runstone_options,
    listener: runstone_listener,
    context: *mut c_void,
    end: runstone_end,
) -> runstone_status {
    let context = Context::new(context, end);
    answer(|| {
        let listener = listener
            .map(|call| -> Arc<dyn EventListener> { Arc::new(EventCallback { call, context }) });
        // The `end` function of the earlier listener may call this library.
        let before = {
            let options = runstone_options::get(options)?;
            let mut options = options.lock()?;
            std::mem::replace(&mut options.options.listener, listener)
        };
        drop(before);
        Ok(())
    })
}
