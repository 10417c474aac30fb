//! Tests of the calls on real files, in memory and on disk.
//!
//! May import: `calls`, `allocate`, and the vocabulary of `platform/mod.rs`.

use super::{HUGE_PAGE, OpenHow};
use crate::platform::os::{File, FileSystem, Name, allocate};
use crate::platform::{FileId, Platform};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const NEW: OpenHow = OpenHow { create_new: true, mode: 0o600, reads_only: false };

/// A new file that is removed when dropped.
pub(super) struct Scratch {
    pub path: PathBuf,
    pub name: Name,
    pub file: File,
}

impl Scratch {
    pub fn new(dir: &str, platform: &Platform) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("platform-{}-{number}", std::process::id());
        let path = Path::new(dir).join(name);
        let name = platform.name(&path).unwrap();
        let file = platform.open(&name, NEW).unwrap();
        Scratch { path, name, file }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns folders in memory and on disk, where they exist.
fn places() -> impl Iterator<Item = &'static str> {
    ["/dev/shm", "/tmp"].into_iter().filter(|dir| Path::new(dir).is_dir())
}

#[test]
fn a_file_grows_into_its_mapping() {
    let p = Platform::native();
    for dir in places() {
        let s = Scratch::new(dir, &p);
        let len = 8 << 20;
        let map = p.map(&s.file, len, false).unwrap();
        assert_eq!(map.len() as u64, len);
        if cfg!(all(target_os = "linux", not(atomic_mmap_portable))) {
            assert!(map.base().addr().is_multiple_of(HUGE_PAGE as usize));
        }
        p.allocate(&s.file, FileId::Home, None, 0, 4096).unwrap();
        assert_eq!(p.stat(&s.file).unwrap().len, 4096);
        p.allocate(&s.file, FileId::Home, None, 4 << 20, 8192).unwrap();
        assert_eq!(p.stat(&s.file).unwrap().len, (4 << 20) + 8192);
        let place = |offset: u64| crate::platform::Place {
            ptr: map.base().wrapping_add(offset as usize),
            file: FileId::Home,
            offset,
        };
        let far = (4 << 20) + 100;
        // SAFETY: both ranges are in the mapping and within the file, and no other thread uses
        // it.
        unsafe {
            p.copy_in(place(7), b"near", crate::platform::Copying::BySize);
            p.copy_in(place(far), b"far", crate::platform::Copying::Cached);
            let mut back = [0; 3];
            p.copy_out(&mut back, place(far).ptr);
            assert_eq!(&back, b"far");
        }
        // The page cache is the same memory.
        let mut back = [0; 6];
        p.read_at(&s.file, FileId::Home, &mut back, 6).unwrap();
        assert_eq!(&back, b"\0near\0");
        p.write_at(&s.file, FileId::Home, b"by call", 64).unwrap();
        let mut back = [0; 7];
        // SAFETY: as above.
        unsafe { p.copy_out(&mut back, place(64).ptr) };
        assert_eq!(&back, b"by call");
        p.sync_data(&s.file, FileId::Home).unwrap();
        p.sync_all(&s.file, FileId::Home).unwrap();
        p.sync_dir(s.name.folder(), &s.file).unwrap();
    }
}

#[test]
fn lengths_to_be_mapped_are_checked() {
    let p = Platform::native();
    let s = Scratch::new("/tmp", &p);
    for len in [0, 4096, HUGE_PAGE + 1, u64::MAX - HUGE_PAGE + 1] {
        assert!(p.map(&s.file, len, false).is_err(), "{len}");
    }
}

#[test]
fn a_synchronous_mapping_of_ordinary_memory_is_refused() {
    let p = Platform::native();
    for dir in places() {
        let s = Scratch::new(dir, &p);
        p.set_file_len(&s.file, FileId::Home, HUGE_PAGE).unwrap();
        let refused = p.map(&s.file, HUGE_PAGE, true).unwrap_err();
        assert!(
            matches!(refused.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput),
            "{refused}"
        );
    }
}

#[test]
fn allocation_keeps_contents_and_punching_takes_storage_back() {
    let p = Platform::native();
    for dir in places() {
        let s = Scratch::new(dir, &p);
        let id = FileId::Reflection;
        p.write_at(&s.file, id, b"kept", 5000).unwrap();
        p.set_file_len(&s.file, id, 40_000).unwrap();
        p.allocate(&s.file, id, None, 100, 299_900).unwrap();
        let stat = p.stat(&s.file).unwrap();
        assert_eq!(stat.len, 300_000);
        assert!(stat.blocks * 512 >= 290_000, "{stat:?}");
        let mut all = vec![1; 300_010];
        p.read_at(&s.file, id, &mut all, 0).unwrap();
        assert_eq!(&all[5000..5004], b"kept");
        assert_eq!(all.iter().filter(|b| **b != 0).count(), 4);
        p.write_at(&s.file, id, &[9; 65_536], 65_536).unwrap();
        if p.punch(&s.file, id, 65_536, 65_536).unwrap() {
            let now = p.stat(&s.file).unwrap();
            assert_eq!(now.len, 300_000);
            assert!(now.blocks < stat.blocks);
            let mut back = [1; 65_536];
            p.read_at(&s.file, id, &mut back, 65_536).unwrap();
            assert!(back.iter().all(|b| *b == 0));
            let mut kept = [0; 4];
            p.read_at(&s.file, id, &mut kept, 5000).unwrap();
            assert_eq!(&kept, b"kept");
        } else {
            assert!(cfg!(atomic_mmap_portable) || dir != "/dev/shm");
        }
    }
}

#[test]
fn the_way_by_writing_allocates_and_keeps() {
    let p = Platform::native();
    for dir in places() {
        for len in [1, 4095, 4096, 4097, 5003, 65_536, 70_000, 200_000] {
            let s = Scratch::new(dir, &p);
            let id = FileId::Home;
            p.set_file_len(&s.file, id, len).unwrap();
            p.write_at(&s.file, id, b"!", len - 1).unwrap();
            for (offset, size) in [(0, 300_000), (100, 5), (4096, 1), (len, 10)] {
                allocate::by_writing(&p, &s.file, id, offset, size).unwrap();
                let stat = p.stat(&s.file).unwrap();
                assert!(stat.len >= offset + size);
            }
            let stat = p.stat(&s.file).unwrap();
            assert_eq!(stat.len, 300_000);
            assert!(stat.blocks * 512 >= 300_000);
            let mut all = vec![1; 300_000];
            p.read_at(&s.file, id, &mut all, 0).unwrap();
            assert_eq!(all.iter().filter(|b| **b != 0).count(), 1);
            assert_eq!(all[len as usize - 1], b'!');
        }
    }
}

#[test]
fn holes_and_data_are_found() {
    let p = Platform::native();
    for dir in places() {
        let s = Scratch::new(dir, &p);
        let id = FileId::Home;
        p.set_file_len(&s.file, id, 4 << 20).unwrap();
        p.write_at(&s.file, id, &[1; 4096], 1 << 20).unwrap();
        let data = p.next_data(&s.file, 0).unwrap();
        let hole = p.next_hole(&s.file, 1 << 20).unwrap();
        if cfg!(all(target_os = "linux", not(atomic_mmap_portable))) {
            assert_eq!(data, Some(1 << 20));
            assert_eq!(hole, (1 << 20) + 4096);
            assert_eq!(p.next_data(&s.file, hole).unwrap(), None);
            assert_eq!(p.next_hole(&s.file, 0).unwrap(), 0);
            assert_eq!(p.next_hole(&s.file, 5 << 20).unwrap(), 5 << 20);
        } else {
            assert_eq!(data, Some(0));
            assert_eq!(hole, 1 << 20);
        }
    }
}

/// Where a number of `stat` has 32 bits, the call fails for such a file.
#[test]
fn the_name_of_a_long_file_has_its_identity() {
    let p = Platform::native();
    for dir in places() {
        let s = Scratch::new(dir, &p);
        p.set_file_len(&s.file, FileId::Home, 5 << 30).unwrap();
        let stat = p.stat(&s.file).unwrap();
        assert_eq!(p.identity_at(&s.name).unwrap(), Some((stat.dev, stat.ino)));
        let none = p.identity_at(&s.name.with_suffix("none"));
        assert_eq!(none.unwrap(), None);
    }
}

#[test]
fn identity_names_locks_and_attributes() {
    let p = Platform::native();
    for dir in places() {
        let s = Scratch::new(dir, &p);
        let again = OpenHow { create_new: false, mode: 0, reads_only: false };
        let other = p.open(&s.name, again).unwrap();
        let stat = p.stat(&s.file).unwrap();
        assert_eq!(stat, p.stat(&other).unwrap());
        assert_eq!(p.stat_name(&s.name).unwrap(), Some(stat));
        assert!(stat.is_regular);
        assert!(stat.mtime.0 > 1_600_000_000 && stat.mtime.1 < 1_000_000_000);
        if let Some(born) = stat.btime {
            assert!(born.0 > 1_600_000_000);
        }
        assert_eq!(p.open(&s.name, NEW).unwrap_err().kind(), ErrorKind::AlreadyExists);

        assert!(p.try_lock(&s.file).unwrap());
        assert!(!p.try_lock(&other).unwrap());

        let name = "user.atomic_mmap.test";
        assert_eq!(p.get_xattr(&s.file, name).unwrap(), None);
        let long = vec![3; 1000];
        if p.set_xattr(&s.file, name, &long).unwrap() {
            assert_eq!(p.get_xattr(&other, name).unwrap(), Some(long));
            p.remove_xattr(&s.file, name).unwrap();
            assert_eq!(p.get_xattr(&other, name).unwrap(), None);
        }
        p.remove_xattr(&s.file, name).unwrap();

        let moved = s.name.with_suffix("moved");
        p.rename(&s.name, &moved).unwrap();
        assert_eq!(p.stat_name(&s.name).unwrap(), None);
        let names = p.list_dir(s.name.folder(), usize::MAX).unwrap();
        assert!(names.iter().any(|name| name == moved.name()));
        p.remove(&moved).unwrap();
        assert_eq!(p.remove(&moved).unwrap_err().kind(), ErrorKind::NotFound);

        let kind = p.file_system(&s.file).unwrap();
        if cfg!(all(target_os = "linux", not(atomic_mmap_portable))) {
            if dir == "/dev/shm" {
                assert_eq!(kind, FileSystem::Ram("tmpfs"));
                assert_eq!(kind.to_string(), "tmpfs");
            }
            assert_ne!(p.boot_id().unwrap(), [0; 16]);
            assert_eq!(p.boot_id().unwrap(), p.boot_id().unwrap());
        } else {
            assert_eq!(kind.to_string(), "unknown");
        }
    }
}
