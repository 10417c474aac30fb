//! The contents of a pair's files, as sparse bytes in memory, and the replay of a trace on them.

use atomic_mmap::testing::recorder::{Event, What};
use atomic_mmap::testing::{FileId, PAGE};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const P: u64 = PAGE as u64;

/// The bytes of a page.
pub type Page = [u8; PAGE];

/// The bytes of a file. Missing pages are zero.
#[derive(Clone, Default)]
pub struct Contents {
    /// Length in bytes.
    pub len: u64,
    /// The pages. Bytes past the length are not part of the file.
    pub pages: BTreeMap<u64, Arc<Page>>,
}

impl Contents {
    /// Returns zeroes.
    pub fn of_len(len: u64) -> Contents {
        Contents { len, ..Contents::default() }
    }

    /// Fills `to` with the bytes from `at` on.
    pub fn read(&self, to: &mut [u8], at: u64) {
        let mut done = 0;
        while done < to.len() {
            let (page, from) = ((at + done as u64) / P, ((at + done as u64) % P) as usize);
            let len = (PAGE - from).min(to.len() - done);
            match self.pages.get(&page) {
                Some(bytes) => to[done..done + len].copy_from_slice(&bytes[from..from + len]),
                None => to[done..done + len].fill(0),
            }
            done += len;
        }
    }

    /// Returns `len` bytes from `at` on.
    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(&mut bytes, at);
        bytes
    }

    /// Writes `from` at `at`.
    pub fn write(&mut self, from: &[u8], at: u64) {
        let mut done = 0;
        while done < from.len() {
            let (page, to) = ((at + done as u64) / P, ((at + done as u64) % P) as usize);
            let len = (PAGE - to).min(from.len() - done);
            let bytes = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(bytes)[to..to + len].copy_from_slice(&from[done..done + len]);
            done += len;
        }
    }

    /// Returns the number at `at`.
    pub fn word(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        self.read(&mut word, at);
        u64::from_le_bytes(word)
    }

    /// Stores a number at `at`.
    pub fn set_word(&mut self, at: u64, value: u64) {
        if value != self.word(at) {
            self.write(&value.to_le_bytes(), at);
        }
    }

    /// Zeroes a range.
    pub fn zero(&mut self, start: u64, end: u64) {
        let inside: Vec<u64> =
            self.pages.range(start / P..end.div_ceil(P)).map(|(n, _)| *n).collect();
        for n in inside {
            let (from, to) = (start.max(n * P) - n * P, end.min((n + 1) * P) - n * P);
            if to - from == P {
                self.pages.remove(&n);
            } else if let Some(page) = self.pages.get_mut(&n) {
                Arc::make_mut(page)[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Truncates the file, or adds zeroes.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, self.len.next_multiple_of(P));
        }
        self.len = len;
    }

    /// Drops the bytes past the length.
    pub fn trim(&mut self) {
        let end = self.pages.last_key_value().map_or(0, |(n, _)| (n + 1) * P);
        self.zero(self.len, end.max(self.len));
    }

    /// Returns the numbers of the pages that have bytes within the length.
    pub fn page_numbers(&self) -> impl Iterator<Item = u64> {
        self.pages.range(..self.len.div_ceil(P)).map(|(n, _)| *n)
    }

    /// Describes the first difference between two files.
    pub fn difference(&self, other: &Contents) -> Option<String> {
        if self.len != other.len {
            return Some(format!("{} bytes long instead of {}", self.len, other.len));
        }
        let mut numbers: Vec<u64> = self.page_numbers().chain(other.page_numbers()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for n in numbers {
            let len = (self.len - n * P).min(P) as usize;
            let (one, two) = (self.bytes(n * P, len), other.bytes(n * P, len));
            if one == two {
                continue;
            }
            if let Some(byte) = (0..len).find(|byte| one[*byte] != two[*byte]) {
                let at = n * P + byte as u64;
                return Some(format!("{} instead of {} at byte {at}", one[byte], two[byte]));
            }
        }
        None
    }
}

/// The files of a pair, and the home file's attribute.
#[derive(Clone, Default)]
pub struct Image {
    /// The home file.
    pub home: Contents,
    /// The reflection file, if a file has its name.
    pub reflection: Option<Contents>,
    /// The journal of the reflection file, if there is one.
    pub journal: Option<Contents>,
    /// The store of snapshots, if there is one.
    pub snapshots: Option<Contents>,
    /// Value of the attribute.
    pub mark: Option<Vec<u8>>,
}

impl Image {
    /// Returns `true` if the attribute says that a spatial close was about to remove the
    /// companions.
    pub fn is_closing(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.get(36).is_some_and(|flags| flags & 2 == 2))
    }
}

/// The files during the replay of a trace. A process crash leaves everything that was stored.
/// `lab images` tests what a power loss leaves of that.
#[derive(Clone)]
pub struct Player {
    /// Home file, reflection file, journal and snapshot store.
    files: [Contents; 4],
    is_named: bool,
    has_journal: bool,
    has_store: bool,
    mark: Marked,
}

/// The attribute of the home file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Marked {
    Nothing,
    InUse,
    /// A spatial close is about to remove the companions. A session sets the attribute once, and
    /// this close sets it again.
    Closing,
}

/// The attribute of a file in a spatial close, before its pair and inode are filled in: only the
/// flag that it has then.
const CLOSING: [u8; 40] = {
    let mut bytes = [0; 40];
    bytes[36] = 2;
    bytes
};

impl Player {
    /// Begins with an image.
    pub fn new(image: &Image) -> Player {
        Player {
            files: [
                image.home.clone(),
                image.reflection.clone().unwrap_or_default(),
                image.journal.clone().unwrap_or_default(),
                image.snapshots.clone().unwrap_or_default(),
            ],
            is_named: image.reflection.is_some(),
            has_journal: image.journal.is_some(),
            has_store: image.snapshots.is_some(),
            mark: match image.mark {
                None => Marked::Nothing,
                Some(_) if image.is_closing() => Marked::Closing,
                Some(_) => Marked::InUse,
            },
        }
    }

    /// Returns the image that a crash leaves now. The caller provides the value of the attribute of
    /// a pair in use.
    pub fn image(&self, mark: &Option<Vec<u8>>) -> Image {
        let [home, reflection, journal, store] = &self.files;
        Image {
            home: home.clone(),
            reflection: self.is_named.then(|| reflection.clone()),
            journal: self.has_journal.then(|| journal.clone()),
            snapshots: self.has_store.then(|| store.clone()),
            mark: match self.mark {
                Marked::Nothing => None,
                Marked::InUse => mark.clone(),
                Marked::Closing => Some(CLOSING.to_vec()),
            },
        }
    }

    /// Replays one event.
    pub fn play(&mut self, event: &Event) {
        match &event.what {
            What::Store { file, offset, value, .. } => self.at(*file).set_word(*offset, *value),
            What::CompareExchange { file, offset, new, done: true, .. } => {
                self.at(*file).set_word(*offset, *new);
            }
            What::Copy { file, offset, bytes, .. } => self.at(*file).write(bytes, *offset),
            What::Write { file, offset, bytes } | What::WriteDurably { file, offset, bytes } => {
                let file = self.at(*file);
                file.write(bytes, *offset);
                file.len = file.len.max(offset + bytes.len() as u64);
            }
            What::Punch { file, offset, len } => self.at(*file).zero(*offset, offset + len),
            What::SetLen { file, len } => self.at(*file).set_len(*len),
            What::Rename { to, .. } if is_store(to) => self.has_store = true,
            What::Rename { .. } => self.is_named = true,
            What::Remove { path } if is_store(path) => {
                self.has_store = false;
                self.files[3] = Contents::default();
            }
            What::Remove { path } => match path.extension().and_then(|end| end.to_str()) {
                // The event concerns a reflection file that had no name yet.
                Some("new") => {}
                Some("journal") => {
                    self.has_journal = false;
                    self.files[2] = Contents::default();
                }
                _ => {
                    self.is_named = false;
                    self.files[1] = Contents::default();
                }
            },
            What::Os("set_xattr") => {
                let was_in_use = self.mark == Marked::InUse;
                self.mark = if was_in_use { Marked::Closing } else { Marked::InUse };
            }
            What::Os("remove_xattr") => self.mark = Marked::Nothing,
            _ => {}
        }
    }

    /// Replays a part of an event: the first `len` bytes of the write of a record. A write can be
    /// torn at any byte.
    pub fn play_torn(&mut self, event: &Event, len: usize) {
        if let What::WriteDurably { file, offset, bytes } = &event.what {
            let bytes = &bytes[..len.min(bytes.len())];
            self.at(*file).write(bytes, *offset);
        }
    }

    fn at(&mut self, file: FileId) -> &mut Contents {
        match file {
            FileId::Home => &mut self.files[0],
            FileId::Reflection => &mut self.files[1],
            FileId::Journal => {
                self.has_journal = true;
                &mut self.files[2]
            }
            FileId::Snapshots => &mut self.files[3],
            FileId::Spool => panic!("no history has an import"),
        }
    }
}

/// Returns `true` for the name of a store of snapshots, also of one that is not finished.
fn is_store(path: &Path) -> bool {
    path.to_string_lossy().contains(".snapshots")
}
