//! Encoded values of a file, with errors that name the file and the group.
//!
//! May import `codec` and `error`.

use crate::codec::{Cell, decode, encode, put, value_in};
use crate::error::{Error, Result};
use atomic_mmap::AtomicMappedFile;
use atomic_mmap::zerocopy::IntoBytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The values of one group.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    pub file: &'a AtomicMappedFile,
    pub group: &'a str,
}

impl Values<'_> {
    fn not_encoded(&self, what: &str) -> impl Fn(postcard::Error) -> Error {
        let (path, group, what) = (self.file.path(), self.group, what);
        move |source| {
            let (path, group, what) = (path.into(), group.to_owned(), what.to_owned());
            Error::Encode { path, group, what, source }
        }
    }

    /// Encodes a value.
    pub fn encoded<T: Serialize + DeserializeOwned>(
        &self,
        what: &str,
        value: &T,
    ) -> Result<Vec<u8>> {
        encode(value).map_err(self.not_encoded(what))
    }

    /// Decodes the bytes of a value.
    pub fn decoded<T: DeserializeOwned>(&self, what: &str, bytes: &[u8]) -> Result<T> {
        decode(bytes).map_err(|source| {
            let (path, group) = (self.file.path().into(), self.group.to_owned());
            Error::Decode { path, group, what: what.to_owned(), source }
        })
    }

    /// Returns a cell with a value or none.
    pub fn cell<T: Serialize + DeserializeOwned>(
        &self,
        what: &str,
        value: Option<&T>,
    ) -> Result<Cell> {
        let mut cell = Cell::none();
        value.map_or(Ok(()), |value| self.put(what, value, cell.as_mut_bytes()))?;
        Ok(cell)
    }

    /// Fills `to` with a value, as a cell of that length has it.
    pub fn put<T: Serialize + DeserializeOwned>(
        &self,
        what: &str,
        value: &T,
        to: &mut [u8],
    ) -> Result<()> {
        put(value, to).map_err(self.not_encoded(what))
    }

    /// Returns the value in the bytes of a cell, or `None` without one.
    pub fn value_in<T: DeserializeOwned>(&self, what: &str, bytes: &[u8]) -> Result<Option<T>> {
        let damaged = |_| {
            let (path, group) = (self.file.path().into(), self.group.to_owned());
            Error::Checksum { path, group, what: what.to_owned() }
        };
        let encoded = value_in(bytes).map_err(damaged)?;
        encoded.map(|encoded| self.decoded(what, encoded)).transpose()
    }
}
