//! The calls that take a path: docs/soundness.md has a row for each, and no other file has any.
//!
//! Other users may write to the folder of a file. So each call must say what it follows, and why
//! that is right. A row is a file and its calls.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The sources that users run.
const SOURCES: [&str; 6] = [
    "src",
    "crates/capi/src",
    "crates/cli/src",
    "crates/openraft/src",
    "crates/preload/src",
    "crates/sqlite/src",
];

/// Parts of the names of files that only tests have.
const TESTS: [&str; 6] =
    ["/tests.rs", "/tests/", "/model_tests.rs", "/loom_models", "/testing/", "src/mutant/"];

/// Calls that take a path, or a name in a folder. Those of the system may have a prefix before
/// their name.
const CALLS: [&str; 40] = [
    ".exists()",
    ".is_symlink()",
    ".symlink_metadata()",
    "File::create",
    "File::open(",
    "File::options(",
    "OpenOptions::new(",
    "SYS_openat2",
    "SYS_renameat2",
    "canonicalize(",
    "chmod(",
    "chown(",
    "create_dir",
    "faccessat(",
    "fchmodat(",
    "fchownat(",
    "fopen64(",
    "fs::metadata(",
    "fs::open(",
    "hard_link(",
    "linkat(",
    "lstat(",
    "mkdirat(",
    "mkostemps64(",
    "openat(",
    "read_dir(",
    "read_link(",
    "read_to_string(",
    "fs::read(",
    "readlink(",
    "readlinkat(",
    "remove_dir",
    "remove_file(",
    "renameat2(",
    "setxattr(",
    "statat(",
    "tempfile_in(",
    "truncate64(",
    "unlinkat(",
    "fs::write(",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = SOURCES.iter().map(|folder| root().join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("list a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// Returns the lines of code before the unit tests.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = text.lines().collect();
    let is_test = |pair: &[&str]| pair[0].starts_with("#[cfg(") && pair[1].starts_with("mod tests");
    let end = lines.windows(2).position(is_test).unwrap_or(lines.len());
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    lines.into_iter().take(end).filter(is_code)
}

/// Returns `true` if a line has a call. A longer name that ends like it is another call.
fn has(line: &str, call: &str) -> bool {
    let is_whole = |at: usize| {
        let before = line[..at].chars().next_back();
        call.starts_with('.') || before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    };
    line.match_indices(call).any(|(at, _)| is_whole(at) && !line[..at].ends_with("fn "))
}

fn found() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for path in sources() {
        let name =
            path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        if TESTS.iter().any(|part| name.contains(part)) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("read");
        for line in code(&text) {
            for call in CALLS.iter().filter(|call| has(line, call)) {
                let call = call.trim_matches(['.', '(', ')']);
                found.insert((name.clone(), call.to_owned()));
            }
        }
    }
    found
}

/// Returns the rows of the table under the heading: their files and their calls.
fn told() -> Vec<[Vec<String>; 2]> {
    let text = fs::read_to_string(root().join("docs/soundness.md")).expect("read");
    let (_, section) = text.split_once("## Calls that take a path\n").expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let words = |column: &str| column.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let columns: Vec<&str> = row.split('|').collect();
        [words(columns[1]), words(columns[2])]
    })
    .collect()
}

#[test]
fn each_call_that_takes_a_path_is_told_with_what_it_follows() {
    let (found, told) = (found(), told());
    let is_told = |(file, call): &&(String, String)| {
        told.iter().any(|[files, calls]| files.contains(file) && calls.contains(call))
    };
    let untold: Vec<_> = found.iter().filter(|pair| !is_told(pair)).collect();
    assert!(untold.is_empty(), "docs/soundness.md does not tell of {untold:#?}");
    for [files, calls] in &told {
        for file in files {
            let is_it = |pair: &(String, String)| pair.0 == *file && calls.contains(&pair.1);
            assert!(found.iter().any(is_it), "{file} has none of {calls:?} any more");
        }
        for call in calls {
            let is_it = |pair: &(String, String)| pair.1 == *call && files.contains(&pair.0);
            assert!(found.iter().any(is_it), "{call} is in none of {files:?} any more");
        }
    }
}
