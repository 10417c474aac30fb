//! Scratch folders, files in every state, and runs of the command.

use atomic_mmap::{AtomicMappedFile, CloseMode, Options};
use rustix::fs::SeekFrom;
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::SystemTime;

/// The length of the files, in bytes.
pub const LEN: u64 = 300_000;
const ROLE: &str = "ATOMIC_MMAP_CLI_TEST_ROLE";

pub struct Scratch(tempfile::TempDir);

/// Makes a scratch folder in memory, where that exists.
pub fn scratch() -> Scratch {
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    Scratch(tempfile::tempdir_in(folder).expect("a folder"))
}

impl Scratch {
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Returns the names in the folder.
    pub fn names(&self) -> Vec<String> {
        let entries = self.path().read_dir().expect("list");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry.expect("an entry").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    /// Returns the reflection file.
    pub fn reflection(&self) -> PathBuf {
        let is_other = |name: &str| name.contains("journal") || name.contains("snapshots");
        let is_one = |name: &&String| name.starts_with(".atomic-mmap.") && !is_other(name);
        self.file(self.names().iter().find(is_one).expect("a reflection file"))
    }

    /// Returns the names of all files, with the times of change and a hash of the contents.
    pub fn contents(&self) -> Vec<(String, SystemTime, u64)> {
        let names = self.names().into_iter();
        let content = |name: String| {
            let path = self.file(&name);
            let modified = path.metadata().and_then(|m| m.modified()).expect("a time");
            let mut hasher = DefaultHasher::new();
            pages(&path).hash(&mut hasher);
            (name, modified, hasher.finish())
        };
        names.map(content).collect()
    }
}

/// Returns the pages of a file that are not zero: most of a reflection file is a hole.
fn pages(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let file = std::fs::File::open(path).expect("open");
    let (mut pages, mut from) = (Vec::new(), 0);
    while let Ok(data) = rustix::fs::seek(&file, SeekFrom::Data(from)) {
        let end = rustix::fs::seek(&file, SeekFrom::Hole(data)).expect("the end of the data");
        for at in (data..end).step_by(4096) {
            let mut page = vec![0; (end - at).min(4096) as usize];
            file.read_exact_at(&mut page, at).expect("read");
            if page.iter().any(|byte| *byte != 0) {
                pages.push((at, page));
            }
        }
        from = end;
    }
    pages
}

pub fn options() -> Options {
    AtomicMappedFile::options().create(true).len(LEN)
}

/// Damages both superblocks of the reflection file.
pub fn damage(scratch: &Scratch) {
    let reflection = std::fs::File::options().write(true).open(scratch.reflection()).expect("open");
    for superblock in [0, 4096] {
        reflection.write_all_at(&[0xff; 8], superblock + 100).expect("damage");
    }
}

/// Makes a file with known bytes, and closes it.
pub fn make(path: &Path, mode: CloseMode) {
    let file = options().open(path).expect("create");
    write(&file);
    file.close(mode).expect("close");
}

/// Writes the known bytes.
pub fn write(file: &AtomicMappedFile) {
    file.write_at(&[1; 10_000], 5000).expect("write");
    file.write_at(b"known", 200_000).expect("write");
}

/// Checks that a plain file has the known bytes.
#[track_caller]
pub fn assert_known(path: &Path) {
    let bytes = std::fs::read(path).expect("read");
    assert_eq!(bytes.len() as u64, LEN);
    assert!(bytes[5000..15_000].iter().all(|byte| *byte == 1));
    assert_eq!(&bytes[200_000..200_005], b"known");
}

pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atomic-mmap"));
    for variable in ["ATOMIC_MMAP_MEDIUM", "CLICOLOR_FORCE", "CLICOLOR", "NO_COLOR", "COLUMNS"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// The output of a run.
pub struct Run(pub Output);

impl Run {
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.0.status.code(), Some(code), "{}{}", self.out(), self.err());
        self
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Returns the JSON object on standard output. Nothing else is printed anywhere.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.err(), "");
        let value: Value = serde_json::from_str(&self.out()).expect("one JSON object");
        assert_eq!(value["schema"], 2);
        value
    }

    /// Returns the error in JSON on standard error.
    #[track_caller]
    pub fn error(&self) -> Value {
        let value: Value = serde_json::from_str(&self.err()).expect("one JSON object");
        assert_eq!((&value["schema"], self.out().as_str()), (&2.into(), ""));
        value["error"].clone()
    }
}

pub fn run(arguments: &[&str], path: &Path) -> Run {
    Run(command().args(arguments).arg(path).output().expect("run"))
}

/// A process that has the file open. Killed by SIGKILL on drop.
pub struct Holder {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Holder {
    /// Starts a process that opens the file, writes the known bytes, and then waits.
    pub fn start(path: &Path) -> Holder {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["common::plays_the_holder_if_it_is_one", "--exact", "--nocapture"])
            .env(ROLE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut holder = Holder { child, lines };
        holder.wait_for("ready");
        holder
    }

    fn wait_for(&mut self, word: &str) {
        let found = self.lines.by_ref().any(|line| line.expect("a line").contains(word));
        assert!(found, "the process has ended");
    }

    /// Lets the process write to the page at `offset`, and waits until it has.
    pub fn write_at(&mut self, offset: u64) {
        use std::io::Write;
        let input = self.child.stdin.as_mut().expect("its input");
        writeln!(input, "{offset}").expect("ask");
        self.wait_for("written");
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process by SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

#[test]
fn plays_the_holder_if_it_is_one() {
    let Some(path) = std::env::var_os(ROLE) else { return };
    let file = options().open(path).expect("open");
    write(&file);
    println!("ready");
    for (n, line) in std::io::stdin().lines().enumerate() {
        let offset = line.expect("a line").parse().expect("an offset");
        file.write_at(&[n as u8; 4096], offset).expect("write");
        println!("written");
    }
}
