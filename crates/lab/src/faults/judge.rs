//! The rules that must hold after a failed system call.
//!
//! Owns: the rules. They come from the crate's documentation: the comments of the public calls,
//! `Error` and docs/recovery.md. They do not come from the code. `sweep` checks every run against
//! them.
//!
//! **The error.** The caller never sees an interruption or a short read or write. Any other failure
//! is returned as [`Error::Io`]. If the system reports missing space, the error is
//! [`Error::NoSpace`]. If a mapping lacks memory, it is [`Error::NoAddressSpace`]. The error's path
//! is the file or the folder of the system call, and its source is the system's error. It has the
//! offset if the system call has one, and its text names the path. A call that is refused without
//! the failure is refused for the same reason, or returns the failure. No call panics or hangs.
//!
//! **Absorbed failures** ([`may_be_absorbed`]). The crate absorbs a failure only if the system call
//! did not serve the caller, or if the crate repeats it later. Advice about a mapping is a hint.
//!
//! **The state.** After an error, the file contains everything that was acknowledged before, and
//! nothing of the failed call. This holds for reads by the same handle and after a reopen. It also
//! holds if the process crashes at that moment and the next one opens the files. After `Ok`, the
//! file contains the whole operation.
//!
//! **The handle** is poisoned in these cases and in no others ([`poisons`]):
//!
//! | failed system call | file | during | medium |
//! |---|---|---|---|
//! | `sync_data`, `write_durably` | any file | a durable point or a checkpoint | page cache |
//! | `write` | either file | a write that stores | page cache, on a disk |
//! | `sync_all` | either file | `set_len`, `replace`, a rollback to another length | dax |
//! | `sync_all` | the store of snapshots | an operation that keeps, if the store grows | dax |
//!
//! A call may return `Ok` and still poison the handle. This happens if the durable point or the
//! checkpoint runs in the background, or if the call is a shrink. After any other failed system
//! call, the same call of the crate succeeds once the failure is over. A rollback and an import may
//! poison it from their commit point on. For an import this is never because the store of snapshots
//! cannot grow.
//!
//! **Durable points.** Consider a copy of the files that is opened under another boot id. It holds
//! exactly the last durable point. If a call failed while it made the next durable point, the copy
//! may also hold the next one. The crate does not say which, and therefore poisons the handle. An
//! open makes a durable point of the state that a process crash has left. If only durable points
//! count, all this also holds for a copy under the same boot id.
//!
//! **Leftovers.** A failed open or create leaves names, lengths, bytes and marks unchanged. There
//! are three exceptions: files that a discard removed, work that recovery finished, and files that
//! the crate failed to remove.
//!
//! The bytes that an import has received stay until the next one if the crate could not remove
//! them, and none is lost before that. An import of a new file leaves none, or the whole file.
//!
//! **Files of others.** An open never changes a file that may belong to another home file. This
//! holds after any failure, and also with `OnMismatch::Discard`. It also holds when the new pair
//! next to that file is closed for good.

use super::files::{HOME, Place, REFLECTION_PREFIX, REPLICA, SPOOLS};
use super::scenarios::{Op, Opened, Opening, SpaceOp};
use atomic_mmap::testing::recorder::What;
use atomic_mmap::testing::{FileId, call};
use atomic_mmap::{DeployPolicy, Durability, Error, Medium};
use std::io;
use std::path::Path;

const PAGE: u64 = 4096;

/// The role of a path in a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The home file.
    Home,
    /// The reflection file, finished or not.
    Reflection,
    /// The journal.
    Journal,
    /// The snapshot store.
    Snapshots,
    /// The bytes that an import has received, or the new file that it makes.
    Spool,
    /// A folder of the pair.
    Folder,
    /// Another file in a folder of the pair.
    Neighbour,
    /// Any other path.
    Other,
}

/// Returns the role of a path.
pub fn role_of(path: &Path, place: &Place) -> Role {
    if path == place.folder || Some(path) == place.elsewhere.as_deref() {
        return Role::Folder;
    }
    let is_ours = path.parent().is_some_and(|dir| role_of_folder(dir, place));
    match path.file_name().map(|name| name.to_string_lossy()) {
        Some(name) if is_ours && (name == HOME || name == REPLICA) => Role::Home,
        Some(name) if is_ours && SPOOLS.iter().any(|spool| name.starts_with(spool)) => Role::Spool,
        Some(name) if is_ours && name.starts_with(REFLECTION_PREFIX) => match () {
            () if name.contains(".journal") => Role::Journal,
            () if name.contains(".snapshots") => Role::Snapshots,
            () => Role::Reflection,
        },
        Some(_) if is_ours && path.exists() => Role::Neighbour,
        _ => Role::Other,
    }
}

fn role_of_folder(dir: &Path, place: &Place) -> bool {
    dir == place.folder || Some(dir) == place.elsewhere.as_deref()
}

/// A system call of a run without failures: its name and its object, as far as the trace tells.
#[derive(Clone, Debug)]
pub struct Called {
    /// Name of the call.
    pub call: &'static str,
    /// Role of the file or folder.
    pub role: Option<Role>,
    /// Offset in the file.
    pub offset: Option<u64>,
    /// Start of the whole range, if earlier calls did a part of the range.
    pub begin: Option<u64>,
    /// Number of bytes that the call moved, if it moves bytes.
    pub moved: u64,
}

impl Called {
    fn without_place(call: &'static str) -> Called {
        Called { call, role: None, offset: None, begin: None, moved: 0 }
    }

    /// Notes the start of the whole range if `last`, the previous call, did a part of it.
    pub fn goes_on_after(&mut self, last: &Called) {
        let is_same = (last.call, last.role) == (self.call, self.role);
        let end = last.offset.map(|at| at + last.moved);
        if is_same && last.moved > 0 && end == self.offset {
            self.begin = last.begin;
        }
    }
}

/// Returns the system call that an event of a trace stands for.
pub fn called(what: &What, place: &Place) -> Option<Called> {
    let of_file = |call, file: &FileId, offset| {
        let role = match file {
            FileId::Home => Role::Home,
            FileId::Reflection => Role::Reflection,
            FileId::Journal => Role::Journal,
            FileId::Snapshots => Role::Snapshots,
            FileId::Spool => Role::Spool,
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

/// Returns an error if `error` is wrong for a call that failed with `code`. `at` is the failed
/// system call, if it is known.
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
    // The platform answers that attributes are not supported: that error has no number.
    let is_answer = code == libc::EOPNOTSUPP
        && source.raw_os_error().is_none()
        && source.kind() == io::ErrorKind::Unsupported;
    if source.raw_os_error() != Some(code) && !is_answer {
        return Err(format!("its source is {source:?} and not the error {code}: {text}"));
    }
    if !text.contains(&*path.to_string_lossy()) {
        return Err(format!("its text does not name {}: {text}", path.display()));
    }
    let role = role_of(path, place);
    if role == Role::Other {
        return Err(format!("it names {}, which is not of the pair", path.display()));
    }
    // The search for a renamed home file looks at every file of the folder.
    if role == Role::Neighbour && at.is_some_and(|at| at.call != call::STAT_PATH) {
        return Err(format!("it names {}, which the call was not about", path.display()));
    }
    let Some(at) = at else { return Ok(()) };
    if at.role.is_some_and(|of| of != role) {
        return Err(format!("it names the {role:?}, the call was about {:?}: {text}", at.role));
    }
    // 0 and 0 mean that the error has no place, or that it is the beginning of the file.
    let has_place = !matches!(error, Error::NoSpace { offset: 0, len: 0, .. });
    let moves = [call::READ, call::WRITE, call::ALLOCATE, call::PUNCH].contains(&at.call);
    let first = |offset: u64| match at.call {
        call::ALLOCATE => offset / PAGE * PAGE,
        _ => offset,
    };
    match (offset, at.offset) {
        (None, Some(at)) if moves => Err(format!("it has no offset, the call had {at}: {text}")),
        // A range may take several calls: the error names the start of the range. Storage is
        // reserved for whole pages, so its call starts at the first page of the range.
        (Some(offset), Some(at)) if first(offset) > at => {
            Err(format!("its offset is past the call's, {at}: {text}"))
        }
        (Some(offset), _) if has_place && !text.contains(&format!("at offset {offset}")) => {
            Err(format!("its text does not name offset {offset}: {text}"))
        }
        _ => Ok(()),
    }
}

/// Returns `true` if the failure poisons the handle: the table in the module's comment.
pub fn poisons(op: &Op, medium: Medium, failed: &[&str], code: i32, lacking: &[&str]) -> bool {
    // Without this call, two other calls replace it.
    let record = failed.contains(&call::WRITE_DURABLY) && code != libc::EOPNOTSUPP;
    // Without a call that reserves storage, writes of zeroes reserve it.
    let run = failed.contains(&call::WRITE) && !lacking.contains(&call::ALLOCATE);
    let stores = op.stores();
    match op {
        Op::Open(_) | Op::Close(_) | Op::Drop => false,
        // Nothing of the open file is stored to.
        Op::Export(..) | Op::BreakImport(..) | Op::ImportNew(_) => false,
        _ if medium == Medium::PageCache => {
            record || run && stores || failed.contains(&call::SYNC_DATA)
        }
        // The file gets a new length, or an operation that keeps makes the store longer.
        _ => {
            let sets_a_length = stores || matches!(op, Op::SetLen(_) | Op::View(_, Some(_)));
            medium == Medium::Dax && sets_a_length && failed.contains(&call::SYNC_ALL)
        }
    }
}

/// Returns `true` if the call may poison the handle in other cases as well: from the step on after
/// which an opening finishes it.
pub fn may_poison(op: &Op) -> bool {
    matches!(op, Op::RollBack(..)) || op.imports()
}

/// Returns `true` if the call has made a durable point after `Ok`, and may have made one after an
/// error.
pub fn makes_a_point(op: &Op, durability: Durability, shrinks: bool) -> bool {
    match op {
        Op::Sync | Op::SyncAndCheckpoint | Op::WriteAndWait(..) | Op::Deploy(_) => true,
        Op::Seal(_) | Op::RollBack(..) | Op::Import(_) | Op::Resume(..) => true,
        Op::Close(_) | Op::Drop => true,
        Op::SetLen(_) | Op::Replace(_) if shrinks => true,
        Op::Write(..) | Op::Tx(_) | Op::Update(..) | Op::View(_, Some(_)) => {
            durability == Durability::EveryWrite
        }
        Op::SetLen(_) | Op::Replace(_) => durability == Durability::EveryWrite,
        Op::Open(_) | Op::Read(..) | Op::View(_, None) | Op::TryClone => false,
        Op::Space(op) => !op.writes().is_empty() && durability == Durability::EveryWrite,
        // The bytes of the last point stay.
        Op::DropSnapshot(_) => false,
        Op::Export(..) | Op::BreakImport(..) | Op::ImportNew(_) => false,
    }
}

/// Returns `true` if the error says that there is no space.
pub fn is_full(code: i32) -> bool {
    code == libc::ENOSPC || code == libc::EDQUOT
}

/// Returns `true` if a call may return `Ok` although the system call `failed` returned `code`. The
/// comments give the reasons. `lacking` names the calls that the system does not have.
pub fn may_be_absorbed(
    op: &Op,
    policy: DeployPolicy,
    failed: &str,
    code: i32,
    shrinks: bool,
    lacking: &[&str],
) -> bool {
    // Without a call that reserves storage, these calls reserve it.
    let by_writing = [call::STAT, call::READ, call::WRITE].contains(&failed);
    // A look for holes is the beginning of an allocation, and has its errors.
    let reserves = [call::ALLOCATE, call::NEXT_HOLE].contains(&failed)
        || lacking.contains(&call::ALLOCATE) && by_writing;
    let lacks_space = reserves && is_full(code);
    // The crate has a fallback.
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
    // A hint has no effect on the result.
    if failed == call::ADVISE {
        return true;
    }
    // An import reads the base in order, and reads ahead of itself up to the next hole.
    if failed == call::NEXT_HOLE && op.imports() {
        return true;
    }
    // Neither an opening nor a point needs the copy of the journal's header, which an opening and
    // the first point of a session write.
    let copies_header =
        || matches!(op, Op::Open(_)) || makes_a_point(op, Durability::EveryWrite, shrinks);
    if failed == call::WRITE && copies_header() {
        return true;
    }
    let of_truncation =
        [call::SET_LEN, call::NEXT_DATA, call::READ, call::SYNC_ALL, call::ALLOCATE];
    let is_of_truncation = of_truncation.contains(&failed);
    match op {
        // The chunk does not fit any more, but perhaps the needed pages do. If log space cannot be
        // freed, the log reuses it. If a committed write cannot be deployed now, it is deployed
        // later.
        Op::Replace(_) if shrinks && is_of_truncation => true,
        Op::Write(..) | Op::Tx(_) | Op::Update(..) | Op::Replace(_) => {
            failed == call::PUNCH || lacks_space || policy == DeployPolicy::Eager
        }
        // In the background the next turn tries again. An operation that waits for its budget goes
        // on if no space can be given back, and so does one that deploys after its write.
        Op::Space(SpaceOp::Turns | SpaceOp::Lend(_) | SpaceOp::Eager(..)) => true,
        Op::Space(_) => failed == call::PUNCH || lacks_space,
        // The crate deployed for the benefit of a reader, which has its bytes.
        Op::Read(..) => policy == DeployPolicy::Lazy,
        // A view that cannot be pinned for lack of space is a copy. For its write, see above.
        Op::View(..) => failed == call::PUNCH || lacks_space,
        Op::Deploy(_) => lacks_space,
        // The shrink is committed before both files are truncated, so the next call repeats the
        // truncation.
        Op::SetLen(_) => shrinks && is_of_truncation,
        // Closing the file descriptor releases the lock as well. For missing space, see writes.
        Op::Close(_) => failed == call::UNLOCK || lacks_space,
        // A drop cannot report the failure, and the next open recovers.
        Op::Drop => true,
        // The failure poisons the handle instead, see `poisons`.
        Op::SyncAndCheckpoint => failed == call::SYNC_DATA,
        Op::WriteAndWait(..) => {
            [call::SYNC_DATA, call::WRITE_DURABLY].contains(&failed) || lacks_space
        }
        // A budget goes by the known storage if the file system cannot tell.
        Op::Open(how) => how.has_budget && failed == call::STAT,
        Op::Sync | Op::TryClone => false,
        // A store gets a shorter mapping if the system refuses a long one.
        Op::Seal(_) => lacks_space || failed == call::MAP,
        // The snapshot is dropped. Its space is given back after a later drop.
        Op::DropSnapshot(_) => true,
        Op::RollBack(..) => lacks_space || failed == call::PUNCH || is_of_truncation,
        // The next import removes the received bytes otherwise.
        Op::Import(_) | Op::Resume(..) => {
            removes_spool(failed)
                || lacks_space
                || [call::PUNCH, call::MAP].contains(&failed)
                || is_of_truncation
        }
        Op::BreakImport(..) => failed == call::UNLOCK,
        Op::ImportNew(_) => removes_spool(failed) || lacks_space || failed == call::MAP,
        Op::Export(..) => false,
    }
}

/// Returns `true` if the removal of what was received makes this call.
fn removes_spool(failed: &str) -> bool {
    [call::STAT, call::STAT_PATH, call::REMOVE, call::UNLOCK].contains(&failed)
}

/// Returns `true` if the call may report missing space. A view never does, because it becomes a
/// copy. The write under a view may.
pub fn may_lack_space(op: &Op) -> bool {
    !matches!(
        op,
        Op::View(_, None) | Op::Read(..) | Op::TryClone | Op::Sync | Op::SyncAndCheckpoint
    )
}

/// Returns `true` if a failed open leaves every byte unchanged: without recovery and without a
/// discard. `is_pair` says that a reflection file existed.
pub fn leaves_all_as_it_was(how: &Opening, is_pair: bool) -> bool {
    match how.expected {
        Opened::Refused(_) => true,
        Opened::Whole => !is_pair,
        Opened::New(_) => !is_pair,
        Opened::HomeBytes | Opened::Point => false,
    }
}
