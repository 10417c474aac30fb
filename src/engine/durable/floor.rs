//! The floor of the journal: how far the records of this session reach at least.
//!
//! Without the floor, recovery could not tell a journal of an earlier time from the pair's own
//! (`format::floor`).
//!
//! May import `plan`, `pair`, and what lies below them.

use crate::engine::Engine;
use crate::engine::durable::Durable;
use crate::error::{Error, Result, WRITE_A_POINT};
use crate::format::floor::{FLOOR_LEN, Floor};
use crate::format::layout;
use crate::mutant::planted;
use crate::platform::{Copying, FileId};

/// How far the floor of the journal was raised in this session.
#[derive(Default)]
pub(in crate::engine) struct Raised {
    /// The record number that the newest floor holds.
    number: u64,
    /// Which of the two places the next floor goes to.
    place: usize,
}

impl Engine {
    /// Records in the reflection file that the session has a record, with this number. An older
    /// copy of the journal has no such record. Without the floor it would look complete, and the
    /// words of the session's beginning would count.
    ///
    /// Orders the floor before the durable words of the session's first point. So it comes before
    /// any store over the slots that only the session's beginning needs. Waits for this one block,
    /// once a session.
    pub(super) fn begin_floor(&self, durable: &Durable, number: u64) -> Result<()> {
        let mut raised = durable.floor.lock();
        // A checkpoint that raised the floor to this number may have failed.
        self.check_usable()?;
        let Some((at, floor)) = self.next_floor(&mut raised, number) else { return Ok(()) };
        if planted!(FloorNotDurable) {
            self.reflection.copy_in(at, &floor, Copying::Cached);
            return Ok(());
        }
        let file = self.reflection.file();
        let written = self.platform.write_durably(file, FileId::Reflection, &floor, at);
        written.map_err(|e| Error::io_at(WRITE_A_POINT, self.reflection.path(), at, e))
    }

    /// Names the newest durable record in the reflection file. Nothing waits for that. So after a
    /// process crash a damaged record is not taken for a torn one, and neither after a power loss
    /// if the kernel had written these bytes back.
    pub(super) fn note_newest(&self, number: u64) {
        let floor = self.floor_of(number);
        self.reflection.copy_in(layout::NEWEST_RECORD, &floor, Copying::Cached);
    }

    fn floor_of(&self, number: u64) -> [u8; FLOOR_LEN] {
        let superblock = self.superblock.lock();
        Floor { session: superblock.session, number }.encode(&superblock.uuid)
    }

    /// Returns the next floor, which names the durable record `number`, and its offset. Returns
    /// `None` if the last floor already names that record. The caller makes this floor durable
    /// before the one after it, which goes to the other place.
    pub(super) fn next_floor(
        &self,
        raised: &mut Raised,
        number: u64,
    ) -> Option<(u64, [u8; FLOOR_LEN])> {
        if number <= raised.number {
            return None;
        }
        let floor = self.floor_of(number);
        let at = layout::FLOORS[raised.place];
        raised.number = number;
        if !planted!(FloorInOnePlace) {
            raised.place = 1 - raised.place;
        }
        Some((at, floor))
    }
}
