//! The primitives of a model checker, with the interfaces of those of a normal build.
//!
//! loom and shuttle both imitate `std`. Here their locks get the interfaces of `parking_lot`: no
//! poison, and a condition variable that borrows its guard. A waiting thread yields to the
//! scheduler: a model has no time, so a thread that sleeps would never continue.

#[cfg(loom)]
use ::loom as checker;
#[cfg(shuttle)]
use ::shuttle as checker;

#[cfg(loom)]
pub use super::ordered::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
#[cfg(shuttle)]
pub use checker::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};

use checker::sync as inner;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A mutex as `parking_lot::Mutex`.
#[derive(Debug)]
pub struct Mutex<T>(inner::Mutex<T>);

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

/// A guard as `parking_lot::MutexGuard`. Empty only while a condition variable has it.
pub struct MutexGuard<'a, T>(Option<inner::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(inner::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("no condition variable has it")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("no condition variable has it")
    }
}

/// A condition variable as `parking_lot::Condvar`.
#[derive(Debug)]
pub struct Condvar(inner::Condvar);

impl Condvar {
    pub fn new() -> Self {
        Condvar(inner::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let Some(held) = guard.0.take() else { return };
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A lock as `parking_lot::RwLock`.
#[derive(Debug)]
pub struct RwLock<T>(inner::RwLock<T>);

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        RwLock(inner::RwLock::new(value))
    }

    pub fn read(&self) -> inner::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn write(&self) -> inner::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cell as `once_cell::race::OnceBox`. Here a second thread that makes the value waits for the
/// first one. There both threads make one, and one value is dropped.
#[derive(Debug)]
pub struct OnceBox<T>(OnceLock<Box<T>>);

impl<T> OnceBox<T> {
    pub fn new() -> Self {
        OnceBox(OnceLock::new())
    }

    pub fn get(&self) -> Option<&T> {
        self.0.get().map(|value| &**value)
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> Box<T>) -> &T {
        self.0.get_or_init(make)
    }
}

/// A cell as [`std::sync::OnceLock`], which holds the value. A modelled word decides which thread
/// sets the value, and which threads see it.
#[derive(Debug)]
pub struct OnceLock<T> {
    step: AtomicU8,
    value: std::sync::OnceLock<T>,
}

const EMPTY: u8 = 0;
const BEING_SET: u8 = 1;
const SET: u8 = 2;

impl<T> OnceLock<T> {
    pub fn new() -> Self {
        OnceLock { step: AtomicU8::new(EMPTY), value: std::sync::OnceLock::new() }
    }

    pub fn get(&self) -> Option<&T> {
        (self.step.load(Ordering::Acquire) == SET).then(|| self.value.get()).flatten()
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let mine = self
            .step
            .compare_exchange(EMPTY, BEING_SET, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if mine {
            let value = self.value.get_or_init(make);
            self.step.store(SET, Ordering::Release);
            return value;
        }
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            checker::thread::yield_now();
        }
    }
}

/// Declares a thread local as [`std::thread_local`], for values of constant expressions.
macro_rules! local {
    (static $name:ident: $type:ty = $init:expr;) => {
        $crate::primitive::thread_local! { static $name: $type = $init; }
    };
}
pub use checker::thread_local;
pub(crate) use local;

/// A backoff as `crossbeam_utils::Backoff`, but one that never completes: the scheduler has to
/// bring about what it waits for.
#[derive(Debug)]
pub struct Backoff;

impl Backoff {
    pub fn new() -> Self {
        Backoff
    }

    pub fn is_completed(&self) -> bool {
        false
    }

    pub fn snooze(&self) {
        checker::thread::yield_now();
    }
}

/// Lets other threads continue: there is no time to wait for.
pub fn sleep(_duration: Duration) {
    checker::thread::yield_now();
}

/// Marks a point at which the scheduler may switch to another thread.
///
/// Under shuttle this loads a word without meaning: a yield would tell priority-based schedulers
/// that this thread is waiting. Under loom it does nothing: loom has no mapped bytes, and explores
/// words only.
#[inline]
pub fn yield_point() {
    #[cfg(shuttle)]
    {
        std::thread_local! {
            static NO_MEANING: AtomicBool = const { AtomicBool::new(false) };
        }
        NO_MEANING.with(|word| word.load(Ordering::SeqCst));
    }
}

/// Returns the thread's number within one execution, or `None` if the thread is ending. Threads are
/// numbered in the order of their first calls, so that one schedule always has the same numbers.
pub fn thread_number() -> Option<u64> {
    checker::lazy_static! {
        static ref THREADS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    }
    checker::thread_local! {
        static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.try_with(|number| *number).ok()
}
