//! Tests that a crash in a repair leaves the page damaged, as it was, or repaired.
//!
//! A process dies before every fifth of its steps, on each medium. The power goes before each
//! drain, on persistent memory, as in [`crate::power`].

use super::repair::{Case, bring_home, flip_a_bit};
use super::{LEN, PAGE};
use crate::common::{self, Rng, assert_same, child, crash, role};
use crate::power::{Choice, Memory};
use atomic_mmap::testing::FileId;
use atomic_mmap::testing::recorder::{Death, Event, Recorder, What};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Integrity};
use std::path::PathBuf;

const CHILD: &str = concat!(module_path!(), "::plays_the_child_if_it_is_one");
const AT: u64 = 5 * PAGE;
/// The byte that is damaged. The snapshot has a kept slice there.
const BYTE: u64 = AT + 200;

/// The file before the damage: what it holds, and what its snapshot "a" holds.
struct Expected {
    present: Vec<u8>,
    a: Vec<u8>,
}

impl Expected {
    /// Writes a file, seals it, and writes two slices of the page.
    fn write(file: &AtomicMappedFile) -> Expected {
        let mut present = Rng(4).bytes(LEN as usize);
        file.write_at(&present, 0).expect("write");
        bring_home(file);
        file.snapshot("a").expect("seal");
        let a = present.clone();
        file.write_at(&[7; 128], AT + 192).expect("write");
        present[AT as usize + 192..][..128].fill(7);
        bring_home(file);
        Expected { present, a }
    }

    /// Checks a file after a crash, and goes on. Returns `true` if the page is repaired.
    fn check(&self, file: &AtomicMappedFile, what: &str) -> bool {
        let (mut repaired, page) = (self.present.clone(), AT as usize..(AT + PAGE) as usize);
        repaired[page.clone()].copy_from_slice(&self.a[page.clone()]);
        let damaged = file.verify(0..LEN).expect("verify").damaged;
        let is_repaired = damaged.is_empty();
        if !is_repaired {
            assert_eq!((damaged.len(), &damaged[0]), (1, &(AT..AT + PAGE)), "{what}");
            match file.open_snapshot("a").expect("open").read_vec() {
                Ok(found) => assert_same(&found, &self.a, what),
                Err(Error::Damaged { offset: AT, .. }) => {}
                Err(error) => panic!("{what}: {error}"),
            }
            assert_eq!(file.repair(0..LEN).expect("repair").repaired.len(), 1, "{what}");
        }
        assert_same(&common::read_all(file), &repaired, what);
        let found = file.open_snapshot("a").expect("open").read_vec().expect("read");
        assert_same(&found, &self.a, what);
        is_repaired
    }
}

#[test]
fn plays_the_child_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let words: Vec<usize> = role.split(' ').map(|word| word.parse().expect("a number")).collect();
    let case = Case::all().swap_remove(words[0]);
    let recorder = Recorder::new();
    let file = case.options().open_recorded(&recorder, &path).expect("open");
    flip_a_bit(&path, BYTE);
    assert_eq!(file.verify(0..LEN).expect("verify").damaged.len(), 1);
    recorder.kill_at(words[1], Death::Before);
    file.repair(0..LEN).expect("repair");
    if case.is_atomic {
        // Until then a death takes the repair back.
        file.sync().expect("sync");
    }
    recorder.spare();
    println!("repaired");
    crash();
}

#[test]
fn a_process_that_dies_in_a_repair_leaves_the_page_damaged_or_repaired() {
    for (number, case) in Case::all().into_iter().enumerate().filter(|(_, case)| case.is_reopened) {
        let (mut nth, mut outcomes) = (1 + number % 5, [0; 2]);
        loop {
            let case = Case { scratch: case.ground.scratch(), ground: case.ground.clone(), ..case };
            let file = case.options().open(case.path()).expect("open");
            let expected = Expected::write(&file);
            file.close(CloseMode::Fast).expect("close");
            let role = format!("{number} {nth}");
            let output = child(CHILD, &role, case.path()).output().expect("run");
            let output = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(common::ran_its_test(&output), "{output}");
            let file = case.options().open(case.path()).expect("open");
            let what = format!("{} before step {nth}", case.ground.medium);
            let is_repaired = expected.check(&file, &what);
            outcomes[usize::from(is_repaired)] += 1;
            if output.contains("repaired") {
                assert!(is_repaired, "{what}");
                break;
            }
            nth += 5;
        }
        assert!(outcomes[0] > 3 && outcomes[1] > 0, "{outcomes:?} on {}", case.ground.medium);
    }
}

#[test]
fn a_power_loss_in_a_repair_leaves_the_page_damaged_or_repaired() {
    let (scratch, recorder) = (common::ram().scratch(), Recorder::new());
    let home = scratch.file("state.dat");
    let options = || crate::power::options().integrity(Integrity::OnScrub);
    let file = options().create(true).len(LEN).open_recorded(&recorder, &home).expect("open");
    let expected = Expected::write(&file);
    let (mut memory, mut random) = (Memory::default(), Rng(7));
    recorder.take().iter().for_each(|event| memory.play(&event.what));
    let bytes = vec![expected.present[BYTE as usize] ^ 0x10];
    memory.play(&What::Copy { file: FileId::Home, offset: BYTE, bytes, through: true });
    memory.play(&What::Drain);
    flip_a_bit(&home, BYTE);
    assert_eq!(file.repair(0..LEN).expect("repair").repaired.len(), 1);
    let events: Vec<Event> = recorder.take();
    let reflection = file.reflection_path().to_owned();
    let store: PathBuf = reflection.with_added_extension("snapshots");
    file.close(CloseMode::Unsynced).expect("a close that writes nothing");
    let mut outcomes = [0; 2];
    for (at, event) in events.iter().enumerate() {
        memory.play(&event.what);
        let is_end = at + 1 == events.len();
        if !is_end && events[at + 1].what != What::Drain {
            continue;
        }
        for choice in [Choice::None, Choice::All, Choice::Words, Choice::Words, Choice::AllButSums]
        {
            let images = memory.image(choice, &mut random);
            let paths = [&home, &reflection, &store];
            images.iter().zip(paths).for_each(|(image, path)| image.put(path));
            let file = options().open(&home).expect("an image is recovered");
            let what = format!("before event {}, {choice:?}", at + 1);
            let is_repaired = expected.check(&file, &what);
            assert!(is_repaired || !is_end, "{what}");
            outcomes[usize::from(is_repaired)] += 1;
            file.close(CloseMode::Unsynced).expect("a close");
        }
    }
    assert!(outcomes[0] > 3 && outcomes[1] > 3, "{outcomes:?}");
}
