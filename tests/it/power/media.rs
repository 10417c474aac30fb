//! A model of the media: the bytes of two files at a loss of power, rebuilt from a trace.
//!
//! Every aligned word of 8 bytes has a durable value and the values stored since. A streamed value
//! (`through`) is pending for its thread, and so is a value with a later flush of its line. The
//! next drain of that thread makes it durable. Any other value since the durable one may be on the
//! medium or not, word by word. Caches may evict a line at any time. A flush does not cover
//! bytes that another thread has streamed and not drained: those are still in a write-combining
//! buffer.
//!
//! Simplifications: lengths, holes and allocations are durable immediately. Bytes written by a call
//! become durable with a sync of the file. Names become durable with a sync of the folder, and the
//! attribute with a full sync of the home file. Until then they may be on the medium or not.

use super::rng::Rng;
use atomic_mmap::testing::recorder::{Event, What};
use atomic_mmap::testing::{FileId, layout};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub const LINE: u64 = 64;
const PAGE: u64 = 4096;
type Page = [u8; PAGE as usize];

/// The bytes of a file. Missing pages are zero.
#[derive(Clone, Default)]
pub struct Contents {
    pub len: u64,
    pub pages: BTreeMap<u64, Arc<Page>>,
}

impl Contents {
    pub fn of(bytes: &[u8]) -> Contents {
        let mut contents = Contents { len: bytes.len() as u64, ..Contents::default() };
        for (n, piece) in bytes.chunks(PAGE as usize).enumerate() {
            let mut page = [0; PAGE as usize];
            page[..piece.len()].copy_from_slice(piece);
            contents.pages.insert(n as u64, Arc::new(page));
        }
        contents
    }

    pub fn word(&self, at: u64) -> u64 {
        self.pages.get(&(at / PAGE)).map_or(0, |page| {
            let at = (at % PAGE) as usize;
            u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
        })
    }

    pub fn set_word(&mut self, at: u64, value: u64) {
        if value == 0 && !self.pages.contains_key(&(at / PAGE)) {
            return;
        }
        let page = self.pages.entry(at / PAGE).or_insert_with(|| Arc::new([0; PAGE as usize]));
        let at = (at % PAGE) as usize;
        Arc::make_mut(page)[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn zero(&mut self, start: u64, end: u64) {
        let inside: Vec<u64> =
            self.pages.range(start / PAGE..end.div_ceil(PAGE)).map(|(n, _)| *n).collect();
        for n in inside {
            let from = start.max(n * PAGE) - n * PAGE;
            let to = end.min((n + 1) * PAGE) - n * PAGE;
            if to - from == PAGE {
                self.pages.remove(&n);
            } else if let Some(page) = self.pages.get_mut(&n) {
                Arc::make_mut(page)[from as usize..to as usize].fill(0);
            }
        }
    }
}

/// Both files as a crash left them.
#[derive(Clone, Default)]
pub struct Image {
    pub home: Contents,
    pub reflection: Option<Contents>,
    /// `true` if the home file has the attribute.
    pub marked: bool,
}

/// The kind of bytes at a place. Faults and choices tell only these kinds apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Class {
    Home,
    Superblock,
    Lengths,
    Ring,
    Undo,
    Log,
    SliceWord,
    RegionWord,
    Reflection,
}

pub const CLASSES: u64 = 9;

pub fn class_of(file: FileId, at: u64) -> Class {
    if file == FileId::Home {
        return Class::Home;
    }
    if at < layout::LENGTH_WORD {
        return Class::Superblock;
    }
    if at < layout::LANES {
        return Class::Lengths;
    }
    if at < layout::LOG_AREA {
        let in_lane = (at - layout::LANES) % layout::LANE as u64;
        return if in_lane < layout::UNDO_ENTRY as u64 { Class::Ring } else { Class::Undo };
    }
    if at < layout::SUPERCHUNKS {
        return Class::Log;
    }
    match (at - layout::SUPERCHUNKS) % layout::SUPERCHUNK_LEN {
        n if n < 4 << 20 => Class::SliceWord,
        n if n < layout::SUPERCHUNK_META => Class::RegionWord,
        _ => Class::Reflection,
    }
}

/// The bytes that one event stored to one line.
#[derive(Clone)]
struct Stored {
    seq: u64,
    thread: u64,
    through: bool,
    /// The words that it stored to, and their values afterwards.
    mask: u8,
    words: [u64; 8],
}

#[derive(Clone, Default)]
struct Line {
    stores: Vec<Stored>,
    /// For each word, the number of the store that is durable.
    floor: [u64; 8],
}

impl Line {
    fn newest(&self, word: usize) -> Option<u64> {
        self.candidates(word).last().map(|store| store.words[word])
    }

    /// Returns the stores to a word that are not durable, oldest first.
    fn candidates(&self, word: usize) -> impl DoubleEndedIterator<Item = &Stored> {
        self.stores
            .iter()
            .filter(move |store| store.mask >> word & 1 == 1 && store.seq > self.floor[word])
    }
}

#[derive(Clone, Default)]
struct MappedFile {
    durable: Contents,
    lines: BTreeMap<u64, Line>,
}

impl MappedFile {
    fn newest(&self, at: u64) -> u64 {
        let line = self.lines.get(&(at / LINE));
        line.and_then(|line| line.newest((at % LINE / 8) as usize))
            .unwrap_or_else(|| self.durable.word(at))
    }

    fn settle(&mut self, number: u64, reached: impl Fn(&Stored, usize) -> bool) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        for word in 0..8 {
            let newest = line.candidates(word).rfind(|store| reached(store, word));
            if let Some((seq, value)) = newest.map(|store| (store.seq, store.words[word])) {
                line.floor[word] = seq;
                self.durable.set_word(number * LINE + word as u64 * 8, value);
            }
        }
        let floor = line.floor;
        line.stores.retain(|store| {
            (0..8).any(|word| store.mask >> word & 1 == 1 && store.seq > floor[word])
        });
        if line.stores.is_empty() {
            self.lines.remove(&number);
        }
    }

    fn zero(&mut self, start: u64, end: u64) {
        self.durable.zero(start, end);
        let inside: Vec<u64> =
            self.lines.range(start / LINE..end.div_ceil(LINE)).map(|(n, _)| *n).collect();
        for n in inside {
            let from = start.max(n * LINE) - n * LINE;
            let to = end.min((n + 1) * LINE) - n * LINE;
            if to - from == LINE {
                self.lines.remove(&n);
                continue;
            }
            for store in self.lines.get_mut(&n).into_iter().flat_map(|line| &mut line.stores) {
                for at in from..to {
                    store.words[at as usize / 8] &= !(0xffu64 << (at % 8 * 8));
                }
            }
        }
    }

    fn set_len(&mut self, len: u64) {
        if len < self.durable.len {
            self.zero(len, self.durable.len.next_multiple_of(PAGE));
        }
        self.durable.len = len;
    }
}

#[derive(Clone, Copy)]
enum Pending {
    Streamed { file: usize, line: u64, seq: u64 },
    Flushed { file: usize, line: u64, seq: u64 },
}

/// A state of the name or the attribute: the current one, and the durable one.
#[derive(Clone, Copy, Default)]
struct Maybe {
    now: bool,
    durable: bool,
}

impl Maybe {
    fn look(self, rng: &mut Rng) -> bool {
        if rng.chance(50) { self.now } else { self.durable }
    }
}

/// A choice of the values that reach the medium although they are not durable.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// None of them.
    Durable,
    /// The newest value of every word.
    Newest,
    /// One of the values in this percentage of words.
    Words(u64),
    /// The newest value of all words, in this percentage of lines.
    Lines(u64),
    /// The newest value of every word except one, which keeps its durable value.
    ButOne,
    /// The newest value of one word only.
    OnlyOne,
    /// The newest value at places of these classes.
    Classes(u64),
    /// The newest value of one thread's stores.
    Thread,
    /// The stores up to some moment.
    Older,
    /// The stores since some moment.
    Younger,
    /// By lines: stores through the cache up to some store, and streamed words at random.
    Px86,
}

impl Choice {
    pub fn random(rng: &mut Rng) -> Choice {
        match rng.below(16) {
            0 => Choice::Durable,
            1 => Choice::Newest,
            2 => Choice::Words(10),
            3 => Choice::Words(50),
            4 => Choice::Words(90),
            5 | 6 => Choice::Lines(50),
            7 => Choice::ButOne,
            8 => Choice::OnlyOne,
            9 | 10 => Choice::Classes(rng.below(1 << CLASSES)),
            11 => Choice::Thread,
            12 => Choice::Older,
            13 => Choice::Younger,
            _ => Choice::Px86,
        }
    }
}

/// The state of both files while a trace is replayed.
#[derive(Clone)]
pub struct Media {
    files: [MappedFile; 2],
    pending: HashMap<u64, Vec<Pending>>,
    seq: u64,
    named: Maybe,
    marked: Maybe,
    /// The reflection file does not exist: the next length is that of a new one.
    is_gone: bool,
    /// The contents of the removed reflection file, which exists until a sync of the folder.
    removed: Option<Contents>,
}

const fn file_index(file: FileId) -> usize {
    match file {
        FileId::Home => 0,
        FileId::Reflection => 1,
        FileId::Journal => panic!("no durable points are kept on DAX"),
    }
}

/// Returns the thread number of the calls that write to a file.
const fn writer(file: usize) -> u64 {
    u64::MAX - file as u64
}

impl Media {
    pub fn new(image: &Image) -> Media {
        let named = image.reflection.is_some();
        let file = |durable: Contents| MappedFile { durable, lines: BTreeMap::new() };
        Media {
            files: [file(image.home.clone()), file(image.reflection.clone().unwrap_or_default())],
            pending: HashMap::new(),
            seq: 0,
            named: Maybe { now: named, durable: named },
            marked: Maybe { now: image.marked, durable: image.marked },
            is_gone: !named,
            removed: None,
        }
    }

    fn store(&mut self, file: usize, at: u64, bytes: &[u8], thread: u64, through: bool) {
        self.seq += 1;
        let (mut from, seq) = (0, self.seq);
        while from < bytes.len() {
            let start = at + from as u64;
            let number = start / LINE;
            let end = ((number + 1) * LINE).min(at + bytes.len() as u64);
            let mut stored = Stored { seq, thread, through, mask: 0, words: [0; 8] };
            let mut byte = start;
            while byte < end {
                let word_at = byte / 8 * 8;
                let (low, high) = (byte - word_at, (end - word_at).min(8));
                let mut value = match high - low {
                    8 => [0; 8],
                    _ => self.files[file].newest(word_at).to_le_bytes(),
                };
                let piece = (byte - at) as usize..(byte - at + high - low) as usize;
                value[low as usize..high as usize].copy_from_slice(&bytes[piece]);
                let word = (word_at % LINE / 8) as usize;
                stored.mask |= 1 << word;
                stored.words[word] = u64::from_le_bytes(value);
                byte = word_at + high;
            }
            self.files[file].lines.entry(number).or_default().stores.push(stored);
            if through {
                let what = Pending::Streamed { file, line: number, seq };
                self.pending.entry(thread).or_default().push(what);
            }
            from = (end - at) as usize;
        }
    }

    fn drain(&mut self, thread: u64) {
        for pending in self.pending.remove(&thread).unwrap_or_default() {
            match pending {
                Pending::Streamed { file, line, seq } => {
                    self.files[file].settle(line, |store, _| store.seq == seq);
                }
                Pending::Flushed { file, line, seq } => {
                    self.files[file].settle(line, |store, _| {
                        store.seq <= seq && (!store.through || store.thread == thread)
                    });
                }
            }
        }
    }

    /// Replays one event.
    pub fn play(&mut self, event: &Event) {
        let thread = event.thread;
        match &event.what {
            What::Store { file, offset, value, through } => {
                self.store(file_index(*file), *offset, &value.to_le_bytes(), thread, *through);
            }
            What::CompareExchange { file, offset, new, done, .. } => {
                if *done {
                    self.store(file_index(*file), *offset, &new.to_le_bytes(), thread, false);
                }
            }
            What::Copy { file, offset, bytes, through } => {
                self.store(file_index(*file), *offset, bytes, thread, *through);
            }
            What::Flush { file, offset, len } => {
                let (file, seq) = (file_index(*file), self.seq);
                let lines = offset / LINE..(offset + len).div_ceil(LINE);
                let pending = self.pending.entry(thread).or_default();
                for (line, _) in self.files[file].lines.range(lines) {
                    pending.push(Pending::Flushed { file, line: *line, seq });
                }
            }
            What::Drain => self.drain(thread),
            What::Sync { file, all } => {
                self.drain(writer(file_index(*file)));
                if *file == FileId::Home && *all {
                    self.marked.durable = self.marked.now;
                }
            }
            What::SyncDir { .. } => {
                self.named.durable = self.named.now;
                self.removed = None;
            }
            What::Allocate { file, offset, len } => {
                let contents = &mut self.files[file_index(*file)].durable;
                contents.len = contents.len.max(offset + len);
            }
            What::Punch { file, offset, len } => {
                self.files[file_index(*file)].zero(*offset, offset + len);
            }
            What::SetLen { file, len } => {
                if *file == FileId::Reflection && self.is_gone {
                    let removed = std::mem::take(&mut self.files[1]).durable;
                    if self.named.durable {
                        self.removed.get_or_insert(removed);
                    }
                    self.is_gone = false;
                }
                self.files[file_index(*file)].set_len(*len);
            }
            What::WriteDurably { .. } => unreachable!("no durable points are kept on DAX"),
            What::Write { file, offset, bytes } => {
                let file = file_index(*file);
                let contents = &mut self.files[file].durable;
                contents.len = contents.len.max(offset + bytes.len() as u64);
                self.store(file, *offset, bytes, writer(file), true);
            }
            What::Rename { .. } => self.named.now = true,
            What::Remove { path } => {
                if path.extension().is_none_or(|end| end != "new") {
                    self.named.now = false;
                    self.is_gone = true;
                }
            }
            What::Os("set_xattr") => self.marked.now = true,
            What::Os("remove_xattr") => self.marked.now = false,
            What::Read { .. } | What::Os(_) | What::Failed(_) => {}
        }
    }

    /// Returns an image for a loss of power at this moment.
    pub fn image(&self, choice: Choice, rng: &mut Rng) -> Image {
        let mut words = Vec::new();
        for (file, lines) in self.files.iter().enumerate() {
            for (number, line) in &lines.lines {
                for word in (0..8).filter(|word| line.candidates(*word).next().is_some()) {
                    words.push((file, *number, line, word));
                }
            }
        }
        let mut threads: Vec<u64> = self.pending.keys().copied().collect();
        threads.sort_unstable();
        let thread = if threads.is_empty() { 0 } else { rng.pick(&threads) };
        let moment = rng.below(self.seq + 1).max(
            // The last stores matter most.
            if rng.chance(70) { self.seq.saturating_sub(rng.below(20)) } else { 0 },
        );
        let one = if words.is_empty() { 0 } else { rng.index(words.len()) };
        let mut cut = (usize::MAX, 0, 0);
        let mut contents = [self.files[0].durable.clone(), self.files[1].durable.clone()];
        for (n, (file, number, line, word)) in words.into_iter().enumerate() {
            let newest = || line.candidates(word).next_back();
            let at = number * LINE + word as u64 * 8;
            if (cut.0, cut.1) != (file, number) {
                // Chosen once for a line: `true` or `false` for the whole line, or the last store
                // that reached it.
                cut = (file, number, rng.next());
            }
            let stored = match choice {
                Choice::Durable => None,
                Choice::Newest => newest(),
                Choice::Words(percent) => {
                    let all: Vec<&Stored> = line.candidates(word).collect();
                    let any = rng.pick(&all);
                    rng.chance(percent).then_some(any)
                }
                Choice::Lines(percent) => newest().filter(|_| cut.2 % 100 < percent),
                Choice::ButOne => newest().filter(|_| n != one),
                Choice::OnlyOne => newest().filter(|_| n == one),
                Choice::Classes(mask) => {
                    let id = if file == 0 { FileId::Home } else { FileId::Reflection };
                    newest().filter(|_| mask >> class_of(id, at) as u64 & 1 == 1)
                }
                Choice::Thread => line.candidates(word).rfind(|store| store.thread == thread),
                Choice::Older => line.candidates(word).rfind(|store| store.seq <= moment),
                Choice::Younger => newest().filter(|store| store.seq >= moment),
                Choice::Px86 => {
                    let up_to = line.stores[(cut.2 % line.stores.len() as u64) as usize].seq;
                    let none = cut.2 >> 32 & 3 == 0;
                    line.candidates(word).rfind(|store| {
                        if store.through { rng.chance(50) } else { !none && store.seq <= up_to }
                    })
                }
            };
            if let Some(stored) = stored {
                contents[file].set_word(at, stored.words[word]);
            }
        }
        let [home, reflection] = contents;
        let reflection = match (&self.removed, rng.chance(50)) {
            (Some(removed), true) => Some(removed.clone()),
            (_, true) => self.named.durable.then_some(reflection),
            (_, false) => self.named.now.then_some(reflection),
        };
        Image { home, reflection, marked: self.marked.look(rng) }
    }
}
