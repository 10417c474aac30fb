//! Programs under the preload, as one binary.
//!
//! The library is built beside this binary. Tests with a program that is not installed say that
//! they are skipped. `lab/preload` runs more: fsx, every engine of fio, more kills.

mod calls;
mod children;
mod common;
mod deployment;
mod faults;
mod kill;
mod mapping;
mod model;
mod others;
mod outside;
mod programs;
mod secure;
mod snapshots;

/// Runs the part of a test that belongs under the preload: see [`common::child`].
#[test]
fn child() {
    let Some((name, path, seed)) = common::role() else { return };
    match name.as_str() {
        "model" => model::compare(&path, seed),
        "much" => deployment::write_much(&path),
        "writer" => kill::write(&path, seed),
        other => panic!("no role {other}"),
    }
    // Without the words of the test harness.
    std::process::exit(0);
}
