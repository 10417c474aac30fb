//! `rename`, `link` and `unlink`.
//!
//! The companions of a pair lie beside its home file. So a file is one plain file while the kernel
//! renames it, and a crashed one is recovered first.

use super::{failed, path, process, real, served};
use crate::errno::Errno;
use crate::pair;
use libc::{AT_FDCWD, c_char, c_int, c_uint};

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
        let moves = [true, flags & libc::RENAME_EXCHANGE != 0];
        for (chosen, moves) in own.iter().zip(moves) {
            let Some(chosen) = chosen else { continue };
            let leaves = || moves && path::folder(dir, name) != path::folder(to_dir, to);
            if let Err(errno) = super::caught(|| chosen.settle(leaves)) {
                return failed(errno);
            }
        }
        let identities: Vec<_> = own.iter().flatten().map(|chosen| chosen.identity).collect();
        served(|| {
            let renamed = || match real::renameat2(dir, name, to_dir, to, flags) {
                0 => Ok(0),
                _ => Err(Errno(super::errno())),
            };
            pair::while_closed(&identities, renamed)?
        })
    }
}

/// Gives a file another name.
///
/// # Safety
/// As for `linkat`.
unsafe fn link_at(
    dir: c_int,
    name: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    process::prepare();
    // SAFETY: as the caller promises.
    unsafe {
        let follow = if flags & libc::AT_SYMLINK_FOLLOW != 0 { 0 } else { libc::O_NOFOLLOW };
        if let Some(chosen) = path::chosen(dir, name, follow) {
            let leaves = || path::folder(dir, name) != path::folder(to_dir, to);
            if let Err(errno) = super::caught(|| chosen.settle(leaves)) {
                return failed(errno);
            }
        }
        real::linkat(dir, name, to_dir, to, flags)
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
        let _logged =
            super::caught(|| chosen.flatten().map_or(Ok(()), |chosen| chosen.settle(|| false)));
        real::unlinkat(dir, name, flags)
    }
}

hook! {
    fn rename(name: *const c_char, to: *const c_char) -> c_int { rename_at(AT_FDCWD, name, AT_FDCWD, to, 0) }
    fn renameat(dir: c_int, name: *const c_char, to_dir: c_int, to: *const c_char) -> c_int { rename_at(dir, name, to_dir, to, 0) }
    fn renameat2(dir: c_int, name: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int { rename_at(dir, name, to_dir, to, flags) }
    fn link(name: *const c_char, to: *const c_char) -> c_int { link_at(AT_FDCWD, name, AT_FDCWD, to, 0) }
    fn linkat(dir: c_int, name: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int { link_at(dir, name, to_dir, to, flags) }
    fn unlink(name: *const c_char) -> c_int { unlink_at(AT_FDCWD, name, 0) }
    fn unlinkat(dir: c_int, name: *const c_char, flags: c_int) -> c_int { unlink_at(dir, name, flags) }
    fn remove(name: *const c_char) -> c_int {
        let removed = unlink_at(AT_FDCWD, name, 0);
        if removed != 0 && super::errno() == libc::EISDIR { real::unlinkat(AT_FDCWD, name, libc::AT_REMOVEDIR) } else { removed }
    }
}
