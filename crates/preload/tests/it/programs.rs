//! Stock programs.

use crate::common::{Scratch, has, number_from};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[test]
fn tools_of_the_system_copy_compare_and_redirect() {
    let scratch = Scratch::new();
    let lines = "head -c 300000 /dev/urandom >plain
        dd if=plain of=a.dat bs=1000 2>&1; cp a.dat b.dat; cmp a.dat b.dat; cmp plain b.dat
        cat b.dat >c.dat; tail -c 1000 plain >>c.dat; mv c.dat d.dat; stat -c %s d.dat
        truncate -s 5 d.dat; wc -c <d.dat; rm a.dat
        echo one >e.dat; (echo two; ls -d /) >>e.dat 2>&1; cat e.dat";
    for shell in ["sh", "bash"] {
        if !has(shell) {
            continue;
        }
        let said = scratch.shell(shell, lines);
        assert!(said.ends_with("301000\n5\none\ntwo\n/\n"), "{shell}: {said}");
        let read = |name| std::fs::read(scratch.path(name)).expect("read");
        assert!(read("plain") == read("b.dat") && read("d.dat").len() == 5);
        assert_eq!(scratch.companions(), [""; 0]);
        std::fs::remove_file(scratch.path("d.dat")).expect("remove");
    }
    assert!(scratch.log().contains("copy_file_range is refused"), "{}", scratch.log());
}

/// A shell that starts programs by `vfork` hands its descriptors on, with their offset.
#[test]
fn a_shell_goes_on_where_its_programs_have_ended() {
    if !has("dash") {
        return;
    }
    let scratch = Scratch::new();
    scratch.shell("dash", "{ echo one; /bin/echo two; echo three; /bin/echo four; } >x.dat");
    assert_eq!(std::fs::read(scratch.path("x.dat")).expect("read"), b"one\ntwo\nthree\nfour\n");
    // The shell's descriptor is that of the file, whatever the path names by now.
    let lines = "echo other >plain; exec 3>>y.dat; echo one >&3
        mv y.dat z.dat; cp plain y.dat; echo two >&3; /bin/echo three >&3; cat y.dat z.dat";
    assert_eq!(scratch.shell("dash", lines), "other\none\ntwo\nthree\n");
    assert_eq!(scratch.companions(), [""; 0]);
}

/// Perl starts a shell by `execl`.
#[test]
fn perl_hands_its_descriptors_to_a_shell() {
    if !has("perl") {
        return;
    }
    let scratch = Scratch::new();
    let program = "$^F = 99; open(F, '>', 'x.dat') or die; syswrite(F, \"one\\n\"); $n = fileno(F);
        exec \"echo two >&$n; echo three >&$n\"; die";
    scratch.shell("sh", &format!("perl -e '{}'", program.replace('\'', "'\\''")));
    assert_eq!(std::fs::read(scratch.path("x.dat")).expect("read"), b"one\ntwo\nthree\n");
    assert_eq!(scratch.companions(), [""; 0]);
}

/// Starts a program that has written `bytes` to `x.dat`, and has it open until its input ends.
fn writer_of(scratch: &Scratch) -> Child {
    let mut writer = scratch.command("dd");
    writer.arg(format!("of={}", scratch.path("x.dat").display())).args(["bs=1", "conv=notrunc"]);
    let mut writer = writer.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("start");
    writer.stdin.as_mut().expect("a pipe").write_all(b"bytes").expect("write");
    while scratch.companions().is_empty() {
        assert!(writer.try_wait().expect("wait").is_none(), "dd does not open the file");
        std::thread::sleep(Duration::from_millis(1));
    }
    writer
}

/// The companions of a file lie in its folder.
#[test]
fn a_file_that_another_program_has_open_stays_in_its_folder() {
    let scratch = Scratch::new();
    let mut writer = writer_of(&scratch);
    scratch.shell("sh", "mkdir sub; ! mv x.dat sub; ! ln x.dat sub/x.dat; mv x.dat y.dat");
    drop(writer.stdin.take());
    assert!(writer.wait().expect("wait").success());
    assert_eq!(std::fs::read(scratch.path("y.dat")).expect("read"), b"bytes");
    scratch.shell("sh", "mv y.dat sub; ln sub/y.dat y.dat");
    // A file that is replaced leaves no folder.
    let mut writer = writer_of(&scratch);
    scratch.shell("sh", "echo new >sub/n.dat; mv sub/n.dat x.dat");
    drop(writer.stdin.take());
    writer.wait().expect("wait");
    assert_eq!(scratch.shell("sh", "cat x.dat"), "new\n");
    assert_eq!(scratch.companions(), [""; 0]);
}

/// Another program opens the file after this one has seen that there is none, and before the kernel
/// opens it for this one.
#[test]
fn an_open_that_truncates_leaves_the_file_of_another_program_alone() {
    if !has("strace") || !has("/usr/bin/python3") {
        return;
    }
    let scratch = Scratch::new();
    let (path, trace) = (scratch.path("x.dat"), scratch.path("trace"));
    let (path, to) = (path.to_str().expect("text"), trace.to_str().expect("text"));
    let slow = "inject=openat:delay_enter=400000";
    let mut truncates = scratch.traced(&["-o", to, "-P", path, "-e", slow]);
    truncates.args(["sh", "-c", &format!(": >{path}")]).stderr(Stdio::null());
    let mut truncates = truncates.spawn().expect("start");
    while !std::fs::read_to_string(&trace).is_ok_and(|text| text.contains("DELAYED")) {
        assert!(truncates.try_wait().expect("wait").is_none(), "nothing is opened");
        std::thread::sleep(Duration::from_millis(1));
    }
    let program = "
import errno, os, sys
while True:
    try:
        fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
        break
    except OSError as e:
        assert e.errno == errno.EBUSY, e
for byte in b'ab': os.pwrite(fd, bytes([byte]) * 100000, 0)
sys.stdin.read()
os.close(fd)
";
    let mut writer = scratch.command("/usr/bin/python3");
    let mut writer =
        writer.args(["-c", program, path]).stdin(Stdio::piped()).spawn().expect("start");
    truncates.wait().expect("wait");
    drop(writer.stdin.take());
    assert!(writer.wait().expect("wait").success());
    assert!(std::fs::read(path).expect("read") == [b'b'; 100_000]);
}

/// After a failed close a file is not plain, and stays beside its companions.
#[test]
fn a_rename_fails_if_the_close_before_it_does() {
    if !has("strace") || !has("/usr/bin/python3") {
        return;
    }
    let scratch = Scratch::on_disk();
    let program = "
import os, sys
os.chdir(sys.argv[1])
os.mkdir('sub')
fd = os.open('x.dat', os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b'x' * 100000, 0)
try:
    os.rename('x.dat', 'sub/x.dat')
    raise SystemExit('renamed')
except OSError as e:
    assert e.errno == 5, e
os._exit(0)
";
    // The close removes the companions.
    let mut traced = scratch.traced(&["-o", "/dev/null", "-e", "inject=unlinkat:error=EIO"]);
    traced.args(["/usr/bin/python3", "-c", program]).arg(scratch.folder());
    let output = traced.output().expect("run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(scratch.path("x.dat").exists());
}

#[test]
fn python_writes_copies_and_maps() {
    if !has("/usr/bin/python3") {
        return;
    }
    let scratch = Scratch::new();
    let program = "
import mmap, os, shutil, subprocess, sys, threading
os.chdir(sys.argv[1])
with open('x.dat', 'w+b') as f:
    f.write(b'x' * 10000); f.flush(); os.fsync(f.fileno())
    assert os.stat('x.dat').st_size == os.fstat(f.fileno()).st_size == 10000
    assert any(n.startswith('.atomic-mmap') for n in os.listdir('.')), 'it is open in atomic-mmap'
    try:
        mmap.mmap(f.fileno(), 0)
        raise SystemExit('a shared mapping')
    except OSError as e:
        assert e.errno == 19, e
    subprocess.run(['true'], check=True)
    with open('w.dat', 'w') as to: subprocess.run(['echo', 'from a child'], stdout=to, check=True)
    assert open('w.dat').read() == 'from a child\\n'
    with open('v.dat', 'w') as to:
        os.write(to.fileno(), b'one')
        child = subprocess.Popen(['dd', 'bs=1', 'status=none'], stdin=subprocess.PIPE, stdout=to)
        child.stdin.write(b'two'); child.stdin.flush()
        while not any(n.startswith('.atomic-mmap') for n in os.listdir('.')): pass
        try:
            os.write(to.fileno(), b'x')
            raise SystemExit('two processes write')
        except OSError as e:
            assert e.errno == 16, e
        child.stdin.close(); child.wait()
        os.write(to.fileno(), b'three')
    assert open('v.dat').read() == 'onetwothree'
    os.posix_spawn('/bin/true', ['true'], os.environ)
    def work(n):
        for i in range(100): os.pwrite(f.fileno(), bytes([n]) * 700, n * 700)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads]; [t.join() for t in threads]
    assert os.pread(f.fileno(), 2800, 0) == b''.join(bytes([n]) * 700 for n in range(4))
shutil.copy('x.dat', 'y.dat'); shutil.move('y.dat', 'z.dat')
assert open('z.dat', 'rb').read() == open('x.dat', 'rb').read()
with open('x.dat', 'a') as f: print('end', file=f)
print(open('x.dat').read()[-4:].strip())
";
    let args = ["-c".as_ref(), program.as_ref(), scratch.folder().as_os_str()];
    let output = scratch.run("/usr/bin/python3", &args);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "end\n");
    assert_eq!(scratch.companions(), [""; 0]);
}

/// The journal is a plain file, or lies in memory. With the one in memory nothing is taken back
/// after a kill. This update changes one row, so whole pages are enough for a whole database.
#[test]
fn a_killed_sqlite_shell_leaves_a_whole_database() {
    if !has("sqlite3") {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.path("x.dat");
    let sql = |sql: &str| {
        let output = scratch.run("sqlite3", &[path.as_ref(), sql.as_ref()]);
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    sql("PRAGMA journal_mode=DELETE; CREATE TABLE t (a); INSERT INTO t VALUES (0)");
    for kill in 0..number_from("ATOMIC_MMAP_PRELOAD_KILLS", 10) {
        let mut writer = scratch.command("sqlite3");
        let mut writer =
            writer.arg(&path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("start");
        let mut input = writer.stdin.take().expect("a pipe");
        let mode = ["DELETE", "MEMORY"][kill as usize % 2];
        let feeder = std::thread::spawn(move || {
            let mut is_open = writeln!(input, "PRAGMA journal_mode = {mode};").is_ok();
            while is_open {
                is_open = input.write_all(b"UPDATE t SET a = a + 1;\n").is_ok();
            }
        });
        std::thread::sleep(Duration::from_millis(30 + kill % 20 * 3));
        writer.kill().expect("kill");
        writer.wait().expect("wait");
        feeder.join().expect("the feeder ends");
        assert_eq!(sql("PRAGMA integrity_check"), "ok", "kill {kill}");
    }
    assert!(sql("SELECT a FROM t").parse::<u64>().expect("a number") > 0);
    assert_eq!(scratch.companions(), [""; 0]);
}

#[test]
fn fio_verifies_what_it_has_written() {
    if !has("fio") {
        return;
    }
    for engine in ["psync", "sync", "pvsync", "pvsync2", "libaio", "posixaio"] {
        for way in ["--fsync=1", "--thread=1"] {
            let scratch = Scratch::new();
            let mut fio = scratch.command("fio");
            fio.arg(format!("--filename={}", scratch.path("x.dat").display()));
            fio.args(["--name=x", "--size=1m", "--bs=4k", "--rw=randwrite", "--verify=crc32c"]);
            fio.args([&format!("--ioengine={engine}"), way]).current_dir(scratch.folder());
            let output = fio.output().expect("run");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("err= 0"), "{engine} {way}: {said}");
        }
    }
    let version = Command::new("fio").arg("--version").output().expect("run");
    assert!(version.status.success());
}
