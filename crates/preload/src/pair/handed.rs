//! Files of descriptors that come from another process: by an exec, or by a fork.
//!
//! Such a file rests until the first call on it. A program that only inherits a descriptor keeps
//! the file from no other process.

use super::{Anchor, Identity, LIST, Pair, State, acquire, insert, unforked};
use crate::errno::Result;
use std::ffi::c_int;
use std::sync::Arc;

/// Takes the file of a descriptor. The first call opens it, unless another thread has it open.
pub(crate) fn wait_for_call(of: c_int, identity: Identity, writes: bool) -> Result<Arc<Pair>> {
    let made = unforked(|| {
        let anchor = Arc::new(Anchor::of(of)?);
        let mut list = LIST.lock();
        let is_new = list.iter().all(|entry| entry.pair.identity != identity);
        let state = State::Resting { is_read_only: !writes };
        Ok(is_new.then(|| insert(&mut list, identity, anchor, state)))
    })?;
    made.map_or_else(|| acquire(of, identity, writes), Ok)
}

/// Takes a file over from the parent of this child of `fork`, if it was plain at the fork. Called
/// while the child has one thread.
pub(crate) fn take_over(parents: &Pair) -> Option<Arc<Pair>> {
    if !parents.is_plain() {
        return None;
    }
    unforked(|| {
        let mut list = LIST.lock();
        if let Some(entry) = list.iter_mut().find(|entry| entry.pair.identity == parents.identity) {
            entry.users += 1;
            return Some(Arc::clone(&entry.pair));
        }
        // A thread of the parent may have the lock for ever.
        let is_read_only = match *parents.state.try_read()? {
            State::Resting { is_read_only } => is_read_only,
            State::Closed | State::Open { .. } => return None,
        };
        let state = State::Resting { is_read_only };
        Some(insert(&mut list, parents.identity, Arc::clone(&parents.anchor), state))
    })
}
