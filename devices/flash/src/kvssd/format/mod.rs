//! Pages as bytes: keys, records, pages of keys and values, metadata pages. They know nothing of
//! flash.

pub(super) mod draft;
pub(super) mod key;
pub(super) mod kv_page;
pub(super) mod meta_page;
pub(super) mod page_filter;
pub(super) mod record;
