//! Copies of files that programs under the preload have open.

use crate::common::{Run, Scratch, command, scratch};
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, IoSlice, Lines};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ROLE: &str = "ATOMIC_MMAP_CLI_TEST_PROGRAM";
/// The length of the file at first.
const SIZE: usize = 1 << 20;
/// The length of the file, if it is not that of the first write.
const LENGTH: &str = "ATOMIC_MMAP_CLI_TEST_LENGTH";
/// The name of a program that lies.
const LIAR: &str = "liar";
/// The name of a program that binds names in the way, and of one that fills the queues of servers.
const CROWD: &str = "crowd";
const FLOOD: &str = "flood";
/// A user that owns nothing.
const OTHER_USER: u32 = 12345;

/// A program under the preload. Killed on drop, with its children.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// Starts a program, and waits until it has said a line.
    fn start(scratch: &Scratch, mut program: Command, set: &[(&str, &str)]) -> Program {
        let own = std::env::current_exe().expect("this binary");
        let library = own.with_file_name("libatomic_mmap_preload.so");
        assert!(library.exists(), "{} is not built", library.display());
        program.env("LD_PRELOAD", library).env("ATOMIC_MMAP_FILES", scratch.file("*.dat"));
        program.envs(set.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped());
        program.process_group(0);
        let mut child = program.spawn().expect("start");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut program = Program { child, lines };
        program.wait();
        program
    }

    /// Waits until the program has said that it is ready.
    fn wait(&mut self) {
        let is_ready = self.lines.by_ref().any(|line| line.expect("a line").contains("ready"));
        assert!(is_ready, "the program has ended");
    }

    /// Starts one that writes the file again and again: see `plays_the_program_if_it_is_one`.
    fn writing(scratch: &Scratch, set: &[(&str, &str)]) -> Program {
        Program::start(scratch, writer(&scratch.file("x.dat")), set)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let child = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(child, signal).expect("a signal");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        let kill = rustix::process::Signal::KILL;
        let _ended_already = rustix::process::kill_process_group(group, kill);
        let _ended_already = self.child.wait();
    }
}

fn writer(path: &Path) -> Command {
    let mut program = Command::new(std::env::current_exe().expect("this binary"));
    program.args(["live::plays_the_program_if_it_is_one", "--exact", "--nocapture"]);
    program.env(ROLE, path);
    program
}

/// Each write is one operation, which makes the file longer by a byte: all bytes have the number of
/// the write, and so has the length.
#[test]
fn plays_the_program_if_it_is_one() {
    let Some(path) = std::env::var_os(ROLE) else { return };
    match path.to_str() {
        Some(LIAR) => return lie(),
        Some(CROWD) => return crowd(),
        Some(FLOOD) => return flood(),
        _ => {}
    }
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.expect("open");
    if let Ok(length) = std::env::var(LENGTH) {
        file.set_len(length.parse().expect("a number")).expect("set");
    }
    let mut number = None;
    for n in 0.. {
        file.write_all_at(&vec![n as u8; SIZE + n], 0).expect("write");
        if n == 0 {
            println!("ready");
        }
        for _ in 0..50 {
            let other = File::open("/dev/null").expect("open").as_raw_fd();
            assert_eq!(*number.get_or_insert(other), other, "the numbers are the program's");
        }
    }
}

/// Copies the file. Returns the run, and how many writes the copy has.
fn copy(scratch: &Scratch, change: impl FnOnce(&mut Command)) -> (Run, Option<usize>) {
    let to = scratch.file("folder/copy");
    let mut copied = command();
    copied.args(["cp", "--json"]).args([&scratch.file("x.dat"), &to]);
    change(&mut copied);
    let run = Run(copied.output().expect("run"));
    let Ok(bytes) = std::fs::read(&to) else { return (run, None) };
    assert_eq!(run.json()["length"], bytes.len());
    std::fs::remove_file(&to).expect("remove");
    let count = bytes.len().checked_sub(SIZE).expect("a write");
    assert!(bytes.iter().all(|byte| *byte == count as u8), "a state that never was");
    (run, Some(count))
}

/// A folder that everyone may use, with one for copies in it.
fn open_to_all() -> Scratch {
    let scratch = scratch();
    std::fs::create_dir(scratch.file("folder")).expect("a folder");
    for folder in [scratch.path(), &scratch.file("folder")] {
        std::fs::set_permissions(folder, Permissions::from_mode(0o777)).expect("set");
    }
    scratch
}

const SERVED: (&str, &str) = ("ATOMIC_MMAP_COPIES", "served");

#[test]
fn a_program_serves_copies_of_a_file_while_it_writes() {
    for medium in ["ram", "page-cache"] {
        let scratch = open_to_all();
        let mut program = Program::writing(&scratch, &[SERVED, ("ATOMIC_MMAP_MEDIUM", medium)]);
        std::fs::set_permissions(scratch.file("x.dat"), Permissions::from_mode(0o640))
            .expect("set");
        let mut last = 0;
        for round in 0..30 {
            let (run, count) = copy(&scratch, |_| {});
            let count = count.unwrap_or_else(|| panic!("{medium}, {round}: {}", run.err()));
            assert!(count >= last, "a copy has what was written before the call");
            last = count;
            run.code(0);
        }
        assert!(last > 0, "the program goes on meanwhile");
        let to = scratch.file("kept");
        let kept = command().arg("cp").args([&scratch.file("x.dat"), &to]).status();
        assert!(kept.expect("run").success());
        assert_eq!(to.metadata().expect("look").permissions().mode() & 0o777, 0o640);
        let again = command().arg("cp").args([&scratch.file("x.dat"), &to]).status();
        assert_eq!(again.expect("run").code(), Some(1), "what is there stays");
        assert!(program.child.try_wait().expect("wait").is_none(), "the program goes on");
        drop(program);
        let (run, count) = copy(&scratch, |_| {});
        assert!(count.is_some_and(|count| count >= last), "{}", run.err());
    }
}

#[test]
fn a_file_is_busy_without_a_program_that_serves_it() {
    let scratch = open_to_all();
    let program = Program::writing(&scratch, &[]);
    copy(&scratch, |_| {}).0.code(5);
    drop(program);
    let stopped = Program::writing(&scratch, &[SERVED]);
    stopped.signal(rustix::process::Signal::STOP);
    copy(&scratch, |_| {}).0.code(5);
    stopped.signal(rustix::process::Signal::CONT);
    copy(&scratch, |_| {}).0.code(0);
    assert!(scratch.file("folder").read_dir().expect("list").next().is_none(), "nothing is left");
}

/// A child by `fork` that only inherits the file keeps neither the name of its parent's socket nor
/// the lock.
#[test]
fn children_of_a_program_serve_nothing() {
    let scratch = open_to_all();
    let lines = "exec 3>>\"$0\"; (while :; do read -t 9 x; done <>\"$0.fifo\") &
        echo one >&3; echo ready; wait";
    let path = scratch.file("x.dat");
    let made = Command::new("mkfifo").arg(scratch.file("x.dat.fifo")).status();
    assert!(made.expect("mkfifo").success());
    let mut shell = Command::new("bash");
    shell.args(["-c", lines]).arg(&path);
    let mut shell = Program::start(&scratch, shell, &[SERVED]);
    let to = scratch.file("folder/copy");
    let copied = command().arg("cp").args([&path, &to]).status().expect("run");
    assert_eq!((copied.code(), std::fs::read(&to).expect("read")), (Some(0), b"one\n".to_vec()));
    std::fs::remove_file(&to).expect("remove");
    shell.child.kill().expect("kill");
    shell.child.wait().expect("wait");
    let copied = command().arg("cp").args([&path, &to]).status().expect("run");
    assert_eq!((copied.code(), std::fs::read(&to).expect("read")), (Some(0), b"one\n".to_vec()));
}

/// Sends a request past the command to a program, with a descriptor. Returns the first bytes of the
/// answer.
fn ask(program: &Program, path: &Path) -> Vec<u8> {
    // The program may not have closed the last socket yet, which keeps its name.
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let number = ASKED.fetch_add(1, Ordering::Relaxed);
    let own = abstract_name(format!("test-{}-{number}", program.child.id()).as_bytes());
    let socket = UnixDatagram::bind_addr(&own).expect("bind");
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
    let mut kinds = Vec::new();
    while !matches!(kinds.last(), Some(b'N' | b'R' | b'E')) {
        // Commands of other tests ask this program too, and it drops what comes meanwhile.
        if kinds.is_empty() {
            let _is_busy = request(program, path, &socket);
        }
        let mut packet = [0; 1 << 17];
        let Ok(len) = socket.recv(&mut packet) else { continue };
        kinds.push(packet[0]);
        if packet[0] == b'W' {
            packet[0] = b'A';
            socket.send(&packet[..len]).expect("answer");
        }
    }
    kinds
}

fn abstract_name(name: &[u8]) -> SocketAddr {
    SocketAddr::from_abstract_name(name).expect("a name")
}

/// Returns the names of the sockets that serve, of one process or of all.
fn servers(process: &str) -> Vec<SocketAddr> {
    let all = std::fs::read("/proc/net/unix").expect("read");
    let all = String::from_utf8_lossy(&all);
    let names = all.lines().filter_map(|line| Some(line.split_once('@')?.1));
    let begins = format!("atomic-mmap-copies.{process}");
    let found = names.filter(|name| name.starts_with(&begins) && name.is_ascii());
    found.map(|name| abstract_name(name.as_bytes())).collect()
}

/// Sends a request for a copy, with a descriptor. Fails while the program copies for another.
fn request(program: &Program, path: &Path, socket: &UnixDatagram) -> std::io::Result<usize> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    let servers = servers(&format!("{}.", program.child.id()));
    socket.connect_addr(servers.first().expect("a program that serves"))?;
    let of = path.metadata().expect("look");
    let numbers = [of.dev().to_ne_bytes(), of.ino().to_ne_bytes()].concat();
    let request = [b"atomic-mmap cp 2", &numbers[..]].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let other = File::open("/dev/null").expect("open");
    let descriptors = [other.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let parts = [IoSlice::new(&request)];
    Ok(rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::empty())?)
}

fn descriptors_of(program: &Program) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", program.child.id())).expect("list").count()
}

/// Its child may be another program that writes to the plain file.
#[test]
fn a_program_does_not_open_a_file_that_rests_for_a_copy() {
    let scratch = open_to_all();
    let path = scratch.file("x.dat");
    let fifo = scratch.file("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let lines = "exec 3>>\"$0\"; echo one >&3; echo ready; read x <\"$1\"
        env -u LD_PRELOAD sh -c 'echo ready; read x <\"$0\"; echo two >&3' \"$1\"
        echo three >&3; echo ready; read x <\"$1\"";
    let mut shell = Command::new("dash");
    shell.args(["-c", lines]).args([&path, &fifo]);
    let mut shell = Program::start(&scratch, shell, &[SERVED]);
    let before = descriptors_of(&shell);
    assert_eq!(ask(&shell, &path), b"WLDE");
    assert_eq!(descriptors_of(&shell), before, "a descriptor that comes is not taken");
    assert_eq!(ask(&shell, scratch.path()), b"N");
    let go_on = || std::fs::write(&fifo, "\n").expect("a line");
    go_on();
    shell.wait();
    assert_eq!(ask(&shell, &path), b"N", "the file rests");
    go_on();
    shell.wait();
    assert_eq!(ask(&shell, &path), b"WLDE");
    go_on();
    assert!(shell.child.wait().expect("wait").success());
    assert_eq!(std::fs::read(&path).expect("read"), b"one\ntwo\nthree\n");
}

#[test]
fn users_get_no_copies_from_each_other() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can be another user");
        return;
    }
    let as_other = |command: &mut Command| {
        command.uid(OTHER_USER).gid(OTHER_USER);
    };
    let scratch = open_to_all();
    let program = Program::writing(&scratch, &[SERVED]);
    std::fs::set_permissions(scratch.file("x.dat"), Permissions::from_mode(0o644)).expect("set");
    copy(&scratch, as_other).0.code(5);
    copy(&scratch, |_| {}).0.code(0);
    drop(program);
    std::fs::remove_file(scratch.file("x.dat")).expect("remove");
    let mut theirs = writer(&scratch.file("x.dat"));
    as_other(&mut theirs);
    let program = Program::start(&scratch, theirs, &[SERVED]);
    assert_eq!(ask(&program, &scratch.file("x.dat")), b"N");
    copy(&scratch, |_| {}).0.code(5);
    copy(&scratch, as_other).0.code(0);
    drop(program);
    // One that says that it has every file.
    let _program = Program::writing(&scratch, &[]);
    let mut liar = writer(Path::new(LIAR));
    as_other(&mut liar);
    let _liar = Program::start(&scratch, liar, &[]);
    copy(&scratch, |_| {}).0.code(5);
}

/// A name that is no UTF-8 hid all others, and each name of another user took three seconds.
#[test]
fn sockets_of_other_users_are_in_no_copys_way() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("skipped: only root can be another user");
    }
    let scratch = open_to_all();
    let program = Program::writing(&scratch, &[SERVED]);
    let mut crowd = writer(Path::new(CROWD));
    crowd.uid(OTHER_USER).gid(OTHER_USER);
    let _crowd = Program::start(&scratch, crowd, &[]);
    copy(&scratch, |_| {}).0.code(0);
    program.signal(rustix::process::Signal::STOP);
    copy(&scratch, |_| {}).0.code(5);
    program.signal(rustix::process::Signal::CONT);
    copy(&scratch, |_| {}).0.code(0);
}

/// Binds what a list of names may stumble over, and names that never answer.
fn crowd() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};
    let numbered = |n: u32| format!("atomic-mmap-copies.{}.{n:x}", std::process::id());
    let odd: [&[u8]; 5] = [
        b"\xff\xfe",
        b"atomic-mmap-copies.\xff",
        b"atomic-mmap-copies.\0\0",
        b"x\n@atomic-mmap-copies.1.2",
        b"x\n0: 2 0 0 0002 01 1 @atomic-mmap-copies.1.3",
    ];
    let silent: Vec<String> = (0..600).map(numbered).collect();
    let datagrams = odd.into_iter().chain(silent.iter().map(String::as_bytes));
    let bound: Vec<UnixDatagram> = datagrams
        .map(|name| UnixDatagram::bind_addr(&abstract_name(name)).expect("bind"))
        .collect();
    // Half of them have no room for a request.
    for full in bound.iter().skip(odd.len()).step_by(2) {
        let filler = UnixDatagram::unbound().expect("a socket");
        filler.set_nonblocking(true).expect("set");
        let to = full.local_addr().expect("its name");
        while filler.send_to_addr(b"x", &to).is_ok() {}
    }
    let kinds = [SocketType::STREAM, SocketType::SEQPACKET];
    let others = kinds.into_iter().enumerate().map(|(n, kind)| {
        let other = socket(AddressFamily::UNIX, kind, None).expect("a socket");
        let name = SocketAddrUnix::new_abstract_name(numbered(1000 + n as u32).as_bytes());
        bind(&other, &name.expect("a name")).expect("bind");
        rustix::net::listen(&other, 1).expect("listen");
        other
    });
    let _others: Vec<_> = others.collect();
    println!("ready");
    loop {
        std::thread::park();
    }
}

/// A program waited ten seconds for room to answer each request of another user.
#[test]
fn requests_of_other_users_are_in_no_copys_way() {
    if !rustix::process::getuid().is_root() {
        return eprintln!("skipped: only root can be another user");
    }
    let scratch = open_to_all();
    let program = Program::writing(&scratch, &[SERVED]);
    program.signal(rustix::process::Signal::STOP);
    let mut flood = writer(Path::new(FLOOD));
    flood.uid(OTHER_USER).gid(OTHER_USER);
    let _flood = Program::start(&scratch, flood, &[]);
    program.signal(rustix::process::Signal::CONT);
    copy(&scratch, |_| {}).0.code(0);
}

/// Fills the queue of each server with requests, from a socket without room for an answer.
fn flood() {
    let own = abstract_name(format!("flood-{}", std::process::id()).as_bytes());
    let asker = UnixDatagram::bind_addr(&own).expect("bind");
    let filler = UnixDatagram::unbound().expect("a socket");
    for socket in [&asker, &filler] {
        socket.set_nonblocking(true).expect("set");
    }
    while filler.send_to_addr(b"x", &own).is_ok() {}
    let request = [&b"atomic-mmap cp 2"[..], &[0; 16]].concat();
    for server in servers("") {
        // A server of another test may have ended, or take them all at once.
        for _ in 0..1000 {
            let _full = asker.send_to_addr(&request, &server);
        }
    }
    println!("ready");
    loop {
        std::thread::park();
    }
}

/// Another user could take the name of a command that has ended, and got the rest of the file.
#[test]
fn a_copy_goes_to_the_command_that_has_asked_and_not_to_its_name() {
    let scratch = open_to_all();
    let program = Program::writing(&scratch, &[SERVED]);
    let mut kinds = Vec::new();
    for round in 0.. {
        let name = format!("test-{}-again-{round}", program.child.id());
        let name = abstract_name(name.as_bytes());
        program.signal(rustix::process::Signal::STOP);
        let asker = UnixDatagram::bind_addr(&name).expect("bind");
        let _is_busy = request(&program, &scratch.file("x.dat"), &asker);
        drop(asker);
        let heir = UnixDatagram::bind_addr(&name).expect("bind");
        heir.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
        program.signal(rustix::process::Signal::CONT);
        while !matches!(kinds.last(), Some(b'N' | b'L')) {
            let mut packet = [0; 1 << 17];
            match heir.recv(&mut packet) {
                Ok(_) => kinds.push(packet[0]),
                // Commands of other tests ask this program too, and it drops what comes meanwhile.
                Err(_) if kinds.is_empty() => break,
                Err(_) => {}
            }
        }
        if !kinds.is_empty() {
            break;
        }
    }
    assert_eq!(kinds, b"WN", "no byte of the file");
}

#[test]
fn a_copy_gives_no_user_more_rights() {
    let scratch = open_to_all();
    let _program = Program::writing(&scratch, &[SERVED]);
    let path = scratch.file("x.dat");
    std::fs::set_permissions(&path, Permissions::from_mode(0o660)).expect("set");
    // Owner: all; one more user: reads; group: reads; mask: all; others: nothing.
    let list = [(1, 6, u32::MAX), (2, 4, OTHER_USER), (4, 4, u32::MAX), (16, 6, u32::MAX)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, user) in list.into_iter().chain([(32, 0, u32::MAX)]) {
        bytes.extend([u16::to_le_bytes(tag), u16::to_le_bytes(rights)].concat());
        bytes.extend(user.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    match rustix::fs::setxattr(&path, "system.posix_acl_access", &bytes, flags) {
        Err(rustix::io::Errno::OPNOTSUPP) => return eprintln!("skipped: no access lists here"),
        set => set.expect("set"),
    }
    let to = scratch.file("copy");
    assert!(command().arg("cp").args([&path, &to]).status().expect("run").success());
    assert_eq!(to.metadata().expect("look").mode() & 0o777, 0o600);
}

#[test]
fn a_copy_that_takes_too_much_memory_is_refused() {
    let memory = std::fs::read_to_string("/proc/meminfo").expect("read");
    let total = memory.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    if total.is_none_or(|kib| kib > 200_000_000) {
        return eprintln!("skipped: no file is too long here");
    }
    let scratch = open_to_all();
    let _program = Program::writing(&scratch, &[SERVED, (LENGTH, "60000000000")]);
    let run = copy(&scratch, |_| {}).0.code(1);
    assert!(run.err().contains("quarter of the memory"), "{}", run.err());
}

/// Serves a byte of any file.
fn lie() {
    let name = format!("atomic-mmap-copies.{}.", std::process::id());
    let own = SocketAddr::from_abstract_name(name).expect("a name");
    let socket = UnixDatagram::bind_addr(&own).expect("bind");
    println!("ready");
    while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
        let number = |kind: u8, number: u64| [&[kind][..], &number.to_ne_bytes()].concat();
        let packets = [b"W".to_vec(), number(b'L', 1), number(b'E', 0)];
        for packet in packets {
            // A command that has seen enough has gone.
            let _gone = socket.send_to_addr(&packet, &from);
        }
    }
}
