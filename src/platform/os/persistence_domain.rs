//! Detection of a persistence domain that holds the processor's caches.
//!
//! Owns: the reading of the kernel's answer in sysfs.
//!
//! Invariant: the answer is yes only if every persistent memory region says so. If the kernel says
//! nothing, if a file is unreadable, or if one region differs, the answer is no. A superfluous
//! flush costs time, a missing one costs data.
//!
//! May import: std only.

use std::fs;
use std::path::Path;

/// Returns `true` if the persistence domain of all persistent memory in this machine holds the
/// caches (eADR), so that no line needs a flush.
pub fn caches_persist() -> bool {
    all_regions_hold_caches(Path::new("/sys/bus/nd/devices"))
}

fn all_regions_hold_caches(devices: &Path) -> bool {
    let Ok(entries) = fs::read_dir(devices) else {
        return false;
    };
    let mut regions = 0;
    for entry in entries {
        let Ok(entry) = entry else {
            return false;
        };
        if !entry.file_name().to_string_lossy().starts_with("region") {
            continue;
        }
        match fs::read_to_string(entry.path().join("persistence_domain")) {
            Ok(text) if text.trim() == "cpu_cache" => regions += 1,
            _ => return false,
        }
    }
    regions > 0
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn one_region_that_differs_decides() {
        let root = std::env::temp_dir().join(format!("domain-{}", std::process::id()));
        let put = |region: &str, text: &str| {
            fs::create_dir_all(root.join(region)).unwrap();
            fs::write(root.join(region).join("persistence_domain"), text).unwrap();
        };
        assert!(!all_regions_hold_caches(&root), "no such directory");
        fs::create_dir_all(root.join("namespace0.0")).unwrap();
        assert!(!all_regions_hold_caches(&root), "no region");
        put("region0", "cpu_cache\n");
        assert!(all_regions_hold_caches(&root));
        put("region1", "memory_controller\n");
        assert!(!all_regions_hold_caches(&root));
        put("region1", "cpu_cache\n");
        assert!(all_regions_hold_caches(&root));
        fs::create_dir_all(root.join("region2")).unwrap();
        assert!(!all_regions_hold_caches(&root), "a region that says nothing");
        fs::remove_dir_all(root).unwrap();
    }
}
