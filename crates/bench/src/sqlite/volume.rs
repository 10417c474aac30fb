//! Bytes written to the device from the opening of a database to its close, with all checkpoints
//! and the journal of the file system.
//!
//! Each contender gets a new ext4 on a loop device, over a file in memory. The kernel counts the
//! sectors that are written to that device, and nothing else writes to it. A slower run writes more
//! of them: ext4 commits and the kernel writes back every few seconds. It needs root.

use super::contest::Entrant;
use super::modes::{Mode, Place};
use super::tpcc::{self, Terminal, check};
use super::{rows, tpcc::run::WAREHOUSES};
use crate::ratios::Found;
use crate::scratch::Scratch;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of the device, which takes memory where it is written to.
const DEVICE: u64 = 2 << 30;
/// Contenders: ours, and those that it is compared with.
const MODES: [Mode; 3] = [Mode::OursFull, Mode::WalFull, Mode::TruncateFull];

/// A loop device with a mounted ext4. The kernel removes the device, and the file under it, when it
/// is unmounted: on drop, or at the end of this process and its mount namespace.
struct Device {
    name: String,
    folder: PathBuf,
}

/// Runs a command. Returns what it prints.
fn run(command: &[&str]) -> io::Result<String> {
    let output = Command::new(command[0]).args(&command[1..]).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{}: {}", command.join(" "), said.trim())))
}

impl Device {
    fn new(memory: &Path) -> io::Result<Device> {
        let (image, folder) = (memory.join("image"), memory.join("mounted"));
        File::create(&image)?.set_len(DEVICE)?;
        fs::create_dir_all(&folder)?;
        let path = image.to_string_lossy();
        // A kernel thread would write the tables of inodes while the contender runs.
        let eager = "lazy_itable_init=0,lazy_journal_init=0";
        run(&["mkfs.ext4", "-q", "-F", "-E", eager, &path])?;
        let name = run(&["losetup", "--find", "--show", &path])?;
        let mounted = run(&["mount", &name, &folder.to_string_lossy()]);
        // The device stays as long as it is mounted, and its file as long as the device.
        run(&["losetup", "--detach", &name])?;
        fs::remove_file(image)?;
        mounted.map(|_| Device { name, folder })
    }

    /// Returns the bytes that were written to the device, after all that is under way.
    fn written(&self) -> io::Result<u64> {
        run(&["sync", "--file-system", &self.folder.to_string_lossy()])?;
        let stat = Path::new("/sys/block").join(self.name.trim_start_matches("/dev/")).join("stat");
        let stat = fs::read_to_string(stat)?;
        // The seventh number: sectors of 512 bytes.
        let sectors = stat.split_whitespace().nth(6).and_then(|number| number.parse::<u64>().ok());
        sectors.map(|n| n * 512).ok_or_else(|| io::Error::other(format!("no numbers: {stat}")))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _best_effort = run(&["umount", &self.folder.to_string_lossy()]);
    }
}

/// A task: its name, the number of transactions, and the database with which it begins.
struct Task {
    name: &'static str,
    transactions: usize,
    seed: PathBuf,
}

/// Measures the bytes of TPC-C's mixture, and of updates of 1 KiB.
///
/// # Errors
/// Returns an error of the system or of SQLite.
pub fn measure(quick: bool, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let memory = Scratch::new(None)?;
    if let Err(error) = Device::new(memory.path()) {
        println!("bytes: skipped: no file system on a loop device: {error}");
        return Ok(());
    }
    let folder = scratch.path();
    let times = if quick { 1 } else { 5 };
    let (tpcc, update) = (tpcc::run::seed(folder)?, rows::seed(folder, 4096)?);
    let tasks = [
        Task { name: "bytes", transactions: times * 5_000, seed: tpcc },
        Task { name: "update_1KiB_bytes", transactions: times * 20_000, seed: update },
    ];
    for task in tasks {
        let mut bytes = Vec::new();
        for mode in MODES {
            let each = of(mode, &task, memory.path())?;
            let told = format!("a transaction, of {}, from open to close", task.transactions);
            found.add(&format!("sqlite_{}_{}", task.name, mode.name()), each, &told);
            bytes.push(each);
        }
        let told = "bytes written to the device, with checkpoints and close, to WAL's";
        found.add(&format!("sqlite_{}_vs_wal", task.name), bytes[0] / bytes[1], told);
    }
    Ok(())
}

/// Returns the bytes for each transaction of a task.
fn of(mode: Mode, task: &Task, memory: &Path) -> io::Result<f64> {
    let device = Device::new(memory)?;
    let seed = device.folder.join("x");
    fs::copy(&task.seed, &seed)?;
    let before = device.written()?;
    let entrant = Entrant::adopt(mode, &seed, Place::Disk)?;
    let path = if task.name == "bytes" {
        let mut terminal = Terminal::new(&entrant.db, WAREHOUSES, 1);
        (0..task.transactions).try_for_each(|_| terminal.step()).map_err(io::Error::other)?;
        check(&entrant.db, mode.name()).map_err(io::Error::other)?;
        entrant.close()?
    } else {
        rows::update(&entrant.db)(1, task.transactions).map_err(io::Error::other)?;
        entrant.close()?
    };
    let each = (device.written()? - before) as f64 / task.transactions as f64;
    fs::remove_file(path)?;
    Ok(each)
}
