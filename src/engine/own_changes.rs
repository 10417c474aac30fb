//! Holds what a thread changes while it is inside the closure of `transact` or `update`.
//!
//! A closure that changes what its own transaction has read would be run for ever: each run makes the conflict that the
//! next one meets. So the thread notes the regions and pages that it changes by other operations meanwhile, and a
//! transaction that meets a conflict asks whether one of those is the reason. Deployments are not noted: they change no
//! bytes, and the next run finds the page at home.
//!
//! A thread that is inside no closure pays nothing for it: its short ways to write need the thread's tag to be that of
//! the file alone (`thread`), and inside a closure it is not. They then go the general way (`commit`), which notes.
//!
//! May import `thread`, `units`, `primitive`.

use crate::primitive;
use crate::thread;
use crate::units::RegionIndex;
use std::cell::RefCell;

/// What was changed under one closure.
#[derive(Default)]
struct Changes {
    file: u64,
    /// Pages, by region: bit = place. All where the region's version has changed.
    pages: Vec<(RegionIndex, u64)>,
    /// The length was changed.
    length: bool,
    /// The shortest length that the file was given.
    cut: Option<u64>,
}

primitive::local! {
    static CLOSURES: RefCell<Vec<Changes>> = RefCell::new(Vec::new());
}

/// A closure of this thread. Dropped when it has ended.
pub struct Closure {
    depth: Option<usize>,
    // Of this thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Closure {
    /// The thread enters a closure of a transaction on the file with this number.
    pub fn enter(file: u64) -> Closure {
        let depth = CLOSURES
            .try_with(|closures| {
                let mut closures = closures.borrow_mut();
                closures.push(Changes { file, ..Changes::default() });
                closures.len() - 1
            })
            .ok();
        thread::set_watched(depth.is_some());
        Closure { depth, _not_send: std::marker::PhantomData }
    }

    /// Which of the thread's closures it is.
    pub fn depth(&self) -> Option<usize> {
        self.depth
    }

    /// Forgets the changes up to now: everything that the transaction has read holds, or nothing was read.
    pub fn forget(depth: Option<usize>) {
        with(depth, |changes| {
            changes.pages.clear();
            changes.length = false;
            changes.cut = None;
        });
    }

    /// Returns whether the thread has changed the length.
    pub fn has_changed_length(&self) -> bool {
        with(self.depth, |changes| changes.length).unwrap_or(false)
    }

    /// Returns whether the thread has given a page a new version.
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
        thread::set_watched(depth > 0);
    }
}

fn with<R>(depth: Option<usize>, act: impl FnOnce(&mut Changes) -> R) -> Option<R> {
    let depth = depth?;
    CLOSURES.try_with(|closures| closures.borrow_mut().get_mut(depth).map(act)).ok()?
}

/// For each closure on the file with this number, but for the one at `own`: its commit is no change beside it.
fn note(file: u64, own: Option<usize>, act: impl Fn(&mut Changes)) {
    let _not_at_its_end = CLOSURES.try_with(|closures| {
        let mut closures = closures.borrow_mut();
        let all = closures.iter_mut().enumerate();
        all.filter(|(n, changes)| Some(*n) != own && changes.file == file)
            .for_each(|(_, changes)| act(changes));
    });
}

/// The thread has changed pages of a region.
pub fn note_pages(file: u64, own: Option<usize>, region: RegionIndex, mask: u64) {
    note(file, own, |changes| match changes.pages.last_mut() {
        Some((index, pages)) if *index == region => *pages |= mask,
        _ => changes.pages.push((region, mask)),
    });
}

/// The thread has changed the length. What lies past `cut` was cut off.
pub fn note_length(file: u64, cut: Option<u64>) {
    note(file, None, |changes| {
        changes.length = true;
        changes.cut = changes.cut.into_iter().chain(cut).min();
    });
}
