//! The oracle for a file that was opened with scribbles on it.
//!
//! Every page is read, of the present and of each snapshot. It holds what the model says, or the
//! read fails. Only pages that depend on scribbled bytes may fail. The limits that the documents
//! name are taken exactly: see [`Doubt`].
//!
//! May import `eyes`, `subject` and `place`.

use super::eyes::{Eyes, Plant, Way, is_damage};
use super::place::{PAGE_LEN, Scribble, Target, Zone};
use super::subject::{Ground, Model, page_range};
use atomic_mmap::testing::snapshots::SegmentIndex;
use atomic_mmap::testing::{PageIndex, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Snapshot};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The result of a check; the error says what is wrong.
pub type Checked<T = ()> = Result<T, String>;

/// The three places of the sums of each page, on the medium before an opening.
#[derive(Clone, Default, Debug)]
pub struct Places(Vec<[u64; 3]>);

impl Places {
    /// Reads the places of this number of pages from the reflection file.
    pub fn read(reflection: &Path, pages: usize) -> io::Result<Places> {
        let mut bytes = vec![0; pages * layout::PAGE_SUMS_LEN];
        File::open(reflection)?.read_exact_at(&mut bytes, layout::page_sums(PageIndex(0)))?;
        let word = |at: &[u8]| u64::from_le_bytes(at.try_into().expect("eight bytes"));
        let of_page = |page: &[u8]| [0, 8, 16].map(|at| word(&page[at..at + 8]));
        Ok(Places(bytes.chunks(layout::PAGE_SUMS_LEN).map(of_page).collect()))
    }

    /// Returns `true` if one of the places of the page has the sum of these bytes.
    fn have(&self, page: usize, bytes: &[u8]) -> bool {
        self.0.get(page).is_some_and(|places| places.contains(&stored_sum(page as u64, bytes)))
    }
}

/// Returns the sum of a page as `docs/format.md` says it is stored. Bytes past the end are zero.
fn stored_sum(page: u64, bytes: &[u8]) -> u64 {
    let mut sum = 0u64;
    for n in 0..PAGE_LEN as usize {
        sum ^= u64::from(bytes.get(n).copied().unwrap_or(0));
        for _ in 0..8 {
            sum =
                sum >> 1 ^ if sum & 1 == 1 { 0xad93_d235_94c9_3659_u64.reverse_bits() } else { 0 };
        }
    }
    let mut factor = page.wrapping_add(0x9e37_79b9_7f4a_7c15);
    factor = (factor ^ factor >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    factor = (factor ^ factor >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    sum.wrapping_mul(factor | 1)
}

/// The possible effects of scribbles on a file that is opened with them.
#[derive(Clone, Default, Debug)]
pub struct Doubt {
    /// Pages that depend on scribbled bytes.
    pages: BTreeSet<usize>,
    /// Pages of a file with durable points that was not closed, with scribbled words, or with bytes
    /// that have become zeroes. Such a page may hold its other state that has a sum in one of its
    /// places (rule B9 in `docs/protocols/sums.md`).
    words: BTreeSet<usize>,
    /// Any page may depend on scribbled bytes.
    is_anywhere: bool,
    /// The store was scribbled on: snapshots may be refused.
    snapshots: bool,
    /// An opening after a crash may have kept slices of such a state for a snapshot.
    is_kept: bool,
    /// Bytes of the store of which `docs/protocols/snapshots.md` says that damage to them is not
    /// noticed after a crash.
    is_unnoticed: bool,
}

/// The state of the files before scribbles.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// The file was not closed.
    pub has_died: bool,
    /// The file keeps durable points.
    pub keeps_points: bool,
    /// The next opening may keep slices of scribbled bytes.
    is_kept: bool,
}

impl Before {
    /// Returns the state of a file that is closed in this way.
    pub fn closed(mode: CloseMode, ground: Ground) -> Before {
        let (has_died, keeps_points) = (mode == CloseMode::Unsynced, ground.keeps_points());
        let is_kept = has_died && keeps_points && !ground.goes_back();
        Before { has_died, keeps_points, is_kept }
    }
}

impl Doubt {
    /// Adds a scribble. `store` has the bytes of the store before it.
    pub fn add(
        &mut self,
        scribble: &Scribble,
        pages: std::ops::Range<u64>,
        store: &[u8],
        before: Before,
    ) {
        let pages = pages.start as usize..pages.end as usize;
        self.is_kept |= before.is_kept;
        match scribble.zone {
            Zone::Home | Zone::Slots if scribble.is_of_zeroes() => self.add_words(pages, before),
            Zone::Home | Zone::Slots | Zone::Sums => self.pages.extend(pages),
            Zone::SliceWords | Zone::DurableWords | Zone::RegionWords => {
                self.add_words(pages, before);
            }
            Zone::Tables | Zone::Ends | Zone::Segments => {
                self.snapshots = true;
                let lacks_end = |at: u64| {
                    let word = SegmentIndex::of(at).end_word_at() as usize;
                    store.get(word..word + 8).is_none_or(|word| word == [0; 8])
                };
                let last = scribble.at + scribble.len - 1;
                self.is_unnoticed |= before.has_died
                    && match scribble.zone {
                        Zone::Segments => lacks_end(scribble.at) || lacks_end(last),
                        // The other copy may say less until the next sync of the store.
                        Zone::Tables => before.keeps_points,
                        _ => false,
                    };
            }
            _ => self.is_anywhere = true,
        }
    }

    fn add_words(&mut self, pages: std::ops::Range<usize>, before: Before) {
        self.pages.extend(pages.clone());
        if before.has_died && before.keeps_points {
            self.words.extend(pages);
        }
    }

    /// Returns the pages of a file of so many `pages` that depend on scribbled bytes.
    pub fn pages(&self, pages: usize) -> impl Iterator<Item = usize> {
        (0..pages).filter(|page| self.has(*page))
    }

    fn has(&self, page: usize) -> bool {
        self.is_anywhere || self.pages.contains(&page)
    }
}

/// The findings in a file.
#[derive(Clone, Default, Debug)]
pub struct Found {
    /// Pages that are told to be damaged.
    pub damaged: Vec<usize>,
    /// Pages that hold an older state.
    pub older: Vec<usize>,
    /// Snapshots that are refused, or pages of them.
    pub refused: u64,
    /// Pages of snapshots of which slices of another state were kept.
    pub kept: u64,
}

/// Compares the file with the model.
pub fn judge(
    file: &AtomicMappedFile,
    model: &Model,
    (doubt, places): (&Doubt, &Places),
    eyes: &mut Eyes,
) -> Checked<Found> {
    let mut found = Found::default();
    let is_doubted = doubt.is_anywhere || doubt.snapshots || !doubt.pages.is_empty();
    let len = file.len() - u64::from(eyes.has(Plant::LengthTaken) && is_doubted);
    if len != model.present.len() as u64 {
        return Err(format!("{len} bytes long, not {}", model.present.len()));
    }
    for page in 0..model.pages() {
        let range = model.range(page);
        let expected = &model.present[range.clone()];
        match eyes.present(file, range, Way::Read, expected) {
            Ok(bytes) if bytes == expected => {}
            Ok(bytes) => {
                let is_older = doubt.words.contains(&page)
                    && model.was(page, bytes)
                    && places.have(page, bytes);
                if !is_older {
                    return Err(format!("page {page} is read wrong"));
                }
                found.older.push(page);
            }
            Err(error) if is_damage(&error) && doubt.has(page) => found.damaged.push(page),
            Err(error) => return Err(format!("page {page}: {error}")),
        }
    }
    judge_snapshots(file, model, (doubt, places), eyes, &mut found)?;
    Ok(found)
}

fn judge_snapshots(
    file: &AtomicMappedFile,
    model: &Model,
    (doubt, places): (&Doubt, &Places),
    eyes: &mut Eyes,
    found: &mut Found,
) -> Checked {
    let mut names: Vec<String> = file.snapshots().into_iter().map(|found| found.name).collect();
    if eyes.has(Plant::SnapshotLost) && doubt.snapshots {
        names.pop();
    }
    let expected: Vec<&String> = model.sealed.iter().map(|(name, _)| name).collect();
    if names.iter().collect::<Vec<_>>() != expected {
        return match doubt.is_unnoticed {
            true => Ok(()),
            false => Err(format!("snapshots {names:?}, not {expected:?}")),
        };
    }
    for (name, bytes) in &model.sealed {
        match file.open_snapshot(name) {
            Ok(snapshot) => judge_snapshot(&snapshot, bytes, (doubt, places), eyes, found)?,
            Err(error) if is_damage(&error) && doubt.snapshots => found.refused += 1,
            Err(error) => return Err(format!("snapshot {name}: {error}")),
        }
    }
    Ok(())
}

fn judge_snapshot(
    snapshot: &Snapshot,
    sealed: &[u8],
    (doubt, places): (&Doubt, &Places),
    eyes: &mut Eyes,
    found: &mut Found,
) -> Checked {
    let name = snapshot.name();
    if snapshot.len() != sealed.len() as u64 {
        return Err(format!("snapshot {name} is {} bytes long", snapshot.len()));
    }
    for page in 0..sealed.len().div_ceil(PAGE_LEN as usize) {
        let range = page_range(sealed.len(), page);
        let expected = &sealed[range.clone()];
        match eyes.sealed(snapshot, range, expected) {
            Ok(bytes) if bytes == expected => {}
            // Slots of an older state give a snapshot older slices, too.
            Ok(_) if doubt.is_unnoticed || found.older.contains(&page) => {}
            Ok(bytes)
                if doubt.is_kept && doubt.words.contains(&page) && places.have(page, bytes) =>
            {
                found.kept += 1;
            }
            Ok(_) => return Err(format!("page {page} of snapshot {name} is read wrong")),
            Err(error) if is_damage(&error) && (doubt.snapshots || doubt.has(page)) => {
                found.refused += 1;
            }
            Err(error) => return Err(format!("page {page} of snapshot {name}: {error}")),
        }
    }
    Ok(())
}

/// Returns `true` if an opening may fail with this error after damage: it is typed, and says what
/// is wrong.
pub fn may_refuse(error: &Error) -> bool {
    is_damage(error) || matches!(error, Error::Mismatch { .. } | Error::Untrusted { .. })
}

/// Returns the index of a file of the pair.
pub fn index_of(target: Target) -> usize {
    match target {
        Target::Home => 0,
        Target::Reflection => 1,
        Target::Journal => 2,
        Target::Store => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::super::subject::{GROUNDS, Subject};
    use super::*;

    /// The oracle's second reading of the sums agrees with the crate's.
    #[test]
    fn a_place_has_the_sum_of_its_page() {
        let mut subject = Subject::new(GROUNDS[1], fastrand::Rng::with_seed(3)).expect("a file");
        for _ in 0..40 {
            subject.operate().expect("nothing is damaged");
        }
        let places = Places::read(&subject.paths()[1], subject.model.pages()).expect("read");
        for page in 0..subject.model.pages() {
            let bytes = &subject.model.present[subject.model.range(page)];
            assert!(places.have(page, bytes), "page {page}");
            let mut other = bytes.to_vec();
            other[page % bytes.len()] ^= 1;
            assert!(!places.have(page, &other), "page {page}");
        }
    }
}
