//! How does a process die while it writes?
//!
//! Owns: the child, which is this program again with the same arguments: it opens a contender's file, writes
//! to it without end, says that it has begun, and is killed. What it was told to do is in an environment
//! variable. Every page that it changes is filled with one word; after the death it must be, whole.

use super::field::{everybody, touch};
use crate::subject::{Kind, Subject};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const VARIABLE: &str = "ATOMIC_MMAP_BENCH_DEATH";
const PAGE: u64 = 4096;
/// A child that nobody kills ends by itself.
const LONGEST: Duration = Duration::from_secs(120);

/// What is done before the death.
pub struct Death<'a> {
    pub kind: Kind,
    pub folder: &'a Path,
    pub len: u64,
    /// Pages that are changed, over and over, spread over the file.
    pub pages: u64,
    /// Whether everything is written once before.
    pub fill: bool,
}

/// In the child: never returns. In everybody else: does nothing.
///
/// # Errors
/// In the child: whatever keeps it from writing.
pub fn die_if_asked() -> io::Result<()> {
    let Ok(order) = std::env::var(VARIABLE) else { return Ok(()) };
    let malformed = || io::Error::other(format!("{VARIABLE} is {order:?}"));
    let words: Vec<&str> = order.split('\t').collect();
    let [name, folder, len, pages, fill] = words[..] else { return Err(malformed()) };
    let number = |word: &str| word.parse::<u64>().map_err(|_| malformed());
    let (len, pages) = (number(len)?, number(pages)?);
    let folder = PathBuf::from(folder);
    let contender = everybody().into_iter().find(|contender| contender.kind.name == name);
    let kind = contender.ok_or_else(malformed)?.kind;
    let subject = (kind.open)(&folder, len)?;
    if fill == "true" {
        touch(&*subject, len);
    }
    let begun = Instant::now();
    for round in 1u64.. {
        for page in 0..pages {
            subject.write(&word(round, page).repeat(PAGE as usize / 8), place(page, pages, len));
            subject.sync();
        }
        if round == 1 {
            std::fs::write(sign(&folder), "")?;
        }
        if begun.elapsed() > LONGEST {
            break;
        }
    }
    std::process::exit(1)
}

fn sign(folder: &Path) -> PathBuf {
    folder.join("begun")
}

/// The rounds are counted in what is written, so that two of them can be told apart.
fn word(round: u64, page: u64) -> [u8; 8] {
    ((round << 32) | (page + 1)).to_le_bytes()
}

fn place(page: u64, pages: u64, len: u64) -> u64 {
    // In another order than that of places, so that nobody has them one after the other.
    let page = if pages.is_multiple_of(7) { page } else { page * 7 % pages };
    (len / PAGE / pages * page).min(len / PAGE - 1) * PAGE
}

impl Death<'_> {
    /// Lets the child write, and kills it.
    ///
    /// # Errors
    /// What the system says, or that the child ended by itself.
    pub fn happen(&self) -> io::Result<()> {
        let folder = self.folder.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
        let Death { kind, len, pages, fill, .. } = self;
        let mut child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, format!("{}\t{folder}\t{len}\t{pages}\t{fill}", kind.name))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let begun = sign(self.folder);
        while !begun.exists() {
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("{} ended by itself: {status}", kind.name)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // In the midst of the rounds that follow.
        std::thread::sleep(Duration::from_millis(3));
        child.kill()?;
        child.wait()?;
        std::fs::remove_file(begun)
    }

    /// Whether each page holds one word from end to end, of its own. Of those who promise it.
    pub fn check(&self, subject: &dyn Subject) -> bool {
        let mut bytes = [0; PAGE as usize];
        (0..self.pages).all(|page| {
            subject.read(&mut bytes, place(page, self.pages, self.len));
            let words = bytes.as_chunks::<8>().0;
            words.iter().all(|word| *word == words[0])
                && u64::from_le_bytes(words[0]) as u32 as u64 == page + 1
        })
    }
}
