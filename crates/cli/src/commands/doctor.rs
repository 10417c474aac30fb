//! `doctor`: what a folder's file system would promise, and why, and the files of the companions
//! there.

use crate::args::{Common, Folder};
use crate::outcome::{Failure, Outcome};
use crate::progress::PairScratch;
use crate::report::Report;
use atomic_mmap::{CloseMode, MEDIUM_VARIABLE, Medium, Survives, shown};
use rustix::fs::{FallocateFlags, OFlags, XattrFlags};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The attribute that is tried. It is of the same kind as the crate's own.
const ATTRIBUTE: &str = "user.atomic-mmap-doctor";

/// The name of the file that is tried.
const PROBE: &str = "probe";

/// Makes a small pair in a scratch folder, and asks it. So the answer is the library's own.
pub fn run(common: &Common, of: &Folder) -> Result<Outcome, Failure> {
    let scratch = PairScratch::within(&of.folder, common)?;
    let mut report = Report::new("doctor");
    report.path("folder", Some(&of.folder));
    let failed = || Failure::io(&of.folder);
    let mut probe = scratch.home().make_file(PROBE).map_err(failed())?;
    probe.write_all(&[0; 4096]).map_err(failed())?;
    report.text("file_system", file_system(&probe));
    let options = scratch.options(common).create(true).len(4096);
    let file = scratch.home().inside(|| Ok(options.open("pair")?))?;
    let (medium, now, synced) = (file.medium(), file.survives(), file.survives_after_sync());
    file.close(CloseMode::Spatial)?;
    // A forced medium says nothing about the file system.
    let is_forced = common.medium.is_some() || atomic_mmap::variable(MEDIUM_VARIABLE).is_some();
    let why = match medium {
        _ if is_forced => "forced",
        Medium::Dax => "mapped with MAP_SYNC: stores reach persistent memory",
        Medium::PageCache => "a disk behind a page cache: MAP_SYNC is not offered here",
        Medium::Ram => "a file system in memory",
        _ => "told by the library",
    };
    report.add("medium", medium.to_string(), format!("{medium} ({why})"));
    let keeps = |survives: Survives| match survives {
        Survives::Nothing => "nothing",
        Survives::ProcessCrash => "process-crash",
        _ => "power-loss",
    };
    report.add("write_survives", keeps(now), now.to_string());
    report.add("sync_survives", keeps(synced), synced.to_string());
    if is_forced {
        report.add("map_sync", None::<bool>, "unknown: the medium is forced");
    } else {
        report.flag("map_sync", medium == Medium::Dax);
    }
    let direct = scratch.home().open_file(PROBE, OFlags::RDWR | OFlags::DIRECT);
    said(&mut report, "o_direct", direct.is_ok(), "points are written past the page cache");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punched = rustix::fs::fallocate(&probe, hole, 0, 4096);
    said(&mut report, "punch_hole", punched.is_ok(), "deployed pages give their space back");
    let marked = rustix::fs::fsetxattr(&probe, ATTRIBUTE, b"x", XattrFlags::CREATE);
    said(&mut report, "xattr", marked.is_ok(), "marks tell moved and copied files apart");
    let barriers = rustix::thread::membarrier_query();
    let has = barriers.contains(rustix::thread::MembarrierQuery::PRIVATE_EXPEDITED);
    said(&mut report, "membarrier", has, "reads need no fence of their own");
    report.text("huge_pages", chosen("/sys/kernel/mm/transparent_hugepage/enabled"));
    report.text("huge_pages_tmpfs", chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").is_ok();
    said(&mut report, "boot_id", boot, "a crash of the process alone takes nothing back");
    let (of_files, left) = companions(common, &of.folder)?;
    let told = of_files.iter().map(|(file, companion)| {
        format!("{} of {}", shown(companion), shown(&file.file_name().unwrap_or_default()))
    });
    let told: Vec<String> = told.collect();
    let value = of_files.iter().map(|(file, companion)| {
        json!({"companion": companion.to_string_lossy(), "file": file.to_string_lossy()})
    });
    let value: Value = value.collect();
    report.add("companions", value, if told.is_empty() { "none".into() } else { told.join(", ") });
    if !left.is_empty() {
        let told: Vec<String> = left.iter().map(|name| shown(name).to_string()).collect();
        let value: Value = left.iter().map(|name| json!(name.to_string_lossy())).collect();
        report.add("of_no_file_here", value, told.join(", "));
    }
    report.print(common.json)?;
    Ok(Outcome::Ok)
}

/// A file, and the name of a companion of it.
type OfFile = (PathBuf, OsString);

/// Returns each companion in the folder, with the file that it belongs to, and the companions of no
/// file there. They are named by inodes, so only a look at each file tells.
fn companions(common: &Common, folder: &Path) -> Result<(Vec<OfFile>, Vec<OsString>), Failure> {
    let names = |folder: &Path| {
        let entries = folder.read_dir().map_err(Failure::io(folder))?;
        let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
        let mut names = names.map_err(Failure::io(folder))?;
        names.sort();
        Ok::<_, Failure>(names)
    };
    let is_companion = |name: &OsString| name.as_encoded_bytes().starts_with(b".atomic-mmap.");
    let (mut left, files): (Vec<_>, Vec<_>) = names(folder)?.into_iter().partition(is_companion);
    if let Some(folder) = &common.reflection_dir {
        left = names(folder)?.into_iter().filter(is_companion).collect();
    }
    let mut of_files = Vec::new();
    for file in files.iter().map(|name| folder.join(name)) {
        if left.is_empty() {
            break;
        }
        // A file that refuses a look is no regular one, or another user's.
        let Ok(look) = common.options().inspect(&file) else { continue };
        for path in [&look.reflection, &look.journal, &look.snapshot_file].into_iter().flatten() {
            let name = path.file_name().unwrap_or_default();
            if let Some(at) = left.iter().position(|companion| companion == name) {
                of_files.push((file.clone(), left.remove(at)));
            }
        }
    }
    Ok((of_files, left))
}

fn said(report: &mut Report, name: &'static str, is_there: bool, why: &str) {
    report.add(name, is_there, if is_there { format!("yes: {why}") } else { "no".into() });
}

/// Returns the name of a file's file system by its number, for those that are common.
fn file_system(file: &File) -> Option<String> {
    let kind = rustix::fs::fstatfs(file).ok()?.f_type;
    Some(match kind as u32 {
        0x0000_ef53 => "ext".into(),
        0x5846_5342 => "xfs".into(),
        0x9123_683e => "btrfs".into(),
        0x0102_1994 => "tmpfs".into(),
        0x8584_58f6 => "ramfs".into(),
        0x794c_7630 => "overlay".into(),
        0x6573_5546 => "fuse".into(),
        0x0000_6969 => "nfs".into(),
        other => format!("{other:#x}"),
    })
}

/// Returns the choice in brackets of a file in /sys.
fn chosen(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}
