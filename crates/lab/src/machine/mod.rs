//! The simulated machine, with memory that loses unflushed stores when the power fails.
//!
//! The real code of `atomic-mmap` runs on it, through the platform's interface for simulated
//! machines. It creates no real file and maps no memory, so opening a pair of files takes
//! microseconds.
//!
//! | file | contents |
//! |---|---|
//! | `memory` | the medium, and the two persistency models |
//! | `world` | the operating system: files, names and their durability |
//! | `others` | changes of files by other processes |
//! | `units` | the equivalence classes of undetermined superblocks and log records |
//! | `stops` | places at which a thread is held in the middle of an operation |
//! | `trail` | the choices between possible values |
//!
//! This file is the entrance: [`Simulation`] implements [`Machine`] with a [`World`] behind a
//! mutex.

pub mod memory;
pub mod others;
pub mod stops;
pub mod trail;
mod units;
pub mod world;

use atomic_mmap::testing::machine::{FileNumber, Machine, Spot};
use atomic_mmap::testing::{FileStat, OpenHow};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stops::{Access, Stops};
use world::{World, this_thread};

/// A machine that several owners share, like the platform of a file.
pub struct Simulation {
    /// The places at which threads are held.
    pub stops: Stops,
    world: Mutex<World>,
}

impl Simulation {
    /// Creates a machine in this state.
    pub fn new(world: World) -> Arc<Simulation> {
        Arc::new(Simulation { stops: Stops::default(), world: Mutex::new(world) })
    }

    /// Locks the state. Nothing else happens on the machine meanwhile.
    pub fn world(&self) -> MutexGuard<'_, World> {
        // A panic of the code under test inside a call is a finding. The state stays readable.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the process: no later call has an effect.
    pub fn kill(&self) {
        self.world().kill();
    }
}

impl Machine for Simulation {
    fn load(&self, at: Spot) -> u64 {
        self.world().load(at.file, at.offset)
    }

    fn read(&self, to: &mut [u8], at: Spot) {
        self.world().read(at.file, to, at.offset);
    }

    fn store_bytes(&self, at: Spot, bytes: &[u8], through: bool) {
        self.world().store(at.file, at.offset, bytes, through);
    }

    fn store(&self, at: Spot, value: u64, through: bool) {
        self.world().store(at.file, at.offset, &value.to_le_bytes(), through);
    }

    fn compare_exchange(&self, at: Spot, old: u64, new: u64) -> Result<u64, u64> {
        self.stops.pass(this_thread(), Access::CompareExchange);
        let mut world = self.world();
        let before = world.load(at.file, at.offset);
        if before != old {
            return Err(before);
        }
        world.store(at.file, at.offset, &new.to_le_bytes(), false);
        Ok(before)
    }

    fn flush(&self, at: Spot, len: u64) {
        if len == 8 {
            self.stops.pass(this_thread(), Access::FlushOfWord);
        }
        self.world().flush(at.file, at.offset, len);
    }

    fn drain(&self) {
        self.world().drain();
    }

    fn open(&self, path: &Path, how: OpenHow) -> io::Result<FileNumber> {
        self.world().open(path, how)
    }

    fn try_lock(&self, file: FileNumber) -> io::Result<bool> {
        self.world().try_lock(file)
    }

    fn unlock(&self, file: FileNumber) -> io::Result<()> {
        self.world().unlock(file)
    }

    fn map(&self, _: FileNumber, _: u64, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, file: FileNumber, offset: u64, len: u64) -> io::Result<()> {
        self.world().allocate(file, offset, len)
    }

    fn allocate_past_end(&self, file: FileNumber, offset: u64, len: u64) -> io::Result<()> {
        self.world().allocate_past_end(file, offset, len)
    }

    fn punch(&self, file: FileNumber, offset: u64, len: u64) -> io::Result<()> {
        self.world().punch(file, offset, len)
    }

    fn set_len(&self, file: FileNumber, len: u64) -> io::Result<()> {
        self.world().set_len(file, len)
    }

    fn sync(&self, file: FileNumber, _: bool) -> io::Result<()> {
        self.world().sync(file)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.world().sync_dir()
    }

    fn read_at(&self, file: FileNumber, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.world().read_at(file, buf, offset)
    }

    fn write_at(&self, file: FileNumber, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.world().write_at(file, buf, offset)
    }

    fn write_durably(&self, file: FileNumber, buf: &[u8], offset: u64) -> io::Result<usize> {
        let mut world = self.world();
        let put = world.write_at(file, buf, offset)?;
        if world.dies_here(offset) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        world.sync_bytes(file, offset..offset + put as u64)?;
        Ok(put)
    }

    fn next_data(&self, file: FileNumber, offset: u64) -> io::Result<Option<u64>> {
        self.world().next_data(file, offset)
    }

    fn next_hole(&self, file: FileNumber, offset: u64) -> io::Result<Option<u64>> {
        self.world().next_hole(file, offset)
    }

    fn stat(&self, file: FileNumber) -> io::Result<FileStat> {
        self.world().stat(file)
    }

    fn stat_path(&self, path: &Path) -> io::Result<Option<FileStat>> {
        self.world().stat_path(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.world().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.world().remove(path)
    }

    fn list_dir(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.world().list_dir(dir)
    }

    fn get_xattr(&self, file: FileNumber, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.world().get_xattr(file, name)
    }

    fn set_xattr(&self, file: FileNumber, name: &str, value: &[u8]) -> io::Result<()> {
        self.world().set_xattr(file, name, Some(value))
    }

    fn remove_xattr(&self, file: FileNumber, name: &str) -> io::Result<()> {
        self.world().set_xattr(file, name, None)
    }

    fn is_ram(&self) -> bool {
        false
    }

    fn own(&self, file: FileNumber, like: &FileStat) -> io::Result<()> {
        self.world().own(file, like)
    }

    fn is_mounted_alone(&self, _: &Path, file: FileNumber) -> bool {
        self.world().is_mounted_alone(file)
    }

    fn user(&self) -> u32 {
        self.world().user
    }

    fn clocks(&self) -> (u64, i64, u64) {
        self.world().clocks()
    }

    fn volume(&self, _: FileNumber) -> u64 {
        self.world().volume()
    }

    fn boot_id(&self) -> [u8; 16] {
        self.world().boot_id()
    }

    fn new_uuid(&self) -> [u8; 16] {
        self.world().new_uuid()
    }
}
