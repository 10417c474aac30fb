//! `rename`, `link` and `unlink`.
//!
//! The companions of a pair lie beside its home file. So a file is one plain file while the kernel
//! renames it, and a crashed one is recovered first. One with snapshots keeps its companions: it
//! stays in its folder, and they go with its last name.

use super::kept::{self, Kept};
use super::{failed, outside, path, process, real, served};
use crate::errno::{Errno, Result};
use crate::pair;
use libc::{AT_FDCWD, c_char, c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};

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
    let exchanges = flags & libc::RENAME_EXCHANGE != 0;
    // SAFETY: as the caller promises.
    unsafe {
        let own =
            [path::chosen(dir, name, libc::O_NOFOLLOW), path::chosen(to_dir, to, libc::O_NOFOLLOW)];
        if own.iter().all(Option::is_none) {
            let renamed = real::renameat2(dir, name, to_dir, to, flags);
            if exchanges && renamed == 0 {
                outside::note_name(dir, name, to);
            }
            return named(renamed, (to_dir, to), name);
        }
        let moves = [true, exchanges];
        let leaves = || path::folder(dir, name) != path::folder(to_dir, to);
        for (chosen, moves) in own.iter().zip(moves) {
            let Some(chosen) = chosen else { continue };
            if let Err(errno) = super::caught(|| chosen.settle(|| moves && leaves())) {
                return failed(errno);
            }
        }
        let identities: Vec<_> = own.iter().flatten().map(|chosen| chosen.identity).collect();
        let renamed = served(|| {
            let renamed = || {
                let kept = [kept_by(own[0].as_ref())?, kept_by(own[1].as_ref())?];
                if kept.iter().zip(moves).any(|(kept, moves)| moves && kept.is_some()) && leaves() {
                    return Err(kept::stays());
                }
                if real::renameat2(dir, name, to_dir, to, flags) != 0 {
                    return Err(Errno(super::errno()));
                }
                if let (Some(replaced), Some(kept)) = (&own[1], &kept[1])
                    && replaced.is_nameless()
                {
                    kept.remove();
                }
                Ok(0)
            };
            pair::while_closed(&identities, renamed)?
        });
        if exchanges && renamed == 0 {
            outside::note_name(dir, name, to); // what the other name had
        }
        if own[0].is_none() { named(renamed, (to_dir, to), name) } else { renamed }
    }
}

/// Returns what a chosen file that is closed keeps.
fn kept_by(chosen: Option<&path::Chosen>) -> Result<Option<Kept>> {
    chosen.map_or(Ok(None), Kept::of)
}

/// A file that was not chosen has got the name of a chosen one. Relaxed: a thread that opens that
/// name has heard of it.
static IS_NAMED: AtomicBool = AtomicBool::new(false);

/// Notes that the file with the name `before` has got another one, if `done` is 0. Descriptors that
/// are open already become those of a chosen file when the file is opened by this name.
///
/// # Safety
/// `name` and `before` are texts with their zero bytes.
unsafe fn named(done: c_int, (dir, name): (c_int, *const c_char), before: *const c_char) -> c_int {
    if done == 0 {
        // SAFETY: as the caller promises.
        unsafe {
            outside::note_name(dir, name, before);
            if path::chosen(dir, name, libc::O_NOFOLLOW).is_some() {
                IS_NAMED.store(true, Ordering::Relaxed);
            }
        }
    }
    done
}

/// Returns `true` if a file has got the name of a chosen one.
pub(super) fn were_given() -> bool {
    IS_NAMED.load(Ordering::Relaxed)
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
            let stays = || match pair::snapshots_of(chosen.identity) {
                Some(snapshots) => Ok(snapshots > 0),
                None => Kept::of(&chosen).map(|kept| kept.is_some()),
            };
            let is_allowed = || {
                chosen.settle(leaves)?;
                if leaves() && stays()? { Err(kept::stays()) } else { Ok(()) }
            };
            if let Err(errno) = super::caught(is_allowed) {
                return failed(errno);
            }
        }
        named(real::linkat(dir, name, to_dir, to, flags), (to_dir, to), name)
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
        let removes_file = flags & libc::AT_REMOVEDIR == 0;
        let chosen = removes_file.then(|| path::chosen(dir, name, libc::O_NOFOLLOW)).flatten();
        // A pair that a crash has left takes its companions along. One that cannot be recovered is
        // removed all the same.
        let _logged =
            super::caught(|| chosen.as_ref().map_or(Ok(()), |chosen| chosen.settle(|| false)));
        let snapshots = chosen.as_ref().and_then(|chosen| pair::snapshots_of(chosen.identity));
        let kept = match snapshots {
            None => super::caught(|| kept_by(chosen.as_ref())).ok().flatten(),
            Some(_) => None, // the engine has it open
        };
        let removed = real::unlinkat(dir, name, flags);
        if let (0, Some(chosen)) = (removed, &chosen)
            && chosen.is_nameless()
        {
            super::quietly(|| match kept {
                Some(kept) => kept.remove(),
                None => forget_companions(chosen, snapshots.unwrap_or(0)),
            });
        }
        removed
    }
}

/// Removes the names of the companions of an open file that has no name any more. Nothing could
/// recover it, and its folder may be removed before it is closed.
fn forget_companions(chosen: &path::Chosen, snapshots: usize) {
    if pair::is_open(chosen.identity) {
        kept::note_removal(snapshots);
        path::companions(chosen.identity, path::remove);
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
