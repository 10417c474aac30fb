//! Fuzz target: opens a crashed pair with changes and with correct checksums.
//!
//! ```text
//! 0  bits 0-1: wish, 2-3: medium, 4-5: reservation, 6-7: durability; a 3 in the first or the
//!    last: page sums
//! 1  what is done with the file, if it opens (life)
//! 2  the image to begin with: 0 = two new superblocks, else one that a crash has left (templates)
//! 3  bit 0: superblocks are repaired, 1: log records are, 2: of another boot, 3: marked,
//!    4: the identity is not made this file's, 5: journal records and floors are repaired,
//!    6: there is no journal, 7: flip records get the checksums of their slots
//! 4  a lane and a block of the journal in which no record is repaired; 80 and more: none
//! 5- patches
//! ```

use super::ground::{self, Ground, Slot, adopt};
use super::image::{Contents, Image};
use super::input::Input;
use super::life::{self, Life};
use super::open_bytes::{UUID, how, put_superblocks};
use super::patch::{MarkWish, Patch};
use super::sums;
use super::templates;
use atomic_mmap::testing::layout;

/// Runs one input.
pub fn run(input: &[u8]) {
    ground::with(|ground| one(ground, Input(input)));
}

fn one(ground: &Ground, mut input: Input<'_>) {
    let how = how(input.byte());
    let life = Life(input.byte());
    let from = input.byte();
    let flags = input.byte();
    let torn = input.byte();
    let patches = Patch::all(&mut input);
    let slot = &ground.slots[0];
    let image = make(ground, slot, from, flags, torn, &patches);
    life::open(ground, slot, &image, &how, life);
}

fn make(ground: &Ground, slot: &Slot, from: u8, flags: u8, torn: u8, patches: &[Patch]) -> Image {
    let mut image = match from {
        0 => {
            let mut reflection = Contents::of_len(layout::reflection_len(0));
            put_superblocks(&mut reflection, false, 0, 0);
            Image { reflection: Some(reflection), ..Image::default() }
        }
        n => templates::image(usize::from(n) - 1),
    };
    Patch::apply_to_home(patches, &mut image);
    let otherwise = match flags & 8 != 0 {
        true if image.is_closing() => MarkWish::Closing,
        true => MarkWish::Right,
        false => MarkWish::None,
    };
    let mark = slot.mark(&Patch::mark(patches, otherwise), UUID);
    image.mark = mark.filter(|_| ground.has_marks);
    let stat = slot.put_home(&image);
    Patch::apply_to_reflection(patches, &mut image);
    if flags & 128 != 0 {
        sums::repair_slices(&mut image, |lane, _| lane != usize::from(torn));
    }
    if let Some(reflection) = &mut image.reflection {
        if flags & 16 == 0 {
            let mut now = ground.now();
            if flags & 4 != 0 {
                now.boot = [0x5A; 16];
            }
            adopt(reflection, &stat, Some(&now));
        }
        if flags & 1 != 0 {
            sums::repair_superblocks(reflection);
        }
        if flags & 2 != 0
            && let Some((uuid, session)) = sums::session_of(reflection)
        {
            let is_whole = |lane: usize, _| lane != usize::from(torn);
            sums::repair_entries(reflection, &uuid, session, is_whole);
        }
    }
    Patch::apply_to_journal(patches, &mut image);
    if let (Some(reflection), Some(journal)) = (&mut image.reflection, &mut image.journal)
        && flags & 32 != 0
        && let Some((uuid, session)) = sums::session_of_records(reflection)
    {
        sums::repair_records(journal, &uuid, session, |block| block != u64::from(torn));
        sums::repair_headers(journal);
        sums::repair_floors(reflection, &uuid, |place| place != usize::from(torn));
    }
    if flags & 64 != 0 {
        image.journal = None;
    }
    slot.put_reflection(&image);
    image
}
