//! Extended attributes.
//!
//! Owns: the calls for them, for file systems with and without extended attributes.
//!
//! Invariants: those of `calls`.
//!
//! May import: `gate`, `sys`, the recorder.

use super::gate::{attempt, is_unsupported, none_if};
use crate::platform::os::{File, sys};
#[cfg(feature = "recorder")]
use crate::platform::recorder::What;
use crate::platform::{Platform, call};
use std::io::{self, ErrorKind};

impl Platform {
    /// Returns an extended attribute's value, or `None` if it is not set or the file system does
    /// not support extended attributes.
    pub fn get_xattr(&self, file: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.look_for_xattr(file, name)?.flatten())
    }

    /// Returns `true` if the file system supports extended attributes of this name.
    pub fn keeps_xattrs(&self, file: &File, name: &str) -> io::Result<bool> {
        Ok(self.look_for_xattr(file, name)?.is_some())
    }

    /// Returns the attribute's value, if it is set, or `None` if the file system does not support
    /// extended attributes.
    fn look_for_xattr(&self, file: &File, name: &str) -> io::Result<Option<Option<Vec<u8>>>> {
        let value = attempt!(
            self,
            call::GET_XATTR,
            |_| sys::get_xattr(file.system(), name),
            [simulated => simulated.machine.get_xattr(file.number(), name)]
        );
        none_if(is_unsupported, value)
    }

    /// Sets an extended attribute. Returns `false` if the file system does not support them.
    pub fn set_xattr(&self, file: &File, name: &str, value: &[u8]) -> io::Result<bool> {
        let set = attempt!(
            self,
            call::SET_XATTR,
            |_| sys::set_xattr(file.system(), name, value),
            [simulated => simulated.machine.set_xattr(file.number(), name, value)]
        );
        Ok(none_if(is_unsupported, set)?.is_some())
    }

    /// Sets the time of the last change to now. Passes no gate, since nothing relies on it: stores
    /// to a mapping move that time late, and on tmpfs never.
    pub fn touch(&self, file: &File) {
        match file {
            File::System(_) => sys::touch(file.system()),
            #[cfg(feature = "recorder")]
            File::Simulated(_) => {}
        }
    }

    /// Removes an extended attribute, if it is set.
    pub fn remove_xattr(&self, file: &File, name: &str) -> io::Result<()> {
        let removed = attempt!(
            self,
            call::REMOVE_XATTR,
            |_| sys::remove_xattr(file.system(), name),
            [simulated => simulated.machine.remove_xattr(file.number(), name)]
        );
        none_if(is_unsupported, removed).map(drop)
    }
}
