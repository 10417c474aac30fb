//! How does a write go that lies within one word, where only the process dies?
//!
//! By one store. Of an aligned word, a process that is killed has stored all or nothing, so it needs no other slot, and no
//! word that says which one counts: it goes to where its slice is valid. What a flip takes beside, a copy of the slice to
//! the line of another file and a word in a third, is twice the time, and the page is not at home any more after it.
//! Counters and offsets are such writes.
//!
//! Same steps as any store in place: lock, looks, close, store. Readers of the page begin again, by its home word or by
//! versions (`loom_models`: `who_reads_a_page_by_its_word`, `a_reader_of_a_page_sees_no_half_of_a_write`). Who pins the page
//! keeps its bytes: that write goes another way (`what_a_view_pins_does_not_change`). Not where the machine may die: there it would do for whole words in lines that no entry names, and
//! nothing else.
//!
//! May import what `small` may.

use super::Engine;
use super::commit::Part;
use super::lanes::Lane;
use super::live::Target;
use super::small::Small;
use super::state::RegionState;
use super::stats::Counter;
use crate::lock::Held;
use crate::mutant::{planted, unless};
use crate::units::{PAGE, PageIndex, SLICE, WORD};

/// Whether so many bytes, at least one, lie within a word.
#[inline(always)]
pub(super) fn is_in_word(offset: u64, len: usize) -> bool {
    (offset as usize % WORD) + len <= WORD
}

impl Engine {
    /// Whether a part of the page goes so, for who holds the page and has found that nobody pins it.
    #[inline]
    pub(super) fn goes_in_word(
        &self,
        region: &RegionState,
        page: PageIndex,
        part: &Part<'_>,
    ) -> bool {
        self.small == Small::Flip
            && is_in_word(part.offset, part.data.len())
            && self.backs_word(region, page, part.offset)
    }

    /// Whether there is space behind the slot that is valid. For who holds the page.
    #[inline(always)]
    pub(super) fn backs_word(&self, region: &RegionState, page: PageIndex, offset: u64) -> bool {
        let side = region.validity(page.in_region()).side(offset as usize % PAGE / SLICE);
        self.side_is_allocated(page.region(), side, false) || planted!(WordToHole)
    }

    /// Stores a part that lies within a word of the target's slice. `held` is the page's lock; nobody pins the page; the
    /// slot that is valid is allocated.
    #[inline(always)]
    pub(super) fn store_in_word(
        &self,
        lane: &Lane,
        target: &Target<'_>,
        held: Held<'_>,
        part: &Part<'_>,
    ) {
        // Entries name slices where the machine may die only, or while their operation holds the page.
        debug_assert_eq!(target.region.lanes(target.page.in_region()), 0);
        let start = part.offset as usize % WORD;
        let slice = part.offset as usize % PAGE / SLICE;
        let valid = target.region.validity(target.page.in_region()).side(slice);
        let valid = if planted!(WordToFreeSlot) { valid.other() } else { valid };
        let (file, at) = self.slot(valid, part.offset - start as u64);
        // What is around it stays as it is: under the lock nobody else stores there.
        let word = match part.data.try_into() {
            Ok(whole) => u64::from_le_bytes(whole),
            Err(_) => {
                let mut bytes = file.load_word(at).to_le_bytes();
                bytes[start..start + part.data.len()].copy_from_slice(part.data);
                u64::from_le_bytes(bytes)
            }
        };
        // Orders the mark before the store: who has read some of the new bytes finds it, or the new version.
        unless!(WordNotClosed, held.close());
        file.store_word(at, word);
        lane.stats.bump(Counter::BytesWritten, SLICE as u64);
        lane.stats.bump(Counter::Word, 1);
        // Seen once the lock is open. Who dies now has written it.
        drop(held);
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use crate::bitmap::Validity;
    use crate::units::{PAGE, RegionIndex};
    use crate::{AtomicMappedFile, Medium};

    /// Of one chunk, everything at home and allocated.
    fn file(folder: &std::path::Path, medium: Medium) -> AtomicMappedFile {
        let options = AtomicMappedFile::options().create(true).len(2 << 20).medium(medium);
        let file = options.open(folder.join(medium.to_string())).expect("a pair");
        for _ in 0..2 {
            file.write_at(&[1; 2 << 20], 0).expect("a write");
            // By words of their own.
            file.write_at(&[1; 64], 0).expect("a write");
        }
        file
    }

    fn validity(file: &AtomicMappedFile) -> Validity {
        file.engine().state.touched(RegionIndex(0)).expect("touched").validity(0)
    }

    /// Writes so many twos, and whether they are where the ones before them were. What is around them is as before.
    fn stays(file: &AtomicMappedFile, offset: u64, len: usize) -> bool {
        let (mut expected, mut found) = ([0; PAGE], [0; PAGE]);
        file.read_at(&mut expected, 0).expect("a read");
        expected[offset as usize..][..len].fill(2);
        let before = validity(file);
        file.write_at(&vec![2; len], offset).expect("a write");
        file.read_at(&mut found, 0).expect("a read");
        assert!(found == expected, "{len} bytes at {offset}");
        validity(file) == before
    }

    #[test]
    fn what_lies_in_a_word_is_stored_where_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram);
        assert_eq!(validity(&file), Validity(0));
        for (offset, len) in [(0, 8), (64, 1), (133, 3), (63, 1), (4088, 8), (124, 4)] {
            assert!(stays(&file, offset, len), "{len} bytes at {offset}");
        }
        for (offset, len) in [(6, 4), (1, 8), (8, 16), (60, 5)] {
            assert!(!stays(&file, offset, len), "{len} bytes at {offset} are in two words");
        }
        // Of a slice that is valid in the reflection file, too.
        assert!(!stays(&file, 256, 64) && validity(&file).0 >> 4 & 1 == 1);
        assert!(stays(&file, 264, 8) && stays(&file, 319, 1));
        // By a transaction of nothing else, after it was read.
        let before = validity(&file);
        assert_eq!(
            file.slot::<u64>(264).expect("a slot").fetch_add(1).expect("a sum"),
            u64::MAX / 255 * 2
        );
        assert!(validity(&file) == before && file.load::<u8>(264).expect("a read") == 3);
        file.transact(|tx| tx.store(264, &[1u8; 4]).and_then(|()| tx.store(512, &1u8)))
            .expect("two");
        assert!(validity(&file) != before, "not of two");
        assert!(file.write_at(&[2], 2 << 20).is_err() && file.write_at(&[2; 8], u64::MAX).is_err());
    }

    #[test]
    fn what_a_view_pins_is_not_stored_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = file(folder.path(), Medium::Ram);
        let view = file.view(0..64).expect("a view");
        assert!(!stays(&file, 8, 8));
        assert_eq!(view.to_vec().expect("its bytes"), [1; 64]);
        drop(view);
        assert!(stays(&file, 8, 8));
    }

    #[test]
    fn where_the_machine_may_die_nothing_is_stored_where_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        // Where there is no such instruction, there is no such medium.
        let options = AtomicMappedFile::options().create(true).len(2 << 20).medium(Medium::Dax);
        if options.open(folder.path().join("probe")).is_err() {
            return;
        }
        let file = file(folder.path(), Medium::Dax);
        assert!(!stays(&file, 0, 8));
    }
}
