//! The command line of the bench. Results are in `docs/performance.md`.

use bench::alone::Alone;
use bench::figures;
use bench::ratios::{self, Found, Options, child};
use bench::sqlite::modes::Place;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

const USAGE: &str = "\
usage: cargo run --release -p bench -- <what> [options]

  ratios             measures every goal against the hardware's limit and the baselines, prints a table,
                     and writes target/bench/ratios.json

  practical          measures small files, documents, an index and a log against the usual ways to do
                     them, prints a table, and writes target/bench/practical.json

  fio                measures unmodified fio under crates/preload against the kernel's file system, prints a table,
                     and writes target/bench/fio.json. Skipped where fio is not installed

  sqlite             measures SQLite on the VFS of crates/sqlite against SQLite on its own, prints a table, and
                     writes target/bench/sqlite.json

  snapshots          measures writes with automatic snapshots, first writes after a snapshot, snapshots of a large file,
                     reads of snapshots, their space, and page sums, prints a table, and writes target/bench/snapshots.json

  policies           measures mixes of reads and writes under each policy of deployment, mixes and YCSB with
                     background deployment beside the baselines, hot spots within a budget, new files by their time of
                     allocation, and the storage of sparse writes, prints a table, and writes target/bench/policies.json

  tail               measures percentiles of reads and writes under each policy beside the raw copy, prints a table, and
                     writes target/bench/tail.json and tail.svg

  stage              measures bytes that arrive by read(2) and are put in place by a stage, against read and written,
                     prints a table, and writes target/bench/stage.json

  raft               measures the log store of crates/openraft against other logs for Raft: builds and runs the program
                     `raft` of benches/durable, with its own options, which writes target/bench/raft.json

  figures            the papers' figures, with all contenders in them: target/bench/figures/index.html. SQLite, LMDB
                     and redb are there with --features peers, PMDK where libpmemobj is installed
  alone WHAT         one operation over and over, for a profiler: write, read, transact (of eight), limit
                     (copy and one drain), limits (two), copy (through the cache, no drain);
                     or tpcc:MODE, update:MODE: SQLite in one of the modes of `sqlite` (with --ram on tmpfs)

  --quick            fewer rounds
  --only NAME        only the groups (small, documents, index, log, files, scan; or tpcc, update, pages, small, readers, ycsb, bytes, speedtest1; or auto, touch, seal,
                     snapshot_read, sums, space; or mixes, beside, ycsb, fill, budget, sparse; or writes, transactions, reads, ram, scaling, volume, baselines, opening,
                     dram) with this in their name
  --dir FOLDER       where the files lie (default: /dev/shm; for practical, and for the files on disk of fio and
                     sqlite, the temporary folder)
  --len, --plus, --file BYTES, --ram, --seconds N
                     alone: how long it is, where it lies, how long the file is, what counts, for how long
";

type Table = fn(&Options) -> io::Result<Found>;

/// The measurements that print a table, by their names.
const TABLES: [(&str, Table); 8] = [
    ("ratios", ratios::measure),
    ("practical", bench::practical::measure),
    ("fio", bench::fio::measure),
    ("sqlite", bench::sqlite::measure),
    ("snapshots", bench::snapshots::measure),
    ("policies", bench::policies::measure),
    ("tail", bench::policies::tail::measure),
    ("stage", bench::stage::measure),
];

/// Runs the program `raft` of benches/durable: its contenders are in a workspace of their own, so
/// that this one does not build them. Returns an error of the system only.
fn raft(args: impl Iterator<Item = OsString>) -> io::Error {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/durable/Cargo.toml");
    let mut cargo = Command::new("cargo");
    cargo
        .args(["run", "--release", "--features", "raft", "--bin", "raft", "--manifest-path"])
        .arg(manifest);
    cargo.arg("--").args(args).exec()
}

/// Starts this program again in a mount namespace of its own, where that is allowed. So what it
/// mounts ends with it, also at SIGINT.
fn own_mounts() {
    const IS_OWN: &str = "ATOMIC_MMAP_BENCH_OWN_MOUNTS";
    let mut unshare = Command::new("unshare");
    let can = unshare.args(["--mount", "true"]).stderr(Stdio::null()).status();
    let Ok(program) = std::env::current_exe() else { return };
    if std::env::var_os(IS_OWN).is_none() && can.is_ok_and(|status| status.success()) {
        let mut again = Command::new("unshare");
        again.arg("--mount").arg(program).args(std::env::args_os().skip(1)).env(IS_OWN, "");
        let _returns_only_an_error = again.exec();
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let what = args.next().unwrap_or_default();
    if what == child::CHILD {
        let path = args.next().unwrap_or_default();
        let end = args.next().and_then(|name| child::End::by_name(name.to_str()?));
        let writes = args.next().and_then(|count| count.to_str()?.parse().ok());
        let (Some(end), Some(writes)) = (end, writes) else {
            return Err(io::Error::other("how, and after how many?"));
        };
        child::write_and_end(Path::new(&path), end, writes)?;
        return Ok(ExitCode::SUCCESS);
    }
    if what == "raft" {
        return Err(raft(args));
    }
    let mut options = Options::default();
    let mut alone = Alone {
        what: String::new(),
        len: 64,
        plus: 0,
        file: 512 << 20,
        ram: false,
        time: Duration::from_secs(3),
    };
    if what == "alone" {
        alone.what = args.next().and_then(|what| what.into_string().ok()).unwrap_or_default();
    }
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--quick") => options.quick = true,
            Some("--only") => options.only = args.next().and_then(|name| name.into_string().ok()),
            Some("--dir") => options.base = args.next().map(PathBuf::from),
            Some("--ram") => alone.ram = true,
            Some(known @ ("--len" | "--plus" | "--file" | "--seconds")) => {
                let number = args.next().and_then(|number| number.to_str()?.parse().ok());
                let Some(number) = number else { return Ok(usage(&format!("{known}: a number"))) };
                match known {
                    "--len" => alone.len = number as usize,
                    "--plus" => alone.plus = number,
                    "--file" => alone.file = number,
                    _ => alone.time = Duration::from_secs(number),
                }
            }
            _ => return Ok(usage(&format!("{} is not known", arg.display()))),
        }
    }
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    if what == "fio" || what == "sqlite" {
        own_mounts();
    }
    if let Some((name, measure)) = TABLES.iter().find(|(name, _)| what == *name) {
        measure(&options)?.save(&out.join(name).with_extension("json"))?;
        return Ok(ExitCode::SUCCESS);
    }
    match what.to_str() {
        Some("figures") => {
            figures::make(&out.join("figures"), options.base.as_deref(), options.quick)?;
            Ok(ExitCode::SUCCESS)
        }
        Some("alone") => {
            match alone.what.split_once(':') {
                Some((task, mode)) => {
                    let base = options.base.unwrap_or_else(std::env::temp_dir);
                    let place = if alone.ram { Place::Pmem } else { Place::Disk };
                    bench::sqlite::alone::run(task, mode, place, &base, alone.time)?;
                }
                None => bench::alone::run(&alone)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Some("") => Ok(usage("what?")),
        _ => Ok(usage(&format!("{} is not known", what.display()))),
    }
}

fn usage(problem: &str) -> ExitCode {
    eprint!("bench: {problem}\n\n{USAGE}");
    ExitCode::from(2)
}
