//! Tests of the trace, of injected failures, and of the death at a numbered event.
//!
//! May import: the recorder, and the vocabulary of `platform/mod.rs`.

use super::*;
use crate::platform::{File, FileId, isa};
use std::io::ErrorKind;

#[repr(align(64))]
struct Lines([u8; 4096]);

fn place(lines: &mut Lines, offset: usize) -> Place {
    Place {
        ptr: lines.0.as_mut_ptr().wrapping_add(offset),
        file: FileId::Home,
        offset: offset as u64,
    }
}

fn whats(recorder: &Recorder) -> Vec<What> {
    recorder.take().into_iter().map(|event| event.what).collect()
}

#[cfg(all(unix, not(miri)))]
#[test]
fn the_process_dies_at_the_numbered_thing() {
    for (nth, death, expected) in [
        (1, Death::Before, 0),
        (2, Death::Before, 1),
        (1, Death::Halfway, 2),
        (3, Death::Before, 3),
        (2, Death::Halfway, 4),
        (5, Death::Before, 4),
    ] {
        // Shared with the child, so that the parent can see how far the child came. SAFETY: a
        // new mapping at an address of the kernel's choice.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        let at = |offset: u64| Place {
            ptr: page.cast::<u8>().wrapping_add(offset as usize),
            file: FileId::Home,
            offset,
        };
        let recorder = Recorder::new();
        let p = recorder.platform();
        recorder.kill_at(nth, death);
        let bytes = [7; 16];
        // SAFETY: the child touches the page, an uncontended mutex of its own, and memory that
        // glibc keeps usable after a fork.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            // SAFETY: places inside the page; the parent reads it after the child's end.
            unsafe {
                p.store_word_through(at(0), 1);
                p.copy_in(at(64), &bytes, Copying::Cached);
                p.drain();
                let _done = p.compare_exchange_word(at(128), 0, 1);
                libc::_exit(0)
            }
        }
        let mut status = 0;
        // SAFETY: our own child, and a live local for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        // SAFETY: the page is mapped until here.
        let found = unsafe {
            let found = std::slice::from_raw_parts(page.cast::<u8>(), 4096).to_vec();
            libc::munmap(page, 4096);
            found
        };
        let copied = &found[64..80];
        let stage = match (found[0], copied == bytes, copied[..8] == bytes[..8], found[128]) {
            (0, false, false, 0) => 0,
            (1, false, false, 0) => 1,
            (1, false, true, 0) => 2,
            (1, true, true, 0) => 3,
            (1, true, true, 1) => 4,
            other => panic!("{other:?}"),
        };
        assert_eq!(stage, expected, "at {nth}, {death:?}");
        assert_eq!(libc::WIFSIGNALED(status), expected < 4);
        if expected < 4 {
            assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
        }
    }
}

#[test]
fn memory_operations_are_noted_and_done() {
    let recorder = Recorder::new();
    let p = recorder.platform().with_persistence(Persistence::Flush);
    let mut lines = Lines([0; 4096]);
    let file = FileId::Home;
    // SAFETY: all places are inside the array, words at multiples of 8; one thread.
    unsafe {
        p.store_word_through(place(&mut lines, 8), 5);
        p.store_word_through(place(&mut lines, 16), 6);
        assert_eq!(p.compare_exchange_word(place(&mut lines, 8), 5, 9), Ok(5));
        assert_eq!(p.compare_exchange_word(place(&mut lines, 8), 5, 1), Err(9));
        p.flush(place(&mut lines, 8), 16);
        p.drain();
        assert_eq!(p.load_word(place(&mut lines, 8).ptr), 9);
    }
    assert_eq!(
        whats(&recorder),
        [
            What::Store { file, offset: 8, value: 5, through: true },
            What::Store { file, offset: 16, value: 6, through: true },
            What::CompareExchange { file, offset: 8, old: 5, new: 9, done: true },
            What::CompareExchange { file, offset: 8, old: 5, new: 1, done: false },
            What::Flush { file, offset: 8, len: 16 },
            What::Drain,
        ]
    );
    assert!(recorder.take().is_empty());
}

#[test]
fn copies_are_noted_in_the_parts_that_were_made() {
    let recorder = Recorder::new();
    let p = recorder.platform().with_persistence(Persistence::Flush);
    let mut lines = Lines([0; 4096]);
    let file = FileId::Home;
    let data: Vec<u8> = (0..200).collect();
    // SAFETY: all places are inside the array; one thread.
    unsafe { p.copy_in(place(&mut lines, 61), &data, Copying::BySize) };
    assert_eq!(lines.0[61..261], data);
    let copy = |range: std::ops::Range<usize>, through| What::Copy {
        file,
        offset: 61 + range.start as u64,
        bytes: data[range].to_vec(),
        through,
    };
    let flush = |offset, len| What::Flush { file, offset, len };
    if isa::FLUSHES {
        assert_eq!(
            whats(&recorder),
            [
                copy(0..3, false),
                flush(61, 3),
                copy(3..195, true),
                copy(195..200, false),
                flush(256, 5),
            ]
        );
    } else {
        assert_eq!(whats(&recorder), [copy(0..200, false), flush(61, 200)]);
    }
    // SAFETY: as above.
    unsafe { p.copy_in(place(&mut lines, 61), &data, Copying::Cached) };
    assert_eq!(whats(&recorder), [copy(0..200, false)]);

    let source = lines.0[61..].as_ptr();
    // SAFETY: as above; 61..189 and 1024..1152 do not overlap.
    unsafe {
        p.copy_across(place(&mut lines, 1024), source, 128, Copying::Cached);
        p.fill_zero(place(&mut lines, 61), 3);
    }
    assert_eq!(lines.0[1024..1152], data[..128]);
    assert_eq!(lines.0[60..65], [0, 0, 0, 0, 3]);
    assert_eq!(
        whats(&recorder),
        [
            What::Copy { file, offset: 1024, bytes: data[..128].to_vec(), through: false },
            What::Copy { file, offset: 61, bytes: vec![0; 3], through: false },
            flush(61, 3),
        ]
    );

    // Nothing needs a flush where the caches persist or only the process can die.
    for persistence in [Persistence::Caches, Persistence::Process] {
        let p = p.clone().with_persistence(persistence);
        // SAFETY: as above.
        unsafe {
            p.copy_in(place(&mut lines, 61), &data, Copying::BySize);
            p.flush(place(&mut lines, 61), 200);
        }
        assert_eq!(whats(&recorder), [copy(0..200, true)]);
    }
}

#[test]
fn the_order_of_the_trace_is_the_order_in_memory() {
    let recorder = Recorder::new();
    let mut lines = Lines([0; 4096]);
    let at = place(&mut lines, 0);
    let address = at.ptr.expose_provenance();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let p = recorder.platform();
            scope.spawn(move || {
                let at = Place {
                    ptr: std::ptr::with_exposed_provenance_mut(address),
                    file: FileId::Home,
                    offset: 0,
                };
                for old in 0..100 {
                    // SAFETY: a word of the array that outlives the scope, touched atomically.
                    let _one_of_four = unsafe { p.compare_exchange_word(at, old, old + 1) };
                }
            });
        }
    });
    let mut value = 0;
    let trace = recorder.take();
    assert_eq!(trace.len(), 400);
    let mut threads = std::collections::HashSet::new();
    for event in trace {
        threads.insert(event.thread);
        let What::CompareExchange { old, new, done, .. } = event.what else { panic!("{event:?}") };
        assert_eq!(done, old == value);
        value = if done { new } else { value };
    }
    assert_eq!(threads.len(), 4);
}

/// A new file without a name.
#[cfg(all(unix, not(miri)))]
fn scratch(name: &str) -> File {
    let path = std::env::temp_dir().join(format!("recorder-{name}-{}", std::process::id()));
    let how = crate::platform::OpenHow { create_new: true, mode: 0o600, reads_only: false };
    let platform = Platform::native();
    let file = platform.open(&platform.name(&path).unwrap(), how).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

#[cfg(all(unix, not(miri)))]
#[test]
fn calls_are_noted_and_can_be_made_to_fail() {
    let recorder = Recorder::new();
    let p = recorder.platform();
    let f = scratch("calls");
    let file = FileId::Reflection;

    recorder.fail_next(call::SET_LEN, 2, ErrorKind::StorageFull);
    p.set_file_len(&f, file, 100).unwrap();
    let failed = p.set_file_len(&f, file, 200).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::StorageFull);
    assert_eq!(p.stat(&f).unwrap().len, 100, "it was not made");
    p.set_file_len(&f, file, 300).unwrap();
    p.sync_data(&f, file).unwrap();
    p.sync_all(&f, file).unwrap();
    assert_eq!(
        whats(&recorder),
        [
            What::SetLen { file, len: 100 },
            What::Failed(call::SET_LEN),
            What::Os(call::STAT),
            What::SetLen { file, len: 300 },
            What::Sync { file, all: false },
            What::Sync { file, all: true },
        ]
    );
    assert!(!recorder.heal());

    recorder.fail_next("any", 1, libc::EIO);
    let failed = p.sync_data(&f, file).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(libc::EIO));
    p.sync_data(&f, file).unwrap();

    recorder.fail_from(call::SYNC_DATA, 2, libc::EIO);
    assert!(p.sync_data(&f, file).is_ok());
    assert!(p.sync_data(&f, file).is_err());
    assert!(p.sync_data(&f, file).is_err());
    assert!(!recorder.heal());
    assert!(p.sync_data(&f, file).is_ok());

    recorder.fail_next(call::SYNC_DATA, 2, libc::EIO);
    assert!(p.sync_data(&f, file).is_ok());
    assert!(recorder.heal(), "it has not come up");
    assert!(p.sync_data(&f, file).is_ok());
}

#[cfg(all(unix, not(miri)))]
#[test]
fn interrupted_and_short_calls_are_continued() {
    let recorder = Recorder::new();
    let p = recorder.platform();
    let f = scratch("short");
    let file = FileId::Home;

    recorder.fail_next(call::WRITE, 1, Fault::Short(2));
    recorder.fail_next(call::WRITE, 2, libc::EINTR);
    recorder.fail_next(call::WRITE, 3, Fault::Short(0));
    p.write_at(&f, file, b"abcdef", 10).unwrap();
    let write = |offset, bytes: &[u8]| What::Write { file, offset, bytes: bytes.to_vec() };
    assert_eq!(
        whats(&recorder),
        [write(10, b"ab"), What::Failed(call::WRITE), write(12, b"c"), write(13, b"def"),]
    );

    recorder.fail_next(call::READ, 1, ErrorKind::Interrupted);
    recorder.fail_next(call::READ, 2, Fault::Short(3));
    let mut back = [7; 10];
    p.read_at(&f, file, &mut back, 9).unwrap();
    assert_eq!(&back, b"\0abcdef\0\0\0");
    assert_eq!(
        whats(&recorder),
        [
            What::Failed(call::READ),
            What::Read { file, offset: 9, len: 3 },
            What::Read { file, offset: 12, len: 4 },
            What::Read { file, offset: 16, len: 0 },
        ]
    );

    recorder.fail_next(call::SYNC_DATA, 1, libc::EINTR);
    p.sync_data(&f, file).unwrap();
}

#[cfg(all(unix, not(miri)))]
#[test]
fn calls_without_support_are_done_without() {
    let recorder = Recorder::new();
    let p = recorder.platform();
    let f = scratch("unsupported");
    let file = FileId::Home;
    p.write_at(&f, file, b"kept", 5000).unwrap();
    recorder.take();

    recorder.fail_next(call::ALLOCATE, 1, libc::EOPNOTSUPP);
    p.allocate(&f, file, None, 0, 10_000).unwrap();
    assert_eq!(p.stat(&f).unwrap().len, 10_000);
    let mut back = [0; 4];
    p.read_at(&f, file, &mut back, 5000).unwrap();
    assert_eq!(&back, b"kept");
    let written: Vec<_> = whats(&recorder)
        .into_iter()
        .filter_map(|what| match what {
            What::Write { offset, bytes, .. } => Some((offset, bytes.len())),
            _ => None,
        })
        .collect();
    // In pieces of 512 bytes: the one that holds something is written behind it only.
    assert_eq!(written, [(0, 4608), (5004, 4996)]);

    // A full disk in the middle is an error, not a fallback.
    recorder.fail_next(call::ALLOCATE, 1, libc::ENOSPC);
    let full = p.allocate(&f, file, None, 0, 20_000).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);

    recorder.fail_next(call::PUNCH, 1, libc::EOPNOTSUPP);
    assert!(!p.punch(&f, file, 0, 4096).unwrap());
    recorder.fail_next(call::NEXT_DATA, 1, libc::EINVAL);
    assert_eq!(p.next_data(&f, 77).unwrap(), Some(77));
    recorder.fail_next(call::NEXT_HOLE, 1, libc::EINVAL);
    assert_eq!(p.next_hole(&f, 77).unwrap(), 77);
    recorder.fail_next(call::SET_XATTR, 1, libc::EOPNOTSUPP);
    assert!(!p.set_xattr(&f, "user.x", b"1").unwrap());
    recorder.fail_next(call::GET_XATTR, 1, libc::EOPNOTSUPP);
    assert_eq!(p.get_xattr(&f, "user.x").unwrap(), None);
    recorder.fail_next(call::REMOVE_XATTR, 1, libc::EOPNOTSUPP);
    p.remove_xattr(&f, "user.x").unwrap();
    recorder.fail_next(call::BOOT_ID, 1, ErrorKind::NotFound);
    assert_eq!(p.boot_id().unwrap(), [0; 16]);
    recorder.fail_next(call::BOOT_ID, 1, libc::EMFILE);
    assert!(p.boot_id().is_err(), "known, and not read now");
    recorder.fail_next(call::MAP, 1, libc::ENOMEM);
    assert!(p.map(&f, 2 << 20, false).is_err());
    assert!(!recorder.heal());
}

#[test]
#[should_panic(expected = "no call is named")]
fn a_misspelt_name_is_caught() {
    Recorder::new().fail_next("fsnyc", 1, ErrorKind::Other);
}
