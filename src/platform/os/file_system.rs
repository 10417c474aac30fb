//! The kinds of file systems.
//!
//! Owns: the classes that matter to this crate, and the magic numbers (statfs) that tell them
//! apart.
//!
//! Invariant: an unknown number is [`FileSystem::Unknown`], never a guess.
//!
//! May import: std only.

use std::fmt;

/// The kind of file system that a file is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSystem {
    /// In memory: lost with the power.
    Ram(&'static str),
    /// On a disk of this machine.
    Local(&'static str),
    /// On another machine, or shared with other machines: locks and mappings do not work as they do
    /// locally.
    Network(&'static str),
    /// Served by a user's process: anything may be behind it.
    Fuse,
    /// A union of other file systems: inode numbers may change when a file is first written.
    Overlay,
    /// btrfs where a store to an allocated page can fail on a full disk, with the reason.
    #[cfg_attr(
        any(not(target_os = "linux"), atomic_mmap_portable),
        allow(dead_code, reason = "only Linux is asked")
    )]
    UnreservedBtrfs(&'static str),
    /// Huge pages: no read and write calls.
    HugeTlb,
    /// Any other, with its magic number (0: the system does not tell).
    Unknown(u32),
}

impl FileSystem {
    /// Returns the kind for statfs's magic number. The numbers come from linux/magic.h and from the
    /// file systems' own sources. 0 stands for systems without such numbers.
    pub(super) fn from_magic(magic: u32) -> FileSystem {
        match magic {
            0x0102_1994 => FileSystem::Ram("tmpfs"),
            0x8584_58f6 => FileSystem::Ram("ramfs"),
            0xef53 => FileSystem::Local("ext4"),
            0x5846_5342 => FileSystem::Local("xfs"),
            0x9123_683e => FileSystem::Local("btrfs"),
            0x2fc1_2fc1 => FileSystem::Local("zfs"),
            0xf2f5_2010 => FileSystem::Local("f2fs"),
            0xca45_1a4e => FileSystem::Local("bcachefs"),
            0x4e4f_5641 => FileSystem::Local("nova"),
            0x3153_464a => FileSystem::Local("jfs"),
            0x5265_4973 => FileSystem::Local("reiserfs"),
            0x3434 => FileSystem::Local("nilfs"),
            0x4d44 => FileSystem::Local("vfat"),
            0x2011_bab0 => FileSystem::Local("exfat"),
            0x5346_544e | 0x7366_746e => FileSystem::Local("ntfs"),
            0x4244 => FileSystem::Local("hfs"),
            0x482b => FileSystem::Local("hfsplus"),
            0x6969 => FileSystem::Network("nfs"),
            0xff53_4d42 => FileSystem::Network("cifs"),
            0xfe53_4d42 => FileSystem::Network("smb2"),
            0x517b => FileSystem::Network("smb"),
            0x0102_1997 => FileSystem::Network("9p"),
            0x00c3_6400 => FileSystem::Network("ceph"),
            0x5346_414f | 0x6b41_4653 => FileSystem::Network("afs"),
            0x7375_7245 => FileSystem::Network("coda"),
            0x0bd0_0bd0 => FileSystem::Network("lustre"),
            0x0116_1970 => FileSystem::Network("gfs2"),
            0x7461_636f => FileSystem::Network("ocfs2"),
            0x4750_4653 => FileSystem::Network("gpfs"),
            0x1983_0326 => FileSystem::Network("beegfs"),
            0xaad7_aaea => FileSystem::Network("panfs"),
            0x786f_4256 => FileSystem::Network("vboxsf"),
            0xbacb_acbc => FileSystem::Network("vmhgfs"),
            0x6573_5546 => FileSystem::Fuse,
            0x794c_7630 => FileSystem::Overlay,
            0x9584_58f6 => FileSystem::HugeTlb,
            other => FileSystem::Unknown(other),
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileSystem::Ram(name) | FileSystem::Local(name) | FileSystem::Network(name) => {
                f.write_str(name)
            }
            FileSystem::Fuse => f.write_str("fuse"),
            FileSystem::UnreservedBtrfs(why) => f.write_str(why),
            FileSystem::Overlay => f.write_str("overlay"),
            FileSystem::HugeTlb => f.write_str("hugetlbfs"),
            FileSystem::Unknown(0) => f.write_str("unknown"),
            FileSystem::Unknown(magic) => write!(f, "{magic:#x}"),
        }
    }
}
