//! Extended attributes.
//!
//! Owns: the calls for them, for file systems with and without extended attributes.
//!
//! Invariants: those of `calls`.
//!
//! May import: `gate`, `sys`, the recorder.

use super::gate::{attempt, if_supported};
use crate::platform::os::{File, sys};
#[cfg(feature = "recorder")]
use crate::platform::recorder::What;
use crate::platform::{Platform, call};
use std::io::{self, ErrorKind};

impl Platform {
    /// Returns an extended attribute's value, or `None` if it is not set or the file system does
    /// not support extended attributes.
    pub fn get_xattr(&self, file: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
        let value = attempt!(
            self,
            call::GET_XATTR,
            |_| sys::get_xattr(file.system(), name),
            [simulated => simulated.machine.get_xattr(file.number(), name)]
        );
        Ok(if_supported(value)?.flatten())
    }

    /// Returns `true` if the file system supports extended attributes of this name.
    pub fn keeps_xattrs(&self, file: &File, name: &str) -> io::Result<bool> {
        let value = attempt!(
            self,
            call::GET_XATTR,
            |_| sys::get_xattr(file.system(), name),
            [simulated => simulated.machine.get_xattr(file.number(), name)]
        );
        Ok(if_supported(value)?.is_some())
    }

    /// Sets an extended attribute. Returns `false` if the file system does not support them.
    pub fn set_xattr(&self, file: &File, name: &str, value: &[u8]) -> io::Result<bool> {
        let set = attempt!(
            self,
            call::SET_XATTR,
            |_| sys::set_xattr(file.system(), name, value),
            [simulated => simulated.machine.set_xattr(file.number(), name, value)]
        );
        Ok(if_supported(set)?.is_some())
    }

    /// Removes an extended attribute, if it is set.
    pub fn remove_xattr(&self, file: &File, name: &str) -> io::Result<()> {
        let removed = attempt!(
            self,
            call::REMOVE_XATTR,
            |_| sys::remove_xattr(file.system(), name),
            [simulated => simulated.machine.remove_xattr(file.number(), name)]
        );
        if_supported(removed).map(drop)
    }
}
