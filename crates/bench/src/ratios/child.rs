//! A process that ends after writes. This program starts itself, and the child aborts or closes.

use atomic_mmap::{AtomicMappedFile, CloseMode, Medium};
use std::io;
use std::path::Path;
use std::process::Command;

/// First argument of the child.
pub const CHILD: &str = "end-after-writing";

/// The way in which the child ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Without any destructor.
    Dies,
    /// With a fast close of the file.
    Closes,
}

impl End {
    const ALL: [(End, &str); 2] = [(End::Dies, "dies"), (End::Closes, "closes")];

    /// Returns the end with this name.
    pub fn by_name(name: &str) -> Option<End> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(end, _)| *end)
    }
}

/// Length of the sparse file.
const LARGE: u64 = 100 << 30;

/// Opens the sparse file of 100 GiB.
///
/// # Errors
/// Returns the error of the crate.
pub fn open_large(path: &Path) -> io::Result<AtomicMappedFile> {
    let options = AtomicMappedFile::options().create(true).len(LARGE).medium(Medium::Dax);
    options.open(path).map_err(io::Error::other)
}

fn place(n: u64) -> u64 {
    // All over the file's first GiB, which takes little storage.
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (1 << 30) / 8 * 8
}

/// Runs the child. Does not return if the child must die.
///
/// # Errors
/// Returns the error of the crate.
pub fn write_and_end(path: &Path, end: End, writes: u64) -> io::Result<()> {
    let file = open_large(path)?;
    for n in 1..=writes {
        file.write_at(&n.to_le_bytes(), place(n)).map_err(io::Error::other)?;
    }
    match end {
        End::Dies => std::process::abort(),
        End::Closes => file.close(CloseMode::Fast).map(drop).map_err(io::Error::other),
    }
}

/// Starts the child and waits for its end.
///
/// # Errors
/// Returns an error if the child ended in another way than `end`.
pub fn end_after_writing(path: &Path, end: End, writes: u64) -> io::Result<()> {
    let me = std::env::current_exe()?;
    let name = End::ALL.iter().find(|(known, _)| *known == end).map_or("", |(_, name)| name);
    let output =
        Command::new(me).arg(CHILD).arg(path).arg(name).arg(writes.to_string()).output()?;
    let as_it_should = match end {
        End::Dies => output.status.code().is_none(),
        End::Closes => output.status.success(),
    };
    if !as_it_should {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("the child ended with {}: {said}", output.status)));
    }
    Ok(())
}

/// Checks that the file holds all writes of the child.
///
/// # Errors
/// Returns an error if a write is missing, or the error of the crate.
pub fn check_what_the_child_wrote(file: &AtomicMappedFile, writes: u64) -> io::Result<()> {
    for n in 1..=writes {
        let found: u64 = file.load(place(n)).map_err(io::Error::other)?;
        // A later write may have gone to this place.
        if found < n || place(found) != place(n) {
            return Err(io::Error::other(format!("write {n} is not there, but {found}")));
        }
    }
    Ok(())
}
