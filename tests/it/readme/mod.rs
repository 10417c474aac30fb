//! Tests the README's quickstart as a user pastes it.

use crate::common::{self, role, run_child};

/// The README's lines and no others: the test compares them.
mod pasted {
    include!("quickstart.rs");

    pub fn run() -> Result<(), Box<dyn std::error::Error>> {
        main()
    }
}

const CHILD: &str = concat!(module_path!(), "::plays_the_pasted_program_if_it_is_one");

#[test]
fn plays_the_pasted_program_if_it_is_one() {
    if let Some((_, folder)) = role() {
        std::env::set_current_dir(folder).expect("the user's folder");
        pasted::run().expect("the quickstart");
    }
}

/// The quickstart was part of a `main`, and had lines that only rustdoc hides. Its second run
/// found the file of the first, and failed.
#[test]
fn the_quickstart_runs_as_it_is_pasted_and_runs_again() {
    let shown = include_str!("../../../README.md").split_once("## Quickstart").expect("it").1;
    let shown = shown.split_once("```rust,no_run\n").and_then(|(_, code)| code.split_once("```\n"));
    assert_eq!(shown.expect("a program").0, include_str!("quickstart.rs"));

    let scratch = common::ram().scratch();
    for run in 1..=2 {
        let said = run_child(CHILD, "user", scratch.path());
        assert!(said.contains(&format!("run {run}\n")), "{said}");
    }
}
