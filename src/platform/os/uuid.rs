//! Universally unique identifiers: 16 bytes, and their texts.
//!
//! Owns: new identifiers from the system's random numbers, and the standard's text.
//!
//! May import: the crate `getrandom`.

/// Returns a new identifier, of random bytes (version 4).
///
/// # Panics
/// If the system has no random numbers.
pub fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("random numbers of the system");
    bytes[6] = bytes[6] & 0x0F | 0x40; // version 4
    bytes[8] = bytes[8] & 0x3F | 0x80; // the variant of RFC 9562
    bytes
}

/// Returns the text of `uuid`: 32 digits in groups of 8, 4, 4, 4 and 12.
#[cfg_attr(
    not(all(target_os = "linux", not(atomic_mmap_portable))),
    allow(dead_code, reason = "only the names of btrfs contain it")
)]
pub fn text(uuid: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(uuid));
    let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    groups.join("-")
}

/// Returns the identifier with this text, or `None` if it is none.
pub fn parse(text: &[u8; 36]) -> Option<[u8; 16]> {
    let mut uuid = 0;
    for (at, byte) in text.iter().enumerate() {
        match (at, byte) {
            (8 | 13 | 18 | 23, b'-') => {}
            (8 | 13 | 18 | 23, _) => return None,
            _ => uuid = uuid << 4 | u128::from(char::from(*byte).to_digit(16)?),
        }
    }
    Some(u128::to_be_bytes(uuid))
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;

    const TEXT: &[u8; 36] = b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6";

    #[test]
    fn texts_are_those_of_the_standard() {
        let uuid = parse(TEXT).expect("the standard's example");
        assert_eq!(uuid[..6], [0xF8, 0x1D, 0x4F, 0xAE, 0x7D, 0xEC]);
        assert_eq!(text(uuid).as_bytes(), TEXT);
        assert_eq!(text([0; 16]), "00000000-0000-0000-0000-000000000000");
        assert_eq!(parse(&TEXT.map(|byte| byte.to_ascii_uppercase())), Some(uuid));
        for at in 0..36 {
            for wrong in *b"g+ :" {
                let mut text = *TEXT;
                text[at] = wrong;
                assert_eq!(parse(&text), None, "{at}");
            }
            let mut text = *TEXT;
            text[at] = if text[at] == b'-' { b'0' } else { b'-' };
            assert_eq!(parse(&text), None, "{at}");
        }
    }

    #[test]
    fn new_ones_differ_and_have_the_version_of_random_ones() {
        let all: std::collections::BTreeSet<[u8; 16]> = (0..1000).map(|_| random()).collect();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().all(|uuid| uuid[6] >> 4 == 4 && uuid[8] >> 6 == 0b10));
        // Each of the other 122 bits is random.
        let seen = |bit: u128| all.iter().any(|uuid| u128::from_be_bytes(*uuid) >> bit & 1 == 1);
        let clear = |bit: u128| all.iter().any(|uuid| u128::from_be_bytes(*uuid) >> bit & 1 == 0);
        assert_eq!((0..128).filter(|bit| seen(*bit) && clear(*bit)).count(), 122);
    }
}
