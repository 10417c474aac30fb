//! Images of the two files of a pair at one moment, and copies of them that can be opened.
//!
//! Owns: images of a pair of files (bytes, lengths, names, the mark), taken while their owner is
//! stopped. It also owns the way from an image to files of its own. A superblock names the home
//! file by device, inode and birth time, and a closed pair by the home file's times. A copy patches
//! these to the new files, and nothing else.
//!
//! May import: nothing of this folder.

use atomic_mmap::testing::layout;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::testing::superblock::{Copy, Identity, Moment, SUPERBLOCK_LEN, State, Superblock};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const PAGE: usize = 4096;
const MARK: &str = "user.atomic_mmap";

type Bytes = Box<[u8; PAGE]>;

/// The length of a file and its pages that are not zero.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Contents {
    /// Length in bytes.
    pub len: u64,
    /// The pages, by number.
    pub pages: BTreeMap<u64, Bytes>,
    /// A digest of all pages that does not depend on their order.
    digest: u64,
}

fn digest(number: u64, page: &[u8; PAGE]) -> u64 {
    if page.iter().all(|byte| *byte == 0) {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    (number, &page[..]).hash(&mut hasher);
    hasher.finish()
}

fn seek(file: &File, from: u64, how: libc::c_int) -> Option<u64> {
    // SAFETY: an open descriptor, and no other code uses its position.
    let at = unsafe { libc::lseek(file.as_raw_fd(), from.cast_signed(), how) };
    u64::try_from(at).ok()
}

impl Contents {
    /// Reads a file. Skips holes, which stay holes in the image.
    pub fn of(file: &File) -> io::Result<Contents> {
        let mut contents = Contents { len: file.metadata()?.len(), ..Contents::default() };
        let mut at = 0;
        while let Some(data) = seek(file, at, libc::SEEK_DATA) {
            let end = seek(file, data, libc::SEEK_HOLE).unwrap_or(contents.len);
            let from = data / PAGE as u64 * PAGE as u64;
            let mut bytes = vec![0; (end - from).next_multiple_of(PAGE as u64) as usize];
            read_to_end(file, &mut bytes[..(end - from) as usize], from)?;
            for (page, number) in bytes.chunks_exact(PAGE).zip(from / PAGE as u64..) {
                contents.put(number, page.try_into().expect("a page"));
            }
            at = end;
        }
        Ok(contents)
    }

    fn put(&mut self, number: u64, page: &[u8; PAGE]) {
        self.digest ^= digest(number, page);
        let old = if page.iter().all(|byte| *byte == 0) {
            self.pages.remove(&number)
        } else {
            self.pages.insert(number, Box::new(*page))
        };
        self.digest ^= old.map_or(0, |old| digest(number, &old));
    }

    /// Reads a range again. Returns `true` if something has changed there.
    pub fn refresh(&mut self, file: &File, at: u64, len: usize) -> io::Result<bool> {
        let mut bytes = vec![0; len];
        read_to_end(file, &mut bytes, at)?;
        let mut changed = false;
        let mut rest = &bytes[..];
        let mut at = at;
        while !rest.is_empty() {
            let (number, start) = (at / PAGE as u64, at as usize % PAGE);
            let n = rest.len().min(PAGE - start);
            let now = &rest[..n];
            let is_same = match self.pages.get(&number) {
                Some(page) => page[start..start + n] == *now,
                None => now.iter().all(|byte| *byte == 0),
            };
            if !is_same {
                let mut page = self.pages.get(&number).map_or([0; PAGE], |page| **page);
                page[start..start + n].copy_from_slice(now);
                self.put(number, &page);
                changed = true;
            }
            rest = &rest[n..];
            at += n as u64;
        }
        Ok(changed)
    }

    /// Returns the offsets of the 64-byte lines in which the two contents differ.
    pub fn lines_unlike(&self, other: &Contents) -> Vec<u64> {
        let mut lines = Vec::new();
        let zero = [0; PAGE];
        let numbers: Vec<u64> = self.pages.keys().chain(other.pages.keys()).copied().collect();
        for number in numbers {
            let page = |of: &Contents| of.pages.get(&number).map_or(zero, |page| **page);
            let (one, two) = (page(self), page(other));
            if one != two {
                let both = one.chunks_exact(64).zip(two.chunks_exact(64)).zip(0..);
                let differ = both.filter(|((a, b), _)| a != b);
                lines.extend(differ.map(|(_, line)| number * PAGE as u64 + line * 64));
            }
        }
        lines
    }

    fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        // A superblock lies inside a page.
        let start = at as usize % PAGE;
        let page = self.pages.get(&(at / PAGE as u64));
        page.map_or([0; N], |page| page[start..start + N].try_into().expect("inside a page"))
    }

    fn write(&self, path: &Path) -> io::Result<File> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(self.len)?;
        for (number, page) in &self.pages {
            let at = number * PAGE as u64;
            let len = self.len.saturating_sub(at).min(PAGE as u64) as usize;
            file.write_all_at(&page[..len], at)?;
        }
        Ok(file)
    }
}

/// Fills a buffer from a file. Bytes past the end read as zeroes.
fn read_to_end(file: &File, mut to: &mut [u8], mut at: u64) -> io::Result<()> {
    while !to.is_empty() {
        match file.read_at(to, at)? {
            0 => return Ok(()),
            n => {
                to = &mut to[n..];
                at += n as u64;
            }
        }
    }
    Ok(())
}

/// The files of a folder: home file, reflection file, journal, store of snapshots, and an
/// unfinished reflection file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Image {
    /// The home file, or `None` if it does not exist.
    pub home: Option<Contents>,
    /// The home file's mark.
    pub mark: Option<Vec<u8>>,
    /// The reflection file, if there is one.
    pub reflection: Option<Contents>,
    /// A reflection file that does not have its final name yet.
    pub unfinished: Option<Contents>,
    /// The journal of durable points.
    pub journal: Option<Contents>,
    /// The store of snapshots.
    pub store: Option<Contents>,
}

/// The open files of an image.
#[derive(Debug, Default)]
pub struct Opened {
    /// The home file.
    pub home: Option<File>,
    /// The reflection file.
    pub reflection: Option<File>,
    /// The unfinished reflection file.
    pub unfinished: Option<File>,
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn names(home: &Path, stat: &std::fs::Metadata) -> [PathBuf; 4] {
    let inode = stat.ino();
    let reflection = home.with_file_name(format!(".atomic-mmap.{inode:x}"));
    let since = stat.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let (seconds, nanos) = since.map_or((0, 0), |since| (since.as_secs(), since.subsec_nanos()));
    let unfinished =
        home.with_file_name(format!(".atomic-mmap.{inode:x}-{seconds:x}.{nanos:x}.new"));
    let journal = reflection.with_added_extension("journal");
    let store = reflection.with_added_extension("snapshots");
    [reflection, unfinished, journal, store]
}

impl Image {
    /// Takes an image of the files at `path`.
    pub fn of(path: &Path) -> io::Result<(Image, Opened)> {
        let Some(home) = open(path)? else { return Ok(Default::default()) };
        let [reflection, unfinished, journal, store] = names(path, &home.metadata()?);
        let contents = |file: &Option<File>| file.as_ref().map(Contents::of).transpose();
        let opened = Opened {
            home: Some(home),
            reflection: open(&reflection)?,
            unfinished: open(&unfinished)?,
        };
        let home = opened.home.as_ref().expect("just opened");
        let image = Image {
            home: Some(Contents::of(home)?),
            mark: Recorder::new().platform().get_xattr(&home.try_clone()?.into(), MARK)?,
            reflection: contents(&opened.reflection)?,
            unfinished: contents(&opened.unfinished)?,
            // Only system calls write to the journal, so there is no need to read it between them.
            // No kind with snapshots is single-stepped.
            journal: contents(&open(&journal)?)?,
            store: contents(&open(&store)?)?,
        };
        Ok((image, opened))
    }

    /// Returns a number that is equal for equal images.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.mark.hash(&mut hasher);
        for file in [&self.home, &self.reflection, &self.unfinished, &self.journal, &self.store] {
            file.as_ref().map(|file| (file.len, file.digest)).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Makes files from the image. `path` is the home file, in a folder of its own.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        self.write_with(path, |_| {})
    }

    /// Makes files from the image as after a restart of the machine, with everything written back.
    pub fn write_restarted(&self, path: &Path) -> io::Result<()> {
        self.write_with(path, |superblock| superblock.boot_id = [0xb0; 16])
    }

    fn write_with(&self, path: &Path, change: impl Fn(&mut Superblock)) -> io::Result<()> {
        let Some(contents) = &self.home else { return Ok(()) };
        let home = contents.write(path)?;
        let stat = home.metadata()?;
        let since = stat.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born = since.map(|since| Moment {
            seconds: since.as_secs().cast_signed(),
            nanos: since.subsec_nanos(),
        });
        let identity = Identity { device: stat.dev(), inode: stat.ino(), born };
        if let Some(mark) = &self.mark {
            // uuid, inode, birth time, and the flag that says if the birth time is known.
            let mut mark = mark.clone();
            let born = identity.born.unwrap_or_default();
            mark[16..24].copy_from_slice(&identity.inode.to_le_bytes());
            mark[24..32].copy_from_slice(&born.seconds.to_le_bytes());
            mark[32..36].copy_from_slice(&born.nanos.to_le_bytes());
            Recorder::new().platform().set_xattr(&home.try_clone()?.into(), MARK, &mark)?;
        }
        // The home file does not change after this.
        let stat = home.metadata()?;
        let paths = names(path, &stat);
        let all = [&self.reflection, &self.unfinished, &self.journal, &self.store];
        for ((contents, path), n) in all.into_iter().zip(paths).zip(0..) {
            let Some(contents) = contents else { continue };
            let file = contents.write(&path)?;
            let has_superblocks = n < 2;
            if !has_superblocks {
                continue;
            }
            for at in layout::SUPERBLOCKS {
                let copy = Superblock::decode(&contents.bytes::<SUPERBLOCK_LEN>(at));
                let Copy::Valid(mut superblock) = copy else { continue };
                superblock.identity = identity;
                superblock.own.inode = 0;
                change(&mut superblock);
                if let State::Clean(closed) = &mut superblock.state {
                    closed.mtime =
                        Moment { seconds: stat.mtime(), nanos: stat.mtime_nsec() as u32 };
                    closed.ctime =
                        Moment { seconds: stat.ctime(), nanos: stat.ctime_nsec() as u32 };
                }
                file.write_all_at(&superblock.encode(), at)?;
            }
        }
        Ok(())
    }

    /// Removes the files that `write` created, and the files that an open created from them.
    pub fn remove(folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }
}
