//! The permissions of a companion file: those of the home file, and never more for any user.
//!
//! Owns: the rule, for a companion that could not get the home file's owner or group. The calls are
//! those of `linux.rs` and `fallback.rs`.
//!
//! Pure. May import nothing but planted bugs.

#![cfg_attr(
    not(all(target_os = "linux", not(atomic_mmap_portable))),
    allow(dead_code, reason = "access control lists are copied on Linux only")
)]

use crate::mutant::planted;

/// The mask of permissions that only the owner keeps.
pub const OWNER_ONLY: u32 = 0o700;

/// Returns the permissions of a companion, for a home file with these permissions, if neither has
/// an access control list. `is_owner` and `is_group` say that the companion has the home file's
/// owner and group.
///
/// A user may be of another class for the companion than for the home file. For example, a member
/// of the home file's group is one of the others where the companion has another group. So a class
/// gets no more than each class that it may take users from.
pub fn mode(home: u32, is_owner: bool, is_group: bool) -> u32 {
    if planted!(ForeignGroupBitsKept) {
        return home & 0o777;
    }
    let class = |shift: u32| home >> shift & 0o7;
    let of_owner = if is_owner { 0o7 } else { class(6) };
    let of_group = if is_group { 0o7 } else { class(3) };
    let group = if is_group { class(3) & of_owner } else { 0 };
    let other = class(0) & of_owner & of_group;
    class(6) << 6 | group << 3 | other
}

/// Returns `true` if the home file's access control list may be copied. The list refers to the
/// file's owner and group, so the companion must have the home file's group. If the companion has
/// another owner, the home file's owner may be in any class of the list. No class may then get more
/// than the owner.
pub fn may_copy_list(home: u32, is_owner: bool, is_group: bool) -> bool {
    is_group && (is_owner || (home >> 3 | home) & !(home >> 6) & 0o7 == 0)
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    /// Returns what a user may do with a file: the rights of the first class that the user is in.
    fn rights(mode: u32, is_owner: bool, is_in_group: bool) -> u32 {
        match (is_owner, is_in_group) {
            (true, _) => mode >> 6 & 7,
            (_, true) => mode >> 3 & 7,
            _ => mode & 7,
        }
    }

    #[test]
    fn no_user_but_its_maker_gets_more_of_a_companion_than_of_the_home_file() {
        let both = [false, true];
        for home in 0..=0o777 {
            for (has_owner, has_group) in both.into_iter().flat_map(|a| both.map(|b| (a, b))) {
                let companion = mode(home, has_owner, has_group);
                for user in 0..8 {
                    let is = |bit: u32| user >> bit & 1 == 1;
                    let (is_owner, in_group) = (is(0), is(1));
                    let in_companions = if has_group { in_group } else { is(2) };
                    let at_home = rights(home, is_owner, in_group);
                    let now = rights(companion, is_owner && has_owner, in_companions);
                    assert_eq!(now & !at_home, 0, "{home:o} {has_owner} {has_group}: {user:b}");
                }
            }
            assert_eq!(mode(home, true, true), home);
        }
        assert_eq!(mode(0o664, true, false), 0o604);
        assert_eq!(mode(0o604, true, false), 0o600);
        assert_eq!(mode(0o664, false, true), 0o664);
    }

    #[test]
    fn a_list_is_copied_for_the_same_group_only() {
        assert!(may_copy_list(0o640, true, true) && may_copy_list(0o660, false, true));
        assert!(!may_copy_list(0o640, true, false) && !may_copy_list(0o460, false, true));
    }
}
