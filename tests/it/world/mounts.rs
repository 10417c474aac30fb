//! Volumes that come and go under a running machine: remounts, other devices, snapshots,
//! roll-backs.
//!
//! Each test runs in a mount namespace of its own, on images that are mounted by loop devices.

use super::*;
use crate::common::{self, child_with_mounts, run, run_test};
use atomic_mmap::{Error, Medium, Mismatch, OnMismatch, Survives};
use std::fs::{self, File};
use std::process::Command;

/// Runs a test of this file as root with mounts, or says that it is skipped.
pub fn check(test: &str) {
    let scratch = common::page_cache().unwrap_or_else(common::ram).scratch();
    let role = format!("mounts {test}");
    if let Some(mut child) = child_with_mounts(CHILD, &role, scratch.path()) {
        print!("{}", run_test(&mut child));
    }
}

/// The tests by their names.
pub fn play(test: &str, base: &Path) {
    match test {
        "remount" => remounted(base),
        "lost" => lost_what_was_not_synced(base),
        "snapshot" => snapshot_beside_the_original(base),
        "two" => two_volumes_with_one_reflection_folder(base),
        "alone" => mounted_alone(base),
        "bind" => bind_mounts(base),
        "back" => rolled_back(base),
        "moved" => mounted_elsewhere(base),
        test if test.starts_with("doubts ") => super::doubts::play(&test["doubts ".len()..], base),
        "no lists" => owners::companions_where_no_list_is_kept(base),
        test => panic!("{test}"),
    }
}

/// A file system in an image file.
pub struct Volume {
    kind: &'static str,
    pub image: PathBuf,
    pub folder: PathBuf,
}

impl Volume {
    /// `None`: its tools are not installed here.
    pub fn new(kind: &'static str, base: &Path, name: &str) -> Option<Volume> {
        let volume =
            Volume { kind, image: base.join(format!("{name}.img")), folder: base.join(name) };
        fs::create_dir_all(&volume.folder).expect("a folder");
        File::create(&volume.image).expect("an image").set_len(400 << 20).expect("its length");
        let (tool, force) = match kind {
            "ext4" => ("mkfs.ext4", "-F"),
            "ext4-128" => ("mkfs.ext4", "-F"),
            "xfs" => ("mkfs.xfs", "-f"),
            _ => ("mkfs.btrfs", "-f"),
        };
        let mut make = Command::new(tool);
        make.args(["-q", force]).arg(&volume.image);
        if kind == "ext4-128" {
            // Too small for times of birth.
            make.args(["-I", "128"]);
        }
        match make.output() {
            Ok(output) => assert!(output.status.success(), "{tool}: {output:?}"),
            Err(e) => {
                println!("{tool}: {e}: skipped");
                return None;
            }
        }
        volume.mount();
        Some(volume)
    }

    fn each(base: &Path, name: &str) -> Vec<Volume> {
        let kinds = ["ext4", "ext4-128", "xfs", "btrfs"];
        kinds.iter().filter_map(|kind| Volume::new(kind, base, &format!("{name}-{kind}"))).collect()
    }

    fn mount(&self) {
        self.mount_image(&self.image, &self.folder);
    }

    pub fn mount_image(&self, image: &Path, folder: &Path) {
        // A snapshot has the uuid of its volume.
        let how = if self.kind == "xfs" { "loop,nouuid" } else { "loop" };
        run(Command::new("mount").args(["-o", how]).arg(image).arg(folder));
    }

    /// Unmounts the volume, and mounts it at `folder` from another loop device.
    pub fn move_to_another_device(&self, folder: &Path) {
        // Attached beside the one that it has: other tests take and leave devices meanwhile, so
        // the next free one might be the same again.
        let mut attach = Command::new("losetup");
        let another = run(attach.args(["--find", "--show"]).arg(&self.image));
        self.unmount();
        run(Command::new("mount").arg(another.trim()).arg(folder));
        // Takes effect when the volume is unmounted.
        run(Command::new("losetup").args(["--detach", another.trim()]));
    }

    pub fn unmount(&self) {
        unmount(&self.folder);
    }

    pub fn state(&self) -> PathBuf {
        self.folder.join("state.dat")
    }
}

pub fn unmount(folder: &Path) {
    // A process that has just died may hold its files for a moment.
    for _ in 0..100 {
        if Command::new("umount").arg(folder).output().expect("umount").status.success() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    run(Command::new("umount").arg(folder));
}

/// A volume that was unmounted and attached again has another device number, perhaps, and a page
/// cache of its own in any case.
fn remounted(base: &Path) {
    for (end, leave) in ENDS {
        for volume in Volume::each(base, end) {
            let what = format!("{end} on {}", volume.kind);
            // Takes the first loop device, so that the volume gets another one afterwards.
            leave(&volume.state());
            volume.unmount();
            let other = Volume::new("ext4", base, &format!("{end}-{}-in-the-way", volume.kind));
            volume.mount();
            let file = options().open(volume.state()).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(file.medium(), Medium::PageCache, "{what}");
            assert_eq!(state_of(&file), "paid", "{what}");
            drop(file);
            other.iter().for_each(Volume::unmount);
            volume.unmount();
        }
    }
}

#[test]
fn a_volume_that_was_mounted_anew_opens_at_its_last_durable_point() {
    check("remount");
}

/// The boot goes on, and the disk is as it was when its power went: with what was synced, and with
/// a part of what the kernel had written back since.
fn lost_what_was_not_synced(base: &Path) {
    for volume in Volume::each(base, "lost") {
        died(&volume.state());
        let reflection = companions_in(&volume.folder).remove(0);
        // Written back: all of the reflection file, and nothing of the home file.
        File::open(&reflection).expect("open").sync_all().expect("sync");
        let disk = base.join(format!("{}.disk", volume.kind));
        run(Command::new("cp").arg("--sparse=always").arg(&volume.image).arg(&disk));
        volume.unmount();
        fs::rename(&disk, &volume.image).expect("the disk comes back");
        volume.mount();
        let file =
            options().open(volume.state()).unwrap_or_else(|e| panic!("{}: {e}", volume.kind));
        assert_eq!(state_of(&file), "paid", "{}", volume.kind);
        drop(file);
        volume.unmount();
    }
}

#[test]
fn a_volume_that_lost_what_was_not_synced_is_not_believed_in_the_same_boot() {
    check("lost");
}

fn snapshot_beside_the_original(base: &Path) {
    for volume in Volume::each(base, "original") {
        if volume.kind == "btrfs" {
            // The kernel mounts no two btrfs of one uuid; subvolumes are its snapshots.
            subvolumes(&volume);
            continue;
        }
        closed_fast(&volume.state());
        run(Command::new("fsfreeze").arg("-f").arg(&volume.folder));
        let image = base.join(format!("{}.snapshot", volume.kind));
        let copied =
            Command::new("cp").arg("--sparse=always").arg(&volume.image).arg(&image).status();
        run(Command::new("fsfreeze").arg("-u").arg(&volume.folder));
        assert!(copied.is_ok_and(|status| status.success()));
        let beside = base.join(format!("beside-{}", volume.kind));
        fs::create_dir_all(&beside).expect("a folder");
        volume.mount_image(&image, &beside);
        both_are_themselves(&volume.state(), &beside.join("state.dat"));
        unmount(&beside);
        volume.unmount();
    }
}

/// Two files with one inode number, one birth and one uuid, on two volumes.
fn both_are_themselves(original: &Path, snapshot: &Path) {
    let one = options().open(original).expect("the original");
    let other = options().open(snapshot).expect("the snapshot beside it");
    assert_eq!((state_of(&one), state_of(&other)), ("paid".into(), "paid".into()));
    write_more(&one);
    assert_eq!((state_of(&one), state_of(&other)), ("more".into(), "paid".into()));
}

fn subvolumes(volume: &Volume) {
    let (one, two) = (volume.folder.join("one"), volume.folder.join("two"));
    run(Command::new("btrfs").args(["subvolume", "create"]).arg(&one));
    died(&one.join("state.dat"));
    run(Command::new("btrfs").args(["subvolume", "snapshot"]).arg(&one).arg(&two));
    let file = options().open(two.join("state.dat")).expect("the snapshot");
    // The files that the dead process had stored to are in the snapshot as far as btrfs wrote them
    // back.
    let state = state_of(&file);
    assert!(state == "paid" || state == "more", "{state}");
    drop(file);
    volume.unmount();
    volume.mount();
    let file = options().open(one.join("state.dat")).expect("a subvolume mounted anew");
    assert_eq!(state_of(&file), "paid");
    drop(file);
    volume.unmount();
}

#[test]
fn a_snapshot_of_a_volume_opens_beside_the_original() {
    check("snapshot");
}

/// Freshly made volumes give their first files the same inode numbers.
fn two_volumes_with_one_reflection_folder(base: &Path) {
    let common = base.join("common");
    fs::create_dir(&common).expect("a folder");
    let volumes = ["first", "second"].map(|name| Volume::new("ext4", base, name).expect("ext4"));
    let open = |volume: &Volume| options().reflection_dir(&common).open(volume.state());
    let first = open(&volumes[0]).expect("the first one");
    write_and_sync(&first);
    let second = open(&volumes[1]).expect("the second one beside it");
    write_more(&second);
    second.sync().expect("sync");
    first.close(CloseMode::Fast).expect("close");
    second.close(CloseMode::Fast).expect("close");
    for (volume, expected) in volumes.iter().zip(["paid", "more"]) {
        assert_eq!(state_of(&open(volume).expect("open again")), expected);
    }
    assert!(companions_in(&common).is_empty());
    // A snapshot of the first volume finds the original's companion, which is not its own.
    let first = open(&volumes[0]).expect("open");
    write_and_sync(&first);
    first.close(CloseMode::Fast).expect("close");
    let image = base.join("snapshot.img");
    run(&mut Command::new("sync"));
    run(Command::new("cp").arg("--sparse=always").arg(&volumes[0].image).arg(&image));
    let beside = base.join("snapshot");
    fs::create_dir(&beside).expect("a folder");
    volumes[0].mount_image(&image, &beside);
    let path = beside.join("state.dat");
    let snapshot = |wish| options().reflection_dir(&common).on_mismatch(wish).open(&path);
    let error = snapshot(OnMismatch::Refuse).expect_err("the original's");
    assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
    drop(snapshot(OnMismatch::Discard).expect("its bytes as they are"));
    assert_eq!(state_of(&open(&volumes[0]).expect("untouched")), "paid");
}

#[test]
fn one_reflection_folder_serves_several_volumes() {
    check("two");
}

/// A volume that can be set back to how it was.
pub fn set_back(volume: &Volume, to: &Path) {
    volume.unmount();
    run(Command::new("cp").arg("--sparse=always").arg(to).arg(&volume.image));
    volume.mount();
}

pub fn keep(volume: &Volume, as_file: &Path) {
    volume.unmount();
    run(Command::new("cp").arg("--sparse=always").arg(&volume.image).arg(as_file));
    volume.mount();
}

/// The companions lie on another volume than the home file, and one of the two is set back: half of
/// the slices of each state was read.
fn rolled_back(base: &Path) {
    let homes = Volume::new("ext4", base, "homes").expect("ext4");
    let others = Volume::new("ext4", base, "companions").expect("ext4");
    let open = |wish| {
        let options = options().reflection_dir(&others.folder).on_mismatch(wish);
        options.open(homes.state())
    };
    let (plain, old) = (base.join("plain.img"), base.join("old.img"));
    let old_companions = base.join("old-companions.img");
    fs::write(homes.state(), vec![b'x'; LEN as usize]).expect("write");
    keep(&homes, &plain);
    let file = open(OnMismatch::Refuse).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    keep(&homes, &old);
    keep(&others, &old_companions);
    for _ in 0..2 {
        let file = open(OnMismatch::Refuse).expect("open");
        write_more(&file);
        file.deploy(0..LEN).expect("half of it comes home");
        write_more(&file);
        file.close(CloseMode::Fast).expect("close");
    }
    let now = base.join("now.img");
    keep(&homes, &now);
    // The home file's volume.
    set_back(&homes, &old);
    for wish in [OnMismatch::Refuse, OnMismatch::Trust] {
        let error = open(wish).expect_err("of another time");
        assert!(matches!(error, Error::Mismatch { why: Mismatch::RolledBack, .. }), "{error:?}");
    }
    // To a time before the pair was made: it is complete, and looks as if its mark had been
    // removed.
    set_back(&homes, &plain);
    let leftover = companions_in(&others.folder).remove(0);
    let error = open(OnMismatch::Refuse).expect_err("of another time");
    assert!(matches!(error, Error::Mismatch { .. }), "{error:?}");
    let file = open(OnMismatch::Discard).expect("its bytes as they are");
    assert_eq!(state_of(&file), "xxxx");
    drop(file);
    assert!(leftover.exists(), "it may be another's");
    drop(open(OnMismatch::Refuse).expect("it refuses once"));
    // Back to where it was: both go together again.
    set_back(&homes, &now);
    let file = open(OnMismatch::Refuse).expect("both of one time");
    assert_eq!(state_of(&file), "more");
    file.close(CloseMode::Fast).expect("close");
    // The companions' volume.
    set_back(&others, &old_companions);
    let error = open(OnMismatch::Refuse).expect_err("of another time");
    assert!(matches!(error, Error::Mismatch { why: Mismatch::RolledBack, .. }), "{error:?}");
    let bytes = fs::read(homes.state()).expect("read");
    drop(open(OnMismatch::Discard).expect("its bytes as they are"));
    assert!(fs::read(homes.state()).expect("read") == bytes);
    drop(open(OnMismatch::Refuse).expect("a plain file"));
    homes.unmount();
    others.unmount();
}

#[test]
fn a_volume_that_was_set_back_under_companions_elsewhere_is_recognised() {
    check("back");
}

/// A disk is mounted at another place, and its companions lie in a folder of another volume. The
/// only advice was to lose what they hold.
fn mounted_elsewhere(base: &Path) {
    let common = base.join("common");
    fs::create_dir(&common).expect("a folder");
    for (end, wish) in [("trust", OnMismatch::Trust), ("discard", OnMismatch::Discard)] {
        let volume = Volume::new("ext4", base, end).expect("ext4");
        let open =
            |path: &Path, wish| options().reflection_dir(&common).on_mismatch(wish).open(path);
        let file = open(&volume.state(), OnMismatch::Refuse).expect("open");
        write_and_sync(&file);
        file.close(CloseMode::Fast).expect("close");
        let before = companions_in(&common);
        let elsewhere = base.join(format!("{end}-elsewhere"));
        fs::create_dir(&elsewhere).expect("a folder");
        volume.move_to_another_device(&elsewhere);
        let path = elsewhere.join("state.dat");
        let error = open(&path, OnMismatch::Refuse).expect_err("perhaps a snapshot");
        let is_told = matches!(error, Error::Mismatch { why: Mismatch::MayBeSnapshot, .. });
        assert!(is_told, "{error:?}");
        let file = open(&path, wish).expect("the caller knows");
        let expected = if wish == OnMismatch::Trust { "paid" } else { "\0\0\0\0" };
        assert_eq!(state_of(&file), expected);
        drop(file);
        let left = if wish == OnMismatch::Trust { vec![] } else { before };
        assert_eq!(companions_in(&common), left);
        drop(open(&path, OnMismatch::Refuse).expect("a plain file"));
        unmount(&elsewhere);
        fs::remove_dir_all(&common).expect("remove");
        fs::create_dir(&common).expect("a folder");
    }
}

#[test]
fn a_volume_that_is_mounted_elsewhere_is_opened_on_the_callers_word() {
    check("moved");
}

/// `docker run -v /srv/state.dat:/app/state.dat`
fn mounted_alone(base: &Path) {
    let volume = Volume::new("ext4", base, "volume").expect("ext4");
    drop(options().open(volume.state()).expect("make"));
    for other in [base.join("container"), volume.folder.join("folder")] {
        fs::create_dir(&other).expect("a folder");
        let name = other.join("state.dat");
        File::create(&name).expect("a place to mount it");
        run(Command::new("mount").arg("--bind").arg(volume.state()).arg(&name));
        let error = options().open(&name).expect_err("its companions would lie elsewhere");
        assert!(matches!(error, Error::MountedAlone { .. }), "{error:?}");
        assert!(companions_in(&other).is_empty());
        // Its own folder may be named.
        let file = options().reflection_dir(&volume.folder).open(&name).expect("open");
        write_and_sync(&file);
        drop(file);
        unmount(&name);
    }
    // A companion that is hidden by another file.
    let file = options().open(volume.state()).expect("open");
    write_and_sync(&file);
    file.close(CloseMode::Fast).expect("close");
    let name = companions_in(&volume.folder).remove(0);
    let hides = base.join("hides");
    fs::copy(&name, &hides).expect("copy");
    run(Command::new("mount").arg("--bind").arg(&hides).arg(&name));
    let error = options().open(volume.state()).expect_err("hidden");
    assert!(matches!(error, Error::Untrusted { .. }), "{error:?}");
    unmount(&name);
    assert_eq!(state_of(&options().open(volume.state()).expect("open")), "paid");
}

#[test]
fn a_file_that_is_mounted_by_itself_is_recognised() {
    check("alone");
}

/// Bind mounts share the page cache: what a process that died had written is there.
fn bind_mounts(base: &Path) {
    for volume in Volume::each(base, "bound") {
        died(&volume.state());
        let other = base.join(format!("other-{}", volume.kind));
        fs::create_dir(&other).expect("a folder");
        run(Command::new("mount").arg("--bind").arg(&volume.folder).arg(&other));
        let file = options().open(other.join("state.dat")).expect("open");
        assert_eq!(state_of(&file), "more", "{}", volume.kind);
        assert_eq!(file.survives(), Survives::ProcessCrash, "{}", volume.kind);
        drop(file);
        unmount(&other);
        volume.unmount();
    }
    // A boot's identity of the container's own says nothing of the machine's page cache.
    let volume = Volume::new("ext4", base, "container").expect("ext4");
    let path = base.join("boot_id");
    fs::copy("/proc/sys/kernel/random/uuid", &path).expect("an identity");
    let place = "/proc/sys/kernel/random/boot_id";
    run(Command::new("mount").arg("--bind").arg(&path).arg(place));
    let file = options().open(volume.state()).expect("open");
    assert_eq!(file.survives(), Survives::Nothing, "a container's own boot id");
    assert_eq!(file.survives_after_sync(), Survives::PowerLoss);
    drop(file);
    died(&volume.state());
    assert_eq!(state_of(&options().open(volume.state()).expect("open")), "paid");
}

#[test]
fn companions_are_the_owners_alone_where_the_access_list_cannot_be_copied() {
    check("no lists");
}

#[test]
fn a_process_death_is_survived_over_bind_mounts_and_not_under_a_boot_id_of_ones_own() {
    check("bind");
}
