//! Keeps for snapshots what a crashed session had not kept.
//!
//! Where durable points are kept, a snapshot reads what no record has from the slot of the last
//! durable point, and each point keeps before it. After a process crash the working state counts,
//! and opening makes it a point. So opening keeps as a point does, by the durable words: slices
//! with another working word, and what a shrink has cut off.
//!
//! In a file with page sums, the page that the durable word names is compared with its sums first.
//! If it has none of them, the record gets a sum that the page does not have. So a snapshot does
//! not read it, whether its word is damaged or its bytes are.
//!
//! Invariant: all of it is durable before the recovered state counts. May import `replay_journal`,
//! `sums`, `snapshots`, `engine` and below.

use super::replay_journal::{Pair, next_region_words, page_of_words, region_bit, words_of};
use crate::bitmap::{Side, Slices, Validity};
use crate::error::{Error, Result};
use crate::format::layout::{self, SUM_PLACES};
use crate::format::le_word;
use crate::format::snapshots::segment::{Record, SealSum};
use crate::format::snapshots::table::Entry;
use crate::mutant::planted;
use crate::page_sum;
use crate::pair::snapshots::Store;
use crate::units::{LaneIndex, PAGE, PageIndex, RegionIndex, SLICE, SUPERCHUNK, WORD};

/// The lane that appends. No other thread has the pair.
const LANE: LaneIndex = LaneIndex(0);

impl Pair<'_> {
    /// Keeps what the live snapshots of the store lack, before the working state of `len` bytes
    /// becomes a durable point. The caller makes the store durable.
    ///
    /// `sums_up_to` is the length of the file at its last durable point, if it has page sums.
    pub fn keep_for_snapshots(
        &self,
        store: &Store,
        len: u64,
        sums_up_to: Option<u64>,
    ) -> Result<()> {
        let live = store.live();
        let reach = live.iter().map(|entry| entry.len).max().unwrap_or(0);
        let keeping = Keeping { pair: self, store, live, sums_up_to };
        for start in (0..len.min(reach)).step_by(SUPERCHUNK) {
            keeping.keep_changed(start, len.min(reach))?;
        }
        let there = reach.min(self.home.len());
        for n in PageIndex::of(len).0..there.div_ceil(PAGE as u64) {
            keeping.keep_cut_off(PageIndex(n), len)?;
        }
        Ok(())
    }
}

struct Keeping<'a> {
    pair: &'a Pair<'a>,
    store: &'a Store,
    live: Vec<Entry>,
    sums_up_to: Option<u64>,
}

impl Keeping<'_> {
    /// Keeps the slices of a superchunk that have changed since the durable point. Skips ranges in
    /// which words of both kinds are holes.
    fn keep_changed(&self, start: u64, len: u64) -> Result<()> {
        let superchunk = RegionIndex::of(start).superchunk();
        let mut regions = vec![0; layout::REGION_WORDS_LEN as usize];
        self.pair.read(&mut regions, layout::region_words(superchunk))?;
        let (first, words) = words_of(start, len);
        let mut from = 0;
        while from < words {
            let next = self.pair.next_words(first, from, words)?;
            let at = next_region_words(&regions, from..next);
            if at >= words {
                break;
            }
            let run = self.pair.run_of_words(first, at, words)?;
            let page = page_of_words(first, run.start);
            self.keep_run_of_words(page, run.len() / 8, &regions)?;
            from = run.end;
        }
        Ok(())
    }

    fn keep_run_of_words(&self, first: PageIndex, count: usize, regions: &[u8]) -> Result<()> {
        let mut words = vec![[0; WORD]; count];
        self.pair.read(words.as_flattened_mut(), layout::slice_word(first))?;
        let mut durable = words.clone();
        self.pair.read(durable.as_flattened_mut(), layout::durable_word(first))?;
        let both = words.iter().zip(&durable).map(|(a, b)| (le_word(a), le_word(b)));
        for (n, (word, durable)) in (0..).zip(both) {
            let page = first.plus(n);
            let bit = region_bit(regions, page);
            let changed = Slices(Validity::new(word, bit).0 ^ durable);
            self.keep(page, changed, Validity(durable), |_| true)?;
        }
        Ok(())
    }

    /// Keeps the slices of a page that lie past the length, with the one that it cuts. Slices of
    /// zeroes are left out: past its end the file reads as zeroes.
    fn keep_cut_off(&self, page: PageIndex, len: u64) -> Result<()> {
        let mut word = [0; 8];
        self.pair.read(&mut word, layout::durable_word(page))?;
        let past = Slices::from_byte(page.start(), len);
        let is_nonzero = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
        self.keep(page, past, Validity(le_word(&word)), is_nonzero)
    }

    /// Keeps those of the slices that a snapshot reads from their durable slots and that are
    /// `wanted`.
    fn keep(
        &self,
        page: PageIndex,
        slices: Slices,
        durable: Validity,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let reaching = self.live.iter().rev().find(|entry| entry.len > page.start());
        let Some(epoch) = reaching.map(|entry| entry.number).filter(|_| !slices.is_empty()) else {
            return Ok(());
        };
        let known = self.store.kept_since(page, epoch);
        let owed = slices.without(known);
        let (mut mask, mut bytes) = (Slices::NONE, Vec::with_capacity(PAGE));
        for n in owed.runs().flatten() {
            let mut slice = [0; SLICE];
            let offset = page.slice(n);
            let (file, at) = match durable.side(n) {
                Side::Home => (self.pair.home, offset),
                Side::Reflection => (self.pair.reflection, layout::reflection(offset)),
            };
            let read = file.read_file(&mut slice, at);
            read.map_err(|e| Error::io_at("read", file.path(), at, e))?;
            if wanted(&slice) {
                mask = mask.or(Slices::one(n));
                bytes.extend_from_slice(&slice);
            }
        }
        if !mask.is_empty() {
            let sum = self.seal_sum(page, durable, known)?;
            let record = Record { epoch, page, mask, sum };
            self.store.appender(LANE, 1, mask.count())?.keep(record, &bytes);
        }
        Ok(())
    }

    /// Returns the sum of a page at the seal, of which slices of `known` were kept since. If none
    /// were, nothing of the page has changed up to the last durable point.
    fn seal_sum(&self, page: PageIndex, durable: Validity, known: Slices) -> Result<SealSum> {
        let Some(len) = self.sums_up_to.filter(|_| !planted!(KeptUncompared)) else {
            return Ok(SealSum::Unknown);
        };
        if !known.is_empty() {
            return Ok(SealSum::Later);
        }
        let sum = page_sum::stored(page, self.pair.sum_of_page(page, durable, len)?);
        let mut places = [0; SUM_PLACES * WORD];
        self.pair.read(&mut places, layout::page_sums(page))?;
        let places = places.as_chunks::<WORD>().0.iter().map(|place| u64::from_le_bytes(*place));
        let is_one = places.clone().any(|place| place == sum);
        // Each sum of a damaged page is one that it does not have.
        Ok(SealSum::Known(if is_one { sum } else { places.max().unwrap_or(0) }))
    }
}
