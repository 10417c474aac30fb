//! The chosen files that this process has open, shared by their descriptions.
//!
//! Invariants:
//! - A file is open in the engine while it has users. The last user closes it spatially, so that
//!   what is left is one plain file.
//! - Locks are taken in the order gate, state, list. The list is never held across a call of the
//!   engine.
//! - A child of `fork` has an empty list. It touches no pair of its parent: their
//!   locks may be held.
//!
//! May import: `errno`, `inside`, `log`, `settings`.

use crate::errno::{Errno, Result};
use crate::inside::{self, Inside};
use crate::{log, settings};
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Error};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    /// Absolute and without links.
    path: Mutex<PathBuf>,
    state: RwLock<State>,
}

struct Entry {
    pair: Arc<Pair>,
    users: usize,
}

/// The pairs with users, and those that their last user is closing.
static LIST: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// The length of the list: `stat` of a process without pairs looks at nothing else.
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

/// Runs `body`, which no fork interrupts. Without a lock that parks threads: the parking lot's own
/// locks may be held at a fork.
fn unforked<R>(body: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE_GATE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    if inside::is_inside() {
        return body(); // the thread has passed the gate
    }
    loop {
        // SeqCst: one of the two sees the other, this thread or the one that forks.
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
    GENERATION.fetch_add(1, Ordering::SeqCst);
    FORKS.store(0, Ordering::SeqCst);
    INSIDE_GATE.store(0, Ordering::SeqCst);
    // A drop would take locks that threads of the parent may hold.
    std::mem::forget(std::mem::take(&mut *LIST.lock()));
    COUNT.store(0, Ordering::Relaxed);
}

/// Returns the generation of this process.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Opens a file, or joins its users. `path` is absolute and without links.
pub(crate) fn acquire(path: &Path, identity: Identity, writes: bool) -> Result<Arc<Pair>> {
    unforked(|| {
        let pair = join(path, identity);
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
        let opened = open(path, writes || before == Some(false));
        match opened {
            Ok(opened) => {
                *state = opened;
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

fn open(path: &Path, writes: bool) -> Result<State> {
    // The constructor has refused unknown values.
    let durability = settings::durability().unwrap_or(Durability::OnSync);
    let options = AtomicMappedFile::options().durability(durability);
    // A dropped pair was not closed for a reason, and stays as a crash leaves it.
    let options = options.close_on_drop(CloseMode::Unsynced);
    let file = options.read_only(!writes).open(path).map_err(|error| Errno::of(&error))?;
    Ok(State::Open { file, is_read_only: !writes })
}

fn join(path: &Path, identity: Identity) -> Arc<Pair> {
    let mut list = LIST.lock();
    if let Some(entry) = list.iter_mut().find(|entry| entry.pair.identity == identity) {
        entry.users += 1;
        return Arc::clone(&entry.pair);
    }
    let pair = Arc::new(Pair {
        identity,
        path: Mutex::new(path.to_owned()),
        state: RwLock::new(State::Closed),
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
    let closed = state.close();
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
                file.close(CloseMode::Spatial).map_err(|error| Errno::of(&error))
            }
        }
    }

    /// Closes the file until the next call.
    fn rest(&mut self) {
        if let State::Open { is_read_only, .. } = *self {
            let _logged = self.close();
            *self = State::Resting { is_read_only };
        }
    }
}

impl Pair {
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
            if let State::Open { file, .. } = &*self.state.read() {
                return body(file).map_err(|error| Errno::of(&error));
            }
            self.wake()?;
        }
    }

    /// Opens the file again, if it rests.
    fn wake(&self) -> Result<()> {
        unforked(|| {
            let mut state = self.state.write();
            match *state {
                State::Open { .. } => {}
                State::Resting { is_read_only } => {
                    *state = open(&self.path.lock(), !is_read_only)?;
                }
                State::Closed => {
                    log::line(
                        "a call on a file that exit has closed, or that a rename has replaced",
                    );
                    return Err(Errno::IO);
                }
            }
            Ok(())
        })
    }

    /// Returns `true` if the file is plain now, as far as can be told without waiting.
    pub fn is_resting(&self) -> bool {
        let state = self.state.try_read();
        state.is_some_and(|state| matches!(*state, State::Resting { .. }))
    }
}

/// Returns the length of a file, if this process has it open.
pub(crate) fn len_of(identity: Identity) -> Option<u64> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let pair = find(identity)?;
    match &*pair.state.read() {
        State::Open { file, .. } => Some(file.len()),
        State::Closed | State::Resting { .. } => None, // the plain file tells it
    }
}

fn find(identity: Identity) -> Option<Arc<Pair>> {
    unforked(|| {
        let list = LIST.lock();
        let found = list.iter().find(|entry| entry.pair.identity == identity);
        found.map(|entry| Arc::clone(&entry.pair))
    })
}

/// Returns `true` if this process has the file open.
pub(crate) fn is_open(identity: Identity) -> bool {
    COUNT.load(Ordering::Relaxed) > 0 && find(identity).is_some()
}

fn all() -> Vec<Arc<Pair>> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Vec::new();
    }
    unforked(|| LIST.lock().iter().map(|entry| Arc::clone(&entry.pair)).collect())
}

/// Makes a durable point of each open file.
pub(crate) fn sync_all() {
    for pair in all() {
        let _logged = pair.with(AtomicMappedFile::sync);
    }
}

/// Closes each file spatially, at the end of the process. Later calls on them fail. Skips a file
/// that another thread, or the code that a signal has interrupted, is using.
pub(crate) fn close_all() {
    for pair in all() {
        unforked(|| {
            if let Some(mut state) = pair.state.try_write_for(Duration::from_secs(1)) {
                let _logged = state.close();
            }
        });
    }
}

/// Closes files spatially while `body` runs: those of `identities`, or all. The next call on one
/// opens it again, at the path that `path` returns for it then.
pub(crate) fn while_closed<R>(
    identities: Option<&[Identity]>,
    body: impl FnOnce() -> R,
    path: impl Fn(Identity) -> Option<PathBuf>,
) -> R {
    let mut pairs = all();
    pairs.retain(|pair| identities.is_none_or(|of| of.contains(&pair.identity)));
    if pairs.is_empty() {
        return body();
    }
    unforked(|| {
        let mut states: Vec<_> = pairs.iter().map(|pair| pair.state.write()).collect();
        states.iter_mut().for_each(|state| state.rest());
        let result = body();
        for (pair, state) in pairs.iter().zip(&mut states) {
            match path(pair.identity) {
                Some(path) => *pair.path.lock() = path,
                None => **state = State::Closed, // it has no name any more
            }
        }
        result
    })
}

/// Closes all files spatially, until the next call on each.
pub(crate) fn rest_all() {
    for pair in all() {
        unforked(|| pair.state.write().rest());
    }
}

/// Recovers a file that a crash has left, and closes it spatially. A file that another process has
/// open stays as it is.
pub(crate) fn settle(path: &Path) -> Result<()> {
    unforked(|| open(path, true)?.close())
}

/// Returns `true` for an error that means "another operation came between".
pub(crate) fn is_past_end(error: &Error) -> bool {
    matches!(error, Error::PastEnd { .. })
}
