//! The byte mark of an open file: 64 bytes of the home file that say that it needs its companions.
//!
//! The mark lies in the home slot of a slice, and the valid slot of that slice is in the reflection
//! file, with zeroes. A claim keeps it so: no flip and no deployment stores to the home slot before
//! a spatial close, which deploys the zeroes together with all other bytes.
//!
//! A new pair has its mark before it is in use (`recovery::byte_mark`). A file that gets its place
//! for a mark later is marked in three steps, of which each is durable before the next:
//! 1. The slice moves to its reflection slot, and is claimed. A drain on both sides of the word.
//! 2. A durable point makes the slice's durable word say so, and a sync the word with the place.
//!    Otherwise a return to the last point would take the mark for the slice's bytes.
//! 3. The mark is stored to the home slot.
//!
//! With `AtomicSync` only the program makes points. So step 3 follows its next `sync`.
//!
//! May import `durable`, `commit`, `io`, `plan`, `pair`, and what lies below them.

use crate::bitmap::Side;
use crate::config::{Durability, Medium};
use crate::engine::Engine;
use crate::engine::commit::publish;
use crate::engine::plan::WordUpdate;
use crate::error::{Error, Mismatch, Result};
use crate::format::byte_mark::{ByteMark, Found, LEN};
use crate::format::entry::WordId;
use crate::format::sqlite_header::{self, HEAD};
use crate::format::{layout, le_word, state_word};
use crate::lock::lock_page;
use crate::mmap::MappedFile;
use crate::mutant::{planted, unless};
use crate::pair::log::lane::Lane;
use crate::pair::log::lanes::InUse;
use crate::pair::log::records::PageSlices;
use crate::pair::marking::{CLAIMED, MarkWord, Marking, Place, SET, WANTED};
use crate::platform::FileId;

impl Engine {
    /// Sets the mark at `offset`, which the structure in the file has reserved for it. Does nothing
    /// if the file has its mark there, or was opened for reading. A full disk only puts it off.
    pub fn mark_at(&self, offset: u64) -> Result<()> {
        let Some((marking, place)) = self.marking.as_ref().zip(Place::new(offset)) else {
            return Ok(());
        };
        {
            let _one_at_a_time = marking.setting.lock();
            marking.want(place);
        }
        self.set_byte_mark()
    }

    /// Returns `false` for a step that lacked space, so that the mark is put off.
    fn has_space<T>(&self, step: Result<T>) -> Result<bool> {
        match step {
            Ok(_) => Ok(true),
            Err(error @ (Error::NoSpace { .. } | Error::Overdue { .. })) => {
                self.tell_unmarked(&error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn tell_unmarked(&self, _error: &Error) {
        event!(WARN, file = %crate::error::shown(self.home.path()), error = %_error, "not marked");
    }

    /// Claims the slice of the mark if an opening has found it in its reflection slot.
    pub fn begin_byte_mark(&self) -> Result<()> {
        let Some((marking, (place, _))) =
            self.marking.as_ref().and_then(|marking| Some((marking, marking.now()?)))
        else {
            return Ok(());
        };
        let _no_resizing = self.resizing.read();
        if place.end() <= self.len() && self.claim_mark(&self.lane(), place, false)? {
            marking.become_now(CLAIMED);
        }
        Ok(())
    }

    /// Sets the mark, if the file has a place for it and is long enough. Without space the next
    /// change of the length or `sync` tries again: a full disk refuses no opening.
    pub fn set_byte_mark(&self) -> Result<()> {
        let Some(marking) = &self.marking else { return Ok(()) };
        if !matches!(marking.now(), Some((_, WANTED | CLAIMED))) {
            return Ok(());
        }
        // Another thread that sets it may wait for a durable point, which this one may be making.
        let Some(_one_at_a_time) = marking.setting.try_lock() else { return Ok(()) };
        let may_make_point = self.durability != Durability::AtomicSync;
        let mut points = self.durable.iter().filter(|_| may_make_point).cycle().take(2);
        loop {
            if self.try_to_mark(marking)? {
                return Ok(());
            }
            // The first point may make the slot free that the slice moves to. The next one makes
            // the durable word say that the slice is there.
            let Some(durable) = points.next() else { return Ok(()) };
            if !self.has_space(self.durable_point(durable))? {
                return Ok(());
            }
        }
    }

    /// Goes on as far as possible without a durable point. Returns `true` if nothing is left to do.
    fn try_to_mark(&self, marking: &Marking) -> Result<bool> {
        // Before `resizing`: a thread that has a lane may be waiting for `resizing`.
        let lane = self.lane();
        let _no_resizing = self.resizing.read();
        self.check_usable_still()?;
        let Some((place, state)) = marking.now() else { return Ok(true) };
        if place.end() > self.len() {
            return Ok(true);
        }
        if state == WANTED {
            if !self.claim_mark(&lane, place, true)? {
                return Ok(false);
            }
            marking.become_now(CLAIMED);
        }
        let is_set = self.store_mark(&lane, marking, place)?;
        if is_set {
            marking.become_now(SET);
        }
        Ok(is_set)
    }

    /// Sets the mark as [`set_byte_mark`](Self::set_byte_mark) does, behind an operation that has
    /// happened.
    pub fn mark_if_wanted(&self) {
        if let Err(error) = self.set_byte_mark() {
            self.tell_unmarked(&error);
        }
    }

    /// Claims the slice of the mark, once it is in its reflection slot. With `moves` it moves the
    /// slice there. Returns `false` if that is not possible now.
    fn claim_mark(&self, lane: &InUse<'_>, place: Place, moves: bool) -> Result<bool> {
        let (page, slices) = (place.page(), place.slices());
        let region = {
            let _pinned = lane.pin();
            self.region(page.region())?
        };
        let n = page.in_region();
        let _inside = self.enter_cut(lane);
        let held = lock_page(&region.lock, &region.pages[n].lock);
        if region.validity(n).in_reflection(slices).is_empty() {
            let (file, at) = self.slot(Side::Reflection, place.start());
            let (mut bytes, mut away) = ([0; LEN], [0; LEN]);
            self.home.copy_out(&mut bytes, place.start());
            let read = file.read_file(&mut away, at);
            read.map_err(|e| Error::io_at("read", file.path(), at, e))?;
            // A deployment leaves equal bytes. Otherwise the slot in the reflection file may belong
            // to the last durable point, or to a stage. The one at home may belong to a view.
            let is_claimed = !region.claimed_slices(n).and(slices).is_empty() && bytes != away;
            if !moves || is_claimed || region.is_held_back(n) {
                self.note_changed(page);
                held.mark_stable();
                return Ok(false);
            }
            if ByteMark::decode(&bytes).is_some() {
                held.mark_stable();
                let (home, reflection) = (self.path(), self.companions.reflection.path());
                let (reflection, why) = (reflection.to_owned(), Mismatch::LoneCopy);
                return Err(Error::Mismatch { home, reflection, why });
            }
            let validity = region.validity(n);
            if !self.has_space(self.ensure_free_slots(lane, page, slices, validity, true))?
                || !self.has_space(self.ensure_slice_word(page))?
            {
                held.mark_stable();
                return Ok(false);
            }
            self.clear_stamp(page.region(), region, 1 << n);
            self.note_changed(page);
            let word = WordId::Slice(page);
            let change = WordUpdate { word, mask: slices.0, old: region.pages[n].slice_word() };
            self.invalidate_records(lane, std::iter::once(PageSlices { page, region, slices }));
            if bytes != away {
                self.store(lane, file, at, &bytes);
            }
            // Orders the slot, and the invalidation of active records that name it, before the word
            // that makes it valid.
            self.drain(lane);
            self.store_updates(lane, std::slice::from_ref(&change));
            // Orders the word before the mark, which is stored to the slot that was valid.
            self.drain(lane);
            held.close();
            publish(region, &change);
        } else {
            held.mark_stable();
        }
        region.claim_for_mark(n, slices);
        Ok(true)
    }

    /// Stores the mark to the home slot, if no return to a durable point makes that slot valid.
    fn store_mark(&self, lane: &InUse<'_>, marking: &Marking, place: Place) -> Result<bool> {
        let region = {
            let _pinned = lane.pin();
            self.region(place.page().region())?
        };
        let durable = region.durable(place.page().in_region());
        if durable.in_reflection(place.slices()).is_empty() && !planted!(ByteMarkWithoutPoint) {
            return Ok(false);
        }
        let (mark, mut there) = (marking.mark.encode(), [0; LEN]);
        let read = self.home.read_file(&mut there, place.start());
        read.map_err(|e| Error::io_at("read the byte mark", self.home.path(), place.start(), e))?;
        if ByteMark::decode(&there) == Some(Found::Mark(marking.mark)) {
            return self.store_mark_word(lane, MarkWord::At(place, true)).map(|_| true);
        }
        if !self.has_space(self.ensure_slots(lane, Side::Home, place.start()..place.end()))? {
            return Ok(false);
        }
        // Before the mark: the next opening claims the slice by the word.
        let is_new = self.store_mark_word(lane, MarkWord::At(place, false))?;
        if is_new && self.medium == Medium::PageCache {
            self.sync_for_mark(&self.reflection)?;
        }
        self.store(lane, &self.home, place.start(), &mark);
        // Orders the mark before stores that come to this file alone. A sync makes it durable for
        // copies that are made after a loss of power.
        self.drain(lane);
        if self.medium != Medium::Ram {
            self.sync_for_mark(&self.home)?;
        }
        self.store_mark_word(lane, MarkWord::At(place, true)).map(|_| true)
    }

    /// Makes a file durable. The system tells of a failed sync once, and what it was to make
    /// durable may be lost. So a failure poisons the handle.
    fn sync_for_mark(&self, file: &MappedFile) -> Result<()> {
        let synced = file.sync_all().map_err(|e| Error::io("sync", file.path(), e));
        synced.inspect_err(|error| self.poison(error))
    }

    /// Stores the state word, if it is another one, and drains. Returns `true` if it was.
    fn store_mark_word(&self, lane: &Lane, word: MarkWord) -> Result<bool> {
        let at = layout::MARK_WORD;
        let word = state_word::encode(at, word.encode());
        let mut known = [0; 8];
        let read = self.reflection.read_file(&mut known, at);
        read.map_err(|e| Error::io_at("read a state word", self.reflection.path(), at, e))?;
        let is_new = le_word(&known) != word;
        if is_new {
            self.reflection.store_word_through(at, word);
            // Orders the word before the mark, the deployment of its slice, the new length, and the
            // stores of this session. And it must not arrive over the word of another thread.
            unless!(MarkWordNotDrained, self.drain(lane));
        }
        Ok(is_new)
    }

    /// Says that the header of a database may be without its mark. A program other than the VFS has
    /// opened it, and what it puts back may have none.
    pub fn forget_database_mark(&self) -> Result<()> {
        let at = layout::MARK_WORD;
        let mut known = [0; 8];
        let read = self.reflection.read_file(&mut known, at);
        read.map_err(|e| Error::io_at("read a state word", self.reflection.path(), at, e))?;
        if le_word(&known) == state_word::encode(at, MarkWord::InHeader.encode()) {
            self.store_mark_word(&self.lane(), MarkWord::None)?;
        }
        Ok(())
    }

    /// Returns the header of a database in the home file, if it is marked.
    pub(super) fn marked_header(&self) -> Result<Option<[u8; HEAD]>> {
        let mut header = [0; HEAD];
        if self.len() < HEAD as u64 {
            return Ok(None);
        }
        let read = self.home.read_file(&mut header, 0);
        read.map_err(|e| Error::io_at("read the header", self.home.path(), 0, e))?;
        Ok(sqlite_header::is_marked(&header).then_some(header))
    }

    /// Takes the mark of a database off, in a home file that counts alone from here on.
    pub(super) fn unmark_database(&self, mut header: [u8; HEAD]) -> Result<()> {
        sqlite_header::unmark(&mut header);
        // The counter goes first. So a connection with an older page cache looks at the header.
        for part in [24..28, 19..20] {
            let (at, bytes) = (part.start as u64, &header[part]);
            let put = self.platform.write_at(self.home.file(), FileId::Home, bytes, at);
            put.map_err(|e| Error::io_at("write the header", self.home.path(), at, e))?;
        }
        Ok(())
    }

    /// Says that the mark may be gone. A spatial close is about to deploy its slice.
    pub(super) fn end_byte_mark(&self, lane: &Lane) -> Result<()> {
        let Some((_, place)) = self.mark_past(0) else { return Ok(()) };
        self.store_mark_word(lane, MarkWord::At(place, false)).map(drop)
    }

    /// Says that the mark may be gone, if the file is about to have `len` bytes and no room for it.
    /// If the shrink then fails, its caller stores by [`mark_if_wanted`](Self::mark_if_wanted) that
    /// the mark is there.
    pub(super) fn end_byte_mark_past(&self, lane: &Lane, len: u64) -> Result<()> {
        let Some((marking, place)) = self.mark_past(len) else { return Ok(()) };
        if !planted!(MarkWordOutlivesMark) {
            self.store_mark_word(lane, marking.word_without(place))?;
        }
        marking.become_now(CLAIMED);
        Ok(())
    }
}
