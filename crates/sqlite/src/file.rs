//! SQLite's questions to an open file, in safe terms.
//!
//! `ffi::methods` translates the calls. May import `failure`, `locks` and `main_file`.

use crate::failure::Result;
use crate::locks::Level;
use crate::main_file::MainFile;

/// An open file: a database, or a journal in memory.
pub(crate) trait File {
    /// Fills `to` with the bytes from `offset` on, as far as there are any, and returns their
    /// number. The rest of `to` is zero already.
    fn read(&mut self, to: &mut [u8], offset: u64) -> Result<usize>;

    /// Writes all of `bytes`, and makes the file longer if it must be.
    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Makes the file `len` bytes long.
    fn truncate(&mut self, len: u64) -> Result<()>;

    /// Returns the length in bytes.
    fn len(&mut self) -> Result<u64>;

    /// Makes what was written durable.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn lock(&mut self, _wanted: Level) -> Result<()> {
        Ok(())
    }

    fn unlock(&mut self, _wanted: Level) {}

    /// Returns `true` if a connection of any process holds `Reserved` or more.
    fn is_reserved(&mut self) -> bool {
        false
    }

    /// Closes the file. Returns a message if the user should know of more than that.
    fn close(self) -> Result<Option<String>>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Returns the database, which has file controls and can be fetched from.
    fn main(&mut self) -> Option<&mut MainFile> {
        None
    }
}
