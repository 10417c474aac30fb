//! Files with snapshots, which a program without the preload has taken.

use crate::calls::build;
use crate::common::{Scratch, has, library};
use atomic_mmap::{AtomicMappedFile, CloseMode, Decision, Inspection, OnMismatch};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

/// A length that is no multiple of a page.
const LEN: usize = 10_001;

/// Makes `x.dat` in two folders, in memory and on the disk. Its snapshot `one` has bytes `1`, and
/// the file has bytes `2`.
fn each(check: impl Fn(&Scratch)) {
    each_closed(CloseMode::Spatial, check);
}

fn each_closed(mode: CloseMode, check: impl Fn(&Scratch)) {
    for scratch in [Scratch::new(), Scratch::on_disk()] {
        let path = scratch.path("x.dat");
        fs::write(&path, [b'1'; LEN]).expect("write");
        let file = AtomicMappedFile::open(&path).expect("open");
        file.snapshot("one").expect("a snapshot");
        file.write_at(&[b'2'; LEN], 0).expect("write");
        file.close(mode).expect("close");
        assert!(scratch.companions().iter().any(|name| name.ends_with(".snapshots")));
        check(&scratch);
    }
}

fn look(path: &Path) -> Inspection {
    AtomicMappedFile::options().inspect(path).expect("inspect")
}

/// Returns the bytes of the file, which needs no recovery, and those of its snapshot.
fn contents(path: &Path) -> (Vec<u8>, Vec<u8>) {
    assert_eq!(look(path).decision, Some(Decision::Reuse), "{}", path.display());
    let bytes = fs::read(path).expect("read");
    let file = AtomicMappedFile::open(path).expect("open");
    assert!(file.read_vec().expect("read") == bytes, "the home file is whole");
    let snapshot = file.open_snapshot("one").expect("the snapshot").read_vec().expect("read");
    file.close(CloseMode::Spatial).expect("close");
    (bytes, snapshot)
}

fn assert_both(path: &Path, bytes: &[u8]) {
    let (there, snapshot) = contents(path);
    assert!(there == bytes, "{}", String::from_utf8_lossy(&there[..there.len().min(20)]));
    assert!(snapshot == [b'1'; LEN]);
}

/// Runs lines that must fail, under the preload.
fn refused(scratch: &Scratch, lines: &str) -> Output {
    let lines = format!("cd '{}'; {lines}", scratch.folder().display());
    let output = scratch.command("sh").args(["-c", &lines]).output().expect("run");
    assert!(!output.status.success(), "{lines}");
    output
}

/// They are named by the inode, which a rename keeps.
#[test]
fn snapshots_stay_with_a_file_that_is_renamed_in_its_folder() {
    each(|scratch| {
        let before = scratch.companions();
        let session = look(&scratch.path("x.dat")).session;
        scratch.shell("sh", "mv x.dat y.dat; stat y.dat; ln y.dat z.dat; ls -l");
        assert_eq!(scratch.companions(), before);
        // Nothing was opened: such a file needs no recovery.
        assert_eq!(look(&scratch.path("y.dat")).session, session);
        scratch.shell("sh", "exec 3<>y.dat; printf new >&3; mv y.dat x.dat; printf er >&3");
        let bytes = [b"newer".as_slice(), &[b'2'; LEN - 5]].concat();
        assert_both(&scratch.path("x.dat"), &bytes);
        assert_both(&scratch.path("z.dat"), &bytes);
    });
}

/// The folder of the other name has no companions.
#[test]
fn a_file_with_snapshots_gets_no_name_in_another_folder() {
    each(|scratch| {
        let deep = format!("{}/**.dat", scratch.folder().display());
        let run = |lines: &str| {
            let lines = format!("cd '{}'; {lines}", scratch.folder().display());
            let mut command = scratch.command("sh");
            let command = command.env("ATOMIC_MMAP_FILES", &deep).args(["-c", &lines]);
            command.output().expect("run")
        };
        let output =
            run("mkdir sub && ! ln x.dat sub/y.dat && exec 3<>x.dat && ! ln x.dat sub/y.dat");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert_eq!(said.matches("nvalid cross-device link").count(), 2, "{said}");
        assert_both(&scratch.path("x.dat"), &[b'2'; LEN]);
        // `mv` copies then. The copy has no snapshots, and the log says so.
        let output = run("mv x.dat sub/z.dat && mv sub/z.dat sub/x.dat && cat sub/x.dat");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == [b'2'; LEN]);
        assert_eq!(scratch.companions(), [""; 0]);
        assert!(!scratch.path("x.dat").exists());
        let log = scratch.log();
        assert!(log.contains("EXDEV") && log.contains("1 snapshots with it"), "{log}");
        let moved = look(&scratch.path("sub/x.dat"));
        assert_eq!((moved.decision, moved.reflection), (Some(Decision::Fresh), None));
    });
}

#[test]
fn snapshots_go_with_the_last_name() {
    each(|scratch| {
        scratch.shell("sh", "ln x.dat y.dat; rm x.dat");
        assert_both(&scratch.path("y.dat"), &[b'2'; LEN]);
        scratch.shell("sh", "rm y.dat");
        assert_eq!(scratch.companions(), [""; 0]);
        assert_eq!(scratch.shell("sh", "echo new >x.dat; cat x.dat"), "new\n");
        assert_eq!(scratch.companions(), [""; 0]);
    });
    if has("bash") {
        // The shell has it open. It rests while the child runs, so it ends with its name.
        each(|scratch| {
            let lines = "exec 3<>x.dat; rm x.dat; ! echo new >&3; ls -A | grep -c atomic || true";
            assert_eq!(scratch.shell("bash", lines), "0\n");
            assert_eq!(scratch.companions(), [""; 0]);
        });
    }
    if has("python3") {
        for rests in ["", "os.rename('x.dat', 'y.dat'); os.rename('y.dat', 'x.dat')"] {
            each(|scratch| {
                let lines = format!(
                    "python3 -c \"import os; f = os.open('x.dat', os.O_RDWR); os.write(f, b'new')
{rests}
os.unlink('x.dat'); os.close(f)\""
                );
                scratch.shell("sh", &lines);
                assert_eq!(scratch.companions(), [""; 0]);
            });
        }
    }
}

/// A leftover would make the new file a mismatch.
#[test]
fn snapshots_go_with_a_file_that_a_rename_replaces() {
    let python = "python3 -c \"import os; f = os.open('x.dat', os.O_RDWR)
os.write(f, b'old'); os.rename('plain', 'x.dat')\"";
    for lines in ["mv plain x.dat", "mv y.dat x.dat", "exec 3<>x.dat; mv plain x.dat", python] {
        if lines == python && !has("python3") {
            continue;
        }
        each(|scratch| {
            for name in ["plain", "y.dat"] {
                fs::write(scratch.path(name), "new\n").expect("write");
            }
            scratch.shell("sh", lines);
            assert_eq!(scratch.companions(), [""; 0], "{lines}");
            assert_eq!(scratch.shell("sh", "echo er >>x.dat; cat x.dat"), "new\ner\n", "{lines}");
        });
    }
    each(|scratch| {
        fs::write(scratch.path("plain"), "new\n").expect("write");
        scratch.shell("sh", "ln x.dat y.dat; mv plain x.dat");
        assert_both(&scratch.path("y.dat"), &[b'2'; LEN]);
    });
}

#[test]
fn another_length_leaves_the_snapshot_as_it_was() {
    each(|scratch| {
        assert_eq!(scratch.shell("sh", "stat -c %s x.dat"), format!("{LEN}\n"));
        assert_eq!(
            scratch.shell("sh", "truncate -s 3 x.dat; stat -c %s x.dat; cat x.dat"),
            "3\n222"
        );
        assert_both(&scratch.path("x.dat"), b"222");
        assert_eq!(scratch.shell("sh", "echo new >x.dat; stat -c %s x.dat"), "4\n");
        assert_both(&scratch.path("x.dat"), b"new\n");
    });
}

/// A fast close leaves bytes in the reflection file, and a kill does so as well.
#[test]
fn bytes_come_home_before_a_file_with_snapshots_counts_as_plain() {
    each_closed(CloseMode::Fast, |scratch| {
        scratch.shell("sh", "stat x.dat");
        assert_both(&scratch.path("x.dat"), &[b'2'; LEN]);
        refused(scratch, "exec 3<>x.dat; printf killed >&3; kill -9 $$");
        assert_eq!(scratch.shell("sh", "stat -c %s x.dat"), format!("{LEN}\n"));
        let bytes = [b"killed".as_slice(), &[b'2'; LEN - 6]].concat();
        assert_both(&scratch.path("x.dat"), &bytes);
    });
}

/// The close has noted the time, so that an edit is noticed. Companions have bytes of the file.
#[test]
fn times_and_modes_that_the_program_gives_are_no_edit() {
    each(|scratch| {
        let path = scratch.path("x.dat");
        let is = |time: i64, mode: u32| {
            let found = fs::metadata(&path).expect("stat");
            assert_eq!((found.mtime(), found.mode() & 0o777), (time, mode));
            let owner = (found.uid(), found.gid());
            for name in scratch.companions() {
                let found = fs::metadata(scratch.path(&name)).expect("stat");
                assert_eq!(found.permissions().mode() & 0o777, mode, "{name}");
                assert_eq!((found.uid(), found.gid()), owner, "{name}");
            }
            assert_both(&path, &[b'2'; LEN]);
        };
        scratch.shell(
            "sh",
            "touch -d @2000 x.dat; chmod 640 x.dat; if test $(id -u) = 0; then chown 1:1 x.dat; fi",
        );
        is(2000, 0o640);
        if has("python3") {
            let lines = "import os; os.utime('x.dat', (3000, 3000)); f = os.open('x.dat', os.O_RDWR)
os.chmod('x.dat', 0o600); os.utime('x.dat', (4000, 4000)); os.write(f, b'2'); os.utime(f, (5000, 5000))";
            scratch.shell("sh", &format!("python3 -c \"{lines}\""));
            is(5000, 0o600);
        }
        scratch.shell("sh", "echo new >plain; touch -d @6000 plain; cp -p plain x.dat");
        assert_both(&path, b"new\n");
    });
}

/// Another user of the folder exchanges the reflection file for a secret one while a program gives
/// its file a mode: the secret got that mode. Whatever has a companion's name by then stays, also
/// when the file loses its last name.
#[test]
fn a_file_that_takes_the_name_of_a_companion_stays_as_it_is() {
    each(|scratch| {
        let exchange = build(scratch, "exchange.c", &["-shared", "-fPIC"]);
        let inode = fs::metadata(scratch.path("x.dat")).expect("stat").ino();
        let companion = scratch.path(&format!(".atomic-mmap.{inode:x}"));
        for (call, mode) in [("chmod 644 x.dat", 0o100_600), ("rm x.dat", 0o100_600)] {
            fs::write(scratch.path("secret"), "secret").expect("write");
            fs::set_permissions(scratch.path("secret"), fs::Permissions::from_mode(0o600))
                .expect("chmod");
            let both = format!("{}:{}", library().display(), exchange.display());
            let mut command = scratch.command("sh");
            command.env("LD_PRELOAD", both).env("COMPANION", &companion);
            command.env("SECRET", scratch.path("secret"));
            let lines = format!("cd '{}'; {call}", scratch.folder().display());
            assert!(command.args(["-c", &lines]).status().expect("run").success(), "{call}");
            let found = fs::metadata(&companion).expect("the secret is there");
            assert_eq!((found.mode(), found.len()), (mode, 6), "{call}");
            assert!(scratch.log().contains(&format!(".atomic-mmap.{inode:x} ")), "{call}");
            fs::rename(scratch.path("secret"), &companion).expect("give the name back");
        }
    });
}

/// Writes to the file past its pair. The clock of the file system has moved since the close.
fn edit(path: &Path) {
    std::thread::sleep(Duration::from_millis(20));
    fs::write(path, [b'3'; LEN]).expect("edit");
}

fn repair(path: &Path, wish: OnMismatch, snapshots: usize) {
    let file = AtomicMappedFile::options().on_mismatch(wish).open(path).expect("open");
    assert_eq!(file.snapshots().len(), snapshots);
    file.close(CloseMode::Spatial).expect("close");
}

/// Nothing but the time tells the edit. The program that edits does not know of the companions.
#[test]
fn an_edit_by_a_program_without_the_preload_is_a_mismatch() {
    each(|scratch| {
        edit(&scratch.path("x.dat"));
        let said = refused(scratch, "cat x.dat").stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("Structure needs cleaning"), "{said}");
        let log = scratch.log();
        assert!(log.contains("cat[") && log.contains("x.dat") && log.contains("changed"), "{log}");
        refused(scratch, "mv x.dat y.dat");
        assert_eq!(scratch.shell("sh", "stat -c %s x.dat"), format!("{LEN}\n"));
        assert_eq!(fs::read(scratch.path("x.dat")).expect("read"), [b'3'; LEN]);
        scratch.shell("sh", "rm x.dat");
        assert_eq!(scratch.companions(), [""; 0]);
    });
    for (wish, snapshots) in [(OnMismatch::Discard, 0), (OnMismatch::Trust, 1)] {
        each(|scratch| {
            edit(&scratch.path("x.dat"));
            repair(&scratch.path("x.dat"), wish, snapshots);
            assert_eq!(scratch.companions().is_empty(), snapshots == 0);
            assert!(scratch.shell("sh", "cat x.dat").as_bytes() == [b'3'; LEN]);
        });
    }
    // A name in another folder has no companions beside it.
    each(|scratch| {
        fs::create_dir(scratch.path("sub")).expect("a folder");
        fs::hard_link(scratch.path("x.dat"), scratch.path("sub/y.dat")).expect("link");
        let all = format!("export ATOMIC_MMAP_FILES='{}/**.dat'", scratch.folder().display());
        let said = refused(scratch, &format!("{all}; cat sub/y.dat")).stderr;
        assert!(String::from_utf8_lossy(&said).contains("Structure needs cleaning"));
        assert_both(&scratch.path("x.dat"), &[b'2'; LEN]);
    });
    // A file that takes the name of another one does not get its companions.
    each(|scratch| {
        fs::write(scratch.path("plain"), "new\n").expect("write");
        fs::rename(scratch.path("plain"), scratch.path("x.dat")).expect("rename");
        let said = refused(scratch, "cat x.dat").stderr;
        assert!(String::from_utf8_lossy(&said).contains("Structure needs cleaning"));
        repair(&scratch.path("x.dat"), OnMismatch::Discard, 0);
        assert_eq!(scratch.shell("sh", "cat x.dat"), "new\n");
    });
}

/// The mark of a file names its companions. A copy that had it would be a mismatch.
#[test]
fn a_copy_with_all_attributes_is_a_file_of_its_own() {
    each(|scratch| {
        let lines = "cp -a x.dat y.dat; cp -a x.dat plain; mv plain z.dat; cat y.dat z.dat | wc -c";
        assert_eq!(scratch.shell("sh", lines), format!("{}\n", 2 * LEN));
        for name in ["y.dat", "z.dat"] {
            assert_eq!(look(&scratch.path(name)).decision, Some(Decision::Fresh), "{name}");
        }
        assert_both(&scratch.path("x.dat"), &[b'2'; LEN]);
    });
}

/// A `stat` opened and closed the file whenever it was not in use.
#[test]
fn programs_that_look_at_a_file_with_snapshots_do_not_keep_others_out() {
    if !has("python3") {
        return;
    }
    each(|scratch| {
        let looks = "import os\nwhile True: os.stat('x.dat')";
        let mut command = scratch.command("python3");
        let mut looks =
            command.args(["-c", looks]).current_dir(scratch.folder()).spawn().expect("start");
        let lines = "n=0; for i in $(seq 50); do true <>x.dat || n=$((n + 1)); done; echo $n";
        let failed = scratch.shell("sh", lines);
        looks.kill().expect("kill");
        looks.wait().expect("wait");
        // It has the file's lock for a moment.
        assert!(failed.trim().parse::<u32>().expect("a number") < 5, "{failed}");
        assert_both(&scratch.path("x.dat"), &[b'2'; LEN]);
    });
}
