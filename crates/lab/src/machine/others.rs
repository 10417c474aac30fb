//! What do others do to files? Copies, links, owners, numbers that are given again.
//!
//! All of it is durable at once: what is asked is not how others make something durable, but what the
//! engine makes of it. No process of ours has any of the files open meanwhile.

use super::world::World;
use atomic_mmap::testing::machine::FileNumber;
use std::collections::BTreeMap;
use std::path::Path;

/// What a file holds, and what is kept beside that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    len: u64,
    /// What has storage, by where it begins.
    pieces: BTreeMap<u64, Vec<u8>>,
    attributes: BTreeMap<String, Vec<u8>>,
    number: u64,
    owner: (u32, u32, u32),
}

impl World {
    fn number_of(&self, path: &Path) -> FileNumber {
        *self.names.get(path).unwrap_or_else(|| panic!("{} is there", path.display()))
    }

    /// Everything that the file of this name holds. `None`: nothing of this name.
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

    /// Copies a file over another one, or to a new one: another file with the same bytes, and the same
    /// attributes if `keeps` says so. What was under the name is gone.
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

    /// Makes a new file that holds this.
    pub fn put(&mut self, path: &Path, held: &Held) {
        let pieces: Vec<_> = held.pieces.clone().into_iter().collect();
        self.make(path, held.len, &pieces);
    }

    /// Removes a name, if there is one. The file's number may be given again.
    pub fn take_away(&mut self, path: &Path) {
        if self.names.remove(path).is_some() {
            self.symlinks.remove(path);
        }
        self.journal.clear();
    }

    /// Gives a file another name, and removes what was there.
    pub fn move_to(&mut self, from: &Path, to: &Path) {
        let file = self.number_of(from);
        self.take_away(from);
        self.take_away(to);
        self.names.insert(to.to_owned(), file);
    }

    /// Makes a symbolic link.
    pub fn link_symbolically(&mut self, target: &Path, link: &Path) {
        let file = self.number_of(target);
        self.names.insert(link.to_owned(), file);
        self.symlinks.insert(link.to_owned());
    }

    /// Gives a file a further name.
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

    /// Mounts a file over its name.
    pub fn mount_alone(&mut self, path: &Path) {
        let file = self.number_of(path);
        self.inode(file).is_mounted_alone = true;
    }

    /// The number that the file system knows a file by.
    pub fn inode_of(&self, path: &Path) -> u64 {
        self.files[&self.number_of(path)].number
    }

    /// Has a file have a number that another one had.
    pub fn give_number(&mut self, path: &Path, number: u64) {
        let file = self.number_of(path);
        self.inode(file).number = number;
    }

    /// Sets an attribute, or removes it.
    pub fn set_attribute(&mut self, path: &Path, name: &str, value: Option<&[u8]>) {
        let file = self.number_of(path);
        let attributes = &mut self.inode(file).attributes;
        match value {
            Some(value) => attributes.insert(name.to_owned(), value.to_vec()),
            None => attributes.remove(name),
        };
    }

    /// The value of an attribute.
    pub fn attribute(&mut self, path: &Path, name: &str) -> Option<Vec<u8>> {
        let file = self.number_of(path);
        self.inode(file).attributes.get(name).cloned()
    }

    /// Chooses a value for everything that the medium may hold or not, for good.
    pub fn decide(&mut self) {
        let mut trail = std::mem::take(&mut self.trail);
        self.determine(&mut trail);
    }

    pub(super) fn is_mounted_alone(&self, file: FileNumber) -> bool {
        self.files.get(&file).is_some_and(|inode| inode.is_mounted_alone)
    }
}
