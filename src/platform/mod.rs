//! The machine: mapped memory, the processor's instructions for it, and the operating system.
//!
//! Owns: the only door to mapped memory, to the processor's copy, flush and drain instructions, and
//! to the operating system. This file holds the vocabulary; `memory.rs` holds the memory face, and
//! `os/calls` the operating system's face. Both are methods of [`Platform`]. In production a
//! `Platform` is the machine itself. For tests it may be a recorder, which sees every call and can
//! make it fail, or a simulated machine.
//!
//! Invariants:
//! - All `asm!`, intrinsics and libc calls of the crate are in this directory.
//! - Nothing here knows what the bytes mean.
//! - No reference to bytes of a mapped file leaves this directory: addresses go in, copies come
//!   out.
//!
//! May import: std, libc, memmap2, zerocopy, getrandom, crc32c, `primitive`, and the planted bugs;
//! `os/fork` also `thread_cache`. Nothing else of this crate: all of it lies above. `primitive`
//! provides the yield point with which every access to mapped bytes begins: under a model checker
//! the scheduler may switch threads there.

/// Calls the method of that name on the machine, the recorder or the simulated machine. The machine
/// itself gets the address of a [`Place`], which is checked.
macro_rules! by_machine {
    ($platform:ident.$method:ident($(place $place:ident)? $(, $arg:ident)*)) => {
        match $platform {
            Platform::Native(native) => native.$method($($place.checked(),)? $($arg),*),
            #[cfg(feature = "recorder")]
            Platform::Recording(recorder) => recorder.$method($($place,)? $($arg),*),
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => simulated.$method($($place,)? $($arg),*),
        }
    };
}

mod arch;
mod atomic_word;
mod copy;
mod memory;
mod os;
mod testing;
mod value;

use arch::isa;
pub use copy::{InLine, Native, STREAM_FROM_UNFLUSHED};
pub use isa::{Crc, weighted_sum};
#[cfg(feature = "recorder")]
use machine::Simulated;
use os::persistence_domain as domain;
pub use os::{
    CacheIdentity, File, FileStat, FileSystem, Folder, Mapping, NO_TIME, Name, OpenHow, Table,
    UNMAPPED, ZeroedBytes, ZeroedWords, fork, membarrier as barrier, signals, variable,
};
#[cfg(feature = "recorder")]
use recorder::Recorder;
pub use testing::call;
#[cfg(all(test, unix, not(miri)))]
pub use testing::exit_code_of;
#[cfg(feature = "recorder")]
#[doc(hidden)]
pub use testing::{recorder, simulated as machine};
pub use value::read_value;

use std::fmt;

/// The files of a pair, as the recorder's traces name them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FileId {
    /// The user's file.
    Home,
    /// Our companion file.
    Reflection,
    /// The journal of durable points.
    Journal,
    /// The snapshot store.
    Snapshots,
    /// The bytes that an import has received, and the new file that it makes of them.
    Spool,
}

/// The event that stores have to survive once `drain` has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persistence {
    /// Power loss: lines must be flushed.
    Flush,
    /// Power loss, but the persistence domain holds the processor's caches (eADR). No line is
    /// flushed; a drain still fences.
    Caches,
    /// A process crash only: neither flush nor fence is needed.
    Process,
}

/// How a copy reaches the mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copying {
    /// Through the cache or past it, whichever is faster for this size and alignment. The copy
    /// itself flushes where that is needed. Other threads may see the bytes late, until a drain.
    BySize,
    /// Through the cache: other threads see it in program order without a fence. Not flushed.
    Cached,
}

/// An address inside a mapping with its name in traces.
#[derive(Clone, Copy)]
pub struct Place {
    /// The address.
    pub ptr: *mut u8,
    /// The file that is mapped there.
    pub file: FileId,
    /// The offset in that file.
    pub offset: u64,
}

impl Place {
    /// Returns the address, and checks that the name fits it. Otherwise a trace would name other
    /// cache lines than those that were stored to. Mappings start at a page, so the two agree
    /// within a line.
    #[inline(always)]
    fn checked(self) -> *mut u8 {
        debug_assert!(
            self.ptr.addr() as u64 % 64 == self.offset % 64,
            "{self:?} does not name its address"
        );
        self.ptr
    }

    /// Returns the place `len` bytes after this one, in the same mapping.
    fn plus(self, len: usize) -> Place {
        Place { ptr: self.ptr.wrapping_add(len), offset: self.offset + len as u64, ..self }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}+{:#x} at {:p}", self.file, self.offset, self.ptr)
    }
}

/// The machine. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Platform {
    /// The machine itself.
    Native(Native),
    /// The machine, seen through a recorder.
    #[cfg(feature = "recorder")]
    Recording(Recorder),
    /// Another machine, simulated.
    #[cfg(feature = "recorder")]
    Simulated(Simulated),
}

impl Platform {
    /// Returns this machine. Its stores need to survive only a process crash until
    /// [`Platform::with_persistence`] demands more.
    pub fn native() -> Platform {
        Platform::Native(Native::new())
    }

    /// Returns a simulated machine.
    #[cfg(feature = "recorder")]
    pub fn simulated(machine: std::sync::Arc<dyn machine::Machine>) -> Platform {
        Platform::Simulated(Simulated::new(machine))
    }

    /// Returns this machine with another demand on stores.
    pub fn with_persistence(self, persistence: Persistence) -> Platform {
        match self {
            Platform::Native(native) => Platform::Native(native.with_persistence(persistence)),
            #[cfg(feature = "recorder")]
            Platform::Recording(recorder) => {
                Platform::Recording(recorder.with_persistence(persistence))
            }
            #[cfg(feature = "recorder")]
            Platform::Simulated(simulated) => {
                Platform::Simulated(simulated.with_persistence(persistence))
            }
        }
    }

    /// Returns `true` if this build can write cache lines back, as [`Persistence::Flush`] demands.
    pub fn can_flush(&self) -> bool {
        isa::FLUSHES
    }

    /// Returns `true` if this machine is simulated.
    pub fn is_simulated(&self) -> bool {
        #[cfg(feature = "recorder")]
        if let Platform::Simulated(_) = self {
            return true;
        }
        false
    }

    /// Returns `true` if the crate's background thread may work on this machine. It may not where
    /// the order of events has to be the same in each run.
    pub fn may_work_in_background(&self) -> bool {
        #[cfg(feature = "recorder")]
        if let Platform::Recording(recorder) = self {
            return !recorder.is_background_held();
        }
        !self.is_simulated()
    }

    /// Returns `true` if the processor's caches survive power loss. Those of a simulated machine
    /// never do, whatever machine it runs on.
    pub fn caches_persist(&self) -> bool {
        !self.is_simulated() && domain::caches_persist()
    }

    /// Returns what stores have to survive.
    #[inline]
    pub fn persistence(&self) -> Persistence {
        by_machine!(self.persistence())
    }
}
