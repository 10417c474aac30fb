//! Helpers of the tests: folders, and programs under the preload.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder in memory, if the system has one. Its files `*.dat` are chosen.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        let folder = Path::new("/dev/shm");
        let made = if folder.is_dir() { tempfile::tempdir_in(folder) } else { tempfile::tempdir() };
        Scratch(made.expect("a folder"))
    }

    /// Makes a folder on the disk.
    pub fn on_disk() -> Self {
        Scratch(tempfile::tempdir().expect("a folder"))
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Returns the names of companions in the folder.
    pub fn companions(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("list");
        let names =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(".atomic-mmap")).collect()
    }

    /// Returns a command that runs under the preload.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library());
        command.env("ATOMIC_MMAP_FILES", self.path("*.dat"));
        command.env("ATOMIC_MMAP_LOG", self.path("log"));
        command
    }

    /// Returns a command of `strace` for a program that runs under the preload.
    pub fn traced(&self, args: &[&str]) -> Command {
        let mut traced = Command::new("strace");
        traced.arg("-f").args(args);
        for (name, value) in self.command("").get_envs() {
            let value = value.expect("a value").to_string_lossy();
            traced.args(["-E", &format!("{}={value}", name.to_string_lossy())]);
        }
        traced
    }

    /// Runs a program under the preload. It must succeed.
    pub fn run(&self, program: &str, args: &[&OsStr]) -> Output {
        let output = self.command(program).args(args).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {args:?}: {}\n{said}", output.status);
        output
    }

    /// Runs lines of a shell under the preload. They must succeed.
    pub fn shell(&self, shell: &str, lines: &str) -> String {
        let lines = format!("set -e; cd '{}'; {lines}", self.folder().display());
        let output = self.run(shell, &["-c".as_ref(), lines.as_ref()]);
        String::from_utf8(output.stdout).expect("text")
    }
}

/// Returns the library's path.
pub fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this binary");
    let library = own.with_file_name("libatomic_mmap_preload.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

/// Returns `true` if a program is installed. Else says what is skipped.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

const ROLE: &str = "ATOMIC_MMAP_PRELOAD_ROLE";

/// Returns a command that plays a role in this binary under the preload.
pub fn child(scratch: &Scratch, name: &str, path: &Path, seed: u64) -> Command {
    let mut command = scratch.command(std::env::current_exe().expect("this binary"));
    command.args(["child", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, format!("{name}|{}|{seed}", path.display()));
    command
}

/// Returns what this process has to do: a name, a path, and a seed.
pub fn role() -> Option<(String, PathBuf, u64)> {
    let all = std::env::var(ROLE).ok()?;
    let parts: Vec<&str> = all.split('|').collect();
    let [name, path, seed] = parts[..] else { panic!("{all} is no role") };
    Some((name.to_owned(), PathBuf::from(path), seed.parse().expect("a number")))
}

/// Returns the number in an environment variable, or a default.
pub fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().expect("a number"))
}
