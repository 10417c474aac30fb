//! Tests the owners of the files: services, administrators, and other users of a shared folder.

use super::*;
use crate::common::{self, Snapshot};
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{Distrust, Error};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

/// The service that owns the home files. `OTHER` is another user.
const SERVICE: u32 = 61_001;
const OTHER: u32 = 61_002;
const GROUP: u32 = 61_003;
/// A user in the service's group, and in no other role.
const MEMBER: u32 = 61_004;
/// A user with an entry in the access control list, in the other group.
const NAMED: u32 = 61_005;
/// A group without the service.
const OTHER_GROUP: u32 = 61_006;

const ACCESS_LIST: &str = "system.posix_acl_access";
const DEFAULT_LIST: &str = "system.posix_acl_default";

pub fn is_root() -> bool {
    // SAFETY: the call has no precondition.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("not root: skipped");
    }
    is_root
}

/// Becomes a user for good.
fn become_user(user: u32) {
    let group = if user == NAMED { OTHER_GROUP } else { GROUP };
    // SAFETY: the calls change the credentials of this process only, a child with one thread.
    let done =
        unsafe { libc::setgroups(0, std::ptr::null()) | libc::setgid(group) | libc::setuid(user) };
    assert_eq!(done, 0, "to become user {user}");
}

/// Opens as a user. The format of `what` is `UID does`.
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
        "read" => drop(fs::File::open(path).expect("it may")),
        "not read" => {
            let error = fs::File::open(path).expect_err("more than the home file gives");
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        }
        does => panic!("{does}"),
    }
}

fn as_user(user: u32, does: &str, path: &Path) {
    run_child(CHILD, &format!("owners {user} {does}"), path);
}

/// Makes a folder that all users may write to, like /tmp.
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
        // An administrator runs a tool on the file once, and the tool crashes.
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

/// Links were read by the crate itself, so the kernel's rule for links in shared folders
/// (`fs.protected_symlinks`) never applied: a user of /tmp could lead root to any file.
#[test]
fn a_link_of_another_user_in_a_shared_folder_is_not_followed() {
    if !is_root() {
        return;
    }
    let scratch = shared_folder();
    let (path, folder) = (scratch.file("to"), scratch.file("folder"));
    fs::create_dir(scratch.file("own")).expect("a folder");
    fs::write(scratch.file("own/state.dat"), b"root's").expect("write");
    symlink("own/state.dat", &path).expect("a link");
    symlink("own", &folder).expect("a link");
    let opens = || {
        let opened = options().open(&path).map(drop);
        let looked = options().inspect(&path).map(drop);
        assert_eq!(opened.is_ok(), looked.is_ok());
        opened
    };
    opens().expect("root's own link");
    lchown(&path, Some(OTHER), None).expect("chown");
    let error = opens().expect_err("another user's link");
    assert!(matches!(error, Error::NotWritable { .. }), "{error}");
    assert!(error.to_string().contains("the link belongs to user 61002"), "{error}");
    assert_eq!(fs::read(scratch.file("own/state.dat")).expect("read"), b"root's");
    // As for `open(2)`, the rule is one for links at the end of a path.
    lchown(&folder, Some(OTHER), None).expect("chown");
    options().open(folder.join("state.dat")).map(drop).expect("a link on the way");
    chown(scratch.path(), Some(OTHER), None).expect("chown");
    opens().expect("the folder's owner has made the link");
    chown(scratch.path(), Some(SERVICE), None).expect("chown");
    opens().expect_err("another user's link");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o1775)).expect("chmod");
    opens().expect("a folder of few users");
}

/// The owner of a home file was asked by its name, so a user that had this name for a moment
/// was taken for the owner: that user's file kept the stream, and could change it.
#[test]
fn a_stream_is_kept_in_no_file_of_a_user_that_had_the_name_for_a_moment() {
    /// At the first read another user has the names of the home file and of the spool, and at the
    /// next one the name of the spool alone.
    struct Taken<'a>(u32, &'a Path, &'a [u8]);
    impl std::io::Read for Taken<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            self.0 += 1;
            let spool = self.1.with_file_name(".atomic-mmap-import-new");
            match self.0 {
                1 => {
                    for name in [self.1, &spool] {
                        fs::write(name, b"")?;
                        chown(name, Some(OTHER), None)?;
                    }
                }
                2 => fs::remove_file(self.1)?,
                _ => {}
            }
            let len = to.len().min(400);
            self.2.read(&mut to[..len])
        }
    }
    if !is_root() {
        return;
    }
    let scratch = shared_folder();
    let file = options().open(scratch.file("state.dat")).expect("open");
    write_and_sync(&file);
    file.snapshot("a").expect("seal");
    let mut stream = Vec::new();
    file.export(None, "a", &mut stream).expect("export");
    let path = scratch.file("new");
    let (made, _) = options().import(&path, Taken(0, &path, &stream)).expect("a new file");
    assert_eq!(state_of(&made), "paid");
    let spool = scratch.file(".atomic-mmap-import-new");
    assert_eq!(fs::read(&spool).expect("read"), b"", "no byte of the stream");
    assert_eq!(fs::metadata(&spool).expect("stat").uid(), OTHER);
}

/// All names that companions have by the home file's number can be foreseen, and a link at one of
/// them was an error.
#[test]
fn names_that_another_user_has_taken_keep_no_file_from_opening() {
    if !is_root() || !places::disk_keeps_marks() {
        return;
    }
    for suffixes in [&[""][..], &[".journal"], &[".snapshots"], &[".new"]] {
        for is_link in [true, false] {
            let scratch = shared_folder();
            let path = scratch.file("state.dat");
            fs::write(&path, vec![0; LEN as usize]).expect("write");
            let told = fs::metadata(&path).expect("stat");
            let born = told.created().expect("born").duration_since(std::time::UNIX_EPOCH);
            let born = born.expect("after 1970");
            let first = format!(".atomic-mmap.{:x}", told.ino());
            let second = format!("{first}-{:x}.{:x}", born.as_secs(), born.subsec_nanos());
            let further = (2..16).map(|n| format!("{second}-{n:x}"));
            for name in [first, second.clone()].into_iter().chain(further) {
                for suffix in suffixes {
                    let name = scratch.file(&format!("{name}{suffix}"));
                    match is_link {
                        true => symlink("victim", &name).expect("a link"),
                        false => fs::write(&name, b"another user's").expect("write"),
                    }
                    lchown(&name, Some(OTHER), None).expect("chown");
                }
            }
            let open = || options().open(&path).expect("open under another name");
            let file = open();
            write_and_sync(&file);
            file.snapshot("a").expect("seal");
            file.close(CloseMode::Fast).expect("close");
            died(&path);
            assert!(["paid", "more"].contains(&state_of(&open()).as_str()));
            let look = options().inspect(&path).expect("inspect");
            assert_eq!(look.snapshots.len(), 1);
            assert!(!scratch.file("victim").exists());
        }
    }
}

/// A leftover of another user must not hinder a new file, even with its inode number.
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

/// Returns a list in the kernel's format: a version, then tag, rights and number of each entry.
fn list(owner: u16, named: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [
        (0x01, owner, NOBODY),
        (0x02, named, NAMED),
        (0x04, group, NOBODY),
        (0x10, mask, NOBODY),
        (0x20, other, NOBODY),
    ];
    let entry = |(tag, rights, number): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &number.to_le_bytes()].concat()
    };
    [2_u32.to_le_bytes().to_vec()].into_iter().chain(entries.map(entry)).flatten().collect()
}

fn list_of(path: &Path) -> Option<Vec<u8>> {
    let file = fs::File::open(path).expect("open").into();
    Recorder::new().platform().get_xattr(&file, ACCESS_LIST).expect("read the list")
}

/// Sets the list. Returns `false`, with a message, if the file system keeps no lists.
fn set_list(path: &Path, name: &str, list: &[u8]) -> bool {
    let file = fs::File::open(path).expect("open").into();
    let is_set = Recorder::new().platform().set_xattr(&file, name, list).expect("set the list");
    if !is_set {
        eprintln!("no access control lists here: skipped");
    }
    is_set
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).expect("stat").mode() & 0o777
}

/// Makes a home file of the service with these permissions and this group.
fn home_of_service(scratch: &common::Scratch, mode: u32, group: u32) -> PathBuf {
    let path = scratch.file("state.dat");
    fs::write(&path, b"").expect("write");
    chown(&path, Some(SERVICE), Some(group)).expect("chown");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
    path
}

/// Returns the files made for the home file: its companions, and a copy of it.
fn made_beside(scratch: &common::Scratch) -> Vec<PathBuf> {
    let mut made = companions_in(scratch.path());
    assert!(!made.is_empty());
    made.extend(Some(scratch.file("copy.dat")).filter(|copy| copy.exists()));
    made
}

/// With a list, the group bits of the mode are the mask of the list. A member of the group could
/// read the companions of a file that the group could not read.
#[test]
fn companions_have_the_access_list_of_the_home_file() {
    if !is_root() {
        return;
    }
    let scratch = shared_folder();
    let path = home_of_service(&scratch, 0o600, GROUP);
    let of_home = list(6, 6, 0, 6, 0);
    if !set_list(&path, ACCESS_LIST, &of_home) {
        return;
    }
    assert_eq!(mode_of(&path), 0o660, "the mask");
    let file = options().open(&path).expect("an administrator opens it");
    write_and_sync(&file);
    file.copy_to(scratch.file("copy.dat")).expect("copy");
    std::mem::forget(file);
    as_user(MEMBER, "not read", &path);
    for made in made_beside(&scratch) {
        let what = made.display();
        assert_eq!(list_of(&made).as_ref(), Some(&of_home), "{what}");
        assert_eq!(mode_of(&made), 0o660, "{what}");
        as_user(MEMBER, "not read", &made);
        as_user(NAMED, "read", &made);
        as_user(SERVICE, "read", &made);
    }
}

#[test]
fn a_default_list_of_the_folder_gives_no_more_than_the_home_file() {
    if !is_root() {
        return;
    }
    let scratch = shared_folder();
    let path = home_of_service(&scratch, 0o640, GROUP);
    if !set_list(scratch.path(), DEFAULT_LIST, &list(6, 6, 6, 6, 6)) {
        return;
    }
    as_user(NAMED, "not read", &path);
    let file = options().open(&path).expect("open");
    write_and_sync(&file);
    file.copy_to(scratch.file("copy.dat")).expect("copy");
    std::mem::forget(file);
    for made in made_beside(&scratch) {
        let what = made.display();
        assert_eq!((list_of(&made), mode_of(&made)), (None, 0o640), "{what}");
        as_user(NAMED, "not read", &made);
        as_user(MEMBER, "read", &made);
    }
}

/// The service may not give its companions to the group of its file, so they have the service's own
/// group.
#[test]
fn a_companion_of_another_group_gives_that_group_nothing() {
    if !is_root() {
        return;
    }
    let with_list = Some(list(6, 4, 4, 4, 0));
    for (mode, of_home, expected) in [
        (0o660, None, 0o600),
        // Other users get no more than the home file's group: members of that group are among them.
        (0o664, None, 0o604),
        (0o604, None, 0o600),
        // The group entry of a list means the home file's group.
        (0o600, with_list, 0o600),
    ] {
        let scratch = shared_folder();
        let path = home_of_service(&scratch, mode, OTHER_GROUP);
        if let Some(of_home) = &of_home
            && !set_list(&path, ACCESS_LIST, of_home)
        {
            continue;
        }
        as_user(SERVICE, "die", &path);
        for made in made_beside(&scratch) {
            let stat = fs::metadata(&made).expect("stat");
            let is = (stat.uid(), stat.gid(), stat.mode() & 0o777, list_of(&made));
            assert_eq!(is, (SERVICE, GROUP, expected, None), "{mode:o}: {}", made.display());
        }
        as_user(SERVICE, "open", &path);
    }
}

/// Checks companions on a file system without lists, with a home file that has one.
pub fn companions_where_no_list_is_kept(base: &Path) {
    let [home, companions] = ["home", "companions"].map(|name| base.join(name));
    for (kind, folder) in [("tmpfs", &home), ("ramfs", &companions)] {
        fs::create_dir(folder).expect("a folder");
        common::run(std::process::Command::new("mount").args(["-t", kind, kind]).arg(folder));
    }
    let path = home.join("state.dat");
    fs::write(&path, b"").expect("write");
    if !set_list(&path, ACCESS_LIST, &list(6, 6, 0, 6, 0)) {
        return;
    }
    let file = options().reflection_dir(&companions).open(&path).expect("open");
    write_and_sync(&file);
    let made = companions_in(&companions);
    assert!(!made.is_empty());
    for made in made {
        assert_eq!(mode_of(&made), 0o600, "{}", made.display());
    }
}
