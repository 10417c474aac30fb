//! Fuzz target: opens two files that do not belong together, with each of the three wishes.
//!
//! ```text
//! 0     bits 2-3: medium, 4-5: reservation, 6-7: durability
//! 1     what is done with the file, if it opens (life)
//! 2, 3  the images (templates) of the home file and of the reflection file: most often the same
//! 4     where the reflection file lies: below
//! 5     what its superblocks say: below
//! 6     the attribute
//! 7     what was done to the home file since: bits 0-2: below; 3: the superblocks get another
//!       time; to the journal: bits 4-5: nothing, gone, of another image, cut; bits 6-7: the own
//!       file of the superblocks: none, the right one, another one; or another page cache
//! 8-10  how far
//! 11-   bytes of a file that is not ours, or that are put over the superblocks
//! ```

use super::ground::{self, Cache, Ground, Slot, Stat, adopt};
use super::image::{Contents, Image};
use super::input::{Input, filling};
use super::life::{self, Life};
use super::open_bytes::{UUID, how};
use super::patch::MarkWish;
use super::reading::{How, journal_of, names_of};
use super::sums;
use super::templates;
use atomic_mmap::testing::layout;
use atomic_mmap::{Error, OnMismatch};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

/// The home file's name in the superblocks.
const NAME: &[u8] = b"a.dat";

/// The place of the reflection file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lies {
    InItsPlace,
    Nowhere,
    /// Under the name for a file that does not exist.
    Elsewhere,
    /// In its place, and the home file was moved to another folder.
    AndHomeIsGone,
    /// In its place, and the home file was renamed within the folder.
    AndHomeIsRenamed,
    /// Under the home file's second name.
    UnderItsSecondName,
    /// Under the second name, and the reflection file of another pair has the first name.
    BehindAnothers,
}

/// The state of a pair, without the wish.
#[derive(Clone, Debug)]
struct Scene {
    how: How,
    life: Life,
    home: usize,
    reflection: usize,
    lies: Lies,
    says: u8,
    mark: MarkWish,
    since: u8,
    far: u64,
    bytes: Vec<u8>,
}

/// Runs one input.
pub fn run(input: &[u8]) {
    ground::with(|ground| one(ground, Input(input)));
}

fn one(ground: &Ground, mut input: Input<'_>) {
    let scene = Scene {
        how: how(input.byte()),
        life: Life(input.byte()),
        home: input.byte().into(),
        reflection: input.byte().into(),
        lies: input.pick(&[
            Lies::InItsPlace,
            Lies::Nowhere,
            Lies::Elsewhere,
            Lies::AndHomeIsGone,
            Lies::AndHomeIsRenamed,
            Lies::UnderItsSecondName,
            Lies::BehindAnothers,
            Lies::InItsPlace,
        ]),
        says: input.byte(),
        mark: match input.byte() % 6 {
            0 => MarkWish::Right,
            1 => MarkWish::None,
            2 => MarkWish::OtherPair,
            3 => MarkWish::OtherFile,
            5 => MarkWish::Closing,
            _ => MarkWish::Raw(b"something else".to_vec()),
        },
        since: input.byte(),
        far: input.number(3),
        bytes: input.0[..input.0.len().min(8192)].to_vec(),
    };
    for wish in [OnMismatch::Refuse, OnMismatch::Trust, OnMismatch::Discard] {
        ground.clear();
        let how = How { wish, ..scene.how };
        match scene.lies {
            Lies::AndHomeIsGone | Lies::AndHomeIsRenamed => open_without_home(ground, &scene, &how),
            _ => open(ground, &scene, &how),
        }
    }
}

fn open(ground: &Ground, scene: &Scene, how: &How) {
    let slot = &ground.slots[0];
    let image = put(ground, slot, scene);
    life::open(ground, slot, &image, how, scene.life);
}

/// Returns the path of the reflection file.
fn place(ground: &Ground, slot: &Slot, lies: Lies) -> PathBuf {
    match lies {
        Lies::Elsewhere => {
            ground.path(&format!(".atomic-mmap.{:x}", slot.identity.inode ^ 0xABCD_0000))
        }
        Lies::UnderItsSecondName | Lies::BehindAnothers => {
            ground.path(&names_of(&slot.identity)[1])
        }
        _ => slot.reflection.clone(),
    }
}

/// Checks that a reflection file without its home file is refused with any wish, and stays.
fn open_without_home(ground: &Ground, scene: &Scene, how: &How) {
    let slot = &ground.slots[0];
    let image = put(ground, slot, scene);
    let to = match scene.lies {
        Lies::AndHomeIsGone => ground.away.join("a.dat"),
        _ => ground.path("renamed.dat"),
    };
    fs::rename(&slot.home, &to).expect("to move the home file");
    let before = ground.names();
    let result = life::options(how, scene.life).open(&slot.home);
    match result {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
        other => panic!("no home file: {other:?}"),
    }
    assert_eq!(ground.names(), before, "no home file, and the folder was changed");
    fs::rename(&to, &slot.home).expect("to move it back");
    slot.assert_is(&image, "no home file");
}

/// Makes the files.
fn put(ground: &Ground, slot: &Slot, scene: &Scene) -> Image {
    let mut image = templates::image(scene.home);
    (image.reflection, image.journal) = (None, None);
    let mark = slot.mark(&scene.mark, UUID);
    image.mark = mark.filter(|_| ground.has_marks);
    let mut stat = slot.put_home(&image);
    let Image { mut reflection, mut journal, .. } = templates::image(scene.reflection);
    match scene.since >> 4 & 3 {
        0 => {}
        1 => journal = None,
        2 => journal = templates::image(scene.reflection + scene.far as usize).journal,
        _ => {
            if let Some(journal) = &mut journal {
                journal.set_len(scene.far % (journal.len + 1));
            }
        }
    }
    let path = place(ground, slot, scene.lies);
    if let Some(reflection) = &mut reflection {
        if scene.since & 8 != 0 {
            stat.mtime.seconds -= 1;
        }
        if scene.lies == Lies::BehindAnothers {
            // The companion of the first name: like this one, but its home file is a neighbour.
            let mut anothers = reflection.clone();
            adopt(&mut anothers, &ground.slots[1].stat(), Some(&ground.now()));
            sums::repair_superblocks(&mut anothers);
            ground::put(&slot.reflection, &anothers);
        }
        say(ground, slot, reflection, &path, &stat, scene);
    }
    if scene.since & 7 != 0 {
        change_home(slot, &mut image, scene);
    }
    if scene.lies == Lies::Nowhere {
        reflection = None;
        ground::remove(&path);
    }
    if let Some(reflection) = &reflection {
        ground::put(&path, reflection);
    }
    if let Some(journal) = &journal {
        let name = path.file_name().expect("a name").to_string_lossy();
        ground::put(&ground.path(&journal_of(&name)), journal);
    }
    slot.image()
}

/// Writes what the superblocks say, and cuts off or damages a part of them.
fn say(
    ground: &Ground,
    slot: &Slot,
    reflection: &mut Contents,
    path: &Path,
    stat: &Stat,
    scene: &Scene,
) {
    let other = &ground.slots[1];
    let mut cache = ground.now();
    let mut own = None;
    match scene.since >> 6 {
        0 => {}
        1 => own = Some(ground::identity_of(path)),
        2 => own = Some(other.identity),
        _ => say_cache(&mut cache, scene.far),
    }
    adopt(reflection, stat, Some(&cache));
    if let Some(own) = own {
        layout::SUPERBLOCKS.iter().for_each(|at| ground::say_own(reflection, *at, &own));
    }
    let mut in_both = |at: u64, bytes: &[u8]| {
        layout::SUPERBLOCKS.iter().for_each(|block| reflection.write(bytes, block + at));
    };
    in_both(168, &[NAME.len() as u8, 0]);
    in_both(170, NAME);
    match scene.says % 16 {
        0..=2 => {}
        3 => in_both(88, &(slot.identity.device + 1).to_le_bytes()),
        4 => in_both(96, &other.identity.inode.to_le_bytes()),
        5 => in_both(96, &(slot.identity.inode + 0x1234).to_le_bytes()),
        6 => in_both(104, &[1, 2, 3]),
        7 => in_both(116, &[0]),
        8 => in_both(152, &[7; 16]),
        9 => in_both(24, &[1]),
        10 => in_both(24, &[3]),
        11 => in_both(170, b"b.dat"),
        12 => {
            in_both(8, &[1 + (scene.far % 7) as u8]);
        }
        13 => {
            in_both(152, &[0; 16]);
        }
        14 => in_both(16, &(u64::MAX - scene.far % 4).to_le_bytes()),
        _ => in_both(24, &[2]),
    }
    // Written before everything was durable; the next bit says that there was a mark.
    match scene.says >> 4 {
        4 | 6 => in_both(28, &[2]),
        5 | 7 => in_both(28, &[3]),
        _ => {}
    }
    match scene.says >> 4 {
        // And settled.
        6 => {
            let session = sums::session_of(reflection).map_or(0, |(_, session)| session);
            reflection.set_word(sums::SETTLED_WORD, session);
        }
        // The first session, or the close of it.
        7 => {
            let newest = if scene.far & 1 == 1 { [2, 1] } else { [0, 1] };
            for (at, session) in layout::SUPERBLOCKS.into_iter().zip(newest) {
                reflection.set_word(at + 16, session);
            }
        }
        _ => {}
    }
    sums::repair_superblocks(reflection);
    match scene.says >> 4 {
        0..=7 => {}
        // Damages one of them, or both.
        8 => reflection.write(&scene.bytes, 0),
        9 => reflection.write(&scene.bytes, 4096),
        10 => {
            reflection.write(&[0xEE; 24], 200);
            reflection.write(&[0xEE; 24], 4096 + 200);
        }
        // Truncates the file: in its head, anywhere, or slightly.
        11 => reflection.set_len(scene.far % 9000),
        12 => reflection.set_len(scene.far * 64),
        13 => {
            let len = reflection.len.saturating_sub(1 + scene.far % 8192);
            reflection.set_len(len);
        }
        14 => reflection.set_len(reflection.len + scene.far),
        // A foreign file.
        _ => {
            *reflection = Contents::of_len(scene.bytes.len() as u64);
            reflection.write(&scene.bytes, 0);
        }
    }
}

/// Changes the identity of the page cache to another cache, or to this one at another time.
fn say_cache(cache: &mut Cache, far: u64) {
    const HOUR: u64 = 3_600_000_000_000;
    match far % 8 {
        0 => cache.volume ^= 1 + (far >> 3),
        1 => cache.volume = 0,
        2 => cache.uptime += HOUR,
        3 => cache.uptime = 0,
        // The clock was set.
        4 => cache.started -= HOUR as i64,
        5 => cache.started += HOUR as i64,
        // A small difference: the crate must tolerate more than this between two calls.
        6 => cache.devices_born ^= far,
        _ => {
            cache.started -= HOUR as i64;
            cache.devices_born = cache.devices_born.wrapping_sub(HOUR);
        }
    }
}

/// Changes the home file behind the crate's back.
fn change_home(slot: &Slot, image: &mut Image, scene: &Scene) {
    let home = &mut image.home;
    let file = OpenOptions::new().write(true).open(&slot.home).expect("the home file");
    match scene.since & 7 {
        1 => home.set_len(scene.far % (home.len + 1)),
        2 => home.set_len(home.len + 1 + scene.far % 100_000),
        3 => home.write(&filling(9, 50), scene.far % home.len.max(1)),
        4 => home.set_len(0),
        _ => {}
    }
    home.pages.retain(|page, _| page * 4096 < home.len);
    let mark = image.mark.clone();
    slot.put_home(&Image { home: home.clone(), mark, ..Image::default() });
    // The clock may not have advanced since.
    let later = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 + scene.far);
    match scene.since & 7 {
        5 => {}
        6 => drop(file.set_modified(later)),
        _ => file.set_modified(later).expect("another time"),
    }
}
