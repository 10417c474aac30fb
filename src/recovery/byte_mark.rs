//! The byte mark in an opening: where the home file has one, and the mark of a new pair.
//!
//! A new pair's reflection file says from the beginning that the slice of the mark is in its
//! reflection slot, which is zero. It is durable before the names are, and the names before the
//! mark. The sync that makes the attribute durable makes the mark durable as well, and no store of
//! the session comes before it. `docs/model/opening.py` tries each of these steps left out.
//!
//! May import `candidates`, `context`, `format`, and `platform`.

use super::Opening;
use super::candidates::key_of_name;
use super::pair::{self, Home, Mark, Use};
use super::probe::Probe;
use crate::config::options::Options;
use crate::engine::superblock::Companions;
use crate::error::{Error, Result};
use crate::format::byte_mark::{ByteMark, Found, LEN};
use crate::format::sqlite_header::{self, HEAD};
use crate::format::superblock::Superblock;
use crate::format::{layout, le_word, state_word};
use crate::mutant::{planted, unless};
use crate::pair::marking::{MarkWord, Place};
use crate::platform::{File, FileId, FileStat, Name};
use crate::structures::{MARK_IN_ROOTS, ROOTS_MAGIC};
use std::io;
use std::path::Path;

/// The findings of an opening about a byte mark.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Look {
    /// The place where the file has its mark, or gets one.
    pub place: Option<Place>,
    /// The mark that is there.
    pub found: Option<Found>,
    /// The place of that mark.
    pub found_at: Option<Place>,
    /// `true` if other bytes are there.
    is_taken: bool,
    /// `true` if the file begins with the marked header of a database.
    pub is_database: bool,
}

/// Returns the place that the caller has chosen for the mark, if any.
pub(crate) fn given_place(options: &Options, path: &Path) -> Result<Option<Place>> {
    let Some(at) = options.mark_at else { return Ok(None) };
    let why = "Options::mark_at needs a multiple of 64, within the longest file";
    Place::new(at).ok_or_else(|| unfit_mark(path, at, why)).map(Some)
}

fn unfit_mark(path: &Path, at: u64, why: &'static str) -> Error {
    let source = io::Error::new(io::ErrorKind::InvalidInput, why);
    Error::io_at("place the mark", path, at, source)
}

impl Opening<'_> {
    /// Finds out everything about the pair. Writes nothing.
    pub(super) fn look(&self, home: &File, stat: &FileStat) -> Result<Probe> {
        let mut look = self.look_for_pair(home, stat)?;
        look.byte_mark = self.look_for_byte_mark(home, stat.len)?;
        let found = look.byte_mark.found;
        if look.mark == Mark::None
            && (found.is_some() || look.byte_mark.is_database)
            && !planted!(ByteMarkNotRead)
        {
            look.mark = Mark::InBytes;
            if let (Some(Found::Mark(mark)), true) = (found, look.is_plain()) {
                // The error names what is missing.
                look.companions = Companions::new(self.name_of(mark.key, mark.key.index));
            }
        }
        Ok(look)
    }

    /// Looks for the byte mark of the home file, which has `len` bytes.
    fn look_for_byte_mark(&self, home: &File, len: u64) -> Result<Look> {
        let given = given_place(self.options, self.path)?;
        let of_roots = Place::new(MARK_IN_ROOTS);
        let mut look = Look { place: given, ..Look::default() };
        look.is_database =
            self.header_of(home, len)?.is_some_and(|it| sqlite_header::is_marked(&it));
        for place in [given, of_roots].into_iter().flatten().filter(|place| place.end() <= len) {
            let mut bytes = [0; LEN];
            self.read_home(home, &mut bytes, place.start())?;
            let found = ByteMark::decode(&bytes);
            if Some(place) == given {
                look.is_taken = found.is_none() && bytes != [0; LEN];
            }
            if look.found.is_none() && found.is_some() {
                (look.found, look.found_at) = (found, Some(place));
            }
            if look.place.is_none() && (found.is_some() || self.has_roots(home, &bytes)?) {
                look.place = Some(place);
            }
        }
        Ok(look)
    }

    /// Returns `true` if the file begins with a directory of named roots, with room for a mark.
    fn has_roots(&self, home: &File, room: &[u8; LEN]) -> Result<bool> {
        let mut magic = [0; ROOTS_MAGIC.len()];
        self.read_home(home, &mut magic, 0)?;
        Ok(magic == ROOTS_MAGIC && *room == [0; LEN])
    }

    /// Returns the first bytes of a file that is long enough for a database.
    fn header_of(&self, home: &File, len: u64) -> Result<Option<[u8; HEAD]>> {
        let mut header = [0; HEAD];
        let is_long = len >= HEAD as u64;
        if is_long {
            self.read_home(home, &mut header, 0)?;
        }
        Ok(is_long.then_some(header))
    }

    /// Returns the mark that a new pair of a file of `len` bytes begins with.
    fn new_mark(&self, home: &File, look: &Look, len: u64) -> Result<MarkWord> {
        if let Some(place) = look.place.filter(|place| place.end() <= len && !look.is_taken) {
            return Ok(MarkWord::At(place, true));
        }
        let header = self.header_of(home, len)?.filter(|_| self.options.marks_database);
        let gets_mark =
            |mut header| sqlite_header::is_marked(&header) || sqlite_header::mark(&mut header);
        Ok(if header.is_some_and(gets_mark) { MarkWord::InHeader } else { MarkWord::None })
    }

    fn read_home(&self, home: &File, to: &mut [u8], at: u64) -> Result<()> {
        let read = self.platform.read_at(home, FileId::Home, to, at);
        read.map_err(|e| Error::io_at("read the byte mark", self.path, at, e))
    }

    /// Returns the place of the pair's mark, and decides that of a new pair.
    pub(super) fn judge_byte_mark(
        &self,
        home: &File,
        look: &Probe,
        is_fresh: bool,
    ) -> Result<Option<Place>> {
        if let Some(file) = look.file.as_ref().filter(|_| !is_fresh) {
            let path = look.companions.reflection.path();
            return self.byte_mark_of((file, path), &look.byte_mark);
        }
        self.check_byte_mark(&look.byte_mark)?;
        if !self.options.read_only {
            self.new_byte_mark.set(self.new_mark(home, &look.byte_mark, look.lengths.len)?);
        }
        Ok(look.byte_mark.place)
    }

    /// Fails if a new pair cannot have its mark where the caller wants it.
    fn check_byte_mark(&self, look: &Look) -> Result<()> {
        match look.place.filter(|_| look.is_taken) {
            Some(place) => {
                let why = "other bytes are there; choose 64 bytes that are zero";
                Err(unfit_mark(self.path, place.start(), why))
            }
            None => Ok(()),
        }
    }

    /// Returns the place of the mark that a pair has, by its reflection file. If it has none, it is
    /// the caller's, or that of the whole mark that is there: a shrink leaves parts of one. The
    /// home file alone does not tell of roots, which may be written over in the reflection file.
    fn byte_mark_of(&self, reflection: (&File, &Path), look: &Look) -> Result<Option<Place>> {
        let known = self.mark_word(reflection)?.place();
        match (known, self.options.mark_at) {
            (Some(known), Some(asked)) if known.start() != asked => {
                let why = "the file has its mark at another offset until its next spatial close";
                Err(unfit_mark(self.path, asked, why))
            }
            (_, asked) => {
                let is_whole = matches!(look.found, Some(Found::Mark(_)));
                let found = look.found_at.filter(|_| is_whole);
                Ok(known.or(asked.and_then(Place::new)).or(found))
            }
        }
    }

    /// Returns what the state word says. A damaged one costs the mark, and nothing else.
    fn mark_word(&self, (file, path): (&File, &Path)) -> Result<MarkWord> {
        let (at, mut word) = (layout::MARK_WORD, [0; 8]);
        self.platform
            .read_at(file, FileId::Reflection, &mut word, at)
            .map_err(|e| Error::io_at("read a state word", path, at, e))?;
        let known = state_word::decode(at, le_word(&word)).and_then(MarkWord::decode);
        Ok(known.unwrap_or(MarkWord::None))
    }

    /// Changes what was found if the mark is missed.
    pub(super) fn miss_byte_mark(
        &self,
        reflection: (&File, &Path),
        home_file: &File,
        superblock: &Superblock,
        found: &mut pair::Found,
    ) -> Result<()> {
        // The stores of the process are there, so the mark is as well, once it was settled.
        if let pair::Found::OfThisFile { home: home @ Home::AsItWas, state: Use::Died } = found
            && !superblock.is_unsettled
            && self.has_lost_byte_mark(reflection, home_file, &superblock.uuid)?
        {
            *home = Home::Changed;
        }
        Ok(())
    }

    /// Returns `true` if another program has written over the home file's byte mark. It has written
    /// over the file, then: a copy has taken its place, under the same inode.
    fn has_lost_byte_mark(
        &self,
        reflection: (&File, &Path),
        home: &File,
        uuid: &[u8; 16],
    ) -> Result<bool> {
        let mut bytes = [0; LEN];
        let place = match self.mark_word(reflection)? {
            MarkWord::At(place, true) => place,
            MarkWord::InHeader => {
                self.read_home(home, &mut bytes, 0)?;
                return Ok(!sqlite_header::is_marked(&bytes) && !planted!(LostByteMarkTaken));
            }
            MarkWord::None | MarkWord::At(_, false) => return Ok(false),
        };
        self.read_home(home, &mut bytes, place.start())?;
        let is_ours =
            matches!(ByteMark::decode(&bytes), Some(Found::Mark(mark)) if mark.uuid == *uuid);
        Ok(!is_ours && !planted!(LostByteMarkTaken))
    }

    /// Returns the mark of the pair that has this uuid and this reflection file.
    pub(super) fn byte_mark(&self, uuid: [u8; 16], reflection: &Name) -> ByteMark {
        ByteMark {
            uuid,
            key: key_of_name(reflection),
            is_elsewhere: self.options.reflection_dir.is_some(),
        }
    }

    /// Writes the mark of a new pair. The next sync of the home file makes it durable. Returns the
    /// bytes that were there, and their offset.
    pub(super) fn put_new_mark(
        &self,
        home: &File,
        (uuid, reflection): ([u8; 16], &Name),
    ) -> Result<Option<(u64, [u8; LEN])>> {
        let mut old = [0; LEN];
        let (at, new) = match self.new_byte_mark.get() {
            MarkWord::None => return Ok(None),
            MarkWord::At(place, _) => (place.start(), self.byte_mark(uuid, reflection).encode()),
            MarkWord::InHeader => {
                self.read_home(home, &mut old, 0)?;
                let mut header = old;
                sqlite_header::mark(&mut header);
                (0, header)
            }
        };
        let put = || self.platform.write_at(home, FileId::Home, &new, at);
        let no_space = |e| Error::io_of_range("write", self.path, at, LEN as u64, e);
        unless!(ByteMarkNotPut, put().map_err(no_space)?);
        Ok(Some((at, old)))
    }

    /// Says in a new reflection file that the slice of the mark is in its reflection slot.
    pub(super) fn put_byte_mark_words(
        &self,
        reflection: (&File, &Path),
        place: Place,
    ) -> Result<()> {
        let page = place.page();
        for at in [layout::slice_word(page), layout::durable_word(page)] {
            let word = place.slices().0.to_le_bytes();
            self.platform
                .write_at(reflection.0, FileId::Reflection, &word, at)
                .map_err(|e| Error::io_of_range("write", reflection.1, at, 8, e))?;
        }
        Ok(())
    }
}

const _: () = assert!(HEAD == LEN, "either mark takes a slice");
