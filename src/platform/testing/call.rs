//! Names of the calls to the operating system, in traces and in injected failures.
//!
//! Owns: the names. There is one for each kind of call that can fail on its own, so that a test can
//! make exactly that call fail.
//!
//! May import: nothing.

/// Open or create a file.
pub const OPEN: &str = "open";
/// Make writes bypass the page cache, or end that.
pub const BYPASS_CACHE: &str = "bypass_cache";
/// Take the lock on a file.
pub const LOCK: &str = "lock";
/// Release the lock on a file.
pub const UNLOCK: &str = "unlock";
/// Reserve addresses and map a file.
pub const MAP: &str = "map";
/// Advise how a mapped file will be used.
pub const ADVISE: &str = "advise";
/// Request that a file is written in place.
pub const IN_PLACE: &str = "in_place";
/// Reserve storage.
pub const ALLOCATE: &str = "allocate";
/// Give storage back.
pub const PUNCH: &str = "punch";
/// Change a file's length.
pub const SET_LEN: &str = "set_len";
/// Make a file's data durable.
pub const SYNC_DATA: &str = "sync_data";
/// Make a file's data and metadata durable.
pub const SYNC_ALL: &str = "sync_all";
/// Make a directory durable.
pub const SYNC_DIR: &str = "sync_dir";
/// Read at an offset.
pub const READ: &str = "read";
/// Write at an offset.
pub const WRITE: &str = "write";
/// Write at an offset, and wait until it is durable.
pub const WRITE_DURABLY: &str = "write_durably";
/// Look for the next data.
pub const NEXT_DATA: &str = "next_data";
/// Look for the next hole.
pub const NEXT_HOLE: &str = "next_hole";
/// Ask about an open file.
pub const STAT: &str = "stat";
/// Ask about a name.
pub const STAT_PATH: &str = "stat_path";
/// Follow the links of a path.
pub const RESOLVE: &str = "resolve";
/// Open a folder.
pub const OPEN_FOLDER: &str = "open_folder";
/// Give a file its owner, group and permissions.
pub const OWN: &str = "own";
/// Rename a file.
pub const RENAME: &str = "rename";
/// Remove a file.
pub const REMOVE: &str = "remove";
/// List a directory.
pub const LIST_DIR: &str = "list_dir";
/// Read an extended attribute.
pub const GET_XATTR: &str = "get_xattr";
/// Set an extended attribute.
pub const SET_XATTR: &str = "set_xattr";
/// Remove an extended attribute.
pub const REMOVE_XATTR: &str = "remove_xattr";
/// Ask what file system a file is on.
pub const FILE_SYSTEM: &str = "file_system";
/// Read the boot's identity.
pub const BOOT_ID: &str = "boot_id";

/// All names, for sweeps.
#[cfg(feature = "recorder")]
pub const ALL: [&str; 31] = [
    OPEN,
    BYPASS_CACHE,
    LOCK,
    UNLOCK,
    MAP,
    ADVISE,
    IN_PLACE,
    ALLOCATE,
    PUNCH,
    SET_LEN,
    SYNC_DATA,
    SYNC_ALL,
    SYNC_DIR,
    READ,
    WRITE,
    WRITE_DURABLY,
    NEXT_DATA,
    NEXT_HOLE,
    STAT,
    STAT_PATH,
    RESOLVE,
    OPEN_FOLDER,
    OWN,
    RENAME,
    REMOVE,
    LIST_DIR,
    GET_XATTR,
    SET_XATTR,
    REMOVE_XATTR,
    FILE_SYSTEM,
    BOOT_ID,
];
