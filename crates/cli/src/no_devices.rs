//! Stands in for `devices` where the feature is off: no URL names a device.

use std::path::PathBuf;
use std::sync::Arc;

use runstone::storage::Storage;

use crate::failure::{Failure, Result};
use crate::opened::{Figures, Opened};

/// No device can be named, so this has no value.
#[derive(Debug)]
pub enum Url {}

impl Url {
    /// Refuses URLs of devices, because nobody would expect a directory of that name.
    pub fn parse(text: &str) -> Result<Option<Url>> {
        match text.split_once(':') {
            Some((scheme @ ("kvssd" | "blockssd"), _)) => {
                let hint = "build it with the feature devices, or name a directory ./NAME";
                Err(Failure::usage(format!("this runstone opens no {scheme}: devices"), hint))
            }
            _ => Ok(None),
        }
    }

    pub fn is_store(&self) -> bool {
        match *self {}
    }

    pub fn check(&self, _keyspace: &str, _has_engine_options: bool) -> Result<()> {
        match *self {}
    }

    pub fn open(&self, _may_make: bool) -> runstone_kv::Result<Box<dyn Opened>> {
        match *self {}
    }

    pub fn storage(&self, _may_make: bool) -> runstone_kv::Result<Arc<dyn Storage>> {
        match *self {}
    }

    pub fn flash(&self, _user_bytes: u64) -> Option<Figures> {
        match *self {}
    }

    pub fn exists(&self) -> bool {
        match *self {}
    }

    pub fn forget_import(&self) -> Result<()> {
        match *self {}
    }

    pub fn places(&self) -> Vec<PathBuf> {
        match *self {}
    }
}

/// Schemes of devices, and the options in their URLs.
pub fn options() -> [(&'static str, Vec<(&'static str, &'static str)>); 0] {
    []
}
