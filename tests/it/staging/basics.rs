//! Tests what each call of a stage does, beside each kind of claim, and its errors.

use crate::common::{self, Ground, assert_same, read_all};
use atomic_mmap::testing::call;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{AtomicMappedFile, DeployPolicy, Error, Integrity, Stage};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

const PAGE: u64 = 4096;
const CHUNK: u64 = 2 << 20;
const LEN: u64 = 2 * CHUNK;
/// The path of other systems has no holes, and no openings for reading alone.
const IS_NATIVE: bool = cfg!(all(target_os = "linux", not(atomic_mmap_portable)));

fn file_on(ground: &Ground) -> (AtomicMappedFile, common::Scratch) {
    let scratch = ground.scratch();
    let options = ground.options().create(true).len(LEN).deploy(DeployPolicy::Manual);
    (options.open(scratch.file("x")).expect("open"), scratch)
}

/// The grounds on which stages lend slots.
fn lending() -> Vec<Ground> {
    common::media_in_memory()
}

fn filled<'f>(file: &'f AtomicMappedFile, range: std::ops::Range<u64>, byte: u8) -> Stage<'f> {
    let mut stage = file.stage(range.clone()).expect("a stage");
    stage.write_at(&vec![byte; (range.end - range.start) as usize], 0).expect("fill");
    stage
}

#[track_caller]
fn assert_bytes(file: &AtomicMappedFile, range: std::ops::Range<u64>, byte: u8, what: &str) {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_at(&mut bytes, range.start).expect("read");
    assert_same(&bytes, &vec![byte; bytes.len()], what);
}

#[test]
fn a_commit_copies_nothing_but_the_parts_of_slices() {
    for ground in lending() {
        let (file, _scratch) = file_on(&ground);
        for start in [16 * PAGE, 16 * PAGE + 64, 16 * PAGE + 100] {
            let range = start..start + 16 * PAGE;
            for byte in 1..4 {
                let stage = filled(&file, range.clone(), byte);
                let edges = if start % 64 == 0 { 0 } else { 64 };
                assert_eq!(stage.lent(), 16 * PAGE - edges);
                let before = file.stats();
                stage.commit().expect("a commit");
                let written = file.stats().delta(&before).bytes_written;
                assert!(written < 4096, "{written} bytes were stored");
                assert_bytes(&file, range.clone(), byte, "after a commit");
            }
        }
    }
}

#[test]
fn a_write_to_a_staged_slice_stays_until_the_commit() {
    for ground in lending() {
        let (file, _scratch) = file_on(&ground);
        let range = PAGE..5 * PAGE;
        let stage = filled(&file, range.clone(), 1);
        for byte in 2..5 {
            file.write_at(&[byte; 2 * PAGE as usize], 2 * PAGE).expect("a write");
            assert_bytes(&file, 2 * PAGE..4 * PAGE, byte, "after a write");
            file.write_at(&[byte; 10], PAGE + 30).expect("a write");
            assert_bytes(&file, PAGE + 30..PAGE + 40, byte, "after a small write");
        }
        stage.commit().expect("a commit");
        assert_bytes(&file, range, 1, "the last commit wins");
    }
}

#[test]
fn of_stages_that_overlap_the_last_commit_wins() {
    for ground in lending() {
        let (file, _scratch) = file_on(&ground);
        let (first, second) = (filled(&file, 0..4 * PAGE, 1), filled(&file, 2 * PAGE..6 * PAGE, 2));
        assert_eq!((first.lent(), second.lent()), (4 * PAGE, 2 * PAGE));
        second.commit().expect("a commit");
        assert_bytes(&file, 2 * PAGE..6 * PAGE, 2, "the second");
        first.commit().expect("a commit");
        assert_bytes(&file, 0..4 * PAGE, 1, "the first");
        assert_bytes(&file, 4 * PAGE..6 * PAGE, 2, "the rest of the second");

        // In one operation, the later one wins, also within a slice.
        let mut stages = [filled(&file, 0..4 * PAGE, 3), filled(&file, 100..130, 4)];
        file.commit_stages(&mut stages).expect("a commit");
        assert_bytes(&file, 0..100, 3, "the first");
        assert_bytes(&file, 100..130, 4, "the second");
        assert_bytes(&file, 130..4 * PAGE, 3, "the first");
        assert!(stages.iter().all(|stage| stage.is_empty() && stage.filled().count() == 0));
        let again = file.stage(0..4 * PAGE).expect("a stage");
        assert_eq!(again.lent(), 4 * PAGE, "the claims were given back");
    }
}

#[test]
fn a_stage_is_committed_with_a_transaction() {
    for ground in common::media() {
        let (file, _scratch) = file_on(&ground);
        file.store(0, &41_u64).expect("a store");
        let mut stages = [filled(&file, PAGE..3 * PAGE, 1)];
        let seen = file.transact_with(&mut stages, |tx| {
            let n: u64 = tx.load(0)?;
            tx.write_at(&[9; 100], PAGE - 50)?;
            tx.store(0, &(n + 1))?;
            let mut staged = [0; 1];
            tx.read_at(&mut staged, 2 * PAGE)?;
            Ok(staged)
        });
        assert_eq!(seen.expect("a commit"), [0], "a transaction does not see its stages");
        assert_eq!(file.load::<u64>(0).expect("a load"), 42);
        assert_bytes(&file, PAGE - 50..PAGE, 9, "the write");
        assert_bytes(&file, PAGE..3 * PAGE, 1, "the stage wins");

        // A conflict leaves the stages for another attempt.
        let mut stages = [filled(&file, PAGE..3 * PAGE, 2)];
        let mut tx = file.begin();
        tx.load::<u64>(0).expect("a load");
        file.store(0, &7_u64).expect("a store");
        assert!(tx.commit_with(&mut stages).is_err_and(|error| error.is_conflict()));
        assert_bytes(&file, PAGE..3 * PAGE, 1, "nothing has happened");
        file.commit_stages(&mut stages).expect("a commit");
        assert_bytes(&file, PAGE..3 * PAGE, 2, "the second attempt");
    }
}

#[test]
fn a_commit_beside_claims_of_a_view_keeps_the_view() {
    for ground in lending() {
        let (file, _scratch) = file_on(&ground);
        file.write_at(&[1; PAGE as usize], 0).expect("a write");
        file.deploy(0..LEN).expect("a deployment");
        let view = file.view(0..PAGE).expect("a view");
        assert!(view.is_mapped());
        let over_view = file.stage(0..PAGE).expect("a stage");
        assert_eq!(over_view.lent(), 0, "a pinned page lends nothing");
        drop(over_view);
        // Its valid slots are in the reflection file from here on: it has no free slot.
        file.write_at(&[2; PAGE as usize], 0).expect("a write");
        let mut stages = [filled(&file, 2 * PAGE..20 * PAGE, 3)];
        let mut tx = file.begin();
        tx.write_at(&[4; 300], 100).expect("a write");
        tx.commit_with(&mut stages).expect("a commit");
        assert_bytes(&file, 100..400, 4, "the write");
        assert_bytes(&file, 2 * PAGE..20 * PAGE, 3, "the stage");
        assert_same(&view.to_vec().expect("the view"), &[1; PAGE as usize], "the view");
    }
}

#[test]
fn a_view_over_staged_slots_is_a_copy() {
    for ground in lending() {
        let (file, _scratch) = file_on(&ground);
        file.write_at(&[1; 3 * PAGE as usize], 0).expect("a write");
        file.deploy(0..LEN).expect("a deployment");
        // From here on the page can be pinned without a lock.
        drop(file.view(0..10).expect("a view"));
        let stage = filled(&file, 64..128, 2);
        for range in [0..10, 0..3 * PAGE] {
            let view = file.view(range).expect("a view");
            assert!(!view.is_mapped(), "the slices would have no free slot");
            file.write_at(&[3; 128], 0).expect("a write");
            assert!(view.to_vec().expect("the view").iter().all(|byte| *byte == 1));
            file.write_at(&[1; 128], 0).expect("a write");
        }
        stage.commit().expect("a commit");
        assert_bytes(&file, 64..128, 2, "the stage");
    }
}

#[test]
fn deployments_and_punches_leave_staged_slots() {
    for ground in lending() {
        let (file, _scratch) = file_on(&ground);
        file.write_at(&[1; 3 * PAGE as usize], 0).expect("a write");
        // Its free slots are home slots, and a deployment would store to them.
        let stage = filled(&file, PAGE..2 * PAGE, 2);
        assert_eq!(file.deploy(0..3 * PAGE).expect("a deployment"), 2);
        assert_bytes(&file, 0..3 * PAGE, 1, "after the deployment");
        stage.commit().expect("a commit");
        assert_bytes(&file, PAGE..2 * PAGE, 2, "the stage");
        file.deploy(0..LEN).expect("a deployment");

        // Its free slots are in a chunk of the reflection file with nothing else.
        let stage = filled(&file, PAGE..2 * PAGE, 3);
        file.deploy(0..LEN).expect("a deployment");
        stage.commit().expect("a commit");
        assert_bytes(&file, PAGE..2 * PAGE, 3, "the stage");
        let punched = file.stats().punches;
        file.deploy(0..LEN).expect("a deployment");
        let is_given_back = file.stats().punches > punched || !IS_NATIVE;
        assert!(is_given_back, "nothing is staged any more");
    }
}

#[test]
fn a_shrink_below_lent_slots_is_refused() {
    for ground in lending() {
        let (file, _scratch) = file_on(&ground);
        let mut stage = filled(&file, 8 * PAGE..9 * PAGE, 1);
        let refused = file.set_len(8 * PAGE + 100);
        assert!(matches!(refused, Err(Error::Pinned { len, .. }) if len == 8 * PAGE + 100));
        file.set_len(9 * PAGE).expect("a shrink behind the stage");
        let mut tx = file.begin();
        tx.set_len(10 * PAGE).expect("a length");
        tx.write_at(&[2; PAGE as usize], 9 * PAGE).expect("a write");
        tx.commit_with(std::slice::from_mut(&mut stage)).expect("a growth with a stage");
        assert_bytes(&file, 8 * PAGE..9 * PAGE, 1, "the stage");
        assert_bytes(&file, 9 * PAGE..10 * PAGE, 2, "the write");
        file.set_len(8 * PAGE).expect("a shrink");
    }
    // Without lent slots the commit notices it.
    if let Some(ground) = common::page_cache() {
        let (file, _scratch) = file_on(&ground);
        let stage = filled(&file, 8 * PAGE..9 * PAGE, 1);
        assert_eq!(stage.lent(), 0);
        file.set_len(8 * PAGE + 100).expect("a shrink");
        assert!(matches!(stage.commit(), Err(Error::PastEnd { .. })));
        let stage = filled(&file, 7 * PAGE..8 * PAGE, 1);
        let done = file.transact_with(&mut [stage], |tx| tx.set_len(7 * PAGE));
        assert!(matches!(done, Err(Error::PastEnd { .. })));
        assert_eq!(file.len(), 8 * PAGE + 100);
    }
}

#[test]
fn what_was_not_filled_keeps_the_present_value() {
    for ground in common::media() {
        let (file, _scratch) = file_on(&ground);
        file.write_at(&[1; 2 * PAGE as usize], 0).expect("a write");
        file.write_at(&[2; 2 * PAGE as usize], 0).expect("a write");
        let mut stage = file.stage(10..2 * PAGE).expect("a stage");
        stage.write_at(&[7; 70], 100).expect("fill");
        stage.zero(1000..1010).expect("fill");
        assert_eq!(stage.filled().collect::<Vec<_>>(), [100..170, 1000..1010]);
        file.write_at(&[3; 2 * PAGE as usize], 0).expect("a write");
        stage.commit().expect("a commit");
        let mut expected = vec![3; 2 * PAGE as usize];
        expected[110..180].fill(7);
        expected[1010..1020].fill(0);
        assert_same(&read_all(&file)[..2 * PAGE as usize], &expected, "after the commit");

        drop(filled(&file, 0..2 * PAGE, 9));
        file.stage(0..2 * PAGE).expect("a stage").commit().expect("a commit of nothing");
        assert_same(&read_all(&file)[..2 * PAGE as usize], &expected, "after a drop");
    }
}

/// A reader that fails or lies.
struct Odd(Vec<io::Result<usize>>);

impl Read for Odd {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let next = self.0.pop().unwrap_or(Ok(0))?;
        let some = next.min(to.len());
        to[..some].fill(8);
        Ok(next)
    }
}

#[test]
fn a_reader_that_fails_leaves_what_has_arrived() {
    for ground in common::media() {
        let (file, _scratch) = file_on(&ground);
        let mut stage = filled(&file, 0..PAGE, 1);
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        let mut odd = Odd(vec![refused(), Ok(50), Err(io::ErrorKind::Interrupted.into()), Ok(50)]);
        let failed = stage.fill_from(&mut odd, 1000..2000).expect_err("the reader fails");
        let Error::Io { source, offset, .. } = &failed else { panic!("{failed}") };
        assert_eq!((source.kind(), *offset), (io::ErrorKind::PermissionDenied, Some(1100)));
        assert_eq!(stage.filled().collect::<Vec<_>>(), [0..1100, 2000..PAGE]);

        let mut liar = Odd(vec![Ok(5000)]);
        let failed = stage.fill_from(&mut liar, 0..100).expect_err("more than there is room for");
        assert!(
            matches!(failed, Error::Io { source, .. } if source.kind() == io::ErrorKind::InvalidData)
        );
        assert_eq!(stage.filled().collect::<Vec<_>>(), [100..1100, 2000..PAGE]);
        stage.commit().expect("a commit");
        let all = read_all(&file);
        let byte = |n: usize| match n {
            1000..1100 => 8,
            100..1000 | 2000..4096 => 1,
            _ => 0,
        };
        let expected: Vec<u8> = (0..PAGE as usize).map(byte).collect();
        assert_same(&all[..PAGE as usize], &expected, "what was filled");
    }
}

#[test]
fn a_socket_without_more_leaves_what_has_arrived() {
    for ground in common::media() {
        let (file, _scratch) = file_on(&ground);
        let (mut sender, mut receiver) = UnixStream::pair().expect("a socket");
        receiver.set_nonblocking(true).expect("not blocking");
        let mut stage = file.stage(30..3 * PAGE).expect("a stage");
        sender.write_all(&[5; 1000]).expect("send");
        let failed = stage.fill_from(&mut receiver, 10..5000).expect_err("there is no more");
        let Error::Io { source, .. } = &failed else { panic!("{failed}") };
        assert_eq!(source.kind(), io::ErrorKind::WouldBlock);
        assert!(stage.filled().eq([(10, 1010)].map(|(start, end)| start..end)));
        sender.write_all(&[6; 300]).expect("send");
        assert_eq!(stage.read_from(&mut receiver, 1010..5000).expect("some"), 300);
        assert_eq!(stage.read_from(&mut receiver, 7..7).expect("nothing"), 0);
        drop(sender);
        assert_eq!(stage.fill_from(&mut receiver, 2000..3000).expect("the end"), 0);
        stage.commit().expect("a commit");
        assert_bytes(&file, 0..40, 0, "before");
        assert_bytes(&file, 40..1040, 5, "the first");
        assert_bytes(&file, 1040..1340, 6, "the second");
        assert_bytes(&file, 1340..3 * PAGE, 0, "behind");
    }
}

/// A reader that fills another stage while it is read.
struct Nested<'a>(Stage<'a>);

impl Read for Nested<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        to.fill(1);
        self.0.fill_from(&mut &[2; 100][..], 0..100)?;
        Ok(to.len())
    }
}

#[test]
fn a_reader_may_fill_another_stage() {
    let (file, _scratch) = file_on(&common::ram());
    let inner = file.stage(PAGE..2 * PAGE).expect("a stage");
    let mut outer = file.stage(0..PAGE).expect("a stage");
    outer.fill_from(&mut Nested(inner), 0..PAGE).expect("fill");
    outer.commit().expect("a commit");
    assert_bytes(&file, 0..PAGE, 1, "the outer stage");
}

#[test]
fn sums_follow_what_stages_commit() {
    for ground in common::media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(LEN).integrity(Integrity::OnRead);
        for round in 1..4 {
            let file = options.clone().open(scratch.file("x")).expect("open");
            for range in [64..640, 4 * PAGE..9 * PAGE, 20 * PAGE + 30..22 * PAGE - 100] {
                filled(&file, range.clone(), round).commit().expect("a commit");
                assert_bytes(&file, range, round, "a read, which verifies");
            }
            // A part of a page by a stage, and another one by a write.
            let mut tx = file.begin();
            tx.write_at(&[round; 100], 30 * PAGE).expect("a write");
            let mut stages = [filled(&file, 30 * PAGE + 128..33 * PAGE, round)];
            tx.commit_with(&mut stages).expect("a commit");
            assert!(file.verify(0..LEN).expect("a verification").damaged.is_empty());
        }
    }
}

#[test]
fn errors_change_nothing() {
    for ground in common::media() {
        let (file, scratch) = file_on(&ground);
        assert!(matches!(file.stage(LEN - 1..LEN + 1), Err(Error::PastEnd { .. })));
        #[expect(clippy::reversed_empty_ranges, reason = "a caller may give it")]
        let reversed = file.stage(9..3).map(drop);
        assert!(matches!(reversed, Err(Error::Reversed { start: 9, end: 3, .. })));
        let mut stage = file.stage(PAGE..2 * PAGE).expect("a stage");
        let past = stage.write_at(&[1; 2], PAGE - 1);
        assert!(matches!(past, Err(Error::OutOfBounds { offset: PAGE, found: 4097, .. })));
        assert!(matches!(stage.write_at(&[1], u64::MAX), Err(Error::OutOfBounds { .. })));
        assert!(matches!(stage.zero(0..PAGE + 1), Err(Error::OutOfBounds { .. })));
        #[expect(clippy::reversed_empty_ranges, reason = "a caller may give it")]
        let reversed = stage.fill_from(&mut io::empty(), 9..3);
        assert!(matches!(reversed, Err(Error::Reversed { .. })));
        let other = ground.options().create(true).len(LEN).open(scratch.file("y")).expect("open");
        let refused = other.commit_stages(&mut [stage]);
        assert!(matches!(&refused, Err(Error::OtherFile { path }) if path.ends_with("y")));
        let empty = file.stage(77..77).expect("an empty stage");
        assert!(empty.is_empty() && empty.range() == (77..77));
        empty.commit().expect("a commit of nothing");
        assert!(read_all(&file).iter().all(|byte| *byte == 0));
        drop(file);
        if IS_NATIVE {
            let reader = ground.options().read_only(true).open(scratch.file("x")).expect("open");
            assert!(matches!(reader.stage(0..10), Err(Error::ReadOnly { .. })));
        }
    }
}

#[test]
fn a_stage_needs_its_space_at_once() {
    for ground in lending() {
        let scratch = ground.scratch();
        let recorder = Recorder::new();
        let options = ground.options().create(true).len(LEN).deploy(DeployPolicy::Manual);
        let file = options.open_recorded(&recorder, scratch.file("x")).expect("open");
        recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
        let refused = file.stage(0..LEN);
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
        recorder.heal();
        let stage = filled(&file, 0..LEN, 1);
        assert_eq!(stage.lent(), LEN, "the failed stage has given its claims back");
        recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
        let mut again = file.stage(0..LEN).expect("a stage in private memory");
        assert_eq!(again.lent(), 0);
        again.write_at(&[2; 100], 0).expect("fill");
        stage.commit().expect("a commit");
        recorder.heal();
        again.commit().expect("a commit");
        assert_bytes(&file, 0..100, 2, "the second stage");
        assert_bytes(&file, 100..LEN, 1, "the first stage");
    }
}
