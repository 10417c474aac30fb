//! How does an input describe an image? As patches: a kind of place, where there, and the bytes.
//!
//! The files are sparse and more than 264 MiB long; what can matter in them is a few KiB at places far
//! apart. So an input says where: everything that a mutation of it can do lands where somebody looks.
//!
//! ```text
//! 1  class     bits 0-3: a place, below; 4-5: origin; 6: exclusive-or; 7: filled
//! 3  where     bytes from the place's beginning, modulo its size
//! literal:     1 length, and so many bytes
//! filled:      2 length, 1 seed of the bytes (0: zeroes)
//! ```

use super::image::{Contents, Image};
use super::input::{Input, filling};
use atomic_mmap::testing::{PAGE, PageIndex, REGION, RegionIndex, layout};

const P: u64 = PAGE as u64;
/// Most bytes that the patches of one input write together.
const MOST: usize = 1 << 20;
/// Bytes of the home file that a patch's `where` reaches, from its origin on.
const REACH: u64 = 4 << 20;
/// Most bytes of a patch of region words, and of one of slice words: each word moves up to 64 pages, or
/// one, and what an input costs should follow from its length.
const REGION_WORDS: usize = 256;
const SLICE_WORDS: usize = 4096;
/// Pages and regions that a patch's `where` reaches.
const PAGES: u64 = 2 * REACH / P;
const REGIONS: u64 = 2 * REACH / REGION as u64;
const MAX_PAGES: u64 = layout::MAX_LEN / P;
/// The page of the home file at which a patch's `where` begins: the first one, one before a
/// superchunk's end, one before the next one's, and one before the longest file's end.
const ORIGINS: [u64; 4] = [0, (1 << 18) - 64, (1 << 19) - 64, MAX_PAGES - 128];

/// A kind of place. The numbers are those of inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Place {
    /// The home file.
    Home = 0,
    /// The first superblock.
    SuperblockA = 1,
    /// The second one.
    SuperblockB = 2,
    /// The two state words.
    Words = 3,
    /// The lanes.
    Lanes = 4,
    /// The log area.
    Log = 5,
    /// Slice words.
    SliceWords = 6,
    /// Region words.
    RegionWords = 7,
    /// Reflection pages.
    Pages = 8,
    /// Not bytes: the home file's length, and with it the reflection file's and both state words.
    Lengths = 9,
    /// The home file's length alone.
    HomeLen = 10,
    /// The reflection file's length alone: `where` pages short of what it should be, modulo 2^17;
    /// above that, longer.
    ReflectionLen = 11,
    /// The reflection file's length in bytes.
    ShortReflection = 12,
    /// The attribute: none, the right one, one of another pair, of another file, or these bytes.
    Mark = 13,
    /// A redo entry, by its fields: `where` says lane and position.
    Redo = 14,
    /// An undo entry of any kind, by its words or pages: `where` says lane and kind.
    Undo = 15,
}

const PLACES: [Place; 16] = [
    Place::Home,
    Place::SuperblockA,
    Place::SuperblockB,
    Place::Words,
    Place::Lanes,
    Place::Log,
    Place::SliceWords,
    Place::RegionWords,
    Place::Pages,
    Place::Lengths,
    Place::HomeLen,
    Place::ReflectionLen,
    Place::ShortReflection,
    Place::Mark,
    Place::Redo,
    Place::Undo,
];

/// What the attribute is to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MarkWish {
    /// Nothing: there is none.
    None,
    /// That the reflection file belongs to this file.
    Right,
    /// That another reflection file does.
    OtherPair,
    /// It was copied along from another file.
    OtherFile,
    /// Bytes.
    Raw(Vec<u8>),
}

/// One patch.
#[derive(Clone, Debug)]
pub struct Patch {
    place: Place,
    origin: usize,
    at: u64,
    flips: bool,
    bytes: Vec<u8>,
}

impl Patch {
    /// All patches of the rest of an input.
    pub fn all(input: &mut Input<'_>) -> Vec<Patch> {
        let (mut patches, mut written) = (Vec::new(), 0);
        while !input.is_empty() && written < MOST {
            let class = input.byte();
            let place = PLACES[usize::from(class & 0xF)];
            let origin = usize::from(class >> 4 & 3);
            let at = input.number(3);
            let bytes = if class >> 7 == 1 {
                let len = input.number(2) as usize;
                match input.byte() {
                    0 => vec![0; len],
                    seed => filling(u64::from(seed), len),
                }
            } else {
                let len = usize::from(input.byte());
                input.take(len).to_vec()
            };
            let most = match place {
                Place::RegionWords => REGION_WORDS,
                Place::SliceWords => SLICE_WORDS,
                _ => MOST,
            };
            let bytes = bytes[..bytes.len().min(most)].to_vec();
            // What costs nothing to say costs something to do.
            written += bytes.len() + 64;
            patches.push(Patch { place, origin, at, flips: class >> 6 & 1 == 1, bytes });
        }
        patches
    }

    /// Whether the patch changes what the home file is, its attribute included.
    fn is_of_home(&self) -> bool {
        matches!(self.place, Place::Home | Place::HomeLen | Place::Mark)
    }

    /// What the patches say about the attribute, the last one counting; `otherwise` if none does.
    pub fn mark(patches: &[Patch], otherwise: MarkWish) -> MarkWish {
        let last = patches.iter().rev().find(|patch| patch.place == Place::Mark);
        match last {
            None => otherwise,
            Some(patch) if !patch.bytes.is_empty() => MarkWish::Raw(patch.bytes.clone()),
            Some(patch) => match patch.at % 4 {
                0 => MarkWish::None,
                1 => MarkWish::Right,
                2 => MarkWish::OtherPair,
                _ => MarkWish::OtherFile,
            },
        }
    }

    /// Applies those that are about the home file, lengths included.
    pub fn apply_to_home(patches: &[Patch], image: &mut Image) {
        for patch in patches.iter().filter(|p| p.is_of_home() || p.place == Place::Lengths) {
            match patch.place {
                Place::Home => {
                    patch.put(&mut image.home, patch.page() * P + patch.at % REACH);
                }
                Place::Lengths | Place::HomeLen => image.home.set_len(patch.len()),
                _ => {}
            }
        }
        image.home.trim();
    }

    /// Applies those that are about the reflection file, if there is one.
    pub fn apply_to_reflection(patches: &[Patch], image: &mut Image) {
        let Some(reflection) = &mut image.reflection else { return };
        for patch in patches.iter().filter(|patch| !patch.is_of_home()) {
            let at = patch.at;
            let page = PageIndex(patch.page() + at / 8 % PAGES);
            let region = RegionIndex(patch.page() / 64 + at / 8 % REGIONS);
            let to = match patch.place {
                Place::SuperblockA => layout::SUPERBLOCKS[0] + at % 512,
                Place::SuperblockB => layout::SUPERBLOCKS[1] + at % 512,
                Place::Words => layout::LENGTH_WORD + at % 64,
                Place::Lanes => layout::LANES + at % (layout::LANE_COUNT * layout::LANE) as u64,
                Place::Log => {
                    layout::LOG_AREA + patch.origin as u64 * layout::LOG_AREA_LEN / 4 + at % REACH
                }
                Place::SliceWords => layout::slice_word(page) + at % 8,
                Place::RegionWords => layout::region_word(region) + at % 8,
                Place::Pages => layout::reflection(patch.page() * P + at % REACH),
                Place::Lengths => {
                    let len = patch.len();
                    reflection.set_len(layout::reflection_len(len));
                    reflection.set_word(layout::LENGTH_WORD, len);
                    reflection.set_word(layout::HIGH_WATER_WORD, len);
                    continue;
                }
                Place::ReflectionLen => {
                    let right = layout::reflection_len(image.home.len.min(layout::MAX_LEN));
                    let len = match at % (1 << 18) {
                        less @ ..0x2_0000 => right.saturating_sub(less * P),
                        more => right + (more - 0x2_0000) * P,
                    };
                    reflection.set_len(len);
                    continue;
                }
                Place::ShortReflection => {
                    reflection.set_len(at);
                    continue;
                }
                Place::Redo => {
                    patch.put_redo(reflection);
                    continue;
                }
                Place::Undo => {
                    patch.put_undo(reflection);
                    continue;
                }
                Place::Home | Place::HomeLen | Place::Mark => continue,
            };
            patch.put(reflection, to);
        }
        reflection.trim();
    }

    /// A page near one of the places where something ends.
    fn page_near(&self, input: &mut Input<'_>, reflection: &Contents) -> u64 {
        let end = reflection.word(layout::LENGTH_WORD) / P;
        let base = input.pick(&[0, end, self.page(), ORIGINS[1], MAX_PAGES - 4, end / 64 * 64]);
        (base + u64::from(input.byte() % 8)).saturating_sub(u64::from(input.byte() % 4))
    }

    fn put_redo(&self, reflection: &mut Contents) {
        let mut input = Input(&self.bytes);
        let (lane, position) = (self.at % layout::LANE_COUNT as u64, self.at >> 8 & 1);
        let page = self.page_near(&mut input, reflection);
        let (offset, len) = (input.number(2) & 0xFFF, input.number(2) & 0xFFF);
        let sequence = u64::from(input.byte()) << 1 | position;
        let sides = pattern(input.byte());
        let head = [sequence << 24 | offset << 12 | len, page << 32, sides];
        let head: Vec<u8> = head.into_iter().flat_map(u64::to_le_bytes).collect();
        let payload = filling(sequence + 1, (len as usize).min(layout::REDO_ENTRY - head.len()));
        let at = layout::LANES + lane * layout::LANE as u64 + position * layout::REDO_ENTRY as u64;
        reflection.write(&[head, payload].concat(), at);
    }

    fn put_undo(&self, reflection: &mut Contents) {
        let mut input = Input(&self.bytes);
        let lane = self.at % layout::LANE_COUNT as u64;
        let kind = 1 + (self.at >> 8) % 3;
        let mut said = Vec::new();
        let mut put = |words: &[u64]| {
            words.iter().for_each(|word| said.extend_from_slice(&word.to_le_bytes()));
        };
        let mut count = 0;
        // What a lane holds, or a little more.
        while !input.is_empty() && count < 90 {
            let page = self.page_near(&mut input, reflection);
            let (which, mask) = (input.byte(), pattern(input.byte()));
            if kind == 3 {
                let slices = filling(u64::from(which), mask.count_ones() as usize * 64);
                let slices: Vec<u64> = slices
                    .chunks_exact(8)
                    .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
                    .collect();
                put(&[&[page, mask][..], &slices].concat());
            } else {
                let word = match which & 1 {
                    0 => 1 << 56 | page,
                    _ => (2 << 56) | (page / 64),
                };
                put(&[word, mask, mask & pattern(which >> 1)]);
            }
            count += 1;
        }
        let sequence = (self.at >> 16 & 0xFF) + 1;
        let mut entry = vec![sequence << 24 | kind << 16 | if kind == 1 { count } else { 1 }, 0];
        if kind > 1 {
            let offset = lane * layout::LOG_EXTENT;
            reflection.write(&said, layout::LOG_AREA + offset);
            entry.extend([offset, said.len() as u64, 0]);
            said.clear();
        }
        let mut bytes: Vec<u8> = entry.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(said);
        bytes.truncate(layout::UNDO_ENTRY_LEN);
        let at = layout::LANES + lane * layout::LANE as u64 + layout::UNDO_ENTRY as u64;
        reflection.write(&bytes, at);
    }

    /// The length that is meant.
    fn len(&self) -> u64 {
        self.page() * P + self.at % (REACH + 1)
    }

    /// Where `at` begins in the home file.
    fn page(&self) -> u64 {
        ORIGINS[self.origin]
    }

    fn put(&self, to: &mut Contents, at: u64) {
        if !self.flips {
            return to.write(&self.bytes, at);
        }
        let mut bytes = to.bytes(at, self.bytes.len());
        bytes.iter_mut().zip(&self.bytes).for_each(|(byte, flip)| *byte ^= flip);
        to.write(&bytes, at);
    }
}

/// Bits of a word, by a byte: none, all, one, or some.
fn pattern(byte: u8) -> u64 {
    match byte {
        0 => 0,
        0xFF => u64::MAX,
        0x80..=0xBF => 1 << (byte & 63),
        _ => u64::from(byte) << (byte & 63) | u64::from(byte),
    }
}

/// Writes patches: for seeds.
#[derive(Default, Debug)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Bytes. Long ones are several patches.
    pub fn literal(&mut self, place: Place, at: u64, bytes: &[u8]) {
        for (n, piece) in bytes.chunks(255).enumerate() {
            self.head(place, 0, at + n as u64 * 255);
            self.0.push(piece.len() as u8);
            self.0.extend_from_slice(piece);
        }
    }

    /// Bytes that follow from a seed.
    pub fn filled(&mut self, place: Place, at: u64, len: u64, seed: u8) {
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(0xFFFF);
            self.head(place, 0x80, at + done);
            self.0.extend_from_slice(&(piece as u16).to_le_bytes());
            self.0.push(seed);
            done += piece;
        }
    }

    /// A place that is a number and no bytes.
    pub fn number(&mut self, place: Place, at: u64) {
        self.head(place, 0, at);
        self.0.push(0);
    }

    fn head(&mut self, place: Place, bits: u8, at: u64) {
        self.0.push(place as u8 | bits);
        self.0.extend_from_slice(&at.to_le_bytes()[..3]);
    }
}
