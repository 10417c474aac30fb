//! The events of the library, as a program gets them that subscribes to `tracing`.

use crate::common::{LEN, options, scratch};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Medium};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

/// Every line that was printed, of all tests of this process.
static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LINES.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn subscribe() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(|| Lines)
            .finish();
        tracing::subscriber::set_global_default(subscriber).expect("the first");
    });
}

/// Returns the lines about the file that contain `what`.
fn lines(path: &Path, what: &str) -> Vec<String> {
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    let lines = LINES.lock().expect("no panic");
    let lines = String::from_utf8_lossy(&lines).into_owned();
    let is_it = |line: &&str| line.contains(name) && line.contains(what);
    lines.lines().filter(is_it).map(str::to_owned).collect()
}

#[test]
fn rare_things_are_events_and_writes_are_none() {
    subscribe();
    let scratch = scratch();
    let path = scratch.file("of-the-events");
    let file = options().medium(Medium::PageCache).journal_len(64 << 10).open(&path);
    let file = file.expect("create");
    let opened = lines(&path, "opened");
    assert_eq!(opened.len(), 1, "{opened:?}");
    assert!(opened[0].contains("Fresh") && opened[0].contains("INFO atomic_mmap"), "{opened:?}");
    file.write_at(&[1; 100_000], 0).expect("write");
    file.set_len(2 * LEN).expect("grow");
    assert_eq!(lines(&path, "grows").len(), 1);
    let before = lines(&path, "").len();
    for n in 0..100 {
        file.write_at(&[n; 100], u64::from(n) * 100).expect("write");
    }
    assert_eq!(lines(&path, "").len(), before, "no event for a write");
    // The journal fills, and a thread makes a checkpoint.
    while lines(&path, "checkpoint").is_empty() {
        file.write_at(&[2; 3000], 50_000).expect("write");
        file.sync().expect("sync");
    }
    file.close(CloseMode::Unsynced).expect("close");
    assert_eq!(lines(&path, "closed").len(), 1);
    let again = AtomicMappedFile::options().medium(Medium::PageCache).open(&path).expect("open");
    assert!(lines(&path, "opened")[1].contains("Recover"));
    again.close(CloseMode::Fast).expect("close");

    std::fs::remove_file(scratch.reflection()).expect("remove");
    let refused = AtomicMappedFile::options().medium(Medium::PageCache).open(&path);
    assert!(matches!(refused, Err(Error::Mismatch { .. })), "{refused:?}");
    assert!(lines(&path, "refused")[0].contains("ReflectionGone"));
}
