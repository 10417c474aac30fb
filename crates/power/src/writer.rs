//! The process that writes files until its operations are done. Its marks are ordered with the
//! disk's writes.
//!
//! | mark | meaning |
//! |---|---|
//! | `b FILE` | the next operation of the file's script begins |
//! | `d FILE` | this operation has returned |
//! | `begin FILE THREAD N` | an operation of a thread begins, in a file of several threads |
//! | `done FILE THREAD N` | this operation has returned |
//! | `start FILE N` | a transaction of a database begins, or a call on the log store |
//! | `commit FILE N` | its COMMIT has returned, or the call has acknowledged its operation |
//! | `sync FILE` | a call that makes a durable point begins, in a file of several threads |
//! | `synced FILE` | this call has returned |
//!
//! Another thread plays the role of the kernel, which writes dirty pages back at any time.

use crate::Anything;
use crate::crowd::{CROWDS, Crowd, LEN, RANGE, THREADS, range_at, stamp};
use crate::database::{self, DATABASES, Database};
use crate::log_script::{self, State, Types};
use crate::log_store::{self, Logs};
use crate::script::{JOURNAL_LEN, Op, PLANS, Plan, Script};
use atomic_mmap::{AtomicMappedFile, CloseMode, Integrity, Medium, Options};
use futures_util::future::try_join_all;
use openraft_atomic_mmap::LogStore;
use pollster::block_on;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Number of operations of each thread of a crowd between an open and the next close.
const CROWD_ROUND: u64 = 12;
/// Number of transactions between an open of a database and its close.
const DATABASE_ROUND: u64 = 10;
/// Number of turns between an open of the log store and its close. A turn is a call on each group.
const LOG_TURNS: usize = 8;

struct Writer<'a> {
    folder: &'a Path,
    marks: File,
    seed: u64,
    operations: u64,
}

/// Does all operations, and closes all files.
pub fn write(folder: &Path, marks: &Path, seed: u64, operations: u64) -> Anything<()> {
    let marks = File::options().write(true).open(marks)?;
    let writer = Writer { folder, marks, seed, operations };
    let at_work = AtomicUsize::new(PLANS.len() + CROWDS.len() + DATABASES.len() + 1);
    let failed = AtomicBool::new(false);
    let run = |what: &dyn Fn() -> Anything<()>| {
        if let Err(error) = what() {
            eprintln!("the writer: {error}");
            failed.store(true, Ordering::Relaxed);
        }
        at_work.fetch_sub(1, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for plan in PLANS {
            let (run, writer) = (&run, &writer);
            scope.spawn(move || run(&|| writer.follow(plan)));
        }
        for crowd in CROWDS {
            let (run, writer) = (&run, &writer);
            scope.spawn(move || run(&|| writer.crowd(crowd)));
        }
        for database in DATABASES {
            let (run, writer) = (&run, &writer);
            scope.spawn(move || run(&|| writer.database(database)));
        }
        scope.spawn(|| run(&|| writer.logs()));
        let mut random = fastrand::Rng::with_seed(seed);
        while at_work.load(Ordering::Relaxed) > 0 {
            let _files_come_and_go = write_back(folder, &mut random);
            thread::sleep(Duration::from_micros(random.u64(..1_500)));
        }
    });
    if failed.into_inner() { Err("it has failed".into()) } else { Ok(()) }
}

/// Returns the options with which the writer and the checker open a file.
pub fn options(durability: atomic_mmap::Durability, len: u64) -> Options {
    AtomicMappedFile::options()
        .create(true)
        .len(len)
        .durability(durability)
        .journal_len(JOURNAL_LEN)
        .max_len(64 << 20)
}

/// Returns the options for the file of a plan.
pub fn options_of(plan: &Plan) -> Options {
    let options = options(plan.durability, plan.len);
    if plan.is_sealed { options.integrity(Integrity::OnRead) } else { options }
}

impl Writer<'_> {
    fn say(&self, mark: &str) -> Anything<()> {
        let written = (&self.marks).write(mark.as_bytes())?;
        if written == mark.len() { Ok(()) } else { Err("a mark was cut short".into()) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn open(&self, name: &str, options: Options) -> Anything<AtomicMappedFile> {
        let file = options.open(self.path(name))?;
        if file.medium() != Medium::PageCache {
            return Err(format!("{name}: medium {}", file.medium()).into());
        }
        Ok(file)
    }

    fn follow(&self, plan: &Plan) -> Anything<()> {
        let mut script = Script::new(*plan, self.seed);
        let mut file = None;
        for _ in 0..self.operations {
            let op = script.next();
            self.say(&format!("b {}", plan.name))?;
            self.act(plan, &op, &mut file).map_err(|e| format!("{}: {e}", plan.name))?;
            self.say(&format!("d {}", plan.name))?;
        }
        // The process ends with the file open: a drop would close it without a mark.
        std::mem::forget(file);
        Ok(())
    }

    fn act(&self, plan: &Plan, op: &Op, file: &mut Option<AtomicMappedFile>) -> Anything<()> {
        let open = || file.as_ref().ok_or("the file is closed");
        match op {
            Op::Create | Op::Open => {
                *file = Some(self.open(plan.name, options_of(plan))?);
            }
            Op::Write(parts) => match &parts[..] {
                [(at, bytes)] => open()?.write_at(bytes, *at)?,
                parts => {
                    let mut transaction = open()?.begin();
                    for (at, bytes) in parts {
                        transaction.write_at(bytes, *at)?;
                    }
                    transaction.commit()?;
                }
            },
            Op::Sync => open()?.sync().map(drop)?,
            Op::SetLen(len) => open()?.set_len(*len)?,
            Op::Deploy(range) => {
                open()?.deploy(range.clone())?;
            }
            Op::Seal(name) => open()?.snapshot(name).map(drop)?,
            Op::Drop(name) => open()?.drop_snapshot(name)?,
            Op::RollBack(name, undo) => open()?.roll_back(name, undo.as_deref())?,
            Op::Close(mode) => {
                file.take().ok_or("the file is closed")?.close(*mode)?;
            }
            Op::Remove => {
                fs::remove_file(self.path(plan.name))?;
                File::open(self.folder)?.sync_all()?;
            }
        }
        Ok(())
    }

    fn database(&self, database: &Database) -> Anything<()> {
        let mut n = 0;
        while n < self.operations / 2 {
            let close = if n / DATABASE_ROUND % 3 == 2 { "spatial" } else { "fast" };
            let connection = database.open(self.folder, close)?;
            for _ in 0..DATABASE_ROUND {
                n += 1;
                self.say(&format!("start {} {n}", database.name))?;
                let done = database::run(&connection, n, self.seed);
                done.map_err(|e| format!("{}: {e}", database.name))?;
                self.say(&format!("commit {} {n}", database.name))?;
            }
            connection.close().map_err(|(_, error)| error)?;
        }
        Ok(())
    }

    /// Makes calls on the log store, one on each group in turn. In every other turn they are under
    /// way together, and may share a durable point.
    fn logs(&self) -> Anything<()> {
        let mut state = State::new(self.seed);
        let mut round = 0;
        while state.number < self.operations / 2 {
            let mut logs = Logs::open(self.folder)?;
            for turn in 0..LOG_TURNS {
                let calls = logs.groups.iter_mut().map(|store| {
                    let op = state.advance();
                    self.call(store, state.number, op)
                });
                match turn % 2 {
                    // The first polls make the calls, in order.
                    0 => drop(block_on(try_join_all(calls))?),
                    _ => calls.into_iter().try_for_each(block_on)?,
                }
            }
            let modes = [shipped::CloseMode::Fast, shipped::CloseMode::Spatial];
            logs.close(modes[round % 2])?;
            round += 1;
        }
        Ok(())
    }

    /// Makes call `n` on a group.
    async fn call(&self, store: &mut LogStore<Types>, n: u64, op: log_script::Op) -> Anything<()> {
        let name = log_store::FILE;
        self.say(&format!("start {name} {n}"))?;
        let done = log_store::call(store, op).await;
        match done.map_err(|e| format!("{name}: {e}"))? {
            true => self.say(&format!("commit {name} {n}")),
            false => Ok(()),
        }
    }

    fn crowd(&self, crowd: &Crowd) -> Anything<()> {
        let mut done = 0;
        let mut round = 0;
        while done < self.operations / 2 {
            let file = self.open(crowd.name, options(crowd.durability, LEN))?;
            self.say(&format!("sync {}", crowd.name))?;
            file.sync()?;
            self.say(&format!("synced {}", crowd.name))?;
            thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let file = &file;
                        scope.spawn(move || {
                            (done + 1..=done + CROWD_ROUND)
                                .try_for_each(|n| self.stamp(crowd, file, thread, n))
                        })
                    })
                    .collect();
                while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                    thread::sleep(Duration::from_micros(300));
                    self.say(&format!("sync {}", crowd.name))?;
                    block_on(file.flush_async())?;
                    self.say(&format!("synced {}", crowd.name))?;
                }
                threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
            })?;
            done += CROWD_ROUND;
            self.say(&format!("sync {}", crowd.name))?;
            file.close(if round % 2 == 0 { CloseMode::Fast } else { CloseMode::Spatial })?;
            self.say(&format!("synced {}", crowd.name))?;
            round += 1;
        }
        Ok(())
    }

    fn stamp(&self, crowd: &Crowd, file: &AtomicMappedFile, thread: usize, n: u64) -> Anything<()> {
        self.say(&format!("begin {} {thread} {n}", crowd.name))?;
        let bytes = stamp(thread, n);
        debug_assert_eq!(bytes.len(), RANGE);
        file.transact(|transaction| {
            let total: u64 = transaction.load(0)?;
            transaction.store(0, &(total + 1))?;
            transaction.write_at(&bytes, range_at(thread))
        })?;
        self.say(&format!("done {} {thread} {n}", crowd.name))
    }
}

/// Writes some pages of a file back without a barrier, as the kernel may do at any time.
fn write_back(folder: &Path, random: &mut fastrand::Rng) -> Anything<()> {
    let names: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    let Some(entry) = random.choice(names) else { return Ok(()) };
    if !entry.file_type()?.is_file() {
        return Ok(());
    }
    let file = File::open(entry.path())?;
    let len = file.metadata()?.len();
    let at = random.u64(..=len) / 4096 * 4096;
    let count = random.u64(1..64) * 4096;
    // SAFETY: a descriptor that is open.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            at as i64,
            count as i64,
            libc::SYNC_FILE_RANGE_WRITE,
        )
    };
    Ok(())
}
