//! Which page cache held a file's stores?
//!
//! Owns: [`CacheIdentity`], and where Linux tells its parts. Stores to a mapping outlive the process in
//! the page cache of one mounted file system in one run of the kernel. Whoever wants to believe them
//! must know that it is still that one. See `docs/decisions/page-cache-identity.md` for what was tried.
//!
//! Invariant: [`CacheIdentity::is_same_as`] says yes only where every part is known and fits.
//!
//! May import: std and libc.

/// A mounted file system, as long as it stays mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Never given again before the machine restarts. Not 0.
    pub id: u64,
    /// Whether the number is that of the mount, and not of what is mounted: another mount of the same
    /// file system (a container that was started anew) has another one.
    pub is_of_mount: bool,
}

/// The page cache that holds what is stored to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheIdentity {
    /// The run of the kernel, by its own word. Zeros: unknown.
    pub boot_id: [u8; 16],
    /// The mounted file systems of all files of the pair. 0: unknown.
    pub volume: u64,
    /// Nanoseconds since the machine was started. 0: unknown.
    pub uptime: u64,
    /// When the machine was started, by its clock now: nanoseconds since 1970. 0: unknown.
    pub started: i64,
    /// When the kernel made its folder of devices: nanoseconds since 1970. 0: unknown.
    pub devices_born: u64,
}

/// The clock may be set by so much without a restart: a leap second, and the time between two calls.
const CLOCK_SLACK: u64 = 2_000_000_000;

impl CacheIdentity {
    /// Whether the page cache that `self` described is certainly the one that `now` describes.
    pub fn is_same_as(&self, now: &CacheIdentity) -> bool {
        self.boot_id != [0; 16]
            && self.boot_id == now.boot_id
            && self.volume != 0
            && self.volume == now.volume
            && !self.was_restarted_before(now)
    }

    /// Whether the clocks tell of a restart. Some machines (boards whose firmware seeds the kernel's
    /// random numbers) keep their boot id over one.
    fn was_restarted_before(&self, now: &CacheIdentity) -> bool {
        // The time since the start runs on while the machine sleeps, and never back.
        let is_told = now.uptime != 0 && self.uptime != 0;
        let runs_back = is_told && now.uptime < self.uptime;
        // A clock that was set tells the same as a restart; the folder of devices is made once.
        let clock_was_set = is_told && self.started.abs_diff(now.started) > CLOCK_SLACK;
        runs_back || clock_was_set && self.devices_born != now.devices_born
    }
}

#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
pub use linux::{clocks, is_kernels_own, volume};

#[cfg(all(target_os = "linux", not(atomic_mmap_portable)))]
mod linux {
    use super::{CacheIdentity, Volume};
    use crate::platform::{FileSystem, btrfs};
    use std::fs::File;
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};
    use std::time::UNIX_EPOCH;

    /// The file system that the file lies on. `None`: the system does not tell.
    ///
    /// The kernel gives each mounted ext4, xfs, btrfs and f2fs a folder in sysfs. The folder's inode
    /// number is made when the file system is mounted, and not given again before a restart. Bind
    /// mounts and containers see the same folder; a file system that is mounted anew has a new one.
    pub fn volume(file: &File, file_system: FileSystem) -> Option<Volume> {
        let folder = match file_system {
            // What lies in memory is gone when it is unmounted: a file that is there was never away.
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

    /// The folder of a file system that is known by its block device.
    fn block_device_folder(file: &File, name: &str) -> Option<PathBuf> {
        let device = file.metadata().ok()?.dev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        Some(Path::new("/sys/fs").join(name).join(device.file_name()?))
    }

    /// The mount that the file was opened by, where the kernel numbers mounts once and for all (6.8).
    fn mount(file: &File) -> Option<Volume> {
        /// STATX_MNT_ID_UNIQUE of linux/stat.h.
        const UNIQUE_MOUNT: u32 = 0x4000;
        /// Sets an id of a mount apart from a folder's number.
        const OF_MOUNT: u64 = 1 << 63;
        let told = statx(file, UNIQUE_MOUNT)?;
        let is_told = told.stx_mask & UNIQUE_MOUNT != 0;
        is_told.then_some(Volume { id: told.stx_mnt_id | OF_MOUNT, is_of_mount: true })
    }

    fn statx(file: &File, mask: u32) -> Option<libc::statx> {
        let mut told = MaybeUninit::<libc::statx>::zeroed();
        // SAFETY: the descriptor is open, the empty path is a C string, and the structure is writable.
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

    /// Fills in what the clocks say. What cannot be told stays 0.
    pub fn clocks(identity: &mut CacheIdentity) {
        // A time namespace shifts the clock: then it says nothing of the machine.
        let uptime = clock(libc::CLOCK_BOOTTIME).filter(|_| !is_shifted());
        if let (Some(uptime), Some(now)) = (uptime, clock(libc::CLOCK_REALTIME)) {
            identity.uptime = uptime;
            identity.started = now as i64 - uptime as i64;
        }
        let born = std::fs::metadata("/dev").and_then(|folder| folder.created());
        let born = born.ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        identity.devices_born = born.map_or(0, |born| born.as_nanos() as u64);
    }

    /// Whether this process's time namespace has an offset to the machine's time since its start.
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

    /// Whether the file is the kernel's own, and not one that a container has mounted over it.
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

/// Not told elsewhere. The portable path that is tested on Linux goes by the device: a number that may be given
/// again, where nothing is mounted anew.
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

/// Not told elsewhere.
#[cfg(not(all(target_os = "linux", not(atomic_mmap_portable))))]
pub fn clocks(_: &mut CacheIdentity) {}

/// Not asked elsewhere.
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
            // Unknown is not the same, not even where both are unknown.
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
