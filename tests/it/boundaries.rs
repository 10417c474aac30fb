//! Tests every offset and length around the boundaries of slices, pages and regions.
//!
//! The file's slices lie in mixed slots, and each offset is written with each length. Writes are
//! plain, in segments of one transaction, under views that pin everything, or deployed immediately.
//! Each write is read back with its neighbours. After each offset the file is closed, in fast and
//! spatial mode alternately, and compared as a whole.

use crate::common::{self, Ground, Rng, assert_same, media, read_all};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Error, Medium};

const PLACES: [usize; 13] = [0, 1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 262_143, 262_144, 262_145];
/// Room for the largest offset and length, with part of a page and of a slice behind them.
const LEN: usize = 2 * 262_145 + 5000;
/// Bytes before and after a write that must not change.
const MARGIN: usize = 4200;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Plain,
    InPieces,
    Pinned,
    Eager,
}

impl Way {
    fn policy(self) -> DeployPolicy {
        match self {
            Way::Eager => DeployPolicy::Eager,
            Way::InPieces => DeployPolicy::Manual,
            Way::Plain | Way::Pinned => DeployPolicy::Lazy,
        }
    }
}

/// Makes scattered writes of all kinds, so that slices and pages lie in mixed slots.
fn mix_up(file: &AtomicMappedFile, model: &mut [u8], rng: &mut Rng, writes: usize) {
    for _ in 0..writes {
        let (offset, len) = match rng.below(8) {
            0 => (rng.below(128) * 4096, 4096),
            1 => (rng.below(120) * 4096, 4096 * 5),
            2 => (rng.below(LEN as u64 - 3000), 3000),
            3 => (rng.below(LEN as u64 - 700), 700),
            _ => (rng.below(LEN as u64 - 100), 1 + rng.below(99) as usize),
        };
        let data = rng.bytes(len);
        file.write_at(&data, offset).expect("write");
        model[offset as usize..offset as usize + len].copy_from_slice(&data);
    }
}

fn write(file: &AtomicMappedFile, way: Way, data: &[u8], offset: usize) {
    if way != Way::InPieces {
        return file.write_at(data, offset as u64).expect("write");
    }
    // Three segments: the middle one last, and the first one again over a wrong draft.
    let mut tx = file.begin();
    let (a, b) = (data.len() / 3, data.len() - data.len() / 3);
    tx.write_at(&vec![0x55; b], offset as u64).expect("draft");
    tx.write_at(&data[b..], (offset + b) as u64).expect("end");
    tx.write_at(&data[..a], offset as u64).expect("beginning");
    tx.write_at(&data[a..b], (offset + a) as u64).expect("middle");
    tx.commit().expect("commit");
}

fn check_matrix(ground: &Ground, way: Way) {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let mut rng = Rng(way as u64 + 1);
    let mut model = rng.bytes(LEN);
    std::fs::write(&path, &model).expect("write the file to begin with");
    for (row, offset) in PLACES.into_iter().enumerate() {
        let file = ground.options().deploy(way.policy()).open(&path).expect("open");
        assert_same(&read_all(&file), &model, "after opening");
        mix_up(&file, &mut model, &mut rng, 200);
        let view = (way == Way::Pinned).then(|| {
            let view = file.view(0..LEN as u64).expect("view");
            // With durable points a view is a copy.
            assert_eq!(view.is_mapped(), ground.medium != Medium::PageCache);
            (view, model.clone())
        });
        if view.is_some() {
            mix_up(&file, &mut model, &mut rng, 100);
        }
        for len in PLACES {
            let data = rng.bytes(len);
            write(&file, way, &data, offset);
            model[offset..offset + len].copy_from_slice(&data);
            let what = format!("{way:?} on {:?}: {len} bytes at {offset}", ground.medium);
            let around = offset.saturating_sub(MARGIN)..(offset + len + MARGIN).min(LEN);
            let mut found = vec![0; around.len()];
            file.read_at(&mut found, around.start as u64).expect("read");
            assert_same(&found, &model[around], &what);
            let mut alone = vec![0; len];
            file.read_at(&mut alone, offset as u64).expect("read");
            assert_same(&alone, &data, &what);
        }
        assert_same(&read_all(&file), &model, "at the end of a row");
        if let Some((view, then)) = &view {
            assert_same(&view.to_vec().expect("read the view"), then, "the view");
        }
        drop(view);
        let mode = [CloseMode::Fast, CloseMode::Spatial][row % 2];
        file.close(mode).expect("close");
        if mode == CloseMode::Spatial {
            assert_same(&std::fs::read(&path).expect("read"), &model, "the plain file");
            assert!(scratch.reflections().is_empty());
        }
    }
}

#[test]
fn every_awkward_place_and_length_is_written_exactly() {
    media().iter().for_each(|ground| check_matrix(ground, Way::Plain));
}

#[test]
fn every_awkward_place_and_length_is_written_exactly_in_pieces_of_a_transaction() {
    media().iter().for_each(|ground| check_matrix(ground, Way::InPieces));
}

#[test]
fn every_awkward_place_and_length_is_written_exactly_while_a_view_pins_everything() {
    media().iter().for_each(|ground| check_matrix(ground, Way::Pinned));
}

#[test]
fn every_awkward_place_and_length_is_written_exactly_and_deployed_at_once() {
    media().iter().for_each(|ground| check_matrix(ground, Way::Eager));
}

#[test]
fn the_last_bytes_of_a_file_of_any_length_can_be_written_and_nothing_past_them() {
    let lengths = [1, 7, 63, 64, 65, 100, 4095, 4096, 4097, 12_289, 262_143, 262_145, 262_181];
    for ground in media() {
        for len in lengths {
            let scratch = ground.scratch();
            let path = scratch.file("state.dat");
            let mut rng = Rng(len as u64);
            let mut model = vec![0; len];
            for (round, mode) in
                [CloseMode::Fast, CloseMode::Spatial, CloseMode::Spatial].into_iter().enumerate()
            {
                let what = format!("{len} bytes on {:?}, round {round}", ground.medium);
                let file = ground.options().create(true).len(len as u64).open(&path).expect(&what);
                assert_same(&read_all(&file), &model, &what);
                let view = (round == 2).then(|| file.view(0..len as u64).expect("view"));
                for count in PLACES.into_iter().filter(|count| *count <= len) {
                    let offset = len - count;
                    let data = rng.bytes(count);
                    file.write_at(&data, offset as u64).expect(&what);
                    model[offset..].copy_from_slice(&data);
                    let past = file.write_at(&[1; 65], len as u64 - 64.min(len as u64));
                    assert!(matches!(past, Err(Error::PastEnd { .. })), "{what}: {past:?}");
                    let past = file.read_at(&mut [0], len as u64);
                    assert!(matches!(past, Err(Error::PastEnd { .. })), "{what}: {past:?}");
                    assert_same(&read_all(&file), &model, &what);
                }
                // An empty read or write at the end of the file is valid.
                file.write_at(&[], len as u64).expect(&what);
                file.read_at(&mut [], len as u64).expect(&what);
                drop(view);
                file.close(mode).expect(&what);
                if mode == CloseMode::Spatial {
                    assert_same(&std::fs::read(&path).expect("read"), &model, &what);
                }
            }
        }
    }
}

#[test]
fn bytes_that_a_shrink_cuts_off_are_zero_after_a_growth() {
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let mut rng = Rng(5);
        let full = 3 * 262_144 + 77;
        let mut model = rng.bytes(full);
        std::fs::write(&path, &model).expect("write");
        let mut file = ground.options().open(&path).expect("open");
        for (n, cut) in PLACES.into_iter().rev().enumerate() {
            let what = format!("cut at {cut} on {:?}", ground.medium);
            file.write_at(&model, 0).expect("write all");
            mix_up(&file, &mut model, &mut rng, 100);
            file.set_len(cut as u64).expect(&what);
            model.truncate(cut);
            assert_same(&read_all(&file), &model, &what);
            if n % 3 == 1 {
                file.close(CloseMode::Fast).expect("close");
                file = ground.options().open(&path).expect("open");
                assert_eq!(file.len(), cut as u64, "{what}");
            }
            file.set_len(full as u64).expect(&what);
            model.resize(full, 0);
            assert_same(&read_all(&file), &model, &what);
            // A small write next to the cut completes its slice with zeroes, not with old bytes.
            file.write_at(&[9], cut as u64 + 1).expect(&what);
            model[cut + 1] = 9;
            assert_same(&read_all(&file), &model, &what);
            model = rng.bytes(full);
        }
    }
}

#[test]
fn a_write_over_the_boundary_of_two_superchunks_is_one_write() {
    const GIB: u64 = 1 << 30;
    for ground in media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let len = GIB + 300_000;
        let mut rng = Rng(3);
        let mut model = vec![0; 600_000];
        let base = len - model.len() as u64;
        let what = format!("on {:?}", ground.medium);
        for mode in [CloseMode::Fast, CloseMode::Fast, CloseMode::Spatial] {
            let file = ground.options().create(true).len(len).open(&path).expect(&what);
            let mut found = vec![0; model.len()];
            file.read_at(&mut found, base).expect("read");
            assert_same(&found, &model, &what);
            for (before, count) in
                [(1, 2), (64, 128), (4096, 8192), (100, 5000), (262_144, 524_288), (5, 262_144)]
            {
                let offset = GIB - before;
                let data = rng.bytes(count);
                file.write_at(&data, offset).expect("write");
                let at = (offset - base) as usize;
                model[at..at + count].copy_from_slice(&data);
                file.read_at(&mut found, base).expect("read");
                assert_same(&found, &model, &what);
            }
            let view = file.view(GIB - 5000..GIB + 5000).expect("view");
            let at = (GIB - 5000 - base) as usize;
            assert_same(&view.to_vec().expect("read"), &model[at..at + 10_000], &what);
            drop(view);
            file.close(mode).expect("close");
        }
        let plain = std::fs::File::open(&path).expect("open the plain file");
        assert_eq!(plain.metadata().expect("stat").len(), len);
        let mut found = vec![0; model.len()];
        read_exact_at(&plain, &mut found, base);
        assert_same(&found, &model, &what);
    }
}

fn read_exact_at(file: &std::fs::File, to: &mut [u8], offset: u64) {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = file;
    file.seek(SeekFrom::Start(offset)).expect("seek");
    file.read_exact(to).expect("read");
}

/// The log holds the data of this write for a moment, in several extents, and then frees them.
#[test]
fn a_write_of_several_megabytes_over_a_view_is_one_write_and_leaves_no_log_behind() {
    for ground in common::media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let open = || ground.options().create(true).len(8 << 20).open(&path).expect("open");
        let file = open();
        let mut model = vec![0; 8 << 20];
        let old = vec![1; 3 << 20];
        if ground.medium == Medium::PageCache {
            // Views are copies on this medium.
            continue;
        }
        file.write_at(&old, 100).expect("write");
        let view = file.view(0..4 << 20).expect("view");
        for byte in [2, 3] {
            let new = vec![byte; 3 << 20];
            file.write_at(&new, 100).expect("write over a view");
            model[100..100 + new.len()].copy_from_slice(&new);
        }
        assert_same(&view.to_vec().expect("view")[100..100 + old.len()], &old, "the view");
        drop(view);
        assert_eq!(file.stats().redo_writes, 1, "{ground:?}: the second finds both slots taken");
        assert_same(&common::read_all(&file), &model, "after the writes");
        let log = atomic_mmap::testing::layout::LOG_AREA;
        let reflection = std::fs::File::open(file.reflection_path()).expect("reflection file");
        // The slice mask of the first page that was logged.
        let mut first = [0; 1];
        let at = log + 8;
        std::os::unix::fs::FileExt::read_at(&reflection, &mut first, at).expect("read");
        assert_ne!(first, [0], "{ground:?}: the first extent stays");
        let mut third = [9; 1];
        let at = log + (2 << 20);
        std::os::unix::fs::FileExt::read_at(&reflection, &mut third, at).expect("read");
        if cfg!(not(atomic_mmap_portable)) {
            assert_eq!(third, [0], "{ground:?}: the others are given back");
        }
        file.close(atomic_mmap::CloseMode::Fast).expect("close");
        assert_same(&common::read_all(&open()), &model, "reopened");
    }
}

/// Writes one word of each kind, in regions that the second session does not load until it is
/// closed.
#[test]
fn what_a_session_has_not_touched_comes_home_when_it_is_closed() {
    const PAGE: u64 = 4096;
    const REGION: u64 = 64 * PAGE;
    for ground in common::media() {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let mut expected = vec![0; 8 << 20];
        let file = ground.options().create(true).len(8 << 20).open(&path).expect("open");
        for (at, len) in [(2 * REGION, 2 * PAGE), (5 * REGION + 700, 2000)] {
            let data = vec![at as u8 | 1; len as usize];
            file.write_at(&data, at).expect("write");
            expected[at as usize..(at + len) as usize].copy_from_slice(&data);
        }
        file.close(CloseMode::Fast).expect("close");
        let file = ground.options().open(&path).expect("open again");
        file.close(CloseMode::Spatial).expect("close");
        let plain = std::fs::read(&path).expect("read");
        assert_same(&plain, &expected, &format!("{}", ground.medium));
    }
}

/// Bits that a truncation leaves in words and cached copies would show up in later writes.
#[test]
fn what_is_written_after_a_cut_and_a_growth_is_there_when_the_file_is_opened_again() {
    const PAGE: u64 = 4096;
    const REGION: u64 = 64 * PAGE;
    const LEN: u64 = 8 << 20;
    // Two pages through their region word, and part of one page through its page word.
    let before = [0, 2, 5].map(|n| n * REGION).map(|at| [(at + 4 * PAGE, 2), (at + 9 * PAGE, 1)]);
    // Writes these two pages again through the region word, one of them among others. Its page word
    // must then have no effect. Or writes parts of the two through their page words: then the
    // region word must have no effect and is not stored again.
    let by_region = [0, 2, 5]
        .map(|n| n * REGION)
        .map(|at| [(at + 4 * PAGE, 2 * PAGE), (at + 8 * PAGE, 3 * PAGE)]);
    let by_slices =
        [0, 2, 5].map(|n| n * REGION).map(|at| [(at + 4 * PAGE + 100, 200), (at + 5 * PAGE, 1000)]);
    for (ground, after) in
        media().into_iter().flat_map(|g| [(g.clone(), by_region), (g, by_slices)])
    {
        let scratch = ground.scratch();
        let path = scratch.file("state.dat");
        let file = ground.options().create(true).len(LEN).open(&path).expect("open");
        for (at, pages) in before.concat() {
            let but = if pages == 1 { 1000 } else { 0 };
            file.write_at(&vec![1; (pages * PAGE - but) as usize], at).expect("write");
        }
        file.set_len(PAGE + 100).expect("shrink");
        file.set_len(LEN).expect("grow");
        let mut expected = vec![0; LEN as usize];
        for (at, len) in after.concat() {
            let place = at as usize..(at + len) as usize;
            expected[place.clone()].fill(7);
            file.write_at(&expected[place], at).expect("write");
        }
        assert_same(&read_all(&file), &expected, &format!("{}", ground.medium));
        file.close(CloseMode::Fast).expect("close");
        let file = ground.options().open(&path).expect("open again");
        assert_same(&read_all(&file), &expected, &format!("{}, opened again", ground.medium));
    }
}

#[test]
fn a_second_view_of_a_page_that_was_written_since_the_first_has_the_new_bytes() {
    for ground in media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(4096);
        let file = options.open(scratch.file("state.dat")).expect("open");
        let first = file.view(0..64).expect("view");
        file.write_at(&[1; 64], 0).expect("write");
        let second = file.view(0..64).expect("view");
        assert_eq!(first.to_vec().expect("read"), [0; 64]);
        assert_eq!(second.to_vec().expect("read"), [1; 64]);
    }
}

#[test]
fn pieces_of_one_slice_are_put_together() {
    for ground in media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(4096);
        let file = options.open(scratch.file("state.dat")).expect("open");
        let both = file.transact(|tx| {
            tx.write_at(&[1; 9], 100)?;
            tx.write_at(&[2; 9], 115)
        });
        both.expect("write");
        let mut expected = [0; 4096];
        expected[100..109].fill(1);
        expected[115..124].fill(2);
        assert_same(&read_all(&file), &expected, &format!("{}", ground.medium));
    }
}

#[test]
fn deploying_gives_no_space_back_that_a_view_keeps_in_use() {
    for ground in media() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(4 << 20);
        let file = options.open(scratch.file("state.dat")).expect("open");
        let view = file.view(0..64).expect("view");
        file.write_at(&[1; 64], 0).expect("write");
        file.deploy(0..4 << 20).expect("deploy");
        let mut found = [0; 64];
        file.read_at(&mut found, 0).expect("read");
        assert_eq!(found, [1; 64]);
        assert_eq!(view.to_vec().expect("read"), [0; 64]);
    }
}
