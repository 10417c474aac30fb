//! The deployment of pages that the caller has locked.
//!
//! The home slots are not valid while they are copied to. Each word that is stored moves whole
//! pages. So after a crash each page is either deployed or not, with equal bytes. A page that its
//! region bit alone has sent to the reflection file is deployed by that bit; any other page by its
//! slice word. So the word was stored before, and needs no allocation.
//!
//! May import `commit`, `durable`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::{Side, Slices, Validity, span};
use crate::engine::Engine;
use crate::engine::commit::publish;
use crate::engine::plan::{self, RegionPlan, WordUpdate};
use crate::error::Result;
use crate::format::entry::WordId;
use crate::format::layout;
use crate::lock::LockGuard;
use crate::mutant::{planted, unless};
use crate::pair::log::lane::Lane;
use crate::pair::log::records::PageSlices;
use crate::pair::stats::Counter;
use crate::units::{PAGE, PageIndex, SLICE};
use std::ops::Range;

/// The treatment of pages that a view pins, or that have staged slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Pins {
    /// They are not deployed.
    Respect,
    /// They are deployed: no view and no stage can be used any more.
    Ignore,
}

/// Which pages are deployed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) enum Which {
    /// All that are not deployed yet.
    All,
    /// All that are not deployed yet, and no reader has asked for it. They get no stamp, which
    /// takes memory and says that readers have come.
    Unread,
    /// The pages of a region, unless all of them that lie in the range are in the reflection file
    /// as a whole. From there they are read as fast.
    Scattered,
}

impl Engine {
    /// Deploys pages of `range` in regions that are loaded. `pins` and `which` select the pages.
    /// Returns the number of pages that were deployed.
    pub(in crate::engine) fn deploy_pages(
        &self,
        range: Range<u64>,
        pins: Pins,
        which: Which,
    ) -> Result<u64> {
        self.check_usable()?;
        let mut deployed = 0;
        let lane = self.lane();
        for span in span::regions(range.clone()) {
            let Some(region) = self.state.loaded(span.region) else { continue };
            let plan = RegionPlan::touching(region, &span);
            // Checked without locks: a page that is written meanwhile need not be deployed by this
            // call.
            let stays = |n: usize| {
                let away = region.validity(n).in_reflection(Slices::ALL);
                away.without(region.changed_slices(n)).is_empty()
                    || pins == Pins::Respect && region.is_held_back(n)
            };
            let is_away = |n: usize| region.validity(n) == Validity(!0);
            let is_as_good = which == Which::Scattered && plan.pages().all(is_away);
            if is_as_good || plan.pages().all(stays) {
                continue;
            }
            let _inside = self.enter_cut(&lane);
            let held = plan::lock_all(&[plan]);
            self.check_usable_still()?;
            self.check_range(range.start, range.end - range.start)?;
            deployed += self.deploy_locked(&lane, &plan, &held, (pins, which))?;
        }
        Ok(deployed)
    }

    /// Deploys the pages of the plan, with two drains for all of them. `held` includes their locks.
    /// Returns the number of pages that were deployed.
    pub(super) fn deploy_locked(
        &self,
        lane: &Lane,
        plan: &RegionPlan<'_>,
        held: &[LockGuard<'_>],
        (pins, which): (Pins, Which),
    ) -> Result<u64> {
        let region = plan.state;
        // If a slice has changed since the last durable point, its home slot belongs to that point,
        // so the slice stays behind.
        let away = |n: usize| {
            let kept =
                if planted!(DeployDurableSlots) { Slices::NONE } else { region.changed_slices(n) };
            region.validity(n).in_reflection(Slices::ALL).without(kept)
        };
        let is_held_back = |n: usize| {
            let is_staged = !region.staged_slices(n).is_empty() && !planted!(DeployOverStage);
            region.is_pinned(n) && !planted!(DeployOverView) || is_staged
        };
        // A page that its region bit alone has sent to the reflection file is deployed by that bit,
        // unless slices stay behind. The region word is allocated already.
        let may_by_region_bit = |n: usize| {
            let comes_as_a_whole = away(n) == Slices::ALL || planted!(DeployChangedByRegionBit);
            region.region_bit(n) && comes_as_a_whole
        };
        let pages: Vec<usize> = plan
            .pages()
            .filter(|&n| !away(n).is_empty())
            .filter(|&n| pins == Pins::Ignore || !is_held_back(n))
            .collect();
        // If another writer has locked the region word, these pages are deployed by their slice
        // words, if those can be allocated. The word stays locked until this function returns: no
        // other writer stores to it before it is drained and its cached copy is changed.
        let needs_word = !plan.is_exclusive() && pages.iter().any(|&n| may_by_region_bit(n));
        let taken =
            needs_word.then(|| self.take_word(plan, || self.ensure_slice_word(plan.index.page(0))));
        let has_word = !matches!(taken, Some(None));
        let _taken = taken.flatten().filter(|_| !planted!(DeployWordGivenBack));
        let by_region_bit = |n: usize| has_word && may_by_region_bit(n);
        for &n in &pages {
            let start = plan.index.page(n).start();
            let slots = start..start + PAGE as u64;
            unless!(DeployHomeNotAllocated, self.ensure_slots(lane, Side::Home, slots)?);
            if !by_region_bit(n) {
                // The word was stored before, so it is allocated. But that may have been before
                // this file was opened, so the flag may not be set yet.
                self.ensure_slice_word(plan.index.page(n))?;
            }
        }
        if pages.is_empty() {
            return Ok(0);
        }
        let unfinished = self.begin("deployment");
        pages.iter().for_each(|&n| self.note_changed(plan.index.page(n)));
        let targets =
            pages.iter().map(|&n| PageSlices { page: plan.index.page(n), region, slices: away(n) });
        unless!(DeployNoClear, self.invalidate_records(lane, targets));
        for &n in &pages {
            self.copy_home(lane, plan.index.page(n), away(n));
        }
        let moves = words_of(plan, &pages, away, by_region_bit);
        // Orders the home slots, and the invalidation of active records that name them, before the
        // words that make them valid.
        unless!(DeployNoDrainBeforeWords, self.drain(lane));
        self.store_updates(lane, &moves);
        // Orders the words before the next writer's stores to the reflection slots. If a word were
        // lost, those slots would be valid again.
        unless!(DeployNoDrainAfterWords, self.drain(lane));
        unless!(DeployNotClosed, held.iter().for_each(LockGuard::close));
        moves.iter().for_each(|change| publish(region, change));
        unfinished.end();
        if pins == Pins::Respect {
            // The file stays in use, so readers profit from the loadable flag and the stamps.
            self.note_loadable(region, plan.index);
            let stamped = pages.iter().filter(|_| which != Which::Unread);
            stamped.for_each(|&n| self.stamp_deployed(plan.index.page(n), region));
        }
        lane.stats.bump(Counter::Deployments, pages.len() as u64);
        Ok(pages.len() as u64)
    }

    /// Copies slices of a page to the home file. The caller has allocated their home slots.
    fn copy_home(&self, lane: &Lane, page: PageIndex, slices: Slices) {
        for run in slices.runs() {
            let offset = page.start() + (run.start * SLICE) as u64;
            let (len, from) = (run.len() * SLICE, layout::reflection(offset));
            self.home.copy_across(offset, &self.reflection, from, len);
            lane.stats.bump(Counter::BytesWritten, len as u64);
        }
    }
}

/// Returns the changes of words that deploy the slices `away` of these pages.
fn words_of(
    plan: &RegionPlan<'_>,
    pages: &[usize],
    away: impl Fn(usize) -> Slices,
    by_region_bit: impl Fn(usize) -> bool,
) -> Vec<WordUpdate> {
    let region = plan.state;
    let (by_region, by_slices): (Vec<usize>, Vec<usize>) =
        pages.iter().partition(|&&n| by_region_bit(n));
    let by_slices = by_slices.iter().map(|&n| WordUpdate {
        word: WordId::Slice(plan.index.page(n)),
        mask: away(n).0,
        old: region.pages[n].slice_word(),
    });
    let mut moves: Vec<WordUpdate> = by_slices.collect();
    if !by_region.is_empty() {
        moves.push(WordUpdate {
            word: WordId::Region(plan.index),
            mask: by_region.iter().fold(0, |mask, n| mask | 1 << n),
            old: region.region_word(),
        });
    }
    moves
}
