//! Failed syncs of a disk.

use crate::common::{Role, Scratch, assert_whole, child, lines, one, ours_with, run, stock};
use rusqlite::Connection;
use std::io;

/// SQLITE_IOERR_FSYNC.
const SYNC_FAILED: i32 = 10 | 4 << 8;

/// Lets `fsync`, `fdatasync` and durable writes of this thread fail from now on. Returns an error
/// where the kernel has no filters of calls.
fn fail_syncs() -> io::Result<()> {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        // The call's number comes first in `seccomp_data`.
        step(LOAD_NUMBER, 0, 0, 0),
        step(IF_EQUAL, 3, 0, libc::SYS_fsync as u32),
        step(IF_EQUAL, 2, 0, libc::SYS_fdatasync as u32),
        step(IF_EQUAL, 1, 0, libc::SYS_pwritev2 as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: all arguments are numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let filter = libc::SECCOMP_MODE_FILTER;
    // SAFETY: a program that the kernel copies and checks.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program, 0, 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

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
    if let Err(why) = fail_syncs() {
        println!(">skipped: no filter of calls: {why}");
        return;
    }
    for _ in 0..2 {
        assert_eq!(extended_code(&x, "INSERT INTO t(b) VALUES ('new')"), SYNC_FAILED);
    }
    println!(">failed twice");
}

/// The first failed sync is an error of the commit. Every later commit fails, too: a sync that
/// succeeds after a failed one tells nothing of the bytes that the failed one was about.
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
