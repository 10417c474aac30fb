//! Unmodified fio under the preload library, against the kernel's file system. The table, and
//! `target/bench/fio.json`.
//!
//! Random writes, each with an `fsync`. The two take turns. On memory both have pages of 2 MiB, if
//! the process may mount a tmpfs. fio's clock stops before the close of the file, which under the
//! library brings the bytes home: the figures leave that out.

use crate::measure::{Series, order, ratio};
use crate::ratios::{Found, Options};
use crate::scratch::Scratch;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of the file, in fio's words.
const LEN: &str = "64m";

/// Seconds before those that count: both sides allocate the file then.
const RAMP: &str = "--ramp_time=2";

/// Place of the writes a second in fio's terse line.
const IOPS: usize = 48;

/// Measures everything, and prints the table. Without fio it says that it is skipped.
///
/// # Errors
/// Returns an error of the system or of fio.
pub fn measure(options: &Options) -> io::Result<Found> {
    let mut found = Found::default();
    if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: fio is not installed");
        return Ok(found);
    }
    let library = build_library()?;
    let memory = Memory::new()?;
    let disk = Scratch::new(Some(&options.disk()?))?;
    let cells = [
        ("fio_1KiB_vs_kernel", "1k", &memory.0, Some("dax")),
        ("fio_4KiB_vs_kernel", "4k", &memory.0, Some("dax")),
        ("fio_disk_1KiB_vs_kernel", "1k", &disk, None),
        ("fio_disk_4KiB_vs_kernel", "4k", &disk, None),
    ];
    for (name, size, scratch, medium) in cells {
        if options.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let job = Job { size, folder: scratch.path(), seconds: if options.quick { 1 } else { 3 } };
        job.run(None)?; // lays the file out, and warms up
        let contenders = [None, Some((&*library, medium))];
        let mut series = [Series::default(), Series::default()];
        for round in 0..if options.quick { 3 } else { 9 } {
            for n in order(round, contenders.len()) {
                scratch.sync()?;
                series[n].0.push(1e9 / job.run(contenders[n])?);
            }
        }
        let [kernel, ours] = series.each_ref().map(|series| 1e9 / series.median());
        let told = format!("{ours:.0} writes a second, the kernel {kernel:.0}");
        found.add(name, ratio(&series[0], &series[1]), &told);
    }
    Ok(found)
}

/// Builds the library as a user does, in the target directory of this build. Returns its path.
fn build_library() -> io::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--release", "-p", "atomic-mmap-preload"]);
    let target = std::env::var_os("CARGO_TARGET_DIR").map(std::path::absolute);
    let target = target.unwrap_or_else(|| Ok(root.join("target")))?;
    build.arg("--target-dir").arg(&target);
    if !build.current_dir(&root).status()?.success() {
        return Err(io::Error::other("the preload library does not build"));
    }
    target.join("release/libatomic_mmap_preload.so").canonicalize()
}

/// A folder in memory, which is a mount of its own if the process may mount. It ends on drop, or
/// with this process and its mount namespace.
struct Memory(Scratch, bool);

impl Memory {
    fn new() -> io::Result<Memory> {
        let scratch = Scratch::new(None)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "huge=always", "atomic-mmap-bench"]).arg(scratch.path());
        let is_mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        if !is_mounted {
            println!("without pages of 2 MiB, for which a tmpfs must be mounted by root");
        }
        Ok(Memory(scratch, is_mounted))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.1 {
            let _best_effort = Command::new("umount").arg(self.0.path()).status();
        }
    }
}

/// The work of one turn of fio.
struct Job<'a> {
    size: &'static str,
    folder: &'a Path,
    seconds: u32,
}

impl Job<'_> {
    /// Runs fio, under the library if there is one. Returns the number of writes a second.
    fn run(&self, preload: Option<(&Path, Option<&str>)>) -> io::Result<f64> {
        let mut fio = Command::new("fio");
        let file = self.folder.join("fio.dat");
        fio.arg(format!("--filename={}", file.display())).arg(format!("--bs={}", self.size));
        fio.arg(format!("--runtime={}", self.seconds)).arg(format!("--size={LEN}"));
        fio.args(["--name=x", "--rw=randwrite", "--ioengine=psync", "--fsync=1", "--time_based"]);
        fio.args(["--thread=1", "--norandommap", "--minimal", RAMP]).current_dir(self.folder);
        if let Some((library, medium)) = preload {
            fio.env("LD_PRELOAD", library).env("ATOMIC_MMAP_FILES", &file);
            if let Some(medium) = medium {
                fio.env("ATOMIC_MMAP_MEDIUM", medium);
            }
        }
        let output = fio.output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let iops = said.lines().find(|line| line.starts_with("3;"));
        let iops = iops.and_then(|line| line.split(';').nth(IOPS)?.parse().ok());
        iops.filter(|iops| *iops > 0.0 && output.status.success()).ok_or_else(|| {
            io::Error::other(format!("fio: {said}{}", String::from_utf8_lossy(&output.stderr)))
        })
    }
}
