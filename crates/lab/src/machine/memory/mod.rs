//! The contents of a simulated medium under the two persistency models.
//!
//! Owns: the bytes of one file. These are the durable bytes, the stores that are not durable yet,
//! and, after a crash, the possible values of each word. The unit is a cache line of eight words.
//!
//! - [`Model::Chunk`]: consider each aligned word with stores since the last flush and drain of its
//!   line. It may hold any of the values that it had since then, independently of all other words.
//! - [`Model::Px86`]: the cached stores to one line reach the medium in order, so a prefix of them
//!   is present. Any subset of the words of a bulk copy may be present. Lines have no order. A
//!   streamed word arrives at any time until the drain, as under `Chunk`.
//!
//! Under both, a drain settles what its own thread has streamed. What another thread has streamed
//! to the same word before may still arrive, over the newer value, until that thread drains.
//!
//! After a crash, the values of a word are kept as *groups* of alternatives. A load of the word
//! chooses one of them.

use super::trail::Trail;
use atomic_mmap::testing::machine::FileNumber;
use atomic_mmap::zerocopy::IntoBytes;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Bytes in a cache line.
pub const LINE: u64 = 64;
/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// Maximum number of alternatives of one line. If there are more, the module drops some, but keeps
/// the first and the last.
const MOST: usize = 512;

/// The persistency model of the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// Words are independent.
    Chunk,
    /// The stores to a line arrive in order.
    Px86,
}

/// A thread that stores. Its drains settle its own stores and flushes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Thread(pub u64);

/// Stands for the zeroes past the end of a file in the page cache: no sync waits for them, and none
/// of them comes late.
pub const PAST_THE_END: Thread = Thread(u64::MAX);

type Words = [u64; 8];
type PageWords = [u64; 512];

/// The stores of one call to one line.
#[derive(Clone, Debug)]
struct Stored {
    seq: u64,
    thread: Thread,
    through: bool,
    /// The words that are not durable yet.
    mask: u8,
    /// Those of them for which a newer store of another thread is durable. No load finds them.
    late: u8,
    words: Words,
}

impl Stored {
    /// Returns `true` if a load may find this word here.
    fn has(&self, word: usize) -> bool {
        (self.mask & !self.late) >> word & 1 == 1
    }
}

/// Words of a line for which the medium holds one of several combinations.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub mask: u8,
    /// At least two combinations that differ in a word of the mask, the oldest first.
    pub values: Vec<Words>,
}

/// The unsettled state of one line.
#[derive(Clone, Default, Debug)]
pub(super) struct Line {
    /// Mostly a single store.
    stores: SmallVec<[Stored; 1]>,
    pub groups: Vec<Group>,
}

fn bits(mask: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |n| mask >> n & 1 == 1)
}

/// A store or flush that the next drain of a thread settles.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    pub(super) file: FileNumber,
    line: u64,
    seq: u64,
    /// `true` for a flush of the line, `false` for one store past the cache.
    flushed: bool,
}

/// The bytes of one file.
#[derive(Clone, Debug)]
pub struct Memory {
    file: FileNumber,
    durable: BTreeMap<u64, Arc<PageWords>>,
    lines: BTreeMap<u64, Arc<Line>>,
}

impl Memory {
    /// Creates a file of zeroes.
    pub fn new(file: FileNumber) -> Memory {
        Memory { file, durable: BTreeMap::new(), lines: BTreeMap::new() }
    }

    pub(super) fn durable_word(&self, at: u64) -> u64 {
        self.durable.get(&(at / PAGE)).map_or(0, |page| page[(at % PAGE / 8) as usize])
    }

    /// Makes the words of `mask` of a line durable.
    fn set_durable(&mut self, line: u64, mask: u8, words: &Words) {
        if mask == 0 {
            return;
        }
        let is_zero = || bits(mask).all(|word| words[word] == 0);
        let (page, start) = (line * LINE / PAGE, (line * LINE % PAGE / 8) as usize);
        let page = match self.durable.entry(page) {
            Entry::Vacant(_) if is_zero() => return,
            Entry::Vacant(hole) => hole.insert(Arc::new([0; 512])),
            Entry::Occupied(page) => page.into_mut(),
        };
        let durable = &mut Arc::make_mut(page)[start..start + 8];
        bits(mask).for_each(|word| durable[word] = words[word]);
    }

    /// Returns the word that a load at `at` finds.
    pub fn load(&mut self, at: u64, trail: &mut Trail) -> u64 {
        let (number, word) = (at / LINE, (at % LINE / 8) as usize);
        let Some(line) = self.lines.get(&number) else { return self.durable_word(at) };
        if let Some(newest) = line.stores.iter().rfind(|store| store.has(word)) {
            return newest.words[word];
        }
        let group = line.groups.iter().position(|group| group.mask >> word & 1 == 1);
        match group {
            Some(group) => self.choose(number, group, word, trail),
            None => self.durable_word(at),
        }
    }

    /// Chooses the value of an undetermined word.
    fn choose(&mut self, number: u64, group: usize, word: usize, trail: &mut Trail) -> u64 {
        let line = &self.lines[&number].groups[group];
        let mut distinct: Vec<u64> = Vec::with_capacity(line.values.len());
        for values in &line.values {
            if !distinct.contains(&values[word]) {
                distinct.push(values[word]);
            }
        }
        let chosen = distinct[trail.choose(distinct.len())];
        self.narrow(number, group, |values| values[word] == chosen);
        chosen
    }

    /// Drops alternatives of a group, and settles the words that are then equal in all of them.
    fn narrow(&mut self, number: u64, group: usize, keep: impl Fn(&Words) -> bool) {
        let line = Arc::make_mut(self.lines.get_mut(&number).expect("the group's line"));
        line.groups[group].values.retain(keep);
        let first = line.groups[group].values[0];
        let mut settled = 0;
        for word in bits(line.groups[group].mask) {
            if line.groups[group].values.iter().all(|values| values[word] == first[word]) {
                settled |= 1 << word;
            }
        }
        line.groups[group].mask &= !settled;
        if line.groups[group].mask == 0 {
            line.groups.remove(group);
        }
        if line.groups.is_empty() && line.stores.is_empty() {
            self.lines.remove(&number);
        }
        self.set_durable(number, settled, &first);
    }

    /// Returns the undetermined groups of the lines of a range, with their line and their index in
    /// the line.
    pub(super) fn groups(&self, start: u64, end: u64) -> Vec<(u64, usize, &Group)> {
        self.lines
            .range(start / LINE..end.div_ceil(LINE))
            .flat_map(|(number, line)| {
                line.groups.iter().enumerate().map(|(n, group)| (*number, n, group))
            })
            .collect()
    }

    /// Settles groups to these alternatives. `chosen` contains line and index, as from `groups`.
    pub(super) fn settle_groups(&mut self, chosen: &[(u64, usize, usize)]) {
        // From the last to the first, because settling a group removes it from its line's list.
        for (number, group, alternative) in chosen.iter().rev() {
            let values = self.lines[number].groups[*group].values[*alternative];
            let mask = self.lines[number].groups[*group].mask;
            let same = move |other: &Words| bits(mask).all(|word| other[word] == values[word]);
            self.narrow(*number, *group, same);
        }
    }

    /// Returns `true` if a store in the range is not durable, or if the medium's bytes there are
    /// undetermined.
    pub fn is_open(&self, start: u64, end: u64) -> bool {
        self.lines.range(start / LINE..end.div_ceil(LINE)).next().is_some()
    }

    /// Copies bytes out.
    pub fn read(&mut self, to: &mut [u8], at: u64, trail: &mut Trail) {
        let mut done = 0;
        while done < to.len() {
            let from = at + done as u64;
            let page_end = (from / PAGE + 1) * PAGE;
            let len = (to.len() - done).min((page_end - from) as usize);
            self.read_in_page(&mut to[done..done + len], from, trail);
            done += len;
        }
    }

    fn read_in_page(&mut self, to: &mut [u8], at: u64, trail: &mut Trail) {
        // Nearly all bytes are durable. The others are loaded word by word.
        match self.durable.get(&(at / PAGE)) {
            None => to.fill(0),
            Some(page) => copy_words(page, to, (at % PAGE) as usize),
        }
        let end = at + to.len() as u64;
        let open: SmallVec<[u64; 8]> =
            self.lines.range(at / LINE..end.div_ceil(LINE)).map(|(number, _)| *number).collect();
        for number in open {
            let (from, until) = (at.max(number * LINE), end.min((number + 1) * LINE));
            self.read_words(&mut to[(from - at) as usize..(until - at) as usize], from, trail);
        }
    }

    fn read_words(&mut self, to: &mut [u8], at: u64, trail: &mut Trail) {
        let mut done = 0;
        while done < to.len() {
            let from = at + done as u64;
            let (word, skip) = (from / 8 * 8, (from % 8) as usize);
            let len = (to.len() - done).min(8 - skip);
            let bytes = self.load(word, trail).to_le_bytes();
            to[done..done + len].copy_from_slice(&bytes[skip..skip + len]);
            done += len;
        }
    }

    /// Stores bytes. Appends to `pending` the stores that the thread's next drain settles without a
    /// flush.
    #[allow(clippy::too_many_arguments, reason = "a store has that many properties")]
    pub fn store(
        &mut self,
        at: u64,
        bytes: &[u8],
        seq: u64,
        thread: Thread,
        through: bool,
        pending: &mut Vec<Pending>,
        trail: &mut Trail,
    ) {
        let end = at + bytes.len() as u64;
        let mut from = at;
        while from < end {
            let number = from / LINE;
            let to = ((number + 1) * LINE).min(end);
            let mut stored = Stored { seq, thread, through, mask: 0, late: 0, words: [0; 8] };
            let mut byte = from;
            while byte < to {
                let word_at = byte / 8 * 8;
                let (low, high) = ((byte - word_at) as usize, ((to - word_at) as usize).min(8));
                let mut value = match high - low {
                    8 => [0; 8],
                    _ => self.load(word_at, trail).to_le_bytes(),
                };
                let piece = (byte - at) as usize..(byte - at) as usize + high - low;
                value[low..high].copy_from_slice(&bytes[piece]);
                let word = (word_at % LINE / 8) as usize;
                stored.mask |= 1 << word;
                stored.words[word] = u64::from_le_bytes(value);
                byte = word_at + high as u64;
            }
            if through {
                pending.push(Pending { file: self.file, line: number, seq, flushed: false });
            }
            Arc::make_mut(self.lines.entry(number).or_default()).stores.push(stored);
            from = to;
        }
    }

    /// Starts the write-back of the lines of a range.
    pub fn flush(&mut self, start: u64, end: u64, seq: u64, pending: &mut Vec<Pending>) {
        for (line, content) in self.lines.range(start / LINE..end.div_ceil(LINE)) {
            if !content.stores.is_empty() {
                pending.push(Pending { file: self.file, line: *line, seq, flushed: true });
            }
        }
    }

    /// Makes durable what a drain of `thread` settles.
    pub fn settle(&mut self, pending: Pending, thread: Thread) {
        let Some(line) = self.lines.get_mut(&pending.line) else { return };
        if line.stores.is_empty() {
            return;
        }
        let line = Arc::make_mut(line);
        let reached = |store: &Stored| match pending.flushed {
            false => store.seq == pending.seq,
            true => store.seq <= pending.seq && (!store.through || store.thread == thread),
        };
        let (mut settled, mut values) = (0, [0; 8]);
        for word in bits(line.stores.iter().fold(0, |all, store| all | store.mask)) {
            for store in line.stores.iter_mut().filter(|store| reached(store)) {
                // It has arrived before the newer one.
                store.mask &= !(store.late & 1 << word);
            }
            let newest = line.stores.iter().rfind(|store| store.has(word) && reached(store));
            let Some((seq, value)) = newest.map(|store| (store.seq, store.words[word])) else {
                continue;
            };
            for store in line.stores.iter_mut().filter(|store| store.seq <= seq) {
                let is_late = store.through && ![thread, PAST_THE_END].contains(&store.thread);
                match is_late {
                    true => store.late |= store.mask & 1 << word,
                    false => store.mask &= !(1 << word),
                }
            }
            line.groups.iter_mut().for_each(|group| group.mask &= !(1 << word));
            settled |= 1 << word;
            values[word] = value;
        }
        line.stores.retain(|store| store.mask != 0);
        line.groups.retain(|group| group.mask != 0);
        if line.stores.is_empty() && line.groups.is_empty() {
            self.lines.remove(&pending.line);
        }
        self.set_durable(pending.line, settled, &values);
    }

    /// Zeroes bytes, on the medium as well. Returns the old bytes.
    pub fn zero(&mut self, start: u64, end: u64) -> Memory {
        let mut before = Memory::new(self.file);
        let (first, last) = (start / PAGE, end.div_ceil(PAGE));
        for (n, page) in self.durable.range(first..last) {
            before.durable.insert(*n, page.clone());
        }
        for (n, line) in self.lines.range(first * (PAGE / LINE)..last * (PAGE / LINE)) {
            before.lines.insert(*n, line.clone());
        }
        for n in before.durable.keys() {
            let from = start.max(n * PAGE) - n * PAGE;
            let to = end.min((n + 1) * PAGE) - n * PAGE;
            if to - from == PAGE {
                self.durable.remove(n);
                continue;
            }
            if let Some(page) = self.durable.get_mut(n) {
                zero_bytes(&mut Arc::make_mut(page)[..], from, to);
            }
        }
        for n in before.lines.keys() {
            let from = start.max(n * LINE);
            let to = end.min((n + 1) * LINE);
            if from >= to {
                continue;
            }
            if to - from == LINE {
                self.lines.remove(n);
                continue;
            }
            let (from, to) = (from - n * LINE, to - n * LINE);
            if let Some(line) = self.lines.get_mut(n) {
                let line = Arc::make_mut(line);
                line.stores.iter_mut().for_each(|store| zero_bytes(&mut store.words, from, to));
                for group in &mut line.groups {
                    group.values.iter_mut().for_each(|words| zero_bytes(words, from, to));
                }
            }
        }
        before
    }

    /// Undoes `zero`: restores the pages that it changed.
    pub fn put_back(&mut self, start: u64, end: u64, before: &Memory) {
        let (first, last) = (start / PAGE, end.div_ceil(PAGE));
        let pages: Vec<u64> = self.durable.range(first..last).map(|(n, _)| *n).collect();
        pages.iter().for_each(|n| drop(self.durable.remove(n)));
        let lines = first * (PAGE / LINE)..last * (PAGE / LINE);
        let lines: Vec<u64> = self.lines.range(lines).map(|(n, _)| *n).collect();
        lines.iter().for_each(|n| drop(self.lines.remove(n)));
        self.durable.extend(before.durable.iter().map(|(n, page)| (*n, page.clone())));
        self.lines.extend(before.lines.iter().map(|(n, line)| (*n, line.clone())));
    }

    /// Loses the power: stores that are not durable become alternatives.
    pub fn crash(&mut self, model: Model) {
        let open: Vec<u64> = self
            .lines
            .iter()
            .filter(|(_, line)| !line.stores.is_empty())
            .map(|(number, _)| *number)
            .collect();
        for number in open {
            let Some(line) = self.lines.remove(&number) else { continue };
            let base: Words =
                std::array::from_fn(|n| self.durable_word(number * LINE + n as u64 * 8));
            let groups = match model {
                Model::Chunk => after_crash(&line, &base, 0xFF),
                Model::Px86 => {
                    let streamed = line.stores.iter().filter(|store| store.through);
                    let independent = streamed.fold(0, |mask, store| mask | store.mask);
                    let mut groups = after_crash(&line, &base, independent);
                    groups.extend(prefixes(&line, &base, !independent));
                    groups
                }
            };
            if !groups.is_empty() {
                self.lines.insert(number, Arc::new(Line { stores: SmallVec::new(), groups }));
            }
        }
    }

    /// Returns the number of words with an undetermined value.
    pub fn undetermined(&self) -> usize {
        self.lines
            .values()
            .flat_map(|line| &line.groups)
            .map(|group| group.mask.count_ones() as usize)
            .sum()
    }

    /// Returns all groups of the file.
    pub(super) fn all_groups(&self) -> Vec<(u64, usize, usize)> {
        let all = self.lines.iter().flat_map(|(number, line)| {
            line.groups.iter().enumerate().map(|(n, group)| (*number, n, group.values.len()))
        });
        all.collect()
    }
}

fn copy_words(page: &PageWords, to: &mut [u8], from: usize) {
    const { assert!(cfg!(target_endian = "little"), "the words are those of the files") };
    to.copy_from_slice(&page.as_bytes()[from..from + to.len()]);
}

fn zero_bytes(words: &mut [u64], from: u64, to: u64) {
    for at in from..to {
        words[at as usize / 8] &= !(0xFFu64 << (at % 8 * 8));
    }
}

/// Returns the groups of the words of `mask`, each word alone.
fn after_crash(line: &Line, base: &Words, mask: u8) -> Vec<Group> {
    let mut groups = Vec::new();
    for word in bits(mask) {
        let bit = 1 << word;
        let mut values: SmallVec<[u64; 4]> = SmallVec::new();
        let mut add = |value: u64| {
            if !values.contains(&value) {
                values.push(value);
            }
        };
        match line.groups.iter().find(|group| group.mask & bit != 0) {
            Some(group) => group.values.iter().for_each(|values| add(values[word])),
            None => add(base[word]),
        }
        let stored = line.stores.iter().filter(|store| store.mask & bit != 0);
        stored.for_each(|store| add(store.words[word]));
        if values.len() > 1 {
            let alternative = |value: u64| {
                let mut words = [0; 8];
                words[word] = value;
                words
            };
            let values = values.into_iter().map(alternative).collect();
            groups.push(Group { mask: bit, values });
        }
    }
    groups
}

/// Returns the group of the words of `mask`, by prefixes of the cached stores.
fn prefixes(line: &Line, base: &Words, mask: u8) -> Option<Group> {
    let stores: Vec<&Stored> = line.stores.iter().filter(|store| store.mask & mask != 0).collect();
    let old: Vec<&Group> = line.groups.iter().filter(|group| group.mask & mask != 0).collect();
    let touched = stores.iter().map(|store| store.mask).chain(old.iter().map(|group| group.mask));
    let mask = touched.fold(0, |all, one| all | one) & mask;
    let mut alternatives: Vec<Words> = vec![*base];
    for group in old {
        let mut product = Vec::new();
        for words in &alternatives {
            for values in &group.values {
                let mut words = *words;
                bits(group.mask & mask).for_each(|word| words[word] = values[word]);
                product.push(words);
            }
        }
        alternatives = product;
    }
    let bases = alternatives.clone();
    for before in bases {
        let mut words = before;
        for store in &stores {
            let own: Vec<usize> = bits(store.mask & mask).collect();
            for part in 1..1u32 << own.len() {
                let mut torn = words;
                for (n, word) in own.iter().enumerate() {
                    if part >> n & 1 == 1 {
                        torn[*word] = store.words[*word];
                    }
                }
                alternatives.push(torn);
            }
            own.iter().for_each(|word| words[*word] = store.words[*word]);
        }
    }
    let mut distinct: Vec<Words> = Vec::new();
    for words in alternatives {
        let same = |other: &Words| bits(mask).all(|word| other[word] == words[word]);
        if !distinct.iter().any(same) {
            distinct.push(words);
        }
    }
    if distinct.len() > MOST {
        let last = distinct.len() - 1;
        let step = distinct.len().div_ceil(MOST);
        let mut n = 0;
        distinct.retain(|_| {
            n += 1;
            (n - 1) % step == 0 || n - 1 == last
        });
    }
    // Words that are equal in all combinations need no choice.
    let first = distinct[0];
    let open = bits(mask).filter(|word| distinct.iter().any(|words| words[*word] != first[*word]));
    let mask = open.fold(0, |mask, word| mask | 1 << word);
    (distinct.len() > 1 && mask != 0).then_some(Group { mask, values: distinct })
}

#[cfg(test)]
mod tests;
