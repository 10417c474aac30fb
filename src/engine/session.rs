//! How are the pair's superblock and names written? Shared by opening and closing.

use crate::error::{Error, Result};
use crate::format::layout;
use crate::format::superblock::{ClosedAs, Identity, Moment, Superblock};
use crate::mutant::planted;
use crate::platform::{FileId, FileStat, Platform};
use crate::store::MappedFile;
use std::path::Path;

/// Writes a superblock over the older of the two copies.
pub(crate) fn write_superblock(
    platform: &Platform,
    reflection: &MappedFile,
    superblock: &Superblock,
) -> Result<()> {
    let newer = if planted!(SuperblockOverNewer) { 1 } else { 0 };
    let at = layout::SUPERBLOCKS[superblock.copy_index() ^ newer];
    platform
        .write_at(reflection.file(), FileId::Reflection, &superblock.encode(), at)
        .map_err(|e| Error::io_at("write the superblock", reflection.path(), at, e))
}

/// A file system's time as the format keeps it.
pub(crate) fn moment((seconds, nanos): (i64, u32)) -> Moment {
    Moment { seconds, nanos }
}

/// What a closed pair remembers of its home file.
pub(crate) fn closed_as(home: &FileStat) -> ClosedAs {
    ClosedAs { len: home.len, mtime: moment(home.mtime), ctime: moment(home.ctime) }
}

/// What a file is known by.
pub(crate) fn identity_of(stat: &FileStat) -> Identity {
    Identity { device: stat.dev, inode: stat.ino, born: stat.btime.map(moment) }
}

/// The folder that holds `path`.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
