//! Named roots: values, arrays and logs that are found by their names.
//!
//! Owns: what callers call, and the comparison of types.
//!
//! Invariant (`docs/structures.md`): N4 an extent that a name gets is zero when its transaction
//! commits.
//!
//! May import `log`, `space`, `directory` and the room's helpers.

use super::directory::{
    ARRAY, Directory, Entry, HEAD, Header, LOG, LONGEST_NAME, MARK, MOST_PLACES, VALUE, table_len,
};
use super::log::Log;
use super::log::meta::{EXTENT, Head, SEGMENTS, Segments};
use super::{UNIT, check_transaction, error, rounded, space};
use crate::api::array::Array;
use crate::api::file::AtomicMappedFile;
use crate::api::slot::Slot;
use crate::api::transaction::Transaction;
use crate::api::value::Record;
use crate::error::{Error, Result, StructureError};
use crate::mutant::{planted, unless};
use std::fmt;
use zerocopy::FromZeros;

/// A name of a root: 1 to 80 bytes, and a number for the type of its value.
///
/// A `&str` is a name with the type number 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name<'a> {
    text: &'a str,
    type_id: u64,
}

impl<'a> Name<'a> {
    /// Returns the name with a number that the program chooses for the type of the value.
    ///
    /// The file keeps it. Another number at a later call is an error, as another size is. So raise
    /// it when the meaning of the bytes changes and their length stays the same.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # use atomic_mmap::{AtomicMappedFile, Error, Name, Roots, StructureError};
    /// # let file = AtomicMappedFile::create(dir.path().join("x"), 0)?;
    /// let roots = Roots::open(file)?;
    /// roots.get_or_insert::<u64>(Name::from("seconds").of_type(1))?.store(&7)?;
    /// let Err(Error::Structure { why, .. }) = roots.get::<u64>(Name::from("seconds").of_type(2))
    /// else { panic!() };
    /// assert!(matches!(why, StructureError::WrongType { .. }));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn of_type(self, type_id: u64) -> Name<'a> {
        Name { type_id, ..self }
    }
}

impl<'a> From<&'a str> for Name<'a> {
    fn from(text: &'a str) -> Name<'a> {
        Name { text, type_id: 0 }
    }
}

impl<'a> From<&'a String> for Name<'a> {
    fn from(text: &'a String) -> Name<'a> {
        Name::from(text.as_str())
    }
}

/// A directory of names to values, arrays and [logs](Log) in a file, which allocates their space.
///
/// A program that uses it chooses no offsets. It owns the file from its own offset to the end: it
/// allocates space there, and makes the file longer when no gap fits. Let no other code write to
/// that part except through what the directory returns, and do not shorten the file.
///
/// Every change is atomic. A method with a name that ends in `_in` takes a transaction, so that a
/// change happens together with others, and returns an offset. The method without the ending runs a
/// transaction of its own, and returns a typed handle. Look a name up once and keep the handle: a
/// look-up reads the whole directory.
///
/// A value takes a multiple of 64 bytes, so that no two values share a 64-byte slice. Extents of
/// 4 KiB or more begin at a page.
///
/// ```
/// # let dir = atomic_mmap::doctest_dir();
/// # let path = dir.path().join("state.dat");
/// use atomic_mmap::zerocopy::{FromBytes, Immutable, IntoBytes};
/// use atomic_mmap::{AtomicMappedFile, Roots};
///
/// #[derive(FromBytes, IntoBytes, Immutable, Clone, Copy, PartialEq, Debug)]
/// #[zerocopy(crate = "atomic_mmap::zerocopy")]
/// #[repr(C)]
/// struct Vote {
///     term: u64,
///     candidate: u64,
/// }
///
/// let roots = Roots::open(AtomicMappedFile::create(&path, 0)?)?;
/// let vote = roots.get_or_insert::<Vote>("vote")?; // zeros at first
/// vote.store(&Vote { term: 7, candidate: 2 })?;
/// let offsets = roots.get_or_insert_array::<u64>("offsets", 1000)?;
/// offsets.set(3, &41)?;
///
/// assert_eq!(roots.get::<Vote>("vote")?.expect("a vote").load()?.term, 7);
/// assert!(roots.get::<u64>("vote").is_err()); // another type
/// assert_eq!(roots.names()?, ["offsets", "vote"]);
/// # Ok::<(), atomic_mmap::Error>(())
/// ```
pub struct Roots {
    file: AtomicMappedFile,
    at: u64,
}

impl Roots {
    /// Opens the directory at the file's beginning, or makes one in a file of zeros. See
    /// [`open_at`](Self::open_at).
    ///
    /// # Errors
    /// Those of [`open_at`](Self::open_at).
    pub fn open(file: AtomicMappedFile) -> Result<Roots> {
        Roots::open_at(file, 0)
    }

    /// Opens the directory at byte `offset`, best a multiple of 4096. Makes one if the file has
    /// only zeros from there on, or is shorter.
    ///
    /// At a multiple of 64, 64 bytes of the directory are for the mark of
    /// [`Options::mark_at`](crate::Options::mark_at). So a copy of the file alone, made while the
    /// file is in use, does not open.
    ///
    /// A directory takes 4 KiB, and the file grows if it needs more. Making one takes time in
    /// proportion to the file's length, so create the file with the length 0.
    ///
    /// # Errors
    /// [`Error::Structure`]: `Foreign` if there are other bytes, `Newer`, or `Damaged`. To make a
    /// directory, also those of [`AtomicMappedFile::set_len`] and [`Transaction::commit`], and
    /// [`Error::Overflow`]. [`Error::Mismatch`] if the file is a copy that lacks its companions. An
    /// error changes no byte.
    pub fn open_at(file: AtomicMappedFile, offset: u64) -> Result<Roots> {
        let roots = Roots { file, at: offset };
        let overflow = |file: &AtomicMappedFile| Error::Overflow {
            path: file.path().to_owned(),
            offset,
            count: HEAD,
            size: 1,
        };
        let end = offset.checked_add(HEAD).ok_or_else(|| overflow(&roots.file))?;
        if roots.is_all_zero()? {
            roots.file.transact(|tx| {
                space::grow(tx, end)?;
                // Another thread may have made one meanwhile.
                let found: Header = tx.load(offset)?;
                if found == Header::new_zeroed() {
                    tx.store(offset, &Header::new(offset))?;
                }
                Ok::<_, Error>(())
            })?;
        }
        roots.in_transaction(|roots, tx| Directory::load(tx, roots.at).map(drop))?;
        // Behind the header. At another offset the table leaves no whole slice.
        if offset.is_multiple_of(UNIT) {
            roots.file.mark_at(offset.saturating_add(MARK))?;
        }
        Ok(roots)
    }

    /// Returns `true` if the file has only zeros from the directory's offset on.
    fn is_all_zero(&self) -> Result<bool> {
        let mut bytes = vec![0; 1 << 16];
        let (mut at, len) = (self.at, self.file.len());
        while at < len {
            let here = len.saturating_sub(at).min(bytes.len() as u64);
            let part = &mut bytes[..here as usize];
            self.file.read_at(part, at)?;
            if part.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at = at.saturating_add(here);
        }
        Ok(true)
    }

    /// Returns the file.
    pub fn file(&self) -> &AtomicMappedFile {
        &self.file
    }

    /// Returns the file, for example to close it. Logs have handles of their own: the file closes
    /// with its last handle.
    pub fn into_file(self) -> AtomicMappedFile {
        self.file
    }

    /// Returns another handle to the same directory.
    ///
    /// # Errors
    /// Those of [`AtomicMappedFile::try_clone`].
    pub fn try_clone(&self) -> Result<Roots> {
        Ok(Roots { file: self.file.try_clone()?, at: self.at })
    }

    fn in_transaction<R>(
        &self,
        mut body: impl FnMut(&Roots, &mut Transaction<'_>) -> Result<R>,
    ) -> Result<R> {
        self.file.transact(|tx| body(self, tx))
    }

    fn slot_at<T: Record>(&self, offset: u64) -> Result<Slot<T, &AtomicMappedFile>> {
        self.file.slot(offset)
    }

    fn array_at<T: Record>(&self, offset: u64, count: u64) -> Result<Array<T, &AtomicMappedFile>> {
        self.file.array(offset, count)
    }

    /// Returns the value with this name, or `None` if the name is not in use.
    ///
    /// # Errors
    /// [`Error::Structure`]: `WrongType` if the name has another kind, size, alignment or
    /// [type number](Name::of_type), `BadName`, or `Damaged`. Those of
    /// [`AtomicMappedFile::read_at`].
    pub fn get<'n, T: Record>(
        &self,
        name: impl Into<Name<'n>>,
    ) -> Result<Option<Slot<T, &AtomicMappedFile>>> {
        let name = name.into();
        let offset = self.in_transaction(|roots, tx| roots.get_in::<T>(tx, name))?;
        offset.map(|offset| self.slot_at(offset)).transpose()
    }

    /// Returns the offset of the value with this name, as the transaction sees it.
    ///
    /// # Errors
    /// Those of [`get`](Self::get). [`Error::Conflict`]. [`Error::Structure`] with `OtherFile` if
    /// the transaction belongs to another file.
    pub fn get_in<'n, T: Record>(
        &self,
        tx: &mut Transaction<'_>,
        name: impl Into<Name<'n>>,
    ) -> Result<Option<u64>> {
        let kind = Kind::of_value::<T>();
        Ok(self.find(tx, name.into(), &kind)?.1.map(|entry| entry.offset.get()))
    }

    /// Returns the value with this name. If the name is not in use, makes a value of zeros.
    ///
    /// # Errors
    /// Those of [`get`](Self::get). Those of [`AtomicMappedFile::set_len`] if the file must grow,
    /// and of [`Transaction::commit`] except the conflict. `Full` past 65,536 names. An error
    /// changes nothing.
    pub fn get_or_insert<'n, T: Record>(
        &self,
        name: impl Into<Name<'n>>,
    ) -> Result<Slot<T, &AtomicMappedFile>> {
        let name = name.into();
        self.slot_at(self.in_transaction(|roots, tx| roots.get_or_insert_in::<T>(tx, name))?)
    }

    /// Returns the offset of the value with this name. If the name is not in use, makes a value of
    /// zeros when the transaction commits.
    ///
    /// ```
    /// # let dir = atomic_mmap::doctest_dir();
    /// # use atomic_mmap::{AtomicMappedFile, Roots};
    /// # let roots = Roots::open(AtomicMappedFile::create(dir.path().join("x"), 0)?)?;
    /// roots.file().transact(|tx| {
    ///     let term = roots.get_or_insert_in::<u64>(tx, "term")?;
    ///     tx.store(term, &7_u64) // never zero for another thread, or after a crash
    /// })?;
    /// # Ok::<(), atomic_mmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`get_or_insert`](Self::get_or_insert) and [`get_in`](Self::get_in).
    pub fn get_or_insert_in<'n, T: Record>(
        &self,
        tx: &mut Transaction<'_>,
        name: impl Into<Name<'n>>,
    ) -> Result<u64> {
        self.find_or_insert(tx, name.into(), &Kind::of_value::<T>())
    }

    /// Returns the array with this name, or `None` if the name is not in use.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_array<'n, T: Record>(
        &self,
        name: impl Into<Name<'n>>,
    ) -> Result<Option<Array<T, &AtomicMappedFile>>> {
        let (name, kind) = (name.into(), Kind::of_array::<T>(None));
        let entry = self.in_transaction(|roots, tx| Ok(roots.find(tx, name, &kind)?.1))?;
        let count = |entry: &Entry| entry.len.get().checked_div(size_of::<T>() as u64).unwrap_or(0);
        entry.map(|entry| self.array_at(entry.offset.get(), count(&entry))).transpose()
    }

    /// Returns the array with this name. If the name is not in use, makes an array of `count`
    /// zeros. Takes memory in proportion to it if it reuses space.
    ///
    /// # Errors
    /// Those of [`get_or_insert`](Self::get_or_insert). `WrongType` also if the array has another
    /// number of elements. [`Error::Overflow`] if its length exceeds `u64::MAX`.
    pub fn get_or_insert_array<'n, T: Record>(
        &self,
        name: impl Into<Name<'n>>,
        count: u64,
    ) -> Result<Array<T, &AtomicMappedFile>> {
        let name = name.into();
        let offset =
            self.in_transaction(|roots, tx| roots.get_or_insert_array_in::<T>(tx, name, count))?;
        self.array_at(offset, count)
    }

    /// Returns the offset of the array with this name. If the name is not in use, makes an array of
    /// `count` zeros when the transaction commits.
    ///
    /// # Errors
    /// Those of [`get_or_insert_array`](Self::get_or_insert_array) and [`get_in`](Self::get_in).
    pub fn get_or_insert_array_in<'n, T: Record>(
        &self,
        tx: &mut Transaction<'_>,
        name: impl Into<Name<'n>>,
        count: u64,
    ) -> Result<u64> {
        self.find_or_insert(tx, name.into(), &Kind::of_array::<T>(Some(count)))
    }

    /// Returns the log with this name. If the name is not in use, makes an empty log. Its first
    /// record gets the number 0. See [`Log::truncate_front`] for another number.
    ///
    /// A log has a file handle of its own, which keeps the file open. An empty one takes 8 KiB.
    ///
    /// # Errors
    /// Those of [`get_or_insert`](Self::get_or_insert).
    pub fn log<'n>(&self, name: impl Into<Name<'n>>) -> Result<Log> {
        let name = name.into();
        self.in_transaction(|roots, tx| roots.log_in(tx, name))
    }

    /// Returns the log with this name. If the name is not in use, makes an empty log when the
    /// transaction commits. Without a commit, every call on the new log fails with `Removed`.
    ///
    /// # Errors
    /// Those of [`log`](Self::log) and [`get_in`](Self::get_in).
    pub fn log_in<'n>(&self, tx: &mut Transaction<'_>, name: impl Into<Name<'n>>) -> Result<Log> {
        let (name, kind) = (name.into(), Kind::log());
        let (mut directory, found) = self.find(tx, name, &kind)?;
        let entry = match found {
            Some(entry) => entry,
            None => {
                let id = directory.header.next_id.get();
                let next_id = id.checked_add(1).ok_or_else(|| {
                    let (what, needed) = ("numbers of logs", 1);
                    error(&self.file, self.at, StructureError::Full { what, needed, limit: id })
                })?;
                unless!(LogNumberReused, directory.header.next_id = next_id.into());
                directory.store_header(tx)?;
                self.insert(tx, directory, name, &Kind { size: id, ..kind })?
            }
        };
        let (at, id) = (entry.offset.get(), entry.size.get());
        // Also tells of a head that is damaged or newer.
        Head::load(tx, at, id)?;
        Ok(Log::new(self.file.try_clone()?, self.at, at, id))
    }

    /// Removes a name with its value, and frees its space. Returns `false` if the name is not in
    /// use.
    ///
    /// A handle to a removed value or array must not be used any more: its bytes may belong to
    /// another name. A handle to a removed log gets the error `Removed`.
    ///
    /// # Errors
    /// [`Error::Structure`]: `BadName` or `Damaged`. Those of [`Transaction::commit`] except the
    /// conflict.
    pub fn remove(&self, name: &str) -> Result<bool> {
        self.in_transaction(|roots, tx| roots.remove_in(tx, name))
    }

    /// Removes a name with its value when the transaction commits.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove) and [`get_in`](Self::get_in).
    pub fn remove_in(&self, tx: &mut Transaction<'_>, name: &str) -> Result<bool> {
        let mut directory = self.load(tx, name)?;
        let Some(entry) = directory.find(name).copied() else { return Ok(false) };
        if entry.kind == LOG && !planted!(RemovedLogLives) {
            // Handles look at the head in each call.
            tx.store(entry.offset.get(), &Head::new_zeroed())?;
        }
        directory.remove(tx, name)?;
        Ok(true)
    }

    /// Returns all names, in ascending order.
    ///
    /// # Errors
    /// [`Error::Structure`] with `Damaged`. Those of [`AtomicMappedFile::read_at`].
    pub fn names(&self) -> Result<Vec<String>> {
        let directory = self.in_transaction(|roots, tx| Directory::load(tx, roots.at))?;
        let name = |entry: &Entry| String::from_utf8_lossy(entry.name()).into_owned();
        let mut names: Vec<String> = directory.entries().map(name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Checks everything: the directory, all extents, and every record of every log.
    ///
    /// Takes time in proportion to the bytes in use. Reads one state. If other threads write
    /// meanwhile, begins again.
    ///
    /// # Errors
    /// [`Error::Structure`] with the first damage that it finds, and its offset. Those of
    /// [`AtomicMappedFile::read_at`].
    pub fn check(&self) -> Result<()> {
        self.in_transaction(|roots, tx| super::check::everything(tx, roots.at))
    }

    /// Reads the directory, after a check of the arguments.
    fn load(&self, tx: &mut Transaction<'_>, name: &str) -> Result<Directory> {
        check_transaction(tx, &self.file, self.at)?;
        if name.is_empty() || name.len() > LONGEST_NAME || name.ends_with('\0') {
            let (name, longest) = (name.to_owned(), LONGEST_NAME);
            return Err(error(&self.file, self.at, StructureError::BadName { name, longest }));
        }
        Directory::load(tx, self.at)
    }

    /// Returns the directory and the entry of a name, or an error if it has another type.
    fn find(
        &self,
        tx: &mut Transaction<'_>,
        name: Name<'_>,
        kind: &Kind,
    ) -> Result<(Directory, Option<Entry>)> {
        let directory = self.load(tx, name.text)?;
        let found = directory.find(name.text).copied();
        if let Some(entry) = &found
            && !(kind.is_of(entry) && entry.type_id.get() == name.type_id)
            && !planted!(AnyTypeTaken)
        {
            let why = StructureError::WrongType {
                name: name.text.to_owned(),
                found: Kind::of(entry).in_words(entry.type_id.get()),
                expected: kind.in_words(name.type_id),
            };
            return Err(error(&self.file, entry.offset.get(), why));
        }
        Ok((directory, found))
    }

    fn find_or_insert(&self, tx: &mut Transaction<'_>, name: Name<'_>, kind: &Kind) -> Result<u64> {
        match self.find(tx, name, kind)? {
            (_, Some(entry)) => Ok(entry.offset.get()),
            (directory, None) => Ok(self.insert(tx, directory, name, kind)?.offset.get()),
        }
    }

    /// Makes an entry with a new extent: of zeros, or an empty log.
    fn insert(
        &self,
        tx: &mut Transaction<'_>,
        mut directory: Directory,
        name: Name<'_>,
        kind: &Kind,
    ) -> Result<Entry> {
        let len = kind.len(&self.file, self.at)?;
        let offset = space::allocate(&mut directory, tx, len)?;
        let mut entry = Entry::new_zeroed();
        (entry.offset, entry.len) = (offset.into(), len.into());
        (entry.kind, entry.size, entry.align) = (kind.kind, kind.size.into(), kind.align.into());
        entry.type_id = name.type_id.into();
        entry.name_len = name.text.len() as u8;
        entry.name[..name.text.len()].copy_from_slice(name.text.as_bytes());
        let entry = entry.sealed();
        space::clear(&mut directory, tx, entry.extent())?;
        if kind.kind == LOG {
            // Before an enlargement, which allocates: an allocation reads the lists of all logs.
            Head::new(kind.size).store(tx, offset)?;
            Segments::new(Vec::new()).store(tx, offset.saturating_add(SEGMENTS))?;
        }
        if !directory.insert(tx, &entry)? {
            self.enlarge(tx, &mut directory, &entry)?;
        }
        Ok(entry)
    }

    /// Moves a full table to an extent of about twice the length, with one entry more.
    fn enlarge(
        &self,
        tx: &mut Transaction<'_>,
        directory: &mut Directory,
        entry: &Entry,
    ) -> Result<()> {
        let places = directory.more_places();
        if places > MOST_PLACES {
            let why = StructureError::Full { what: "names", needed: 1, limit: MOST_PLACES };
            return Err(error(&self.file, self.at, why));
        }
        // Before the allocation, which must not hand out the extent of the entry again.
        directory.add_place(entry);
        let len = table_len(places);
        let offset = space::allocate(directory, tx, len)?;
        directory.move_table(tx, offset, places)?;
        space::raise_high_water(directory, tx, offset.saturating_add(rounded(len)))?;
        directory.store_header(tx)
    }
}

/// The kind of thing that a name stands for.
#[derive(Clone, Copy)]
struct Kind {
    kind: u8,
    /// Bytes of an element. Of a log: its number.
    size: u64,
    align: u32,
    /// The number of elements, or any.
    count: Option<u64>,
}

impl Kind {
    fn of_value<T>() -> Kind {
        Kind { kind: VALUE, count: Some(1), ..Kind::of_array::<T>(None) }
    }

    fn of_array<T>(count: Option<u64>) -> Kind {
        Kind { kind: ARRAY, size: size_of::<T>() as u64, align: align_of::<T>() as u32, count }
    }

    fn log() -> Kind {
        Kind { kind: LOG, size: 0, align: UNIT as u32, count: None }
    }

    fn of(entry: &Entry) -> Kind {
        let (size, align) = (entry.size.get(), entry.align.get());
        let count = entry.len.get().checked_div(size);
        Kind { kind: entry.kind, size, align, count }
    }

    /// Returns `true` if the entry is of this kind.
    fn is_of(&self, entry: &Entry) -> bool {
        let found = Kind::of(entry);
        if self.kind == LOG || found.kind == LOG {
            return self.kind == found.kind;
        }
        let is_same_type = (self.size, self.align) == (found.size, found.align);
        let is_same_count = self.count.is_none() || self.size == 0 || self.count == found.count;
        self.kind == found.kind && is_same_type && is_same_count
    }

    /// Returns the number of bytes in use.
    fn len(&self, file: &AtomicMappedFile, offset: u64) -> Result<u64> {
        if self.kind == LOG {
            return Ok(EXTENT);
        }
        let (count, size) = (self.count.unwrap_or(0), self.size);
        let overflow = || Error::Overflow { path: file.path().to_owned(), offset, count, size };
        count.checked_mul(size).ok_or_else(overflow)
    }

    fn in_words(self, type_id: u64) -> String {
        let Kind { size, align, .. } = self;
        let of_type = match type_id {
            0 => String::new(),
            _ => format!(" with type number {type_id}"),
        };
        match (self.kind, self.count) {
            (LOG, _) => format!("a log{of_type}"),
            (VALUE, _) => format!("a value of {size} bytes, alignment {align}{of_type}"),
            (_, Some(n)) => format!("an array of {n} x {size} bytes, alignment {align}{of_type}"),
            (_, None) => format!("an array of {size} bytes each, alignment {align}{of_type}"),
        }
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roots")
            .field("path", &self.file.path())
            .field("offset", &self.at)
            .finish_non_exhaustive()
    }
}
