//! The arguments.

use atomic_mmap::{Medium, Options};
use clap::{Parser, Subcommand, ValueEnum};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// The end of each help text and man page.
pub const CODES: &str = "\
Exit codes:
  0  done, and nothing is wrong
  1  the command failed
  2  the arguments are wrong
  3  the files are damaged
  4  the files were repaired
  5  the file is open in another process
  6  the files do not match, and are whole
  130  interrupted";

/// The end of the long help of `send`.
const SEND: &str = "\
Examples:
  atomic-mmap send data.db monday > monday.stream
  atomic-mmap send data.db tuesday --from monday | ssh other atomic-mmap receive replica.db
  atomic-mmap send data.db tuesday --from monday --first-frame 17 > rest.stream";

/// The end of the long help of `receive`.
const RECEIVE: &str = "\
Examples:
  atomic-mmap receive replica.db < monday.stream
  atomic-mmap receive replica.db --replace < wednesday.stream
  atomic-mmap receive upload.db --max-len 10G < stream.of.others
  atomic-mmap receive replica.db --progress";

/// Looks at failure-atomic memory-mapped files, checks them, brings them home and repairs them.
#[derive(Parser, Debug)]
#[command(name = "atomic-mmap", version, after_help = CODES)]
pub struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

/// The arguments of every command.
#[derive(clap::Args, Debug)]
pub struct Common {
    /// Print one JSON object, with exact numbers. `watch` prints one a line.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print what the library does to standard error.
    #[arg(long, short, global = true)]
    pub verbose: bool,
    /// The folder of the companions, if it is not the file's own.
    #[arg(long, global = true, value_name = "FOLDER")]
    pub reflection_dir: Option<PathBuf>,
    /// The medium that the file was opened with, if it was forced: dax, page-cache or ram.
    #[arg(long, global = true)]
    pub medium: Option<Medium>,
    /// Also accept network, FUSE and overlay file systems.
    #[arg(long, global = true)]
    pub allow_any_file_system: bool,
}

impl Common {
    /// Returns the options by which every command finds the files.
    pub fn options(&self) -> Options {
        let mut options = atomic_mmap::AtomicMappedFile::options();
        if let Some(folder) = &self.reflection_dir {
            options = options.reflection_dir(folder);
        }
        if let Some(medium) = self.medium {
            options = options.medium(medium);
        }
        options.allow_any_file_system(self.allow_any_file_system)
    }
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Say what the file and its companions hold, and what an open would do. Changes nothing, and
    /// also works on a file in use.
    Inspect(File),
    /// Check the file and its companions, verify the pages that have sums, and read every byte
    /// that has storage.
    /// Changes nothing.
    ///
    /// Superblocks, lengths, log and journal are checked by their checksums, as an open does. A
    /// file with page sums has each page verified that was ever written. It gets them by
    /// `Options::integrity`, or by ATOMIC_MMAP_INTEGRITY where a program opens it. Without sums, a
    /// bit that flips in the contents is not noticed. Then all bytes are read as the next open
    /// would recover them, also after a crash.
    ///
    /// `page sums` is the number of verified pages. `damaged` names the damaged ones by their
    /// offsets in bytes: the first of the page, and the first behind it. If there are any, no bytes
    /// are read, and the exit code is 3. They are healed by a write over all of each, by `snapshot
    /// rollback` if the snapshot holds all of them, or by a backup. If the files do not match, the
    /// exit code is 6: see `repair`. A file in use is busy, exit code 5.
    Verify(File),
    /// Recover the file, bring all bytes home, and remove the companions: it is a plain file then.
    Settle(Settle),
    /// Repair files that an open refuses, or damaged pages. Without --discard, --trust or --pages,
    /// say what is left to do.
    Repair(Repair),
    /// Print the numbers of a file: lengths, and bytes in its companions.
    ///
    /// `companions allocated bytes` is the disk space of reflection file, journal and store of
    /// snapshots together. A program that opens the file by `Options::reflection_budget` limits it.
    /// `Options::deploy_idle` gives the part back that belongs to pages without recent writes.
    Stats(Stats),
    /// Draw which parts of the file are written to.
    Heatmap(Heatmap),
    /// Print a line each interval: what has changed since the last one.
    Watch(Watch),
    /// Copy one state of a file to a new plain file. Some programs serve copies of files in use.
    Cp(Cp),
    /// Take, list, copy and drop snapshots of a closed file, or go back to one.
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Write a snapshot to standard output, or what has changed since another one. Changes nothing.
    ///
    /// The file is closed or crashed. Its state is read as the next open would recover it. The
    /// stream has checksums. Pages of zeros are left out, and an increment has the changed slices
    /// of 64 bytes. Equal snapshots give equal streams. Nothing else is printed to standard
    /// output, which must be no terminal.
    ///
    /// If a transfer breaks, ask the receiver for the number of frames that it has, by `receive
    /// --progress`. Then send again with `--first-frame`.
    #[command(after_long_help = SEND)]
    Send(Send),
    /// Take what `send` has written from standard input, as one operation. Makes the file if there
    /// is none.
    ///
    /// The whole stream is received and checked first, into a file beside this one. Then the file
    /// gets the bytes and the length of the sender's snapshot, and that snapshot under its name:
    /// all or nothing, whatever crashes. So the next increment fits. Drop snapshots that are not
    /// needed by `snapshot retain`.
    ///
    /// An increment is refused with exit code 6 if the file is not, byte for byte, as in the
    /// snapshot that the increment begins with. A whole file is taken by a new or an empty one, or
    /// with `--replace`. A stream that is damaged or cut fails with exit code 1. After each of
    /// these the file is as before. What has arrived of a broken stream stays, for `send
    /// --first-frame`.
    #[command(after_long_help = RECEIVE)]
    Receive(Receive),
    /// Say what a folder's file system would promise, and why, and which companion belongs to which
    /// file.
    Doctor(Folder),
    /// Measure writes and durable points in a folder, for a few seconds.
    Bench(Bench),
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write one for each command into a folder.
    Man {
        /// The folder.
        folder: Option<PathBuf>,
    },
}

#[derive(clap::Args, Debug)]
pub struct File {
    /// The file.
    pub file: PathBuf,
}

#[derive(clap::Args, Debug)]
pub struct Settle {
    /// The file.
    pub file: PathBuf,
    /// Drop the file's snapshots. A plain file has none.
    #[arg(long)]
    pub drop_snapshots: bool,
}

#[derive(clap::Args, Debug)]
pub struct Repair {
    /// The file.
    pub file: PathBuf,
    /// Take the file's bytes as they are. The companions count no more, and bytes that are only
    /// there are lost. A companion that may be another file's stays.
    #[arg(long, conflicts_with = "trust")]
    pub discard: bool,
    /// Believe the companions all the same.
    #[arg(long)]
    pub trust: bool,
    /// Let each damaged page go back to what it was in the newest snapshot that has it whole. All
    /// other pages stay as they are. Only files with page sums know which pages are damaged.
    #[arg(long, conflicts_with_all = ["discard", "trust", "dry_run"])]
    pub pages: bool,
    /// Only pages of this range of offsets, in bytes, as `verify` prints it.
    #[arg(long, requires = "pages", value_name = "FROM..TO", value_parser = range)]
    pub range: Option<Range<u64>>,
    /// Only say what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask.
    #[arg(long, short)]
    pub yes: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("not FROM..TO")?;
    let offset = |text: &str| text.parse::<u64>().map_err(|e| format!("{e}"));
    Ok(offset(from)?..offset(to)?)
}

impl Command {
    /// Returns `true` if the command changes no file that exists. It may make a copy or a picture.
    pub fn only_reads(&self) -> bool {
        match self {
            Command::Settle(_) | Command::Receive(_) => false,
            Command::Repair(of) => of.dry_run || !(of.discard || of.trust || of.pages),
            Command::Snapshot(what) => matches!(what, Snapshot::List(_) | Snapshot::Copy(_)),
            _ => true,
        }
    }
}

#[derive(clap::Args, Debug)]
pub struct Stats {
    /// The file.
    pub file: PathBuf,
    /// Print the text format of Prometheus.
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
}

/// The form of a picture.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Text,
    Png,
    Svg,
}

#[derive(clap::Args, Debug)]
pub struct Heatmap {
    /// The file.
    pub file: PathBuf,
    /// Watch the file for this long, look at it 20 times a second, and count the looks that find a
    /// change. Otherwise count bytes that lie in the reflection file now.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: Option<u64>,
    /// Write the picture to this file, in the form that its name ends in: png, svg or txt.
    #[arg(long, short, value_name = "PICTURE")]
    pub output: Option<PathBuf>,
    /// The form of the picture, where no name tells it.
    #[arg(long, value_enum)]
    pub form: Option<Form>,
}

#[derive(clap::Args, Debug)]
pub struct Watch {
    /// The file.
    pub file: PathBuf,
    /// The interval, in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub interval: f64,
    /// End after this many lines.
    #[arg(long)]
    pub count: Option<u64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|e| format!("{e}"))?;
    let fits = (0.01..=86_400.0).contains(&value);
    if fits { Ok(value) } else { Err("not between 0.01 and 86400".into()) }
}

#[derive(clap::Args, Debug)]
pub struct Cp {
    /// The file.
    pub from: PathBuf,
    /// The new file, which must not exist.
    pub to: PathBuf,
    /// Also copy a file that an open refuses: with what its companions still tell. Prints the
    /// ranges in doubt: their bytes may be old, or of different times.
    #[arg(long)]
    pub best_effort: bool,
}

/// A command on snapshots. `drop`, `rollback`, `retain` and `create` bring all bytes home.
#[derive(Subcommand, Debug)]
pub enum Snapshot {
    /// Seal the present state under a name. The companions stay from then on.
    Create(Named),
    /// Print number, name, time, length and held bytes of each. Changes nothing.
    List(File),
    /// Drop a snapshot, and give back the space that only it needed.
    Drop(Named),
    /// Give the file the bytes and the length of a snapshot. Asks before.
    Rollback(Rollback),
    /// Write the bytes of a snapshot to a new plain file, which belongs to you alone. Changes
    /// nothing else.
    Copy(CopySnapshot),
    /// Drop the oldest snapshots, until the others meet every limit.
    Retain(Retain),
}

#[derive(clap::Args, Debug)]
pub struct Named {
    /// The file.
    pub file: PathBuf,
    /// The snapshot's name.
    pub name: String,
}

#[derive(clap::Args, Debug)]
pub struct Rollback {
    #[command(flatten)]
    pub of: Named,
    /// Seal the present under this name before. Going back to it takes the rollback back.
    #[arg(long, value_name = "NAME")]
    pub undo: Option<String>,
    /// Do not ask.
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(clap::Args, Debug)]
pub struct CopySnapshot {
    #[command(flatten)]
    pub of: Named,
    /// The new file, which must not exist.
    pub to: PathBuf,
}

#[derive(clap::Args, Debug)]
pub struct Retain {
    /// The file.
    pub file: PathBuf,
    #[command(flatten)]
    pub limits: Limits,
}

#[derive(clap::Args, Debug)]
#[group(required = true, multiple = true)]
pub struct Limits {
    /// Keep at most this many.
    #[arg(long)]
    pub number: Option<usize>,
    /// Keep those that are at most this old: a number, and s, m, h, d or w.
    #[arg(long, value_parser = age)]
    pub age: Option<Duration>,
    /// Keep as many as need at most this much disk: a number, and K, M, G or T for units of 1024.
    /// The newest one always stays.
    #[arg(long, value_parser = bytes)]
    pub bytes: Option<u64>,
}

fn age(text: &str) -> Result<Duration, String> {
    const UNITS: [(char, u64); 5] =
        [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800)];
    scaled(text, &UNITS, None).map(Duration::from_secs)
}

fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(char, u64); 4] =
        [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30), ('T', 1 << 40)];
    scaled(text, &UNITS, Some(1))
}

/// Returns a number times its unit. `plain` is the unit of a number without one, if that may be.
fn scaled(text: &str, units: &[(char, u64)], plain: Option<u64>) -> Result<u64, String> {
    let unit = units.iter().find(|(name, _)| text.ends_with(*name));
    let number = unit.map_or(text, |(name, _)| text.trim_end_matches(*name));
    let names: Vec<String> = units.iter().map(|(name, _)| name.to_string()).collect();
    let unit = unit.map(|(_, unit)| *unit).or(plain);
    let unit = unit.ok_or_else(|| format!("no unit at its end: {}", names.join(", ")))?;
    let number: u64 = number.parse().map_err(|e| format!("{e}"))?;
    number.checked_mul(unit).ok_or_else(|| "too large".to_owned())
}

#[derive(clap::Args, Debug)]
pub struct Send {
    /// The file.
    pub file: PathBuf,
    /// The name of the snapshot, or its number.
    pub snapshot: String,
    /// Write only what has changed since this snapshot, which the receiver has.
    #[arg(long, value_name = "SNAPSHOT")]
    pub from: Option<String>,
    /// Leave out the frames before this one, which the receiver has: `receive --progress` says it.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub first_frame: u64,
}

#[derive(clap::Args, Debug)]
pub struct Receive {
    /// The file.
    pub file: PathBuf,
    /// Let a whole file replace the content. The snapshots stay.
    #[arg(long)]
    pub replace: bool,
    /// Refuse a stream of a longer file by its first bytes, before anything is made or changed: a
    /// number, and K, M, G or T for units of 1024. A stream of few bytes may be of a long file of
    /// zeros. A file that is there may be no longer either, up to the next 2 MiB.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_len: Option<u64>,
    /// Read nothing. Print the number of frames that a broken transfer has left.
    #[arg(long, conflicts_with_all = ["replace", "max_len"])]
    pub progress: bool,
}

#[derive(clap::Args, Debug)]
pub struct Folder {
    /// The folder.
    #[arg(default_value = ".")]
    pub folder: PathBuf,
}

#[derive(clap::Args, Debug)]
pub struct Bench {
    /// The folder.
    #[arg(default_value = ".")]
    pub folder: PathBuf,
    /// The time of each measurement, in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `verify`, `cp` and `bench` spoke of a recovery when they were interrupted.
    #[test]
    fn commands_that_only_read_are_told_apart() {
        let only_reads = |line: &str| {
            let words = format!("atomic-mmap {line}");
            Args::try_parse_from(words.split(' ')).expect(line).command.only_reads()
        };
        for line in
            ["verify f", "snapshot copy f s to", "cp f to", "bench .", "repair f", "send f s"]
        {
            assert!(only_reads(line), "{line}");
        }
        for line in ["settle f", "receive f", "repair f --trust", "snapshot create f s"] {
            assert!(!only_reads(line), "{line}");
        }
    }
}
