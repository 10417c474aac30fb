//! Copies of open files for `atomic-mmap cp`, if `ATOMIC_MMAP_COPIES` is `served`.
//!
//! A thread of the library waits at a datagram socket with an abstract name. A process of the same
//! user sends the identity of a file, and gets the bytes of one state of it. `crates/cli`
//! (`live.rs`) is the other side:
//!
//! | packet | bytes |
//! |---|---|
//! | request | `REQUEST`, device and inode as 64 bits |
//! | `W` | the request has come |
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

use super::{open, real};
use crate::{log, pair, settings, table};
use libc::{c_int, c_void, sockaddr_un, socklen_t};
use std::mem::{offset_of, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::SystemTime;

/// The beginning of the socket's name, past the zero byte. The number of the process follows.
const NAME: &str = "atomic-mmap-copies.";
/// The beginning of a request. The number is that of the protocol.
const REQUEST: &[u8; 16] = b"atomic-mmap cp 1";
/// Bytes of the file in a packet.
const CHUNK: usize = 64 << 10;
/// The user number that stands for users of other namespaces.
const UNMAPPED: libc::uid_t = 65534;
/// Seconds that the thread waits for a reader that takes no packet.
const PATIENCE: i64 = 10;

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

/// Makes a socket with a name that no other process can have taken before.
fn socket() -> std::io::Result<c_int> {
    let nonce = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    let name = format!("{NAME}{}.{nonce:x}", std::process::id());
    // SAFETY: all zeroes are a value of these types. The pointers are to values of the lengths that
    // are given with them.
    unsafe {
        let fd = open::hide(libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0));
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        SOCKET.store(fd, Ordering::Relaxed);
        let mut address: sockaddr_un = zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path[1..].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let len = offset_of!(sockaddr_un, sun_path) + 1 + name.len();
        let limit = libc::timeval { tv_sec: PATIENCE, tv_usec: 0 };
        let tells: c_int = 1;
        let set = |option, value: *const c_void, len: usize| {
            libc::setsockopt(fd, libc::SOL_SOCKET, option, value, len as socklen_t)
        };
        if set(libc::SO_PASSCRED, (&raw const tells).cast(), size_of_val(&tells)) != 0
            || set(libc::SO_SNDTIMEO, (&raw const limit).cast(), size_of_val(&limit)) != 0
            || libc::bind(fd, (&raw const address).cast(), len as socklen_t) != 0
        {
            let error = std::io::Error::last_os_error();
            in_child(); // closes it
            return Err(error);
        }
        Ok(fd)
    }
}

/// Starts the thread, with every signal blocked.
fn start(fd: c_int) -> std::io::Result<()> {
    // SAFETY: all zeroes are a value of this type. The calls fill or read the sets.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let thread = std::thread::Builder::new().name("atomic-mmap-cp".into());
        let started = thread.spawn(move || super::quietly(|| serve(fd)));
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
        started.map(drop).inspect_err(|_| in_child())
    }
}

/// The place for the user of a message. Without room for descriptors the kernel makes none.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    from: libc::ucred,
}

/// Answers requests.
fn serve(fd: c_int) {
    loop {
        let mut request = [0_u8; REQUEST.len() + 16];
        // SAFETY: all zeroes are a value of these types. The kernel fills what the message names.
        let (len, asker, asker_len, control) = unsafe {
            let (mut asker, mut control): (sockaddr_un, Control) = (zeroed(), zeroed());
            let mut part =
                libc::iovec { iov_base: request.as_mut_ptr().cast(), iov_len: request.len() };
            let mut message: libc::msghdr = zeroed();
            message.msg_name = (&raw mut asker).cast();
            message.msg_namelen = size_of_val(&asker) as socklen_t;
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = (&raw mut control).cast();
            message.msg_controllen = size_of_val(&control);
            let len = real::recvmsg(fd, &raw mut message, 0);
            (len, asker, message.msg_namelen, control)
        };
        let Ok(len) = usize::try_from(len) else {
            if super::errno() == libc::EINTR {
                continue;
            }
            return;
        };
        let is_user = (control.header.cmsg_level, control.header.cmsg_type)
            == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS);
        // SAFETY: the call has no precondition.
        let own = unsafe { libc::getuid() };
        if len != request.len() || !request.starts_with(REQUEST) || !is_user {
            continue;
        }
        let number = |at: usize| {
            u64::from_ne_bytes(std::array::from_fn(|n| request[REQUEST.len() + at + n]))
        };
        let answer = |packet: &[u8]| send(fd, &asker, asker_len, packet);
        let _gone = if control.from.uid == own && own != UNMAPPED {
            copy((number(0), number(8)), answer)
        } else {
            answer(b"N") // so that it does not wait
        };
    }
}

/// Sends a packet. Returns `None` if the reader has gone or has stopped.
fn send(fd: c_int, to: &sockaddr_un, to_len: socklen_t, packet: &[u8]) -> Option<()> {
    // SAFETY: the pointers are to values of the lengths that are given with them.
    let sent = unsafe {
        let to: *const sockaddr_un = to;
        let flags = libc::MSG_NOSIGNAL;
        libc::sendto(fd, packet.as_ptr().cast(), packet.len(), flags, to.cast(), to_len)
    };
    (usize::try_from(sent) == Ok(packet.len())).then_some(())
}

/// Sends one state of a file, by packets.
fn copy(of: pair::Identity, send: impl Fn(&[u8]) -> Option<()>) -> Option<()> {
    send(b"W")?;
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
