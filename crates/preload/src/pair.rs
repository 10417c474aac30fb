//! The chosen files that this process has open, shared by their descriptions.
//!
//! Invariants:
//! - A file is open in the engine while it has users. The last user closes it spatially, so that
//!   what is left is one plain file. It keeps companions only for its snapshots.
//! - Locks are taken in the order gate, state, `showing`, list. Several states are taken in the
//!   order of their identities. The list is never held across a call of the engine.
//! - A pair is the file that its anchor holds, whatever path that file has today. An inode number
//!   that an anchor holds is not used again.
//! - A child of `fork` has an empty list. It touches no pair of its parent: their
//!   locks may be held.
//! - A region is a user of its file. A file with regions is closed by an exec and at the end alone:
//!   no other process changes it beneath them.
//!
//! | module | holds |
//! |---|---|
//! | `handed` | files of descriptors that come from another process |
//! | `home` | open files that become complete in place |
//! | `mapped` | operations on files that have regions: shared writable mappings |
//!
//! May import: `errno`, `inside`, `log`, `regions`, `settings`.

mod handed;
mod home;
mod mapped;

pub(crate) use handed::take_over;
#[cfg(not(test))] // only `ffi` calls these
pub(crate) use {handed::wait_for_call, home::come_home};

use crate::errno::{Errno, Result};
use crate::inside::{self, Inside};
use crate::{log, settings};
use atomic_mmap::{AtomicMappedFile, CloseMode, Closed, DeployPolicy, Durability, Options};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Device and inode.
pub(crate) type Identity = (u64, u64);

#[derive(Debug)]
enum State {
    /// The last user has closed it, or it cannot be used any more.
    Closed,
    /// A plain file for now. The next call opens it again.
    Resting {
        is_read_only: bool,
    },
    Open {
        file: AtomicMappedFile,
        is_read_only: bool,
    },
}

#[derive(Debug)]
pub(crate) struct Pair {
    identity: Identity,
    /// A child of `fork` shares it with the pair of its parent.
    anchor: Arc<Anchor>,
    state: RwLock<State>,
    /// The file rests, and its close has succeeded. Changes while `state` is locked.
    is_plain: AtomicBool,
    /// The process has a record lock on it, which a close would end. Relaxed: a thread that forks
    /// has locked it itself, or has heard of that.
    is_locked: AtomicBool,
    /// A call has changed it since it was last complete in place.
    is_changed: AtomicBool,
    /// Locked while a call shows in the regions what it has changed, with `state` locked for
    /// reading: the last one shows the bytes of all.
    showing: Mutex<()>,
}

/// A descriptor of the home file that neither reads nor writes: `O_PATH`.
#[derive(Debug)]
struct Anchor(Option<File>);

struct Entry {
    pair: Arc<Pair>,
    users: usize,
}

/// The pairs with users, and those that their last user is closing.
static LIST: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// The length of the list: `stat` of a process without pairs looks at nothing else. Relaxed: a
/// thread that has opened a file, or has heard of that, sees it. The list has its lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// How many forks lie between this process and the one that loaded the library.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// Threads that open, close or look into the list. A fork waits for them, so that a child finds
/// none of their locks held.
static INSIDE_GATE: AtomicUsize = AtomicUsize::new(0);
/// Threads that fork. They keep others out of the gate.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// How long a thread sleeps before it looks at the gate again.
const PAUSE: Duration = Duration::from_micros(50);
/// How often a file is looked for that other processes rename.
const TRIES: u32 = 10;

/// Runs `body`, which no fork interrupts. Without a lock that parks threads: the parking lot's own
/// locks may be held at a fork.
pub(crate) fn unforked<R>(body: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            // SeqCst, as all of the gate: what `body` did comes before.
            INSIDE_GATE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    if inside::is_inside() {
        return body(); // the thread has passed the gate
    }
    loop {
        // SeqCst, as in `before_fork`: of this thread and the one that forks, one sees the other.
        INSIDE_GATE.fetch_add(1, Ordering::SeqCst);
        let leave = Leave;
        if FORKS.load(Ordering::SeqCst) == 0 {
            let _inside = Inside::enter();
            let result = body();
            drop(leave);
            return result;
        }
        drop(leave);
        std::thread::sleep(PAUSE);
    }
}

/// Before a fork, in the parent: waits until no thread is inside the gate.
pub(crate) fn before_fork() {
    // SeqCst: see `unforked`.
    FORKS.fetch_add(1, Ordering::SeqCst);
    while INSIDE_GATE.load(Ordering::SeqCst) > 0 && !inside::is_inside() {
        std::thread::sleep(PAUSE);
    }
}

/// After a fork, in the parent.
pub(crate) fn after_fork() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

/// After a fork, in the child: forgets the pairs of the parent.
pub(crate) fn in_child() {
    // A child begins with one thread, so no order is needed.
    GENERATION.fetch_add(1, Ordering::SeqCst);
    FORKS.store(0, Ordering::SeqCst);
    INSIDE_GATE.store(0, Ordering::SeqCst);
    // A drop would take locks that threads of the parent may hold.
    std::mem::forget(std::mem::take(&mut *LIST.lock()));
    COUNT.store(0, Ordering::Relaxed);
}

/// Returns the generation of this process.
pub(crate) fn generation() -> u64 {
    // Relaxed: it changes in a child of `fork` while that has one thread.
    GENERATION.load(Ordering::Relaxed)
}

/// Opens the file of a descriptor, or joins its users.
pub(crate) fn acquire(of: c_int, identity: Identity, writes: bool) -> Result<Arc<Pair>> {
    unforked(|| {
        let pair = join(of, identity)?;
        let mut state = pair.state.write();
        let before = match *state {
            State::Open { is_read_only, .. } if !(is_read_only && writes) => {
                drop(state);
                return Ok(pair);
            }
            State::Open { is_read_only, .. } | State::Resting { is_read_only } => {
                Some(is_read_only)
            }
            State::Closed => None,
        };
        *state = State::Closed; // a reader gives way to the writer
        let opened = pair.open(writes || before == Some(false));
        match opened {
            Ok(opened) => {
                *state = opened;
                pair.is_plain.store(false, Ordering::Relaxed);
                drop(state);
                Ok(pair)
            }
            Err(errno) => {
                if let Some(is_read_only) = before {
                    *state = State::Resting { is_read_only };
                }
                let _nothing_to_close = leave(&pair, state);
                Err(errno)
            }
        }
    })
}

impl Anchor {
    /// Takes hold of the file of a descriptor.
    fn of(fd: c_int) -> Result<Anchor> {
        let _inside = Inside::enter();
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_PATH);
        let anchor = options.open(format!("/proc/self/fd/{fd}"));
        let number = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(libc::EIO));
        anchor.map(|file| Anchor(Some(file))).map_err(number)
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        let _inside = Inside::enter(); // the descriptor is the library's own
        drop(self.0.take());
    }
}

fn join(of: c_int, identity: Identity) -> Result<Arc<Pair>> {
    let mut list = LIST.lock();
    if let Some(entry) = list.iter_mut().find(|entry| entry.pair.identity == identity) {
        entry.users += 1;
        return Ok(Arc::clone(&entry.pair));
    }
    Ok(insert(&mut list, identity, Arc::new(Anchor::of(of)?), State::Closed))
}

/// Takes a file into the list, with one user. One that rests is plain.
fn insert(
    list: &mut Vec<Entry>,
    identity: Identity,
    anchor: Arc<Anchor>,
    state: State,
) -> Arc<Pair> {
    let pair = Arc::new(Pair {
        identity,
        anchor,
        is_plain: AtomicBool::new(matches!(state, State::Resting { .. })),
        state: RwLock::new(state),
        is_locked: AtomicBool::new(false),
        is_changed: AtomicBool::new(false),
        showing: Mutex::new(()),
    });
    list.push(Entry { pair: Arc::clone(&pair), users: 1 });
    COUNT.store(list.len(), Ordering::Relaxed);
    pair
}

/// Takes a user off. The last one closes the file.
fn leave(pair: &Pair, mut state: RwLockWriteGuard<'_, State>) -> Result<()> {
    let is_this = |entry: &Entry| std::ptr::eq(&*entry.pair, pair);
    let users = {
        let mut list = LIST.lock();
        let Some(entry) = list.iter_mut().find(|entry| is_this(entry)) else { return Ok(()) };
        entry.users -= 1;
        entry.users
    };
    if users > 0 {
        return Ok(());
    }
    // Without a name it ends with this, even if its folder is gone.
    let closed = state.close().or_else(|errno| if pair.has_name() { Err(errno) } else { Ok(()) });
    let mut list = LIST.lock();
    // Another thread may have joined meanwhile. It waits for the state, and opens the file again.
    let gone = list.iter().position(|entry| is_this(entry) && entry.users == 0);
    let gone = gone.map(|n| list.swap_remove(n));
    COUNT.store(list.len(), Ordering::Relaxed);
    drop(list);
    drop(gone);
    closed
}

impl State {
    /// Closes the file spatially. After an error the next open recovers.
    fn close(&mut self) -> Result<()> {
        match std::mem::replace(self, State::Closed) {
            State::Closed | State::Resting { .. } => Ok(()),
            State::Open { file, .. } => {
                let closed = file.close(CloseMode::Spatial).map_err(|error| Errno::of(&error))?;
                if let Closed::WithCompanions(why) = closed {
                    log::line(&format!("closed and complete, but its companions stay: {why}"));
                }
                Ok(())
            }
        }
    }
}

impl Pair {
    /// Returns the path that the file has now, absolute and without links. It is that of the name
    /// by which the file was opened, and `None` if that name is removed.
    fn path(&self) -> Option<PathBuf> {
        let fd = self.anchor.0.as_ref()?.as_raw_fd();
        // Another process may rename the file between the two calls.
        (0..TRIES).find_map(|_| {
            let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
            let there = std::fs::metadata(&path).ok()?;
            ((there.dev(), there.ino()) == self.identity).then_some(path)
        })
    }

    /// Opens the file in the engine, by the path that it has now.
    fn open(&self, writes: bool) -> Result<State> {
        for _ in 0..TRIES {
            let Some(path) = self.path() else { break };
            let (device, inode) = self.identity;
            // Another process may rename the file meanwhile, and give its path to another one.
            match options().identity(device, inode).read_only(!writes).open(&path) {
                Ok(file) => return Ok(State::Open { file, is_read_only: !writes }),
                Err(error) if self.path().is_some_and(|now| now == path) => {
                    return Err(Errno::of(&error));
                }
                Err(_) => {}
            }
        }
        log::line("a file without a name, or one that is renamed again and again");
        Err(Errno::IO)
    }

    /// Returns `true` if the file can be closed and opened again: it has a name, and no regions.
    fn can_rest(&self) -> bool {
        self.regions().is_empty() && self.path().is_some()
    }

    /// Returns `true` if the file has any name.
    fn has_name(&self) -> bool {
        let _inside = Inside::enter();
        let found = self.anchor.0.as_ref().map(File::metadata);
        !matches!(found, Some(Ok(found)) if found.nlink() == 0)
    }

    /// Returns a descriptor of the home file that neither reads nor writes.
    pub fn anchor(&self) -> Option<c_int> {
        self.anchor.0.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Closes the file until the next call, after a publication. After an error that call recovers
    /// it.
    fn rest(&self, state: &mut State) -> Result<()> {
        let published = self.publish_in(state);
        let State::Open { is_read_only, .. } = *state else { return published };
        let closed = state.close();
        *state = State::Resting { is_read_only };
        // Relaxed: this thread reads it, or a child of it.
        self.is_plain.store(closed.is_ok(), Ordering::Relaxed);
        published.and(closed)
    }

    /// Notes whether the process has a record lock on the file.
    pub fn set_locked(&self, is_locked: bool) {
        self.is_locked.store(is_locked, Ordering::Relaxed);
    }

    /// Gives the file another length.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.change(|file| {
            let before = file.len();
            let changed = len.min(before)..len.max(before);
            if changed.is_empty() {
                Ok(((), changed))
            } else {
                file.set_len(len).map(|()| ((), changed))
            }
        })
    }

    /// Ends one use of the pair. The last one closes the file.
    pub fn release(&self) -> Result<()> {
        unforked(|| leave(self, self.state.write()))
    }

    /// Runs an operation on the file.
    pub fn with<R>(
        &self,
        body: impl FnOnce(&AtomicMappedFile) -> atomic_mmap::Result<R>,
    ) -> Result<R> {
        loop {
            let inside = Inside::enter(); // before the lock: see `close_all`
            if let State::Open { file, .. } = &*self.state.read() {
                return body(file).map_err(|error| Errno::of(&error));
            }
            drop(inside);
            self.wake()?;
        }
    }

    /// Opens the file again, if it rests.
    fn wake(&self) -> Result<()> {
        unforked(|| {
            let mut state = self.state.write();
            self.open_again(&mut state)?;
            if matches!(*state, State::Closed) {
                log::line("a call on a file that exit has closed");
                return Err(Errno::IO);
            }
            Ok(())
        })
    }

    /// Opens the file again, if it rests, with its state locked.
    fn open_again(&self, state: &mut State) -> Result<()> {
        if let State::Resting { is_read_only } = *state {
            *state = self.open(!is_read_only)?;
            self.is_plain.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns `true` if the file is plain now, without waiting.
    pub fn is_plain(&self) -> bool {
        self.is_plain.load(Ordering::Relaxed)
    }
}

/// Returns the options by which files are opened.
pub(crate) fn options() -> Options {
    // The constructor has refused unknown values.
    let durability = settings::durability().unwrap_or(Durability::OnSync);
    let deploy = settings::deploy().unwrap_or(DeployPolicy::Lazy);
    // A dropped pair was not closed for a reason, and stays as a crash leaves it.
    let options = AtomicMappedFile::options().close_on_drop(CloseMode::Unsynced);
    let mut options = options.durability(durability).deploy(deploy);
    options = options.shows_appends(settings::home().is_some());
    if let Some(after) = settings::deploy_idle() {
        options = options.deploy_idle(after);
    }
    if let Some(bytes) = settings::reflection_budget() {
        options = options.reflection_budget(bytes);
    }
    options
}

/// Returns the length of a file, if the engine has it open here. Else the plain file tells it.
pub(crate) fn len_of(identity: Identity) -> Option<u64> {
    ask(identity, AtomicMappedFile::len)
}

/// Returns how many snapshots a file has, if the engine has it open here.
pub(crate) fn snapshots_of(identity: Identity) -> Option<usize> {
    ask(identity, |file| file.snapshots().len())
}

fn ask<R>(identity: Identity, question: impl FnOnce(&AtomicMappedFile) -> R) -> Option<R> {
    if !are_open() {
        return None;
    }
    let pair = find(identity)?;
    let _inside = Inside::enter(); // before the lock: see `close_all`
    match &*pair.state.read() {
        State::Open { file, .. } => Some(question(file)),
        State::Closed | State::Resting { .. } => None,
    }
}

/// Returns the bytes of a file, if this process has it open: one state of it. `begin` gets its
/// length, and may refuse. A file that rests stays so. Nothing is logged.
pub(crate) fn whole(
    identity: Identity,
    begin: impl FnOnce(u64) -> std::result::Result<(), &'static str>,
) -> Option<std::result::Result<Vec<u8>, String>> {
    let pair = find(identity)?;
    let _inside = Inside::enter(); // before the lock: see `close_all`
    match &*pair.state.read() {
        State::Open { file, .. } => Some(match begin(file.len()) {
            Ok(()) => file.read_vec().map_err(|error| error.to_string()),
            Err(why) => Err(why.to_owned()),
        }),
        State::Closed | State::Resting { .. } => None,
    }
}

pub(crate) fn find(identity: Identity) -> Option<Arc<Pair>> {
    unforked(|| {
        let list = LIST.lock();
        let found = list.iter().find(|entry| entry.pair.identity == identity);
        found.map(|entry| Arc::clone(&entry.pair))
    })
}

/// Returns `true` if this process has files open.
pub(crate) fn are_open() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Returns `true` if this process has the file open.
pub(crate) fn is_open(identity: Identity) -> bool {
    are_open() && find(identity).is_some()
}

fn all() -> Vec<Arc<Pair>> {
    if !are_open() {
        return Vec::new();
    }
    unforked(|| LIST.lock().iter().map(|entry| Arc::clone(&entry.pair)).collect())
}

/// Makes a durable point of each open file, after a publication.
pub(crate) fn sync_all() {
    for pair in all() {
        let _logged = pair.sync();
    }
}

/// Closes each file spatially, at the end of the process, after a publication. Later calls on them
/// fail. A thread that has a lock is inside, so one that is not waits for the calls of others. A
/// thread that is inside runs the handler of a signal: it skips a file after a second.
pub(crate) fn close_all(was_inside: bool) {
    for pair in all() {
        unforked(|| {
            let state = if was_inside {
                pair.state.try_write_for(Duration::from_secs(1))
            } else {
                Some(pair.state.write())
            };
            if let Some(mut state) = state {
                let _logged = pair.publish_in(&mut state);
                let _logged = state.close();
            }
        });
    }
}

/// Closes the files of `identities` spatially while `body` runs. The next call on one opens it
/// again. After an error of a close, and with a file that has regions, `body` does not run.
pub(crate) fn while_closed<R>(identities: &[Identity], body: impl FnOnce() -> R) -> Result<R> {
    let mut pairs = all();
    pairs.retain(|pair| identities.contains(&pair.identity));
    if pairs.is_empty() {
        return Ok(body());
    }
    // Two threads that close the same files take their locks in one order.
    pairs.sort_by_key(|pair| pair.identity);
    unforked(|| {
        let mut states: Vec<_> = pairs.iter().map(|pair| pair.state.write()).collect();
        if pairs.iter().any(|pair| !pair.regions().is_empty()) {
            log::line("a rename of a file with a shared mapping is refused: EBUSY");
            return Err(Errno(libc::EBUSY));
        }
        pairs.iter().zip(&mut states).try_for_each(|(pair, state)| pair.rest(state))?;
        Ok(body())
    })
}

/// Closes all files spatially, until the next call on each. If this process `goes_on`, some stay
/// open: those without a name, since nothing could open them again, those with regions, and those
/// with record locks, which would end.
pub(crate) fn rest_all(goes_on: bool) {
    for pair in all() {
        unforked(|| {
            let mut state = pair.state.write();
            if !goes_on || pair.can_rest() && !pair.is_locked.load(Ordering::Relaxed) {
                let _logged = pair.rest(&mut state);
            }
        });
    }
}

/// Closes a file spatially while `body` runs. The next call opens it again. One that this process
/// does not have open, or that cannot rest, stays as it is. After an error `body` does not run.
pub(crate) fn while_resting<R>(identity: Identity, body: impl FnOnce() -> Result<R>) -> Result<R> {
    let Some(pair) = find(identity) else { return body() };
    unforked(|| {
        let mut state = pair.state.write();
        if pair.can_rest() {
            pair.rest(&mut state)?;
        }
        body()
    })
}
