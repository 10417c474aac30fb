//! How a session begins: the journal, the mark, and the superblock that says so.
//!
//! A new pair that keeps durable points is in use from the beginning, by the superblock that it was
//! made with. So three barriers open it: the reflection file, the names, and the home file with its
//! mark. `docs/model/opening.py` tries each of them left out.
//!
//! May import `journal`, `make`, `engine` and below.

use super::context::{Rollback, Step};
use super::overdue::PointLeft;
use super::{Carried, Mapped, Recovered, journal};
use crate::config::Medium;
use crate::config::integrity::Integrity;
use crate::engine::durable::journal::Journal;
use crate::engine::resize::truncate;
use crate::engine::superblock::{Kind, settle, store_begun, store_length};
use crate::engine::{Engine, Setup};
use crate::error::{Error, Result};
use crate::format::layout;
use crate::format::marker::Sessions;
use crate::format::superblock::Superblock;
use crate::mutant::{planted, unless};
use crate::pair::Opened;
use crate::pair::budget::Budget;
use crate::pair::marking::Marking;
use crate::pair::snapshots::Store;
use std::io;
use std::sync::Arc;

impl Recovered<'_> {
    /// Opens or makes the journal, if this session keeps durable points.
    pub(super) fn open_journal(&mut self) -> Result<Option<journal::OpenJournal>> {
        let Mapped { medium, keeps_points, carried, .. } = &self.mapped;
        let Carried { superblock, companions, verdict, located, .. } = carried;
        if !keeps_points {
            return Ok(None);
        }
        let (opening, name) = (&located.opening, companions.journal());
        let home = (&located.home.file, &located.stat);
        let (is_fresh, len) = (verdict.is_fresh, verdict.lengths.len);
        let journal =
            opening.open_journal(name, home, *medium, (self.last, is_fresh), superblock)?;
        let is_first = !is_fresh && superblock.durable.base().is_none();
        self.mapped.carried.undo.made_journal =
            journal.made.map(|there| opening.undo_making(name, there));
        if is_first {
            // The last session kept no durable points, or they no longer count. From here on, the
            // state of the files counts as the first durable point.
            self.mapped.pair().begin_durable_words(len)?;
        }
        if !is_fresh && let Some(undo) = &mut self.mapped.carried.undo.made_journal {
            // The superblock of a pair that existed before may say from here on that there is a
            // journal. So the journal stays even if opening fails.
            undo.keep();
        }
        Ok(Some(journal))
    }

    /// Zeroes what lies past the length, if a shrink or a return to a durable point left something
    /// there.
    pub(super) fn finish_truncation(&mut self) -> Result<()> {
        let Mapped { home, reflection, reflection_len, platform, medium, .. } = &self.mapped;
        let lengths = self.mapped.carried.verdict.lengths;
        let is_longer = home.len() > lengths.len
            || *reflection_len > layout::reflection_len(lengths.len)
            || lengths.high_water > lengths.len;
        if !is_longer || planted!(OpenNotCleanedUp) {
            return Ok(());
        }
        if planted!(OpenHighWaterFirst) {
            store_length(reflection, layout::HIGH_WATER_WORD, lengths.len);
            platform.drain();
        }
        let has_sums = self.mapped.integrity != Integrity::Off;
        truncate::zero_past(home, reflection, lengths.len, has_sums)?;
        // Orders the zeroes and the lengths of the files before the high-water word that says that
        // nothing is left to zero.
        unless!(OpenZeroesNotDrained, platform.drain());
        if *medium == Medium::Dax {
            for file in [home, reflection] {
                file.sync_all().map_err(|e| Error::io("sync", file.path(), e))?;
            }
        }
        store_length(reflection, layout::HIGH_WATER_WORD, lengths.len);
        // Orders the high-water word before bytes that are written past the length after the next
        // growth.
        unless!(OpenHighWaterNotDrained, platform.drain());
        self.mapped.carried.verdict.lengths.high_water = lengths.len;
        Ok(())
    }

    /// Writes the mark, and then the superblock that says that the pair is in use. So a home file
    /// without a mark has no pair.
    pub(super) fn begin_session(&mut self, session: u64) -> Result<Superblock> {
        let Mapped {
            home,
            reflection,
            platform,
            medium,
            keeps_points,
            integrity,
            point_left,
            carried,
            ..
        } = &mut self.mapped;
        let Carried { superblock, verdict, companions, undo, located, .. } = carried;
        let (keeps, medium) = (*keeps_points, *medium);
        let (opening, stat) = (&located.opening, &located.stat);
        // A new pair that keeps durable points is in use from the beginning.
        let is_begun = session == superblock.session;
        let set_marker = || {
            let sessions = Sessions { before: superblock.session, begun: session };
            // The process of an opening may have died between the mark and its sync.
            let is_settled = !superblock.is_unsettled || planted!(UnsettledMarkTaken);
            let of_pair = (superblock.uuid, sessions, superblock.is_marked && is_settled);
            opening.set_marker(home, stat, reflection, of_pair, &companions.reflection, medium)
        };
        // The superblock of a restored pair still names another home file, and a mark would hide
        // that.
        let mark_comes_last = verdict.is_restored || planted!(MarkLast);
        let mut is_marked = false;
        if !mark_comes_last && !planted!(OpenNotMarked) {
            if verdict.is_fresh {
                let of_pair = (superblock.uuid, &companions.reflection);
                let before = opening.put_new_mark(&located.home.file, of_pair)?;
                let step = Step::Marked(located.home.file.clone(), before);
                undo.marked = Some(Rollback::new(opening.platform, step));
            }
            is_marked = set_marker()?;
        }
        if verdict.is_fresh && !is_marked && !opening.is_kept_in_memory() {
            // The sync of the mark would have made the new length durable.
            home.sync_all().map_err(opening.io("sync", opening.path))?;
        }
        if is_begun {
            if is_marked != superblock.is_marked && !mark_comes_last && !planted!(OpenNotMarked) {
                // The file system has told otherwise before.
                let unsupported = io::ErrorKind::Unsupported.into();
                return Err(opening.io("set the attribute", opening.path)(unsupported));
            }
            // Orders mark and names before the word that says that the pair is whole.
            unless!(MadeNotSettled, settle(reflection, superblock));
            store_begun(reflection, session);
            if mark_comes_last {
                set_marker()?;
            }
            return Ok(superblock.clone());
        }
        let point_len = point_left.as_ref().map_or(verdict.lengths.len, |point| point.len);
        let points = opening.durable_points(keeps, point_len);
        let says = (points, is_marked, *integrity != Integrity::Off);
        let last = (superblock.clone(), session);
        let begun = opening.begin_session(platform, reflection, last, stat, medium, says)?;
        if mark_comes_last {
            set_marker()?;
        }
        if !keeps && self.last.had_points {
            // The last session kept durable points. The new superblock says that this session keeps
            // none.
            opening.remove_companion(companions.of(Kind::Journal), stat, &begun.uuid)?;
        }
        Ok(begun)
    }
}

impl Mapped<'_> {
    /// Hands everything over to the engine. From here on, closing the pair releases the lock.
    pub(super) fn into_engine(
        self,
        superblock: Superblock,
        journal: Option<Journal>,
        snapshots: Option<Store>,
    ) -> Result<Arc<Engine>> {
        // In this order: steps are undone, and then the home file is dropped.
        let Carried { mut located, mut undo, verdict, companions, registration, .. } = self.carried;
        let options = located.opening.options;
        let maps_synchronously = self.medium == Medium::Dax && located.opening.forced.is_none();
        let journal_len = journal.as_ref().map_or(0, Journal::longest_len);
        let budget = options.reflection_budget.filter(|_| !options.read_only);
        let mark = located.opening.byte_mark(superblock.uuid, &companions.reflection);
        let marking = (!options.read_only)
            .then(|| Marking::new(mark, verdict.byte_mark, options.mark_at.is_some()));
        let engine = Engine::new(Setup {
            pair: Opened {
                platform: self.platform,
                home: self.home,
                reflection: self.reflection,
                medium: self.medium,
                len: verdict.lengths.len,
                high_water: verdict.lengths.high_water,
                max_len: verdict.max_len,
                state: self.state,
                fresh: verdict.is_fresh && located.opening.new_byte_mark.get().place().is_none(),
                integrity: self.integrity,
                damage_reporter: options.damage_reporter.clone(),
                marking,
                budget: budget.map(|bytes| Budget::new(bytes, journal_len)),
                ahead: None,
                words_ahead: self.medium == Medium::PageCache
                    && budget.is_none()
                    && options.deploy_idle.is_none(),
            },
            policy: options.deploy,
            superblock,
            registrations: located.registration.into_iter().chain(registration).collect(),
            name: located.opening.home.clone(),
            companions,
            cache_is_shared: located.opening.cache_is_shared,
            calls_share_cache: located.opening.calls_share_cache(),
            keeps_cuts: journal.is_some() || options.keeps_cuts,
            journal,
            point_left: self.point_left.map(|PointLeft { len, why }| (len, why)),
            snapshots,
            maps_synchronously,
            durability: options.durability,
            sync_every: options.sync_every,
            auto_snapshots: options.auto_snapshots,
            scrub: options.scrub,
            deploy_idle: options.deploy_idle.filter(|_| !options.read_only),
            allocation: options.allocation,
            shows_appends: options.shows_appends,
            reporter: options.reporter.clone(),
        });
        engine.begin_byte_mark()?;
        if !options.read_only && !options.marks_database {
            engine.forget_database_mark()?;
        }
        engine.begin_snapshots(options.read_only)?;
        engine.begin_budget();
        engine.set_byte_mark()?;
        if !options.read_only {
            engine.populate_if_chosen()?;
        }
        engine.begin_interval()?;
        let of_home = &mut located.home.if_it_fails;
        let steps = [of_home, &mut undo.made, &mut undo.marked, &mut undo.made_journal];
        steps.into_iter().flatten().for_each(Rollback::keep);
        event!(
            INFO,
            file = %crate::error::shown(&engine.path()),
            decision = ?verdict.decision,
            medium = ?engine.medium,
            len = engine.len(),
            "opened"
        );
        Ok(engine)
    }
}
