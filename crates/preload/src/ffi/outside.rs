//! Paths that lead to no chosen file, told without a call of the kernel.
//!
//! A folder is outside if no pattern describes a name in it. The kernel has told where the folder
//! is, by the text that programs give for it, and each thread remembers that for a moment. The last
//! name of a path may be a link: callers ask only about paths that they do not follow there.
//!
//! Invariants:
//! - After a call of this process that may lead names elsewhere, no thread remembers a folder.
//! - A path counts as outside for [`MOMENT`](folders::MOMENT) longer than it is, if another process
//!   changes a link or a name on the way to its folder. `open` lets the kernel refuse all links on
//!   the way, so there this holds for names alone.
//! - Nothing here allocates, and a signal may come at any point.

use super::{path, real};
use crate::folders::{self, Asked};
use crate::{inside, settings};
use libc::{AT_FDCWD, c_char, c_int, c_long, c_ulong, c_void, mode_t};
use std::ffi::CStr;

/// Returns a time that only grows, from the memory that the kernel shares.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Returns `true` if a path names no file that a pattern describes. Its last name is no link.
///
/// # Safety
/// `name` is NULL, or a text with its zero byte.
pub(super) unsafe fn is_outside(dir: c_int, name: *const c_char) -> bool {
    if name.is_null() {
        return false;
    }
    // SAFETY: as the caller promises.
    let name = unsafe { CStr::from_ptr(name) };
    let (text, last) = path::split(name);
    if last.is_empty()
        || text.len() > folders::MOST
        || dir != AT_FDCWD && text.first() != Some(&b'/')
    {
        return false;
    }
    let asked = Asked::at(now());
    folders::find(text, asked).unwrap_or_else(|| {
        let is_outside = ask(name);
        folders::note(text, asked, is_outside);
        is_outside
    })
}

/// Asks the kernel where the folder of a path is, until all names on the way there were noted
/// before.
#[cold]
fn ask(name: &CStr) -> bool {
    loop {
        match look(name) {
            Some((is_outside, false)) => return is_outside,
            Some((_, true)) => {}
            None => return false,
        }
    }
}

/// Returns whether the folder of a path is outside, and whether a name on the way there is new.
fn look(name: &CStr) -> Option<(bool, bool)> {
    let mut buffer = [0; libc::PATH_MAX as usize];
    let folder = path::open_folder(AT_FDCWD, name)?;
    let len = path::of(folder.fd(), &mut buffer)?.len();
    // The text of a link has further names.
    let is_new = match has_no_links(&buffer[..len], path::split(name).0) {
        true => folders::note_way(&buffer[..len]),
        false => folders::note_all(),
    };
    let is_root = buffer[..len] == *b"/";
    *buffer.get_mut(len)? = b'/';
    Some((!settings::may_hold(&buffer[..len + usize::from(!is_root)]), is_new))
}

/// Returns `true` if the text of a folder leads to `found` by way of no link.
fn has_no_links(found: &[u8], text: &[u8]) -> bool {
    match text.first() {
        Some(b'/') => names(found).eq(names(text)),
        _ => has_no_links_from_here(found, text),
    }
}

// By itself, because a handler of a signal may have a small stack: one buffer is enough for a text
// that begins at the root.
#[inline(never)]
fn has_no_links_from_here(found: &[u8], text: &[u8]) -> bool {
    let mut here = [0; libc::PATH_MAX as usize];
    let (to, len) = (here.as_mut_ptr() as usize, here.len());
    // SAFETY: a buffer with its length. The kernel ends the text with a zero byte.
    unsafe { real::syscall(libc::SYS_getcwd, to, len, 0, 0, 0, 0) };
    let here = CStr::from_bytes_until_nul(&here).unwrap_or_default().to_bytes();
    names(found).eq(names(here).chain(names(text)))
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// Notes that a name may lead elsewhere, or that the working folder is another one, if `done` is 0.
fn changed<R: PartialEq + Default>(done: R) -> R {
    if done == R::default() {
        folders::forget();
    }
    done
}

/// Notes that a file with the name `before` has got another one by a rename or a link. On the way
/// to other files are folders and links alone.
///
/// # Safety
/// `name` and `before` are texts with their zero bytes.
pub(super) unsafe fn note_name(dir: c_int, name: *const c_char, before: *const c_char) {
    let is_on_a_way = |name| {
        // SAFETY: as the caller promises.
        let last = path::split(unsafe { CStr::from_ptr(name) }).1;
        last.is_empty() || folders::is_on_a_way(last)
    };
    if inside::is_inside() || !settings::is_on() || ![name, before].into_iter().any(is_on_a_way) {
        return;
    }
    let before = super::errno();
    // SAFETY: as the caller promises.
    let found = path::stat(dir, unsafe { CStr::from_ptr(name) }, libc::AT_SYMLINK_NOFOLLOW);
    super::set_errno(before);
    if found.is_none_or(|found| found.st_mode & libc::S_IFMT != libc::S_IFREG) {
        folders::forget();
    }
}

/// Returns `true` if a system call that this library does not serve may lead names elsewhere.
pub(super) fn is_change(number: c_long) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(number, libc::SYS_rename | libc::SYS_link | libc::SYS_symlink | libc::SYS_mkdir) {
        return true;
    }
    matches!(
        number,
        libc::SYS_renameat
            | libc::SYS_renameat2
            | libc::SYS_linkat
            | libc::SYS_symlinkat
            | libc::SYS_mkdirat
            | libc::SYS_mount
            | libc::SYS_umount2
            | libc::SYS_move_mount
            | libc::SYS_pivot_root
            | libc::SYS_setns
            | libc::SYS_unshare
    )
}

/// Makes such a call.
///
/// # Safety
/// As for `syscall`.
pub(super) unsafe fn change(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> c_long {
    // SAFETY: as the caller promises.
    changed(unsafe { real::syscall(number, a, b, c, d, e, f) })
}

hook! {
    fn chdir(name: *const c_char) -> c_int { changed(real::chdir(name)) }
    fn fchdir(fd: c_int) -> c_int { changed(real::fchdir(fd)) }
    fn chroot(name: *const c_char) -> c_int { changed(real::chroot(name)) }
    fn mkdir(name: *const c_char, mode: mode_t) -> c_int { changed(real::mkdirat(AT_FDCWD, name, mode)) }
    fn mkdirat(dir: c_int, name: *const c_char, mode: mode_t) -> c_int { changed(real::mkdirat(dir, name, mode)) }
    fn symlink(text: *const c_char, name: *const c_char) -> c_int { changed(real::symlinkat(text, AT_FDCWD, name)) }
    fn symlinkat(text: *const c_char, dir: c_int, name: *const c_char) -> c_int { changed(real::symlinkat(text, dir, name)) }
    fn mount(from: *const c_char, to: *const c_char, kind: *const c_char, flags: c_ulong, data: *const c_void) -> c_int {
        changed(real::mount(from, to, kind, flags, data))
    }
    fn umount(name: *const c_char) -> c_int { changed(real::umount2(name, 0)) }
    fn umount2(name: *const c_char, flags: c_int) -> c_int { changed(real::umount2(name, flags)) }
    fn setns(fd: c_int, kind: c_int) -> c_int { changed(real::setns(fd, kind)) }
    fn unshare(what: c_int) -> c_int { changed(real::unshare(what)) }
}
