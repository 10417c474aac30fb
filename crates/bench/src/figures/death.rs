//! A process that is killed while it writes.
//!
//! Owns: the child, which is this program again with the same arguments. It opens a contender's
//! file, writes to it endlessly, reports its start, and is killed. An environment variable holds
//! its task. The child fills every page that it changes with one word. After the kill the page must
//! hold one word from end to end.

use super::field::{contenders, touch};
use crate::subject::{Kind, Subject};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const VARIABLE: &str = "ATOMIC_MMAP_BENCH_DEATH";
const PAGE: u64 = 4096;
/// Time after which a child ends by itself if it is not killed.
const LONGEST: Duration = Duration::from_secs(120);

/// The writes before a kill.
pub struct Death<'a> {
    pub kind: Kind,
    pub folder: &'a Path,
    pub len: u64,
    /// Number of pages that the child changes repeatedly, spread over the file.
    pub pages: u64,
    /// `true` to write all of the file once before.
    pub fill: bool,
}

/// Writes endlessly if this process is a child, and never returns. Otherwise does nothing.
///
/// # Errors
/// In the child, returns the error that keeps it from writing.
pub fn die_if_asked() -> io::Result<()> {
    let Ok(order) = std::env::var(VARIABLE) else { return Ok(()) };
    let malformed = || io::Error::other(format!("{VARIABLE} is {order:?}"));
    let words: Vec<&str> = order.split('\t').collect();
    let [name, folder, len, pages, fill] = words[..] else { return Err(malformed()) };
    let number = |word: &str| word.parse::<u64>().map_err(|_| malformed());
    let (len, pages) = (number(len)?, number(pages)?);
    let folder = PathBuf::from(folder);
    let contender = contenders().into_iter().find(|contender| contender.kind.name == name);
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

/// Returns the word of a page, which contains the round, so that rounds can be told apart.
fn word(round: u64, page: u64) -> [u8; 8] {
    ((round << 32) | (page + 1)).to_le_bytes()
}

fn place(page: u64, pages: u64, len: u64) -> u64 {
    // Not in ascending order, so that no contender gets sequential writes.
    let page = if pages.is_multiple_of(7) { page } else { page * 7 % pages };
    (len / PAGE / pages * page).min(len / PAGE - 1) * PAGE
}

impl Death<'_> {
    /// Starts the child, lets it write, and kills it.
    ///
    /// # Errors
    /// Returns an error of the system, or an error if the child ended by itself.
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
        // Waits until the child is in the rounds that follow.
        std::thread::sleep(Duration::from_millis(3));
        child.kill()?;
        child.wait()?;
        std::fs::remove_file(begun)
    }

    /// Returns `true` if each page holds one of its words from end to end, as an atomic contender
    /// promises.
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
