//! Blocks that arrive by a socket, each in one operation: the file has all of a block or nothing.
//!
//! Each block goes to its place as it arrives, with no memory for all of it. The commit of a block
//! also stores the number of blocks. So a receiver that was killed goes on behind the last one.
//!
//! `cargo run --release --example socket_to_file -- [folder]`

mod scratch;

use atomic_mmap::AtomicMappedFile;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

const BLOCK: u64 = 4 << 20;
const BLOCKS: u64 = 32;
/// The blocks begin behind a page with their number.
const FIRST: u64 = 4096;

fn byte(block: u64, n: usize) -> u8 {
    (block as usize * 31 + n / 7) as u8
}

/// Sends the blocks from `next` on.
fn send(to: &mut impl Write, next: u64) -> io::Result<()> {
    let mut block = vec![0; BLOCK as usize];
    for number in next..BLOCKS {
        block.iter_mut().enumerate().for_each(|(n, to)| *to = byte(number, n));
        to.write_all(&block)?;
    }
    Ok(())
}

/// Receives one block, and commits it with the number of blocks.
fn receive(file: &AtomicMappedFile, from: &mut impl Read) -> atomic_mmap::Result<bool> {
    let next: u64 = file.load(0)?;
    let start = FIRST + next * BLOCK;
    let mut block = file.stage(start..start + BLOCK)?;
    if block.fill_from(from, 0..BLOCK)? < BLOCK {
        return Ok(false); // the end, or a block that was cut off: it is forgotten
    }
    file.transact_with(&mut [block], |tx| tx.store(0, &(next + 1)))?;
    Ok(true)
}

/// As `receive`, the usual way: the block is read into memory, and then written.
fn receive_by_copy(file: &AtomicMappedFile, from: &mut impl Read) -> io::Result<bool> {
    let next: u64 = file.load(0)?;
    let mut block = Vec::new();
    if from.take(BLOCK).read_to_end(&mut block)? < BLOCK as usize {
        return Ok(false);
    }
    file.write_many(&[(FIRST + next * BLOCK, &block), (0, &(next + 1).to_le_bytes())])?;
    Ok(true)
}

/// Receives all blocks from a sender on this machine.
fn receive_all(
    file: &AtomicMappedFile,
    receive: impl Fn(&AtomicMappedFile, &mut TcpStream) -> io::Result<bool>,
) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let next = file.load(0)?;
    let sender = thread::spawn(move || send(&mut TcpStream::connect(address)?, next));
    let (mut socket, _) = listener.accept()?;
    while file.load::<u64>(0)? < BLOCKS && receive(file, &mut socket)? {}
    sender.join().map_err(|_| io::Error::other("the sender panicked"))?
}

fn check(file: &AtomicMappedFile) -> atomic_mmap::Result<()> {
    assert_eq!(file.load::<u64>(0)?, BLOCKS);
    let mut block = vec![0; BLOCK as usize];
    for number in 0..BLOCKS {
        file.read_at(&mut block, FIRST + number * BLOCK)?;
        assert!(block.iter().enumerate().all(|(n, found)| *found == byte(number, n)));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = scratch::Scratch::from_args()?;
    let len = FIRST + BLOCKS * BLOCK;
    for way in ["staged", "copied", "staged", "copied"] {
        let path = scratch.path(way);
        let file = AtomicMappedFile::create(&path, len)?;
        file.store(0, &0_u64)?; // the second time the file is in the cache
        let began = Instant::now();
        match way {
            "staged" => receive_all(&file, |file, from| Ok(receive(file, from)?))?,
            _ => receive_all(&file, receive_by_copy)?,
        }
        let rate = (BLOCKS * BLOCK) as f64 / began.elapsed().as_secs_f64() / 1e6;
        check(&file)?;
        println!("{way}: {rate:.0} MB/s, with the sender on this machine");
    }
    Ok(())
}
