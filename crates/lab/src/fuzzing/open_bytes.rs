//! Fuzz target: opens a pair with any bytes in the place of the reflection file.
//!
//! ```text
//! 0  bits 0-1: wish, 2-3: medium, 4-5: reservation, 6-7: durability; a 3 in the first or the
//!    last: page sums
//! 1  what is done with the file, if it opens (life)
//! 2  bit 0: both superblocks of this file to begin with; 1: closed, 2: of another boot, 3: marked,
//!    4: there is no reflection file at all, 5: no journal, 6-7: what they say of durable points
//! 3- patches
//! ```

use super::ground::{self, Ground, Slot, adopt};
use super::image::{Contents, Image};
use super::input::Input;
use super::life::{self, Life};
use super::patch::{MarkWish, Patch};
use super::reading::How;
use super::sums;
use atomic_mmap::testing::layout;
use atomic_mmap::testing::superblock::{
    Cache, ClosedAs, DurableBase, DurablePoints, Identity, State, Superblock,
};
use atomic_mmap::{Durability, Integrity, Medium, OnMismatch};

/// The pair's uuid in all inputs, which the superblocks of seeds contain.
pub const UUID: [u8; 16] = *b"fuzzed pair, all";

/// Runs one input.
pub fn run(input: &[u8]) {
    ground::with(|ground| one(ground, Input(input)));
}

/// Decodes from a byte how the file is opened.
pub fn how(byte: u8) -> How {
    let wishes = [OnMismatch::Refuse, OnMismatch::Trust, OnMismatch::Discard, OnMismatch::Trust];
    let media = [Some(Medium::Dax), None, Some(Medium::PageCache), Some(Medium::Ram)];
    let reserved = [Some(16 << 20), None, Some(3 << 30), Some(20_000)];
    let durability =
        [Durability::OnSync, Durability::AtomicSync, Durability::EveryWrite, Durability::OnSync];
    // The numbers that repeat a wish or a durability choose sums.
    let integrity = match (byte >> 6, byte & 3) {
        (3, _) => Integrity::OnRead,
        (_, 3) => Integrity::OnScrub,
        _ => Integrity::Off,
    };
    How {
        integrity,
        wish: wishes[usize::from(byte & 3)],
        medium: media[usize::from(byte >> 2 & 3)],
        max_len: reserved[usize::from(byte >> 4 & 3)],
        durability: durability[usize::from(byte >> 6)],
    }
}

fn one(ground: &Ground, mut input: Input<'_>) {
    let how = how(input.byte());
    let life = Life(input.byte());
    let begin = input.byte();
    let patches = Patch::all(&mut input);
    let slot = &ground.slots[0];
    let image = make(ground, slot, begin, &patches);
    life::open(ground, slot, &image, &how, life);
}

fn make(ground: &Ground, slot: &Slot, begin: u8, patches: &[Patch]) -> Image {
    let mut image = Image::default();
    Patch::apply_to_home(patches, &mut image);
    let otherwise = if begin & 8 != 0 { MarkWish::Right } else { MarkWish::None };
    let mark = slot.mark(&Patch::mark(patches, otherwise), UUID);
    image.mark = mark.filter(|_| ground.has_marks);
    let stat = slot.put_home(&image);
    if begin & 16 == 0 {
        let len = image.home.len.min(layout::MAX_LEN);
        let mut reflection = Contents::of_len(layout::reflection_len(len));
        reflection.set_word(layout::LENGTH_WORD, len);
        reflection.set_word(layout::HIGH_WATER_WORD, len);
        if begin & 1 != 0 {
            put_superblocks(&mut reflection, begin & 2 != 0, len, begin >> 6);
            let mut now = ground.now();
            if begin & 4 != 0 {
                now.boot = [0x5A; 16];
            }
            adopt(&mut reflection, &stat, Some(&now));
            sums::repair_superblocks(&mut reflection);
        }
        image.reflection = Some(reflection);
    }
    if begin & 32 == 0 {
        let mut journal = Contents::of_len(64 << 10);
        if begin & 1 != 0 {
            // For the sessions that its superblocks name.
            sums::put_header(&mut journal, 1, &UUID, 4, 5);
        }
        image.journal = Some(journal);
    }
    Patch::apply_to_reflection(patches, &mut image);
    Patch::apply_to_journal(patches, &mut image);
    slot.put_reflection(&image);
    image
}

/// Writes two superblocks of a new pair. `points` is what they say about durable points.
pub fn put_superblocks(reflection: &mut Contents, is_closed: bool, len: u64, points: u8) {
    let state = match is_closed {
        true => State::Clean(ClosedAs { len, ..ClosedAs::default() }),
        false => State::InUse,
    };
    for (session, at) in (4..).zip(layout::SUPERBLOCKS) {
        let identity = Identity { device: 0, inode: 0, born: None };
        let name = b"a.dat".to_vec();
        let block = Superblock {
            session,
            state,
            uuid: UUID,
            identity,
            own: identity,
            boot_id: [0; 16],
            cache: Cache::default(),
            name,
            durable: match points & 3 {
                0 => DurablePoints::None,
                1 => DurablePoints::AfterRestart(DurableBase { len }),
                2 => DurablePoints::AfterDeath(DurableBase { len }),
                _ => DurablePoints::NotYet,
            },
            is_marked: false,
            is_unsettled: false,
            has_sums: false,
        };
        reflection.write(&block.encode(), at);
    }
}
