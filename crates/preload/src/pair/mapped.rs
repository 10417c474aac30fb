//! Operations on files that may have regions, and the life of a region.
//!
//! May import: `errno`, `inside`, `log`, `regions`.

use super::{LIST, Pair, State, generation, leave, unforked};
use crate::errno::{Errno, Result};
use crate::inside::Inside;
use crate::log;
use crate::regions::{self, Memory, Region};
use atomic_mmap::{AtomicMappedFile, Error};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every address.
const ALL: Range<usize> = 0..usize::MAX;

fn refuse_overlap() -> Errno {
    log::line("a second shared mmap of other pages that overlap: ENODEV");
    Errno(libc::ENODEV)
}

impl Pair {
    /// Runs an operation that changes the file. It returns the range that it has written. Bytes
    /// between the end of the file before and that range are changed as well.
    pub fn change<R>(
        &self,
        body: impl FnOnce(&AtomicMappedFile) -> atomic_mmap::Result<(R, Range<u64>)>,
    ) -> Result<R> {
        self.with(|file| {
            let before = file.len();
            let done = body(file);
            // An operation that has failed in its durable point has changed the file.
            self.note_change();
            let (result, changed) = done?;
            let regions = self.regions();
            if !regions.is_empty() {
                let _showing = self.showing.lock();
                regions::show(file, &regions, &(changed.start.min(before)..changed.end))?;
            }
            Ok(result)
        })
    }

    /// Runs `body` while no other call of the file runs.
    fn exclusively<R>(&self, body: impl FnOnce(&AtomicMappedFile) -> Result<R>) -> Result<R> {
        loop {
            let inside = Inside::enter(); // before the lock: see `close_all`
            let state = self.state.write();
            if let State::Open { file, .. } = &*state {
                return body(file);
            }
            drop((state, inside));
            self.wake()?;
        }
    }

    pub(super) fn regions(&self) -> Vec<Arc<Region>> {
        regions::of(self.identity, generation())
    }

    /// Publishes all changes of the regions. A file that rests is opened for that.
    pub(super) fn publish_in(&self, state: &mut State) -> Result<()> {
        let regions = self.regions();
        if regions.is_empty() {
            return Ok(());
        }
        self.open_again(state)?;
        match state {
            State::Open { file, .. } => regions::publish(file, &regions, &ALL),
            State::Closed | State::Resting { .. } => Ok(()),
        }
    }

    /// Writes what the program has changed at `addresses` to the file, as one operation.
    pub fn publish(&self, addresses: &Range<usize>) -> Result<()> {
        if self.regions().is_empty() {
            return Ok(());
        }
        self.exclusively(|file| {
            let published = regions::publish(file, &self.regions(), addresses);
            self.note_change();
            published
        })
    }

    /// Publishes all changes of the regions, and makes a durable point.
    pub fn sync(&self) -> Result<()> {
        self.publish(&ALL)?;
        self.sync_published()
    }

    /// Makes a durable point.
    pub fn sync_published(&self) -> Result<()> {
        self.with(|file| match file.sync() {
            Err(Error::ReadOnly { .. }) => Ok(0), // nothing to make durable
            made => made,
        })
        .map(drop)
    }

    /// Checks that no region has some of `bytes` of the file, except at `over`.
    pub fn check_map(&self, bytes: &Range<u64>, over: &Range<usize>) -> Result<()> {
        unforked(|| {
            self.exclusively(|_| {
                let stays = |region: &Arc<Region>| {
                    let these = region.addresses_of(bytes);
                    regions::outside(&these, over).iter().any(|part| !part.is_empty())
                };
                if self.regions().iter().any(stays) { Err(refuse_overlap()) } else { Ok(()) }
            })
        })
    }

    /// Makes a region of `bytes` of the file, which is its user. `make` returns the first address
    /// of memory with these bytes. If there is a region of them already and `joins`, it becomes one
    /// more mapping. Returns the first address.
    pub fn map(
        &self,
        bytes: &Range<u64>,
        joins: bool,
        make: impl FnOnce(&AtomicMappedFile) -> Result<(usize, Arc<dyn Memory>)>,
    ) -> Result<usize> {
        unforked(|| {
            self.exclusively(|file| {
                let overlaps =
                    |region: &&Arc<Region>| !regions::common(&region.bytes(), bytes).is_empty();
                if let Some(region) = self.regions().iter().find(overlaps) {
                    if joins && region.bytes() == *bytes {
                        region.mappings.fetch_add(1, Ordering::Relaxed);
                        return Ok(region.addresses.start);
                    }
                    return Err(refuse_overlap());
                }
                let (start, memory) = make(file)?;
                regions::insert(Arc::new(Region {
                    identity: self.identity,
                    generation: generation(),
                    addresses: start..start + (bytes.end - bytes.start) as usize,
                    offset: bytes.start,
                    memory,
                    mappings: AtomicUsize::new(1),
                }))?;
                self.count_users(1);
                Ok(start)
            })
        })
    }

    /// Publishes the changes at `addresses`, which are in one region, and ends a mapping there. If
    /// it was the last one, `unmap` unmaps them. After an error the mapping goes on.
    pub fn unmap(
        &self,
        addresses: &Range<usize>,
        unmap: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        unforked(|| {
            let is_last = self.exclusively(|file| {
                let all = self.regions();
                let is_there =
                    |it: &&Arc<Region>| !regions::common(&it.addresses, addresses).is_empty();
                let Some(region) = all.iter().find(is_there) else {
                    return unmap().map(|()| false); // another thread has ended it
                };
                let published = regions::publish(file, &all, addresses);
                self.note_change();
                published?;
                if region.is_shared() {
                    return region.leave(addresses).map(|()| false);
                }
                // Without its region no other thread takes these addresses for the file's.
                let left = regions::cut(region, addresses)?;
                if let Err(errno) = unmap() {
                    regions::mend(region, &left)?;
                    return Err(errno);
                }
                self.count_users(left.len().saturating_sub(1));
                Ok(left.is_empty())
            })?;
            if is_last {
                // The memory is gone, and the file has its bytes.
                let _logged = leave(self, self.state.write());
            }
            Ok(())
        })
    }

    /// Adds users that are regions. The caller is inside the gate.
    fn count_users(&self, more: usize) {
        let mut list = LIST.lock();
        if let Some(entry) = list.iter_mut().find(|entry| std::ptr::eq(&*entry.pair, self)) {
            entry.users += more;
        }
    }
}
