//! Detection of btrfs configurations in which a store to an allocated page can fail.
//!
//! Owns: the questions to btrfs, and the words for messages. A store to a page after its write-back
//! takes metadata, which no call can reserve. Where data, or the limit of a qgroup, can use up the
//! space that metadata need, a full disk ends the store in SIGBUS.
//!
//! None of the questions needs a privilege. An unanswered question counts as reserved.
//!
//! May import: libc, std.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Returns the reason why storage is not reserved there, or `None` if it is.
pub fn unreserved(file: &File) -> Option<&'static str> {
    if has_mixed_groups(file) {
        return Some(
            "btrfs with mixed block groups (as mkfs.btrfs -M makes them: without -M it makes none), a \
             full one of which ends a store in SIGBUS",
        );
    }
    if is_limited(file) == Some(true) {
        return Some(
            "btrfs, in a subvolume under a quota (btrfs qgroup limit), which ends a store in SIGBUS when it \
             is used up (a subvolume without a limit is accepted)",
        );
    }
    None
}

/// Returns `true` if data and metadata lie in the same block groups.
fn has_mixed_groups(file: &File) -> bool {
    /// BTRFS_IOC_SPACE_INFO of linux/btrfs.h: `_IOWR(0x94, 20, 16 bytes)`.
    const SPACE_INFO: u64 = 0xc010_9414;
    /// BTRFS_BLOCK_GROUP_DATA and BTRFS_BLOCK_GROUP_METADATA.
    const BOTH: u64 = 1 | 4;
    /// One slot for each kind and profile: there are fewer than this.
    const SLOTS: usize = 32;
    // Two words for the number of slots given and filled in, and then three words for each slot:
    // flags, size, use.
    let mut told = [0_u64; 2 + 3 * SLOTS];
    told[0] = SLOTS as u64;
    // SAFETY: the descriptor is open, and the kernel writes to no more slots than the first word
    // says.
    let asked = unsafe { libc::ioctl(file.as_raw_fd(), SPACE_INFO as _, told.as_mut_ptr()) };
    let filled = usize::try_from(told[1]).unwrap_or(0).min(SLOTS);
    asked == 0 && (0..filled).any(|slot| told[2 + 3 * slot] & BOTH == BOTH)
}

/// Returns `true` if the file's subvolume has a limit, or any group of subvolumes has one: that
/// group may contain this subvolume.
fn is_limited(file: &File) -> Option<bool> {
    let groups = folder(file)?.join("qgroups");
    let own = format!("0_{}", subvolume(file)?);
    let mut entries = std::fs::read_dir(groups).ok()?;
    Some(entries.any(|entry| {
        let Ok(entry) = entry else { return false };
        let name = entry.file_name();
        let counts = name == *own || !name.to_string_lossy().starts_with("0_");
        let flags = counts.then(|| std::fs::read_to_string(entry.path().join("limit_flags")).ok());
        flags.flatten().is_some_and(|flags| flags.trim() != "0")
    }))
}

/// Returns the number of the subvolume that the file lies in.
fn subvolume(file: &File) -> Option<u64> {
    /// BTRFS_IOC_INO_LOOKUP of linux/btrfs.h: `_IOWR(0x94, 18, 4096 bytes)`.
    const INO_LOOKUP: u64 = 0xd000_9412;
    /// BTRFS_FIRST_FREE_OBJECTID: a subvolume's own folder. For this object the call needs no
    /// privilege.
    const FIRST: u64 = 256;
    // The subvolume, 0 for the descriptor's own, the object, and then a path.
    let mut told = [0_u64; 512];
    told[1] = FIRST;
    // SAFETY: the descriptor is open, and the kernel writes at most the 4096 bytes that the
    // request's number says.
    let asked = unsafe { libc::ioctl(file.as_raw_fd(), INO_LOOKUP as _, told.as_mut_ptr()) };
    (asked == 0).then_some(told[0])
}

/// Returns the folder of a btrfs in sysfs, found by its uuid. (Its subvolumes have separate
/// devices.)
pub fn folder(file: &File) -> Option<PathBuf> {
    /// BTRFS_IOC_FS_INFO of linux/btrfs.h: `_IOR(0x94, 31, 1024 bytes)`.
    const FS_INFO: u64 = 0x8400_941f;
    let mut info = [0_u8; 1024];
    // SAFETY: the descriptor is open, and the kernel writes at most the 1024 bytes that the
    // request's number says.
    let told = unsafe { libc::ioctl(file.as_raw_fd(), FS_INFO as _, info.as_mut_ptr()) };
    // max_id (8), num_devices (8), then the uuid.
    let uuid = std::array::from_fn(|n| info[16 + n]);
    (told == 0).then(|| Path::new("/sys/fs/btrfs").join(super::uuid::text(uuid)))
}
