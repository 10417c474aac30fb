//! Whom the files belong to: services, administrators, and other users of a shared folder.

use super::*;
use atomic_mmap::{Distrust, Error};
use common::Snapshot;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

/// A service and a user who is not it.
const SERVICE: u32 = 61_001;
const OTHER: u32 = 61_002;
const GROUP: u32 = 61_003;

fn is_root() -> bool {
    // SAFETY: the call has no precondition.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("not root: skipped");
    }
    is_root
}

/// Becomes a user, for good.
fn become_user(user: u32) {
    // SAFETY: the calls change this process's credentials only; it is a child with one thread of its own.
    let done =
        unsafe { libc::setgroups(0, std::ptr::null()) | libc::setgid(GROUP) | libc::setuid(user) };
    assert_eq!(done, 0, "to become user {user}");
}

/// `WHO does`: opens as a user.
pub fn play(what: &str, path: &Path) {
    let (user, does) = what.split_once(' ').expect("a user and what it does");
    become_user(user.parse().expect("a number"));
    match does {
        "die" => {
            let file = options().open(path).expect("open");
            write_and_sync(&file);
            crash();
        }
        "open" => {
            let file = options().open(path).expect("open");
            assert!(["paid", "more"].contains(&state_of(&file).as_str()));
        }
        does => panic!("{does}"),
    }
}

fn as_user(user: u32, does: &str, path: &Path) {
    run_child(CHILD, &format!("owners {user} {does}"), path);
}

/// A folder that everybody may write to, as /tmp.
fn shared_folder() -> common::Scratch {
    let scratch = common::page_cache().unwrap_or_else(common::ram).scratch();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o1777)).expect("chmod");
    scratch
}

#[test]
fn companions_belong_to_the_owner_of_the_home_file() {
    if !is_root() {
        return;
    }
    for mode in [0o640, 0o600, 0o664] {
        let scratch = shared_folder();
        let path = scratch.file("state.dat");
        as_user(SERVICE, "die", &path);
        drop(options().open(&path).expect("root closes it"));
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        // An administrator runs a tool on it once, and the tool dies.
        died(&path);
        let names = companions_in(scratch.path());
        assert!(!names.is_empty());
        for name in &names {
            let stat = fs::metadata(name).expect("stat");
            let is = (stat.uid(), stat.gid(), stat.mode() & 0o777);
            assert_eq!(is, (SERVICE, GROUP, mode), "{}", name.display());
        }
        as_user(SERVICE, "open", &path.clone());
    }
}

#[test]
fn a_companion_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    let scratch = shared_folder();
    let path = scratch.file("state.dat");
    as_user(SERVICE, "die", &path);
    for name in companions_in(scratch.path()) {
        for planted in [true, false] {
            let owner = if planted { OTHER } else { SERVICE };
            chown(&name, Some(owner), None).expect("chown");
            let before = Snapshot::of(scratch.path());
            if planted {
                let error = options().open(&path).expect_err("planted");
                let Error::Untrusted { why, .. } = &error else { panic!("{error:?}") };
                let expected = Distrust::IsOwnedBy { owner: OTHER, home_owner: SERVICE };
                assert_eq!(*why, expected, "{error}");
                before.assert_unchanged(scratch.path(), "planted");
            }
        }
    }
    assert_eq!(state_of(&options().open(&path).expect("its own again")), "paid");
}

/// A leftover of another user stands in the way of no new file, though it has its inode number.
#[test]
fn a_leftover_of_another_user_is_left_alone() {
    if !is_root() {
        return;
    }
    let scratch = shared_folder();
    let path = scratch.file("state.dat");
    fs::write(&path, b"").expect("write");
    chown(&path, Some(SERVICE), None).expect("chown");
    let inode = fs::metadata(&path).expect("stat").ino();
    let leftover = scratch.file(&format!(".atomic-mmap.{inode:x}"));
    fs::write(&leftover, b"another user's").expect("write");
    chown(&leftover, Some(OTHER), None).expect("chown");
    fs::set_permissions(&leftover, fs::Permissions::from_mode(0o600)).expect("chmod");
    as_user(SERVICE, "die", &path);
    as_user(SERVICE, "open", &path);
    assert_eq!(fs::read(&leftover).expect("read"), b"another user's");
}
