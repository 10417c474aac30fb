//! Tests that damage to the journal costs nothing that another place still tells.

use crate::common::{assert_same, read_all, reflections_in};
use crate::durable::{Restarted, died, ground, new_file, restarted};
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Error};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A change of a pair's files, and its name in messages.
type Damage<'a> = (&'static str, &'a dyn Fn(&Path));

const BLOCK: u64 = 4096;
/// Bytes of a header that have a meaning.
const HEADER: u64 = 64;

fn journal_in(folder: &Path) -> PathBuf {
    reflections_in(folder).pop().expect("one").with_added_extension("journal")
}

fn journal_of(image: &Restarted) -> PathBuf {
    journal_in(image.path().parent().expect("a folder"))
}

pub fn flip(file: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(file).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 0x80], at).expect("write");
}

/// One flipped bit in the newest header refused the file: each block had a header of its own.
#[test]
fn a_flipped_bit_in_either_header_refuses_nothing() {
    let Some(ground) = ground() else { return };
    let (scratch, mut file) = new_file(&ground, Durability::OnSync);
    let path = scratch.file("state.dat");
    let point = |file: &AtomicMappedFile, byte: u8| {
        file.write_at(&[byte; 3000], 100).and_then(|()| file.sync()).expect("a point");
    };
    point(&file, 1);
    let check = |file: &AtomicMappedFile, what: &str| {
        let model = read_all(file);
        for block in 0..2 {
            for at in [0, 8, 12, 16, 32, 40, HEADER - 1] {
                let image = restarted(&ground, &path);
                flip(&journal_of(&image), block * BLOCK + at);
                let opened = image.open(&ground);
                let what = format!("{what}: byte {at} of block {block}");
                assert_same(&read_all(&opened), &model, &what);
                // The next session has both again.
                point(&opened, 9);
                let again = restarted(&ground, image.path());
                flip(&journal_of(&again), (1 - block) * BLOCK + at);
                assert_eq!(again.open(&ground).load::<u8>(100).expect("load"), 9, "{what}");
            }
        }
    };
    check(&file, "the first session");
    for n in 2..4 {
        file.close(CloseMode::Fast).expect("close");
        file = ground.options().open(&path).expect("open");
        check(&file, "before a point");
        point(&file, n);
        check(&file, "a later session");
    }
}

/// A process crash loses nothing of the working state. A damaged journal, which that state does not
/// need, refused the file.
#[test]
fn after_a_process_crash_no_journal_is_needed() {
    let Some(ground) = ground() else { return };
    let (scratch, file) = new_file(&ground, Durability::OnSync);
    let path = scratch.file("state.dat");
    file.write_at(&[1; 3000], 100).expect("write");
    let older = fs::read(journal_in(scratch.path())).expect("read");
    for byte in 1..4 {
        file.write_at(&[byte; 3000], 100).and_then(|()| file.sync()).expect("a point");
    }
    file.write_at(&[5; 300], 1000).expect("write");
    let model = read_all(&file);
    let is_record = |bytes: &[u8], at: &usize| bytes[*at..].starts_with(b"AtomJrnl");
    let damage: [Damage; 5] = [
        ("both headers", &|journal| (0..2).for_each(|n| flip(journal, n * BLOCK + 40))),
        ("each record", &|journal| {
            let bytes = fs::read(journal).expect("read");
            let records = (0..bytes.len()).step_by(BLOCK as usize);
            records.filter(|at| is_record(&bytes, at)).for_each(|at| flip(journal, at as u64 + 40));
        }),
        ("no bytes", &|journal| fs::write(journal, []).expect("write")),
        ("no file", &|journal| fs::remove_file(journal).expect("remove")),
        ("an older one", &|journal| fs::write(journal, &older).expect("write")),
    ];
    for (what, damage) in damage {
        let image = died(&ground, &path);
        damage(&journal_of(&image));
        let reader = ground.options().read_only(true).open(image.path()).expect(what);
        assert_same(&read_all(&reader), &model, what);
        drop(reader);
        let opened = ground.options().open(image.path()).expect(what);
        assert_same(&read_all(&opened), &model, what);
        // The opening has made a durable point of it.
        let again = restarted(&ground, image.path());
        assert_same(&read_all(&again.open(&ground)), &model, what);
        opened.write_at(&[7; 3000], 50).and_then(|()| opened.sync()).expect("a point");
        let model = read_all(&opened);
        let again = restarted(&ground, image.path());
        assert_same(&read_all(&again.open(&ground)), &model, what);
    }
    // Another pair's journal is no damage, and may be all that the other pair has.
    let image = died(&ground, &path);
    let (other, _file) = new_file(&ground, Durability::OnSync);
    _file.write_at(&[1], 0).and_then(|()| _file.sync()).expect("a point");
    let anothers = fs::read(journal_in(other.path())).expect("read");
    fs::write(journal_of(&image), &anothers).expect("write");
    let error = ground.options().open(image.path()).expect_err("another pair's");
    assert!(matches!(error, Error::Untrusted { .. }), "{error:?}");
    assert!(fs::read(journal_of(&image)).expect("read") == anothers, "it was written to");
}

/// A journal that a file needs is damaged. The only way out zeroed what was synced.
#[test]
fn a_best_effort_gets_out_what_is_there_and_lists_what_is_in_doubt() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let len = 10 << 20;
    let file = ground.options().create(true).len(len).open(&path).expect("open");
    file.write_at(&[1; 9000], 5 << 20).and_then(|()| file.sync()).expect("a point");
    file.write_at(&[2; 9000], 9 << 20).and_then(|()| file.sync()).expect("a point");
    let model = read_all(&file);
    let damage: [Damage; 3] = [
        ("both headers", &|journal| (0..2).for_each(|n| flip(journal, n * BLOCK + 40))),
        ("the newest record", &|journal| {
            let bytes = fs::read(journal).expect("read");
            let is_record = |at: &usize| bytes[*at..].starts_with(b"AtomJrnl");
            let newest = (0..bytes.len()).step_by(BLOCK as usize).rfind(is_record);
            flip(journal, newest.expect("a record") as u64 + 40);
        }),
        ("no journal", &|journal| fs::remove_file(journal).expect("remove")),
    ];
    for (what, damage) in damage {
        let image = restarted(&ground, &path);
        let look = ground.options().inspect(image.path()).expect("look");
        assert_eq!(look.doubtful().expect("ranges"), [], "{what}: nothing is refused");
        damage(&journal_of(&image));
        ground.options().open(image.path()).expect_err(what);
        ground.options().best_effort(true).open(image.path()).expect_err("for reading alone");
        let options = ground.options().read_only(true).best_effort(true);
        let found = read_all(&options.open(image.path()).expect(what));
        let look = ground.options().inspect(image.path()).expect("look");
        let doubtful = look.doubtful().expect("ranges");
        // The page of words of 2 MiB was written.
        assert_eq!(doubtful, [4 << 20..6 << 20, 8 << 20..len], "{what}");
        assert_eq!(found.len(), model.len());
        for at in (0..found.len()).filter(|at| found[*at] != model[*at]) {
            assert!(doubtful.iter().any(|range| range.contains(&(at as u64))), "{what}: {at}");
        }
        let there = found[5 << 20..][..9000].iter().filter(|byte| **byte == 1).count();
        assert_eq!(there, 9000, "{what}: a point that another record, or its words, still tell");
    }
    // Without a reflection file all of it is in doubt.
    let image = restarted(&ground, &path);
    fs::remove_file(journal_of(&image).with_extension("")).expect("remove");
    let options = ground.options().read_only(true).best_effort(true);
    assert_eq!(options.open(image.path()).expect("its own bytes").len(), len);
    let look = ground.options().inspect(image.path()).expect("look");
    assert_eq!(look.doubtful().expect("ranges"), std::iter::once(0..len).collect::<Vec<_>>());
}
