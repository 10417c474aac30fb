//! Patches: how an input describes an image. Each patch has a kind of place, an offset in it, and
//! bytes.
//!
//! The files are sparse and longer than 264 MiB. Only a few KiB in them can matter, in places far
//! apart. So an input names places, and each mutation of an input changes bytes that the crate
//! reads.
//!
//! ```text
//! 1  class     bits 0-3: a place, below; 4-5: origin; 6: exclusive-or, and seven more places
//!              from place 9 on; 7: filled
//! 3  where     bytes from the place's beginning, modulo its size
//! literal:     1 length, and that number of bytes
//! filled:      2 length, 1 seed of the bytes (0: zeroes)
//! ```

use super::image::{Contents, Image};
use super::input::{Input, filling};
use super::sums::{self, Part};
use atomic_mmap::testing::{PAGE, PageIndex, REGION, RegionIndex, layout};

const P: u64 = PAGE as u64;
/// Maximum number of bytes that the patches of one input write together.
const MOST: usize = 1 << 20;
/// Number of bytes of the home file that a patch's `where` can reach, from its origin on.
const REACH: u64 = 4 << 20;
/// Maximum length of a patch of region words. The next constant is that of slice words. A region
/// word moves up to 64 pages and a slice word one, and the cost of an input should follow from its
/// length.
const REGION_WORDS: usize = 256;
const SLICE_WORDS: usize = 4096;
/// Number of pages that a patch's `where` can reach. The next constant is that of regions.
const PAGES: u64 = 2 * REACH / P;
const REGIONS: u64 = 2 * REACH / REGION as u64;
const MAX_PAGES: u64 = layout::MAX_LEN / P;
/// Page of the home file at which a patch's `where` begins, for each origin. The first page; just
/// before the end of the first and of the second superchunk; just before the end of the longest
/// file.
const ORIGINS: [u64; 4] = [0, (1 << 18) - 64, (1 << 19) - 64, MAX_PAGES - 128];

/// First number of the records in a ring. The values are: the usual one, a few turns before the
/// numbers wrap around, and a few turns before half the range. There the order of two numbers
/// reverses. The last one is arbitrary.
const FIRST_NUMBERS: [u64; 4] = [0, (1 << 40) - 128, (1 << 39) - 128, 1 << 30];

/// A kind of place. Inputs contain these numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Place {
    /// The home file.
    Home = 0,
    /// The first superblock.
    SuperblockA = 1,
    /// The second superblock.
    SuperblockB = 2,
    /// The two state words, and the two floors of the journal.
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
    /// A length and no bytes: the home file's length, the matching length of the reflection file,
    /// and both state words.
    Lengths = 9,
    /// The home file's length alone.
    HomeLen = 10,
    /// The reflection file's length alone: shorter than the right one by `where` pages, modulo
    /// 2^17. Above that, longer.
    ReflectionLen = 11,
    /// The reflection file's length in bytes.
    ShortReflection = 12,
    /// The attribute: none, the right one, one of another pair, one of another file, the right one
    /// in the middle of a spatial close, or these bytes.
    Mark = 13,
    /// Flip records of a ring, by their fields. `where` selects the lane and the first number.
    FlipRecord = 14,
    /// An undo record of any kind, by its words or pages. `where` selects the lane and the kind.
    Undo = 15,
    /// Durable words.
    DurableWords = 9 | MORE,
    /// The journal.
    Journal = 10 | MORE,
    /// The journal, with exclusive-or.
    JournalFlips = 11 | MORE,
    /// A journal record, by its fields. `where` selects its block and its number. Any of bits 20-23
    /// selects a header instead.
    Record = 12 | MORE,
    /// A length and no bytes: the journal's length in units of 512 bytes. All bits: there is no
    /// journal.
    JournalLen = 13 | MORE,
    /// The fields of both superblocks for durable points: bits 0-1 of `where`, and a length if
    /// there are bytes. Bits 2 and 3 are the flags of superblocks.
    Points = 14 | MORE,
    /// Data that a restart of the machine may change: state words, slice words and region words of
    /// the first pages.
    Unordered = 15 | MORE,
}

/// The bit that distinguishes the last seven places from the places with the same low bits.
const MORE: u8 = 64;

const PLACES: [Place; 23] = [
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
    Place::FlipRecord,
    Place::Undo,
    Place::DurableWords,
    Place::Journal,
    Place::JournalFlips,
    Place::Record,
    Place::JournalLen,
    Place::Points,
    Place::Unordered,
];

/// The length that means that there is no journal.
pub const NO_JOURNAL: u64 = 0xFF_FFFF;
/// Maximum length of a journal that patches make.
const LONGEST_JOURNAL: u64 = 1 << 20;
/// Length of a new journal.
const NEW_JOURNAL: u64 = 64 << 10;

/// The value that the attribute gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MarkWish {
    /// No attribute.
    None,
    /// The attribute says that the reflection file belongs to this file.
    Right,
    /// As `Right`, and a spatial close was about to remove the companions.
    Closing,
    /// The attribute names another reflection file.
    OtherPair,
    /// The attribute was copied from another file.
    OtherFile,
    /// These bytes.
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
    /// Decodes all patches in the rest of an input.
    pub fn all(input: &mut Input<'_>) -> Vec<Patch> {
        let (mut patches, mut written) = (Vec::new(), 0);
        while !input.is_empty() && written < MOST {
            let class = input.byte();
            let place = usize::from(class & 0xF);
            let is_more = place >= 9 && class & MORE != 0;
            let place = PLACES[if is_more { place + 7 } else { place }];
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
                Place::SliceWords | Place::DurableWords => SLICE_WORDS,
                _ => MOST,
            };
            let bytes = bytes[..bytes.len().min(most)].to_vec();
            // A short filled patch can write many bytes.
            written += bytes.len() + 64;
            patches.push(Patch { place, origin, at, flips: class & 64 != 0 && !is_more, bytes });
        }
        patches
    }

    /// Returns `true` if the patch changes the home file or its attribute.
    fn is_of_home(&self) -> bool {
        matches!(self.place, Place::Home | Place::HomeLen | Place::Mark)
    }

    /// Returns the attribute that the last of the patches sets, or `otherwise` if none does.
    pub fn mark(patches: &[Patch], otherwise: MarkWish) -> MarkWish {
        let last = patches.iter().rev().find(|patch| patch.place == Place::Mark);
        match last {
            None => otherwise,
            Some(patch) if !patch.bytes.is_empty() => MarkWish::Raw(patch.bytes.clone()),
            Some(patch) => match patch.at % 5 {
                0 => MarkWish::None,
                1 => MarkWish::Right,
                2 => MarkWish::OtherPair,
                3 => MarkWish::OtherFile,
                _ => MarkWish::Closing,
            },
        }
    }

    /// Applies the patches of the home file, lengths included.
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

    /// Returns `true` if the patch changes the journal.
    fn is_of_journal(&self) -> bool {
        let of = [Place::Journal, Place::JournalFlips, Place::Record, Place::JournalLen];
        of.contains(&self.place)
    }

    /// Applies the patches of the journal. Does not repair checksums.
    pub fn apply_to_journal(patches: &[Patch], image: &mut Image) {
        for patch in patches.iter().filter(|patch| patch.is_of_journal()) {
            if patch.place == Place::JournalLen && patch.at == NO_JOURNAL {
                image.journal = None;
                continue;
            }
            let reflection = image.reflection.as_ref();
            let len =
                reflection.map_or(0, |reflection| sums::length_at(reflection, layout::LENGTH_WORD));
            let session = reflection.and_then(sums::session_of_records).unwrap_or_default();
            let journal = image.journal.get_or_insert_with(|| Contents::of_len(NEW_JOURNAL));
            let at = patch.at % LONGEST_JOURNAL;
            match patch.place {
                Place::JournalLen => journal.set_len(at * 512 % (LONGEST_JOURNAL + 512)),
                Place::Record if patch.at >> 20 != 0 => patch.put_header(journal, &session),
                Place::Record => patch.put_record(journal, len),
                place => {
                    let mut bytes = patch.bytes.clone();
                    if place == Place::JournalFlips {
                        let were = journal.bytes(at, bytes.len());
                        bytes.iter_mut().zip(were).for_each(|(byte, was)| *byte ^= was);
                    }
                    journal.write(&bytes, at);
                }
            }
        }
        if let Some(journal) = &mut image.journal {
            journal.trim();
        }
    }

    /// Applies the patches of the reflection file, if there is one.
    pub fn apply_to_reflection(patches: &[Patch], image: &mut Image) {
        let Some(reflection) = &mut image.reflection else { return };
        for patch in patches.iter().filter(|patch| !patch.is_of_home() && !patch.is_of_journal()) {
            let at = patch.at;
            let page = PageIndex(patch.page() + at / 8 % PAGES);
            let region = RegionIndex(patch.page() / 64 + at / 8 % REGIONS);
            let to = match patch.place {
                Place::SuperblockA => layout::SUPERBLOCKS[0] + at % 512,
                Place::SuperblockB => layout::SUPERBLOCKS[1] + at % 512,
                Place::Words => layout::LENGTH_WORD + at % 192,
                Place::Lanes => layout::LANES + at % (layout::LANE_COUNT * layout::LANE) as u64,
                Place::Log => {
                    layout::LOG_AREA + patch.origin as u64 * layout::LOG_AREA_LEN / 4 + at % REACH
                }
                Place::SliceWords => layout::slice_word(page) + at % 8,
                Place::RegionWords => layout::region_word(region) + at % 8,
                Place::DurableWords => layout::durable_word(page) + at % 8,
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
                Place::FlipRecord => {
                    patch.put_ring(&image.home, reflection);
                    continue;
                }
                Place::Undo => {
                    patch.put_undo(reflection);
                    continue;
                }
                Place::Points => {
                    patch.put_points(reflection);
                    continue;
                }
                Place::Unordered => {
                    let words = &patch.bytes[..patch.bytes.len().min(1024)];
                    for at in [
                        layout::LENGTH_WORD,
                        layout::slice_word(PageIndex(0)),
                        layout::region_word(RegionIndex(0)),
                    ] {
                        reflection.write(words, at);
                    }
                    continue;
                }
                // The place belongs to the home file or to the journal.
                _ => continue,
            };
            patch.put(reflection, to);
        }
        // An input has lengths without their checksums.
        sums::repair_lengths(reflection);
        reflection.trim();
    }

    /// Returns a page near one of the places where something ends. The length word may have any
    /// value, but a record cannot name a page far past the longest file.
    fn page_near(&self, input: &mut Input<'_>, reflection: &Contents) -> u64 {
        let end = (sums::length_at(reflection, layout::LENGTH_WORD) / P).min(MAX_PAGES);
        let base = input.pick(&[0, end, self.page(), ORIGINS[1], MAX_PAGES - 4, end / 64 * 64]);
        (base + u64::from(input.byte() % 8)).saturating_sub(u64::from(input.byte() % 4))
    }

    /// Writes flip records to a ring, with consecutive numbers. Each takes bytes of the patch:
    /// three for its page, one each for its slices and sides, and one for its deviations:
    ///
    /// ```text
    /// bits 0-1  0, 1: a valid record; 2: an invalidated one; 3: one of no kind
    /// bit 2     the slots do not hold the bytes of its checksum
    /// bit 3     its sides name more than its slices
    /// bit 4     it lies in the place of the next one
    /// bit 5     it claims more than possible
    /// bits 6-7  number of turns of the ring that it is ahead
    /// ```
    fn put_ring(&self, home: &Contents, reflection: &mut Contents) {
        let mut input = Input(&self.bytes);
        let lane = (self.at & 0xFF) as usize % layout::LANE_COUNT;
        let first =
            FIRST_NUMBERS[(self.at >> 16) as usize % FIRST_NUMBERS.len()] + (self.at >> 8 & 0xFF);
        for n in 0..layout::RING as u64 {
            if input.is_empty() {
                break;
            }
            let page = self.page_near(&mut input, reflection);
            let (slices, sides) = (pattern(input.byte()), pattern(input.byte()));
            let unusual = input.byte();
            let is = |bit: u32| unusual >> bit & 1;
            let turns = u64::from(unusual >> 6) * layout::RING as u64;
            let number = (first + n + turns) % (1 << 40);
            let kind = u64::from(unusual & 3).max(sums::KIND_COVERS);
            let sides = if is(3) == 1 { sides } else { sides & slices };
            let sum = sums::of_slices(home, reflection, page, slices, sides) ^ u32::from(is(2));
            let said = [number << 24 | kind << 16, page << 32, slices, sides, u64::from(sum)];
            let mut bytes: Vec<u8> = said.into_iter().flat_map(u64::to_le_bytes).collect();
            bytes.resize(layout::FLIP_RECORD, 0);
            bytes[layout::FLIP_RECORD - 1] = is(5);
            let place = (number + u64::from(is(4))) as usize % layout::RING;
            reflection.write(&bytes, Part::Ring(place).at(lane));
        }
    }

    fn put_undo(&self, reflection: &mut Contents) {
        let mut input = Input(&self.bytes);
        let lane = self.at % layout::LANE_COUNT as u64;
        let kind = 1 + (self.at >> 8) % 5;
        let mut said = Vec::new();
        let mut put = |words: &[u64]| {
            words.iter().for_each(|word| said.extend_from_slice(&word.to_le_bytes()));
        };
        let mut count = 0;
        // As many as a lane holds, or slightly more.
        while !input.is_empty() && count < 90 {
            let page = self.page_near(&mut input, reflection);
            let (which, mask) = (input.byte(), pattern(input.byte()));
            if kind >= 3 {
                let slices = filling(u64::from(which), mask.count_ones() as usize * 64);
                let slices: Vec<u64> = slices
                    .chunks_exact(8)
                    .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
                    .collect();
                let flips = !mask & pattern(which);
                match kind {
                    3 => put(&[&[page, mask][..], &slices].concat()),
                    _ => {
                        put(&[&[page, mask, flips, flips & pattern(which >> 2)][..], &slices]
                            .concat())
                    }
                }
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
        let count = match kind {
            1 => count,
            4 => said.len() as u64 / 8,
            _ => 1,
        };
        let mut entry = vec![sequence << 24 | kind << 16 | count & 0xFFFF, 0];
        if kind != 1 && kind != 4 {
            let offset = lane * layout::LOG_EXTENT;
            reflection.write(&said, layout::LOG_AREA + offset);
            entry.extend([offset, said.len() as u64, 0]);
            said.clear();
        }
        let mut bytes: Vec<u8> = entry.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(said);
        bytes.truncate(layout::UNDO_ENTRY_LEN);
        reflection.write(&bytes, Part::Undo.at(lane as usize));
    }

    /// Writes a journal record of pages near the places where something ends. `len` is the value of
    /// the length word.
    fn put_record(&self, journal: &mut Contents, len: u64) {
        let mut input = Input(&self.bytes);
        let (block, number) = (self.at % 64, 1 + (self.at >> 8) % 16);
        let flags = input.byte();
        let len = match flags >> 1 & 3 {
            0 | 1 => len,
            2 => len.wrapping_add_signed(i64::from(input.number(2) as u16 as i16) * 16),
            _ => input.pick(&[0, 1, P, REACH, layout::MAX_LEN, layout::MAX_LEN + 1]),
        };
        let (mut changes, mut slices, mut page) = (Vec::new(), Vec::new(), self.page());
        while !input.is_empty() && changes.len() < 300 {
            page += u64::from(input.byte() % 70);
            let row = match input.byte() {
                n @ 0..=199 => 1 + u64::from(n / 190 * 60),
                n => u64::from(n),
            };
            let (valid, mask, fill) = (pattern(input.byte()), pattern(input.byte()), input.byte());
            // A full record has words only, and so does a change of several pages.
            let mask = if flags & 1 == 1 || row > 1 { 0 } else { mask };
            changes.extend([page | (row - 1) << 40, valid, mask]);
            slices.extend(filling(u64::from(fill), mask.count_ones() as usize * 64));
            page += row;
        }
        let mut bytes = b"AtomJrnl\0\0\0\0".to_vec();
        bytes.extend([flags & 1, 0, 0, 0]);
        let words = [number, len, changes.len() as u64 / 3, slices.len() as u64, 0, 0];
        bytes.extend(words.into_iter().chain(changes).flat_map(u64::to_le_bytes));
        bytes.extend(slices);
        bytes.truncate(LONGEST_JOURNAL as usize / 2);
        journal.write(&bytes, block * P);
    }

    /// Writes one of the journal's two headers, from bytes. Bit 0 of the first byte selects another
    /// pair's uuid. Bits 1 and 2 select the base of its fields: 0, the last number, or the session.
    /// The next bytes are added to the fields.
    fn put_header(&self, journal: &mut Contents, (uuid, session): &([u8; 16], u64)) {
        let mut input = Input(&self.bytes);
        let flags = input.byte();
        let mut uuid = *uuid;
        uuid[3] ^= flags & 1;
        let mut number = || {
            let from = [*session, 0, u64::MAX, *session][usize::from(flags >> 1 & 3)];
            from.wrapping_add_signed(i64::from(input.byte() as i8))
        };
        let (from, to) = (number(), number());
        sums::put_header(journal, self.at & 1, &uuid, from, to);
    }

    fn put_points(&self, reflection: &mut Contents) {
        for at in layout::SUPERBLOCKS {
            reflection.write(&[(self.at & 3) as u8, 0, 0, 0], at + 428);
            reflection.write(&[(self.at >> 2 & 3) as u8, 0, 0, 0], at + 28);
            let mut input = Input(&self.bytes);
            let len = match input.is_empty() {
                true => sums::length_at(reflection, layout::LENGTH_WORD),
                false => input.number(8),
            };
            reflection.set_word(at + 432, len);
        }
    }

    /// Returns the length that the patch sets.
    fn len(&self) -> u64 {
        self.page() * P + self.at % (REACH + 1)
    }

    /// Returns the page of the home file at which `at` begins.
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

/// Returns a pattern of 64 bits, by a byte: none, all, one, or some.
fn pattern(byte: u8) -> u64 {
    match byte {
        0 => 0,
        0xFF => u64::MAX,
        0x80..=0xBF => 1 << (byte & 63),
        _ => u64::from(byte) << (byte & 63) | u64::from(byte),
    }
}

/// A writer of patches, for seeds.
#[derive(Default, Debug)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Writes literal bytes, as several patches if they are long.
    pub fn literal(&mut self, place: Place, at: u64, bytes: &[u8]) {
        for (n, piece) in bytes.chunks(255).enumerate() {
            self.head(place, 0, at + n as u64 * 255);
            self.0.push(piece.len() as u8);
            self.0.extend_from_slice(piece);
        }
    }

    /// Writes bytes that follow from a seed.
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

    /// Writes a patch that is a number without bytes.
    pub fn number(&mut self, place: Place, at: u64) {
        self.head(place, 0, at);
        self.0.push(0);
    }

    fn head(&mut self, place: Place, bits: u8, at: u64) {
        self.0.push(place as u8 | bits);
        self.0.extend_from_slice(&at.to_le_bytes()[..3]);
    }
}
