//! What must hold when a system call has failed?
//!
//! Owns: the rules. They are written down from the crate's documentation (the comments of the public
//! calls, `Error`, docs/recovery.md), not from its code, and `sweep` asks them about every run.
//!
//! **The error.** An interruption and a short read or write are never seen. Any other failure is
//! returned as [`Error::Io`] or, where the system says that there is no space, as
//! [`Error::NoSpace`], or for a mapping that has no memory as [`Error::NoAddressSpace`]; its path
//! is that of the file or folder that the call was about, its source is what the system said, it
//! has the offset where the call has one, and its text names the path. A call that would have been
//! refused is refused for the same reason, or with the failure. Nothing panics, nothing hangs.
//!
//! **What may go unheard of** ([`may_be_absorbed`]): only failures whose call was on nobody's behalf,
//! or which are caught up with later. Advice about a mapping is a hint.
//!
//! **The state.** Whoever got an error finds everything that was acknowledged before and nothing of
//! what has failed: by the same handle, by opening what the death of the process would leave at that
//! moment, and by reopening. Whoever got `Ok` finds all of it.
//!
//! **The handle** is poisoned in these cases and no others ([`poisons`]):
//!
//! | a failing | of | in | on | poisons |
//! |---|---|---|---|---|
//! | `sync_data`, `write_durably` | any file | whatever makes a durable point, or a checkpoint | page cache | yes, also if the call itself has returned `Ok` and the point or checkpoint came in the background |
//! | `sync_all` | either file | `set_len`, either way | dax | yes, also if the shrink itself has returned `Ok` |
//! | any other call | | | | no: the same call succeeds once the failure is over |
//!
//! **Durable points.** Where they are kept, a copy of the files of another boot holds the last durable
//! point, whole; if whatever was to make the next one has failed, that one or the next. (Which one is not
//! said: that is why it poisons.) Opening makes one of what the death of a process has left. The same holds of a copy of the same boot where only durable points
//! count.
//!
//! **Leftovers.** A failed open or create leaves names, lengths, bytes and marks as they were, but for
//! what a discard has removed and what recovery has finished, and but for what it would have removed
//! had the removal not failed as well.
//!
//! **Files of others.** A file that may be another home file's companion, for all that opening can
//! tell, stays as it is, to the byte: whatever fails, also with `OnMismatch::Discard`, and also
//! when the pair that was made beside it is closed for good.

use super::files::{HOME, Place, REFLECTION_PREFIX};
use super::scenarios::{Op, Opened, Opening};
use atomic_mmap::testing::recorder::What;
use atomic_mmap::testing::{FileId, call};
use atomic_mmap::{DeployPolicy, Durability, Error, Medium};
use std::path::Path;

const PAGE: u64 = 4096;

/// What a path of a pair is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The home file.
    Home,
    /// The reflection file, finished or not.
    Reflection,
    /// The journal.
    Journal,
    /// A folder of theirs.
    Folder,
    /// Another file in a folder of theirs.
    Neighbour,
    /// Something else.
    Other,
}

/// Which it is.
pub fn role_of(path: &Path, place: &Place) -> Role {
    if path == place.folder || Some(path) == place.elsewhere.as_deref() {
        return Role::Folder;
    }
    let is_ours = path.parent().is_some_and(|dir| role_of_folder(dir, place));
    match path.file_name().map(|name| name.to_string_lossy()) {
        Some(name) if is_ours && name == HOME => Role::Home,
        Some(name) if is_ours && name.starts_with(REFLECTION_PREFIX) => {
            if name.ends_with(".journal") { Role::Journal } else { Role::Reflection }
        }
        Some(_) if is_ours && path.exists() => Role::Neighbour,
        _ => Role::Other,
    }
}

fn role_of_folder(dir: &Path, place: &Place) -> bool {
    dir == place.folder || Some(dir) == place.elsewhere.as_deref()
}

/// A system call of a run in which nothing fails: its name, and what it was about, as far as the
/// trace tells.
#[derive(Clone, Debug)]
pub struct Called {
    /// Its name.
    pub call: &'static str,
    /// What it was about.
    pub role: Option<Role>,
    /// Where in the file.
    pub offset: Option<u64>,
    /// Where the range begins that it goes on with, which the calls before it had not got through.
    pub begin: Option<u64>,
    /// Bytes that it moved, if it moves some.
    pub moved: u64,
}

impl Called {
    fn without_place(call: &'static str) -> Called {
        Called { call, role: None, offset: None, begin: None, moved: 0 }
    }

    /// Notes where the range begins, if `last`, the call before, had got through a part of it.
    pub fn goes_on_after(&mut self, last: &Called) {
        let is_same = (last.call, last.role) == (self.call, self.role);
        let end = last.offset.map(|at| at + last.moved);
        if is_same && last.moved > 0 && end == self.offset {
            self.begin = last.begin;
        }
    }
}

/// The system call that an event of a trace stands for.
pub fn called(what: &What, place: &Place) -> Option<Called> {
    let of_file = |call, file: &FileId, offset| {
        let role = match file {
            FileId::Home => Role::Home,
            FileId::Reflection => Role::Reflection,
            FileId::Journal => Role::Journal,
        };
        Some(Called { call, role: Some(role), offset, begin: offset, moved: 0 })
    };
    let of_path = |call, path: &Path| {
        Some(Called { role: Some(role_of(path, place)), ..Called::without_place(call) })
    };
    match what {
        What::Store { .. }
        | What::CompareExchange { .. }
        | What::Copy { .. }
        | What::Flush { .. }
        | What::Drain => None,
        What::Sync { file, all: true } => of_file(call::SYNC_ALL, file, None),
        What::Sync { file, all: false } => of_file(call::SYNC_DATA, file, None),
        What::Allocate { file, offset, .. } => of_file(call::ALLOCATE, file, Some(*offset)),
        What::Punch { file, offset, .. } => of_file(call::PUNCH, file, Some(*offset)),
        What::SetLen { file, .. } => of_file(call::SET_LEN, file, None),
        What::Write { file, offset, bytes } => {
            let called = of_file(call::WRITE, file, Some(*offset))?;
            Some(Called { moved: bytes.len() as u64, ..called })
        }
        What::WriteDurably { file, offset, bytes } => {
            let called = of_file(call::WRITE_DURABLY, file, Some(*offset))?;
            Some(Called { moved: bytes.len() as u64, ..called })
        }
        What::Read { file, offset, len } => {
            Some(Called { moved: *len, ..of_file(call::READ, file, Some(*offset))? })
        }
        What::SyncDir { path } => of_path(call::SYNC_DIR, path),
        What::Rename { from, .. } => of_path(call::RENAME, from),
        What::Remove { path } => of_path(call::REMOVE, path),
        What::Os(name) | What::Failed(name) => Some(Called::without_place(name)),
    }
}

/// Whether an error is the right one for a call that failed with `code`. `at`: the call, where it is
/// known which one the error is about.
pub fn is_right(
    error: &Error,
    code: i32,
    at: Option<&Called>,
    place: &Place,
) -> Result<(), String> {
    let text = error.to_string();
    let (path, offset, source) = match error {
        Error::Io { path, offset, source, .. } => (path, *offset, source),
        Error::NoSpace { path, offset, len, source } => {
            if code != libc::ENOSPC && code != libc::EDQUOT {
                return Err(format!("no space, though that was not what was said: {text}"));
            }
            let is_at = *offset > 0 || *len > 0 || at.is_some_and(|at| at.begin == Some(0));
            (path, is_at.then_some(*offset), source)
        }
        Error::NoAddressSpace { path, source, .. } => {
            if code != libc::ENOMEM && code != libc::EAGAIN {
                return Err(format!("no addresses, though that was not what was said: {text}"));
            }
            (path, None, source)
        }
        other => return Err(format!("another error than that of the call: {other:?}")),
    };
    if source.raw_os_error() != Some(code) {
        return Err(format!("its source is {source:?} and not the error {code}: {text}"));
    }
    if !text.contains(&*path.to_string_lossy()) {
        return Err(format!("its text does not name {}: {text}", path.display()));
    }
    let role = role_of(path, place);
    if role == Role::Other {
        return Err(format!("it names {}, which is not of the pair", path.display()));
    }
    // The search for a home file that was renamed looks at every file of the folder.
    if role == Role::Neighbour && at.is_some_and(|at| at.call != call::STAT_PATH) {
        return Err(format!("it names {}, which the call was not about", path.display()));
    }
    let Some(at) = at else { return Ok(()) };
    if at.role.is_some_and(|of| of != role) {
        return Err(format!("it names the {role:?}, the call was about {:?}: {text}", at.role));
    }
    // 0 for want of an offset and a range, or the beginning of the file.
    let has_place = !matches!(error, Error::NoSpace { offset: 0, len: 0, .. });
    let moves = [call::READ, call::WRITE, call::ALLOCATE, call::PUNCH].contains(&at.call);
    let first = |offset: u64| match at.call {
        call::ALLOCATE => offset / PAGE * PAGE,
        _ => offset,
    };
    match (offset, at.offset) {
        (None, Some(at)) if moves => Err(format!("it has no offset, the call had {at}: {text}")),
        // A range may take several calls: the error tells where the range begins. Storage is
        // reserved for whole pages, so its call begins with the range's first page.
        (Some(offset), Some(at)) if first(offset) > at => {
            Err(format!("its offset is past the call's, {at}: {text}"))
        }
        (Some(offset), _) if has_place && !text.contains(&format!("at offset {offset}")) => {
            Err(format!("its text does not name offset {offset}: {text}"))
        }
        _ => Ok(()),
    }
}

/// See the module's comment: the second table.
pub fn poisons(op: &Op, medium: Medium, failed: &[&str], code: i32) -> bool {
    // Without the one call it is done by two.
    let record = failed.contains(&call::WRITE_DURABLY) && code != libc::EOPNOTSUPP;
    match op {
        Op::Open(_) | Op::Close(_) | Op::Drop => false,
        _ if medium == Medium::PageCache => record || failed.contains(&call::SYNC_DATA),
        Op::SetLen(_) => medium == Medium::Dax && failed.contains(&call::SYNC_ALL),
        _ => false,
    }
}

/// Whether a call that has returned `Ok` has made a durable point, and one that has failed may have.
pub fn makes_a_point(op: &Op, durability: Durability, shrinks: bool) -> bool {
    match op {
        Op::Sync | Op::SyncAndCheckpoint | Op::WriteAndWait(..) | Op::Deploy(_) => true,
        Op::Close(_) | Op::Drop => true,
        Op::SetLen(_) if shrinks => true,
        Op::Write(..) | Op::Tx(_) | Op::Update(..) | Op::View(_, Some(_)) | Op::SetLen(_) => {
            durability == Durability::EveryWrite
        }
        Op::Open(_) | Op::Read(..) | Op::View(_, None) | Op::TryClone => false,
    }
}

fn is_full(code: i32) -> bool {
    code == libc::ENOSPC || code == libc::EDQUOT
}

/// Whether a call may return `Ok` although the system call `failed` with `code`, and why. `lacking` are
/// calls that the system does not have.
pub fn may_be_absorbed(
    op: &Op,
    policy: DeployPolicy,
    failed: &str,
    code: i32,
    shrinks: bool,
    lacking: &[&str],
) -> bool {
    // Storage is reserved by these where there is no call for it.
    let by_writing = [call::STAT, call::READ, call::WRITE].contains(&failed);
    let reserves = failed == call::ALLOCATE || lacking.contains(&call::ALLOCATE) && by_writing;
    let lacks_space = reserves && is_full(code);
    // There is another way.
    let has_fallback = [
        call::IN_PLACE,
        call::ALLOCATE,
        call::PUNCH,
        call::NEXT_DATA,
        call::NEXT_HOLE,
        call::SET_XATTR,
        call::WRITE_DURABLY,
    ]
    .contains(&failed);
    if code == libc::EOPNOTSUPP && (has_fallback || failed == call::MAP) {
        return true;
    }
    // A hint: nothing depends on it.
    if failed == call::ADVISE {
        return true;
    }
    match op {
        // A chunk does not fit any more, but perhaps the pages that are needed do. The log's space is
        // used again if it cannot be given back. A committed write that cannot be brought home now is
        // brought home later.
        Op::Write(..) | Op::Tx(_) | Op::Update(..) => {
            failed == call::PUNCH || lacks_space || policy == DeployPolicy::Eager
        }
        // Deployment on behalf of a reader, which has its bytes.
        Op::Read(..) => policy == DeployPolicy::Lazy,
        // A view that cannot be pinned for lack of space is a copy. Its write as above.
        Op::View(..) => failed == call::PUNCH || lacks_space,
        Op::Deploy(_) => lacks_space,
        // The cut is committed before both files are cut: the next call catches up.
        Op::SetLen(_) if shrinks => {
            [call::SET_LEN, call::NEXT_DATA, call::READ, call::SYNC_ALL, call::ALLOCATE]
                .contains(&failed)
        }
        Op::SetLen(_) => false,
        // Closing the file gives the lock back as well; and space as for writes.
        Op::Close(_) => failed == call::UNLOCK || lacks_space,
        // Nobody is left to hear of it, and opening recovers.
        Op::Drop => true,
        // The handle is poisoned instead, see `poisons`.
        Op::SyncAndCheckpoint => failed == call::SYNC_DATA,
        Op::WriteAndWait(..) => {
            [call::SYNC_DATA, call::WRITE_DURABLY].contains(&failed) || lacks_space
        }
        Op::Open(_) | Op::Sync | Op::TryClone => false,
    }
}

/// Whether a view that needs space may say that there is none: never, it is a copy then. The write in
/// it may.
pub fn may_lack_space(op: &Op) -> bool {
    !matches!(
        op,
        Op::View(_, None) | Op::Read(..) | Op::TryClone | Op::Sync | Op::SyncAndCheckpoint
    )
}

/// Whether a failed open leaves every byte as it was: where nothing is recovered and nothing
/// discarded. `is_pair`: there was a reflection file to go on with.
pub fn leaves_all_as_it_was(how: &Opening, is_pair: bool) -> bool {
    match how.expected {
        Opened::Refused(_) => true,
        Opened::Whole => !is_pair,
        Opened::New(_) => !is_pair,
        Opened::HomeBytes | Opened::Point => false,
    }
}
