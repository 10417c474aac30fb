//! The environment variables.
//!
//! Invariants:
//! - They are read once, by the first call. A program that changes its environment later changes
//!   nothing here.
//! - A program that has more rights than its caller, as a setuid program has, has none of them.
//! - Reading them and matching a path allocates nothing, and takes no lock: see `pattern`.
//!
//! May import: `pattern`.

use crate::pattern;
use atomic_mmap::{DeployPolicy, Durability, MEDIUM_VARIABLE, Medium};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// The patterns of the files, separated by colons.
pub(crate) const FILES: &str = "ATOMIC_MMAP_FILES";
/// `on-sync`, `every-write` or `atomic-sync`.
pub(crate) const DURABILITY: &str = "ATOMIC_MMAP_DURABILITY";
/// `lazy`, `eager`, `manual` or `adaptive`.
pub(crate) const DEPLOY: &str = "ATOMIC_MMAP_DEPLOY";
/// A number and `ms`, `s`, `m` or `h`.
pub(crate) const DEPLOY_IDLE: &str = "ATOMIC_MMAP_DEPLOY_IDLE";
/// A number of bytes, or of `K`, `M`, `G` or `T`.
pub(crate) const REFLECTION_BUDGET: &str = "ATOMIC_MMAP_REFLECTION_BUDGET";
/// A number and `ms`, `s`, `m` or `h`.
pub(crate) const HOME: &str = "ATOMIC_MMAP_HOME";
/// `refused`, `atomic` or `atomic-compare`.
pub(crate) const MSYNC: &str = "ATOMIC_MMAP_MSYNC";
/// `refused` or `served`.
pub(crate) const COPIES: &str = "ATOMIC_MMAP_COPIES";
/// The path of the log.
pub(crate) const LOG: &str = "ATOMIC_MMAP_LOG";

/// The beginning of the names of companions, which are never chosen.
pub(crate) const COMPANION: &[u8] = b".atomic-mmap";

/// Most bytes of a variable.
const LIMIT: usize = 4096;

/// The outcome of a shared writable `mmap` of a chosen file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Msync {
    /// An error.
    Refused,
    /// Memory. `msync` publishes its changes, which the kernel tracks if it can.
    Tracked,
    /// Memory. `msync` compares all of its pages with the file.
    Compared,
}

/// The value of a variable, without an allocation.
struct Text {
    bytes: [u8; LIMIT],
    len: usize,
    is_too_long: bool,
}

struct Settings {
    files: Text,
    durability: Text,
    deploy: Text,
    deploy_idle: Text,
    reflection_budget: Text,
    home: Text,
    msync: Text,
    copies: Text,
    log: Text,
    medium: Text,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

impl Text {
    fn of(value: Option<&[u8]>) -> Text {
        let value = value.unwrap_or_default();
        let len = value.len().min(LIMIT);
        let mut bytes = [0; LIMIT];
        bytes[..len].copy_from_slice(&value[..len]);
        Text { bytes, len, is_too_long: value.len() > LIMIT }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Reads the variables, if that has not happened yet. `value` returns one by its name.
pub(crate) fn read<'a>(value: impl Fn(&str) -> Option<&'a [u8]>) {
    if SETTINGS.get().is_none() {
        let text = |name| Text::of(value(name));
        let settings = Settings {
            files: text(FILES),
            durability: text(DURABILITY),
            deploy: text(DEPLOY),
            deploy_idle: text(DEPLOY_IDLE),
            reflection_budget: text(REFLECTION_BUDGET),
            home: text(HOME),
            msync: text(MSYNC),
            copies: text(COPIES),
            log: text(LOG),
            medium: text(MEDIUM_VARIABLE),
        };
        let _read_meanwhile = SETTINGS.set(settings);
    }
}

/// Returns `true` if the variables have been read.
pub(crate) fn are_read() -> bool {
    SETTINGS.get().is_some()
}

/// Returns `true` if files may be chosen at all.
pub(crate) fn is_on() -> bool {
    SETTINGS.get().is_some_and(|settings| settings.files.len > 0)
}

/// Returns `true` if the file at an absolute path, with every link followed, is chosen.
pub(crate) fn is_chosen(path: &[u8]) -> bool {
    let Some(settings) = SETTINGS.get() else { return false };
    let name = path.rsplit(|&c| c == b'/').next().unwrap_or_default();
    let is_described = |pattern: &[u8]| !pattern.is_empty() && pattern::matches(pattern, path);
    !name.starts_with(COMPANION) && settings.files.get().split(|&c| c == b':').any(is_described)
}

/// Returns `true` if a file with this name may be chosen, whatever its folder is.
pub(crate) fn may_be_chosen(name: &[u8]) -> bool {
    let Some(settings) = SETTINGS.get() else { return false };
    let last = |pattern: &[u8]| pattern.rsplit(|&c| c == b'/').next().map_or(0, <[u8]>::len);
    let is_described = |pattern: &[u8]| {
        !pattern.is_empty() && pattern::matches(&pattern[pattern.len() - last(pattern)..], name)
    };
    settings.files.get().split(|&c| c == b':').any(is_described)
}

/// Returns `true` if a file in the folder of this path may be chosen. The path is absolute, with
/// every link followed, and ends with a slash.
pub(crate) fn may_hold(folder: &[u8]) -> bool {
    let Some(settings) = SETTINGS.get() else { return false };
    let is_described = |pattern: &[u8]| !pattern.is_empty() && pattern::may_hold(pattern, folder);
    settings.files.get().split(|&c| c == b':').any(is_described)
}

/// Returns the path of the log, if there is one.
pub(crate) fn log() -> Option<&'static Path> {
    let text = SETTINGS.get()?.log.get();
    (!text.is_empty()).then(|| Path::new(OsStr::from_bytes(text)))
}

/// Returns the durability, or `None` if the variable has another value than those it may have.
pub(crate) fn durability() -> Option<Durability> {
    durability_of(SETTINGS.get()?.durability.get())
}

fn durability_of(text: &[u8]) -> Option<Durability> {
    match text {
        b"" | b"on-sync" => Some(Durability::OnSync),
        b"every-write" => Some(Durability::EveryWrite),
        b"atomic-sync" => Some(Durability::AtomicSync),
        _ => None,
    }
}

/// Returns the policy of deployment, or `None` if there is no policy of this name.
pub(crate) fn deploy() -> Option<DeployPolicy> {
    deploy_of(SETTINGS.get()?.deploy.get())
}

fn deploy_of(text: &[u8]) -> Option<DeployPolicy> {
    match text {
        b"" | b"lazy" => Some(DeployPolicy::Lazy),
        b"eager" => Some(DeployPolicy::Eager),
        b"manual" => Some(DeployPolicy::Manual),
        b"adaptive" => Some(DeployPolicy::Adaptive),
        _ => None,
    }
}

/// Returns after what time without a write a page is deployed in the background, if ever.
pub(crate) fn deploy_idle() -> Option<Duration> {
    // The constructor has refused wrong values.
    let millis = scaled(SETTINGS.get()?.deploy_idle.get(), &TIMES, None)?;
    Some(Duration::from_millis(millis))
}

/// Returns how often open files become complete in place, if ever.
pub(crate) fn home() -> Option<Duration> {
    // The constructor has refused wrong values.
    scaled(SETTINGS.get()?.home.get(), &TIMES, None).map(Duration::from_millis)
}

/// Returns how many bytes of storage the companions of a file may take, if there is a limit.
pub(crate) fn reflection_budget() -> Option<u64> {
    // The constructor has refused wrong values.
    scaled(SETTINGS.get()?.reflection_budget.get(), &SIZES, Some(1))
}

/// The units of times, in milliseconds. A unit that ends as another one does comes first.
const TIMES: [(&[u8], u64); 4] = [(b"ms", 1), (b"s", 1000), (b"m", 60_000), (b"h", 3_600_000)];
/// The units of sizes, in bytes.
const SIZES: [(&[u8], u64); 4] =
    [(b"K", 1 << 10), (b"M", 1 << 20), (b"G", 1 << 30), (b"T", 1 << 40)];

/// Returns a number times its unit, at least 1. `plain` is the unit of a number without one, if
/// that may be.
fn scaled(text: &[u8], units: &[(&[u8], u64)], plain: Option<u64>) -> Option<u64> {
    let named = units.iter().find_map(|(name, unit)| Some((text.strip_suffix(*name)?, *unit)));
    let (number, unit) = named.or_else(|| Some((text, plain?)))?;
    let is_number = number.iter().all(u8::is_ascii_digit);
    let number: u64 = str::from_utf8(number).ok().filter(|_| is_number)?.parse().ok()?;
    number.checked_mul(unit).filter(|value| *value > 0)
}

/// Returns what shared writable mappings are.
pub(crate) fn msync() -> Msync {
    // The constructor has refused unknown values.
    SETTINGS.get().and_then(|settings| msync_of(settings.msync.get())).unwrap_or(Msync::Refused)
}

fn msync_of(text: &[u8]) -> Option<Msync> {
    match text {
        b"" | b"refused" => Some(Msync::Refused),
        b"atomic" => Some(Msync::Tracked),
        b"atomic-compare" => Some(Msync::Compared),
        _ => None,
    }
}

/// Returns `true` if other processes of the user get copies of open files.
pub(crate) fn are_copies_served() -> bool {
    // The constructor has refused unknown values.
    SETTINGS.get().and_then(|settings| copies_of(settings.copies.get())).unwrap_or(false)
}

fn copies_of(text: &[u8]) -> Option<bool> {
    match text {
        b"" | b"refused" => Some(false),
        b"served" => Some(true),
        _ => None,
    }
}

fn is_medium(text: &[u8]) -> bool {
    text.is_empty() || str::from_utf8(text).is_ok_and(|name| name.parse::<Medium>().is_ok())
}

/// Returns what is wrong with the variables.
pub(crate) fn fault() -> Option<&'static str> {
    let settings = SETTINGS.get()?;
    let is_relative = |pattern: &[u8]| !pattern.is_empty() && pattern[0] != b'/';
    if settings.files.is_too_long || settings.log.is_too_long {
        Some("ATOMIC_MMAP_FILES or ATOMIC_MMAP_LOG is longer than 4096 bytes")
    } else if settings.files.get().split(|&c| c == b':').any(is_relative) {
        Some("ATOMIC_MMAP_FILES: each pattern must begin with a slash")
    } else if durability_of(settings.durability.get()).is_none() {
        Some("ATOMIC_MMAP_DURABILITY: there are on-sync, every-write and atomic-sync")
    } else if deploy_of(settings.deploy.get()).is_none() {
        Some("ATOMIC_MMAP_DEPLOY: there are lazy, eager, manual and adaptive")
    } else if settings.deploy_idle.len > 0 && deploy_idle().is_none() {
        Some("ATOMIC_MMAP_DEPLOY_IDLE: a number above 0, and ms, s, m or h")
    } else if settings.reflection_budget.len > 0 && reflection_budget().is_none() {
        Some("ATOMIC_MMAP_REFLECTION_BUDGET: a number above 0, and K, M, G or T if not of bytes")
    } else if settings.home.len > 0 && home().is_none() {
        Some("ATOMIC_MMAP_HOME: a number above 0, and ms, s, m or h")
    } else if settings.home.len > 0 && durability() == Some(Durability::AtomicSync) {
        Some("ATOMIC_MMAP_HOME: not with atomic-sync, where only the program makes durable points")
    } else if msync_of(settings.msync.get()).is_none() {
        Some("ATOMIC_MMAP_MSYNC: there are refused, atomic and atomic-compare")
    } else if copies_of(settings.copies.get()).is_none() {
        Some("ATOMIC_MMAP_COPIES: there are refused and served")
    } else if !is_medium(settings.medium.get()) {
        Some("ATOMIC_MMAP_MEDIUM: there are dax, page-cache and ram")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_chosen_by_the_patterns_and_companions_never() {
        read(|name| (name == FILES).then_some(b"/data/*.db::/x/**".as_slice()));
        assert!(is_on() && fault().is_none() && log().is_none());
        for (path, expected) in [
            ("/data/a.db", true),
            ("/data/b.txt", false),
            ("/x/y/z", true),
            ("/x/y/.atomic-mmap.17", false),
            ("/x/y/.atomic-mmap.17.journal", false),
            ("", false),
        ] {
            assert_eq!(is_chosen(path.as_bytes()), expected, "{path}");
        }
        let folders = ["/data/", "/data/sub/", "/dat/", "/", "/x/", "/x/y/z/"];
        let may_hold = folders.map(|folder| may_hold(folder.as_bytes()));
        assert_eq!(may_hold, [true, false, false, false, true, true]);
        assert_eq!(durability(), Some(Durability::OnSync));
        assert_eq!(durability_of(b"every-write"), Some(Durability::EveryWrite));
        assert_eq!(durability_of(b"sync"), None);
        assert_eq!(
            (deploy(), deploy_idle(), reflection_budget()),
            (Some(DeployPolicy::Lazy), None, None)
        );
        assert_eq!(msync(), Msync::Refused);
        assert_eq!(msync_of(b"atomic"), Some(Msync::Tracked));
        assert_eq!(msync_of(b"yes"), None);
        assert_eq!((copies_of(b""), copies_of(b"served")), (Some(false), Some(true)));
        assert_eq!(copies_of(b"yes"), None);
    }

    #[test]
    fn policies_times_and_sizes_have_their_names_and_units() {
        assert_eq!(deploy_of(b"adaptive"), Some(DeployPolicy::Adaptive));
        assert_eq!(deploy_of(b"eager"), Some(DeployPolicy::Eager));
        assert_eq!(deploy_of(b"manual"), Some(DeployPolicy::Manual));
        assert_eq!(deploy_of(b"Eager"), None);
        let time = |text: &str| scaled(text.as_bytes(), &TIMES, None);
        assert_eq!(
            (time("250ms"), time("30s"), time("2m")),
            (Some(250), Some(30_000), Some(120_000))
        );
        assert_eq!(time("1h"), Some(3_600_000));
        for wrong in ["", "s", "0s", "5", "-1s", "+1s", "1.5s", "1 s", "99999999999999999999h"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
        let size = |text: &str| scaled(text.as_bytes(), &SIZES, Some(1));
        assert_eq!(
            (size("4096"), size("64M"), size("1T")),
            (Some(4096), Some(64 << 20), Some(1 << 40))
        );
        for wrong in ["", "M", "0", "1m", "64MB", "18446744073709551615K"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }
}
