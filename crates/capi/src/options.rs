//! `ato_options`: how a file is opened.
//!
//! Invariant: a field is only ever added at the end. `size` says how many of them a program knows.

use crate::boundary::{Failure, Result};
use crate::memory;
use atomic_mmap::{
    Allocation, AtomicMappedFile, CloseMode, Damage, DeployPolicy, Durability, Integrity, Medium,
    OnMismatch, Options,
};
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The medium is found by the file system.
pub const ATO_MEDIUM_ANY: c_int = 0;
/// Persistent memory, mapped directly.
pub const ATO_MEDIUM_DAX: c_int = 1;
/// A disk behind the page cache.
pub const ATO_MEDIUM_PAGE_CACHE: c_int = 2;
/// Memory that a restart of the machine clears.
pub const ATO_MEDIUM_RAM: c_int = 3;

/// `ato_sync` makes everything before it durable.
pub const ATO_DURABLE_ON_SYNC: c_int = 0;
/// Each write is durable when it returns.
pub const ATO_DURABLE_EVERY_WRITE: c_int = 1;
/// As on sync, and any crash goes back to the last sync: an atomic msync.
pub const ATO_DURABLE_ATOMIC_SYNC: c_int = 2;

/// Deploys a page once reads have cost about as much as deploying it would.
pub const ATO_DEPLOY_LAZY: c_int = 0;
/// Deploys after every write.
pub const ATO_DEPLOY_EAGER: c_int = 1;
/// Deploys for `ato_deploy` and a spatial close only.
pub const ATO_DEPLOY_MANUAL: c_int = 2;
/// As lazily, and right after a write if the page was read often since the write before. Decided
/// for each page.
pub const ATO_DEPLOY_ADAPTIVE: c_int = 3;

/// Each call allocates what it needs.
pub const ATO_ALLOCATE_ON_DEMAND: c_int = 0;
/// The library's own thread also allocates before sequential writers, but not on a disk.
pub const ATO_ALLOCATE_AHEAD: c_int = 1;
/// An open allocates all of the file and its companion, and a growth what it adds.
pub const ATO_ALLOCATE_FULL: c_int = 2;

/// Leaves a plain file without companions. A file with snapshots keeps its companions.
pub const ATO_CLOSE_SPATIAL: c_int = 0;
/// Keeps the companions. Takes constant time.
pub const ATO_CLOSE_FAST: c_int = 1;
/// Writes nothing: the files stay as a crash of the process would leave them.
pub const ATO_CLOSE_UNSYNCED: c_int = 2;

/// A home file and a companion that do not match are an error.
pub const ATO_MISMATCH_REFUSE: c_int = 0;
/// The home file's bytes count as they are.
pub const ATO_MISMATCH_DISCARD: c_int = 1;
/// The companion counts in spite of the mismatch, where that is possible.
pub const ATO_MISMATCH_TRUST: c_int = 2;

/// The file keeps its page sums, or has none.
pub const ATO_INTEGRITY_AS_IS: c_int = 0;
/// No page sums. A file that has some loses them.
pub const ATO_INTEGRITY_OFF: c_int = 1;
/// A page is verified at its first touch after an open, by `ato_verify`, by the scrub, and before a
/// write into it.
pub const ATO_INTEGRITY_ON_SCRUB: c_int = 2;
/// A page is verified by each read of it as well.
pub const ATO_INTEGRITY_ON_READ: c_int = 3;

/// A function that hears of damage: `len` bytes from `offset` on of the file `path`. `path` ends
/// with a zero byte, and is valid during the call. `user` is `on_damage_user` of the options.
pub type ato_on_damage = Option<
    unsafe extern "C-unwind" fn(user: *mut c_void, path: *const c_char, offset: u64, len: u64),
>;

/// How a file is opened. `ato_options_init` sets each field to its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ato_options {
    /// Size of this structure in bytes, as the program knows it.
    pub size: usize,
    /// Length of a file that is created, in bytes. A shorter file that exists grows to it. 0 keeps
    /// the length.
    pub len: u64,
    /// Longest length that the file may get, in bytes. It takes address space. 0 is the default.
    pub max_len: u64,
    /// Longest length of the journal in bytes. 0 is the default.
    pub journal_len: u64,
    /// Time to wait for a file that is open elsewhere, in milliseconds. 0 does not wait.
    pub busy_timeout_ms: u64,
    /// Time between durable points that the library makes, in milliseconds. 0 makes none.
    pub sync_every_ms: u64,
    /// Folder of the companions. NULL is the folder of the file.
    pub reflection_dir: *const c_char,
    /// `ATO_MEDIUM_`...
    pub medium: c_int,
    /// `ATO_DURABLE_`...
    pub durability: c_int,
    /// `ATO_DEPLOY_`...
    pub deploy: c_int,
    /// `ATO_MISMATCH_`...
    pub on_mismatch: c_int,
    /// Not 0: a file that does not exist is created.
    pub create: u8,
    /// Not 0: the file is opened for reading alone.
    pub read_only: u8,
    /// Not 0: a file system without tested promises is accepted.
    pub any_file_system: u8,
    /// Zero.
    pub reserved: [u8; 5],
    /// Bytes a second that are verified in the background, at least 80 KiB. 0 verifies none.
    pub scrub_rate: u64,
    /// `ATO_INTEGRITY_`...: the use of page sums, by which damage is noticed.
    pub integrity: c_int,
    /// Zero.
    pub reserved_2: [u8; 4],
    /// Called for each damage that is noticed, by the thread that notices it. So it may be called
    /// by several threads at once, and by the library's own. It must not use the file, and returns
    /// in the usual way. NULL: none is called.
    pub on_damage: ato_on_damage,
    /// First argument of `on_damage`. It stays valid until the file is closed.
    pub on_damage_user: *mut c_void,
    /// Time without a write after which pages are deployed in the background, and their space is
    /// given back, in milliseconds: it takes one to two times as long. 0 is never.
    pub deploy_idle_ms: u64,
    /// Storage that the companions may take, in bytes: at least 4 MiB, and twice the journal's
    /// length more. Writes wait for space, and never fail for it. 0 is no limit.
    pub reflection_budget: u64,
    /// `ATO_ALLOCATE_`...: when storage is allocated.
    pub allocation: c_int,
    /// Zero.
    pub reserved_3: [u8; 4],
}

const DEFAULT: ato_options = ato_options {
    size: size_of::<ato_options>(),
    len: 0,
    max_len: 0,
    journal_len: 0,
    busy_timeout_ms: 0,
    sync_every_ms: 0,
    reflection_dir: std::ptr::null(),
    medium: ATO_MEDIUM_ANY,
    durability: ATO_DURABLE_ON_SYNC,
    deploy: ATO_DEPLOY_LAZY,
    on_mismatch: ATO_MISMATCH_REFUSE,
    create: 0,
    read_only: 0,
    any_file_system: 0,
    reserved: [0; 5],
    scrub_rate: 0,
    integrity: ATO_INTEGRITY_AS_IS,
    reserved_2: [0; 4],
    on_damage: None,
    on_damage_user: std::ptr::null_mut(),
    deploy_idle_ms: 0,
    reflection_budget: 0,
    allocation: ATO_ALLOCATE_ON_DEMAND,
    reserved_3: [0; 4],
};

/// The size of the structure in the first version of the interface.
const FIRST: usize = offset_of!(ato_options, scrub_rate);
const _: () = assert!(size_of::<usize>() != 8 || FIRST == 80);

/// The size in the second version.
#[cfg(test)]
const SECOND: usize = offset_of!(ato_options, deploy_idle_ms);

/// More bytes than the structure of any version has. Memory without a known content says more.
const LONGEST: usize = 1024;

/// Sets each option to its default. `size` is `sizeof(ato_options)`. Does nothing if `options` is
/// NULL.
///
/// # Safety
/// `options` is NULL, or names `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ato_options_init(options: *mut ato_options, size: usize) {
    if options.is_null() {
        return;
    }
    let known = size.min(size_of::<ato_options>());
    // SAFETY: the caller names `size` bytes. Fields that this version does not know become zero,
    // which is their default.
    unsafe {
        options.cast::<u8>().write_bytes(0, size);
        std::ptr::from_ref(&DEFAULT).cast::<u8>().copy_to(options.cast(), known);
        if size >= size_of::<usize>() {
            options.cast::<usize>().write_unaligned(size);
        }
    }
}

/// Returns the options that a program names. NULL is the defaults.
///
/// # Safety
/// `options` is NULL, or names as many bytes as its `size` says.
pub(crate) unsafe fn read(options: *const ato_options) -> Result<Options> {
    if options.is_null() {
        // SAFETY: the defaults name no folder.
        return unsafe { convert(&DEFAULT) };
    }
    // SAFETY: `size` is the first field in every version.
    let size = unsafe { options.cast::<usize>().read() };
    if !(FIRST..=LONGEST).contains(&size) {
        let text = format!("ato_options cannot have {size} bytes; call ato_options_init first");
        return Err(Failure::argument(text));
    }
    // Fields that an earlier version of the structure lacks have their defaults.
    let mut known = DEFAULT;
    let len = size.min(size_of::<ato_options>());
    // SAFETY: the program names `size` bytes, and `known` has `len`. Each value of a field is
    // valid.
    let later = unsafe {
        options.cast::<u8>().copy_to(std::ptr::from_mut(&mut known).cast(), len);
        std::slice::from_raw_parts(options.cast::<u8>().add(len), size - len)
    };
    let is_reserved_used =
        known.reserved != [0; 5] || known.reserved_2 != [0; 4] || known.reserved_3 != [0; 4];
    if later.iter().any(|byte| *byte != 0) || is_reserved_used {
        let text = "ato_options has a field that this version of the library does not know";
        return Err(Failure::argument(text));
    }
    // SAFETY: `reflection_dir` is NULL or a text.
    unsafe { convert(&known) }
}

/// # Safety
/// `reflection_dir` is NULL, or a text that ends with a zero byte.
unsafe fn convert(from: &ato_options) -> Result<Options> {
    let mut options = AtomicMappedFile::options()
        .create(from.create != 0)
        .read_only(from.read_only != 0)
        .allow_any_file_system(from.any_file_system != 0)
        .len(from.len)
        .busy_timeout(Duration::from_millis(from.busy_timeout_ms))
        .durability(durability(from.durability)?)
        .deploy(deploy(from.deploy)?)
        .allocation(allocation(from.allocation)?)
        .on_mismatch(on_mismatch(from.on_mismatch)?);
    if let Some(medium) = medium(from.medium)? {
        options = options.medium(medium);
    }
    if from.max_len != 0 {
        options = options.max_len(from.max_len);
    }
    if from.journal_len != 0 {
        options = options.journal_len(from.journal_len);
    }
    if from.sync_every_ms != 0 {
        options = options.sync_every(Duration::from_millis(from.sync_every_ms));
    }
    if let Some(integrity) = integrity(from.integrity)? {
        options = options.integrity(integrity);
    }
    if from.scrub_rate != 0 {
        options = options.scrub(from.scrub_rate);
    }
    if let Some(call) = from.on_damage {
        let listener = Listener { call, user: from.on_damage_user };
        options = options.on_damage(move |damage| listener.tell(damage));
    }
    if from.deploy_idle_ms != 0 {
        options = options.deploy_idle(Duration::from_millis(from.deploy_idle_ms));
    }
    if from.reflection_budget != 0 {
        options = options.reflection_budget(from.reflection_budget);
    }
    if !from.reflection_dir.is_null() {
        // SAFETY: the text ends with a zero byte.
        options = options.reflection_dir(unsafe { memory::path(from.reflection_dir) }?);
    }
    Ok(options)
}

/// A program's function that hears of damage.
struct Listener {
    call: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, u64, u64),
    user: *mut c_void,
}

// SAFETY: the program lets any thread call the function with this pointer.
unsafe impl Send for Listener {}
// SAFETY: and several threads at once.
unsafe impl Sync for Listener {}

impl Listener {
    fn tell(&self, damage: &Damage<'_>) {
        let range = &damage.range;
        // A path came from a text, so no zero byte is in it.
        let path = CString::new(damage.path.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: the path is valid during the call, and the program has chosen the rest.
        unsafe { (self.call)(self.user, path.as_ptr(), range.start, range.end - range.start) }
    }
}

fn unknown<T>(what: &str, number: c_int) -> Result<T> {
    Err(Failure::argument(format!("there is no {what} {number}")))
}

fn medium(number: c_int) -> Result<Option<Medium>> {
    Ok(Some(match number {
        ATO_MEDIUM_ANY => return Ok(None),
        ATO_MEDIUM_DAX => Medium::Dax,
        ATO_MEDIUM_PAGE_CACHE => Medium::PageCache,
        ATO_MEDIUM_RAM => Medium::Ram,
        _ => return unknown("medium", number),
    }))
}

/// Returns the number of a medium.
pub(crate) fn of_medium(medium: Medium) -> c_int {
    match medium {
        Medium::Dax => ATO_MEDIUM_DAX,
        Medium::PageCache => ATO_MEDIUM_PAGE_CACHE,
        Medium::Ram => ATO_MEDIUM_RAM,
        _ => ATO_MEDIUM_ANY,
    }
}

fn durability(number: c_int) -> Result<Durability> {
    Ok(match number {
        ATO_DURABLE_ON_SYNC => Durability::OnSync,
        ATO_DURABLE_EVERY_WRITE => Durability::EveryWrite,
        ATO_DURABLE_ATOMIC_SYNC => Durability::AtomicSync,
        _ => return unknown("durability", number),
    })
}

/// Returns the policy of deployment of this number.
pub(crate) fn deploy(number: c_int) -> Result<DeployPolicy> {
    Ok(match number {
        ATO_DEPLOY_LAZY => DeployPolicy::Lazy,
        ATO_DEPLOY_EAGER => DeployPolicy::Eager,
        ATO_DEPLOY_MANUAL => DeployPolicy::Manual,
        ATO_DEPLOY_ADAPTIVE => DeployPolicy::Adaptive,
        _ => return unknown("policy of deployment", number),
    })
}

/// Returns the number of a policy of deployment.
pub(crate) fn of_deploy(policy: DeployPolicy) -> Result<c_int> {
    Ok(match policy {
        DeployPolicy::Lazy => ATO_DEPLOY_LAZY,
        DeployPolicy::Eager => ATO_DEPLOY_EAGER,
        DeployPolicy::Manual => ATO_DEPLOY_MANUAL,
        DeployPolicy::Adaptive => ATO_DEPLOY_ADAPTIVE,
        _ => return Err(Failure::argument(format!("the policy {policy:?} has no number"))),
    })
}

fn allocation(number: c_int) -> Result<Allocation> {
    Ok(match number {
        ATO_ALLOCATE_ON_DEMAND => Allocation::OnDemand,
        ATO_ALLOCATE_AHEAD => Allocation::Ahead,
        ATO_ALLOCATE_FULL => Allocation::Full,
        _ => return unknown("time of allocation", number),
    })
}

fn on_mismatch(number: c_int) -> Result<OnMismatch> {
    Ok(match number {
        ATO_MISMATCH_REFUSE => OnMismatch::Refuse,
        ATO_MISMATCH_DISCARD => OnMismatch::Discard,
        ATO_MISMATCH_TRUST => OnMismatch::Trust,
        _ => return unknown("choice for a mismatch", number),
    })
}

fn integrity(number: c_int) -> Result<Option<Integrity>> {
    Ok(Some(match number {
        ATO_INTEGRITY_AS_IS => return Ok(None),
        ATO_INTEGRITY_OFF => Integrity::Off,
        ATO_INTEGRITY_ON_SCRUB => Integrity::OnScrub,
        ATO_INTEGRITY_ON_READ => Integrity::OnRead,
        _ => return unknown("use of page sums", number),
    }))
}

/// Returns the way to close of this number.
pub(crate) fn close_mode(number: c_int) -> Result<CloseMode> {
    Ok(match number {
        ATO_CLOSE_SPATIAL => CloseMode::Spatial,
        ATO_CLOSE_FAST => CloseMode::Fast,
        ATO_CLOSE_UNSYNCED => CloseMode::Unsynced,
        _ => return unknown("way to close", number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_a_later_version_may_use_its_fields_only_where_they_exist() {
        #[repr(C)]
        struct Later {
            known: ato_options,
            more: u64,
        }
        let mut later = Later { known: DEFAULT, more: 1 };
        let place = std::ptr::from_mut(&mut later).cast::<ato_options>();
        // SAFETY: there are that many bytes.
        unsafe { ato_options_init(place, size_of::<Later>()) };
        assert_eq!((later.known.size, later.more), (size_of::<Later>(), 0));
        // SAFETY: `size` says how many bytes there are.
        assert!(unsafe { read(place) }.is_ok());
        later.more = 1;
        // SAFETY: as above.
        assert!(unsafe { read(std::ptr::from_ref(&later).cast()) }.is_err());
    }

    /// Programs that were compiled with the first version of the structure know 80 bytes of it, and
    /// those of the second version 112.
    #[test]
    fn a_program_of_an_earlier_version_gets_the_defaults_of_later_fields() {
        assert_eq!((FIRST, SECOND), (80, 112));
        for size in [FIRST, SECOND] {
            let mut memory = [DEFAULT; 2];
            // SAFETY: there are that many bytes.
            unsafe { ato_options_init(memory.as_mut_ptr(), size) };
            // The bytes behind its structure are not the program's.
            if size == FIRST {
                memory[0].scrub_rate = u64::MAX;
                memory[0].integrity = 9;
            }
            memory[0].deploy_idle_ms = u64::MAX;
            memory[0].reflection_budget = 1;
            assert_eq!(memory[0].size, size);
            // SAFETY: there are that many bytes.
            let read = unsafe { read(memory.as_ptr()) }.expect("options");
            let (as_read, default) = (format!("{read:?}"), format!("{:?}", default_options()));
            assert_eq!(as_read, default);
        }
    }

    fn default_options() -> Options {
        // SAFETY: the defaults name no folder.
        unsafe { convert(&DEFAULT) }.expect("options")
    }

    #[test]
    fn what_is_not_initialised_is_refused() {
        for spoil in [
            |options: &mut ato_options| options.size = 8,
            |options: &mut ato_options| options.medium = 9,
            |options: &mut ato_options| options.durability = -1,
            |options: &mut ato_options| options.deploy = 4,
            |options: &mut ato_options| options.on_mismatch = 3,
            |options: &mut ato_options| options.reserved[4] = 1,
            |options: &mut ato_options| options.integrity = 4,
            |options: &mut ato_options| options.reserved_2[0] = 1,
            |options: &mut ato_options| options.allocation = 3,
            |options: &mut ato_options| options.reserved_3[3] = 1,
        ] {
            let mut options = DEFAULT;
            spoil(&mut options);
            // SAFETY: there is a whole structure.
            assert!(unsafe { read(&raw const options) }.is_err(), "{options:?}");
        }
    }
}
