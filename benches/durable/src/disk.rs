//! The folder of a run, and the counters of the block device under it, if there is one.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A block device under a folder.
pub struct Disk {
    stat: Option<PathBuf>,
}

/// Counts since the start of the machine.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub bytes: u64,
    pub flushes: u64,
    under_way: u64,
}

impl Disk {
    pub fn under(dir: &Path) -> Disk {
        let stat = std::fs::metadata(dir).ok().map(|meta| {
            let (major, minor) = (libc::major(meta.dev()), libc::minor(meta.dev()));
            PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"))
        });
        Disk { stat: stat.filter(|path| path.exists()) }
    }

    /// Returns `true` if the device counts its written bytes.
    pub fn is_known(&self) -> bool {
        self.stat.is_some()
    }

    pub fn counts(&self) -> Counts {
        let text = self.stat.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let fields: Vec<u64> = text
            .unwrap_or_default()
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let field = |n: usize| fields.get(n).copied().unwrap_or(0);
        Counts { bytes: field(6) * 512, flushes: field(15), under_way: field(8) }
    }

    /// Waits until nothing has been written for a while, so that background writes of one contender
    /// do not disturb the next one.
    pub fn wait_until_quiet(&self) {
        if self.stat.is_none() {
            std::thread::sleep(Duration::from_millis(50));
            return;
        }
        let end = Instant::now() + Duration::from_millis(60);
        let mut before = self.counts();
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
            let now = self.counts();
            if now.under_way == 0 && now.bytes == before.bytes {
                return;
            }
            before = now;
        }
    }
}

/// Returns the name of the folder's file system if it is one in memory, where nothing is durable.
pub fn in_memory(dir: &Path) -> Option<&'static str> {
    let path = CString::new(dir.as_os_str().as_bytes()).ok()?;
    let mut answer = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the path ends with NUL and the structure is writable.
    let failed = unsafe { libc::statfs(path.as_ptr(), answer.as_mut_ptr()) };
    // SAFETY: zeroes are valid for its integers, filled in or not.
    let kind = unsafe { answer.assume_init() }.f_type as u32;
    match kind {
        _ if failed != 0 => None,
        0x0102_1994 => Some("tmpfs"),
        0x8584_58F6 => Some("ramfs"),
        _ => None,
    }
}

/// A folder that is removed when it is dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(dir: &Path, program: &str) -> std::io::Result<Scratch> {
        let path = dir.join(format!("atomic-mmap-{program}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = std::fs::remove_dir_all(&self.0);
    }
}
