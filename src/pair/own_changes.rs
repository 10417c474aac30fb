//! Holds what a thread changes while it runs the closure of `transact` or `update`.
//!
//! A closure may change what its own transaction has read, by another operation on the file. It
//! would then run forever: each run causes the conflict of the next one. So the thread notes the
//! regions and pages that it changes by other operations inside a closure. A transaction that meets
//! a conflict checks whether one of those is the reason. Deployments are not noted: they change no
//! bytes, and the next run finds the page deployed.
//!
//! A thread outside of all closures pays nothing for this. The fast paths of a write require that
//! the thread's tag equals the file's (`thread_cache`). Inside a closure the tag differs, so all
//! writes take the slow path (`write::general`), which notes them.
//!
//! May import `thread_cache`, `units`, `primitive`.

use crate::units::RegionIndex;
use crate::{primitive, thread_cache};
use std::cell::RefCell;

/// The thread's changes inside one closure, other than by its transaction.
#[derive(Default)]
struct Changes {
    file: u64,
    /// The changed pages of each region, one bit a page. All bits are set if the region's version
    /// has changed.
    pages: Vec<(RegionIndex, u64)>,
    /// `true` if the length was changed.
    length: bool,
    /// The shortest length that the file was set to.
    cut: Option<u64>,
}

primitive::local! {
    static CLOSURES: RefCell<Vec<Changes>> = RefCell::new(Vec::new());
}

/// A closure that this thread is running. Dropped when the closure has ended.
pub struct Closure {
    depth: Option<usize>,
    // The closure belongs to this thread, so the type is not `Send`.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Closure {
    /// Enters a closure of a transaction on the file with this number.
    pub fn enter(file: u64) -> Closure {
        let depth = CLOSURES
            .try_with(|closures| {
                let mut closures = closures.borrow_mut();
                closures.push(Changes { file, ..Changes::default() });
                closures.len() - 1
            })
            .ok();
        thread_cache::set_watched(depth.is_some());
        Closure { depth, _not_send: std::marker::PhantomData }
    }

    /// Returns the closure's position among the nested closures of the thread.
    pub fn depth(&self) -> Option<usize> {
        self.depth
    }

    /// Forgets the changes up to now. The caller has found that everything its transaction has read
    /// still holds, or has read nothing.
    pub fn forget(depth: Option<usize>) {
        with(depth, |changes| {
            changes.pages.clear();
            changes.length = false;
            changes.cut = None;
        });
    }

    /// Returns `true` if the thread has changed the length.
    pub fn has_changed_length(&self) -> bool {
        with(self.depth, |changes| changes.length).unwrap_or(false)
    }

    /// Returns `true` if the thread has given the page a new version.
    pub fn has_changed(&self, region: RegionIndex, place: usize) -> bool {
        let ends_past = |cut: u64| RegionIndex(region.0 + 1).start() > cut;
        with(self.depth, |changes| {
            let mut pages = changes.pages.iter();
            pages.any(|(index, mask)| *index == region && mask >> place & 1 == 1)
                || changes.cut.is_some_and(ends_past)
        })
        .unwrap_or(false)
    }
}

impl Drop for Closure {
    fn drop(&mut self) {
        let Some(depth) = self.depth else { return };
        let _not_at_its_end = CLOSURES.try_with(|closures| closures.borrow_mut().truncate(depth));
        thread_cache::set_watched(depth > 0);
    }
}

fn with<R>(depth: Option<usize>, act: impl FnOnce(&mut Changes) -> R) -> Option<R> {
    let depth = depth?;
    CLOSURES.try_with(|closures| closures.borrow_mut().get_mut(depth).map(act)).ok()?
}

/// Calls `act` for each closure on the file with this number, except the closure at `own`. The
/// commit of that closure's own transaction is not noted.
fn note(file: u64, own: Option<usize>, act: impl Fn(&mut Changes)) {
    let _not_at_its_end = CLOSURES.try_with(|closures| {
        let mut closures = closures.borrow_mut();
        let all = closures.iter_mut().enumerate();
        all.filter(|(n, changes)| Some(*n) != own && changes.file == file)
            .for_each(|(_, changes)| act(changes));
    });
}

/// Notes that the thread has changed the pages of `mask` in `region`.
pub fn note_pages(file: u64, own: Option<usize>, region: RegionIndex, mask: u64) {
    note(file, own, |changes| match changes.pages.last_mut() {
        Some((index, pages)) if *index == region => *pages |= mask,
        _ => changes.pages.push((region, mask)),
    });
}

/// Notes that the thread has changed the length. A shrink passes the new length as `cut`.
pub fn note_length(file: u64, own: Option<usize>, cut: Option<u64>) {
    note(file, own, |changes| {
        changes.length = true;
        changes.cut = changes.cut.into_iter().chain(cut).min();
    });
}
