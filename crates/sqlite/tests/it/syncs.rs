//! Failed syncs of a disk, and removals that the system refuses.

use crate::common::{Role, Scratch, assert_whole, child, lines, one, ours_with, run, stock};
use crate::filter;
use rusqlite::{Connection, ffi};
use std::ffi::{CStr, c_char, c_int, c_void};

/// SQLITE_IOERR_FSYNC.
const SYNC_FAILED: i32 = 10 | 4 << 8;

fn extended_code(x: &Connection, sql: &str) -> i32 {
    match x.execute_batch(sql).expect_err("no disk answers") {
        rusqlite::Error::SqliteFailure(error, _) => error.extended_code,
        other => panic!("another error: {other}"),
    }
}

/// The role of a process that loses its disk in the middle of its work.
pub fn commit_while_syncs_fail(role: &Role) {
    let x = ours_with(&role.path, &role.parameters);
    run(&x, "CREATE TABLE t (a INTEGER PRIMARY KEY, b); INSERT INTO t(b) VALUES ('old')");
    let insert = "INSERT INTO t(b) VALUES ('new')";
    // Only the syncs of this thread fail.
    let fail = move || {
        let syncs = [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_pwritev2];
        filter::answer(&syncs.map(|call| (call, libc::EIO))).map(|()| {
            assert_eq!(extended_code(&x, insert), SYNC_FAILED);
            x
        })
    };
    match std::thread::spawn(fail).join().expect("no panic") {
        Ok(x) => {
            assert_eq!(extended_code(&x, insert), SYNC_FAILED);
            println!(">failed twice");
        }
        Err(why) => println!(">skipped: no filter of calls: {why}"),
    }
}

/// The failed sync is an error of its commit. Later commits fail, too, although the disk answers
/// again: a sync that succeeds tells nothing of the bytes that the failed one was about.
#[test]
fn a_failed_sync_is_an_error_until_the_database_is_opened_again() {
    let scratch = Scratch::new();
    let path = scratch.path("x.db");
    let mut failing = child("syncs fail", &path, 0, "&medium=page-cache");
    let said: Vec<String> = lines(&mut failing).collect();
    assert!(failing.wait().expect("wait").success(), "{said:?}");
    if said.iter().any(|line| line.contains("skipped")) {
        eprintln!("{said:?}");
        return;
    }
    assert_eq!(said, ["failed twice"]);
    let x = ours_with(&path, "&medium=page-cache");
    assert_whole(&x);
    let rows = one(&x, "SELECT group_concat(b) FROM t");
    assert!(["old", "old,new"].contains(&rows.as_str()), "{rows}");
    run(&x, "INSERT INTO t(b) VALUES ('last')");
    x.close().expect("close");
    assert_eq!(one(&stock(&path), "SELECT group_concat(b) FROM t"), format!("{rows},last"));
}

extern "C" fn say(_: *mut c_void, code: c_int, message: *const c_char) {
    // SAFETY: a text of SQLite.
    let message = unsafe { CStr::from_ptr(message) };
    println!(">{code} {}", message.to_string_lossy());
}

/// The role of a process that may not remove the companions when it closes its database.
pub fn close_while_removals_fail(role: &Role) {
    // SAFETY: SQLite has not begun in this process. The function stays.
    let set = unsafe {
        let say: extern "C" fn(*mut c_void, c_int, *const c_char) = say;
        ffi::sqlite3_config(ffi::SQLITE_CONFIG_LOG, say, std::ptr::null_mut::<c_void>())
    };
    assert_eq!(set, ffi::SQLITE_OK);
    let x = ours_with(&role.path, &role.parameters);
    run(&x, "CREATE TABLE t (a); INSERT INTO t VALUES ('kept')");
    match filter::answer(&[(libc::SYS_unlinkat, libc::EACCES)]) {
        Ok(()) => {
            x.close().expect("close");
            println!(">closed");
        }
        Err(why) => println!(">skipped: no filter of calls: {why}"),
    }
}

/// A close that left the companions said nothing.
#[test]
fn a_close_that_may_not_remove_the_companions_says_so_in_the_log() {
    let scratch = Scratch::new();
    let path = scratch.path("x.db");
    let mut closing = child("removals fail", &path, 0, "");
    let said: Vec<String> = lines(&mut closing).collect();
    assert!(closing.wait().expect("wait").success(), "{said:?}");
    if said.iter().any(|line| line.contains("skipped")) {
        eprintln!("{said:?}");
        return;
    }
    let [logged, end] = &said[..] else { panic!("{said:?}") };
    let expected = "/x.db is closed, and complete as it is; its companions stay: ";
    assert!(logged.starts_with("28 atomic-mmap: /") && logged.contains(expected), "{said:?}");
    assert_eq!(end, "closed");
    assert_eq!(one(&stock(&path), "SELECT a FROM t"), "kept");
}
