//! Seals and drops snapshots.
//!
//! The commit point of both is the table of the store, drained or synced. A seal writes it while no
//! operation is half way: where durable points are kept, right after one; else with the gate of
//! cuts closed. A drop writes it before anything else changes. Only then do operations go by the
//! smaller set, and only after that is the space of records given back.
//!
//! May import `durable`, `keep`, `plan`, `pair`, and what lies below them.

use crate::engine::durable::point::CutGate;
use crate::engine::{Engine, plan};
use crate::error::{Error, Result, SnapshotError};
use crate::format::snapshots::table::{Entry, Flags, LONGEST_NAME, MOST_ENTRIES, Table, is_name};
use crate::mutant::{planted, unless};
use crate::pair::epochs::Sealed;
use crate::pair::gates::{ClosedGate, Gate};
use crate::pair::log::lanes::InUse;
use crate::pair::snapshots::Store;
use crate::pair::stats::Counter;
use crate::platform::barrier;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes durable what a collection has stored.
type Settle<'a> = &'a dyn Fn() -> Result<()>;

/// Waits for the readers that a collection has to wait for.
type Wait<'a> = &'a dyn Fn();

/// The section of a change of the table.
const CHANGE: &str = "change of the snapshots";

impl Engine {
    /// Seals the present state under a name, and returns what the table says of it.
    pub fn seal(&self, name: &str, flags: Flags) -> Result<Entry> {
        self.seal_as_of(now(), name, flags)
    }

    /// Seals the present state with this time, in nanoseconds since 1970.
    pub fn seal_as_of(&self, nanos: u64, name: &str, flags: Flags) -> Result<Entry> {
        self.check_usable()?;
        self.check_writable()?;
        // Before `resizing`: a thread that has a lane may be waiting for `resizing`.
        let lane = self.lane();
        let _one_at_a_time = self.resizing.write();
        self.check_usable_still()?;
        // Before a store is made for it.
        self.check_is_new(name)?;
        let store = self.store_or_make()?;
        let _gate = self.stand_still(&lane)?;
        let len = self.len();
        let add = |table: &mut Table| table.add(len, nanos, flags, name);
        let number = self.change_live(&lane, store, add)?;
        lane.stats.bump(Counter::Snapshots, 1);
        Ok(Entry { number, len, nanos, flags, name: name.to_owned() })
    }

    /// Returns what the table says of all live snapshots, the oldest first.
    pub fn live_snapshots(&self) -> Vec<Entry> {
        // In a child of `fork`, a thread of the parent may seem to hold the lock of the table.
        self.snapshots.get().filter(|_| !self.is_forked()).map(Store::live).unwrap_or_default()
    }

    /// Returns what the table says of the live snapshot with this name.
    pub fn live_snapshot(&self, name: &str) -> Result<Entry> {
        let found = self.live_snapshots().into_iter().find(|entry| entry.name == name);
        let none = || SnapshotError::NotFound { name: name.to_owned() };
        found.ok_or_else(|| self.snapshot_error(none()))
    }

    /// Returns what the table says of a live snapshot, and keeps it from being dropped until
    /// [`end_reading`](crate::pair::epochs::Epochs::end_reading) is called.
    pub fn begin_reading(&self, name: &str) -> Result<Entry> {
        let entry = self.live_snapshot(name)?;
        self.check_sealed(&entry)?;
        if !self.epochs.begin_reading(entry.number) {
            return Err(self.snapshot_error(SnapshotError::NotFound { name: name.to_owned() }));
        }
        Ok(entry)
    }

    /// Fails if bytes that were kept for the snapshot may be lost.
    pub(super) fn check_sealed(&self, entry: &Entry) -> Result<()> {
        self.snapshots.get().map_or(Ok(()), |store| store.check(entry.number))
    }

    /// Returns, for each live snapshot, the bytes of the store that only it needs.
    pub fn held(&self) -> BTreeMap<u64, u64> {
        let store = self.snapshots.get().filter(|_| !self.is_forked());
        store.map(Store::held).unwrap_or_default()
    }

    pub(super) fn snapshot_error(&self, why: SnapshotError) -> Error {
        Error::Snapshot { path: self.path(), why }
    }

    /// Drops the snapshot with this name, and gives back what only it needed.
    pub fn drop_snapshot(&self, name: &str) -> Result<()> {
        let choose = || Ok(vec![self.live_snapshot(name)?.number]);
        let (dropped, in_use) = self.drop_chosen(choose)?;
        self.collect_after(dropped)?;
        match in_use.first() {
            Some(number) => Err(self.snapshot_error(SnapshotError::InUse { number: *number })),
            None => Ok(()),
        }
    }

    /// Drops the snapshots of the numbers that `choose` returns. Those that handles read stay. No
    /// snapshot is sealed or dropped between the choice and the drop. Returns how many were
    /// dropped, and the numbers of those that stay. The caller gives back what only they needed.
    pub(super) fn drop_chosen(
        &self,
        choose: impl FnOnce() -> Result<Vec<u64>>,
    ) -> Result<(u64, Vec<u64>)> {
        self.check_usable()?;
        self.check_writable()?;
        let lane = self.lane();
        let _one_at_a_time = self.resizing.write();
        self.check_usable_still()?;
        let chosen = choose()?;
        let Some(store) = self.snapshots.get() else { return Ok((0, Vec::new())) };
        let refuses =
            |number: &u64| self.epochs.refuse_readers(*number) || planted!(DropUnderReader);
        let (free, in_use): (Vec<u64>, Vec<u64>) = chosen.into_iter().partition(refuses);
        let dropped = match free.is_empty() {
            true => Ok(()),
            false => self.drop_entries(&lane, store, &free),
        };
        free.iter().for_each(|number| self.epochs.end_refusal(*number));
        dropped.map(|()| (free.len() as u64, in_use))
    }

    /// Gives back what only `dropped` snapshots needed, unless there are none.
    pub(super) fn collect_after(&self, dropped: u64) -> Result<()> {
        if dropped == 0 {
            return Ok(());
        }
        // A later drop gives back whatever cannot be now. A failed sync has poisoned the
        // handle.
        match self.collect_snapshots() {
            Err(error) if !self.is_usable() => Err(error),
            _given_back_later => self.check_usable(),
        }
    }

    /// Takes snapshots out of the table, and then out of the set that operations go by. The caller
    /// holds `resizing`.
    fn drop_entries(&self, lane: &InUse<'_>, store: &Store, numbers: &[u64]) -> Result<()> {
        // The table first. An operation that goes by the smaller set keeps for an older snapshot.
        // If a power loss then brought the larger table back, the dropped one would lack those
        // slices. Until then operations keep for the dropped one, and an older one reads that as
        // well.
        self.change_table(lane, store, |table| {
            for number in numbers {
                table.remove(*number);
            }
        })?;
        // No operation may see one set and store by another.
        let _gate = (!self.keeps_points).then(|| self.lanes.close(Gate::Cut));
        self.publish_live(store);
        Ok(())
    }

    /// Gives back the space of records that no live snapshot needs.
    pub(in crate::engine) fn collect_snapshots(&self) -> Result<()> {
        self.with_collection(|store, settle, wait| store.collect(settle, wait)).map(drop)
    }

    /// Does a step of the collection that was asked for. Returns `true` if work is left.
    pub(super) fn collect_some(&self) -> Result<bool> {
        self.check_usable()?;
        let some =
            |store: &Store, settle: Settle<'_>, wait: Wait<'_>| store.collect_some(settle, wait);
        self.with_collection(some).map(|is_left| is_left.unwrap_or(false))
    }

    /// Runs `collect` with the store, if there is one, and its two waits.
    fn with_collection<T>(
        &self,
        collect: impl FnOnce(&Store, Settle<'_>, Wait<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(store) = self.snapshots.get() else { return Ok(None) };
        let lane = self.lane();
        // No import is half way: it appends records before the table has their snapshot.
        let _no_seal = self.resizing.read();
        self.check_usable_still()?;
        let settle = || self.settle_store(&lane, store);
        // A reader looks a record up and copies its bytes in one read section.
        let wait = || self.wait_for_read_sections();
        self.uncut("return of the snapshots' space", || collect(store, &settle, &wait)).map(Some)
    }

    /// Brings the file to a state that can be sealed, and keeps it there until the returned guard
    /// is dropped. Where durable points are kept, that is a durable point: the caller's `resizing`
    /// keeps the next one away.
    pub(super) fn stand_still(&self, lane: &InUse<'_>) -> Result<Option<ClosedGate<'_>>> {
        self.switch_on();
        if let Some(durable) = &self.durable {
            unless!(
                SealWithoutPoint,
                self.durable_point_while_resizing(lane, durable, CutGate::Open)?
            );
            return Ok(None);
        }
        if planted!(SealGateOpen) { Ok(None) } else { self.close_cut().map(Some) }
    }

    /// Closes the gate of cuts. Fails if an operation inside has poisoned the handle.
    pub(super) fn close_cut(&self) -> Result<ClosedGate<'_>> {
        let gate = self.lanes.close(Gate::Cut);
        self.check_usable_still()?;
        Ok(gate)
    }

    /// Makes every operation enter the gate of cuts from here on. Called at the first snapshot.
    pub(super) fn switch_on(&self) {
        if self.epochs.is_on() {
            return;
        }
        self.epochs.switch_on();
        // Orders the switch before the looks at the locks. A thread that takes a lock after this
        // finds the switch on. On a fast path it begins anew if it has not entered the gate.
        barrier::heavy();
        if planted!(SwitchNoWait) {
            return;
        }
        for (_, region) in self.state.loaded_regions() {
            // Waits for the operations that hold a lock of this region already.
            drop(plan::lock_whole_region(region));
        }
    }

    /// Makes the set of live snapshots that the store has the one that operations go by. No
    /// operation is inside the gate of cuts, or none of them looks at the set.
    pub(crate) fn publish_live(&self, store: &Store) {
        self.epochs.replace(store.live().iter().map(sealed).collect());
    }

    /// Changes the table, durably, and then the set that operations go by. No operation is inside
    /// the gate of cuts, or none of them looks at the set.
    pub(super) fn change_live<T>(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        change: impl FnOnce(&mut Table) -> T,
    ) -> Result<T> {
        self.uncut(CHANGE, || {
            let result = self.change_table(lane, store, change)?;
            self.publish_live(store);
            Ok(result)
        })
    }

    /// Changes the table, durably.
    pub(super) fn change_table<T>(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        change: impl FnOnce(&mut Table) -> T,
    ) -> Result<T> {
        self.uncut(CHANGE, || self.change_table_uncut(lane, store, change))
    }

    fn change_table_uncut<T>(
        &self,
        lane: &InUse<'_>,
        store: &Store,
        change: impl FnOnce(&mut Table) -> T,
    ) -> Result<T> {
        if self.keeps_points && store.is_unsynced() {
            // Orders the repeated table before the one that goes over the other copy.
            unless!(RepeatedTableNotSynced, self.sync_store(store)?);
        }
        let result = store.change_table(|table| Ok(change(table)))?;
        // The commit point.
        unless!(TableNotDurable, self.settle_store(lane, store)?);
        // Where drains are durable, this is before the next change, by whatever thread. Elsewhere
        // that change syncs.
        unless!(TableNotRepeated, store.repeat_table());
        self.drain(lane);
        Ok(result)
    }

    /// Makes everything durable that was stored to the store. Where that is a call, a failure
    /// poisons the handle: it is unknown which table the disk has.
    pub(in crate::engine) fn settle_store(&self, lane: &InUse<'_>, store: &Store) -> Result<()> {
        self.drain(lane);
        if self.keeps_points {
            self.sync_store(store)?;
        }
        Ok(())
    }

    /// Fails if no snapshot of this name can be added.
    pub(super) fn check_is_new(&self, name: &str) -> Result<()> {
        if !is_name(name) {
            let name = name.to_owned();
            return Err(self.snapshot_error(SnapshotError::BadName { name, longest: LONGEST_NAME }));
        }
        let live = self.live_snapshots();
        if live.iter().any(|entry| entry.name == name) {
            return Err(self.snapshot_error(SnapshotError::Exists { name: name.to_owned() }));
        }
        if live.len() >= MOST_ENTRIES {
            return Err(self.snapshot_error(SnapshotError::TooMany { limit: MOST_ENTRIES }));
        }
        Ok(())
    }

    /// Returns the store, and makes it at the first snapshot of the file.
    pub(super) fn store_or_make(&self) -> Result<&Store> {
        match self.snapshots.get() {
            Some(store) => Ok(store),
            None => self.make_store(),
        }
    }
}

/// Returns the nanoseconds since 1970 by the system's clock.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn sealed(entry: &Entry) -> Sealed {
    Sealed { number: entry.number, len: entry.len }
}
