//! Copies of open files for `atomic-mmap cp`, if `ATOMIC_MMAP_COPIES` is `served`.
//!
//! A thread of the library waits at a datagram socket with an abstract name. A process of the same
//! user sends the identity of a file, and gets the bytes of one state of it. `crates/cli`
//! (`live.rs`) is the other side:
//!
//! | packet | bytes |
//! |---|---|
//! | request | `REQUEST`, device and inode as 64 bits |
//! | `W` | the request has come: a number of 64 bits |
//! | `A` | the command's answer: that number |
//! | `N` | the file is not open here |
//! | `L` | its length, 64 bits |
//! | `D` | an offset, 64 bits, and the bytes there. Chunks of zeroes are left out |
//! | `E` | the end: the number of bytes that were sent, 64 bits |
//! | `R` | the copy is refused: the reason in words |
//!
//! Invariants:
//! - The thread makes no descriptor, even for a moment: a program with one thread relies on the
//!   numbers that it gets. So there is no connection to accept, no descriptor in a message, no log,
//!   and no file that the thread writes.
//! - It holds no lock of a file while it sends, so that a reader that stops is in no other's way.
//! - It opens no file that rests: an exec or a child may be about to use it.
//! - It takes no signal of the program.
//! - A file goes to a process of the same user alone. Another user may take the name of a command
//!   that has ended. So the socket is connected to that of the command, which then answers.
//! - It waits for no other user: they may send what they like, and not take what is sent.

use super::{open, process, real};
use crate::{log, pair, settings, table};
use libc::{c_int, c_void, sockaddr_un, socklen_t};
use std::mem::{offset_of, zeroed};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// The beginning of the socket's name, past the zero byte. The number of the process follows.
const NAME: &str = "atomic-mmap-copies.";
/// The beginning of a request. The number is that of the protocol.
const REQUEST: &[u8; 16] = b"atomic-mmap cp 2";
/// Bytes of the file in a packet.
const CHUNK: usize = 64 << 10;
/// The user number that stands for users of other namespaces.
const UNMAPPED: libc::uid_t = 65534;
/// Seconds that the thread waits for a reader that takes no packet.
const PATIENCE: i64 = 10;
/// How long the thread waits for the answer of a command that lives.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The generation of the process that has begun to serve, plus one. Relaxed, also the socket: a
/// child changes them while it has one thread.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static SOCKET: AtomicI32 = AtomicI32::new(-1);

/// Begins to serve copies, once a process. A failure is logged, and the program goes on.
pub(super) fn begin() {
    let generation = pair::generation() + 1;
    if !settings::are_copies_served() || BEGUN.swap(generation, Ordering::Relaxed) == generation {
        return;
    }
    if let Err(error) = socket().and_then(start) {
        log::line(&format!("copies are not served: {error}"));
    }
}

/// Forgets the socket of the parent, in a child of `fork`: its name ends with the parent.
pub(super) fn in_child() {
    let fd = SOCKET.swap(-1, Ordering::Relaxed);
    if fd >= 0 {
        table::set_private(fd, false);
        // SAFETY: the descriptor of `socket`, which this child has inherited.
        unsafe { real::close(fd) };
    }
}

/// Makes a socket. Another process may have taken a name first, and then it gets another one.
fn socket() -> std::io::Result<c_int> {
    // SAFETY: the calls get pointers to values of the lengths that are given with them.
    unsafe {
        let fd = open::hide(libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0));
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        SOCKET.store(fd, Ordering::Relaxed);
        let limit = libc::timeval { tv_sec: PATIENCE, tv_usec: 0 };
        let tells: c_int = 1;
        let set = |option, value: *const c_void, len: usize| {
            libc::setsockopt(fd, libc::SOL_SOCKET, option, value, len as socklen_t)
        };
        let is_named = || {
            (0..16).any(|_| {
                let (address, len) =
                    address(&format!("{NAME}{}.{:x}", std::process::id(), nonce()));
                libc::bind(fd, (&raw const address).cast(), len) == 0
            })
        };
        if set(libc::SO_PASSCRED, (&raw const tells).cast(), size_of_val(&tells)) != 0
            || set(libc::SO_SNDTIMEO, (&raw const limit).cast(), size_of_val(&limit)) != 0
            || !is_named()
        {
            let error = std::io::Error::last_os_error();
            in_child(); // closes it
            return Err(error);
        }
        Ok(fd)
    }
}

/// Returns a number that this process has not had before.
fn nonce() -> u64 {
    static USED: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    since.wrapping_add(USED.fetch_add(1, Ordering::Relaxed))
}

/// Returns the address with an abstract name, and its length.
fn address(name: &str) -> (sockaddr_un, socklen_t) {
    // SAFETY: all zeroes are a value of this type.
    let mut address: sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    (address, (offset_of!(sockaddr_un, sun_path) + 1 + name.len()) as socklen_t)
}

fn start(fd: c_int) -> std::io::Result<()> {
    process::start("atomic-mmap-cp", move || serve(fd)).inspect_err(|_| in_child())
}

/// The place for the user of a message. Without room for descriptors the kernel makes none.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    from: libc::ucred,
}

/// A packet of a command.
struct Asked {
    packet: [u8; REQUEST.len() + 16],
    len: usize,
    from: sockaddr_un,
    from_len: socklen_t,
    /// The packet is that of a process of this user, by the kernel's word.
    is_own: bool,
}

/// Returns the next packet, or `None` if there is none. With `MSG_DONTWAIT` it does not wait.
fn next(fd: c_int, flags: c_int) -> Option<Asked> {
    // SAFETY: all zeroes are a value of these types. The kernel fills what the message names.
    unsafe {
        let (mut packet, mut control): (_, Control) = ([0; REQUEST.len() + 16], zeroed());
        let mut from: sockaddr_un = zeroed();
        let mut part = libc::iovec { iov_base: (&raw mut packet).cast(), iov_len: packet.len() };
        let mut message: libc::msghdr = zeroed();
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of_val(&from) as socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of_val(&control);
        let len = usize::try_from(real::recvmsg(fd, &raw mut message, flags)).ok()?;
        let is_user = (control.header.cmsg_level, control.header.cmsg_type)
            == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS);
        let own = libc::getuid();
        let is_own = is_user && control.from.uid == own && own != UNMAPPED;
        Some(Asked { packet, len, from, from_len: message.msg_namelen, is_own })
    }
}

/// Answers requests.
fn serve(fd: c_int) {
    loop {
        let Some(asked) = next(fd, 0) else {
            // Another user may end the wait by an error, and not the thread.
            match super::errno() {
                libc::EBADF | libc::ENOTSOCK | libc::EINVAL => return,
                _ => continue,
            }
        };
        if asked.len != asked.packet.len() || !asked.packet.starts_with(REQUEST) {
            continue;
        }
        let number = |at: usize| {
            u64::from_ne_bytes(std::array::from_fn(|n| asked.packet[REQUEST.len() + at + n]))
        };
        let of = (number(0), number(8));
        let is_here = || pair::whole(of, |_| Err("only asked")).is_some();
        let (to, len) = ((&raw const asked.from).cast(), asked.from_len);
        if !asked.is_own || !is_here() {
            // So that it does not wait. If it takes no packet, it does.
            // SAFETY: the pointers are to values of the lengths that are given with them.
            unsafe { libc::sendto(fd, b"N".as_ptr().cast(), 1, UNWAITED, to, len) };
            continue;
        }
        // While it is connected, it hears no other command.
        // SAFETY: as above.
        if unsafe { libc::connect(fd, to, len) } == 0 {
            let _gone = answers(fd).and_then(|()| copy(of, |packet| send(fd, packet, 0)));
            // SAFETY: all zeroes are an address, which disconnects the socket.
            unsafe {
                let none: libc::sockaddr = zeroed();
                libc::connect(fd, &raw const none, size_of_val(&none) as socklen_t);
            }
        }
    }
}

/// The flags of a packet that waits for no room.
const UNWAITED: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// Tells the command that its request has come. Returns `None` if it does not answer: its name may
/// be another user's by now. While the socket is connected, no other packets come.
fn answers(fd: c_int) -> Option<()> {
    let number = nonce().to_ne_bytes();
    send(fd, &[b"W", &number[..]].concat(), UNWAITED)?;
    let answer = [b"A", &number[..]].concat();
    let until = Instant::now() + ANSWERS_WITHIN;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let mut ready = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one value, as the call is told.
        unsafe { libc::poll(&raw mut ready, 1, left.as_millis() as c_int + 1) };
        // Packets from before the connection are passed over. Their commands ask again.
        let heard = next(fd, libc::MSG_DONTWAIT);
        if heard.is_some_and(|heard| heard.is_own && heard.packet[..heard.len] == answer) {
            return Some(());
        }
    }
    send(fd, b"N", UNWAITED);
    None
}

/// Sends a packet to the command. Returns `None` if that has gone or has stopped.
fn send(fd: c_int, packet: &[u8], flags: c_int) -> Option<()> {
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: the pointer is to a value of the length that is given with it.
    let sent = unsafe { libc::send(fd, packet.as_ptr().cast(), packet.len(), flags) };
    (usize::try_from(sent) == Ok(packet.len())).then_some(())
}

/// Sends one state of a file, by packets.
fn copy(of: pair::Identity, send: impl Fn(&[u8]) -> Option<()>) -> Option<()> {
    let whole = pair::whole(of, |len| {
        // SAFETY: all zeroes are a value of this type, which the call fills.
        let memory = unsafe {
            let mut told: libc::sysinfo = zeroed();
            libc::sysinfo(&raw mut told);
            told.totalram * u64::from(told.mem_unit)
        };
        if len > memory / 4 { Err("it is longer than a quarter of the memory") } else { Ok(()) }
    });
    let bytes = match whole {
        Some(Ok(bytes)) => bytes,
        Some(Err(why)) => return send(&[b"R", why.as_bytes()].concat()),
        None => return send(b"N"),
    };
    let packet = |kind: &[u8], number: usize, bytes: &[u8]| {
        send(&[kind, &(number as u64).to_ne_bytes(), bytes].concat())
    };
    packet(b"L", bytes.len(), &[])?;
    let mut sent = 0;
    for (n, chunk) in bytes.chunks(CHUNK).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            packet(b"D", n * CHUNK, chunk)?;
            sent += chunk.len();
        }
    }
    packet(b"E", sent, &[])
}
