//! The scratch folder of the fuzz targets: two places for pairs, used again for each input, and the
//! checks of their files.
//!
//! The home files stay and are truncated to zero between inputs. So their inode numbers stay the
//! same in a process, and so do the names of their reflection files and journals.

use super::image::{Contents, Image, Page};
use super::patch::MarkWish;
use super::sums::{self, SUPERBLOCK_LEN};
use atomic_mmap::testing::marker::{self, Marker};
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::testing::superblock::{Identity, Moment};
use atomic_mmap::testing::{CacheIdentity, FileSystem, PAGE, layout};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

const P: u64 = PAGE as u64;
/// Environment variable with the folder for scratch folders. Default: `/dev/shm`.
pub const FOLDER_VARIABLE: &str = "LAB_FUZZ_DIR";

/// The properties of a home file that the system reports.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Identity of the file.
    pub identity: Identity,
    /// Length of the file.
    pub len: u64,
    /// Time of the last change of its bytes.
    pub mtime: Moment,
}

/// Properties that identify a page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cache {
    /// The run of the kernel.
    pub boot: [u8; 16],
    /// The mounted file systems.
    pub volume: u64,
    /// Nanoseconds since the machine was started.
    pub uptime: u64,
    /// Time of the machine's start, in nanoseconds since 1970.
    pub started: i64,
    /// Birth time of the devices folder, in nanoseconds since 1970.
    pub devices_born: u64,
}

/// The surroundings of a home file that an open sees.
#[derive(Clone)]
pub struct Around {
    /// The page cache.
    pub now: Cache,
    /// `true` if files lie in memory here, so that existing files never survived a restart.
    pub is_in_memory: bool,
    /// `true` if files have attributes here.
    pub has_marks: bool,
    /// The home file's name.
    pub home_name: String,
    /// The home file's path.
    pub home_path: String,
    /// All files of the folder, in listing order.
    pub files: Vec<(String, Identity)>,
    /// The contents of all files with the name of a companion, journals included.
    pub companions: BTreeMap<String, Contents>,
}

/// A place for a pair of files.
#[derive(Debug)]
pub struct Slot {
    /// Path of the home file.
    pub home: PathBuf,
    /// Path of the reflection file.
    pub reflection: PathBuf,
    /// Path of the journal.
    pub journal: PathBuf,
    /// Path of the store of snapshots.
    pub snapshots: PathBuf,
    /// Identity of the home file.
    pub identity: Identity,
    file: File,
    recorder: Recorder,
}

/// A scratch folder with two places for pairs.
#[derive(Debug)]
pub struct Ground {
    base: PathBuf,
    dir: PathBuf,
    /// A folder outside the scratch folder. A file that is moved there disappears from the scratch
    /// folder.
    pub away: PathBuf,
    /// The two places.
    pub slots: [Slot; 2],
    /// `true` if files have attributes here.
    pub has_marks: bool,
    is_in_memory: bool,
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.base);
    }
}

/// Runs `body` with this thread's ground.
pub fn with<R>(body: impl FnOnce(&Ground) -> R) -> R {
    thread_local!(static GROUND: RefCell<Option<Ground>> = const { RefCell::new(None) });
    GROUND.with(|ground| {
        let mut ground = ground.borrow_mut();
        let ground = ground.get_or_insert_with(Ground::new);
        ground.clear();
        body(ground)
    })
}

impl Ground {
    fn new() -> Ground {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = std::env::var_os(FOLDER_VARIABLE).unwrap_or_else(|| "/dev/shm".into());
        let name = format!("atomic-mmap-fuzz-{}-{n}", std::process::id());
        let base = PathBuf::from(base).join(name);
        let (dir, away) = (base.join("files"), base.join("away"));
        for folder in [&base, &dir, &away] {
            fs::create_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        }
        let slots = ["a.dat", "b.dat"].map(|name| Slot::new(&dir, name));
        let platform = Recorder::new().platform();
        let has_marks = platform
            .set_xattr(&of_platform(&slots[0].file), marker::NAME, b"probe")
            .expect("to be told whether there are attributes");
        let lies_on = platform.file_system(&of_platform(&slots[0].file)).expect("a file system");
        let is_in_memory = matches!(lies_on, FileSystem::Ram(_));
        Ground { base, dir, away, slots, has_marks, is_in_memory }
    }

    /// Returns the current properties of the page cache.
    pub fn now(&self) -> Cache {
        let platform = Recorder::new().platform();
        let home = of_platform(&self.slots[0].file);
        let folder = platform.open_folder(&self.dir).expect("the folder");
        let lies_on = platform.file_system(&home).expect("a file system");
        let (identity, _) = platform
            .cache_identity((&home, lies_on), (&folder, lies_on))
            .expect("to be told which page cache it is");
        let CacheIdentity { boot_id, volume, uptime, started, devices_born } = identity;
        Cache { boot: boot_id, volume, uptime, started, devices_born }
    }

    /// Returns the surroundings of the slot's home file that an open sees.
    pub fn around(&self, slot: &Slot) -> Around {
        let home_name = slot.home.file_name().expect("a name").to_string_lossy().into_owned();
        let mut around = Around {
            now: self.now(),
            is_in_memory: self.is_in_memory,
            has_marks: self.has_marks,
            home_name,
            home_path: slot.home.to_string_lossy().into_owned(),
            files: Vec::new(),
            companions: BTreeMap::new(),
        };
        for entry in fs::read_dir(&self.dir).expect("to list the folder") {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            let path = self.dir.join(&name);
            let file = File::open(&path).expect("a file of the folder");
            around.files.push((name.clone(), stat(&file).identity));
            if name.starts_with(".atomic-mmap.") {
                around.companions.insert(name, read(&path).expect("as above"));
            }
        }
        around
    }

    /// Removes everything except the two home files.
    pub fn clear(&self) {
        for name in self.names() {
            if self.slots.iter().all(|slot| !slot.home.ends_with(&name)) {
                fs::remove_file(self.dir.join(name)).expect("to remove what a target left");
            }
        }
    }

    /// Returns the names in the folder, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.dir)
            .expect("to list the folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Returns a path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Slot {
    fn new(dir: &Path, name: &str) -> Slot {
        let home = dir.join(name);
        let file = File::create_new(&home).expect("a new file");
        let recorder = Recorder::new();
        let identity = stat(&file).identity;
        let reflection = dir.join(format!(".atomic-mmap.{:x}", identity.inode));
        let journal = reflection.with_added_extension("journal");
        let snapshots = reflection.with_added_extension("snapshots");
        Slot { home, reflection, journal, snapshots, identity, file, recorder }
    }

    /// Returns what the system says about the home file.
    pub fn stat(&self) -> Stat {
        stat(&self.file)
    }

    /// Returns the value of the attribute, if files have attributes here.
    pub fn mark(&self, wish: &MarkWish, uuid: [u8; 16]) -> Option<Vec<u8>> {
        let right = Marker::new(uuid, &self.identity);
        match wish {
            MarkWish::None => None,
            MarkWish::Right => Some(right.encode().to_vec()),
            MarkWish::Closing => Some(Marker { is_closing: true, ..right }.encode()),
            MarkWish::OtherPair => {
                let mut uuid = uuid;
                uuid[0] ^= 1;
                Some(Marker { uuid, ..right }.encode().to_vec())
            }
            MarkWish::OtherFile => {
                Some(Marker { inode: right.inode + 1, ..right }.encode().to_vec())
            }
            MarkWish::Raw(bytes) => Some(bytes.clone()),
        }
    }

    /// Writes the home file and its attribute from the image.
    pub fn put_home(&self, image: &Image) -> Stat {
        let file = OpenOptions::new().write(true).open(&self.home).expect("the home file");
        write(&file, &image.home);
        let platform = self.recorder.platform();
        // Removes the attribute that a discard of an earlier image may have left.
        platform
            .remove_xattr(&of_platform(&file), marker::DISCARDED)
            .expect("to remove the attribute");
        match &image.mark {
            Some(mark) => {
                platform
                    .set_xattr(&of_platform(&file), marker::NAME, mark)
                    .expect("to set the attribute");
            }
            None => {
                platform
                    .remove_xattr(&of_platform(&file), marker::NAME)
                    .expect("to remove the attribute");
            }
        }
        self.recorder.take();
        self.stat()
    }

    /// Writes the reflection file, the journal and the store of snapshots from the image.
    pub fn put_reflection(&self, image: &Image) {
        for (path, contents) in [
            (&self.reflection, &image.reflection),
            (&self.journal, &image.journal),
            (&self.snapshots, &image.snapshots),
        ] {
            match contents {
                Some(contents) => put(path, contents),
                None => remove(path),
            }
        }
    }

    /// Reads the files into an image.
    pub fn image(&self) -> Image {
        let platform = self.recorder.platform();
        let home = read(&self.home).expect("the home file");
        let mark = platform
            .get_xattr(&of_platform(&self.file), marker::NAME)
            .expect("to read the attribute");
        let [reflection, journal, snapshots] =
            [&self.reflection, &self.journal, &self.snapshots].map(|path| read(path));
        let image = Image { home, reflection, journal, snapshots, mark };
        self.recorder.take();
        image
    }

    /// Panics unless the files equal the image.
    #[track_caller]
    pub fn assert_is(&self, image: &Image, what: &str) {
        let found = self.image();
        if let Some(difference) = found.home.difference(&image.home) {
            panic!("{what}: the home file was changed: {difference}");
        }
        for (name, found, was) in [
            ("reflection file", &found.reflection, &image.reflection),
            ("journal", &found.journal, &image.journal),
            ("store of snapshots", &found.snapshots, &image.snapshots),
        ] {
            match (found, was) {
                (None, None) => {}
                (Some(_), None) => panic!("{what}: a {name} was left"),
                (None, Some(_)) => panic!("{what}: the {name} was removed"),
                (Some(found), Some(was)) => {
                    if let Some(difference) = found.difference(was) {
                        panic!("{what}: the {name} was changed: {difference}");
                    }
                }
            }
        }
        assert_eq!(found.mark, image.mark, "{what}: the attribute was changed");
    }
}

/// Makes the superblocks in an image refer to this home file: its identity, and the times of a
/// clean close. With a `cache`, they refer to that page cache as well. The superblocks say that
/// their own file is unknown. Their checksums are wrong afterwards.
pub fn adopt(reflection: &mut Contents, stat: &Stat, cache: Option<&Cache>) {
    for at in layout::SUPERBLOCKS {
        let mut bytes = reflection.bytes(at, SUPERBLOCK_LEN);
        if !bytes.starts_with(b"AtomMmap") {
            continue;
        }
        let born = stat.identity.born.unwrap_or_default();
        bytes[88..96].copy_from_slice(&stat.identity.device.to_le_bytes());
        bytes[96..104].copy_from_slice(&stat.identity.inode.to_le_bytes());
        bytes[104..112].copy_from_slice(&born.seconds.to_le_bytes());
        bytes[112..116].copy_from_slice(&born.nanos.to_le_bytes());
        bytes[116..120].copy_from_slice(&u32::from(stat.identity.born.is_some()).to_le_bytes());
        if sums::small(&bytes, 24) == 2 {
            bytes[128..136].copy_from_slice(&stat.mtime.seconds.to_le_bytes());
            bytes[136..140].copy_from_slice(&stat.mtime.nanos.to_le_bytes());
        }
        bytes[440..464].fill(0);
        reflection.write(&bytes, at);
        if let Some(cache) = cache {
            say_cache(reflection, at, cache);
        }
    }
}

/// Makes the superblock at `at` name this page cache for the pair's stores.
pub fn say_cache(reflection: &mut Contents, at: u64, cache: &Cache) {
    let Cache { boot, volume, uptime, started, devices_born } = *cache;
    reflection.write(&boot, at + 152);
    for (n, word) in (0..).zip([volume, uptime, started as u64, devices_born]) {
        reflection.write(&word.to_le_bytes(), at + 464 + 8 * n);
    }
}

/// Makes the superblock at `at` name this file as its own.
pub fn say_own(reflection: &mut Contents, at: u64, own: &Identity) {
    let born = own.born.unwrap_or_default();
    reflection.write(&own.inode.to_le_bytes(), at + 440);
    reflection.write(&born.seconds.to_le_bytes(), at + 448);
    reflection.write(&born.nanos.to_le_bytes(), at + 456);
    reflection.write(&u32::from(own.born.is_some()).to_le_bytes(), at + 460);
}

/// Creates a file if it does not exist, and returns its identity.
pub fn identity_of(path: &Path) -> Identity {
    let how = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    stat(&how.expect("a file")).identity
}

/// Returns the bytes of a file if it exists.
pub fn read(path: &Path) -> Option<Contents> {
    let platform = Recorder::new().platform();
    let file = File::open(path).ok()?;
    let mut contents = Contents::of_len(file.metadata().expect("a file").len());
    let mut at = 0;
    // Skip holes: they are zeroes, and long.
    let handle = of_platform(&file);
    while let Some(data) = platform.next_data(&handle, at).expect("to look for data") {
        let end = platform.next_hole(&handle, data).expect("to look for a hole");
        for page in data / P..end.div_ceil(P) {
            let mut bytes: Page = [0; PAGE];
            let len = (contents.len - page * P).min(P) as usize;
            file.read_exact_at(&mut bytes[..len], page * P).expect("to be read");
            if bytes != [0; PAGE] {
                contents.pages.insert(page, Arc::new(bytes));
            }
        }
        at = end;
    }
    Some(contents)
}

/// Creates or overwrites a file with the contents.
pub fn put(path: &Path, contents: &Contents) {
    write(&File::create(path).expect("a file"), contents);
}

/// Removes a file if it exists.
pub fn remove(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => panic!("{}: {e}", path.display()),
    }
}

fn stat(file: &File) -> Stat {
    let stat = file.metadata().expect("a file");
    let moment = |seconds, nanos| Moment { seconds, nanos: nanos as u32 };
    let born = stat.created().ok().map(|time| {
        let since = time.duration_since(UNIX_EPOCH).expect("after 1970");
        moment(since.as_secs() as i64, i64::from(since.subsec_nanos()))
    });
    Stat {
        identity: Identity { device: stat.dev(), inode: stat.ino(), born },
        len: stat.len(),
        mtime: moment(stat.mtime(), stat.mtime_nsec()),
    }
}

/// Writes the contents to a file, with holes for missing pages.
fn write(file: &File, contents: &Contents) {
    file.set_len(0).expect("to cut");
    file.set_len(contents.len).expect("to lengthen");
    for n in contents.page_numbers() {
        let len = (contents.len - n * P).min(P) as usize;
        file.write_all_at(&contents.pages[&n][..len], n * P).expect("space");
    }
}

/// Returns the platform's handle of an open file.
fn of_platform(file: &File) -> atomic_mmap::testing::File {
    file.try_clone().expect("a handle").into()
}
