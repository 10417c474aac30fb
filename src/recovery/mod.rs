//! Opens a pair of files by its path: finds the files, judges them, maps them and recovers them.
//!
//! | file | holds |
//! |---|---|
//! | `candidates` | the names of companions, and to which home file they belong (writes nothing) |
//! | `context` | the context of one opening, and the steps that are undone if it fails |
//! | `trust` | the checks that a companion must pass before it is used (writes nothing) |
//! | `look` | the search for the pair and its state (writes nothing) |
//! | `pair` | the decision whether the two files go together (a pure table) |
//! | `make` | how opening makes a pair, begins a session, and discards a pair |
//! | `reservation` | the default size of a file's reservation of addresses |
//! | `medium` | the medium on which the files lie |
//! | `durable` | the return to the last durable point |
//! | `lanes` | recovery from the lanes: scan, decide, apply |
//!
//! Invariant: until `pair::decide` has returned, opening writes to no file but a new home file. If
//! opening fails, it removes what it has made. `docs/recovery.md` lists all steps with their crash
//! points. May import `engine` and below.

mod candidates;
mod context;
mod durable;
mod lanes;
mod look;
mod make;
mod medium;
mod pair;
mod reservation;
mod trust;

use crate::engine::superblock::Companions;
use crate::engine::{Engine, Setup, durable::Durable, resize::truncate};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::format::marker::Sessions;
use crate::format::superblock::State;
use crate::mutant::{planted, unless};
use crate::options::Options;
use crate::pair::Opened;
use crate::platform::{FileId, Persistence, Platform, barrier, fork};
use crate::registry::Registration;
use crate::store::MappedFile;
use crate::terms::{Medium, OnMismatch};
use context::{Opening, Step, UndoUnlessKept};
use look::Lengths;
use pair::{Decision, Found};
use std::path::Path;
use std::sync::Arc;

/// Suffix of a reflection file's name while the file is being made.
const UNFINISHED: &str = "new";
const HUGE_PAGE: u64 = 2 << 20;

/// Opens the pair of files of `path`.
pub(crate) fn open(platform: Platform, options: &Options, path: &Path) -> Result<Arc<Engine>> {
    fork::arm();
    barrier::prepare();
    let look_up = |path: &Path| {
        let path = path.to_owned();
        move |e| Error::io("look up", &path, e)
    };
    // The path is resolved once. From here on, no link and no current directory affects the names.
    let given = path;
    let home_name = platform.name(given).map_err(|e| Error::of_opening(given, e))?;
    let path = home_name.path();
    let dir = match &options.reflection_dir {
        Some(dir) => platform.open_folder(dir).map_err(look_up(dir))?,
        None => Arc::clone(home_name.folder()),
    };
    let forced = medium::forced(options, path)?;
    let mut opening = Opening::new(&platform, options, (given, &home_name), dir, forced);
    if forced == Some(Medium::Dax) && !opening.can_flush() {
        return Err(Error::UnsupportedMedium {
            path: path.to_owned(),
            medium: Medium::Dax.to_string(),
            why: "this build has no instruction that writes cache lines back",
        });
    }
    let mut home = opening.home_file()?;
    let (registration, stat) =
        opening.take(&mut home).inspect_err(|error| opening.give_up(&home, error))?;
    let busy = |in_this_process| Error::Busy { path: path.to_owned(), in_this_process };
    if home.is_new && stat.len == 0 {
        home.if_it_fails = Some(opening.undo_making(&home_name, stat));
    }
    opening.find_where_files_lie(&home.file)?;

    let mut found = opening.look(&home.file, &stat)?;
    let mut decision = pair::decide(found.mark, found.found, options.on_mismatch);
    let mut entries = None;
    if decision == Decision::Recover {
        entries = opening.entries(&found)?;
        if entries.is_none() {
            found.found = Found::Corrupt;
            decision = pair::decide(found.mark, found.found, options.on_mismatch);
        }
    }
    if let Decision::Refuse(why) = decision {
        return Err(opening.mismatch(found.companions.reflection.path(), why));
    }
    let is_fresh = matches!(decision, Decision::Fresh | Decision::Discard);
    let goes_back = decision == Decision::GoBack;
    if goes_back && let Some(journal) = &found.journal {
        let len = journal.len();
        found.lengths = Lengths { len, high_water: len.max(stat.len) };
    }
    if is_fresh {
        let len = if stat.len == 0 { options.len } else { stat.len };
        found.lengths = Lengths { len, high_water: len };
    }
    let mut lengths = found.lengths;
    // Opening refuses a file that is too long, or has no name for its companions, before it removes
    // anything for that file.
    let max_len = opening.max_len(lengths.len.max(lengths.high_water))?;
    let mut companions = opening.companions_of(&found, &stat, is_fresh)?;
    if decision == Decision::Discard {
        opening.discard(&home.file, &stat, &found)?;
    }
    if is_fresh {
        found.superblock = None;
    }
    // These files must not stay if anything from here on fails. The reflection file is removed
    // before the journal. A reflection file in use without a journal would be refused, while a
    // journal alone has no effect.
    let mut made_journal = None;
    let mut made = None;
    let mut marked = None;
    let (reflection_file, superblock) = match found.superblock.zip(found.file) {
        Some((superblock, file)) => (file, superblock),
        None => {
            if stat.len != lengths.len && !home.is_new {
                let step = Step::Lengthened(opening.another(&home.file)?);
                home.if_it_fails = Some(UndoUnlessKept::new(&platform, step));
            }
            let (name, pair) =
                opening.make_reflection(&home.file, &stat, &companions.reflection, lengths.len)?;
            made = Some(opening.undo_making(&name, pair.there));
            companions = Companions::new(name);
            (pair.file, pair.superblock)
        }
    };
    let reflection_path = companions.reflection.path();
    // Prevents any opening of the reflection file as a home file, here or in another process.
    let found_stat = opening.stat(&reflection_file, reflection_path)?;
    let reflection_registration =
        Registration::new(found_stat.dev, found_stat.ino).ok_or_else(|| busy(true))?;
    if !platform.try_lock(&reflection_file).map_err(|e| Error::io("lock", reflection_path, e))? {
        return Err(busy(false));
    }
    let reflection_max = layout::reflection_len(max_len).next_multiple_of(HUGE_PAGE);
    let (home_mapping, reflection_mapping, medium) = medium::map(
        &platform,
        forced,
        [opening.home_lies_on, opening.dir_lies_on],
        max_len,
        (&home.file, path, max_len),
        (&reflection_file, reflection_path, reflection_max),
    )?;
    // If a mapping cannot reach past the end of its file, the file cannot grow while it is open.
    let reaches =
        home_mapping.len() as u64 >= max_len && reflection_mapping.len() as u64 >= reflection_max;
    let max_len = if reaches { max_len } else { lengths.len };
    // Where durable points are kept, a store only has to survive a process crash. Bytes that have
    // to be durable are synced or written through.
    let keeps = opening.keeps_durable_points(medium);
    let persistence =
        if keeps { Persistence::Process } else { medium::persistence(&platform, medium) };
    let platform = platform.clone().with_persistence(persistence);
    let home_len = opening.stat(&home.file, path)?.len;
    let reflection_len = opening.stat(&reflection_file, reflection_path)?.len;
    let home_file = MappedFile::new(
        platform.clone(),
        FileId::Home,
        path.to_owned(),
        opening.another(&home.file)?,
        home_mapping,
        home_len,
    );
    let reflection = MappedFile::new(
        platform.clone(),
        FileId::Reflection,
        reflection_path.to_owned(),
        reflection_file,
        reflection_mapping,
        reflection_len,
    );
    if keeps && !is_fresh {
        // Another pair's journal refuses this opening before anything is written.
        opening.check_journal(&companions.journal, &stat, &superblock)?;
    }
    if let Some(entries) = entries
        && !planted!(NotRecovered)
    {
        recover(&platform, &home_file, &reflection, lengths.len, entries)?;
    }
    // The caller chose `Trust` for a closed pair that does not fit its close. Its working words and
    // durable words may differ.
    let is_trusted = decision == Decision::Reuse && options.on_mismatch == OnMismatch::Trust;
    let had_points = superblock.durable.base().is_some();
    let has_died = superblock.state == State::InUse && !is_fresh;
    let pair =
        durable::Pair { platform: &platform, home: &home_file, reflection: &reflection, medium };
    let mut superblock = superblock;
    match &found.journal {
        Some(journal) if goes_back => {
            lengths = pair.go_back(journal)?;
        }
        // The process crashed, or the caller vouches for the state of the files. That state becomes
        // a durable point.
        _ if had_points
            && (decision == Decision::Recover || is_trusted && !planted!(TrustedWordsKept)) =>
        {
            superblock = opening.end_dead_session(&pair, superblock)?;
        }
        _ => {}
    }
    if !is_fresh {
        pair.sync_superblock()?;
    }
    // The journal is made before the superblock that says that it exists.
    let journal = match keeps {
        true => {
            let name = &companions.journal;
            let known = (had_points, has_died);
            Some(opening.open_journal(name, (&home.file, &stat), medium, known, &superblock)?)
        }
        false => None,
    };
    let session = journal.as_ref().map_or(superblock.session + 1, |journal| journal.session);
    if let Some(there) = journal.as_ref().and_then(|journal| journal.made) {
        made_journal = Some(opening.undo_making(&companions.journal, there));
    }
    if keeps && !is_fresh && superblock.durable.base().is_none() {
        // The last session kept no durable points, or they no longer count. From here on, the state
        // of the files counts as the first durable point.
        pair.begin_durable_words(lengths.len)?;
    }
    let points = opening.durable_points(keeps, lengths.len);
    if !is_fresh && let Some(undo) = &mut made_journal {
        // The superblock of a pair that existed before may say from here on that there is a
        // journal. So the journal stays even if opening fails.
        undo.keep();
    }
    let set_marker = || {
        let sessions = Sessions { before: superblock.session, begun: session };
        let of_pair = (superblock.uuid, sessions, superblock.is_marked);
        let name = &companions.reflection;
        opening.set_marker(&home_file, &stat, &reflection, of_pair, name, medium)
    };
    // The mark comes before the superblock that says that the pair is in use. So a home file
    // without a mark has no pair. The superblock of a restored pair still names another home file,
    // and a mark would hide that.
    let mark_comes_last = found.is_restored || planted!(MarkLast);
    let mut is_marked = false;
    if !mark_comes_last && !planted!(OpenNotMarked) {
        if is_fresh {
            let step = Step::Marked(opening.another(&home.file)?);
            marked = Some(UndoUnlessKept::new(opening.platform, step));
        }
        is_marked = set_marker()?;
    }
    let last = (superblock.clone(), session);
    let says = (points, is_marked);
    let begun = opening.begin_session(&platform, &reflection, last, &stat, medium, says)?;
    if mark_comes_last {
        set_marker()?;
    }
    let superblock = begun;
    if !keeps && had_points {
        // The last session kept durable points. The new superblock says that this session keeps
        // none.
        opening.remove_journal(&companions.journal, &stat, &superblock.uuid)?;
    }
    let is_longer = home_file.len() > lengths.len
        || reflection_len > layout::reflection_len(lengths.len)
        || lengths.high_water > lengths.len;
    let cuts = is_longer && !planted!(OpenNotCleanedUp);
    if cuts {
        if planted!(OpenHighWaterFirst) {
            reflection.store_word_through(layout::HIGH_WATER_WORD, lengths.len);
            platform.drain();
        }
        truncate::zero_past(&home_file, &reflection, lengths.len)?;
        // Orders the zeroes and the lengths of the files before the high-water word that says that
        // nothing is left to zero.
        unless!(OpenZeroesNotDrained, platform.drain());
        if medium == Medium::Dax {
            home_file.sync_all().map_err(|e| Error::io("sync", path, e))?;
            reflection.sync_all().map_err(|e| Error::io("sync", reflection_path, e))?;
        }
        reflection.store_word_through(layout::HIGH_WATER_WORD, lengths.len);
        // Orders the high-water word before bytes that are written past the length after the next
        // growth.
        unless!(OpenHighWaterNotDrained, platform.drain());
        lengths.high_water = lengths.len;
    }
    let durable = match journal {
        Some(journal) => {
            let journal = opening.begin_journal(journal, &superblock)?;
            let durable = Durable::new(journal, lengths.len);
            if cuts {
                durable.must_flush();
            }
            Some(durable)
        }
        None => None,
    };
    let engine = Engine::new(Setup {
        pair: Opened {
            platform,
            home: home_file,
            reflection,
            medium,
            len: lengths.len,
            high_water: lengths.high_water,
            max_len,
            fresh: is_fresh,
        },
        policy: options.deploy,
        superblock,
        registrations: [registration, reflection_registration],
        companions,
        cache_is_shared: opening.cache_is_shared,
        durable,
        durability: options.durability,
        sync_every: options.sync_every,
    });
    engine.begin_interval()?;
    let steps = [&mut home.if_it_fails, &mut made, &mut marked, &mut made_journal];
    for undo in steps.into_iter().flatten() {
        undo.keep();
    }
    // From here on, closing the pair releases the lock.
    home.is_locked = false;
    Ok(engine)
}

/// Applies what the lanes say. Idempotent, since the records in the lanes stay as they are.
fn recover(
    platform: &Platform,
    home: &MappedFile,
    reflection: &MappedFile,
    len: u64,
    entries: Vec<lanes::Findings>,
) -> Result<()> {
    let actions: Vec<_> = entries.into_iter().map(lanes::decide).collect();
    lanes::apply(home, reflection, len, &actions)?;
    // Orders everything that was recovered before the superblock that voids the records.
    unless!(RecoverNotDrained, platform.drain());
    Ok(())
}
