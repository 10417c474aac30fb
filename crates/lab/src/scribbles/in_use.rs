//! Scribbles on a file in use, each put back at once.
//!
//! After each one, the pages that depend on its bytes are read, of the present and of a snapshot:
//! each read returns the right bytes or fails. A scribble on other bytes must change nothing. Then
//! all bytes are put back, and every page is right again.
//!
//! May import `eyes`, `judge`, `subject`, `mapping` and `place`.

use super::Tally;
use super::eyes::{Eyes, Plant, Way, is_damage};
use super::judge::{Checked, Doubt, Places, index_of, judge};
use super::mapping::Mapping;
use super::place::{Ink, Lengths, PAGE_LEN, Scribble, Target, Zone};
use super::subject::{Subject, page_range};
use atomic_mmap::testing::REGION;
use atomic_mmap::testing::snapshots::{SEGMENT, SEGMENTS};
use atomic_mmap::{Error, Snapshot};
use std::ops::Range;

/// Scribbles from one look at a page far away to the next.
const FAR: u32 = 64;

/// Second mappings of the files of a pair.
pub struct Files([Option<Mapping>; 4]);

impl Files {
    /// Maps the files that are there.
    pub fn map(subject: &Subject) -> Files {
        Files(subject.paths().map(|path| Mapping::new(&path).ok()))
    }

    /// Returns the mapping of a file that is there.
    pub fn of(&mut self, target: Target) -> &mut Mapping {
        self.0[index_of(target)].as_mut().expect("a file with zones is there")
    }

    /// Returns the bytes of the store. They are empty if there is none.
    pub fn store(&self) -> Vec<u8> {
        self.0[index_of(Target::Store)].as_ref().map_or_else(Vec::new, |store| {
            let mut bytes = vec![0; store.length() as usize];
            store.get(0, &mut bytes);
            bytes
        })
    }
}

/// Returns the places of the kept slices in a store, each with its page.
fn records(store: &[u8]) -> Vec<(Range<u64>, usize)> {
    let word = |at: usize| {
        let bytes = store.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    let mut found = Vec::new();
    let first = SEGMENTS as usize + SEGMENT;
    for start in (first..store.len()).step_by(SEGMENT) {
        let mut at = start + 64;
        while word(start) != 0 && at < start + SEGMENT {
            let (epoch, page, mask) = (word(at + 8), word(at + 16), word(at + 24));
            let end = at + 64 + mask.count_ones() as usize * 64;
            if epoch == 0 || mask == 0 || page > 1000 || end > start + SEGMENT {
                break;
            }
            found.push((at as u64..end as u64, page as usize));
            at = end;
        }
    }
    found
}

/// Draws a zone: mostly one that readers depend on.
fn draw_zone(rng: &mut fastrand::Rng) -> Zone {
    match rng.u32(0..64) {
        0..=19 => Zone::Home,
        20..=39 => Zone::Slots,
        40..=47 => Zone::Segments,
        48..=50 => Zone::SliceWords,
        51 | 52 => Zone::DurableWords,
        53..=55 => Zone::Sums,
        56 => Zone::RegionWords,
        57 => Zone::Superblocks,
        58 => Zone::StateWords,
        59 => Zone::Lanes,
        60 => Zone::LogArea,
        61 => Zone::Journal,
        62 => Zone::Tables,
        _ => Zone::Ends,
    }
}

/// A file in use, between two of its operations.
struct InUse<'a> {
    subject: &'a Subject,
    rng: fastrand::Rng,
    eyes: &'a mut Eyes,
    snapshots: Vec<Snapshot>,
    records: Vec<(Range<u64>, usize)>,
    lengths: Lengths,
    /// A scribble is not put back yet.
    is_scribbled: bool,
}

impl InUse<'_> {
    /// Reads a page of the present, or some bytes of it. Returns `true` if it is damaged.
    fn look_at(&mut self, page: usize) -> Checked<bool> {
        let model = &self.subject.model;
        let mut range = model.range(page);
        // A view may deploy the page: it stores to files of which bytes are about to be put back.
        let deploys = !self.subject.ground.keeps_points() && self.is_scribbled;
        let way = match self.rng.u32(0..64) {
            0 if !deploys => Way::View,
            1 => Way::Transaction,
            2..=9 => {
                range.start = self.rng.usize(range.clone());
                range.end = self.rng.usize(range.start + 1..=range.end);
                Way::Read
            }
            _ => Way::Read,
        };
        let expected = &model.present[range.clone()];
        match self.eyes.present(self.subject.file(), range.clone(), way, expected) {
            Ok(bytes) if bytes == expected => Ok(false),
            Ok(_) => Err(format!("page {page} is read wrong, {range:?} by {way:?}")),
            Err(Error::Damaged { offset, .. }) if offset == page as u64 * PAGE_LEN => Ok(true),
            Err(error) => Err(format!("page {page}: {error}")),
        }
    }

    /// Reads a page of a snapshot.
    fn look_at_sealed(&mut self, n: usize, page: usize) -> Checked<bool> {
        let (name, sealed) = &self.subject.model.sealed[n];
        let range = page_range(sealed.len(), page);
        if range.is_empty() {
            return Ok(false);
        }
        let expected = &sealed[range.clone()];
        match self.eyes.sealed(&self.snapshots[n], range, expected) {
            Ok(bytes) if bytes == expected => Ok(false),
            Ok(_) => Err(format!("page {page} of snapshot {name} is read wrong")),
            Err(error) if is_damage(&error) => Ok(true),
            Err(error) => Err(format!("page {page} of snapshot {name}: {error}")),
        }
    }

    /// Reads what depends on the scribble. Returns `true` if damage is told.
    fn look(&mut self, scribble: &Scribble) -> Checked<bool> {
        let mut is_noticed = false;
        let pages = scribble.pages(self.lengths);
        let is_sealed = !self.snapshots.is_empty();
        if scribble.zone == Zone::Segments {
            let end = scribble.at + scribble.len;
            let first = self.records.partition_point(|(at, _)| at.end <= scribble.at);
            let mut n = first;
            while self.records.get(n).is_some_and(|(at, _)| at.start < end) {
                let page = self.records[n].1;
                for of in 0..self.snapshots.len() {
                    is_noticed |= self.look_at_sealed(of, page)?;
                }
                n += 1;
            }
        } else if pages.is_empty() {
            let page = self.rng.usize(0..self.subject.model.pages());
            if self.look_at(page)? {
                return Err(format!("page {page} is whole, and is told to be damaged"));
            }
        }
        let of =
            (is_sealed && self.rng.u32(0..4) == 0).then(|| self.rng.usize(0..self.snapshots.len()));
        for page in pages {
            is_noticed |= self.look_at(page as usize)?;
            if let Some(of) = of {
                is_noticed |= self.look_at_sealed(of, page as usize)?;
            }
        }
        Ok(is_noticed)
    }
}

/// Reads from each region. Its words are read then, so that a scribble on them does not stay in
/// memory.
pub fn load_words(subject: &Subject) -> Checked {
    for at in (0..subject.model.present.len()).step_by(REGION) {
        let read = subject.file().read_at(&mut [0], at as u64);
        read.map_err(|error| format!("a first read: {error}"))?;
    }
    Ok(())
}

/// Scribbles so many times. The file is open, and none of its bytes is damaged. `has_died` says
/// that its session began after a crash.
pub fn scribble_in_use(
    subject: &mut Subject,
    (count, has_died): (u64, bool),
    (eyes, ink): (&mut Eyes, &Ink),
    tally: &Tally,
) -> Checked {
    let mut files = Files::map(subject);
    let store = files.store();
    let lengths = subject.lengths(&store);
    let rng = subject.rng.fork();
    let subject = &*subject;
    load_words(subject)?;
    let names = subject.model.sealed.iter().map(|(name, _)| name);
    let opened: Result<Vec<_>, _> = names.map(|name| subject.file().open_snapshot(name)).collect();
    let snapshots = opened.map_err(|error| format!("a snapshot: {error}"))?;
    let records = records(&store);
    let eyes_of = &mut *eyes;
    let mut here =
        InUse { subject, rng, eyes: eyes_of, snapshots, records, lengths, is_scribbled: false };
    let (mut done, mut noticed) = (0, 0);
    let mut before = Vec::new();
    while done < count {
        let zone = draw_zone(&mut here.rng);
        let Some(mut scribble) = Scribble::draw(&mut here.rng, zone, lengths) else { continue };
        // Zeroes may be the state of a page at the last durable point (rule B9).
        if has_died && subject.ground.keeps_points() && scribble.is_of_zeroes() {
            scribble = Scribble::over(&mut here.rng, zone, scribble.at..scribble.at + scribble.len);
        }
        before.resize(scribble.len as usize, 0);
        let target = files.of(zone.target());
        target.get(scribble.at, &mut before);
        target.put(scribble.at, ink.of(&scribble));
        here.eyes.target = Some(zone.target());
        here.is_scribbled = true;
        let seen = here.look(&scribble);
        if !here.eyes.has(Plant::BytesNotPutBack) {
            files.of(zone.target()).put(scribble.at, &before);
        }
        here.is_scribbled = false;
        noticed += u64::from(seen.map_err(|problem| format!("{scribble}: {problem}"))?);
        done += 1;
        if here.rng.u32(0..FAR) == 0 {
            let page = here.rng.usize(0..subject.model.pages());
            if here.look_at(page)? {
                return Err(format!("{scribble}, put back: page {page} is told to be damaged"));
            }
        }
    }
    tally.add(&tally.in_use, done);
    tally.add(&tally.noticed, noticed);
    drop(here);
    let whole = (&Doubt::default(), &Places::default());
    judge(subject.file(), &subject.model, whole, eyes)
        .map_err(|problem| format!("at the end of {count} scribbles: {problem}"))?;
    Ok(())
}
