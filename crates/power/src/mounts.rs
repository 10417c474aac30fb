//! The way from a disk to a folder: loop devices, file systems, mounts, and the id of another boot.

use crate::Anything;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file system that the test supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    Ext4,
    Xfs,
    Btrfs,
}

impl std::str::FromStr for System {
    type Err = String;

    fn from_str(name: &str) -> Result<System, String> {
        match name {
            "ext4" => Ok(System::Ext4),
            "xfs" => Ok(System::Xfs),
            "btrfs" => Ok(System::Btrfs),
            _ => Err(format!("no file system {name}: ext4, xfs, btrfs")),
        }
    }
}

/// Returns `true` if the block begins as one of a directory or of attributes (`xfs_da_format.h`).
fn is_xfs_directory(block: &[u8]) -> bool {
    let blocks: [&[u8]; 4] = [b"XDB3", b"XDD3", b"XDF3", b"XARM"];
    let nodes: [[u8; 2]; 4] = [[0x3e, 0xbe], [0x3d, 0xf1], [0x3d, 0xff], [0x3b, 0xee]];
    blocks.iter().any(|magic| block.starts_with(magic))
        || block.get(8..10).is_some_and(|magic| nodes.iter().any(|node| node == magic))
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            System::Ext4 => "ext4",
            System::Xfs => "xfs",
            System::Btrfs => "btrfs",
        }
    }

    /// Returns the length of the disk, near the file system's minimum, because each mount reads
    /// some of it.
    pub fn disk_len(self) -> u64 {
        match self {
            System::Ext4 => 128 << 20,
            System::Xfs => 320 << 20,
            System::Btrfs => 400 << 20,
        }
    }

    /// Returns `true` if the file system itself needs a block of this write whole. Without it the
    /// file system cannot be mounted, which says nothing about the crate. Such blocks are the
    /// superblocks of ext4 and btrfs. On xfs they are blocks of directories and attributes: its log
    /// has the changes of such a block, and verifies the whole block.
    pub fn is_whole(self, at: u64, bytes: &[u8]) -> bool {
        let superblocks: &[u64] = match self {
            System::Ext4 => &[0],
            System::Xfs => return bytes.chunks(4096).any(is_xfs_directory),
            System::Btrfs => &[64 << 10, 64 << 20],
        };
        superblocks.iter().any(|start| at < start + 4096 && *start < at + bytes.len() as u64)
    }

    /// Makes a file system on the device.
    pub fn make(self, device: &Path) -> Anything<()> {
        let (program, arguments): (&str, &[&str]) = match self {
            System::Ext4 => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", "nodiscard", "-J", "size=4"])
            }
            System::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
            System::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K", "-m", "single", "-d", "single"]),
        };
        run(Command::new(program).args(arguments).arg(device))?;
        Ok(())
    }

    pub fn mount(self, device: &Path, folder: &Path) -> io::Result<()> {
        mount(device, folder, self.name(), "")
    }

    /// Mounts the device so that metadata becomes durable as often as possible.
    ///
    /// The lengths and blocks of the files become durable then, without pages that no process
    /// syncs. By default, a btrfs sync writes what one file needs, and btrfs writes all its
    /// metadata every 30 seconds. With these options it writes all metadata at each sync.
    pub fn mount_committing(self, device: &Path, folder: &Path) -> io::Result<()> {
        let options = if self == System::Btrfs { "notreelog" } else { "" };
        mount(device, folder, self.name(), options)
    }
}

/// Runs a program and returns its output.
pub fn run(command: &mut Command) -> Anything<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?}: {}: {says}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device over a file, detached on drop.
///
/// No process keeps the device open while it is not mounted, so the kernel drops its cached pages.
pub struct Loop(PathBuf);

impl Loop {
    pub fn new(file: &Path) -> Anything<Loop> {
        let name =
            run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(file))?;
        Ok(Loop(name.into()))
    }

    pub fn device(&self) -> &Path {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _best_effort = run(Command::new("losetup").arg("--detach").arg(&self.0));
    }
}

/// Gives this process and its children a private mount namespace, which ends with the last of them.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: no memory is concerned.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    flags("none", Path::new("/"), "none", libc::MS_REC | libc::MS_PRIVATE, "")
}

/// Simulates the `n`th reboot: this process and its children see another boot id.
pub fn other_boot(scratch: &Path, n: u8) -> io::Result<()> {
    let id = scratch.join(format!("boot-{n}"));
    std::fs::write(&id, format!("0ff0ff00-0000-4000-8000-0000000000{n:02x}\n"))?;
    let place = Path::new("/proc/sys/kernel/random/boot_id");
    flags(id.as_os_str(), place, "none", libc::MS_BIND, "")
}

pub fn mount(
    device: impl AsRef<std::ffi::OsStr>,
    folder: &Path,
    system: &str,
    options: &str,
) -> io::Result<()> {
    flags(device, folder, system, libc::MS_NOATIME, options)
}

fn flags(
    device: impl AsRef<std::ffi::OsStr>,
    folder: &Path,
    system: &str,
    flags: libc::c_ulong,
    options: &str,
) -> io::Result<()> {
    let device = CString::new(device.as_ref().as_bytes())?;
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    let (system, options) = (CString::new(system)?, CString::new(options)?);
    // SAFETY: strings that end with a zero.
    let result = unsafe {
        libc::mount(
            device.as_ptr(),
            folder.as_ptr(),
            system.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub fn unmount(folder: &Path) -> io::Result<()> {
    let folder = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: a string that ends with a zero.
    let result = unsafe { libc::umount2(folder.as_ptr(), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
