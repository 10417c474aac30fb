//! What is in the two files at this moment, and how does it become files of their own?
//!
//! Owns: images of a pair of files (bytes, lengths, names, the mark), taken while their owner is
//! stopped; and copies of them that can be opened. The superblocks name the home file by device,
//! inode and birth time, and a closed pair by the home file's times: those are patched to the new
//! files'. Nothing else is.
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

/// A file's length and its pages that are not zero.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Contents {
    /// Its length.
    pub len: u64,
    /// By number.
    pub pages: BTreeMap<u64, Bytes>,
    /// Of all pages, in any order.
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
    // SAFETY: an open descriptor, whose position nobody else uses.
    let at = unsafe { libc::lseek(file.as_raw_fd(), from.cast_signed(), how) };
    u64::try_from(at).ok()
}

impl Contents {
    /// What is in a file. Holes are skipped and stay holes.
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

    /// Reads a range anew. Whether something has changed there.
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

    /// The 64-byte lines in which the two differ: each's offset.
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
        // Superblocks lie inside a page.
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

/// What lies past the end reads as zeroes.
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

/// The files of a folder: the home file, its reflection file, one that is being made, and the journal.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Image {
    /// `None`: it is not there.
    pub home: Option<Contents>,
    /// The home file's mark.
    pub mark: Option<Vec<u8>>,
    /// The reflection file, if there is one.
    pub reflection: Option<Contents>,
    /// One that has not got its name yet.
    pub unfinished: Option<Contents>,
    /// The journal of durable points.
    pub journal: Option<Contents>,
}

/// The files of an image, open.
#[derive(Debug, Default)]
pub struct Opened {
    /// As in the image.
    pub home: Option<File>,
    /// As in the image.
    pub reflection: Option<File>,
    /// As in the image.
    pub unfinished: Option<File>,
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn names(home: &Path, stat: &std::fs::Metadata) -> [PathBuf; 3] {
    let inode = stat.ino();
    let reflection = home.with_file_name(format!(".atomic-mmap.{inode:x}"));
    let since = stat.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let (seconds, nanos) = since.map_or((0, 0), |since| (since.as_secs(), since.subsec_nanos()));
    let unfinished =
        home.with_file_name(format!(".atomic-mmap.{inode:x}-{seconds:x}.{nanos:x}.new"));
    let journal = reflection.with_added_extension("journal");
    [reflection, unfinished, journal]
}

impl Image {
    /// What is at `path` and beside it.
    pub fn of(path: &Path) -> io::Result<(Image, Opened)> {
        let Some(home) = open(path)? else { return Ok(Default::default()) };
        let [reflection, unfinished, journal] = names(path, &home.metadata()?);
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
            // Written by calls only, so nobody looks at it in between.
            journal: contents(&open(&journal)?)?,
        };
        Ok((image, opened))
    }

    /// Equal images have equal numbers.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.mark.hash(&mut hasher);
        for file in [&self.home, &self.reflection, &self.unfinished, &self.journal] {
            file.as_ref().map(|file| (file.len, file.digest)).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Makes files of it. `home` is in a folder of its own.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        self.write_with(path, |_| {})
    }

    /// The same, as if the machine had been restarted, with everything written back.
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
            // uuid, inode, birth time, whether it is known.
            let mut mark = mark.clone();
            let born = identity.born.unwrap_or_default();
            mark[16..24].copy_from_slice(&identity.inode.to_le_bytes());
            mark[24..32].copy_from_slice(&born.seconds.to_le_bytes());
            mark[32..36].copy_from_slice(&born.nanos.to_le_bytes());
            Recorder::new().platform().set_xattr(&home.try_clone()?.into(), MARK, &mark)?;
        }
        // After the last change of the home file.
        let stat = home.metadata()?;
        let paths = names(path, &stat);
        let all = [&self.reflection, &self.unfinished, &self.journal];
        for ((contents, path), is_journal) in all.into_iter().zip(paths).zip([false, false, true]) {
            let Some(contents) = contents else { continue };
            let file = contents.write(&path)?;
            if is_journal {
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

    /// Removes the files that `write` has made, and what an open has made of them.
    pub fn remove(folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }
}
