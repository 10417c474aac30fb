//! An index of u64 by u64 in a file: open addressing, which grows and survives every crash.
//!
//! On a plain mapping of memmap2 it was this:
//!
//! ```text
//! fn insert(&mut self, key: u64, value: u64) {
//!     let at = self.find(key) * 16; // in a file that never grew
//!     self.map[at..at + 8].copy_from_slice(&key.to_le_bytes());
//!     // A crash here leaves the key with the value of another key, or with none.
//!     self.map[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
//! }
//! ```
//!
//! Place and number of keys were written back in any order. Here an insertion is one operation. A
//! growth fills a new array first, and then one transaction makes it the table.

use atomic_mmap::{Array, AtomicMappedFile, Error, Roots, Slot, record};

/// Places of a new index: a power of two.
const FIRST_PLACES: u64 = 256;
/// Places that a growth writes in one operation.
const PART: usize = 1 << 16;

record! {
    /// A key with its value. Key 0 marks a free place.
    #[derive(Clone, Copy, Default)]
    struct Place {
        key: u64,
        value: u64,
    }
}

record! {
    #[derive(Clone, Copy)]
    struct Head {
        /// Places of the table, and the number in its name. 0 in a new file.
        places: u64,
        /// Number of keys.
        keys: u64,
    }
}

/// Returns the place at which the search for a key begins.
pub fn first_place(key: u64, places: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & (places - 1)
}

/// The index. It has one writer, and any number of readers may share it.
pub struct Index {
    roots: Roots,
    head: Slot<Head>,
    table: Array<Place>,
}

impl Index {
    /// Opens the index of a file, or makes one in an empty file.
    pub fn open(file: AtomicMappedFile) -> Result<Index, Error> {
        let roots = Roots::open(file)?;
        let head = roots.get_or_insert::<Head>("head")?.into_owned()?;
        let places = head.load()?.places.max(FIRST_PLACES);
        let table = roots.get_or_insert_array(&name(places), places)?.into_owned()?;
        Ok(Index { roots, head, table })
    }

    /// Returns the file: its `sync` makes the insertions durable.
    pub fn file(&self) -> &AtomicMappedFile {
        self.roots.file()
    }

    /// Returns the number of keys.
    pub fn len(&self) -> Result<u64, Error> {
        Ok(self.head.load()?.keys)
    }

    /// Returns the value of a key.
    pub fn get(&self, key: u64) -> Result<Option<u64>, Error> {
        let (_, place) = self.find(key)?;
        Ok((place.key == key && key != 0).then_some(place.value))
    }

    /// Inserts a key, or replaces its value.
    ///
    /// # Panics
    /// If the key is 0.
    pub fn insert(&mut self, key: u64, value: u64) -> Result<(), Error> {
        assert_ne!(key, 0, "key 0 marks a free place");
        let (mut n, place) = self.find(key)?;
        if place.key == key {
            return self.table.set(n, &Place { key, value });
        }
        let Head { keys, .. } = self.head.load()?;
        if (keys + 1) * 4 > self.table.len() * 3 {
            self.grow()?;
            n = self.find(key)?.0;
        }
        let at = self.table.offset_of(n)?;
        let head = Head { places: self.table.len(), keys: keys + 1 };
        self.file().transact(|tx| {
            tx.store(at, &Place { key, value })?;
            tx.store(self.head.offset(), &head)
        })
    }

    /// Returns the number of the place that has `key`, or of the free one where it belongs, and
    /// its contents.
    fn find(&self, key: u64) -> Result<(u64, Place), Error> {
        let mut n = first_place(key, self.table.len());
        loop {
            let place = self.table.get(n)?;
            if place.key == key || place.key == 0 {
                return Ok((n, place));
            }
            n = (n + 1) & (self.table.len() - 1);
        }
    }

    /// Moves all keys to a table of twice the length.
    fn grow(&mut self) -> Result<(), Error> {
        let (old, new) = (self.table.len(), self.table.len() * 2);
        self.roots.remove(&name(new))?; // a crash in an earlier growth has left it
        let table = self.roots.get_or_insert_array::<Place>(&name(new), new)?.into_owned()?;
        let mut places = vec![Place::default(); new as usize];
        for place in self.table.to_vec()?.into_iter().filter(|place| place.key != 0) {
            let mut n = first_place(place.key, new);
            while places[n as usize].key != 0 {
                n = (n + 1) & (new - 1);
            }
            places[n as usize] = place;
        }
        for (n, part) in places.chunks(PART).enumerate() {
            table.set_many((n * PART) as u64, part)?;
        }
        self.file().transact(|tx| {
            tx.update(self.head.offset(), |head: &mut Head| head.places = new)?;
            self.roots.remove_in(tx, &name(old))
        })?;
        self.table = table;
        Ok(())
    }
}

fn name(places: u64) -> String {
    format!("table of {places}")
}
