//! The integration tests, as one binary.
//!
//! "Ours" is a database on the VFS of this crate, and "stock" one on the VFS that SQLite has.

mod calls;
mod common;
mod connections;
#[path = "../../../../tests/it/common/filter.rs"]
mod filter;
mod kill;
mod marks;
mod model;
mod readers;
mod space;
mod stock;
mod syncs;

/// Runs the part of a test that belongs in a process of its own: see [`common::child`].
#[test]
fn child() {
    let Some(role) = common::Role::of_this_process() else { return };
    match role.name.as_str() {
        "writer" => kill::write(&role),
        "first" => kill::write_first(&role),
        "opener" => connections::open_and_say(&role),
        "syncs fail" => syncs::commit_while_syncs_fail(&role),
        "removals fail" => syncs::close_while_removals_fail(&role),
        "service" => marks::serve(&role),
        "victim" => stock::leave_hot_journal(&role),
        other => panic!("no role {other}"),
    }
    // Without the words of the test harness.
    std::process::exit(0);
}
