//! Shared writable mappings under `ATOMIC_MMAP_MSYNC`: a publication is one operation.

use crate::calls::build;
use crate::common::{Scratch, has, number_from};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

const VARIABLE: &str = "ATOMIC_MMAP_MSYNC";
/// With the kernel's tracking, and without it.
const WAYS: [&str; 2] = ["atomic", "atomic-compare"];

/// Requires that the kernel has tracked pages, if it can and may.
fn check_way(scratch: &Scratch, way: &str) {
    let log = scratch.log();
    let refusal = log.lines().find(|line| line.contains("the kernel tracks no pages"));
    assert!(!log.contains("PAGEMAP_SCAN fails"), "{log}");
    let Some(refusal) = refusal else { return };
    assert_eq!(way, "atomic", "{refusal}");
    let version = Command::new("uname").arg("-r").output().expect("run").stdout;
    let version = String::from_utf8_lossy(&version);
    let mut numbers = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // A container may forbid `userfaultfd`, and a kernel may be built without it.
    let may_not = ["os error 1)", "os error 38)"].iter().any(|why| refusal.contains(why));
    assert!(may_not || version < (6, 7) || cfg!(not(target_arch = "x86_64")), "{refusal}");
    eprintln!("skipped: {refusal}");
}

#[test]
fn mappings_do_what_the_kernel_does_and_publish_what_is_synced() {
    for way in WAYS {
        for scratch in [Scratch::new(), Scratch::on_disk()] {
            let program = build(&scratch, "mapping.c", &["-O1"]);
            let plain = Command::new(&program).arg(scratch.folder()).status();
            assert!(plain.expect("run").success(), "without the preload");
            let mut command = scratch.command(&program);
            command.arg(scratch.folder()).arg("yes").env(VARIABLE, way);
            let output = command.output().expect("run");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{way}: {said}\n{}", scratch.log());
            assert_eq!(scratch.companions(), [""; 0]);
            check_way(&scratch, way);
            for word in ["inherited by fork", "mremap", "mprotect", "rename", "overlap"] {
                assert!(scratch.log().contains(word), "{word}:\n{}", scratch.log());
            }
        }
    }
}

const RECORDS: usize = 5;
/// Bytes of a record, and from one to the next.
const RECORD: usize = 700 * 8;
const APART: usize = 9000;

/// Returns the number that is in all records.
fn number_of(bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let n = word(&bytes[1000..1008]);
    for record in 0..RECORDS {
        let words = &bytes[1000 + record * APART..][..RECORD];
        assert!(words.chunks(8).all(|bytes| word(bytes) == n), "a publication is there in part");
    }
    n
}

#[test]
fn a_killed_program_leaves_the_last_publication_or_the_one_in_the_making() {
    // With `atomic-sync` a kill takes back what has no durable point.
    let durabilities = ["on-sync", "atomic-sync"];
    for (n, scratch) in [Scratch::new(), Scratch::on_disk()].into_iter().enumerate() {
        let (way, durability) = (WAYS[n], durabilities[n]);
        let program = build(&scratch, "mapping.c", &["-O1"]);
        let path = scratch.path("x.dat");
        std::fs::write(&path, vec![0; 1000 + RECORDS * APART]).expect("write");
        let random = &mut fastrand::Rng::with_seed(11);
        let (mut last, mut first) = (0, 0);
        for kill in 0..number_from("ATOMIC_MMAP_PRELOAD_KILLS", 15) {
            let mut writer = scratch.command(&program);
            writer.args(["records".as_ref(), path.as_os_str()]).arg((last + 1).to_string());
            writer.env(VARIABLE, way).env("ATOMIC_MMAP_DURABILITY", durability);
            let mut writer = writer.stdout(Stdio::piped()).spawn().expect("start");
            let lines = BufReader::new(writer.stdout.take().expect("a pipe")).lines();
            let number = |line: String| line[1..].parse::<u64>().expect("a number");
            let mut lines = lines.map_while(Result::ok).map(number);
            first = lines.next().expect("a first publication");
            std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
            writer.kill().expect("kill");
            let said = lines.last().unwrap_or(first);
            writer.wait().expect("wait");
            let mut reader = scratch.command("cat");
            let reader = reader.arg(&path).env("ATOMIC_MMAP_DURABILITY", durability);
            let found = number_of(&reader.output().expect("run").stdout);
            assert!(
                found == said || found == said + 1,
                "kill {kill}: {said} is said, {found} there"
            );
            last = found;
        }
        assert!(last >= first && first > 0, "the writers have done something");
        check_way(&scratch, way);
    }
}

/// A container may forbid the kernel's tracking.
#[test]
fn without_the_kernels_tracking_mappings_are_compared_and_the_log_says_so() {
    if !has("strace") {
        return;
    }
    let scratch = Scratch::new();
    let program = build(&scratch, "mapping.c", &["-O1"]);
    let variable = format!("{VARIABLE}=atomic");
    let forbidden = "inject=userfaultfd:error=EPERM";
    let mut traced = scratch.traced(&["-o", "/dev/null", "-E", &variable, "-e", forbidden]);
    let output = traced.arg(program).arg(scratch.folder()).arg("yes").output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", scratch.log());
    assert!(scratch.log().contains("msync compares whole mappings"), "{}", scratch.log());
}

/// Random steps on a mapping and on its file, in an unmodified interpreter.
#[test]
fn python_maps_and_flushes() {
    if !has("/usr/bin/python3") {
        return;
    }
    let program = "
import mmap, os, random, sys
path, seed = sys.argv[1], int(sys.argv[2])
random.seed(seed)
fd = os.open(path, os.O_RDWR | os.O_CREAT)
size = 37000
os.pwrite(fd, b'begin', 0)
os.ftruncate(fd, size)
m = mmap.mmap(fd, size)
memory, file = bytearray(b'begin' + bytes(size - 5)), bytearray(b'begin' + bytes(size - 5))
assert m[:] == memory
page = mmap.PAGESIZE
for step in range(400):
    at, data = random.randrange(size), bytes([random.randrange(256)]) * random.randrange(1, 6000)
    data = data[:size - at]
    act = random.randrange(8)
    if act < 4:
        m[at:at + len(data)] = memory[at:at + len(data)] = data
    elif act < 5:
        os.pwrite(fd, data, at)
        memory[at:at + len(data)] = file[at:at + len(data)] = data
    elif act < 6:
        start = at - at % page
        end = min(size, (at + len(data) + page - 1) // page * page)
        m.flush(start, end - start)
        file[start:end] = memory[start:end]
    elif act < 7 and step % 5 == 0:
        os.fsync(fd)
        file[:] = memory
    elif step % 20 == 0:
        os.ftruncate(fd, at); os.ftruncate(fd, size)
        for bytes_ in memory, file: bytes_[at:] = bytes(size - at)
    assert m[:] == memory, step
    assert os.pread(fd, size, 0) == file, step
os.close(fd)
m.flush()
assert open(path, 'rb').read() == memory
m[0] ^= 1
m.close()
assert open(path, 'rb').read()[0] == memory[0] ^ 1
";
    for way in WAYS {
        for seed in ["1", "2"] {
            let scratch = Scratch::new();
            let mut python = scratch.command("/usr/bin/python3");
            python.args(["-c", program]).arg(scratch.path("x.dat")).arg(seed).env(VARIABLE, way);
            let output = python.output().expect("run");
            assert!(output.status.success(), "{way}: {}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(scratch.companions(), [""; 0]);
            check_way(&scratch, way);
        }
    }
}

/// A large file with few bytes takes little memory.
#[test]
fn pages_of_zeroes_take_no_memory() {
    if !has("/usr/bin/python3") {
        return;
    }
    let program = "
import mmap, os, sys
def anonymous():
    lines = open('/proc/self/status').readlines()
    return int([line for line in lines if line.startswith('RssAnon')][0].split()[1])
fd, size = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), 64 << 20
os.ftruncate(fd, size)
os.pwrite(fd, b'byte', 50 << 20)
before = anonymous()
m = mmap.mmap(fd, size)
assert m[50 << 20:][:4] == b'byte'
m.flush()
assert anonymous() - before < 16 << 10, 'KiB'
";
    for way in WAYS {
        let scratch = Scratch::new();
        let mut python = scratch.command("/usr/bin/python3");
        python.args(["-c", program]).arg(scratch.path("x.dat")).env(VARIABLE, way);
        let output = python.output().expect("run");
        assert!(output.status.success(), "{way}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// With a limit on the lengths of files (`ulimit -f`) the engine asks for that of its own files.
#[test]
fn a_limit_on_the_lengths_of_files_does_not_block_an_msync() {
    if !has("/usr/bin/python3") {
        return;
    }
    let program = "
import mmap, os, resource, signal, sys
signal.alarm(200) # a deadlock ends the program
fd, size = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), 4 << 20
os.ftruncate(fd, size)
m = mmap.mmap(fd, size)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
for byte in b'123':
    m[3 << 20] = byte
    m.flush()
    assert os.pread(fd, 1, 3 << 20) == bytes([byte])
";
    for scratch in [Scratch::new(), Scratch::on_disk()] {
        let mut python = scratch.command("/usr/bin/python3");
        python.args(["-c", program]).arg(scratch.path("x.dat")).env(VARIABLE, WAYS[0]);
        let output = python.output().expect("run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}\n{}", scratch.log());
        assert_eq!(scratch.companions(), [""; 0]);
    }
}

#[test]
fn fio_verifies_what_it_has_written_by_a_mapping() {
    if !has("fio") {
        return;
    }
    for way in WAYS {
        let scratch = Scratch::new();
        let mut fio = scratch.command("fio");
        fio.arg(format!("--filename={}", scratch.path("x.dat").display())).env(VARIABLE, way);
        fio.args(["--name=x", "--size=1m", "--bs=4k", "--rw=randwrite", "--verify=crc32c"]);
        fio.args(["--ioengine=mmap", "--fsync=1"]).current_dir(scratch.folder());
        let output = fio.output().expect("run");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("err= 0"), "{said}\n{}", scratch.log());
        assert_eq!(scratch.companions(), [""; 0]);
    }
}

/// On a full disk a publication fails as a whole, and the next one has its changes.
#[test]
fn a_publication_that_finds_no_space_is_made_later() {
    let mount = "mount -t tmpfs -o size=24m none \"$0\"";
    let scratch = Scratch::new();
    let may_mount = |mut tried: Command| tried.output().is_ok_and(|output| output.status.success());
    let mut tried = Command::new("unshare");
    tried.args(["-m", "sh", "-c", mount]).arg(scratch.folder());
    if !has("/usr/bin/python3") || !may_mount(tried) {
        eprintln!("skipped: no mount here, which needs root");
        return;
    }
    let program = "
import ctypes, errno, mmap, os, sys
os.chdir(sys.argv[1])
fd, size = os.open('x.dat', os.O_RDWR | os.O_CREAT), 4 << 20
os.ftruncate(fd, size)
m = mmap.mmap(fd, size)
with open('filler', 'wb', buffering=0) as filler:
    try:
        while True: filler.write(bytes(4096))
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
for at in range(0, size, 4096): m[at:at + 2] = b'12'
stored = m[:]
for _ in range(2):
    try:
        m.flush()
        raise SystemExit('there is space')
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
    assert os.pread(fd, size, 0) == bytes(size)
address = ctypes.addressof(ctypes.c_char.from_buffer(m))
munmap = ctypes.CDLL(None, use_errno=True).munmap
assert munmap(ctypes.c_void_p(address), ctypes.c_size_t(size)) == -1
assert ctypes.get_errno() == errno.ENOSPC and m[:] == stored
os.unlink('filler')
m.flush(8192, 4096) # a part of what is left
assert os.pread(fd, 12288, 0) == bytes(8192) + stored[8192:12288]
m.flush()
assert os.pread(fd, size, 0) == m[:] == stored
";
    for way in WAYS {
        let scratch = Scratch::new();
        let mut command = scratch.command("unshare");
        let lines = format!("{mount} && exec /usr/bin/python3 -c \"$1\" \"$0\"");
        command.args(["-m", "sh", "-c", &lines]).arg(scratch.folder()).arg(program);
        // The log of the mounted folder is gone with it.
        let log = Scratch::new();
        command.env(VARIABLE, way).env("ATOMIC_MMAP_LOG", log.path("log"));
        let output = command.output().expect("run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{way}: {said}\n{}", log.log());
        check_way(&log, way);
    }
}
