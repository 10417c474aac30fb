//! Shared by the tests: folders, connections, children.

use rusqlite::{Connection, OpenFlags, params};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A folder that is removed at the end of the test.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Makes a folder on the disk.
    pub fn new() -> Self {
        Scratch(tempfile::tempdir().expect("a folder"))
    }

    /// Makes a folder in memory, if the system has one.
    pub fn in_memory() -> Self {
        let folder = Path::new("/dev/shm");
        let made = if folder.is_dir() { tempfile::tempdir_in(folder) } else { tempfile::tempdir() };
        Scratch(made.expect("a folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the names of the files in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("list");
        let name = |e: std::io::Result<std::fs::DirEntry>| e.expect("an entry").file_name();
        let mut names: Vec<String> =
            entries.map(|e| name(e).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// Opens a database on our VFS.
pub fn try_ours(path: &Path, parameters: &str) -> rusqlite::Result<Connection> {
    atomic_mmap_sqlite::register().expect("register");
    let uri = format!("file:{}?vfs=atomic-mmap{parameters}", path.display());
    let connection = Connection::open_with_flags(uri, OpenFlags::default())?;
    connection.busy_timeout(Duration::ZERO)?;
    Ok(connection)
}

pub fn ours(path: &Path) -> Connection {
    try_ours(path, "").expect("open on our VFS")
}

pub fn ours_with(path: &Path, parameters: &str) -> Connection {
    try_ours(path, parameters).expect("open on our VFS")
}

/// Opens a database on the VFS that SQLite has.
pub fn stock(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("open on the stock VFS");
    connection.busy_timeout(Duration::ZERO).expect("set");
    connection
}

/// Returns the first column of the first row as text.
pub fn one(connection: &Connection, sql: &str) -> String {
    try_one(connection, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub fn try_one(connection: &Connection, sql: &str) -> rusqlite::Result<String> {
    connection.query_row(sql, params![], |row| {
        let value: rusqlite::types::Value = row.get(0)?;
        Ok(match value {
            rusqlite::types::Value::Text(text) => text,
            rusqlite::types::Value::Integer(number) => number.to_string(),
            other => format!("{other:?}"),
        })
    })
}

pub fn run(connection: &Connection, sql: &str) {
    connection.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

pub fn assert_whole(connection: &Connection) {
    assert_eq!(one(connection, "PRAGMA integrity_check"), "ok");
}

/// Returns a number of `PRAGMA atomic_mmap_stats`.
pub fn stat(connection: &Connection, name: &str) -> u64 {
    let stats = one(connection, "PRAGMA atomic_mmap_stats");
    let at = stats.find(&format!("\"{name}\":")).expect("a counter") + name.len() + 3;
    let digits = stats[at..].chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().expect("a number")
}

/// Returns the primary result code of an error.
pub fn code<T: std::fmt::Debug>(result: rusqlite::Result<T>) -> i32 {
    match result.expect_err("an error") {
        rusqlite::Error::SqliteFailure(error, _) => error.extended_code & 0xFF,
        other => panic!("another error: {other}"),
    }
}

/// Returns the number in an environment variable, or a default.
pub fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |number| number.parse().expect("a number"))
}

const ROLE: &str = "ATOMIC_MMAP_SQLITE_ROLE";

/// The task of this process, if a test has started it.
pub struct Role {
    pub name: String,
    pub path: PathBuf,
    /// A seed, and URI parameters.
    pub seed: u64,
    pub parameters: String,
}

impl Role {
    pub fn of_this_process() -> Option<Self> {
        let all = std::env::var(ROLE).ok()?;
        let parts: Vec<&str> = all.split('|').collect();
        let [name, path, seed, parameters] = parts[..] else { panic!("{all} is no role") };
        Some(Role {
            name: name.to_owned(),
            path: PathBuf::from(path),
            seed: seed.parse().expect("a number"),
            parameters: parameters.to_owned(),
        })
    }
}

/// Starts this test binary as another process, which plays the role `name`. Its standard input and
/// output are pipes.
pub fn child(name: &str, path: &Path, seed: u64, parameters: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["child", "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, format!("{name}|{}|{seed}|{parameters}", path.display()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("start a child")
}

/// Returns the lines that a child writes, without those of the test harness: all that begin with
/// a `>`.
pub fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let lines = output.lines().map_while(Result::ok);
    // The harness may leave its own words at the beginning of the line.
    lines.filter_map(|line| line.split_once('>').map(|(_, said)| said.to_owned()))
}
