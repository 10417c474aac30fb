//! Opens a pair of files by its path: finds the files, judges them, maps them and recovers them.
//!
//! | file | holds |
//! |---|---|
//! | `candidates` | the names of companions, and to which home file they belong (writes nothing) |
//! | `context` | the context of one opening, and the steps that are undone if it fails |
//! | `wait` | the wait for a home file that is open elsewhere |
//! | `trust` | the checks that a companion must pass before it is used (writes nothing) |
//! | `probe` | the search for the pair and its state (writes nothing) |
//! | `pair` | the decision whether the two files go together (a pure table) |
//! | `make` | how opening makes a pair, begins a session, and discards a pair |
//! | `inspect` | a look at a pair without an effect |
//! | `begin` | how a session begins |
//! | `byte_mark` | the mark in the home file's bytes |
//! | `reservation` | the default size of a file's reservation of addresses |
//! | `medium` | the medium on which the files lie |
//! | `journal` | which journal belongs to the pair, and how it is opened |
//! | `read_only` | an opening that changes no file |
//! | `snapshots` | which store of snapshots belongs to the pair, and how it is opened |
//! | `keep` | what a crashed session had to keep for snapshots |
//! | `overdue` | an opening that has no space for a durable point |
//! | `replay_journal` | the return to the last durable point |
//! | `sums` | the sums of a file that had none |
//! | `lanes`, `apply_log` | recovery from the lanes: scan, decide; apply |
//!
//! The stages of an opening are types, each made by the one before it: [`Located`] (the home file
//! is open and locked), [`Judged`] (a decision was made), [`Prepared`] (there is a locked
//! reflection file), [`Mapped`], [`Recovered`], and at last an [`Engine`]. A stage that fails drops
//! what it holds, in the order of its fields: files are closed, steps are undone, and the home file
//! is unlocked last.
//!
//! Invariant: until `pair::decide` has returned, opening writes to no file but a new home file. If
//! opening fails, it removes what it has made. `docs/recovery.md` lists all steps with their crash
//! points. May import `engine` and below.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod apply_log;
mod begin;
pub(crate) mod byte_mark;
mod candidates;
mod context;
pub(crate) mod inspect;
mod journal;
mod keep;
mod lanes;
mod make;
pub(crate) mod medium;
mod overdue;
pub(crate) mod pair;
mod probe;
mod read_only;
mod replay_journal;
pub(crate) mod reservation;
mod snapshots;
mod sums;
pub(crate) mod trust;
mod wait;

use crate::config::integrity::Integrity;
use crate::config::options::Options;
use crate::config::{Medium, OnMismatch};
use crate::engine::Engine;
use crate::engine::superblock::Companions;
use crate::error::{Error, Result};
use crate::format::layout;
use crate::format::superblock::{State, Superblock};
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::pair::marking::Place;
use crate::pair::page_table::PageTable;
use crate::platform::{File, FileId, FileStat, Name, Persistence, Platform, barrier, fork};
use crate::registry::Registration;
use context::{HomeFile, Opening, Rollback, Step};
use pair::{Decision, Found};
use probe::{Lengths, Probe};
use snapshots::FoundStore;
use std::path::Path;
use std::sync::Arc;

const HUGE_PAGE: u64 = 2 << 20;

/// Opens the pair of files of a home file. The path that the caller gave was resolved to its name
/// once. From then on, no link and no current directory affects the names.
pub(crate) fn open(
    platform: Platform,
    options: &Options,
    (path, name): (&Path, &Name),
) -> Result<Arc<Engine>> {
    fork::arm();
    barrier::prepare();
    let located = Located::wait_for(&platform, options, path, name)?;
    let judged = located.judge()?;
    let engine = if options.read_only {
        judged.prepare_to_read()?.map()?.recover()?.begin_to_read()?
    } else {
        judged.prepare()?.map()?.recover()?.begin()?
    };
    engine.take_not_closed();
    Ok(engine)
}

/// The home file is open and locked, and lies on a file system that is served.
struct Located<'a> {
    /// The home file's registration. `None` for a look without a lock.
    registration: Option<Registration>,
    stat: FileStat,
    home: HomeFile<'a>,
    opening: Opening<'a>,
}

impl<'a> Located<'a> {
    fn find(
        platform: &'a Platform,
        options: &'a Options,
        given: &'a Path,
        name: &'a Name,
    ) -> Result<Self> {
        let (mut opening, mut home) = Self::begin(platform, options, given, name)?;
        let (registration, stat) =
            opening.take(&mut home).inspect_err(|error| opening.give_up(&home, error))?;
        if home.is_new && stat.len == 0 {
            home.if_it_fails = Some(opening.undo_making(name, stat));
        }
        opening.find_where_files_lie(&home.file)?;
        Ok(Located { registration: Some(registration), stat, home, opening })
    }

    /// Finds the home file, without its lock.
    fn find_unlocked(
        platform: &'a Platform,
        options: &'a Options,
        given: &'a Path,
        name: &'a Name,
    ) -> Result<Self> {
        let (mut opening, home) = Self::begin(platform, options, given, name)?;
        let stat = opening.stat(&home.file, name.path())?;
        opening.find_where_files_lie(&home.file)?;
        Ok(Located { registration: None, stat, home, opening })
    }

    /// Opens the home file.
    fn begin(
        platform: &'a Platform,
        options: &'a Options,
        given: &'a Path,
        name: &'a Name,
    ) -> Result<(Opening<'a>, HomeFile<'a>)> {
        let path = name.path();
        let dir = match &options.reflection_dir {
            Some(dir) => platform.open_folder(dir).map_err(|e| Error::io("look up", dir, e))?,
            None => Arc::clone(name.folder()),
        };
        let forced = medium::chosen(platform, options, path)?;
        let wanted = (forced, sums::chosen(options, path)?);
        let opening = Opening::new(platform, options, (given, name), dir, wanted);
        let home = opening.home_file()?;
        Ok((opening, home))
    }

    /// Looks at the pair, and decides what to do with it. Returns the findings also of the lanes,
    /// if recovery needs them. Writes nothing.
    fn findings(&self) -> Result<(Probe, Decision, Option<Vec<lanes::Findings>>)> {
        let Located { home, stat, opening, .. } = self;
        let on_mismatch = opening.options.on_mismatch;
        let decide = |look: &Probe| {
            if !opening.options.best_effort {
                return pair::decide(look.mark, look.found, on_mismatch);
            }
            match pair::decide(look.mark, look.found, OnMismatch::Trust) {
                // A reader removes nothing: the home file's bytes as they are.
                Decision::Refuse(_) => Decision::Discard,
                trusted => trusted,
            }
        };
        let mut look = opening.look(&home.file, stat)?;
        let mut decision = decide(&look);
        let mut entries = None;
        if decision == Decision::Recover {
            entries = opening.entries(&look)?;
            match &entries {
                Some(entries) => opening.take_length(&mut look, stat, entries)?,
                None => look.found = Found::Corrupt,
            }
            decision = decide(&look);
        }
        if decision != Decision::Recover && !planted!(DiscardedLogApplied) {
            // The records name pages of a pair that does not count.
            entries = None;
        }
        Ok((look, decision, entries))
    }

    /// Judges the pair. Refuses it if that was decided. Writes nothing.
    fn judge(self) -> Result<Judged<'a>> {
        let Located { stat, opening, .. } = &self;
        let options = opening.options;
        let (mut look, decision, entries) = self.findings()?;
        if let Decision::Refuse(why) = decision {
            event!(WARN, file = %crate::error::shown(opening.path), ?why, "refused");
            return Err(opening.mismatch(look.companions.reflection.path(), why));
        }
        let is_fresh = matches!(decision, Decision::Fresh | Decision::Discard);
        if matches!(decision, Decision::GoBack | Decision::Settle)
            && let Some(journal) = &look.journal
        {
            let len = journal.len();
            look.lengths = Lengths { len, high_water: len.max(stat.len) };
        }
        if is_fresh {
            look.is_restored = false;
            let len = if stat.len == 0 { options.len } else { stat.len };
            look.lengths = Lengths { len, high_water: len };
        }
        let store = match &look.superblock {
            Some(superblock) if !is_fresh => {
                opening.find_store(look.companions.snapshots(), stat, superblock)?
            }
            _ => None,
        };
        let byte_mark = opening.judge_byte_mark(&self.home.file, &look, is_fresh)?;
        // Opening refuses a file that is too long, or has no name for its companions, before it
        // removes anything for that file.
        let max_len = opening.max_len(&look.lengths, store.as_ref())?;
        let companions = opening.companions_of(&look, stat, is_fresh)?;
        let located = self;
        Ok(Judged {
            look,
            decision,
            is_fresh,
            entries,
            max_len,
            byte_mark,
            store,
            companions,
            located,
        })
    }
}

/// The pair was judged, and can be opened.
struct Judged<'a> {
    look: Probe,
    decision: Decision,
    /// `true` if opening makes a new pair.
    is_fresh: bool,
    /// The findings in the lanes, if they are needed.
    entries: Option<Vec<lanes::Findings>>,
    max_len: u64,
    byte_mark: Option<Place>,
    /// The store of snapshots that was found.
    store: Option<FoundStore>,
    companions: Companions,
    located: Located<'a>,
}

impl<'a> Judged<'a> {
    /// Discards a pair if that was decided, makes a reflection file if there is none, and locks it.
    fn prepare(self) -> Result<Prepared<'a>> {
        // In this order: the home file is dropped last.
        let Judged { mut located, mut companions, store, mut look, .. } = self;
        let Judged { decision, is_fresh, entries, max_len, byte_mark, .. } = self;
        let (home, opening, stat) = (&mut located.home, &located.opening, located.stat);
        if decision == Decision::Discard {
            opening.discard(&home.file, &stat, &look)?;
        }
        if is_fresh {
            look.superblock = None;
        }
        let mut undo = Undo::default();
        let (file, superblock) = match look.superblock.zip(look.file) {
            Some((superblock, file)) => (file, superblock),
            None => {
                if stat.len != look.lengths.len && !home.is_new {
                    let step = Step::Lengthened(home.file.clone());
                    home.if_it_fails = Some(Rollback::new(opening.platform, step));
                }
                let first = &companions.reflection;
                let (name, pair) =
                    opening.make_reflection(&home.file, &stat, first, look.lengths.len)?;
                undo.made = Some(opening.undo_making(&name, pair.there));
                companions = Companions::new(name);
                (pair.file, pair.superblock)
            }
        };
        let path = companions.reflection.path();
        // Prevents any opening of the reflection file as a home file, here or in another process.
        let there = opening.stat(&file, path)?;
        let registration = Registration::new(&there);
        let registration = registration.ok_or_else(|| Error::open_here(opening.path))?;
        if !opening.platform.try_lock(&file).map_err(|e| Error::io("lock", path, e))? {
            let holder = opening.platform.lock_holder(&file);
            return Err(Error::open_elsewhere(opening.path, holder));
        }
        let (lengths, journal, is_restored) = (look.lengths, look.journal, look.is_restored);
        let verdict =
            Verdict { decision, is_fresh, is_restored, journal, lengths, max_len, byte_mark };
        let registration = Some(registration);
        let carried = Carried {
            registration,
            superblock,
            entries,
            verdict,
            companions,
            store,
            undo,
            located,
        };
        Ok(Prepared { file, carried })
    }
}

/// The part of the judgement that later stages need.
struct Verdict {
    decision: Decision,
    /// `true` if opening makes a new pair.
    is_fresh: bool,
    /// `true` if the files of the pair were copied or restored together.
    is_restored: bool,
    /// The findings in the journal, where durable points are kept.
    journal: Option<journal::Found>,
    lengths: Lengths,
    max_len: u64,
    /// The place of the home file's byte mark, if it has one or gets one.
    byte_mark: Option<Place>,
}

/// The files and names that must not stay if opening fails. The reflection file is removed before
/// the journal. A reflection file in use without a journal would be refused, while a journal alone
/// has no effect.
#[derive(Default)]
struct Undo<'a> {
    marked: Option<Rollback<'a>>,
    made: Option<Rollback<'a>>,
    made_journal: Option<Rollback<'a>>,
}

/// The part of a stage that the next one takes over. Steps are undone, and then the home file is
/// unlocked, when it is dropped.
struct Carried<'a> {
    /// The registration of the reflection file, if there is one.
    registration: Option<Registration>,
    superblock: Superblock,
    /// The findings in the lanes, if they are needed.
    entries: Option<Vec<lanes::Findings>>,
    verdict: Verdict,
    companions: Companions,
    /// The store of snapshots that was found, until it is opened.
    store: Option<FoundStore>,
    undo: Undo<'a>,
    located: Located<'a>,
}

/// There is a reflection file, locked by this opening.
struct Prepared<'a> {
    file: File,
    carried: Carried<'a>,
}

impl<'a> Prepared<'a> {
    /// Maps both files, which finds the medium.
    fn map(self) -> Result<Mapped<'a>> {
        // In this order: the reflection file is closed before a step is undone.
        let Prepared { mut carried, file } = self;
        let Located { home, opening, .. } = &carried.located;
        let (path, reflection_path) = (opening.path, carried.companions.reflection.path());
        let max_len = carried.verdict.max_len;
        let reflection_max = layout::reflection_len(max_len).next_multiple_of(HUGE_PAGE);
        let home_len = opening.stat(&home.file, path)?.len;
        let lengths = &carried.verdict.lengths;
        let reflection_len = match carried.registration {
            Some(_) => opening.stat(&file, reflection_path)?.len,
            // Nothing of a file is used: the mapping is zeroes.
            None => layout::reflection_len(lengths.len),
        };
        let is_reader = opening.options.read_only;
        let (home_mapping, reflection_mapping, medium) = if is_reader {
            let most = lengths.len.max(lengths.high_water);
            let there = carried.registration.as_ref().map(|_| &file);
            opening.map_to_read(
                (&home.file, home_len, most),
                (there, reflection_len, layout::reflection_len(most)),
            )?
        } else {
            medium::map(
                opening.platform,
                opening.forced,
                [opening.home_lies_on, opening.dir_lies_on],
                max_len,
                (&home.file, path, max_len),
                (&file, reflection_path, reflection_max),
            )?
        };
        // If a mapping cannot reach past the end of its file, the file cannot grow.
        let reaches = home_mapping.len() as u64 >= max_len
            && reflection_mapping.len() as u64 >= reflection_max;
        if !reaches {
            let len = carried.verdict.lengths.len;
            let needed = carried.store.as_ref().map_or(0, FoundStore::needed_len);
            if needed > len {
                return Err(Error::TooLong { path: path.to_owned(), len: needed, max_len: len });
            }
            carried.verdict.max_len = len;
        }
        let max_len = carried.verdict.max_len;
        let state = PageTable::new(max_len)
            .map_err(|e| Error::of_mapping(path, PageTable::reserved(max_len), max_len, e))?;
        // Where durable points are kept, a store only has to survive a process crash. Bytes that
        // have to be durable are synced or written through.
        let keeps_points = opening.keeps_durable_points(medium);
        let persistence = match keeps_points {
            true => Persistence::Process,
            false => medium::persistence(opening.platform, medium),
        };
        let platform = opening.platform.clone().with_persistence(persistence);
        let mapped = |id, path: &Path, file, mapping, len| {
            let file = MappedFile::new(platform.clone(), id, path.to_owned(), file, mapping, len);
            if is_reader { file.into_private() } else { file }
        };
        let integrity = opening.integrity_of(carried.superblock.has_sums);
        let home = mapped(FileId::Home, path, home.file.clone(), home_mapping, home_len);
        let reflection =
            mapped(FileId::Reflection, reflection_path, file, reflection_mapping, reflection_len);
        let mapped = Mapped {
            home,
            reflection,
            reflection_len,
            platform,
            medium,
            keeps_points,
            integrity,
            state,
            store: None,
            point_left: None,
            carried,
        };
        if is_reader {
            mapped.hide_byte_mark()?;
        }
        Ok(mapped)
    }
}

/// Both files are mapped.
struct Mapped<'a> {
    home: MappedFile,
    reflection: MappedFile,
    reflection_len: u64,
    platform: Platform,
    medium: Medium,
    /// `true` if this session keeps durable points.
    keeps_points: bool,
    /// The use of page sums in this session.
    integrity: Integrity,
    /// The state of all regions, of which none is loaded.
    state: PageTable,
    /// The store of snapshots, once it is open.
    store: Option<snapshots::OpenStore>,
    /// The durable point that stays, if opening has no space for another.
    point_left: Option<overdue::PointLeft>,
    carried: Carried<'a>,
}

impl<'a> Mapped<'a> {
    fn pair(&self) -> replay_journal::Pair<'_> {
        let Mapped { platform, home, reflection, medium, .. } = self;
        let is_home_whole =
            self.carried.verdict.decision == Decision::Settle && !planted!(SettledToHome);
        replay_journal::Pair { platform, home, reflection, medium: *medium, is_home_whole }
    }

    /// Ends what the last session left: applies the records of its lanes, or returns to its last
    /// durable point.
    fn recover(mut self) -> Result<Recovered<'a>> {
        let Verdict { decision, is_fresh, .. } = self.carried.verdict;
        let (opening, stat) = (&self.carried.located.opening, &self.carried.located.stat);
        if self.keeps_points && !is_fresh {
            // Another pair's journal refuses this opening before anything is written.
            opening.check_journal(
                self.carried.companions.journal(),
                stat,
                &self.carried.superblock,
            )?;
        }
        self.open_store()?;
        if let Some(entries) = self.carried.entries.take()
            && !planted!(NotRecovered)
        {
            self.begin_private_changes();
            self.apply(entries)?;
        }
        let found = &self.carried.superblock;
        let last = LastSession {
            had_points: found.durable.base().is_some(),
            has_died: found.state == State::InUse && !is_fresh,
            was_first: found.may_lack_header(),
            was_being_made: found.is_being_made() && !is_fresh,
        };
        // The caller chose `Trust` for a closed pair that does not fit its close. Its working words
        // and durable words may differ.
        let options = self.carried.located.opening.options;
        let is_trusted = decision == Decision::Reuse && options.on_mismatch == OnMismatch::Trust;
        let makes_point = last.had_points
            && (decision == Decision::Recover || is_trusted && !planted!(TrustedWordsKept));
        if makes_point {
            self.keep_or_leave_point()?;
        }
        let (opening, pair) = (&self.carried.located.opening, self.pair());
        match &self.carried.verdict.journal {
            Some(journal) if matches!(decision, Decision::GoBack | Decision::Settle) => {
                self.begin_private_changes();
                self.carried.verdict.lengths = pair.go_back(journal, &opening.options.reporter)?;
            }
            // The process crashed, or the caller is certain of the state of the files. That state
            // becomes a durable point.
            // A reader leaves that to the next opening for writing.
            _ if makes_point && !opening.options.read_only && self.point_left.is_none() => {
                self.carried.superblock =
                    opening.end_dead_session(&pair, self.carried.superblock.clone())?;
            }
            _ => {}
        }
        if !is_fresh {
            self.pair().sync_superblock()?;
        }
        Ok(Recovered { last, mapped: self })
    }

    /// Applies what the lanes say. Idempotent, since the records in the lanes stay as they are.
    fn apply(&self, entries: Vec<lanes::Findings>) -> Result<()> {
        let actions: Vec<_> = entries.into_iter().map(lanes::decide).collect();
        #[cfg(feature = "tracing")]
        for lanes::Actions { take_back, logged_flips, redo, .. } in &actions {
            let [undo, flips, redo] = [take_back.len(), logged_flips.len(), redo.len()];
            event!(INFO, file = %crate::error::shown(self.home.path()), undo, flips, redo, "recovers a lane");
        }
        let len = self.carried.verdict.lengths.len;
        let has_sums = self.carried.superblock.has_sums;
        apply_log::apply(&self.home, &self.reflection, (len, has_sums), &actions)?;
        // Orders everything that was recovered before the superblock that voids the records.
        unless!(RecoverNotDrained, self.platform.drain());
        Ok(())
    }
}

/// The last session, as the superblock told of it that was found.
#[derive(Clone, Copy)]
struct LastSession {
    /// `true` if it kept durable points.
    had_points: bool,
    /// `true` if it was not closed.
    has_died: bool,
    /// `true` if it was the first one, so that its journal may not be durable.
    was_first: bool,
    /// `true` if it may have ended before names and mark were durable.
    was_being_made: bool,
}

/// The files hold one state, with which a session can begin.
struct Recovered<'a> {
    last: LastSession,
    mapped: Mapped<'a>,
}

impl Recovered<'_> {
    /// Begins a session. Its journal is made before the superblock that says that it exists.
    fn begin(mut self) -> Result<Arc<Engine>> {
        let journal = self.open_journal()?;
        // An earlier opening may have died before it synced the names. A mark would tell that it
        // did, but not every file system keeps marks.
        let was_being_made = self.last.was_being_made && !planted!(UnsettledNamesTaken);
        if self.mapped.carried.verdict.is_fresh || was_being_made {
            let Mapped { reflection, carried, .. } = &self.mapped;
            let Located { home, opening, .. } = &carried.located;
            // The names of the reflection file and the journal, and perhaps of the home file.
            opening.sync_names(&carried.companions.reflection, reflection.file(), &home.file)?;
        }
        let session = journal.as_ref().map(|journal| journal.session);
        let session = session.unwrap_or(self.mapped.carried.superblock.next_number());
        self.begin_sums()?;
        self.mapped.announce_to_store(session)?;
        let superblock = self.begin_session(session)?;
        self.mapped.confirm_to_store()?;
        let store = self.mapped.take_store();
        self.finish_truncation()?;
        let opening = &self.mapped.carried.located.opening;
        let len = self.mapped.carried.verdict.lengths.len;
        let begin = |journal| opening.begin_journal(journal, &superblock, len);
        let journal = journal.map(begin).transpose()?;
        self.mapped.into_engine(superblock, journal, store)
    }
}
