//! Helpers of all tests: scratch folders, media to run on, child processes, random bytes.

#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "the tests that other systems run use a part of it")
)]

#[cfg(target_os = "linux")]
pub mod filter;

use atomic_mmap::{AtomicMappedFile, Error, Medium, Options};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Environment variable that chooses the folder on a disk. Default: the system's temporary folder.
const FOLDER_VARIABLE: &str = "ATOMIC_MMAP_TEST_DIR";
/// Environment variable that chooses the folder in memory. Default: `/dev/shm`.
const RAM_FOLDER_VARIABLE: &str = "ATOMIC_MMAP_TEST_RAM_DIR";
/// Environment variable with a folder on real persistent memory, which `lab/dax` has in its guest.
/// The tests force no medium there: they run on what the system finds, which must be `Dax`.
const PERSISTENT_VARIABLE: &str = "ATOMIC_MMAP_TEST_DAX";
/// Environment variable that gives a child process its role.
const ROLE_VARIABLE: &str = "ATOMIC_MMAP_TEST_ROLE";
/// Environment variable that gives a child process its path.
const PATH_VARIABLE: &str = "ATOMIC_MMAP_TEST_PATH";
/// Prefix of the names of reflection files.
const REFLECTION_PREFIX: &str = ".atomic-mmap.";

/// A test bed: a folder, and the medium that its files are treated as.
#[derive(Clone, Debug)]
pub struct Ground {
    pub base: PathBuf,
    pub medium: Medium,
}

impl Ground {
    /// Makes a new scratch folder.
    pub fn scratch(&self) -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = self.base.join(format!("atomic-mmap-test-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Scratch(path),
                // A killed process with this number left it.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => panic!("{}: {e}", path.display()),
            }
        }
    }

    /// Returns options for this test bed.
    pub fn options(&self) -> Options {
        options(self.medium)
    }
}

/// A folder that is removed with its contents when it is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the reflection files in the folder, finished or not.
    pub fn reflections(&self) -> Vec<PathBuf> {
        reflections_in(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

/// Returns the reflection files in a folder, finished or not.
pub fn reflections_in(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .expect("list the folder")
        .map(|entry| entry.expect("list the folder").path())
        .filter(|path| {
            path.file_name().is_some_and(|n| {
                let name = n.to_string_lossy();
                let is_beside = [".journal", ".snapshots"].iter().any(|end| name.ends_with(end));
                name.starts_with(REFLECTION_PREFIX) && !is_beside
            })
        })
        .collect();
    found.sort();
    found
}

/// Returns a folder in RAM, if the system has one.
pub fn ram_folder() -> PathBuf {
    if let Some(chosen) = std::env::var_os(RAM_FOLDER_VARIABLE) {
        return chosen.into();
    }
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { shm.to_owned() } else { disk_folder() }
}

fn disk_folder() -> PathBuf {
    std::env::var_os(FOLDER_VARIABLE).map_or_else(std::env::temp_dir, PathBuf::from)
}

/// Returns the test bed in RAM.
pub fn ram() -> Ground {
    Ground { base: ram_folder(), medium: Medium::Ram }
}

/// Returns options that force the medium. Real persistent memory is found, not forced.
pub fn options(medium: Medium) -> Options {
    let options = AtomicMappedFile::options();
    let is_found = medium == Medium::Dax && persistent_folder().is_some();
    if is_found { options } else { options.medium(medium) }
}

/// Returns a folder on persistent memory, if the environment names one.
pub fn persistent_folder() -> Option<PathBuf> {
    std::env::var_os(PERSISTENT_VARIABLE).map(PathBuf::from)
}

/// Returns a test bed on persistent memory, or in RAM treated like it. `None` on a build
/// that cannot flush.
pub fn dax() -> Option<Ground> {
    if let Some(base) = persistent_folder() {
        let ground = Ground { base, medium: Medium::Dax };
        let scratch = ground.scratch();
        let file = ground.options().create(true).open(scratch.file("probe"));
        let found = file.expect("open a file on persistent memory").medium();
        assert_eq!(found, Medium::Dax, "{ground:?}");
        return Some(ground);
    }
    let ground = Ground { base: ram_folder(), medium: Medium::Dax };
    is_served(&ground).then_some(ground)
}

/// Returns a test bed in a disk's page cache, or `None` if the folder's file system is not
/// supported.
pub fn page_cache() -> Option<Ground> {
    let ground = Ground { base: disk_folder(), medium: Medium::PageCache };
    is_served(&ground).then_some(ground)
}

/// Returns all test beds. With real persistent memory, returns that one alone.
pub fn media() -> Vec<Ground> {
    if persistent_folder().is_some() {
        return dax().into_iter().collect();
    }
    [Some(ram()), page_cache(), dax()].into_iter().flatten().collect()
}

/// Returns the test beds of `media` that do not wait for a disk.
pub fn media_in_memory() -> Vec<Ground> {
    media().into_iter().filter(|ground| ground.medium != Medium::PageCache).collect()
}

fn is_served(ground: &Ground) -> bool {
    let scratch = ground.scratch();
    match ground.options().create(true).open(scratch.file("probe")) {
        Ok(_) => true,
        Err(Error::UnsupportedMedium { .. } | Error::UnsupportedFileSystem { .. }) => false,
        Err(e) => panic!("{e}"),
    }
}

/// Waits until `is_so`. The worker is slow on a loaded machine, but it comes.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(100), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A random number generator that gives equal numbers in every run (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// Compares two byte strings. The panic shows the first difference, not two dumps.
#[track_caller]
pub fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    if found != expected {
        let differs = |i: &usize| found[*i] != expected[*i];
        let first = (0..found.len()).find(differs).expect("they differ");
        let count = (0..found.len()).filter(differs).count();
        panic!(
            "{what}: {count} of {} bytes differ, the first at {first} (page {}, slice {}): \
             {:#x} instead of {:#x}",
            found.len(),
            first / 4096,
            first % 4096 / 64,
            found[first],
            expected[first]
        );
    }
}

/// Reads all bytes of the file in one operation.
#[track_caller]
pub fn read_all(file: &AtomicMappedFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(&mut bytes, 0).expect("read everything");
    bytes
}

/// Reads all bytes of a snapshot. Without optimization `read_vec` is slow: it fills a vector byte
/// by byte before it reads.
pub fn try_read_snapshot(file: &AtomicMappedFile, name: &str) -> Result<Vec<u8>, Error> {
    let snapshot = file.open_snapshot(name)?;
    let mut bytes = vec![0; snapshot.len() as usize];
    snapshot.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[track_caller]
pub fn read_snapshot(file: &AtomicMappedFile, name: &str) -> Vec<u8> {
    try_read_snapshot(file, name).expect("read a snapshot")
}

/// Returns a command that runs one test of this binary alone, as a child with a role. `entry` is
/// the test's path from the crate on: `concat!(module_path!(), "::a_name")`.
pub fn child(entry: &str, role: &str, path: impl AsRef<OsStr>) -> Command {
    let (_crate, name) = entry.split_once("::").expect("a crate and a test in it");
    let mut command = Command::new(std::env::current_exe().expect("the tests' own binary"));
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ROLE_VARIABLE, role)
        .env(PATH_VARIABLE, path);
    command
}

/// Runs a child to its end, as [`run_test`].
#[track_caller]
pub fn run_child(entry: &str, role: &str, path: impl AsRef<OsStr>) -> String {
    run_test(&mut child(entry, role, path))
}

/// Runs a command of [`child`] or [`child_with_mounts`] to its end. Panics with its output if it
/// did not succeed, or if there is no such test.
#[track_caller]
pub fn run_test(command: &mut Command) -> String {
    let text = run(command);
    assert!(ran_its_test(&text), "{command:?}: no such test\n{text}");
    text
}

/// Returns `true` if the output of a child says that it ran its test. With a name that no test has,
/// a child does nothing and succeeds.
pub fn ran_its_test(output: &str) -> bool {
    output.contains("running 1 test\n")
}

/// Returns the role and the path of this process, if it is a child.
pub fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var(ROLE_VARIABLE).ok()?;
    Some((role, PathBuf::from(std::env::var_os(PATH_VARIABLE)?)))
}

/// Ends the process like a crash: nothing is dropped, nothing is closed.
#[cfg(unix)]
pub fn crash() -> ! {
    // SAFETY: no precondition. No destructor of this process runs.
    unsafe { libc::_exit(0) }
}

/// The contents of a folder: names, lengths, times and bytes.
#[cfg(unix)]
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot(Vec<Seen>);

/// A file: its path, length, times (mtime and ctime), and the pages that are not zero.
#[cfg(unix)]
type Seen = (PathBuf, u64, [i64; 4], Vec<(u64, Vec<u8>)>);

#[cfg(unix)]
impl Snapshot {
    pub fn of(folder: &Path) -> Snapshot {
        use std::os::unix::fs::MetadataExt;
        let mut files: Vec<_> = fs::read_dir(folder)
            .expect("list the folder")
            .map(|entry| entry.expect("list the folder").path())
            .map(|path| {
                let stat = fs::symlink_metadata(&path).expect("stat");
                let times = [stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec()];
                let data = if stat.is_file() { data_of(&path) } else { Vec::new() };
                (path, stat.len(), times, data)
            })
            .collect();
        files.sort();
        Snapshot(files)
    }

    /// Like `assert_unchanged`, but ignores the inode time that changes with an attribute.
    #[track_caller]
    pub fn assert_unchanged_but_for_attributes(&self, folder: &Path, what: &str) {
        let without_ctimes = |mut snapshot: Snapshot| {
            snapshot.0.iter_mut().for_each(|file| file.2[2..].fill(0));
            snapshot
        };
        let was = without_ctimes(Snapshot(self.0.clone()));
        was.assert_is(&without_ctimes(Snapshot::of(folder)), what);
    }

    #[track_caller]
    pub fn assert_unchanged(&self, folder: &Path, what: &str) {
        self.assert_is(&Snapshot::of(folder), what);
    }

    #[track_caller]
    fn assert_is(&self, now: &Snapshot, what: &str) {
        let names = |s: &Snapshot| s.0.iter().map(|file| file.0.clone()).collect::<Vec<_>>();
        assert_eq!(names(now), names(self), "{what}: names");
        for (now, then) in now.0.iter().zip(&self.0) {
            let name = now.0.display();
            assert_eq!((now.1, now.2), (then.1, then.2), "{what}: length and times of {name}");
            assert!(now.3 == then.3, "{what}: bytes of {name}");
        }
    }
}

/// Returns the bytes of a file that are not holes, by offset.
#[cfg(unix)]
pub fn data_of(path: &Path) -> Vec<(u64, Vec<u8>)> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    let file = fs::File::open(path).expect("open");
    let len = file.metadata().expect("stat").len();
    let seek = |from: u64, how: libc::c_int| {
        // SAFETY: the file descriptor is live, and no other code uses its position.
        let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, how) };
        u64::try_from(at).ok()
    };
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < len {
        let Some(data) = seek(at, libc::SEEK_DATA) else { break };
        let end = seek(data, libc::SEEK_HOLE).unwrap_or(len);
        let mut bytes = vec![0; (end - data) as usize];
        file.read_exact_at(&mut bytes, data).expect("read");
        // The comparison ignores whether zeroes are allocated.
        let mut offset = data;
        for page in bytes.chunks(4096) {
            if page.iter().any(|byte| *byte != 0) {
                pieces.push((offset, page.to_vec()));
            }
            offset += page.len() as u64;
        }
        at = end;
    }
    pieces
}

/// Copies a file with its permissions, without its holes: a reflection file is mostly a hole.
#[cfg(unix)]
pub fn copy_file(from: &Path, to: &Path) {
    use std::os::unix::fs::FileExt;
    let stat = fs::metadata(from).expect("stat");
    let copy = fs::File::create(to).expect("create");
    copy.set_permissions(stat.permissions()).expect("permissions");
    copy.set_len(stat.len()).expect("a length");
    for (offset, bytes) in data_of(from) {
        copy.write_all_at(&bytes, offset).expect("write");
    }
}

/// Returns a child with its own mount namespace: its mounts end with it. Returns `None`, with a
/// message, if this process lacks the right to do that.
#[cfg(target_os = "linux")]
pub fn child_with_mounts(entry: &str, role: &str, path: impl AsRef<OsStr>) -> Option<Command> {
    let may = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    match may {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            eprintln!("cannot mount, skipped: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Err(e) => {
            eprintln!("cannot mount, skipped: unshare: {e}");
            return None;
        }
    }
    let plain = child(entry, role, path);
    let mut command = Command::new("unshare");
    command.arg("-m").arg(plain.get_program()).args(plain.get_args());
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(command)
}

/// Runs a command to its end. Panics with its output if it did not succeed.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

/// Time after which a wait counts as endless. It is far longer than any test takes on a busy
/// machine, so a test that checks only this deadline fails for no other reason.
pub const HANGS: std::time::Duration = std::time::Duration::from_secs(600);

/// A watchdog that ends the process if a test hangs: threads that wait for each other would never
/// end. Dropped at the end of the test.
pub struct Watch(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Watch {
    pub fn start() -> Watch {
        let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = std::sync::Arc::clone(&over);
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        std::thread::spawn(move || {
            let start = std::time::Instant::now();
            while !seen.load(Ordering::Relaxed) {
                if start.elapsed() > HANGS {
                    eprintln!("{test}: hangs");
                    std::process::abort();
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        Watch(over)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
