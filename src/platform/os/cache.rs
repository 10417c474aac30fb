//! The identity of the page cache that holds a file's stores.
//!
//! Owns: [`CacheIdentity`], and the sources of its parts on Linux. Stores to a mapping outlive the
//! process in the page cache of one mounted file system in one run of the kernel. Recovery may
//! trust the stores only if that page cache still exists. `docs/decisions/page-cache-identity.md`
//! lists the alternatives.
//!
//! Invariant: [`CacheIdentity::is_same_as`] says yes only where every part is known and fits.
//!
//! May import: std and libc.

/// A mounted file system, as long as it stays mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Not 0, and never reused before the machine restarts.
    pub id: u64,
    /// `true` if the number is that of the mount, and not that of the mounted file system. Another
    /// mount of this file system, as in a restarted container, then has another number.
    pub is_of_mount: bool,
}

/// The page cache that holds the stores to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheIdentity {
    /// The run of the kernel, as the kernel names it. Zeros are unknown.
    pub boot_id: [u8; 16],
    /// The mounted file systems of all files of the pair. 0 is unknown.
    pub volume: u64,
    /// Nanoseconds since the machine was started. 0 is unknown.
    pub uptime: u64,
    /// The start of the machine by its present clock, in nanoseconds since 1970. 0 is unknown.
    pub started: i64,
    /// When the kernel made its folder of devices, in nanoseconds since 1970. 0 is unknown.
    pub devices_born: u64,
}

/// Tolerated change of the clock without a restart, in nanoseconds: a leap second, and the time
/// between two calls.
const CLOCK_SLACK: u64 = 2_000_000_000;

impl CacheIdentity {
    /// Returns `true` if `self` and `now` certainly describe one page cache.
    pub fn is_same_as(&self, now: &CacheIdentity) -> bool {
        self.boot_id != [0; 16]
            && self.boot_id == now.boot_id
            && self.volume != 0
            && self.volume == now.volume
            && !self.was_restarted_before(now)
    }

    /// Returns `true` if the clocks show a restart. Some machines keep their boot id over a
    /// restart: boards with firmware that seeds the kernel's random numbers.
    fn was_restarted_before(&self, now: &CacheIdentity) -> bool {
        // The time since the start also advances while the machine sleeps, and never runs back.
        let is_told = now.uptime != 0 && self.uptime != 0;
        let runs_back = is_told && now.uptime < self.uptime;
        // Setting the clock looks like a restart. The folder of devices tells them apart: it is
        // made once.
        let clock_was_set = is_told && self.started.abs_diff(now.started) > CLOCK_SLACK;
        runs_back || clock_was_set && self.devices_born != now.devices_born
    }
}

#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
pub use linux::{clocks, is_kernels_own, volume};

#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod linux {
    use super::super::{FileSystem, btrfs};
    use super::{CacheIdentity, Volume};
    use std::fs::File;
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};
    use std::time::UNIX_EPOCH;

    /// Returns the file system that the file lies on, or `None` if the system does not tell.
    ///
    /// The kernel gives each mounted ext4, xfs, btrfs and f2fs a folder in sysfs. The folder's
    /// inode number is made when the file system is mounted, and not reused before a restart. Bind
    /// mounts and containers see this folder, too; each new mount of the file system gets a new
    /// one.
    pub fn volume(file: &File, file_system: FileSystem) -> Option<Volume> {
        let folder = match file_system {
            // Unmounting a file system in memory destroys its files: a file that exists was never
            // unmounted.
            FileSystem::Ram(_) => return Some(Volume { id: 1, is_of_mount: false }),
            FileSystem::Local("btrfs") | FileSystem::UnreservedBtrfs(_) => btrfs::folder(file),
            FileSystem::Local(name) => block_device_folder(file, name),
            _ => None,
        };
        let number = folder.and_then(|folder| Some(std::fs::metadata(folder).ok()?.ino()));
        match number {
            Some(id) if id != 0 => Some(Volume { id, is_of_mount: false }),
            _ => mount(file),
        }
    }

    /// Returns the folder of a file system that is known by its block device.
    fn block_device_folder(file: &File, name: &str) -> Option<PathBuf> {
        let device = file.metadata().ok()?.dev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        Some(Path::new("/sys/fs").join(name).join(device.file_name()?))
    }

    /// Returns the mount by which the file was opened, where the kernel never reuses the numbers of
    /// mounts (6.8).
    fn mount(file: &File) -> Option<Volume> {
        /// STATX_MNT_ID_UNIQUE of linux/stat.h.
        const UNIQUE_MOUNT: u32 = 0x4000;
        /// Tells the id of a mount apart from a folder's number.
        const OF_MOUNT: u64 = 1 << 63;
        let told = statx(file, UNIQUE_MOUNT)?;
        let is_told = told.stx_mask & UNIQUE_MOUNT != 0;
        is_told.then_some(Volume { id: told.stx_mnt_id | OF_MOUNT, is_of_mount: true })
    }

    fn statx(file: &File, mask: u32) -> Option<libc::statx> {
        let mut told = MaybeUninit::<libc::statx>::zeroed();
        // SAFETY: the descriptor is open, the empty path is a C string, and the structure is
        // writable.
        let result = unsafe {
            libc::statx(
                file.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH,
                mask,
                told.as_mut_ptr(),
            )
        };
        // SAFETY: zeros are valid for its integers, and the call has filled in more of them.
        (result == 0).then(|| unsafe { told.assume_init() })
    }

    /// Fills in the clocks. A clock that cannot be read stays 0.
    pub fn clocks(identity: &mut CacheIdentity) {
        // A time namespace shifts the clock, which then says nothing about the machine.
        let uptime = clock(libc::CLOCK_BOOTTIME).filter(|_| !is_shifted());
        if let (Some(uptime), Some(now)) = (uptime, clock(libc::CLOCK_REALTIME)) {
            identity.uptime = uptime;
            identity.started = now as i64 - uptime as i64;
        }
        let born = std::fs::metadata("/dev").and_then(|folder| folder.created());
        let born = born.ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        identity.devices_born = born.map_or(0, |born| born.as_nanos() as u64);
    }

    /// Returns `true` if this process's time namespace shifts the time since the machine's start.
    fn is_shifted() -> bool {
        // `monotonic 0 0` and `boottime 0 0`. Kernels without the file have no such namespaces.
        let Ok(told) = std::fs::read_to_string("/proc/self/timens_offsets") else { return false };
        told.lines().any(|line| line.split_whitespace().skip(1).any(|number| number != "0"))
    }

    fn clock(which: libc::clockid_t) -> Option<u64> {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the structure is writable; the call takes nothing else of ours.
        let told = unsafe { libc::clock_gettime(which, &raw mut now) };
        (told == 0).then(|| now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// Returns `true` if the file is the kernel's own, and not one that a container has mounted
    /// over it.
    pub fn is_kernels_own(file: &File) -> bool {
        /// PROC_SUPER_MAGIC of linux/magic.h.
        const PROC: u32 = 0x9fa0;
        let is_proc = |file: &File| {
            let told = super::super::linux::stat_file_system(file);
            told.is_ok_and(|told| told.f_type as u32 == PROC)
        };
        let folder = File::open("/proc");
        let devices = file.metadata().ok().zip(folder.and_then(|folder| folder.metadata()).ok());
        is_proc(file) && devices.is_some_and(|(file, folder)| file.dev() == folder.dev())
    }
}

/// Returns `None`: other systems do not tell. The portable build that is tested on Linux uses the
/// device number, which may be reused, but not without a new mount.
#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
pub fn volume(file: &std::fs::File, _: super::FileSystem) -> Option<Volume> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let id = file.metadata().ok()?.dev();
        Some(Volume { id, is_of_mount: false })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        None
    }
}

/// Does nothing on other systems.
#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
pub fn clocks(_: &mut CacheIdentity) {}

/// Returns `true` on other systems, without a check.
#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
pub fn is_kernels_own(_: &std::fs::File) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: CacheIdentity = CacheIdentity {
        boot_id: [9; 16],
        volume: 77,
        uptime: 5_000_000_000_000,
        started: 1_700_000_000_000_000_000,
        devices_born: 1_700_000_001_000_000_000,
    };

    #[test]
    fn a_page_cache_is_believed_where_every_part_fits() {
        let later = CacheIdentity { uptime: THEN.uptime + 1, ..THEN };
        assert!(THEN.is_same_as(&THEN));
        assert!(THEN.is_same_as(&later));
        let differ = [
            CacheIdentity { boot_id: [8; 16], ..later },
            // Unknown never equals anything, not even unknown.
            CacheIdentity { boot_id: [0; 16], ..later },
            CacheIdentity { volume: 78, ..later },
            CacheIdentity { volume: 0, ..later },
            // A boot id that was kept over a restart.
            CacheIdentity { uptime: THEN.uptime - 1, ..later },
            CacheIdentity { started: THEN.started + 60_000_000_000, devices_born: 3, ..later },
            CacheIdentity { started: THEN.started - 60_000_000_000, devices_born: 3, ..later },
        ];
        for now in differ {
            assert!(!THEN.is_same_as(&now), "{now:?}");
        }
        let unknown = CacheIdentity::default();
        assert!(!unknown.is_same_as(&unknown));
    }

    #[test]
    fn a_clock_that_was_set_is_no_restart() {
        let set = CacheIdentity { started: THEN.started + 86_400_000_000_000, ..THEN };
        assert!(THEN.is_same_as(&set));
        let slewed = CacheIdentity { started: THEN.started + 1_000_000, devices_born: 0, ..THEN };
        assert!(THEN.is_same_as(&slewed));
    }
}
