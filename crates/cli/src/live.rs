//! Copies of files that another process has open, which that process makes.
//!
//! Programs under `crates/preload` serve them, if they are told to. Their sockets have abstract
//! names that begin with `SERVERS`, and the kernel lists these. `ffi/copies.rs` there has the table
//! of packets.
//!
//! Invariant: each packet is that of a process of the same user, by the kernel's word.
//!
//! May import: `outcome`.

use crate::outcome::Failure;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The beginning of the names of sockets that serve copies.
const SERVERS: &str = "atomic-mmap-copies.";
const REQUEST: &[u8; 16] = b"atomic-mmap cp 1";
/// Most bytes of a packet.
const MOST: usize = (64 << 10) + 9;
/// The user number that stands for users of other namespaces.
const UNMAPPED: u32 = 65534;
/// How long a process may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait for a packet before looking after the process.
const LOOK: Duration = Duration::from_secs(1);

/// Makes the new file of a copy.
pub type Make<'a> = &'a dyn Fn() -> io::Result<File>;

/// Copies the file `from` to the new file `to`, by the process that has it open. Returns its
/// length, or `None` if no process of this user serves copies of it.
pub fn copy(from: &Path, make: Make<'_>) -> Result<Option<u64>, Failure> {
    let file = File::open(from).map_err(Failure::io(from))?;
    for server in servers() {
        match ask(&server, &file, make) {
            Ok(Some(len)) => return Ok(Some(len)),
            Ok(None) => {}
            // It has ended, or belongs to another user.
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(Failure::Io(from.display().to_string(), error)),
        }
    }
    Ok(None)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied | ErrorKind::TimedOut
    )
}

/// The names of the sockets that serve copies now.
fn servers() -> Vec<String> {
    let all = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = all.lines().filter_map(|line| line.split_once('@').map(|(_, name)| name));
    names.filter(|name| name.starts_with(SERVERS)).map(str::to_owned).collect()
}

/// A socket that hears one process.
struct Server<'a> {
    socket: UnixDatagram,
    name: &'a str,
    asked: Instant,
    packet: Box<[u8; MOST]>,
    has_answered: bool,
}

impl Server<'_> {
    fn of(name: &str) -> io::Result<Server<'_>> {
        let nonce = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        let own = format!("atomic-mmap-cp.{}.{nonce:x}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(own)?)?;
        rustix::net::sockopt::set_socket_passcred(&socket, true)?;
        socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        socket.set_read_timeout(Some(LOOK))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let packet = Box::new([0; MOST]);
        Ok(Server { socket, name, asked: Instant::now(), packet, has_answered: false })
    }

    /// Returns the next packet.
    fn packet(&mut self) -> io::Result<&[u8]> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut self.packet[..])];
            let flags = RecvFlags::empty();
            match rustix::net::recvmsg(&self.socket, &mut parts, &mut control, flags) {
                Ok(received) => {
                    let own = rustix::process::getuid();
                    let is_own = control.drain().any(|part| {
                        matches!(part, RecvAncillaryMessage::ScmCredentials(from) if from.uid == own)
                    });
                    if !is_own || own.as_raw() == UNMAPPED {
                        return Err(ErrorKind::PermissionDenied.into());
                    }
                    self.has_answered = true;
                    return Ok(&self.packet[..received.bytes]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    let is_late = !self.has_answered && self.asked.elapsed() >= PATIENCE;
                    if is_late || !servers().iter().any(|name| name == self.name) {
                        let why = "its process has ended, or does not answer";
                        return Err(io::Error::new(ErrorKind::TimedOut, why));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Asks a process for the bytes of a file. Returns `None` if it does not have the file open.
fn ask(name: &str, file: &File, make: Make<'_>) -> io::Result<Option<u64>> {
    let of = file.metadata()?;
    let mut server = Server::of(name)?;
    let request = [&REQUEST[..], &of.dev().to_ne_bytes(), &of.ino().to_ne_bytes()].concat();
    server.socket.send(&request)?;
    let strange = || io::Error::new(ErrorKind::InvalidData, "a packet that no version sends");
    let mut copy: Option<(File, u64)> = None;
    let mut written = 0;
    loop {
        let packet = server.packet()?;
        let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        match (packet.split_first().ok_or_else(strange)?, &copy) {
            ((b'W', _), None) => {}
            ((b'N', _), None) => return Ok(None),
            ((b'R', why), None) => {
                let why = format!("its process refuses a copy: {}", String::from_utf8_lossy(why));
                return Err(io::Error::other(why));
            }
            ((b'L', len), None) => {
                let len = number(len).ok_or_else(strange)?;
                let made = make()?;
                made.set_len(len)?;
                copy = Some((made, len));
            }
            ((b'D', rest), Some((made, len))) => {
                let at = number(rest).ok_or_else(strange)?;
                let bytes = &rest[size_of::<u64>()..];
                written += bytes.len() as u64;
                if at.checked_add(bytes.len() as u64).is_none_or(|end| end > *len) {
                    return Err(strange());
                }
                made.write_all_at(bytes, at)?;
            }
            ((b'E', sent), Some((made, len))) if number(sent) == Some(written) => {
                own(made, file)?;
                made.sync_all()?;
                return Ok(Some(*len));
            }
            _ => return Err(strange()),
        }
    }
}

/// Gives a copy the owner and the mode of its file, as far as that gives no user more rights. Lists
/// of users are not copied: with one, the copy is its owner's alone.
fn own(copy: &File, file: &File) -> io::Result<()> {
    let like = file.metadata()?;
    let _may_not = fchown(copy, Some(like.uid()), Some(like.gid()));
    let is = copy.metadata()?;
    let is_owned = (is.uid(), is.gid()) == (like.uid(), like.gid());
    let list = rustix::fs::fgetxattr(file, "system.posix_acl_access", &mut [0_u8; 0][..]);
    let has_list = !matches!(list, Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP));
    let mask = if is_owned && !has_list { 0o777 } else { 0o700 };
    copy.set_permissions(Permissions::from_mode(like.mode() & mask))
}
