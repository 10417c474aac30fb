//! Operations on media with drains: each is durable when it returns.

use super::{CHUNK, PAGE, REGION, Traced};
use crate::common::{Rng, dax};
use atomic_mmap::{AtomicMappedFile, CloseMode, Integrity, Options, Result, Stage};

/// Offset and length of writes within a page, and of writes over pages.
const IN_PAGE: [(u64, u64); 14] = [
    (0, 8),
    (0, 64),
    (0, 100),
    (0, 256),
    (0, 257),
    (0, 512),
    (0, 513),
    (0, 1024),
    (0, 4095),
    (0, 4096),
    (60, 8),
    (50, 100),
    (10, 256),
    (100, 1024),
];
const PAGES: [u64; 5] = [2, 8, 16, 64, 256];

fn plain(options: Options) -> Options {
    options.integrity(Integrity::Off)
}

fn summed(options: Options) -> Options {
    options.integrity(Integrity::OnScrub)
}

/// Writes `count` parts of `len` bytes, `step` bytes apart.
fn parts(file: &AtomicMappedFile, (count, len, step): (u64, usize, u64)) -> Result<()> {
    let bytes = vec![7; len];
    let parts: Vec<(u64, &[u8])> = (0..count).map(|n| (n * step + 9, &bytes[..])).collect();
    file.write_many(&parts)
}

/// Stages `len` bytes from the eighth page on.
fn staged(file: &AtomicMappedFile, len: u64) -> Result<Stage<'_>> {
    let mut stage = file.stage(8 * PAGE..8 * PAGE + len)?;
    stage.write_at(&vec![7; len as usize], 0)?;
    Ok(stage)
}

#[test]
fn writes_take_their_steps() {
    let Some(ground) = dax() else { return };
    let gib = 1 << 30;
    let mut traced = Traced::new(&ground, gib + CHUNK, plain);
    for (offset, len) in IN_PAGE {
        traced.write("", len, 3 * PAGE + offset);
    }
    for pages in PAGES {
        traced.write("", pages * PAGE, 0);
        traced.write("", pages * PAGE - 50, 100);
    }
    for edge in [REGION, CHUNK, gib] {
        traced.write("", 2 * PAGE, edge - PAGE);
        traced.write("", 100, edge - 50);
    }
    for of in [(2, 8, 100), (2, 8, PAGE), (8, 100, 400), (8, 100, PAGE), (200, 8, 512)] {
        traced.warm(&format!("parts {of:?}"), |file| parts(file, of));
    }
    traced.warm("words of many regions", |file| parts(file, (85, 8, REGION)));
    traced.warm("an empty write", |file| file.write_at(&[], 0));
    traced.warm("a value", |file| file.store(8, &7u64));
    traced.warm("a transaction", |file| {
        file.transact(|tx| {
            let value: u64 = tx.load(16)?;
            tx.store(16, &(value + 1))
        })
    });
    traced.warm("a transaction over pages", |file| {
        file.transact(|tx| {
            let value: u64 = tx.load(16)?;
            tx.store(16, &(value + 1))?;
            tx.store(5 * PAGE, &value)
        })
    });
    snapbox::assert_data_eq!(&traced.traces[..], snapbox::file!["dax-plain.txt"].raw());
}

#[test]
fn writes_with_sums_take_their_steps() {
    let Some(ground) = dax() else { return };
    let mut traced = Traced::new(&ground, 4 * CHUNK, summed);
    for (offset, len) in IN_PAGE {
        traced.write("", len, 3 * PAGE + offset);
    }
    for pages in [2, 8, 64] {
        traced.write("", pages * PAGE, 0);
        traced.write("", pages * PAGE - 50, 100);
    }
    traced.warm("parts", |file| parts(file, (8, 100, PAGE)));
    for (name, offset, len) in
        [("a part", 50, 100), ("a slice", 64, 64), ("a page", 0, 4096), ("pages", 70, 9000)]
    {
        let write = |file: &AtomicMappedFile| file.write_at(&vec![7; len], 20 * PAGE + offset);
        traced = traced.reopen(&ground, summed, CloseMode::Fast);
        traced.trace(&format!("first touch: {name}"), write);
        traced = traced.reopen(&ground, summed, CloseMode::Unsynced);
        traced.trace(&format!("after a crash: {name}"), write);
    }
    snapbox::assert_data_eq!(&traced.traces[..], snapbox::file!["dax-sums.txt"].raw());
}

#[test]
fn writes_behind_a_seal_take_their_steps() {
    let Some(ground) = dax() else { return };
    let mut all = String::new();
    for (kind, options) in [("", plain as fn(Options) -> Options), ("sums, ", summed)] {
        let mut traced = Traced::new(&ground, 4 * CHUNK, options);
        let writes = [(64, 64), (50, 100), (0, 4096), (10, 300), (30, 9000), (0, 8 * PAGE)];
        for (n, (offset, len)) in writes.into_iter().enumerate() {
            let write = |file: &AtomicMappedFile| file.write_at(&vec![7; len as usize], offset);
            traced.trace(&format!("{kind}seal {n}"), |file| {
                file.snapshot(&format!("s{n}")).map(drop)
            });
            traced.trace(&format!("{kind}first {len} at {offset}"), write);
            traced.trace(&format!("{kind}second {len} at {offset}"), write);
        }
        traced.trace(&format!("{kind}over the end of a segment"), |file| {
            file.write_at(&Rng(3).bytes(40 * PAGE as usize), REGION)
        });
        traced.trace(&format!("{kind}parts"), |file| parts(file, (8, 100, PAGE)));
        traced.trace(&format!("{kind}a shorter file"), |file| file.set_len(CHUNK / 2 + 70));
        traced.trace(&format!("{kind}a drop"), |file| file.drop_snapshot("s2"));
        traced.trace(&format!("{kind}a rollback to a longer state"), |file| {
            file.roll_back("s5", None)
        });
        traced.trace(&format!("{kind}a rollback to the length"), |file| file.roll_back("s4", None));
        all += &traced.traces;
    }
    snapbox::assert_data_eq!(&all[..], snapbox::file!["dax-snapshots.txt"].raw());
}

#[test]
fn writes_beside_claims_take_their_steps() {
    let Some(ground) = dax() else { return };
    let mut traced = Traced::new(&ground, 4 * CHUNK, plain);
    let pinned = |file: &AtomicMappedFile, write: &dyn Fn() -> Result<()>| {
        let _view = file.view(4 * PAGE..6 * PAGE)?;
        write()
    };
    for (offset, len) in [(0, 64), (50, 100), (0, 4096), (100, 5000), (4000, 9000)] {
        let bytes = Rng(len).bytes(len as usize);
        traced.warm(&format!("under a view: {len} at {offset}"), |file| {
            pinned(file, &|| file.write_at(&bytes, 4 * PAGE + offset))
        });
    }
    traced.warm("under a view: parts", |file| pinned(file, &|| parts(file, (8, 100, PAGE))));
    for len in [64, 4096, 3 * PAGE, REGION] {
        traced.warm(&format!("a stage of {len}"), |file| staged(file, len)?.commit());
    }
    traced.warm("a stage with a part elsewhere", |file| {
        let stage = staged(file, 4096)?;
        let mut tx = file.begin();
        tx.write_at(&[7; 100], 50)?;
        tx.commit_with(&mut [stage])
    });
    traced.warm("a stage with a part in its page", |file| {
        let stage = staged(file, 2048)?;
        let mut tx = file.begin();
        tx.write_at(&[7; 100], 8 * PAGE + 3000)?;
        tx.commit_with(&mut [stage])
    });
    traced.warm("beside a stage", |file| {
        let _stage = staged(file, 4096)?;
        file.write_at(&[7; 100], 8 * PAGE + 10)
    });
    snapbox::assert_data_eq!(&traced.traces[..], snapbox::file!["dax-claims.txt"].raw());
}

#[test]
fn changes_of_the_length_take_their_steps() {
    let Some(ground) = dax() else { return };
    let mut all = String::new();
    for (kind, options) in [("", plain as fn(Options) -> Options), ("sums, ", summed)] {
        let mut traced = Traced::new(&ground, CHUNK, options);
        for len in [CHUNK + 100, CHUNK + PAGE, 3 * CHUNK, 3 * CHUNK - 100, CHUNK, 70] {
            traced.trace(&format!("{kind}{len} bytes"), |file| file.set_len(len));
        }
        let grow = |file: &AtomicMappedFile, len: u64| {
            file.transact(|tx| {
                tx.set_len(len)?;
                tx.write_at(&[7; 60], len - 60)
            })
        };
        for len in [200, 5000, CHUNK + 7, 9000, 300] {
            traced.trace(&format!("{kind}{len} bytes, some written"), |file| grow(file, len));
        }
        traced.trace(&format!("{kind}other contents"), |file| file.replace(&[7; 10_000]));
        traced.trace(&format!("{kind}shorter contents"), |file| file.replace(&[8; 90]));
        all += &traced.traces;
    }
    snapbox::assert_data_eq!(&all[..], snapbox::file!["dax-lengths.txt"].raw());
}
