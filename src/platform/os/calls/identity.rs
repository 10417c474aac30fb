//! The identity of the machine, and of what the files lie on.
//!
//! Owns: the identity of the boot, of the user, of the file systems and of their page cache.
//!
//! Invariants: those of `calls`.
//!
//! May import: `gate`, `at`, `cache`, `stat`, `sys`, `uuid`, the recorder, the simulated machine,
//! and the planted bugs.

use super::gate::attempt;
use crate::mutant::planted;
use crate::platform::os::{CacheIdentity, File, FileSystem, Folder, at, cache, stat, sys, uuid};
#[cfg(feature = "recorder")]
use crate::platform::recorder::What;
use crate::platform::{Platform, call};
use std::io::{self, ErrorKind, Read};

/// Returns the system's answer about a file system, which a planted bug falsifies.
fn as_believed(told: FileSystem) -> FileSystem {
    match told {
        FileSystem::UnreservedBtrfs(_) if planted!(UnreservedBtrfsTaken) => {
            FileSystem::Local("btrfs")
        }
        told => told,
    }
}

impl Platform {
    /// Returns the kind of file system that the file is on.
    pub fn file_system(&self, file: &File) -> io::Result<FileSystem> {
        attempt!(
            self,
            call::FILE_SYSTEM,
            |_| sys::file_system(file.system()).map(as_believed),
            [simulated => Ok(match simulated.machine.is_ram() {
                true => FileSystem::Ram("simulated"),
                false => FileSystem::Local("simulated"),
            })]
        )
    }

    /// Returns a new identifier for a pair of files, which no other pair has.
    pub fn new_uuid(&self) -> [u8; 16] {
        match self {
            Platform::Native(_) => uuid::random(),
            #[cfg(feature = "recorder")]
            Platform::Recording(_) => uuid::random(),
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => simulated.machine.new_uuid(),
        }
    }

    /// Returns the identity of this boot of the system; zeros if the system does not tell.
    ///
    /// A temporary failure to read it is an error and does not count as unknown. A pair that does
    /// not know its boot goes back to its last durable point, or is refused, after a mere process
    /// crash.
    pub fn boot_id(&self) -> io::Result<[u8; 16]> {
        use ErrorKind::{InvalidData, NotADirectory, NotFound, PermissionDenied, Unsupported};
        let told = attempt!(
            self,
            call::BOOT_ID,
            |_| read_boot_id(),
            [simulated => Ok(simulated.machine.boot_id())]
        );
        match told {
            Err(error)
                if [InvalidData, NotADirectory, NotFound, PermissionDenied, Unsupported]
                    .contains(&error.kind()) =>
            {
                Ok([0; 16])
            }
            result => result,
        }
    }

    /// Returns the number of the user for which files are opened (Unix; elsewhere 0).
    pub fn user(&self) -> u32 {
        match self {
            Platform::Native(_) => stat::user(),
            #[cfg(feature = "recorder")]
            Platform::Recording(_) => stat::user(),
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => simulated.machine.user(),
        }
    }

    /// Returns the kind of file system that the folder is on.
    pub fn file_system_of(&self, folder: &Folder) -> io::Result<FileSystem> {
        attempt!(
            self,
            call::FILE_SYSTEM,
            |_| at::file_system(folder).map(as_believed),
            [simulated => Ok(match simulated.machine.is_ram() {
                true => FileSystem::Ram("simulated"),
                false => FileSystem::Local("simulated"),
            })]
        )
    }

    /// Returns the identity of the page cache that holds stores to the home file and to files in
    /// the folder. The second value is `true` if every mount of their file systems shares that
    /// cache.
    ///
    /// # Errors
    /// A temporary failure to read the identity is an error and does not count as unknown.
    pub fn cache_identity(
        &self,
        (home, home_lies_on): (&File, FileSystem),
        (folder, folder_lies_on): (&Folder, FileSystem),
    ) -> io::Result<(CacheIdentity, bool)> {
        /// Tells the numbers of two file systems apart. An odd number, so that no bits are lost.
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut identity = CacheIdentity { boot_id: self.boot_id()?, ..CacheIdentity::default() };
        let volumes = match home {
            File::System(_) => [
                cache::volume(home.system(), home_lies_on),
                at::with_open(folder, |folder| cache::volume(folder, folder_lies_on)),
            ],
            #[cfg(feature = "recorder")]
            File::Simulated(number) => [self.simulated_volume(*number); 2],
        };
        let mut is_shared = false;
        if let [Some(home), Some(folder)] = volumes {
            identity.volume = home.id.wrapping_mul(MIX) ^ folder.id;
            is_shared = !home.is_of_mount && !folder.is_of_mount;
        }
        match self {
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => {
                let (uptime, started, devices_born) = simulated.machine.clocks();
                identity = CacheIdentity { uptime, started, devices_born, ..identity };
            }
            _ => cache::clocks(&mut identity),
        }
        Ok((identity, is_shared))
    }

    #[cfg(feature = "recorder")]
    fn simulated_volume(
        &self,
        file: crate::platform::machine::FileNumber,
    ) -> Option<cache::Volume> {
        let Platform::Simulated(simulated) = self else { return None };
        let id = simulated.machine.volume(file);
        (id != 0).then_some(cache::Volume { id, is_of_mount: false })
    }
}

/// Reads the boot's identity by the standard library, without a system call of our own. Wherever
/// the file exists, it tells the boots apart.
fn read_boot_id() -> io::Result<[u8; 16]> {
    // The length of a UUID, and read in one call: reading the whole file would ask for its length
    // and its end as well.
    let mut text = [0; 36];
    let mut file = std::fs::File::open("/proc/sys/kernel/random/boot_id")?;
    if !cache::is_kernels_own(&file) {
        // A container's own file, which says nothing about the machine: its page cache may be long
        // gone, or still there.
        return Err(ErrorKind::NotFound.into());
    }
    file.read_exact(&mut text).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => ErrorKind::InvalidData.into(),
        _ => error,
    })?;
    uuid::parse(&text).ok_or_else(|| ErrorKind::InvalidData.into())
}
