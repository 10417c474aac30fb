//! Planted faults, which test that the judge notices them.
//!
//! Owns: wrong ways of handling a failed system call, inserted between the crate and the judge.
//! Each one changes the result of a call, or the files that it left, as a bug of the crate would.
//! The sweep over the scenario that reaches a planted fault must find it.

use super::files::HOME;
use super::scenarios::{Bench, Failure, Op};
use atomic_mmap::testing::call;
use atomic_mmap::{CloseMode, Error};
use std::fs::{self, File};
use std::io;

/// A wrong way of handling a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// A failed write returns `Ok`.
    SwallowsError,
    /// A close with a failed sync returns `Ok`.
    SwallowsSync,
    /// A failed write has written a part of its bytes.
    WritesAPart,
    /// A failed write has undone an older write.
    TakesBackAnother,
    /// A failed open leaves a file behind.
    LeavesAFile,
    /// A failed open leaves the home file longer.
    Lengthens,
    /// The error names another path.
    WrongPath,
    /// The error names the other file of the pair.
    OtherFile,
    /// The error has no offset.
    NoOffset,
    /// The error does not contain the system's error.
    LosesTheCause,
    /// A failure panics.
    Panics,
    /// The call returns an interruption.
    ShowsInterruptions,
    /// A failed close keeps the lock.
    KeepsTheLock,
    /// A failed close removes the reflection file.
    ClosesTooMuch,
    /// A failed sync does not poison the handle.
    ForgetsToPoison,
    /// A checkpoint that fails in the background does not poison the handle.
    ForgetsTheBackground,
    /// A failed sync removes the journal.
    LosesTheJournal,
    /// A failed write poisons the handle.
    PoisonsTooMuch,
    /// A failed seal has sealed.
    SealsAnyway,
    /// A failed write has dropped a snapshot.
    DropsASnapshot,
}

impl Plant {
    /// All planted faults.
    pub const ALL: [Plant; 20] = [
        Plant::SwallowsError,
        Plant::SwallowsSync,
        Plant::WritesAPart,
        Plant::TakesBackAnother,
        Plant::LeavesAFile,
        Plant::Lengthens,
        Plant::WrongPath,
        Plant::OtherFile,
        Plant::NoOffset,
        Plant::LosesTheCause,
        Plant::Panics,
        Plant::ShowsInterruptions,
        Plant::KeepsTheLock,
        Plant::ClosesTooMuch,
        Plant::ForgetsToPoison,
        Plant::ForgetsTheBackground,
        Plant::LosesTheJournal,
        Plant::PoisonsTooMuch,
        Plant::SealsAnyway,
        Plant::DropsASnapshot,
    ];

    /// Returns the name of the scenario that reaches the fault.
    pub fn scenario(self) -> &'static str {
        match self {
            Plant::SwallowsSync | Plant::KeepsTheLock => "fast close",
            Plant::ClosesTooMuch => "spatial close",
            Plant::LeavesAFile | Plant::Lengthens => "open a plain file",
            Plant::ForgetsToPoison => "sync",
            Plant::ForgetsTheBackground => "points: checkpoint in the background",
            Plant::LosesTheJournal => "points: by journal",
            Plant::SealsAnyway => "snapshots: the first",
            Plant::DropsASnapshot => "snapshots: beside writes",
            _ => "first writes of a session",
        }
    }

    /// Changes the result of a call. `injected` says that one of its system calls was made to fail.
    pub fn tamper(
        self,
        op: &Op,
        result: Result<(), Failure>,
        bench: &mut Bench,
        injected: Option<(&'static str, i32)>,
    ) -> Result<(), Failure> {
        let Some((failed, code)) = injected else { return result };
        let is_write = matches!(op, Op::Write(..) | Op::Tx(_));
        if self == Plant::ShowsInterruptions && is_write && code == libc::EINTR {
            let source = io::Error::from_raw_os_error(code).into();
            let path = bench.place.home();
            return Err(Error::Io { call: "allocate", path, offset: Some(0), source }.into());
        }
        if self == Plant::Panics && matches!(&result, Err(Failure::Error(_))) {
            // `panic!` would print the message.
            std::panic::resume_unwind(Box::new("planted"));
        }
        let Err(Failure::Error(error)) = result else { return result };
        let is_close = matches!(op, Op::Close(_));
        match self {
            Plant::SwallowsError if is_write => return Ok(()),
            Plant::SwallowsSync if is_close && failed == call::SYNC_ALL => return Ok(()),
            Plant::WritesAPart if is_write => {
                if let Op::Write(at, _) = op {
                    bench.recorder.heal();
                    let file = bench.file.as_ref().expect("it is open");
                    file.write_at(&[0], *at).expect("write");
                }
            }
            Plant::TakesBackAnother if is_write => {
                bench.recorder.heal();
                bench.file.as_ref().expect("it is open").write_at(&[0], 150).expect("write");
            }
            Plant::SealsAnyway => {
                if let Op::Seal(name) = op {
                    bench.recorder.heal();
                    let file = bench.file.as_ref().expect("it is open");
                    let _may_be_poisoned = file.snapshot(name);
                }
            }
            Plant::DropsASnapshot if is_write => {
                bench.recorder.heal();
                let file = bench.file.as_ref().expect("it is open");
                let _may_be_poisoned = file.drop_snapshot("a");
            }
            Plant::LeavesAFile if matches!(op, Op::Open(_)) => {
                fs::write(bench.place.folder.join(".atomic-mmap.77.new"), b"left").expect("write");
            }
            Plant::Lengthens if matches!(op, Op::Open(_)) => {
                let home = File::options().write(true).open(bench.place.home()).expect("open");
                home.set_len(bench.model.len() as u64 + 1).expect("lengthen");
            }
            Plant::KeepsTheLock if is_close => {
                let home = File::open(bench.place.home()).expect("open");
                home.lock().expect("lock");
                bench.held.push(home);
            }
            Plant::LosesTheJournal if matches!(op, Op::Sync) => {
                if let Some(path) = bench.place.reflection() {
                    let _was_not_there = fs::remove_file(path.with_added_extension("journal"));
                }
            }
            Plant::ClosesTooMuch if matches!(op, Op::Close(CloseMode::Spatial)) => {
                if let Some(path) = bench.place.reflection() {
                    let _was_not_there = fs::remove_file(path);
                }
            }
            _ => {}
        }
        Err(Failure::Error(self.change(error, bench)))
    }

    fn change(self, error: Error, bench: &Bench) -> Error {
        let Error::Io { call, mut path, mut offset, mut source } = error else { return error };
        match self {
            Plant::WrongPath => path = bench.place.folder.join("another.dat"),
            Plant::OtherFile if path.ends_with(HOME) => {
                path = bench.place.reflection().unwrap_or(path);
            }
            Plant::OtherFile => path = bench.place.home(),
            Plant::NoOffset => offset = None,
            Plant::LosesTheCause => source = io::Error::other("it failed").into(),
            _ => {}
        }
        Error::Io { call, path, offset, source }
    }

    /// Changes the answer to the question if a handle is poisoned.
    pub fn tamper_poison(self, is_poisoned: bool) -> bool {
        match self {
            Plant::ForgetsToPoison | Plant::ForgetsTheBackground => false,
            Plant::PoisonsTooMuch => true,
            _ => is_poisoned,
        }
    }
}
