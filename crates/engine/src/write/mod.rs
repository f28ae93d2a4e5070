//! The write path: the commit pipeline and back-pressure.

pub(crate) mod commit;
pub(crate) mod pressure;
