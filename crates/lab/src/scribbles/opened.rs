//! Scribbles on the files of a pair that is closed, or was left by a crash, and an opening with
//! them.
//!
//! The opening refuses the pair with a typed error, or it opens a file that [`judge`] accepts. One
//! opening has one scribble anywhere, or several small ones, each on its own page. The others must
//! be right, so each scribble has its own verdict.
//!
//! May import `eyes`, `judge`, `stays`, `subject`, `place` and `faults::files`.

use super::Tally;
use super::eyes::Eyes;
use super::judge::{Before, Checked, Doubt, Places, index_of, judge, may_refuse};
use super::place::{Ink, PAGE_LEN, Scribble, Target, Zone};
use super::stays::repair;
use super::subject::{Model, Subject};
use crate::faults::files::{Contents, Pair};
use atomic_mmap::CloseMode;
use atomic_mmap::testing::snapshots::{SEGMENT, SEGMENTS};
use atomic_mmap::testing::superblock::{Moment, State};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Most scribbles before one opening.
const MOST: usize = 16;
/// Bytes of the store that are looked at for its map.
const MAP_END: usize = SEGMENTS as usize + SEGMENT;

/// The files of a pair that no process has open, and the model of what an opening should find.
pub struct Rest {
    pair: Pair,
    model: Model,
    store: Vec<u8>,
    before: Before,
}

impl Rest {
    /// Closes the file of the subject and takes its files.
    pub fn take(subject: &mut Subject, mode: CloseMode) -> Checked<Rest> {
        subject.close(mode).map_err(|error| format!("a close: {error}"))?;
        let pair = Pair::capture(&subject.place()).map_err(|error| format!("a copy: {error}"))?;
        let store = match &pair.store {
            Some(store) => store.get(0, (store.len as usize).min(MAP_END)),
            None => Vec::new(),
        };
        let before = Before::closed(mode, subject.ground);
        Ok(Rest { pair, model: subject.model.clone(), store, before })
    }

    /// Puts the files back as they were, with these scribbles on them. Decay changes no time of a
    /// file, so the superblocks get the times that the files have then.
    fn put_back(&self, subject: &Subject, scribbles: &[Scribble], ink: &Ink) -> io::Result<()> {
        let paths = subject.paths();
        let contents = [
            Some(&self.pair.home),
            self.pair.reflection.as_ref(),
            self.pair.journal.as_ref(),
            self.pair.store.as_ref(),
        ];
        let mut files = Vec::new();
        for (path, contents) in paths.iter().zip(contents) {
            match contents {
                Some(contents) => files.push(Some(contents.write_over(path)?)),
                None => {
                    let _was_not_there = fs::remove_file(path);
                    files.push(None);
                }
            }
        }
        let put = |scribble: &Scribble| {
            let file: Option<&File> = files[index_of(scribble.zone.target())].as_ref();
            file.map_or(Ok(()), |file| file.write_all_at(ink.of(scribble), scribble.at))
        };
        let is_on_home = |scribble: &&Scribble| scribble.zone.target() == Target::Home;
        scribbles.iter().filter(is_on_home).try_for_each(put)?;
        let (Some(home), Some(reflection)) = (&files[0], &files[1]) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let stat = home.metadata()?;
        let superblocks = self.pair.superblocks();
        let newest = superblocks.iter().map(|(_, superblock)| superblock.session).max();
        for (at, mut superblock) in superblocks {
            // 0 means an unknown file: another one may have taken its place.
            superblock.own.inode = 0;
            if let State::Clean(closed) = &mut superblock.state
                && newest == Some(superblock.session)
            {
                closed.mtime = Moment { seconds: stat.mtime(), nanos: stat.mtime_nsec() as u32 };
                closed.ctime = Moment { seconds: stat.ctime(), nanos: stat.ctime_nsec() as u32 };
            }
            reflection.write_all_at(&superblock.encode(), at)?;
        }
        scribbles.iter().filter(|scribble| !is_on_home(scribble)).try_for_each(put)
    }

    /// Draws the scribbles before an opening.
    fn draw(&self, subject: &mut Subject) -> Vec<Scribble> {
        let mut lengths = subject.lengths(&[]);
        lengths.store = self.pair.store.as_ref().map_or(0, used);
        let rng = &mut subject.rng;
        if rng.u32(0..3) == 0 {
            let zones = [
                Zone::Home,
                Zone::Slots,
                Zone::SliceWords,
                Zone::DurableWords,
                Zone::Sums,
                Zone::RegionWords,
                Zone::Superblocks,
                Zone::StateWords,
                Zone::Lanes,
                Zone::LogArea,
                Zone::Journal,
                Zone::Tables,
                Zone::Ends,
                Zone::Segments,
                Zone::Segments,
            ];
            let zone = zones[rng.usize(0..zones.len())];
            return Scribble::draw(rng, zone, lengths).into_iter().collect();
        }
        let (mut taken, mut scribbles) = (BTreeSet::new(), Vec::new());
        for _ in 0..rng.usize(2..=MOST) {
            let (zone, each) = match rng.u32(0..8) {
                0..=2 => (Zone::Home, PAGE_LEN),
                3 | 4 => (Zone::Slots, PAGE_LEN),
                5 => (Zone::SliceWords, 8),
                6 => (Zone::DurableWords, 8),
                _ => (Zone::Sums, 32),
            };
            let scribble = Scribble::draw(rng, zone, lengths).map(|s| s.within(300, each, lengths));
            let page = scribble.map(|scribble| scribble.pages(lengths).start);
            if taken.insert(page) {
                scribbles.extend(scribble);
            }
        }
        scribbles
    }
}

/// Returns the end of the segments of a store that hold something.
fn used(store: &Contents) -> u64 {
    let starts = (MAP_END as u64..store.len).step_by(SEGMENT);
    let used = starts.filter(|at| store.word(*at) != 0).max();
    used.map_or(0, |at| at + SEGMENT as u64)
}

/// Puts scribbles on the files and opens them, so many times.
pub fn scribble_and_open(
    subject: &mut Subject,
    rest: &Rest,
    openings: u64,
    (eyes, ink): (&mut Eyes, &Ink),
    tally: &Tally,
) -> Checked {
    for _ in 0..openings {
        subject.model.clone_from(&rest.model);
        let scribbles = rest.draw(subject);
        let put = rest.put_back(subject, &scribbles, ink);
        put.map_err(|error| format!("the files: {error}"))?;
        let checked = open_with(subject, rest, &scribbles, eyes, tally);
        let told: Vec<String> = scribbles.iter().map(Scribble::to_string).collect();
        let how = if rest.before.has_died { "after a crash" } else { "after a close" };
        checked.map_err(|problem| format!("{}, {how}: {problem}", told.join(", ")))?;
        tally.add(&tally.before_openings, scribbles.len() as u64);
        tally.add(&tally.openings, 1);
    }
    Ok(())
}

fn open_with(
    subject: &mut Subject,
    rest: &Rest,
    scribbles: &[Scribble],
    eyes: &mut Eyes,
    tally: &Tally,
) -> Checked {
    let lengths = subject.lengths(&[]);
    let mut doubt = Doubt::default();
    for scribble in scribbles {
        doubt.add(scribble, scribble.pages(lengths), &rest.store, rest.before);
        eyes.target = Some(scribble.zone.target());
    }
    let places = Places::read(&subject.paths()[1], subject.model.pages());
    let places = places.map_err(|error| format!("the sums: {error}"))?;
    match subject.open() {
        Ok(()) => {}
        Err(error) if may_refuse(&error) && !scribbles.is_empty() => {
            tally.add(&tally.refused, 1);
            return Ok(());
        }
        Err(error) => return Err(format!("the opening: {error}")),
    }
    let found = judge(subject.file(), &subject.model, (&doubt, &places), eyes)?;
    tally.add(&tally.noticed, (found.damaged.len() as u64).min(scribbles.len() as u64));
    tally.add(&tally.older, found.older.len() as u64);
    tally.add(&tally.kept, found.kept);
    // Now and then work goes on with the file.
    if subject.rng.u32(0..4) == 0 {
        repair(subject, (&found, &doubt), eyes, tally)?;
        subject.close(CloseMode::Fast).map_err(|error| format!("a close: {error}"))?;
        subject.open().map_err(|error| format!("the next opening: {error}"))?;
        let whole = (&Doubt::default(), &Places::default());
        judge(subject.file(), &subject.model, whole, eyes)
            .map_err(|problem| format!("the next opening: {problem}"))?;
    }
    subject.close(CloseMode::Unsynced).map_err(|error| format!("a close: {error}"))
}
