//! Makes a pair of files from an image, so that the pair can be opened.
//!
//! The superblocks name the home file by device, inode and birth time. In a closed pair they also
//! hold the home file's times. The test patches these values for the new files, and changes nothing
//! else.

use super::media::{Contents, Image};
use super::rng::Rng;
use atomic_mmap::testing::layout;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::testing::superblock::{Copy, Identity, Moment, SUPERBLOCK_LEN, State, Superblock};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

/// A folder in memory that is removed with its contents when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let shm =
            std::env::var_os("ATOMIC_MMAP_TEST_RAM_DIR").map_or("/dev/shm".into(), PathBuf::from);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = shm.join(format!("atomic-mmap-power-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Folder(path),
                // A killed process with this number left it.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => panic!("{}: {e}", path.display()),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

/// A pair of files. Removed when dropped.
pub struct Pair {
    pub home: PathBuf,
    pub reflection: PathBuf,
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _best_effort = fs::remove_file(&self.home);
        let _best_effort = fs::remove_file(&self.reflection);
    }
}

fn write(file: &File, contents: &Contents, holes: bool) {
    file.set_len(contents.len).expect("space");
    let mut run: (u64, Vec<u8>) = (0, Vec::new());
    let put = |(at, bytes): &(u64, Vec<u8>)| {
        let len = (bytes.len() as u64).min(contents.len.saturating_sub(*at));
        file.write_all_at(&bytes[..len as usize], *at).expect("space");
    };
    for (n, page) in &contents.pages {
        if holes && page.iter().all(|byte| *byte == 0) {
            continue;
        }
        if run.0 + run.1.len() as u64 != n * 4096 {
            put(&run);
            run = (n * 4096, Vec::new());
        }
        run.1.extend_from_slice(&page[..]);
    }
    put(&run);
}

/// Writes the files of an image. `rng` chooses details that must not matter: holes, and a restart
/// of the machine.
pub fn materialize(folder: &Folder, image: &Image, rng: &mut Rng) -> Pair {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let path = folder.path().join(format!("home-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let holes = rng.chance(70);
    let home = File::create_new(&path).expect("a new file");
    write(&home, &image.home, holes);
    let stat = home.metadata().expect("a file");
    let born = stat.created().ok().map(|time| {
        let since = time.duration_since(UNIX_EPOCH).expect("after 1970");
        Moment { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
    });
    let identity = Identity { device: stat.dev(), inode: stat.ino(), born };
    let mut reflection = image.reflection.clone();
    let copies: Vec<(u64, Superblock)> = reflection
        .iter()
        .flat_map(|contents| layout::SUPERBLOCKS.map(|at| (at, superblock(contents, at))))
        .filter_map(|(at, copy)| match copy {
            Copy::Valid(superblock) => Some((at, superblock)),
            _ => None,
        })
        .collect();
    if image.marked {
        let uuid = copies.first().map_or([0; 16], |(_, superblock)| superblock.uuid);
        let value = mark(uuid, &identity);
        let file = home.try_clone().expect("a handle").into();
        let done = Recorder::new().platform().set_xattr(&file, "user.atomic_mmap", &value);
        assert!(done.expect("an attribute"));
    }
    let restarted = rng.chance(50);
    let stat = home.metadata().expect("a file");
    for (at, mut superblock) in copies {
        superblock.identity = identity;
        superblock.own.inode = 0;
        if restarted {
            superblock.boot_id = [0x5a; 16];
            superblock.identity.device += 1;
        }
        if let State::Clean(closed) = &mut superblock.state {
            closed.mtime = Moment { seconds: stat.mtime(), nanos: stat.mtime_nsec() as u32 };
            closed.ctime = Moment { seconds: stat.ctime(), nanos: stat.ctime_nsec() as u32 };
        }
        let contents = reflection.as_mut().expect("that it came from");
        for (n, word) in superblock.encode().chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            contents.set_word(at + n as u64 * 8, word);
        }
    }
    let reflection_path = folder.path().join(format!(".atomic-mmap.{:x}", stat.ino()));
    if let Some(contents) = &reflection {
        let file = File::create_new(&reflection_path).expect("a new file");
        write(&file, contents, holes);
    }
    Pair { home: path, reflection: reflection_path }
}

fn superblock(contents: &Contents, at: u64) -> Copy {
    let mut bytes = [0; SUPERBLOCK_LEN];
    for (n, to) in bytes.chunks_exact_mut(8).enumerate() {
        to.copy_from_slice(&contents.word(at + n as u64 * 8).to_le_bytes());
    }
    Superblock::decode(&bytes)
}

/// Returns the value of the attribute.
fn mark(uuid: [u8; 16], identity: &Identity) -> [u8; 40] {
    let born = identity.born.unwrap_or_default();
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(&uuid);
    bytes[16..24].copy_from_slice(&identity.inode.to_le_bytes());
    bytes[24..32].copy_from_slice(&born.seconds.to_le_bytes());
    bytes[32..36].copy_from_slice(&born.nanos.to_le_bytes());
    bytes[36..].copy_from_slice(&u32::from(identity.born.is_some()).to_le_bytes());
    bytes
}
