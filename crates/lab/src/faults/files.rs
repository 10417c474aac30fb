//! The files of a pair as values, and how the lab moves a pair to another place.
//!
//! Owns: the bytes of a home file and its reflection file as values. It reads them while a process
//! has the files open, which gives what a process crash would leave. It also turns them into a pair
//! of files again. Superblocks name the home file by device, inode and birth time, and a closed
//! pair by the home file's times. A restore patches these to the new files, and nothing else.

use atomic_mmap::testing::layout;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::testing::superblock::{Copy, Identity, Moment, SUPERBLOCK_LEN, State, Superblock};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const PAGE: u64 = 4096;
/// Prefix of the names of reflection files.
pub const REFLECTION_PREFIX: &str = ".atomic-mmap.";
/// Prefixes of the names of what an import receives, and of the new file that it makes.
pub const SPOOLS: [&str; 2] = [".atomic-mmap-import-", ".atomic-mmap-new-"];
/// Name of a file that is made of a stream, beside the home file.
pub const REPLICA: &str = "replica.dat";
/// Name of the attribute that marks a home file.
const MARK: &str = "user.atomic_mmap";
/// Name of the home file in every folder.
pub const HOME: &str = "state.dat";

/// The length of a file and its pages that are not zero.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Contents {
    /// Length in bytes.
    pub len: u64,
    /// The pages, by number.
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Contents {
    /// Makes the contents from bytes.
    pub fn of(bytes: &[u8]) -> Contents {
        let mut contents = Contents { len: bytes.len() as u64, ..Contents::default() };
        contents.put(0, bytes);
        contents
    }

    /// Reads a file. Asks the system for its holes and skips them.
    pub fn read(path: &Path) -> io::Result<Contents> {
        let file = File::open(path)?;
        let mut contents = Contents { len: file.metadata()?.len(), ..Contents::default() };
        let mut at = 0;
        while at < contents.len {
            let Some(data) = seek(&file, at, libc::SEEK_DATA) else { break };
            let end = seek(&file, data, libc::SEEK_HOLE).unwrap_or(contents.len);
            let mut bytes = vec![0; (end - data) as usize];
            file.read_exact_at(&mut bytes, data)?;
            contents.put(data, &bytes);
            at = end;
        }
        Ok(contents)
    }

    /// Returns all bytes, for a short file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        for (n, page) in &self.pages {
            let at = (n * PAGE) as usize;
            let end = bytes.len().min(at + page.len());
            if at < end {
                bytes[at..end].copy_from_slice(&page[..end - at]);
            }
        }
        bytes
    }

    /// Stores bytes. Zeroes create no page.
    pub fn put(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let in_page = (at % PAGE) as usize;
            let (now, rest) = bytes.split_at(bytes.len().min(PAGE as usize - in_page));
            let is_there = self.pages.contains_key(&(at / PAGE));
            if is_there || now != &[0; PAGE as usize][..now.len()] {
                let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; 4096].into());
                page[in_page..in_page + now.len()].copy_from_slice(now);
            }
            at += now.len() as u64;
            bytes = rest;
        }
    }

    /// Returns the bytes at an offset. Bytes past the end are zero.
    pub fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            let (n, from) = ((at + done as u64) / PAGE, ((at + done as u64) % PAGE) as usize);
            let now = (len - done).min(PAGE as usize - from);
            if let Some(page) = self.pages.get(&n) {
                bytes[done..done + now].copy_from_slice(&page[from..from + now]);
            }
            done += now;
        }
        bytes
    }

    /// Returns the word at an offset.
    pub fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.get(at, 8).try_into().expect("eight bytes"))
    }

    /// Makes a file from the contents. Pages of zeroes become holes.
    pub fn write(&self, path: &Path) -> io::Result<File> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        self.fill(&file)?;
        Ok(file)
    }

    /// Gives a file the contents, and makes it if it is not there. The file keeps its inode.
    pub fn write_over(&self, path: &Path) -> io::Result<File> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        self.fill(&file)?;
        Ok(file)
    }

    /// Writes the contents to an empty file.
    fn fill(&self, file: &File) -> io::Result<()> {
        file.set_len(self.len)?;
        let mut run: (u64, Vec<u8>) = (0, Vec::new());
        let put = |(at, bytes): &(u64, Vec<u8>)| {
            let len = (bytes.len() as u64).min(self.len.saturating_sub(*at));
            file.write_all_at(&bytes[..len as usize], *at)
        };
        for (n, page) in &self.pages {
            if run.0 + run.1.len() as u64 != n * PAGE {
                put(&run)?;
                run = (n * PAGE, Vec::new());
            }
            run.1.extend_from_slice(page);
        }
        put(&run)
    }
}

/// Returns `true` if an import receives into a file of this name.
pub fn is_spool(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    name.is_some_and(|name| SPOOLS.iter().any(|spool| name.starts_with(spool)))
}

fn seek(file: &File, from: u64, whence: libc::c_int) -> Option<u64> {
    // SAFETY: a live file descriptor of our own, and no code relies on its position.
    let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, whence) };
    u64::try_from(at).ok()
}

/// The place of a pair: the folder of the home file, and the folder of the reflection file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The home file's folder.
    pub folder: PathBuf,
    /// The reflection file's folder, if it is another one.
    pub elsewhere: Option<PathBuf>,
}

impl Place {
    /// Makes an empty place. Removes what was there.
    pub fn new(base: &Path, has_elsewhere: bool) -> Place {
        let _was_not_there = fs::remove_dir_all(base);
        let folder = base.join("home");
        fs::create_dir_all(&folder).expect("a folder");
        let elsewhere = has_elsewhere.then(|| base.join("elsewhere"));
        elsewhere.iter().for_each(|dir| fs::create_dir(dir).expect("a folder"));
        Place { folder, elsewhere }
    }

    /// Returns the path of the home file.
    pub fn home(&self) -> PathBuf {
        self.folder.join(HOME)
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.folder].into_iter().chain(&self.elsewhere)
    }

    /// Returns the path of the present home file's reflection file, existing or not. The reflection
    /// file has its second name if a file of another pair has the first. Only this home file's own
    /// reflection file can have the second name.
    pub fn reflection(&self) -> Option<PathBuf> {
        let home = fs::metadata(self.home()).ok()?;
        let folder = self.elsewhere.as_ref().unwrap_or(&self.folder);
        let first = format!("{REFLECTION_PREFIX}{:x}", home.ino());
        let born = born(&home).unwrap_or_default();
        let second = folder.join(format!("{first}-{:x}.{:x}", born.seconds, born.nanos));
        Some(if second.exists() { second } else { folder.join(first) })
    }

    /// Returns the paths of all files in the place.
    pub fn names(&self) -> Vec<PathBuf> {
        let list = |dir: &PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
        let mut names: Vec<_> = self.folders().flat_map(list).map(|entry| entry.path()).collect();
        names.sort();
        names
    }

    /// Returns the names, bytes and marks of all files in the place.
    pub fn snapshot(&self) -> Snapshot {
        let seen = |path: PathBuf| {
            let contents = Contents::read(&path).unwrap_or_default();
            let mark = File::open(&path).ok().and_then(|file| mark_of(&file));
            (path, (contents, mark))
        };
        Snapshot(self.names().into_iter().map(seen).collect())
    }
}

/// The files in a place.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<PathBuf, (Contents, Option<Vec<u8>>)>);

impl Snapshot {
    /// Returns the paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.0.keys().cloned()
    }

    /// Returns `true` if the file is among them.
    pub fn has(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    /// Returns `true` if a reflection file is among them.
    pub fn has_reflection(&self) -> bool {
        let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
        self.0.keys().filter_map(name).any(|name| name.starts_with(REFLECTION_PREFIX))
    }

    /// Describes the changes since `before`.
    pub fn changes(&self, before: &Snapshot) -> Vec<String> {
        let mut changes = Vec::new();
        for (path, (now, mark)) in &self.0 {
            let name = path.display();
            match before.0.get(path) {
                None => changes.push(format!("{name} was left behind ({} bytes)", now.len)),
                Some((then, _)) if then.len != now.len => {
                    changes.push(format!("{name}: {} bytes long, was {}", now.len, then.len));
                }
                Some((then, _)) if then != now => changes.push(format!("{name}: other bytes")),
                Some((_, then)) if then != mark => changes.push(format!("{name}: another mark")),
                Some(_) => {}
            }
        }
        let gone = before.0.keys().filter(|path| !self.0.contains_key(*path));
        changes.extend(gone.map(|path| format!("{} is gone", path.display())));
        changes
    }
}

/// Place of the flags in a mark, and the flag of a spatial close.
const FLAGS: usize = 36;
const CLOSING: u8 = 2;

fn mark_of(file: &File) -> Option<Vec<u8>> {
    Recorder::new().platform().get_xattr(&file.try_clone().ok()?.into(), MARK).ok().flatten()
}

/// Returns `true` if the mark of the home file says that it has a reflection file.
pub fn is_marked(path: &Path) -> bool {
    File::open(path).ok().is_some_and(|file| mark_of(&file).is_some())
}

/// The files of a pair, as a crash of the process would leave them.
#[derive(Clone, Default)]
pub struct Pair {
    /// The home file.
    pub home: Contents,
    /// The reflection file, if there is one.
    pub reflection: Option<Contents>,
    /// The journal, if there is one.
    pub journal: Option<Contents>,
    /// The store of snapshots, if there is one.
    pub store: Option<Contents>,
    /// `true` if the home file has the mark.
    pub marked: bool,
    /// `true` if the mark says that a spatial close was about to remove the companions.
    pub is_closing: bool,
}

impl Pair {
    /// Makes a pair that is only a home file.
    pub fn plain(bytes: &[u8]) -> Pair {
        Pair { home: Contents::of(bytes), ..Pair::default() }
    }

    /// Reads the files in a place.
    pub fn capture(place: &Place) -> io::Result<Pair> {
        let home = Contents::read(&place.home())?;
        let reflection = place.reflection().filter(|path| path.exists());
        let journal = reflection.as_deref().map(journal_of).filter(|path| path.exists());
        let read = |path: Option<PathBuf>| path.map(|path| Contents::read(&path)).transpose();
        let store = reflection.as_deref().map(store_of).filter(|path| path.exists());
        let (reflection, journal, store) = (read(reflection)?, read(journal)?, read(store)?);
        let mark = File::open(place.home()).ok().and_then(|file| mark_of(&file));
        let is_closing = mark.as_ref().is_some_and(|mark| mark[FLAGS] & CLOSING != 0);
        Ok(Pair { home, reflection, journal, store, marked: mark.is_some(), is_closing })
    }

    /// Returns the intact superblocks and their offsets.
    pub fn superblocks(&self) -> Vec<(u64, Superblock)> {
        let Some(reflection) = &self.reflection else { return Vec::new() };
        layout::SUPERBLOCKS
            .into_iter()
            .filter_map(|at| {
                let bytes: [u8; SUPERBLOCK_LEN] =
                    reflection.get(at, SUPERBLOCK_LEN).try_into().expect("as many bytes");
                match Superblock::decode(&bytes) {
                    Copy::Valid(superblock) => Some((at, superblock)),
                    _ => None,
                }
            })
            .collect()
    }

    /// Makes files from the pair. `change` can change each superblock at the end.
    pub fn restore(&self, place: &Place, change: impl Fn(&mut Superblock)) -> io::Result<()> {
        let home = self.home.write(&place.home())?;
        let stat = home.metadata()?;
        let identity = Identity { device: stat.dev(), inode: stat.ino(), born: born(&stat) };
        let Some(mut reflection) = self.reflection.clone() else { return Ok(()) };
        let superblocks = self.superblocks();
        if self.marked {
            let uuid = superblocks.first().map_or([0; 16], |(_, superblock)| superblock.uuid);
            let mut value = mark(uuid, &identity);
            value[FLAGS] |= if self.is_closing { CLOSING } else { 0 };
            Recorder::new().platform().set_xattr(&home.try_clone()?.into(), MARK, &value)?;
        }
        let stat = home.metadata()?;
        for (at, mut superblock) in superblocks {
            superblock.identity = identity;
            // 0 means an unknown file: the copy stands for the original file.
            superblock.own.inode = 0;
            if let State::Clean(closed) = &mut superblock.state {
                closed.mtime = Moment { seconds: stat.mtime(), nanos: stat.mtime_nsec() as u32 };
                closed.ctime = Moment { seconds: stat.ctime(), nanos: stat.ctime_nsec() as u32 };
            }
            change(&mut superblock);
            reflection.put(at, &superblock.encode());
        }
        let path = place.reflection().expect("the home file is there");
        reflection.write(&path)?;
        for (contents, path) in [(&self.journal, journal_of(&path)), (&self.store, store_of(&path))]
        {
            contents.as_ref().map(|contents| contents.write(&path)).transpose()?;
        }
        Ok(())
    }
}

/// Returns the birth time of a file.
fn born(stat: &fs::Metadata) -> Option<Moment> {
    let since = stat.created().ok()?.duration_since(UNIX_EPOCH).expect("after 1970");
    Some(Moment { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() })
}

/// Returns the path of the journal of a reflection file.
fn journal_of(reflection: &Path) -> PathBuf {
    reflection.with_added_extension("journal")
}

/// Returns the path of the store of snapshots of a reflection file.
fn store_of(reflection: &Path) -> PathBuf {
    reflection.with_added_extension("snapshots")
}

/// Returns the value of the mark.
fn mark(uuid: [u8; 16], identity: &Identity) -> [u8; 40] {
    let born = identity.born.unwrap_or_default();
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(&uuid);
    bytes[16..24].copy_from_slice(&identity.inode.to_le_bytes());
    bytes[24..32].copy_from_slice(&born.seconds.to_le_bytes());
    bytes[32..36].copy_from_slice(&born.nanos.to_le_bytes());
    bytes[36..].copy_from_slice(&u32::from(identity.born.is_some()).to_le_bytes());
    bytes
}
