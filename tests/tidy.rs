//! What a reader may rely on in every file: short files and functions, headers, narrow comments,
//! plain words, and calls that go downwards.
//!
//! Limits are denied, not reported. [`DEBTS`] lists what was there when a limit was introduced. An
//! entry may only shrink: a file that grows beyond its entry fails, and so does an entry that is
//! larger than needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Most lines of a file.
const FILE_LINES: usize = 600;
/// Most lines of a function.
const FUNCTION_LINES: usize = 80;
/// Most columns of a comment.
const COLUMNS: usize = 100;
/// Words that name no actor.
const NOBODIES: [&str; 8] =
    ["who", "whoever", "whose", "whom", "somebody", "anybody", "nobody", "everybody"];

/// Beginnings of comments that do not say what a thing is or does.
const RIDDLES: [&str; 2] = ["The same", "Whether"];

/// A rule, a file or folder, and what was there. Sorted, so that a change shows.
const DEBTS: &[(Rule, &str, usize)] = &[
    (Rule::FileLines, "src/engine/at_home.rs", 718),
    (Rule::FileLines, "src/engine/durable.rs", 736),
    (Rule::FileLines, "src/engine/lanes.rs", 870),
    (Rule::FileLines, "src/engine/loom_models.rs", 904),
    (Rule::FileLines, "src/engine/state.rs", 695),
    (Rule::FileLines, "src/error.rs", 755),
    (Rule::FileLines, "src/format/entry.rs", 691),
    (Rule::FileLines, "src/lock/mod.rs", 684),
    (Rule::FileLines, "src/platform/mod.rs", 658),
    (Rule::FileLines, "src/platform/native.rs", 698),
    (Rule::FileLines, "src/platform/os.rs", 1110),
    (Rule::FileLines, "src/platform/recorder.rs", 838),
    (Rule::FileLines, "src/platform/x86.rs", 778),
    (Rule::FileLines, "src/recovery/durable.rs", 706),
    (Rule::FileLines, "src/recovery/lanes.rs", 618),
    (Rule::FileLines, "src/recovery/mod.rs", 678),
    (Rule::LongFunctions, "src/engine/commit.rs", 1),
    (Rule::LongFunctions, "src/engine/deploy.rs", 1),
    (Rule::LongFunctions, "src/engine/in_place.rs", 1),
    (Rule::LongFunctions, "src/engine/read_in_page.rs", 1),
    (Rule::LongFunctions, "src/recovery/look.rs", 1),
    (Rule::LongFunctions, "src/recovery/make.rs", 1),
    (Rule::LongFunctions, "src/recovery/mod.rs", 1),
    (Rule::LongFunctions, "src/recovery/pair.rs", 1),
    (Rule::CircularCalls, "src/engine", 96),
];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rule {
    /// Lines of a file, where they are more than [`FILE_LINES`].
    FileLines,
    /// Functions of a file with more than [`FUNCTION_LINES`].
    LongFunctions,
    /// Comments with more than [`COLUMNS`].
    WideComments,
    /// Comments that name no actor, or that begin with one of [`RIDDLES`].
    Words,
    /// Files without a header.
    Headers,
    /// Calls between two files of `src/engine` that are part of a circle of calls.
    CircularCalls,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files below a folder, with paths from the repository's root.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut folders = vec![root().join(folder)];
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
    files.sort();
    files
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned()
}

/// The comment that a line consists of.
fn comment(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']).trim())
}

fn is_word_of(text: &str, words: &[&str]) -> bool {
    let parts = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    parts.map(str::to_lowercase).any(|part| words.contains(&part.as_str()))
}

/// First and last line of each function, by its name. Counts braces, which rustfmt puts at the same
/// indentation.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let indentation = line.len() - line.trim_start().len();
        let Some(name) = function_name(line) else { continue };
        let closes = format!("{}}}", " ".repeat(indentation));
        let end = lines[n..].iter().position(|line| *line == closes || line.ends_with(" {}"));
        let is_declared = lines[n..].iter().take(8).find(|line| line.ends_with([';', '{']));
        if let (Some(end), Some(true)) = (end, is_declared.map(|line| line.ends_with('{'))) {
            found.push((name.to_owned(), n, n + end));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.trim_start();
    for prefix in ["pub(crate) ", "pub(super) ", "pub ", "const ", "unsafe ", "extern \"C\" "] {
        words = words.strip_prefix(prefix).unwrap_or(words);
    }
    let end = |c: char| !c.is_alphanumeric() && c != '_';
    words.strip_prefix("fn ").map(|rest| rest.split(end).next().unwrap_or_default())
}

/// What each rule finds, by file.
fn findings() -> BTreeMap<(Rule, String), usize> {
    let mut found = BTreeMap::new();
    let mut add = |rule, name: &str, count: usize| {
        if count > 0 {
            *found.entry((rule, name.to_owned())).or_insert(0) += count;
        }
    };
    for path in sources("src") {
        let (text, name) = (fs::read_to_string(&path).expect("read"), name(&path));
        let lines = text.lines().count();
        add(Rule::FileLines, &name, if lines > FILE_LINES { lines } else { 0 });
        let is_long = |(_, first, last): &&(_, usize, usize)| last - first >= FUNCTION_LINES;
        add(Rule::LongFunctions, &name, functions(&text).iter().filter(is_long).count());
        add(Rule::Headers, &name, usize::from(!text.starts_with("//!") && !text.starts_with("#!")));
        count_comments(&text, &name, &mut add);
    }
    // Tests and tools are judged as wholes.
    for folder in ["tests", "crates", "examples", "benches"] {
        for path in sources(folder) {
            let text = fs::read_to_string(&path).expect("read");
            count_comments(&text, folder, &mut add);
        }
    }
    add(Rule::CircularCalls, "src/engine", circular_calls());
    found
}

fn count_comments(text: &str, name: &str, add: &mut impl FnMut(Rule, &str, usize)) {
    for line in text.lines() {
        let Some(comment) = comment(line) else { continue };
        add(Rule::WideComments, name, usize::from(line.chars().count() > COLUMNS));
        let begins = RIDDLES.iter().any(|start| comment.starts_with(start));
        add(Rule::Words, name, usize::from(begins || is_word_of(comment, &NOBODIES)));
    }
}

/// Calls of methods from one file of the engine to another one, between files that call each other
/// in a circle.
fn circular_calls() -> usize {
    let mut methods: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let files = sources("src/engine");
    let texts: Vec<String> =
        files.iter().map(|path| fs::read_to_string(path).expect("read")).collect();
    let production = |text: &str| text.split("#[cfg(").next().unwrap_or_default().to_owned();
    let texts: Vec<String> = texts.iter().map(|text| production(text)).collect();
    for (n, text) in texts.iter().enumerate() {
        let mut is_engines = false;
        for line in text.lines() {
            match line {
                line if line.starts_with("impl") => is_engines = line.starts_with("impl Engine"),
                "}" => is_engines = false,
                line => {
                    if let (true, Some(name)) = (is_engines, function_name(line)) {
                        methods.entry(name.to_owned()).or_default().insert(n);
                    }
                }
            }
        }
    }
    let mut calls = BTreeSet::new();
    for (n, text) in texts.iter().enumerate() {
        for part in text.split(['.', ':']).skip(1) {
            let end = |c: char| !c.is_alphanumeric() && c != '_';
            let Some((called, rest)) = part.split_once(end) else { continue };
            let is_call = part[called.len()..].starts_with('(') || rest.starts_with(":<");
            // A name that several files have belongs to other types as well.
            if let (true, Some(of)) = (is_call, methods.get(called))
                && let (1, Some(to)) = (of.len(), of.first())
                && *to != n
            {
                calls.insert((n, *to));
            }
        }
    }
    let reach: Vec<BTreeSet<usize>> = (0..files.len()).map(|n| reachable(n, &calls)).collect();
    calls.iter().filter(|(from, to)| reach[*to].contains(from)).count()
}

fn reachable(from: usize, calls: &BTreeSet<(usize, usize)>) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    let mut next = vec![from];
    while let Some(n) = next.pop() {
        if all.insert(n) {
            next.extend(calls.range((n, 0)..(n + 1, 0)).map(|(_, to)| *to));
        }
    }
    all
}

#[test]
fn every_file_is_tidy() {
    let found = findings();
    let debts: BTreeMap<(Rule, String), usize> =
        DEBTS.iter().map(|(rule, name, count)| ((*rule, (*name).to_owned()), *count)).collect();
    assert_eq!(debts.len(), DEBTS.len(), "an entry is there twice");
    let mut problems = String::new();
    for (key, count) in &found {
        let allowed = debts.get(key).copied().unwrap_or(0);
        if *count > allowed {
            problems += &format!("{:?} in {}: {count}, at most {allowed}\n", key.0, key.1);
        }
    }
    for (key, allowed) in &debts {
        let count = found.get(key).copied().unwrap_or(0);
        if count < *allowed {
            problems += &format!("{:?} in {}: {count}; lower its entry\n", key.0, key.1);
        }
    }
    assert!(problems.is_empty(), "\n{problems}");
}
