//! The kernel's access to the disk: a file system with two files, served by this process.
//!
//! | file | contents |
//! |---|---|
//! | `disk` | the sectors of the disk, under a loop device |
//! | `marks` | each write is a mark, ordered with the writes of the disk |
//!
//! The module implements a few requests of the FUSE protocol itself, without a library.
//!
//! **In flight.** The process answers requests in order of arrival. Before each answer it reads all
//! requests that have arrived meanwhile. The kernel may send a write and a flush without waiting
//! for either. Then the process knows that both were in flight together, and the flush does not
//! cover the write.

use crate::disk::{Disk, Event, Write};
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// Longest write in bytes. The kernel splits a longer write, and each part is a write of its own.
const LONGEST: u32 = 128 << 10;

const ROOT: u64 = 1;
const DISK: u64 = 2;
const MARKS: u64 = 3;

// Constants from linux/fuse.h.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const ASYNC_READ: u32 = 1;
const BIG_WRITES: u32 = 1 << 5;
const ASYNC_DIO: u32 = 1 << 15;
const MAX_PAGES: u32 = 1 << 22;
const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
const HEADER: usize = 40;
const FOR_EVER: u64 = 1 << 30;

/// Mounts the two files in a folder and serves them until the folder is unmounted.
pub fn serve(disk: Arc<Mutex<Disk>>, folder: &Path) -> io::Result<()> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,max_read={LONGEST}", device.as_raw_fd());
    crate::mounts::mount("power", folder, "fuse", &options)?;
    // SAFETY: sets a flag of a descriptor that this process owns.
    let result = unsafe { libc::fcntl(device.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    thread::Builder::new().name("fuse".to_owned()).spawn(move || {
        let mut server = Server { device, disk, buffer: vec![0; LONGEST as usize + 4096] };
        server.run();
    })?;
    Ok(())
}

struct Server {
    device: File,
    disk: Arc<Mutex<Disk>>,
    buffer: Vec<u8>,
}

/// A request that was read and not yet answered.
struct Request {
    opcode: u32,
    unique: u64,
    node: u64,
    /// The bytes after the header.
    body: Vec<u8>,
    /// The moment at which a write or a flush arrived.
    moment: usize,
}

impl Server {
    fn run(&mut self) {
        loop {
            let mut poll =
                libc::pollfd { fd: self.device.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one structure, writable.
            unsafe { libc::poll(&raw mut poll, 1, -1) };
            let mut requests = Vec::new();
            loop {
                match self.next() {
                    Ok(Some(request)) => requests.push(request),
                    Ok(None) => break,
                    // The folder was unmounted.
                    Err(_) => return,
                }
            }
            for request in requests {
                self.answer(&request);
            }
        }
    }

    fn next(&mut self) -> io::Result<Option<Request>> {
        let len = match self.device.read(&mut self.buffer) {
            Ok(len) => len,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            // The kernel cancelled the request before it was read.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let bytes = &self.buffer[..len];
        let mut request = Request {
            opcode: u32_at(bytes, 4),
            unique: u64_at(bytes, 8),
            node: u64_at(bytes, 16),
            body: bytes[HEADER..].to_vec(),
            moment: 0,
        };
        let mut disk = self.disk.lock().expect("no panic under it");
        match (request.opcode, request.node) {
            (WRITE, DISK) => {
                let write = written(&request.body);
                // The write counts as never returned for now.
                request.moment = disk.note(Event::Write { write, done: usize::MAX });
            }
            (WRITE, MARKS) => {
                let text = String::from_utf8_lossy(&written(&request.body).bytes).into_owned();
                disk.note(Event::Mark(text));
            }
            (FSYNC, DISK) => request.moment = disk.note(Event::Tick),
            _ => {}
        }
        Ok(Some(request))
    }

    fn answer(&self, request: &Request) {
        let body = &request.body[..];
        let reply = match request.opcode {
            FORGET | BATCH_FORGET | INTERRUPT => return,
            INIT => Ok(init(body)),
            LOOKUP => self.look_up(body),
            GETATTR | SETATTR => {
                let mut out = Vec::new();
                put(&mut out, &[FOR_EVER, 0]);
                self.put_attributes(&mut out, request.node);
                Ok(out)
            }
            OPEN => {
                let flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
                let mut out = Vec::new();
                put(&mut out, &[0, u64::from(flags)]);
                Ok(out)
            }
            READ => {
                let disk = self.disk.lock().expect("no panic under it");
                let at = u64_at(body, 8);
                let len = u64::from(u32_at(body, 16)).min(disk.len.saturating_sub(at));
                let mut out = vec![0; len as usize];
                disk.read(at, &mut out);
                Ok(out)
            }
            WRITE => {
                let write = written(body);
                if request.node == DISK {
                    let mut disk = self.disk.lock().expect("no panic under it");
                    disk.store(write.at, &write.bytes);
                    disk.returned(request.moment);
                }
                let mut out = Vec::new();
                put(&mut out, &[write.bytes.len() as u64]);
                Ok(out)
            }
            FSYNC => {
                if request.node == DISK {
                    let mut disk = self.disk.lock().expect("no panic under it");
                    disk.note(Event::Flush { begun: request.moment });
                }
                Ok(Vec::new())
            }
            RELEASE | FLUSH | DESTROY => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        };
        let (error, out) = match reply {
            Ok(out) => (0, out),
            Err(error) => (-error, Vec::new()),
        };
        let mut message = Vec::with_capacity(16 + out.len());
        message.extend_from_slice(&(16 + out.len() as u32).to_ne_bytes());
        message.extend_from_slice(&error.to_ne_bytes());
        message.extend_from_slice(&request.unique.to_ne_bytes());
        message.extend_from_slice(&out);
        // The write fails if the kernel no longer waits for the answer.
        let _nobody_waits = (&self.device).write(&message);
    }

    fn look_up(&self, name: &[u8]) -> Result<Vec<u8>, i32> {
        let node = match name {
            b"disk\0" => DISK,
            b"marks\0" => MARKS,
            _ => return Err(libc::ENOENT),
        };
        let mut out = Vec::new();
        put(&mut out, &[node, 0, FOR_EVER, FOR_EVER, 0]);
        self.put_attributes(&mut out, node);
        Ok(out)
    }

    fn put_attributes(&self, out: &mut Vec<u8>, node: u64) {
        let len = match node {
            DISK => self.disk.lock().expect("no panic under it").len,
            _ => 0,
        };
        let mode = if node == ROOT { libc::S_IFDIR | 0o700 } else { libc::S_IFREG | 0o600 };
        put(out, &[node, len, len / 512, 0, 0, 0]);
        let words = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
        words.iter().for_each(|word: &u32| out.extend_from_slice(&word.to_ne_bytes()));
    }
}

fn init(body: &[u8]) -> Vec<u8> {
    let flags = (ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES) & u32_at(body, 12);
    let mut out = Vec::new();
    for word in [7, 31, u32_at(body, 8), flags] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    // The largest number of background requests, and the congestion threshold.
    for word in [64_u16, 48] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    for word in [LONGEST, 1] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out.extend_from_slice(&((LONGEST / 4096) as u16).to_ne_bytes());
    out.resize(64, 0);
    out
}

/// Returns the bytes and the offset of a write.
fn written(body: &[u8]) -> Write {
    const BEFORE: usize = 40;
    let len = u32_at(body, 16) as usize;
    Write { at: u64_at(body, 8), bytes: body[BEFORE..BEFORE + len].to_vec() }
}

fn put(out: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_ne_bytes()));
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
