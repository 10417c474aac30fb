//! A folder for the files of an example, removed when the example ends.

use atomic_mmap::{AtomicMappedFile, Error};
use std::io;
use std::path::{Path, PathBuf};

/// The folder in memory, if no disk is suitable.
const SHARED_MEMORY: &str = "/dev/shm";

/// A folder that is removed on drop.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Makes a new folder in the one that the first argument names, or in the system's temporary
    /// folder.
    #[allow(dead_code, reason = "not every example takes its folder from the first argument")]
    pub fn from_args() -> Result<Scratch, Error> {
        match std::env::args_os().nth(1) {
            Some(folder) => Scratch::within(Path::new(&folder)),
            None => Scratch::new(),
        }
    }

    /// Makes a new folder in the system's temporary folder. In containers that is often an overlay,
    /// and the crate refuses to open files there. Then makes it in `/dev/shm`.
    pub fn new() -> Result<Scratch, Error> {
        let scratch = Scratch::within(&std::env::temp_dir())?;
        let probe = scratch.path("probe");
        match AtomicMappedFile::create(&probe, 1) {
            Ok(file) => {
                drop(file);
                let _the_folder_goes_with_it = std::fs::remove_file(probe);
                Ok(scratch)
            }
            Err(Error::UnsupportedFileSystem { path, file_system }) => {
                let folder = path.parent().and_then(Path::parent).unwrap_or(&path).display();
                eprintln!("({folder} lies on {file_system}; using {SHARED_MEMORY})");
                Scratch::within(Path::new(SHARED_MEMORY))
            }
            Err(error) => Err(error),
        }
    }

    fn within(folder: &Path) -> Result<Scratch, Error> {
        let made = tempfile::Builder::new().prefix("atomic-mmap-").tempdir_in(folder);
        let failed = |source: io::Error| Error::Io {
            call: "make a folder in",
            path: folder.to_owned(),
            offset: None,
            source: source.into(),
        };
        made.map(Scratch).map_err(failed)
    }

    /// Returns a path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
