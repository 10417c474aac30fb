//! Messages for users of other interfaces than Rust's.
//!
//! Owns: the words by which the packages beside this one say what a message advises.
//!
//! Invariant: each name of a Rust call or option in a message has a row here.
//!
//! May import: nothing from the crate.

/// The interface that a reader of messages uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interface {
    /// The command `atomic-mmap`.
    Command,
    /// The calls of `atomic_mmap.h`.
    C,
}

/// Words of messages, and what they are for the command and in C.
const WORDS: [[&str; 3]; 15] = [
    [
        "open with OnMismatch::Discard",
        "run `atomic-mmap repair --discard`",
        "open with ATO_MISMATCH_DISCARD",
    ],
    [
        "open with OnMismatch::Trust",
        "run `atomic-mmap repair --trust`",
        "open with ATO_MISMATCH_TRUST",
    ],
    ["or with OnMismatch::Trust", "or with `--trust`", "or with ATO_MISMATCH_TRUST"],
    ["closed with CloseMode::Spatial", "closed completely", "closed with ATO_CLOSE_SPATIAL"],
    ["grow the file with set_len first", "grow the file first", "grow the file with ato_set_len"],
    ["share the handle with try_clone", "share its handle", "share the handle"],
    ["open it without Options::read_only", "open it for writing", "open it without read_only"],
    ["Options::max_len", "--max-len", "max_len of ato_options"],
    ["Options::reflection_dir", "--reflection-dir", "reflection_dir of ato_options"],
    [
        "Options::allow_any_file_system(true)",
        "--allow-any-file-system",
        "any_file_system of ato_options",
    ],
    [
        "what Options asks of a thread: sync_every, auto_snapshots, scrub, deploy_idle",
        "what asks for a thread: sync_every, auto_snapshots, scrub, deploy_idle",
        "what ato_options asks of a thread: sync_every_ms, scrub_rate, deploy_idle_ms",
    ],
    ["remove the cause and call sync", "remove the cause", "remove the cause and call ato_sync"],
    ["call Roots::log again", "open it again", "open it again"],
    [
        "drop every handle and open the file again to recover",
        "run the command again, which recovers the file",
        "close every handle and open the file again to recover",
    ],
    ["use a newer version", "use a newer atomic-mmap", "use a newer version"],
];

/// Returns a message as users of the interface read it.
pub fn in_words_of(interface: Interface, message: &str) -> String {
    WORDS.iter().fold(message.to_owned(), |said, [rust, command, c]| {
        said.replace(rust, if interface == Interface::C { c } else { command })
    })
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    /// All messages of this crate, with the code around them.
    const SOURCES: [&str; 7] = [
        include_str!("advice.rs"),
        include_str!("distrust.rs"),
        include_str!("mismatch.rs"),
        include_str!("mod.rs"),
        include_str!("snapshot.rs"),
        include_str!("stream.rs"),
        include_str!("structure.rs"),
    ];

    /// Returns a source without comments, and with each text in one line.
    fn joined(source: &str) -> String {
        let lines = source.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        lines.map(|line| line.strip_suffix('\\').unwrap_or(line)).collect()
    }

    fn names_rust(text: &str) -> bool {
        let calls = ["Options", "OnMismatch::", "CloseMode::", "Roots::", "try_clone", " set_len"];
        calls.iter().any(|call| text.contains(call)) || text.contains(" call sync")
    }

    /// The command advised `OnMismatch::Discard`, and the interface of C `try_clone`.
    #[test]
    fn no_message_names_a_call_of_rust_to_users_of_the_command_and_of_c() {
        for text in SOURCES.map(joined) {
            for interface in [Interface::Command, Interface::C] {
                let said = in_words_of(interface, &text);
                let left = said.split('"').find(|text| names_rust(text));
                assert_eq!(left, None, "{interface:?}");
            }
        }
    }

    #[test]
    fn each_row_is_of_a_message() {
        let all = SOURCES.map(joined).concat();
        for [row, ..] in WORDS {
            assert!(all.contains(row), "{row}");
        }
    }
}
