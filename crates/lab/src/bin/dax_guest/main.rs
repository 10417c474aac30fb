//! The program that runs in the guest of `lab/dax`, on a file system mounted with `-o dax`.
//!
//! | arguments | action |
//! |---|---|
//! | `probe FOLDER MEDIUM` | opens a file and fails if the crate detects another medium |
//! | `write FOLDER` | recovers and checks the files, then writes until the machine is killed |
//! | `check FOLDER` | checks the files, closes them, and tests the check on damaged files |
//!
//! | option | meaning |
//! |---|---|
//! | `--say FILE` | the file that the host reads: a serial line (default: standard output) |
//! | `--acked A,B,..` | what the host has received so far: see [`check::Numbers`] |
//! | `--last WORDS` | the last line that the host received, apart from acknowledgements |
//! | `--seed N` | seed of the random choices |
//!
//! The guest tells the host `opening`, `opened`, and `ok FOUND` or `violation WHAT`. Then, while
//! threads write, it sends `ack NUMBERS`: the last operation of each thread that has returned. A
//! line contains only operations that have returned. So the file must contain everything that the
//! host has read, after the machine was killed.

mod check;
mod fresh;
mod places;
mod say;
mod write;

use atomic_mmap::{AtomicMappedFile, CloseMode, Medium};
use check::{Findings, Numbers, check};
use fresh::Fresh;
use places::{BASE_LEN, KINDS, TURNS, named, places, stamp};
use say::Say;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The result of an operation that can fail in any way.
type Anything<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

struct Arguments {
    mode: String,
    folder: PathBuf,
    medium: Option<Medium>,
    say: Option<PathBuf>,
    acknowledged: Numbers,
    last: String,
    seed: u64,
}

impl Arguments {
    fn parse() -> Anything<Arguments> {
        let mut words = std::env::args().skip(1);
        let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
        let mode = next("probe, write or check")?;
        let folder = next("the folder")?.into();
        let medium = if mode == "probe" { Some(next("the medium")?.parse()?) } else { None };
        let mut arguments = Arguments {
            mode,
            folder,
            medium,
            say: None,
            acknowledged: Numbers::default(),
            last: String::new(),
            seed: 1,
        };
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--say" => arguments.say = Some(value.into()),
                "--acked" => arguments.acknowledged = value.parse()?,
                "--last" => arguments.last = value,
                "--seed" => arguments.seed = value.parse()?,
                _ => return Err(format!("{option} is not understood").into()),
            }
        }
        Ok(arguments)
    }
}

fn main() -> Anything<ExitCode> {
    let arguments = Arguments::parse()?;
    if let Some(medium) = arguments.medium {
        return probe(&arguments.folder, medium);
    }
    let say = match &arguments.say {
        Some(path) => OpenOptions::new().append(true).open(path)?,
        None => File::from(std::io::stdout().as_fd().try_clone_to_owned()?),
    };
    let say = Say::new(say);
    let is_clean = match arguments.mode.as_str() {
        "write" => write_until_killed(&arguments, &say),
        "check" => check_and_close(&arguments, &say),
        other => return Err(format!("{other}? probe, write, check").into()),
    };
    let is_clean = is_clean.unwrap_or_else(|error| {
        say.violation(&format!("an error that should not be: {error}"));
        false
    });
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn probe(folder: &Path, expected: Medium) -> Anything<ExitCode> {
    let path = folder.join("probe");
    let file = AtomicMappedFile::create(&path, 1 << 20)?;
    file.write_at(b"all or nothing", 4090)?;
    let found = file.medium();
    println!("medium: {found}");
    println!("what has returned survives {}", file.survives());
    for path in [&path, file.reflection_path()] {
        let says = if has_dax_attribute(path)? { "DAX" } else { "no DAX" };
        println!("statx of {}: {says}", path.display());
    }
    let agrees = has_dax_attribute(&path)? == (found == Medium::Dax);
    file.close(CloseMode::Spatial)?;
    fs::remove_file(&path)?;
    let is_right = found == expected && agrees;
    if !is_right {
        println!("that is not {expected}, or handle and statx do not agree");
    }
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn has_dax_attribute(path: &Path) -> Anything<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut answer = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: a string that ends with a zero, and a structure that is writable.
    let result = unsafe {
        libc::statx(libc::AT_FDCWD, path.as_ptr(), 0, libc::STATX_BASIC_STATS, answer.as_mut_ptr())
    };
    if result != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the call has filled in the structure, and zeroes are valid for its integers anyway.
    let answer = unsafe { answer.assume_init() };
    Ok(answer.stx_attributes & libc::STATX_ATTR_DAX as u64 != 0)
}

/// A plain file that no process has synced when the host learns that the main file is closed.
const UNSYNCED: &str = "unsynced";

fn main_path(folder: &Path) -> PathBuf {
    folder.join("state.dat")
}

/// Opens the main file on the detected medium, which must be persistent memory.
fn open(folder: &Path) -> Anything<AtomicMappedFile> {
    let file = AtomicMappedFile::options().create(true).len(BASE_LEN).open(main_path(folder))?;
    if file.medium() != Medium::Dax {
        return Err(format!("medium {}, and not dax", file.medium()).into());
    }
    Ok(file)
}

/// Opens and checks all files after the machine was killed.
fn recover(arguments: &Arguments, say: &Say) -> Anything<Option<(AtomicMappedFile, Numbers)>> {
    let folder = &arguments.folder;
    let acknowledged = &arguments.acknowledged;
    let mut findings = Findings::default();
    match arguments.last.as_str() {
        // The file is a plain file then, and complete.
        "closed Spatial" => findings = check_plain(folder, acknowledged)?,
        "closed Fast" if !has_reflection(folder)? => {
            findings.lost.push("the reflection file is gone after a fast close".to_owned());
        }
        _ => {}
    }
    if arguments.last.starts_with("closed") {
        let is_gone = !folder.join(UNSYNCED).exists();
        say.line(&format!("unsynced {}", if is_gone { "gone" } else { "there" }));
    }
    say.line("opening");
    let file = open(folder)?;
    say.line("opened");
    let mut found =
        check(&mut |to, at| file.read_at(to, at), file.len(), acknowledged, &mut findings)?;
    let fresh = Fresh::new(folder)?;
    found.made = fresh.check(acknowledged.made, &mut findings)?;
    if !report(&findings, say) {
        return Ok(None);
    }
    // A state that was found once must not disappear later.
    say.line(&format!("ack {found}"));
    say.line(&format!("strays {}", fresh.strays()?.len()));
    say.line(&format!("ok {found}"));
    Ok(Some((file, found)))
}

fn has_reflection(folder: &Path) -> Anything<bool> {
    let inode = fs::metadata(main_path(folder))?.ino();
    Ok(folder.join(format!(".atomic-mmap.{inode:x}")).exists())
}

/// Checks the bytes of the closed file, without the crate.
fn check_plain(folder: &Path, acknowledged: &Numbers) -> Anything<Findings> {
    let mut findings = Findings::default();
    if has_reflection(folder)? {
        findings.torn.push("there is a reflection file after a spatial close".to_owned());
    }
    let bytes = fs::read(main_path(folder))?;
    let mut read_at = |to: &mut [u8], at: u64| {
        let end = at as usize + to.len();
        to.copy_from_slice(bytes.get(at as usize..end).ok_or("the plain file is too short")?);
        Ok::<_, &str>(())
    };
    check(&mut read_at, bytes.len() as u64, acknowledged, &mut findings)?;
    Ok(findings)
}

fn report(findings: &Findings, say: &Say) -> bool {
    for (how, all) in [("torn", &findings.torn), ("lost", &findings.lost)] {
        // The first findings are enough to explain the failure.
        for what in all.iter().take(5) {
            say.violation(&format!("{how}: {what}"));
        }
        if let Some(more) = all.len().checked_sub(6) {
            say.violation(&format!("{how}: and {} more", more + 1));
        }
    }
    findings.is_clean()
}

fn write_until_killed(arguments: &Arguments, say: &Say) -> Anything<bool> {
    let Some((file, found)) = recover(arguments, say)? else { return Ok(false) };
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    write::until_killed(&arguments.folder, file, found, say, &mut random)?;
    Ok(true)
}

fn check_and_close(arguments: &Arguments, say: &Say) -> Anything<bool> {
    let Some((file, found)) = recover(arguments, say)? else { return Ok(false) };
    file.close(CloseMode::Spatial)?;
    let folder = &arguments.folder;
    if !report(&check_plain(folder, &found)?, say) {
        return Ok(false);
    }
    say.line("ok the plain bytes");
    // Tests the check itself: first with one operation too many, then with a slice of an older one.
    let mut more = found;
    more.written[0] += 1;
    let notices_loss = check_plain(folder, &more)?.lost.len() == 1;
    let notices_tearing = damage(folder)? && !check_plain(folder, &found)?.torn.is_empty();
    say.line(&format!("control loss {notices_loss} tearing {notices_tearing}"));
    Ok(notices_loss && notices_tearing)
}

/// Puts a slice of an older operation into the largest place of a writer. Returns `false` if the
/// file contains no older slice.
fn damage(folder: &Path) -> Anything<bool> {
    const KIND: u64 = 6;
    let file = open(folder)?;
    for turn in 0..TURNS {
        let nth = turn * KINDS + KIND;
        let place = &places(0, nth)[0];
        let mut bytes = vec![0; place.len];
        file.read_at(&mut bytes, place.at)?;
        let n = named(&bytes);
        if n > 0 {
            let older = stamp(0, n.saturating_sub(KINDS * TURNS), 0, place.len);
            file.write_at(&older[6400..6464], place.at + 6400)?;
            file.close(CloseMode::Spatial)?;
            return Ok(true);
        }
    }
    Ok(false)
}
