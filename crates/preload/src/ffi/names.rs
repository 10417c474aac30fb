//! `rename` and `unlink`.
//!
//! The companions of a pair lie beside its home file. So a file is one plain file while the kernel
//! renames it, and a crashed one is recovered first.

use super::path::{self, Chosen};
use super::{failed, process, real};
use crate::pair;
use libc::{AT_FDCWD, c_char, c_int, c_uint};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Renames.
///
/// # Safety
/// As for `renameat2`.
unsafe fn rename_at(
    dir: c_int,
    name: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    process::prepare();
    // SAFETY: as the caller promises.
    unsafe {
        let own =
            [path::chosen(dir, name, libc::O_NOFOLLOW), path::chosen(to_dir, to, libc::O_NOFOLLOW)];
        if own.iter().all(Option::is_none) {
            return real::renameat2(dir, name, to_dir, to, flags);
        }
        for chosen in own.iter().flatten() {
            if let Err(errno) = super::caught(|| chosen.settle()) {
                return failed(errno);
            }
        }
        let identities: Vec<_> = own.iter().flatten().map(|chosen| chosen.identity).collect();
        let renamed = super::caught(|| {
            let body = || (real::renameat2(dir, name, to_dir, to, flags), super::errno());
            Ok(pair::while_closed(Some(&identities), body, |of| {
                // By the new name first. What it has replaced has no name.
                [(to_dir, to), (dir, name)].into_iter().find_map(|(dir, name)| named(dir, name, of))
            }))
        });
        match renamed {
            Ok((0, _)) => 0,
            Ok((_, errno)) => failed(crate::errno::Errno(errno)),
            Err(errno) => failed(errno),
        }
    }
}

/// Returns the path of a file, if it has this name.
unsafe fn named(dir: c_int, name: *const c_char, of: pair::Identity) -> Option<PathBuf> {
    // SAFETY: as the caller of `rename_at` promises.
    unsafe {
        let found = path::stat(dir, CStr::from_ptr(name), libc::AT_SYMLINK_NOFOLLOW)?;
        if path::identity(&found) != of {
            return None;
        }
        let fd = real::openat(dir, name, libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0);
        let mut buffer = [0; libc::PATH_MAX as usize];
        let path = path::of(fd, &mut buffer).map(|path| PathBuf::from(OsStr::from_bytes(path)));
        real::close(fd);
        path
    }
}

/// Removes a name.
///
/// # Safety
/// As for `unlinkat`.
unsafe fn unlink_at(dir: c_int, name: *const c_char, flags: c_int) -> c_int {
    process::prepare();
    // SAFETY: as the caller promises.
    unsafe {
        let chosen =
            (flags & libc::AT_REMOVEDIR == 0).then(|| path::chosen(dir, name, libc::O_NOFOLLOW));
        // A pair that a crash has left takes its companions along. One that cannot be recovered is
        // removed all the same.
        let _logged = super::caught(|| chosen.flatten().as_ref().map_or(Ok(()), Chosen::settle));
        real::unlinkat(dir, name, flags)
    }
}

hook! {
    fn rename(name: *const c_char, to: *const c_char) -> c_int { rename_at(AT_FDCWD, name, AT_FDCWD, to, 0) }
    fn renameat(dir: c_int, name: *const c_char, to_dir: c_int, to: *const c_char) -> c_int { rename_at(dir, name, to_dir, to, 0) }
    fn renameat2(dir: c_int, name: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int { rename_at(dir, name, to_dir, to, flags) }
    fn unlink(name: *const c_char) -> c_int { unlink_at(AT_FDCWD, name, 0) }
    fn unlinkat(dir: c_int, name: *const c_char, flags: c_int) -> c_int { unlink_at(dir, name, flags) }
    fn remove(name: *const c_char) -> c_int {
        let removed = unlink_at(AT_FDCWD, name, 0);
        if removed != 0 && super::errno() == libc::EISDIR { real::unlinkat(AT_FDCWD, name, libc::AT_REMOVEDIR) } else { removed }
    }
}
