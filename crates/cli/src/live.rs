//! Copies of files that another process has open, which that process makes.
//!
//! Programs under `crates/preload` serve them, if they are told to. Their sockets have abstract
//! names that begin with `SERVERS`, and the kernel lists these. `ffi/copies.rs` there has the table
//! of packets.
//!
//! Invariants:
//! - Each packet is that of a process of the same user, by the kernel's word.
//! - Any user may bind any abstract name, and many. Sockets of this user are asked first, and all
//!   others share one `PATIENCE`.
//!
//! May import: `outcome`.

use crate::outcome::Failure;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix};
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::fs::{File, Permissions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant};

/// The beginning of the names of sockets that serve copies. The number of the process, a dot and
/// hexadecimal digits follow.
const SERVERS: &str = "atomic-mmap-copies.";
const REQUEST: &[u8; 16] = b"atomic-mmap cp 2";
/// Most bytes of a packet.
const MOST: usize = (64 << 10) + 9;
/// The user number that stands for users of other namespaces.
const UNMAPPED: u32 = 65534;
/// How long processes may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a process that has answered may say nothing. It reads the whole file meanwhile.
const SILENCE: Duration = Duration::from_secs(600);
/// How long to wait for a packet before looking after the process.
const LOOK: Duration = Duration::from_secs(1);
/// After what time to ask again: a process that copies for another command drops requests.
const AGAIN: Duration = Duration::from_millis(300);
/// The pause between two looks at all sockets.
const PAUSE: Duration = Duration::from_millis(2);
/// Most processes that are asked at once. Each takes a descriptor.
const MOST_ASKED: usize = 128;

/// Copies the file `from` to the new file that `make` makes, by the process that has it open.
/// Returns its length, or `None` if no process of this user serves copies of it.
pub fn copy(from: &Path, make: &dyn Fn() -> io::Result<File>) -> Result<Option<u64>, Failure> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(nonblocking).open(from);
    let file = file.map_err(Failure::io(from))?;
    let copied = find(&file).and_then(|found| match found {
        Some((mut server, len)) => server.receive(&file, len, make).map(Some),
        None => Ok(None),
    });
    copied.map_err(Failure::io(from))
}

/// Returns the process that serves a copy of the file, and the length that it says.
fn find(file: &File) -> io::Result<Option<(Server, u64)>> {
    let of = file.metadata()?;
    if !of.is_file() || rustix::process::getuid().as_raw() == UNMAPPED {
        return Ok(None);
    }
    let request = [&REQUEST[..], &of.dev().to_ne_bytes(), &of.ino().to_ne_bytes()].concat();
    let (own, others) = listed();
    for names in [own, others] {
        // However many names there are, a list takes no more time.
        let parts = names.len().div_ceil(MOST_ASKED) as u32;
        let begun = Instant::now();
        for part in names.chunks(MOST_ASKED).take_while(|_| begun.elapsed() < PATIENCE) {
            if let Some(found) = ask(part, &request, PATIENCE / parts)? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// Returns the names of the sockets that may serve copies now: those that a process of this user
/// has, and all others. Some systems do not show the sockets of each own process. The first list is
/// no proof: a name with a line feed may look like two lines.
fn listed() -> (Vec<String>, Vec<String>) {
    let mut sockets = HashMap::new();
    let all = std::fs::read("/proc/net/unix").unwrap_or_default();
    let all = all.split(|&byte| byte == b'\n').filter_map(candidate);
    let (own, others): (Vec<_>, Vec<_>) = all.partition(|(_, process, inode)| {
        sockets.entry(*process).or_insert_with(|| sockets_of(*process)).contains(inode)
    });
    let name = |(name, ..): (String, u32, u64)| name;
    (own.into_iter().map(name).collect(), others.into_iter().map(name).collect())
}

/// Returns the name in a line of the kernel's list, the process that the name names, and the inode,
/// if the line is that of a datagram socket that may serve copies.
fn candidate(line: &[u8]) -> Option<(String, u32, u64)> {
    let mut fields = str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (kind, _, inode) = (fields.nth(4)?, fields.next()?, fields.next()?);
    let name = fields.next()?.strip_prefix('@')?;
    let (process, number) = name.strip_prefix(SERVERS)?.split_once('.')?;
    let is_number = !number.is_empty() && number.bytes().all(|c| c.is_ascii_hexdigit());
    let is_one = kind == "0002" && is_number && fields.next().is_none();
    is_one.then_some((name.to_owned(), process.parse().ok()?, inode.parse().ok()?))
}

/// Returns the inodes of the sockets of a process, if it is one of this user.
fn sockets_of(process: u32) -> HashSet<u64> {
    let folder = format!("/proc/{process}");
    let is_own = |of: std::fs::Metadata| of.uid() == rustix::process::getuid().as_raw();
    if !std::fs::metadata(&folder).is_ok_and(is_own) {
        return HashSet::new();
    }
    let entries = std::fs::read_dir(folder + "/fd").into_iter().flatten().flatten();
    let inode = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.filter_map(inode).collect()
}

/// Asks processes at once. Returns the one that has the file, and the file's length.
fn ask(names: &[String], request: &[u8], patience: Duration) -> io::Result<Option<(Server, u64)>> {
    let asked: io::Result<Vec<_>> = names.iter().map(|name| Server::of(name, request)).collect();
    let mut asked = asked?;
    let mut packet = Box::new([0; MOST]);
    let begun = Instant::now();
    while !asked.is_empty() {
        let is_late = begun.elapsed() > patience;
        let mut n = 0;
        while n < asked.len() {
            match asked[n].step(&mut packet) {
                Said::Length(len) => return Ok(Some((asked.swap_remove(n), len))),
                Said::Refused(why) => return Err(io::Error::other(why)),
                Said::Nothing if asked[n].heard.is_some() || !is_late => n += 1,
                Said::Nothing | Said::Gone => drop(asked.swap_remove(n)),
            }
        }
        std::thread::sleep(PAUSE);
    }
    Ok(None)
}

/// The outcome of a step.
enum Said {
    /// Nothing new.
    Nothing,
    /// The process has ended, does not have the file, or is another user's.
    Gone,
    /// The process has the file, which has this length.
    Length(u64),
    /// The process has the file, and does not copy it.
    Refused(String),
}

/// A socket that hears one process.
struct Server {
    socket: UnixDatagram,
    name: String,
    request: Vec<u8>,
    /// The socket is connected to the process, and has a name.
    is_connected: bool,
    /// The packet to send next.
    due: Option<Vec<u8>>,
    asked: Option<Instant>,
    /// The time of the last packet.
    heard: Option<Instant>,
    looked: Instant,
}

impl Server {
    fn of(name: &str, request: &[u8]) -> io::Result<Server> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Server {
            socket,
            name: name.to_owned(),
            request: request.to_owned(),
            is_connected: false,
            due: None,
            asked: None,
            heard: None,
            looked: Instant::now(),
        })
    }

    /// Connects the socket before it has a name, so that no other process can send to it. A process
    /// that copies for another command lets no one connect meanwhile.
    fn connect(&mut self) -> io::Result<()> {
        let server = SocketAddr::from_abstract_name(&self.name)?;
        match self.socket.connect_addr(&server) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
            connected => connected?,
        }
        self.is_connected = true;
        // Another process may have taken a name first.
        let named = (0..16).any(|_| {
            let number = RandomState::new().build_hasher().finish();
            let own = format!("atomic-mmap-cp.{}.{number:x}", std::process::id());
            let own = SocketAddrUnix::new_abstract_name(own.as_bytes());
            own.is_ok_and(|own| rustix::net::bind(&self.socket, &own).is_ok())
        });
        if !named {
            return Err(ErrorKind::AddrInUse.into());
        }
        Ok(rustix::net::sockopt::set_socket_passcred(&self.socket, true)?)
    }

    /// Goes on as far as that takes no time.
    fn step(&mut self, packet: &mut [u8; MOST]) -> Said {
        self.try_step(packet).unwrap_or(Said::Gone)
    }

    fn try_step(&mut self, packet: &mut [u8; MOST]) -> io::Result<Said> {
        if !self.is_connected {
            self.connect()?;
        }
        if self.heard.is_none() && self.asked.is_none_or(|asked| asked.elapsed() > AGAIN) {
            self.due = Some(self.request.clone());
        }
        if !self.is_connected || !self.send_due()? {
            return Ok(Said::Nothing);
        }
        while let Some(len) = self.next(packet)? {
            match &packet[..len] {
                // The answer proves that this process hears, and that none has taken its name.
                [b'W', number @ ..] => {
                    self.due = Some([b"A", number].concat());
                    self.send_due()?;
                }
                [b'L', len @ ..] => return Ok(Said::Length(number(len)?)),
                [b'R', why @ ..] => {
                    let why = String::from_utf8_lossy(why);
                    return Ok(Said::Refused(format!("its process refuses a copy: {why}")));
                }
                _ => return Ok(Said::Gone),
            }
        }
        self.look_after()?;
        Ok(Said::Nothing)
    }

    /// Sends the packet that is due. Returns `false` if the process has no room for it now.
    fn send_due(&mut self) -> io::Result<bool> {
        let Some(due) = &self.due else { return Ok(true) };
        match self.socket.send(due) {
            Ok(_) => {
                (self.due, self.asked) = (None, Some(Instant::now()));
                Ok(true)
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::PermissionDenied) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the length of the next packet, if one is there.
    fn next(&mut self, packet: &mut [u8; MOST]) -> io::Result<Option<usize>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut packet[..])];
        let flags = RecvFlags::empty();
        match rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags) {
            Ok(received) => {
                let own = rustix::process::getuid();
                let is_own = control.drain().any(|part| {
                    matches!(part, RecvAncillaryMessage::ScmCredentials(from) if from.uid == own)
                });
                if !is_own {
                    return Err(ErrorKind::PermissionDenied.into());
                }
                self.heard = Some(Instant::now());
                Ok(Some(received.bytes))
            }
            Err(Errno::INTR | Errno::AGAIN | Errno::CONNRESET) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns an error if the process that has answered has ended, or says nothing for too long.
    fn look_after(&mut self) -> io::Result<()> {
        let Some(heard) = self.heard.filter(|_| self.looked.elapsed() >= LOOK) else {
            return Ok(());
        };
        self.looked = Instant::now();
        let (own, others) = listed();
        let is_there = own.iter().chain(&others).any(|name| *name == self.name);
        if is_there && heard.elapsed() < SILENCE {
            return Ok(());
        }
        Err(io::Error::new(ErrorKind::TimedOut, "its process has ended, or says no more"))
    }

    /// Receives the bytes of the file, which has `len` bytes.
    fn receive(
        &mut self,
        file: &File,
        len: u64,
        make: &dyn Fn() -> io::Result<File>,
    ) -> io::Result<u64> {
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(LOOK))?;
        let made = make()?;
        made.set_len(len)?;
        let mut packet = Box::new([0; MOST]);
        let mut written = 0;
        loop {
            let Some(received) = self.next(&mut packet)? else {
                self.look_after()?;
                continue;
            };
            match &packet[..received] {
                [b'D', rest @ ..] => {
                    let at = number(rest)?;
                    let bytes = &rest[size_of::<u64>()..];
                    written += bytes.len() as u64;
                    if at.checked_add(bytes.len() as u64).is_none_or(|end| end > len) {
                        return Err(strange());
                    }
                    made.write_all_at(bytes, at)?;
                }
                [b'E', sent @ ..] if number(sent)? == written => {
                    own(&made, file)?;
                    made.sync_all()?;
                    return Ok(len);
                }
                // Asked twice, it begins twice.
                [b'W', ..] => {}
                _ => return Err(strange()),
            }
        }
    }
}

fn number(bytes: &[u8]) -> io::Result<u64> {
    bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)).ok_or_else(strange)
}

fn strange() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a packet that no version sends")
}

/// Gives a copy the owner and the mode of its file, as far as that gives no user more rights. Lists
/// of users are not copied: with one, the copy is its owner's alone.
fn own(copy: &File, file: &File) -> io::Result<()> {
    let like = file.metadata()?;
    let _may_not = fchown(copy, Some(like.uid()), Some(like.gid()));
    let is = copy.metadata()?;
    let is_owned = (is.uid(), is.gid()) == (like.uid(), like.gid());
    let list = rustix::fs::fgetxattr(file, "system.posix_acl_access", &mut [0_u8; 0][..]);
    let has_list = !matches!(list, Err(Errno::NODATA | Errno::OPNOTSUPP));
    // The folder may have given the copy a list of its own, which would let others read it.
    let removed = rustix::fs::fremovexattr(copy, "system.posix_acl_access");
    let is_free = matches!(removed, Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP));
    let mask = if is_owned && !has_list && is_free { 0o777 } else { 0o700 };
    copy.set_permissions(Permissions::from_mode(like.mode() & mask))
}
