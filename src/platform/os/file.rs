//! An open file.
//!
//! Owns: [`File`], a file of the operating system or, for tests, of a simulated machine.
//!
//! May import: std, and the simulated machine.

#[cfg(feature = "recorder")]
use crate::platform::machine::FileNumber;
use std::io;

/// An open file. Closed when dropped.
#[derive(Debug)]
pub enum File {
    /// A file of the operating system.
    System(std::fs::File),
    /// A file of a simulated machine, which does not count its open handles.
    #[cfg(feature = "recorder")]
    Simulated(FileNumber),
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File::System(file)
    }
}

impl File {
    /// Returns a second handle of this open file.
    pub fn try_clone(&self) -> io::Result<File> {
        match self {
            File::System(file) => file.try_clone().map(File::System),
            #[cfg(feature = "recorder")]
            File::Simulated(number) => Ok(File::Simulated(*number)),
        }
    }

    /// Returns the operating system's file.
    ///
    /// # Panics
    /// If the file is one of a simulated machine: a mix-up of platforms, a bug of this crate.
    pub(super) fn system(&self) -> &std::fs::File {
        match self {
            File::System(file) => file,
            #[cfg(feature = "recorder")]
            File::Simulated(_) => panic!("a simulated file was handed to the real machine"),
        }
    }

    /// Returns the number of a simulated machine's file.
    ///
    /// # Panics
    /// If the file is one of the operating system: a mix-up of platforms, a bug of this crate.
    #[cfg(feature = "recorder")]
    pub(super) fn number(&self) -> FileNumber {
        match self {
            File::Simulated(number) => *number,
            File::System(_) => panic!("a real file was handed to a simulated machine"),
        }
    }
}
