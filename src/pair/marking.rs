//! The byte mark of an open file: its place, and how far the file has come with it.
//!
//! Owns: [`Place`], [`MarkWord`], and [`Marking`], the state in DRAM.
//!
//! Invariant: from [`CLAIMED`] on, the slice of the mark is valid in the reflection file, and its
//! home slot is claimed (`pair::claims`). So no operation but a spatial close stores there.
//!
//! May import `pair::region`, `format`, `error`, `primitive` and `units`.

use crate::bitmap::Slices;
use crate::error::{Error, Result};
use crate::format::byte_mark::{ByteMark, LEN};
use crate::format::layout;
use crate::pair::Pair;
use crate::primitive::{AtomicU8, AtomicU64, Mutex, Ordering};
use crate::units::{PAGE, PageIndex, SLICE};
use std::ops::Range;

/// The place of a byte mark: a slice of the home file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u64);

impl Place {
    /// Returns the place at `offset`, if that is the start of a slice of some file.
    pub fn new(offset: u64) -> Option<Self> {
        let is_slice = offset.is_multiple_of(SLICE as u64) && offset < layout::MAX_LEN;
        is_slice.then_some(Place(offset))
    }

    pub fn start(self) -> u64 {
        self.0
    }

    pub fn end(self) -> u64 {
        self.0 + LEN as u64
    }

    pub fn page(self) -> PageIndex {
        PageIndex::of(self.0)
    }

    pub fn slices(self) -> Slices {
        let n = self.0 as usize % PAGE / SLICE;
        Slices::range(n, n + 1)
    }
}

/// The content of the state word about the mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MarkWord {
    /// The pair has no mark.
    None,
    /// The header of a database is marked.
    InHeader,
    /// The pair has its mark here, and `true` if the mark is there.
    At(Place, bool),
}

impl MarkWord {
    /// Returns what a number says, or `None` for one that no session stores.
    pub fn decode(number: u64) -> Option<Self> {
        let at = Place::new(number & !3);
        match number & 3 {
            0 => (number == 0).then_some(MarkWord::None),
            2 => (number == 2).then_some(MarkWord::InHeader),
            flags => at.map(|place| MarkWord::At(place, flags == 3)),
        }
    }

    pub fn encode(self) -> u64 {
        match self {
            MarkWord::None => 0,
            MarkWord::InHeader => 2,
            MarkWord::At(place, is_there) => place.0 | if is_there { 3 } else { 1 },
        }
    }

    pub fn place(self) -> Option<Place> {
        if let MarkWord::At(place, _) = self { Some(place) } else { None }
    }
}

/// The file has no place for a mark.
pub const NONE: u8 = 0;
/// There is a place, and nothing is claimed: the file may be too short for it.
pub const WANTED: u8 = 1;
/// The slice is in its reflection slot, and its home slot is claimed.
pub const CLAIMED: u8 = 2;
/// The mark is there.
pub const SET: u8 = 3;

/// The mark that an engine can set.
pub(crate) struct Marking {
    pub mark: ByteMark,
    state: AtomicU8,
    place: AtomicU64,
    /// Held while a mark is set.
    pub setting: Mutex<()>,
    /// `true` if the caller has chosen the place. Another place goes with the structure in the
    /// file.
    is_chosen: bool,
}

impl Marking {
    pub fn new(mark: ByteMark, place: Option<Place>, is_chosen: bool) -> Self {
        Marking {
            mark,
            is_chosen,
            state: AtomicU8::new(if place.is_some() { WANTED } else { NONE }),
            place: AtomicU64::new(place.map_or(0, |place| place.0)),
            setting: Mutex::new(()),
        }
    }

    /// Takes a place for a file that has none.
    pub fn want(&self, place: Place) {
        if self.now().is_none() {
            self.place.store(place.0, Ordering::Relaxed);
            self.become_now(WANTED);
        }
    }

    /// Returns the word for a mark that may be gone. A chosen place stays the file's.
    pub fn word_without(&self, place: Place) -> MarkWord {
        if self.is_chosen { MarkWord::At(place, false) } else { MarkWord::None }
    }

    /// Returns the place, and how far the file has come with it.
    pub fn now(&self) -> Option<(Place, u8)> {
        // Acquire: orders the place behind the state.
        match self.state.load(Ordering::Acquire) {
            NONE => None,
            state => Some((Place(self.place.load(Ordering::Relaxed)), state)),
        }
    }

    pub fn become_now(&self, state: u8) {
        // Release: orders the place before the state.
        self.state.store(state, Ordering::Release);
    }
}

impl Pair {
    /// Returns the mark and its place, if its slice is claimed and a file of `len` bytes has no
    /// room for it.
    pub(crate) fn mark_past(&self, len: u64) -> Option<(&Marking, Place)> {
        let marking = self.marking.as_ref()?;
        match marking.now()? {
            (place, CLAIMED | SET) if place.end() > len => Some((marking, place)),
            _ => None,
        }
    }

    /// Gives the claim back if the file, which has become `len` bytes long, has no room for the
    /// mark.
    pub(crate) fn release_mark(&self, len: u64) {
        let Some((marking, place)) = self.mark_past(len) else { return };
        if let Some(region) = self.state.loaded(place.page().region()) {
            region.release_slots(place.page().in_region(), place.slices());
        }
        marking.become_now(if marking.is_chosen { WANTED } else { NONE });
    }

    /// Fails if one of the ranges reaches into the mark.
    pub(crate) fn check_not_marked(
        &self,
        mut ranges: impl Iterator<Item = Range<u64>>,
    ) -> Result<()> {
        let now = self.marking.as_ref().and_then(Marking::now);
        let Some((place, CLAIMED | SET)) = now else { return Ok(()) };
        match ranges.any(|range| range.start < place.end() && place.start() < range.end) {
            true => Err(Error::Reserved { path: self.path(), offset: place.start() }),
            false => Ok(()),
        }
    }
}
