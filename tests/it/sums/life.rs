//! Tests when a file gets sums, keeps them, and loses them.

use super::{LEN, PAGE, after_death, options};
use crate::common::{Rng, assert_same, media, read_all};
use atomic_mmap::{CloseMode, Durability, Error, Integrity};
use std::fs;

/// Opens a file with bytes that no sum covers, and wants sums for it.
#[test]
fn a_file_with_bytes_gets_sums_when_it_is_opened_with_them() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let mut bytes = Rng(1).bytes(LEN as usize);
        bytes[5 * PAGE as usize..9 * PAGE as usize].fill(0);
        fs::write(&path, &bytes).expect("a plain file");
        let file = options(&ground).open(&path).expect("open");
        assert_eq!(file.verify(0..LEN).expect("verify").damaged, []);
        assert_same(&read_all(&file), &bytes, "the first session");
        file.write_at(&[7; 300], 4000).expect("write");
        bytes[4000..4300].fill(7);
        let (_image, found) = after_death(&ground, &path);
        assert_same(&read_all(&found), &bytes, "after a death");
        assert_eq!(found.verify(0..LEN).expect("verify").damaged, []);
    }
}

/// A pair exists already, with slices in both files, when its file gets sums.
#[test]
fn a_pair_with_slices_on_both_sides_gets_sums() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let plain = ground.options().create(true).len(LEN).integrity(Integrity::Off);
        let file = plain.open(&path).expect("open");
        let mut bytes = Rng(2).bytes(LEN as usize);
        file.write_at(&bytes, 0).expect("write");
        for at in [100, 5000, 9000, 70 * PAGE] {
            file.write_at(&[3; 90], at).expect("write");
            bytes[at as usize..at as usize + 90].fill(3);
        }
        file.close(CloseMode::Fast).expect("close");
        let file = options(&ground).open(&path).expect("open with sums");
        assert_same(&read_all(&file), &bytes, "with sums");
        file.close(CloseMode::Fast).expect("close");
        // Sums belong to the file. An opening that says nothing keeps them.
        let file = ground.options().open(&path).expect("open again");
        assert!(file.verify(0..LEN).expect("verify").pages > 0, "{}", ground.medium);
        assert_same(&read_all(&file), &bytes, "again");
    }
}

/// A session without sums changes pages. Sums of the session before must not come back.
#[test]
fn sums_that_were_switched_off_are_reckoned_anew() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let mut bytes = vec![0; LEN as usize];
        // Pages of zeroes get no sum. So the second session leaves some where sums were.
        for (fill, integrity) in
            [(3, Integrity::OnRead), (0, Integrity::Off), (5, Integrity::OnScrub)]
        {
            let options = ground.options().create(true).len(LEN).integrity(integrity);
            let file = options.open(&path).expect("open");
            assert_same(&read_all(&file), &bytes, "as it was left");
            for page in 0..20 {
                let at = page * 3 * PAGE + 77;
                file.write_at(&[fill; 500], at).expect("write");
                bytes[at as usize..at as usize + 500].fill(fill);
            }
            let verified = file.verify(0..LEN).expect("verify");
            assert_eq!(verified.pages == 0, integrity == Integrity::Off, "{integrity:?}");
            assert_eq!(verified.damaged, []);
            file.close(CloseMode::Fast).expect("close");
        }
    }
}

/// A spatial close makes the home file complete. Its companions stay, since they hold the sums.
#[test]
fn a_spatial_close_leaves_the_sums_and_a_complete_file() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let file = options(&ground).open(&path).expect("open");
        file.write_at(&[9; 10_000], 50).expect("write");
        let bytes = read_all(&file);
        file.close(CloseMode::Spatial).expect("close");
        assert_same(&fs::read(&path).expect("a plain file"), &bytes, "the plain file");
        assert_eq!(scratch.reflections().len(), 1);
        let reader = ground.options().read_only(true).integrity(Integrity::OnRead).open(&path);
        let reader = reader.expect("open for reading");
        assert_same(&read_all(&reader), &bytes, "a reader");
        assert!(reader.verify(0..LEN).expect("verify").pages >= 3);
    }
}

#[test]
fn each_length_and_each_durability_keeps_sums() {
    for ground in media() {
        for durability in [Durability::OnSync, Durability::EveryWrite, Durability::AtomicSync] {
            let scratch = ground.scratch();
            let path = scratch.file("state.dat");
            let file = options(&ground).durability(durability).open(&path).expect("open");
            let mut rng = Rng(3);
            let mut bytes = vec![0; LEN as usize];
            for n in 0..60 {
                let len = 1 + rng.below(2 * LEN) as usize;
                file.set_len(len as u64).expect("a new length");
                bytes.resize(len, 0);
                let at = rng.below(len as u64) as usize;
                let count = rng.below(6000).min((len - at) as u64) as usize;
                let data = rng.bytes(count);
                file.write_at(&data, at as u64).expect("write");
                bytes[at..at + count].copy_from_slice(&data);
                if n % 7 == 0 {
                    file.sync().expect("sync");
                    let (_image, found) = after_death(&ground, &path);
                    assert_same(&read_all(&found), &bytes, "after a death");
                }
            }
            assert_same(&read_all(&file), &bytes, "in use");
            assert_eq!(file.verify(0..file.len()).expect("verify").damaged, []);
        }
    }
}

#[test]
fn an_unknown_use_of_sums_in_the_environment_is_refused() {
    let ground = crate::common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let program = std::env::current_exe().expect("this program");
    let name = "sums::life::plays_the_child_with_an_unknown_use";
    let run = std::process::Command::new(program)
        .args(["--exact", name, "--nocapture"])
        .env("ATOMIC_MMAP_SUMS_TEST", &path)
        .env(atomic_mmap::INTEGRITY_VARIABLE, "sometimes")
        .output()
        .expect("run the child");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    assert!(!path.exists());
}

#[test]
fn plays_the_child_with_an_unknown_use() {
    let Some(path) = std::env::var_os("ATOMIC_MMAP_SUMS_TEST") else { return };
    let options = crate::common::ram().options().create(true).len(LEN);
    let error = options.open(path).expect_err("an unknown use");
    assert!(matches!(&error, Error::Io { .. }), "{error}");
    assert!(error.to_string().contains("ATOMIC_MMAP_INTEGRITY"), "{error}");
}
