//! Changes of files by other processes: copies, links, owners and reused inode numbers.
//!
//! All of them are durable at once, because the tests are about the engine's reaction and not about
//! the other processes. Meanwhile, no process under test has any of the files open.

use super::world::World;
use atomic_mmap::testing::machine::FileNumber;
use std::collections::BTreeMap;
use std::path::Path;

/// The content and the metadata of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    len: u64,
    /// The bytes with storage, by their offsets.
    pieces: BTreeMap<u64, Vec<u8>>,
    attributes: BTreeMap<String, Vec<u8>>,
    number: u64,
    owner: (u32, u32, u32),
}

impl World {
    fn number_of(&self, path: &Path) -> FileNumber {
        *self.names.get(path).unwrap_or_else(|| panic!("{} is there", path.display()))
    }

    /// Returns the content and metadata of the file of this name, or `None` if there is none.
    pub fn held(&mut self, path: &Path) -> Option<Held> {
        let file = *self.names.get(path)?;
        let inode = self.inode(file);
        let (len, spans) = (inode.len, inode.spans.0.clone());
        let (attributes, number, owner) = (inode.attributes.clone(), inode.number, inode.owner);
        let mut piece = |start: u64, end: u64| {
            let mut bytes = vec![0; (end.min(len) - start) as usize];
            self.read(file, &mut bytes, start);
            (start, bytes)
        };
        let pieces = spans.iter().filter(|(start, _)| **start < len);
        let pieces = pieces.map(|(start, end)| piece(*start, *end)).collect();
        Some(Held { len, pieces, attributes, number, owner })
    }

    /// Copies a file over another one, or to a new name. The result is another file with the same
    /// bytes, and with the same attributes if `keeps` is `true`. The old file of that name is gone.
    pub fn copy(&mut self, from: &Path, to: &Path, keeps: bool) {
        let held = self.held(from).expect("a file to be copied");
        self.take_away(to);
        self.put(to, &held);
        if keeps {
            let (original, file) = (self.number_of(from), self.number_of(to));
            let changed = self.inode(original).changed;
            self.inode(file).attributes = held.attributes;
            self.inode(file).changed = changed;
        }
    }

    /// Creates a new file with this content and metadata.
    pub fn put(&mut self, path: &Path, held: &Held) {
        let pieces: Vec<_> = held.pieces.clone().into_iter().collect();
        self.make(path, held.len, &pieces);
    }

    /// Removes a name if it exists. The inode number may be reused.
    pub fn take_away(&mut self, path: &Path) {
        if self.names.remove(path).is_some() {
            self.symlinks.remove(path);
        }
        self.journal.clear();
    }

    /// Renames a file, and removes the old file of the new name.
    pub fn move_to(&mut self, from: &Path, to: &Path) {
        let file = self.number_of(from);
        self.take_away(from);
        self.take_away(to);
        self.names.insert(to.to_owned(), file);
    }

    /// Creates a symbolic link.
    pub fn link_symbolically(&mut self, target: &Path, link: &Path) {
        let file = self.number_of(target);
        self.names.insert(link.to_owned(), file);
        self.symlinks.insert(link.to_owned());
    }

    /// Gives a file a second name.
    pub fn link(&mut self, target: &Path, name: &Path) {
        let file = self.number_of(target);
        self.names.insert(name.to_owned(), file);
        self.inode(file).links += 1;
    }

    /// Gives a file to another user.
    pub fn give_to(&mut self, path: &Path, user: u32) {
        let file = self.number_of(path);
        self.inode(file).owner.0 = user;
    }

    /// Makes the file a mount point of its own.
    pub fn mount_alone(&mut self, path: &Path) {
        let file = self.number_of(path);
        self.inode(file).is_mounted_alone = true;
    }

    /// Returns the inode number of a file.
    pub fn inode_of(&self, path: &Path) -> u64 {
        self.files[&self.number_of(path)].number
    }

    /// Gives a file the inode number of an earlier file.
    pub fn give_number(&mut self, path: &Path, number: u64) {
        let file = self.number_of(path);
        self.inode(file).number = number;
    }

    /// Sets or removes an attribute.
    pub fn set_attribute(&mut self, path: &Path, name: &str, value: Option<&[u8]>) {
        let file = self.number_of(path);
        let attributes = &mut self.inode(file).attributes;
        match value {
            Some(value) => attributes.insert(name.to_owned(), value.to_vec()),
            None => attributes.remove(name),
        };
    }

    /// Returns the value of an attribute.
    pub fn attribute(&mut self, path: &Path, name: &str) -> Option<Vec<u8>> {
        let file = self.number_of(path);
        self.inode(file).attributes.get(name).cloned()
    }

    /// Chooses a value for every undetermined word, permanently.
    pub fn decide(&mut self) {
        let mut trail = std::mem::take(&mut self.trail);
        self.determine(&mut trail);
    }

    pub(super) fn is_mounted_alone(&self, file: FileNumber) -> bool {
        self.files.get(&file).is_some_and(|inode| inode.is_mounted_alone)
    }
}
