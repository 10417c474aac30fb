//! Sums the pages of a file that had no page sums.
//!
//! Invariant: the superblock says that a file has sums only after every page has its own, durably.
//! A crash in between leaves a file without sums, and the next opening begins anew. Pages of zeroes
//! have no stored sum, so holes stay holes.
//!
//! May import `context`, `replay_journal`, `engine` and below.

use super::context::Opening;
use super::replay_journal::Pair;
use super::{Mapped, Recovered, Verdict};
use crate::bitmap::{Side, Slices, Validity};
use crate::config::Medium;
use crate::config::integrity::{INTEGRITY_VARIABLE, Integrity};
use crate::config::options::Options;
use crate::config::progress::Work;
use crate::error::{Error, Result};
use crate::format::layout::{self, PAGE_SUMS_LEN, SUM_PLACES};
use crate::format::le_word;
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::page_sum;
use crate::pair::space::allocation_error;
use crate::pair::sums::store_all_places;
use crate::platform;
use crate::units::{PAGE, PAGES_PER_REGION, PageIndex, RegionIndex, SLICE, SUPERCHUNK, WORD};
use std::io;
use std::path::Path;

/// Bytes of sums of one superchunk.
const SUMS_LEN: u64 = (SUPERCHUNK / PAGE * PAGE_SUMS_LEN) as u64;

/// Returns the use of page sums that the caller or the environment wants, if any.
pub(super) fn chosen(options: &Options, path: &Path) -> Result<Option<Integrity>> {
    if options.integrity.is_some() {
        return Ok(options.integrity);
    }
    let Some(name) = platform::variable(INTEGRITY_VARIABLE) else { return Ok(None) };
    let chosen = Integrity::of_name(&name.to_string_lossy());
    let unknown = || {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "off, on-scrub or on-read");
        Error::io("understand ATOMIC_MMAP_INTEGRITY for", path, source)
    };
    chosen.map(Some).ok_or_else(unknown)
}

impl Opening<'_> {
    /// Returns `true` if the caller wants page sums.
    pub(super) fn wants_sums(&self) -> bool {
        self.integrity.is_some_and(|integrity| integrity != Integrity::Off)
    }

    /// Returns the use of page sums, if the pair has some or not. An opening that changes no file
    /// adds none.
    pub(super) fn integrity_of(&self, has_sums: bool) -> Integrity {
        match self.integrity {
            _ if self.options.read_only && !has_sums => Integrity::Off,
            Some(integrity) => integrity,
            None if has_sums => Integrity::OnScrub,
            None => Integrity::Off,
        }
    }
}

impl Recovered<'_> {
    /// Sums all pages, if this session is to have sums and the last one had none.
    pub(super) fn begin_sums(&self) -> Result<()> {
        let Mapped { platform, reflection, medium, integrity, carried, .. } = &self.mapped;
        if *integrity == Integrity::Off || carried.superblock.has_sums {
            return Ok(());
        }
        self.mapped.sum_all_pages()?;
        // Orders the sums before the superblock that says that there are some.
        platform.drain();
        if *medium != Medium::Ram && !planted!(FirstSumsNotSynced) {
            reflection.sync_all().map_err(|e| Error::io("sync", reflection.path(), e))?;
        }
        Ok(())
    }
}

impl Mapped<'_> {
    fn sum_all_pages(&self) -> Result<()> {
        let Verdict { lengths, is_fresh, .. } = &self.carried.verdict;
        let (len, reporter) = (lengths.len, &self.carried.located.opening.options.reporter);
        for start in (0..len).step_by(SUPERCHUNK) {
            // An earlier session may have left sums that no longer count.
            if !is_fresh && !planted!(OldSumsStay) {
                self.pair().zero_words(layout::page_sums(PageIndex::of(start)), SUMS_LEN)?;
            }
        }
        let mut meter = reporter.begin(Work::Sum, len);
        let mut at = 0;
        while at < len {
            let Some(index) = self.next_region_with_bytes(at, len)? else { break };
            self.sum_region(index, len)?;
            let end = index.end().min(len);
            meter.add(end.saturating_sub(at));
            at = end;
        }
        meter.add(len.saturating_sub(at));
        Ok(())
    }

    /// Returns the first region, from the one of `at` on, of which a slot has storage.
    fn next_region_with_bytes(&self, at: u64, len: u64) -> Result<Option<RegionIndex>> {
        let next = |file: &MappedFile, at: u64| {
            file.next_data(at).map_err(|e| Error::io_at("look for data", file.path(), at, e))
        };
        let home = next(&self.home, at)?.filter(|at| *at < len);
        let mut from = at;
        let mut away = None;
        // Metadata lie between the reflection pages of two superchunks.
        while from < len && away.is_none() {
            let end = from.saturating_add(1).next_multiple_of(SUPERCHUNK as u64);
            let slot = layout::reflection(from);
            let found = next(&self.reflection, slot)?
                .map(|data| from.saturating_add(data.saturating_sub(slot)));
            away = found.filter(|found| *found < end.min(len));
            from = end;
        }
        let first = home.into_iter().chain(away).min();
        Ok(first.map(RegionIndex::of))
    }

    fn sum_region(&self, index: RegionIndex, len: u64) -> Result<()> {
        let mut words = [0; PAGES_PER_REGION * WORD];
        self.pair().read(&mut words, layout::slice_word(index.page(0)))?;
        let mut region = [0; WORD];
        self.pair().read(&mut region, layout::region_word(index))?;
        let region = le_word(&region);
        for (n, word) in words.chunks_exact(WORD).enumerate() {
            let page = index.page(n);
            if page.start() >= len {
                break;
            }
            let valid = Validity::new(le_word(word), region >> n & 1 == 1);
            let sum = self.pair().sum_of_page(page, valid, len)?;
            if sum != 0 {
                unless!(FirstSumsMissing, self.store_first_sum(page, sum)?);
            }
        }
        Ok(())
    }

    fn store_first_sum(&self, page: PageIndex, sum: u64) -> Result<()> {
        let file = &self.reflection;
        let (at, len) = (layout::page_sums(page), (SUM_PLACES * WORD) as u64);
        file.allocate(at, len).map_err(|e| allocation_error(file, at, len, e))?;
        store_all_places(file, page, page_sum::stored(page, sum));
        Ok(())
    }
}

impl Pair<'_> {
    /// Returns the sum of a page in the slots that `valid` names, of a file of `len` bytes.
    pub(super) fn sum_of_page(&self, page: PageIndex, valid: Validity, len: u64) -> Result<u64> {
        let mut bytes = [0; PAGE];
        for (side, run) in valid.runs(Slices::ALL) {
            let to = bytes.as_chunks_mut::<SLICE>().0[run.clone()].as_flattened_mut();
            let offset = page.slice(run.start);
            let (file, at) = match side {
                Side::Home => (self.home, offset),
                Side::Reflection => (self.reflection, layout::reflection(offset)),
            };
            file.read_file(to, at).map_err(|e| Error::io_at("read", file.path(), at, e))?;
        }
        let readable = len.saturating_sub(page.start()).min(PAGE as u64) as usize;
        bytes[readable..].fill(0);
        Ok(page_sum::of_page(&bytes))
    }
}
