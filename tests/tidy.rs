//! The rules for every file: short files and functions, headers, narrow comments,
//! plain words, and calls that go downwards.
//!
//! Limits are denied, without exceptions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Most lines of a file.
const FILE_LINES: usize = 600;
/// Most lines of a function.
const FUNCTION_LINES: usize = 80;
/// Most columns of a comment.
const COLUMNS: usize = 100;
/// Most columns of a line of Markdown.
const MARKDOWN_COLUMNS: usize = 120;
/// Words that name no actor.
const NOBODIES: [&str; 8] =
    ["who", "whoever", "whose", "whom", "somebody", "anybody", "nobody", "everybody"];

/// Beginnings of comments that do not say what a thing is or does.
const RIDDLES: [&str; 4] = ["The same", "Whether", "What ", "Of "];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rule {
    /// Lines of a file of the crate or of a tool, where they are more than [`FILE_LINES`].
    FileLines,
    /// Functions of a file with more than [`FUNCTION_LINES`].
    LongFunctions,
    /// Comments with more than [`COLUMNS`].
    WideComments,
    /// Comments, string literals and names of functions that name no actor, and comments that begin
    /// with one of [`RIDDLES`].
    Words,
    /// Lines of Markdown with more than [`MARKDOWN_COLUMNS`]: no tables, code or links' targets.
    WideMarkdown,
    /// Files without a header.
    Headers,
    /// Calls between two files of `src/engine` that are part of a circle of calls.
    CircularCalls,
    /// Calls and imports from a wing of the engine to a higher one.
    UpwardCalls,
    /// Imports and calls by which the structures get past the public interface.
    BehindTheApi,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files below a folder, with paths from the repository's root.
fn sources(folder: &str) -> Vec<PathBuf> {
    files_below(folder, "rs")
}

/// The Markdown files of the repository: in its root, of the documents, and of the other packages.
fn documents() -> Vec<PathBuf> {
    let mut files = [files_below("docs", "md"), files_below("crates", "md")].concat();
    let root = fs::read_dir(root()).expect("list a folder");
    let root = root.map(|entry| entry.expect("an entry").path());
    files.extend(root.filter(|path| path.extension().is_some_and(|end| end == "md")));
    files
}

/// Returns the number of lines that are too wide.
fn wide_markdown(text: &str) -> usize {
    let mut is_code = false;
    let is_wide = |line: &&str| {
        is_code ^= line.starts_with("```");
        let is_text = !is_code && !line.starts_with(['|', '[', '#']);
        is_text && line.chars().count() > MARKDOWN_COLUMNS
    };
    text.lines().filter(is_wide).count()
}

fn files_below(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut folders = vec![root().join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("list a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == ending) {
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
    if let Some(restricted) = words.strip_prefix("pub(") {
        words = restricted.split_once(") ").map_or(words, |(_, rest)| rest);
    }
    for prefix in ["pub ", "const ", "unsafe ", "extern \"C\" "] {
        words = words.strip_prefix(prefix).unwrap_or(words);
    }
    let end = |c: char| !c.is_alphanumeric() && c != '_';
    words.strip_prefix("fn ").map(|rest| rest.split(end).next().unwrap_or_default())
}

/// The number of findings, by rule and file.
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
        add(Rule::Words, &name, nameless_actors(&text));
    }
    // Tests and tools are judged as wholes, except for the lengths of the tools' files.
    for folder in ["tests", "crates", "examples", "benches"] {
        for path in sources(folder) {
            let text = fs::read_to_string(&path).expect("read");
            let (lines, name) = (text.lines().count(), name(&path));
            let is_long =
                name.starts_with("crates/") && name.contains("/src/") && lines > FILE_LINES;
            add(Rule::FileLines, &name, if is_long { lines } else { 0 });
            count_comments(&text, folder, &mut add);
            let is_own = path.ends_with("tests/tidy.rs");
            add(Rule::Words, folder, if is_own { 0 } else { nameless_actors(&text) });
        }
    }
    for path in documents() {
        let text = fs::read_to_string(&path).expect("read");
        add(Rule::WideMarkdown, &name(&path), wide_markdown(&text));
    }
    add(Rule::CircularCalls, "src/engine", circular_calls());
    for upward in upward_calls() {
        add(Rule::UpwardCalls, &upward, 1);
    }
    for path in sources("src/structures") {
        let text = fs::read_to_string(&path).expect("read");
        add(Rule::BehindTheApi, &name(&path), behind_the_api(&text));
    }
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

/// Counts string literals and names of functions that name no actor. A literal that goes on over
/// several lines is read up to the end of its first line.
fn nameless_actors(text: &str) -> usize {
    let code = || text.lines().filter(|line| comment(line).is_none());
    let literals = code().flat_map(string_literals).filter(|text| is_word_of(text, &NOBODIES));
    let is_riddle = |name: &&str| name.split('_').any(|word| NOBODIES.contains(&word));
    literals.count() + code().filter_map(function_name).filter(is_riddle).count()
}

/// The string literals of a line, without their quotes. Hyphens join words to one, as in the name
/// of a planted bug.
fn string_literals(line: &str) -> Vec<String> {
    let line = line.replace("\\\\", "").replace("\\\"", "").replace("'\"'", "");
    line.split('"').skip(1).step_by(2).map(|text| text.replace('-', "_")).collect()
}

/// The wings of the engine, the highest first. A wing may call and import from those below it.
const WINGS: [&str; 23] = [
    "mod.rs",
    "tasks.rs",
    "close.rs",
    "snapshots",
    "write",
    "scrub.rs",
    "read",
    "resize",
    "byte_mark.rs",
    "stage.rs",
    "deploy",
    "durable",
    "commit",
    "sums.rs",
    "keep.rs",
    "verify.rs",
    "io",
    "plan.rs",
    "companions.rs",
    "turns.rs",
    "superblock.rs",
    "worker.rs",
    "pair",
];

/// The layers that the structures may import from.
const BELOW_STRUCTURES: [&str; 4] = ["structures", "api", "error", "mutant"];

/// Counts what a file of the structures uses besides the public interface.
fn behind_the_api(text: &str) -> usize {
    let is_below = |path: &&String| {
        let layer = path.split("::").next().unwrap_or_default();
        !BELOW_STRUCTURES.contains(&layer)
    };
    let code: Vec<&str> = text.lines().filter(|line| comment(line).is_none()).collect();
    let code = code.join("\n");
    named_paths(&code).iter().filter(is_below).count() + code.matches(".engine()").count()
}

/// A file of the engine, without its tests.
struct Room {
    path: String,
    text: String,
}

fn rooms() -> Vec<Room> {
    let mut rooms = Vec::new();
    for folder in ["src/engine", "src/pair"] {
        for path in sources(folder) {
            let text = fs::read_to_string(&path).expect("read");
            let text = text.split("mod tests {").next().unwrap_or_default().to_owned();
            let path = name(&path).replace("src/engine/", "").replace("src/", "");
            let is_test = path.contains("tests") || path.contains("loom");
            if !is_test {
                rooms.push(Room { path, text });
            }
        }
    }
    rooms
}

/// The lines of the blocks with the methods of one open pair.
fn blocks(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        match line {
            line if line.starts_with("impl") => {
                is_inside = line == "impl Engine {" || line == "impl Pair {";
            }
            "}" => is_inside = false,
            line if is_inside && comment(line).is_none() => lines.push(line),
            _ => {}
        }
    }
    lines
}

/// Calls of methods from one room to another one.
fn calls_between(rooms: &[Room]) -> BTreeSet<(usize, usize)> {
    let mut methods: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (n, room) in rooms.iter().enumerate() {
        for line in blocks(&room.text) {
            if let Some(name) = function_name(line) {
                methods.entry(name).or_default().insert(n);
            }
        }
    }
    let mut calls = BTreeSet::new();
    for (n, room) in rooms.iter().enumerate() {
        // A chain of calls may begin on a line of its own.
        let own: String = blocks(&room.text).iter().map(|line| line.trim()).collect();
        let all: String =
            room.text.lines().filter(|l| comment(l).is_none()).map(str::trim).collect();
        let receivers = [
            (&own, "self."),
            (&own, "Self::"),
            (&all, "engine."),
            (&all, "Engine::"),
            (&all, "Pair::"),
        ];
        for (text, receiver) in receivers {
            for part in text.split(receiver).skip(1) {
                let end = part.find(|c: char| !c.is_alphanumeric() && c != '_');
                let (called, rest) = part.split_at(end.unwrap_or(part.len()));
                if (rest.starts_with('(') || rest.starts_with("::<"))
                    && let Some(of) = methods.get(called)
                {
                    calls.extend(of.iter().filter(|to| **to != n).map(|to| (n, *to)));
                }
            }
        }
    }
    calls
}

/// The place of a room's wing in [`WINGS`].
fn wing(path: &str) -> usize {
    let is_in = |wing: &&str| path == *wing || path.starts_with(&format!("{wing}/"));
    WINGS.iter().position(is_in).unwrap_or_else(|| panic!("{path} is in no wing of WINGS"))
}

/// The paths that a text names after `crate::`, with the groups of imports taken apart.
fn named_paths(text: &str) -> Vec<String> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let path_of = |text: &str| text.chars().take_while(|c| is_path(*c)).collect::<String>();
    let mut paths = Vec::new();
    for part in text.split("crate::").skip(1) {
        let path = path_of(part);
        match part[path.len()..].strip_prefix('{').and_then(|group| group.split_once(';')) {
            // A nested group continues with names, which are in no room of their own.
            Some((group, _)) => {
                let names = group.split([',', '{', '}']).map(|name| path_of(name.trim()));
                paths.extend(names.map(|name| format!("{path}{name}")));
            }
            None => paths.push(path),
        }
    }
    paths
}

/// The rooms that a room imports from.
fn imports_between(rooms: &[Room]) -> BTreeSet<(usize, usize)> {
    let mut imports = BTreeSet::new();
    for (n, room) in rooms.iter().enumerate() {
        for path in named_paths(&room.text) {
            // The longest path of modules that is a room.
            let path = path.strip_prefix("engine::").unwrap_or(&path);
            let words: Vec<&str> = path.split("::").collect();
            let paths = (1..=words.len()).rev().map(|count| words[..count].join("/"));
            let named = |path: String| {
                let names = [format!("{path}.rs"), format!("{path}/mod.rs")];
                rooms.iter().position(|room| names.contains(&room.path))
            };
            if let Some(to) = paths.filter_map(named).next() {
                imports.insert((n, to));
            }
        }
    }
    imports
}

/// Calls and imports that go from a wing of the engine to a higher one.
fn upward_calls() -> Vec<String> {
    let rooms = rooms();
    let all = calls_between(&rooms).into_iter().chain(imports_between(&rooms));
    // The compiler keeps `Pair` from calling operations. It would let a room of `pair` import them.
    let names_engine =
        |room: &&Room| room.path.starts_with("pair") && room.text.contains("crate::engine");
    let mut upward: Vec<String> =
        rooms.iter().filter(names_engine).map(|room| format!("{} -> engine", room.path)).collect();
    let is_upward = |(from, to): &(usize, usize)| wing(&rooms[*to].path) < wing(&rooms[*from].path);
    let say = |(from, to): (usize, usize)| format!("{} -> {}", rooms[from].path, rooms[to].path);
    upward.extend(all.filter(is_upward).map(say));
    upward
}

/// Calls between rooms that call each other in a circle.
fn circular_calls() -> usize {
    let rooms = rooms();
    let calls = calls_between(&rooms);
    let reach: Vec<BTreeSet<usize>> = (0..rooms.len()).map(|n| reachable(n, &calls)).collect();
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

/// The links that the README defines: labels and targets.
fn links_of_readme(text: &str) -> Vec<(&str, &str)> {
    let defined = text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
    defined.collect()
}

/// On GitHub and crates.io a relative link is resolved by the repository. On docs.rs only the
/// definitions of `src/lib.rs` do that, so every link has one there.
#[test]
fn links_of_the_readme_work_in_the_repository_and_on_docs_rs() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("read");
    let (readme, lib) = (read("README.md"), read("src/lib.rs"));
    let links = links_of_readme(&readme);
    assert!(links.len() > 10, "the links are read");
    for (label, target) in &links {
        assert_eq!(label, target, "a label is the path from the root");
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let text = fs::read_to_string(root().join(path));
        let text = text.unwrap_or_else(|e| panic!("README.md links to {path}: {e}"));
        let title = |line: &str| line.trim_start_matches('#').trim().to_lowercase();
        let is_titled =
            |line: &str| line.starts_with('#') && title(line).replace(' ', "-") == anchor;
        assert!(anchor.is_empty() || text.lines().any(is_titled), "{path} has no title {anchor}");
        let absolute = format!(
            "#![doc = concat!(\"[{label}]: \", env!(\"CARGO_PKG_REPOSITORY\"), \"/blob/HEAD/{target}\")]"
        );
        assert!(lib.contains(&absolute), "src/lib.rs lacks the line\n{absolute}");
    }
    for part in readme.split("](").skip(1) {
        let target = part.split(')').next().unwrap_or_default();
        let is_absolute = target.starts_with("https://") || target.starts_with('#');
        assert!(is_absolute, "write [text][{target}] in README.md, and define [{target}]");
    }
    for part in readme.split("][").skip(1) {
        let label = part.split(']').next().unwrap_or_default();
        assert!(links.iter().any(|link| link.0 == label), "README.md does not define [{label}]");
    }
    assert_eq!(lib.matches("/blob/HEAD/").count(), links.len(), "src/lib.rs has other links");
}

/// Pages that host a README show the lines that rustdoc hides: the program that they show does not
/// compile.
#[test]
fn no_program_of_a_document_has_hidden_lines() {
    for path in documents() {
        let text = fs::read_to_string(&path).expect("read");
        for program in text.split("```rust").skip(1) {
            let program = program.split("```").next().unwrap_or_default();
            let is_hidden = |line: &str| line == "#" || line.starts_with("# ");
            assert!(!program.lines().any(is_hidden), "{}: {program}", name(&path));
        }
    }
}

/// The sources that users link, load or run.
const SURFACES: [&str; 6] = [
    "src",
    "crates/capi/src",
    "crates/cli/src",
    "crates/openraft/src",
    "crates/preload/src",
    "crates/sqlite/src",
];

/// Calls that each have one door, and what is behind the door.
const BEHIND_DOORS: [(&str, &str); 6] = [
    ("env::var", "atomic_mmap::variable ignores what the caller of a setuid program sets"),
    ("::getenv", "secure_getenv ignores what the caller of a setuid program sets"),
    ("temp_dir()", "TMPDIR is the caller's of a setuid program: name a folder"),
    ("tempfile::tempfile()", "as temp_dir()"),
    ("tempfile::tempdir()", "as temp_dir()"),
    (".display()", "a terminal obeys what is in a name: use `shown`"),
];

/// The doors, the folder of the documentation's examples, and the planted bugs of tests.
const DOORS: [(&str, &str); 3] = [
    ("src/platform/os/environment.rs", "env::var"),
    ("src/lib.rs", "temp_dir()"),
    ("src/mutant/mod.rs", "env::var"),
];

/// A setuid program obeys no variable of its caller, and no message has control characters. Both
/// hold as long as there is one way to a variable, and one for a name into a message.
#[test]
fn variables_and_names_go_through_their_doors() {
    let mut problems = String::new();
    for path in SURFACES.into_iter().flat_map(sources) {
        let (text, name) = (fs::read_to_string(&path).expect("read"), name(&path));
        if name.ends_with("/tests.rs") || name.contains("/tests/") || name.contains("/testing/") {
            continue;
        }
        let is_test = |line: &&str| line.starts_with("#[cfg(") && line.contains("test");
        let code = text.lines().take_while(|line| !is_test(line));
        for line in code.filter(|line| comment(line).is_none()) {
            for (call, why) in BEHIND_DOORS {
                if line.contains(call) && !DOORS.contains(&(name.as_str(), call)) {
                    problems += &format!("{name}: {call}: {why}\n");
                }
            }
        }
    }
    assert!(problems.is_empty(), "\n{problems}");
}

#[test]
fn every_file_is_tidy() {
    let found = findings();
    let mut problems = String::new();
    for ((rule, name), count) in &found {
        problems += &format!("{rule:?} in {name}: {count}\n");
    }
    assert!(problems.is_empty(), "\n{problems}");
}
