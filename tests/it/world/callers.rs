//! Tests programs that have more rights than their callers.

use super::*;
use crate::common;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A user that owns nothing.
const CALLER: u32 = 65_534;

/// Makes a file, as a setuid program of root's does.
pub fn play(path: &Path) {
    // SAFETY: the calls have no precondition.
    let (real, effective) = unsafe { (libc::getuid(), libc::geteuid()) };
    if real == effective {
        return eprintln!("programs get no rights of their owners here: skipped");
    }
    let file = AtomicMappedFile::options().create(true).len(LEN).open(path).expect("open");
    write_and_sync(&file);
    let is_found =
        file.medium() != atomic_mmap::Medium::Dax || common::persistent_folder().is_some();
    assert!(is_found, "the caller's medium");
    assert_eq!(file.verify(0..LEN).expect("verify").pages, 0, "the caller's page sums");
}

/// A setuid program took the medium, and thereby what a sync promises, from the environment of its
/// caller.
#[test]
fn a_setuid_program_obeys_no_variable_of_its_caller() {
    if !owners::is_root() {
        return;
    }
    let scratch = common::ram().scratch();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let program = scratch.file("program");
    fs::copy(std::env::current_exe().expect("the tests' own binary"), &program).expect("copy");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("chmod");
    for (name, medium, integrity) in [("a", "dax", "on-read"), ("b", "tape", "sometimes")] {
        let plain = common::child(CHILD, "callers", scratch.file(name));
        let mut child = Command::new(&program);
        child.args(plain.get_args()).uid(CALLER).gid(CALLER);
        child.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        child.env(atomic_mmap::MEDIUM_VARIABLE, medium);
        child.env(atomic_mmap::INTEGRITY_VARIABLE, integrity);
        common::run_test(&mut child);
    }
}
