//! Writes superblocks and state words, identifies files and removes names.
//!
//! May import what lies below `pair`.

use crate::checksum;
use crate::error::{Error, Result};
use crate::format::superblock::{Cache, ClosedAs, Identity, Moment, Superblock};
use crate::format::{layout, state_word};
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::platform::{CacheIdentity, Copying, File, FileId, FileStat, Name, Platform};
use crate::units::PAGE;
use std::io;
use std::path::Path;

/// How a superblock is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A later sync of the file makes it durable.
    Cached,
    /// The call waits until it is durable.
    Durably,
    /// Through the mapping, which makes it durable without a call: only on persistent memory, where
    /// no durable points are kept.
    Mapped,
}

/// Writes a superblock over the older of the two copies.
pub(crate) fn write_superblock(
    platform: &Platform,
    reflection: &MappedFile,
    superblock: &Superblock,
    how: How,
) -> Result<()> {
    let newer = if planted!(SuperblockOverNewer) { 1 } else { 0 };
    let at = layout::SUPERBLOCKS[superblock.copy_index() ^ newer];
    let (file, id, bytes) = (reflection.file(), FileId::Reflection, superblock.encode());
    let written = match how {
        How::Cached => platform.write_at(file, id, &bytes, at),
        How::Durably => platform.write_durably(file, id, &bytes, at),
        How::Mapped => {
            reflection.copy_in(at, &bytes, Copying::BySize);
            // Orders the superblock before everything that relies on it.
            unless!(SuperblockNotDrained, platform.drain());
            Ok(())
        }
    };
    written.map_err(|e| Error::io_at("write the superblock", reflection.path(), at, e))
}

/// Says that everything is durable that an unsettled superblock says. The word becomes durable
/// later, and nothing waits for it.
pub(crate) fn settle(reflection: &MappedFile, superblock: &Superblock) {
    reflection.store_word_through(layout::SETTLED_WORD, superblock.session);
}

/// Stores a length to its word at this offset: to the length word or to the high-water word. Starts
/// its write-back, without waiting.
pub(crate) fn store_length(reflection: &MappedFile, at: u64, len: u64) {
    reflection.store_word_through(at, state_word::encode(at, len));
}

/// Says that a session was begun. Its superblock is durable. The word becomes durable later, and
/// nothing waits for it.
pub(crate) fn store_begun(reflection: &MappedFile, session: u64) {
    let at = layout::BEGUN_WORD;
    reflection.store_word_through(at, state_word::encode(at, session));
}

/// Converts a file system's time to the type of the format.
pub(crate) fn moment((seconds, nanos): (i64, u32)) -> Moment {
    Moment { seconds, nanos }
}

/// Returns what a closed pair records about its home file.
pub(crate) fn closed_as(platform: &Platform, home: &MappedFile) -> Result<ClosedAs> {
    let io = |call| move |e| Error::io(call, home.path(), e);
    let stat = platform.stat(home.file()).map_err(io("look up"))?;
    let sum = sample(platform, (home.file(), home.path()), stat.len)?;
    let (mtime, ctime) = (moment(stat.mtime), moment(stat.ctime));
    Ok(ClosedAs { len: stat.len, mtime, ctime, sum: Some(sum) })
}

/// The length up to which the checksum covers a home file as a whole.
const SUMMED: u64 = 1 << 20;

/// Number of pages that the checksum covers in a longer file. They are few, since they may have to
/// be read from a disk.
const SAMPLES: u64 = 32;

/// Returns a checksum that distinguishes most states of a home file. It covers all of a short file.
/// In a longer file it covers pages at equal distances, including the first and the last.
pub(crate) fn sample(platform: &Platform, home: (&File, &Path), len: u64) -> Result<u32> {
    let mut sum = checksum::crc32c(&len.to_le_bytes());
    let is_short = len <= SUMMED;
    let mut bytes = vec![0; if is_short { len as usize } else { PAGE }];
    let last = len.saturating_sub(1) / PAGE as u64;
    for n in 0..if is_short { 1 } else { SAMPLES } {
        let at = last * n / (SAMPLES - 1) * PAGE as u64;
        let there = bytes.len().min((len - at) as usize);
        platform
            .read_at(home.0, FileId::Home, &mut bytes[..there], at)
            .map_err(|e| Error::io_at("read", home.1, at, e))?;
        sum = checksum::crc32c_append(sum, &bytes[..there]);
    }
    Ok(sum)
}

/// Returns the identity of a file: device, inode and birth.
pub(crate) fn identity_of(stat: &FileStat) -> Identity {
    Identity { device: stat.dev, inode: stat.ino, born: stat.btime.map(moment) }
}

/// Returns the identity of the page cache that held the stores of the superblock's session.
pub(crate) fn cache_of(superblock: &Superblock) -> CacheIdentity {
    let Cache { volume, uptime, started, devices_born } = superblock.cache;
    CacheIdentity { boot_id: superblock.boot_id, volume, uptime, started, devices_born }
}

/// Converts the identity of a page cache to the type of the format, without the boot's identity.
pub(crate) fn cache_parts(identity: &CacheIdentity) -> Cache {
    let CacheIdentity { volume, uptime, started, devices_born, .. } = *identity;
    Cache { volume, uptime, started, devices_born }
}

/// Removes a name if it still belongs to the open file. Returns `false` if the name is gone, or
/// belongs to another file by now, which stays.
pub(crate) fn remove_own(platform: &Platform, name: &Name, file: &File) -> io::Result<bool> {
    remove_if_is(platform, name, &platform.stat(file)?)
}

/// Removes a name if it still belongs to the file that `ours` describes. Returns `false` otherwise.
pub(crate) fn remove_if_is(platform: &Platform, name: &Name, ours: &FileStat) -> io::Result<bool> {
    let is_ours = match platform.identity_at(name)? {
        Some(there) => there == (ours.dev, ours.ino),
        None => return Ok(false),
    };
    if is_ours || planted!(RemovedByName) {
        platform.remove(name)?;
    }
    Ok(is_ours)
}

/// Suffix of a companion's name while the file is being made.
pub(crate) const UNFINISHED: &str = "new";

/// The kinds of companions that lie beside a reflection file, and take their names from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The journal of durable points.
    Journal,
    /// The store of snapshots.
    Snapshots,
}

impl Kind {
    /// All kinds, in the order in which they are removed. The reflection file goes after them,
    /// since opening finds them by it. Their own order has no meaning: nothing counts any more.
    pub const ALL: [Kind; 2] = [Kind::Journal, Kind::Snapshots];

    /// Returns what follows the reflection file's name, after a dot. With it no name has the form
    /// of a reflection file's own.
    pub fn suffix(self) -> &'static str {
        match self {
            Kind::Journal => "journal",
            Kind::Snapshots => "snapshots",
        }
    }
}

/// A companion beside a reflection file, which may exist or not.
#[derive(Clone)]
pub(crate) struct Companion {
    pub kind: Kind,
    pub name: Name,
}

/// The names of a pair's companion files.
#[derive(Clone)]
pub(crate) struct Companions {
    pub reflection: Name,
    /// The companions beside the reflection file, in the order in which they are removed.
    pub beside: [Companion; Kind::ALL.len()],
}

impl Companions {
    /// Returns the names of this reflection file and the companions beside it.
    pub fn new(reflection: Name) -> Self {
        let beside =
            Kind::ALL.map(|kind| Companion { kind, name: reflection.with_suffix(kind.suffix()) });
        Companions { reflection, beside }
    }

    /// Returns the companion of this kind.
    pub fn of(&self, kind: Kind) -> &Companion {
        &self.beside[kind as usize]
    }

    /// Returns the journal's name.
    pub fn journal(&self) -> &Name {
        &self.of(Kind::Journal).name
    }

    /// Returns the name of the store of snapshots.
    pub fn snapshots(&self) -> &Name {
        &self.of(Kind::Snapshots).name
    }
}
