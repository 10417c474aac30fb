//! Operations on a page cache and in RAM, and those that move pages.

use super::{CHUNK, PAGE, REGION, Traced};
use crate::common::{Rng, dax, page_cache, ram};
use atomic_mmap::testing::deploy_idle;
use atomic_mmap::{AtomicMappedFile, Integrity, Options};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn plain(options: Options) -> Options {
    options.integrity(Integrity::Off)
}

fn summed(options: Options) -> Options {
    options.integrity(Integrity::OnScrub)
}

/// Returns `true` if the folder is on a tmpfs, which gives storage in other pieces.
fn is_on_tmpfs(folder: &Path) -> bool {
    let name = CString::new(folder.as_os_str().as_bytes()).expect("a path");
    // SAFETY: all zeroes are a value of this type. The kernel reads the name, and fills it.
    let kind = unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        assert_eq!(libc::statfs(name.as_ptr(), &raw mut found), 0);
        found.f_type
    };
    kind == libc::TMPFS_MAGIC
}

#[test]
fn durable_points_take_their_steps() {
    let Some(ground) = page_cache().filter(|ground| !is_on_tmpfs(&ground.base)) else { return };
    let mut all = String::new();
    for (kind, options) in [("", plain as fn(Options) -> Options), ("sums, ", summed)] {
        let mut traced = Traced::new(&ground, 4 * CHUNK, options);
        traced.file.sync().expect("sync");
        for (offset, len) in [(64, 64), (50, 100), (0, 4096), (100, 9000)] {
            let write = move |file: &AtomicMappedFile| file.write_at(&vec![7; len], offset);
            traced.trace(&format!("{kind}unchanged: {len} at {offset}"), write);
            traced.trace(&format!("{kind}changed: {len} at {offset}"), write);
            traced.trace(&format!("{kind}a point of it"), AtomicMappedFile::sync);
        }
        traced.trace(&format!("{kind}a point of nothing"), AtomicMappedFile::sync);
        let long = Rng(5).bytes(5 << 20);
        traced.trace(&format!("{kind}a long write"), |file| file.write_at(&long, 0));
        traced.trace(&format!("{kind}a point by a flush"), AtomicMappedFile::sync);
        traced.trace(&format!("{kind}a shorter file"), |file| file.set_len(CHUNK + 70));
        traced.trace(&format!("{kind}a longer file"), |file| file.set_len(2 * CHUNK));
        traced.trace(&format!("{kind}a point of a longer file"), AtomicMappedFile::sync);
        traced.trace(&format!("{kind}a seal"), |file| file.snapshot("a").map(drop));
        traced.trace(&format!("{kind}behind a seal"), |file| file.write_at(&[7; 100], 50));
        traced.trace(&format!("{kind}a point behind a seal"), AtomicMappedFile::sync);
        all += &traced.traces;
    }
    snapbox::assert_data_eq!(&all[..], snapbox::file!["page-cache.txt"].raw());
}

#[test]
fn stores_in_ram_take_their_steps() {
    let mut all = String::new();
    for (kind, options) in [("", plain as fn(Options) -> Options), ("sums, ", summed)] {
        let mut traced = Traced::new(&ram(), CHUNK, options);
        for (offset, len) in [(8, 8), (10, 3), (64, 64), (50, 100), (0, 4096)] {
            traced.write(kind, len, offset);
        }
        traced.file.snapshot("a").expect("seal");
        traced.write(kind, 8, PAGE);
        traced.write(kind, 64, PAGE + 64);
        all += &traced.traces;
    }
    snapbox::assert_data_eq!(&all[..], snapbox::file!["ram.txt"].raw());
}

#[test]
fn moves_of_pages_take_their_steps() {
    let Some(ground) = dax() else { return };
    let mut traced = Traced::new(&ground, 2 * CHUNK, plain);
    let changed = |traced: &Traced, len: u64| {
        traced.file.write_at(&Rng(len).bytes(len as usize), 0).expect("write");
        traced.file.write_at(&Rng(9).bytes(len as usize), 0).expect("write");
        traced.file.write_at(&Rng(len).bytes(len as usize), 0).expect("write");
    };
    for (name, len) in [("a slice", 64), ("a page", PAGE), ("a region", REGION)] {
        changed(&traced, len);
        traced.trace(&format!("deployment of {name}"), |file| file.deploy(0..len).map(drop));
        traced.trace(&format!("again of {name}"), |file| file.deploy(0..len).map(drop));
    }
    changed(&traced, PAGE);
    traced.trace("deployment beside a pin", |file| {
        let _view = file.view(PAGE..2 * PAGE)?;
        file.deploy(0..2 * PAGE).map(drop)
    });
    changed(&traced, PAGE);
    traced.trace("a pin", |file| file.view(0..PAGE).map(drop));
    changed(&traced, CHUNK);
    traced.trace("deployment of everything", |file| file.deploy(0..2 * CHUNK).map(drop));
    traced.trace("what is idle", |file| {
        deploy_idle(file);
        deploy_idle(file);
        Ok(())
    });
    snapbox::assert_data_eq!(&traced.traces[..], snapbox::file!["moves.txt"].raw());
}
