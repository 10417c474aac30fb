//! Scribbles that stay: repair and rollback over them, and operations beside them.
//!
//! May import `eyes`, `in_use`, `judge`, `subject` and `place`.

use super::Tally;
use super::eyes::{Eyes, Plant, Way, is_damage};
use super::in_use::{Files, load_words};
use super::judge::{Before, Checked, Doubt, Found, Places, judge, may_refuse};
use super::place::{Ink, PAGE_LEN, Scribble, Zone};
use super::subject::Subject;
use atomic_mmap::CloseMode;
use std::collections::BTreeSet;

/// Operations beside scribbles.
const OPERATIONS: usize = 12;
/// Most scribbles that stay at once.
const MOST: u64 = 3;

fn judge_whole(subject: &Subject, eyes: &mut Eyes, what: &str) -> Checked {
    let nothing = (&Doubt::default(), &Places::default());
    judge(subject.file(), &subject.model, nothing, eyes)
        .map(drop)
        .map_err(|problem| format!("{what}: {problem}"))
}

/// Damages both slots of a page that a snapshot has kept as a whole, and goes back to the snapshot.
/// That restores all bytes.
pub fn roll_back_over_damage(
    subject: &mut Subject,
    (eyes, ink): (&mut Eyes, &Ink),
    tally: &Tally,
) -> Checked {
    let name = subject.seal().map_err(|error| format!("a seal: {error}"))?;
    let pages = subject.model.present.len() as u64 / PAGE_LEN;
    let page = subject.rng.u64(0..pages);
    let mut bytes = vec![0; PAGE_LEN as usize];
    subject.rng.fill(&mut bytes);
    let written = subject.write(page * PAGE_LEN, &bytes).and_then(|()| subject.file().sync());
    written.map_err(|error| format!("a write: {error}"))?;
    let mut files = Files::map(subject);
    let lengths = subject.lengths(&files.store());
    for zone in [Zone::Home, Zone::Slots] {
        let at = zone.range(lengths).start + page * PAGE_LEN;
        let scribble = Scribble::over(&mut subject.rng, zone, at..at + PAGE_LEN);
        files.of(zone.target()).put(at, ink.of(&scribble));
    }
    let range = subject.model.range(page as usize);
    let expected = &subject.model.present[range.clone()];
    if !eyes.present(subject.file(), range, Way::Read, expected).is_err_and(|e| is_damage(&e)) {
        return Err(format!("page {page} has lost all of its bytes, and is read"));
    }
    if !eyes.has(Plant::RollbackRestoresNothing) {
        let rolled = subject.file().roll_back(&name, None);
        rolled.map_err(|error| format!("a rollback over page {page}, which is kept: {error}"))?;
    }
    let (_, sealed) = subject.model.sealed.last().expect("it was sealed").clone();
    subject.set_present(sealed);
    tally.add(&tally.rolled_back, 1);
    judge_whole(subject, eyes, "after a rollback over damage")?;
    subject.file().drop_snapshot(&name).map_err(|error| format!("a drop: {error}"))?;
    subject.model.sealed.pop();
    Ok(())
}

/// Drops the snapshots, and writes the right bytes over all pages that depend on scribbled bytes.
/// Then all is right. A page that is whole may be damaged at the last durable point, or past the
/// end of the file.
pub fn repair(
    subject: &mut Subject,
    (found, doubt): (&Found, &Doubt),
    eyes: &mut Eyes,
    tally: &Tally,
) -> Checked {
    // A snapshot that reads slices of a damaged page stands in the way of a write.
    subject.model.sealed.clear();
    for snapshot in subject.file().snapshots() {
        let dropped = subject.file().drop_snapshot(&snapshot.name);
        dropped.map_err(|error| format!("a drop beside damage: {error}"))?;
    }
    let present = subject.model.present.clone();
    let pages: BTreeSet<usize> = found
        .damaged
        .iter()
        .chain(&found.older)
        .copied()
        .chain(doubt.pages(subject.model.pages()))
        .collect();
    if let Some(last) = subject.model.pages().checked_sub(1).filter(|last| pages.contains(last)) {
        // The cut zeroes the bytes past the end.
        let (start, len) = (subject.model.range(last).start, subject.model.present.len());
        let file = subject.file();
        let cut = file.set_len(start as u64).and_then(|()| file.set_len(len as u64));
        cut.map_err(|error| format!("a cut of page {last}: {error}"))?;
        subject.model.present[start..].fill(0);
    }
    for page in &pages {
        let range = subject.model.range(*page);
        let bytes = present[range.clone()].to_vec();
        if !eyes.has(Plant::RepairDoesNothing) {
            let written = subject.write(range.start as u64, &bytes);
            written.map_err(|error| format!("a write over all of page {page}: {error}"))?;
        }
        tally.add(&tally.repaired, 1);
    }
    // A crash would go back to the damage of the last point.
    subject.sync().map_err(|error| format!("a sync after the repair: {error}"))?;
    judge_whole(subject, eyes, "after writes over the damage")
}

/// Lets some scribbles stay while operations go on, closes the file and opens it again. Returns
/// `false` if the file cannot be used any more.
pub fn scribble_and_go_on(
    subject: &mut Subject,
    (eyes, ink): (&mut Eyes, &Ink),
    tally: &Tally,
) -> Checked<bool> {
    if subject.rng.bool() {
        // Then most pages have not been touched in this session.
        let reopened = subject.close(CloseMode::Fast).and_then(|()| subject.open());
        reopened.map_err(|error| format!("reopened: {error}"))?;
        load_words(subject)?;
    }
    let mut files = Files::map(subject);
    let store = files.store();
    let lengths = subject.lengths(&store);
    let modes = [CloseMode::Fast, CloseMode::Spatial, CloseMode::Unsynced];
    let mut mode = modes[subject.rng.usize(0..3)];
    let before = Before::closed(mode, subject.ground);
    let (mut doubt, mut what) = (Doubt::default(), String::new());
    for _ in 0..subject.rng.u64(1..=MOST) {
        let zones = [Zone::Home, Zone::Slots, Zone::Sums, Zone::SliceWords, Zone::Segments];
        let zone = zones[subject.rng.usize(0..zones.len())];
        let Some(scribble) = Scribble::draw(&mut subject.rng, zone, lengths) else { continue };
        files.of(zone.target()).put(scribble.at, ink.of(&scribble));
        eyes.target = Some(zone.target());
        doubt.add(&scribble, scribble.pages(lengths), &store, before);
        what += &format!("{scribble}, ");
        tally.add(&tally.stayed, 1);
    }
    what += &format!("which stay, and {mode:?}");
    let told = |problem: String| format!("{what}: {problem}");
    for _ in 0..OPERATIONS {
        let is_lost = eyes.has(Plant::OperationLost);
        let lost = is_lost.then(|| subject.model.present.clone());
        match subject.operate() {
            Ok(()) => {}
            Err(error) if is_damage(&error) => {
                tally.add(&tally.noticed, 1);
                // It may have made a durable point before it failed.
                if subject.ground.goes_back() {
                    mode = CloseMode::Fast;
                }
            }
            Err(error) => return Err(told(format!("an operation: {error}"))),
        }
        if let Some(lost) = lost
            && lost.len() == subject.model.present.len()
            && lost != subject.model.present
        {
            let undone = subject.file().write_at(&lost, 0);
            undone.map_err(|error| told(format!("planted: {error}")))?;
        }
    }
    drop(files);
    judge_beside(subject, &doubt, eyes, "beside them").map_err(told)?;
    if let Err(error) = subject.close(mode) {
        return if may_refuse(&error) { Ok(false) } else { Err(told(format!("a close: {error}"))) };
    }
    match subject.open() {
        Ok(()) => {}
        Err(error) if may_refuse(&error) => {
            tally.add(&tally.refused, 1);
            return Ok(false);
        }
        Err(error) => return Err(told(format!("an opening: {error}"))),
    }
    let found = judge_beside(subject, &doubt, eyes, "opened again").map_err(told)?;
    tally.add(&tally.noticed, found.damaged.len() as u64);
    tally.add(&tally.older, found.older.len() as u64);
    tally.add(&tally.kept, found.kept);
    repair(subject, (&found, &doubt), eyes, tally).map_err(told)?;
    Ok(true)
}

fn judge_beside(subject: &Subject, doubt: &Doubt, eyes: &mut Eyes, when: &str) -> Checked<Found> {
    let places = Places::read(&subject.paths()[1], subject.model.pages());
    let places = places.map_err(|error| format!("the sums: {error}"))?;
    judge(subject.file(), &subject.model, (doubt, &places), eyes)
        .map_err(|problem| format!("{when}: {problem}"))
}
