//! Determines the medium of a file: the one that is forced, or the one that the system shows.

use super::HUGE_PAGE;
use crate::config::Medium;
use crate::config::options::{MEDIUM_VARIABLE, Options};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::mutant::planted;
use crate::platform::{self, File, FileSystem, Mapping, Persistence, Platform};
use std::io::ErrorKind;
use std::path::Path;

/// Returns the medium that the caller or the environment forces, if any.
fn forced(options: &Options, path: &Path) -> Result<Option<Medium>> {
    if options.medium.is_some() {
        return Ok(options.medium);
    }
    let Some(name) = platform::variable(MEDIUM_VARIABLE) else { return Ok(None) };
    let name = name.to_string_lossy().into_owned();
    match name.parse() {
        Ok(medium) => Ok(Some(medium)),
        Err(_) => Err(Error::UnsupportedMedium {
            path: path.to_owned(),
            medium: name,
            why: "the environment variable ATOMIC_MMAP_MEDIUM names no medium: \
                  dax, page-cache and ram are",
        }),
    }
}

/// Returns the medium that the caller or the environment forces, if any. Fails if this build cannot
/// serve it.
pub(crate) fn chosen(
    platform: &Platform,
    options: &Options,
    path: &Path,
) -> Result<Option<Medium>> {
    let forced = forced(options, path)?;
    if forced == Some(Medium::Dax) && !platform.can_flush() {
        return Err(Error::UnsupportedMedium {
            path: path.to_owned(),
            medium: Medium::Dax.to_string(),
            why: "this build has no instruction that writes cache lines back",
        });
    }
    Ok(forced)
}

/// Refuses file systems on which mappings were not tested, unless the caller allows them.
pub(crate) fn check_file_system(
    options: &Options,
    path: &Path,
    file_system: FileSystem,
) -> Result<()> {
    let tested = match file_system {
        FileSystem::Ram(_) | FileSystem::Local(_) | FileSystem::Unknown(_) => true,
        FileSystem::Network(_)
        | FileSystem::Fuse
        | FileSystem::Overlay
        | FileSystem::UnreservedBtrfs(_)
        | FileSystem::HugeTlb => false,
    };
    if tested || options.any_file_system {
        return Ok(());
    }
    let file_system = file_system.to_string();
    Err(Error::UnsupportedFileSystem { path: path.to_owned(), file_system })
}

/// Refuses companions in memory for a home file that does not lie in memory. A restart of the
/// machine would remove them, and a part of the home file would be missing.
pub(crate) fn check_pair(
    options: &Options,
    dir: &Path,
    home: FileSystem,
    companions: FileSystem,
) -> Result<()> {
    let is_ram = |file_system| matches!(file_system, FileSystem::Ram(_));
    let is_kept = is_ram(home) || !is_ram(companions) || planted!(CompanionsInMemory);
    if is_kept || options.any_file_system {
        return Ok(());
    }
    let file_system = format!("{companions}, while the home file lies on {home}");
    Err(Error::UnsupportedFileSystem { path: dir.to_owned(), file_system })
}

/// Maps both files and determines the medium: `Dax` if both can be mapped synchronously.
pub(crate) fn map(
    platform: &Platform,
    forced: Option<Medium>,
    lie_on: [FileSystem; 2],
    max_len: u64,
    home: (&File, &Path, u64),
    reflection: (&File, &Path, u64),
) -> Result<(Mapping, Mapping, Medium)> {
    let map = |(file, path, len): (&File, &Path, u64)| {
        platform.map(file, len, false).map_err(|e| Error::of_mapping(path, len, max_len, e))
    };
    let synchronous =
        |(file, path, len): (&File, &Path, u64)| map_sync(platform, file, path, len, max_len);
    let plain = || {
        let mapping = map(reflection)?;
        // Much of the reflection file stays a hole. Words lie among the holes, and are allocated
        // page by page.
        platform.expect_random(reflection.0, &mapping);
        // Also drops pages that were cached before. Superblocks, lanes and log lie among holes as
        // well.
        platform.forget_cached(reflection.0, &mapping, 0, layout::SUPERCHUNKS);
        let home_mapping = map(home)?;
        platform.expect_random(home.0, &home_mapping);
        Ok::<_, Error>((home_mapping, mapping))
    };
    if let Some(medium) = forced {
        let (home, reflection) = plain()?;
        return Ok((home, reflection, medium));
    }
    if let Some(home) = synchronous(home)?
        && let Some(reflection) = synchronous(reflection)?
    {
        return Ok((home, reflection, Medium::Dax));
    }
    let (home, reflection) = plain()?;
    Ok((home, reflection, without_sync(lie_on)))
}

/// Returns the medium of two files that nothing forces, as `map` will.
pub(crate) fn of_new(
    platform: &Platform,
    lie_on: [FileSystem; 2],
    home: (&File, &Path),
    reflection: (&File, &Path),
) -> Result<Medium> {
    for (file, path) in [home, reflection] {
        if map_sync(platform, file, path, HUGE_PAGE, HUGE_PAGE)?.is_none() {
            return Ok(without_sync(lie_on));
        }
    }
    Ok(Medium::Dax)
}

/// Returns the medium of files that cannot both be mapped synchronously. Both have one medium,
/// since a pair that loses one of its files is lost.
fn without_sync(lie_on: [FileSystem; 2]) -> Medium {
    let in_memory = |file_system: &FileSystem| matches!(file_system, FileSystem::Ram(_));
    if lie_on.iter().any(in_memory) { Medium::Ram } else { Medium::PageCache }
}

/// Maps `len` bytes of a file synchronously. Returns `None` if the file system cannot do that. The
/// home file may have up to `max_len` bytes.
///
/// Any other failure is an error, for example a lack of memory. Otherwise opening would take
/// persistent memory for a lesser medium.
pub(crate) fn map_sync(
    platform: &Platform,
    file: &File,
    path: &Path,
    len: u64,
    max_len: u64,
) -> Result<Option<Mapping>> {
    match platform.map(file, len, true) {
        Ok(mapping) => Ok(Some(mapping)),
        // Kernels that do not know the flag return `InvalidInput`.
        Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput) => Ok(None),
        Err(e) => Err(Error::of_mapping(path, len, max_len, e)),
    }
}

/// Returns what stores have to reach on this medium.
pub(crate) fn persistence(platform: &Platform, medium: Medium) -> Persistence {
    match medium {
        Medium::Dax if platform.caches_persist() => Persistence::Caches,
        Medium::Dax => Persistence::Flush,
        Medium::PageCache | Medium::Ram => Persistence::Process,
    }
}
