//! Values that are filled in as bytes, and checked before they count as values.
//!
//! Owns: [`read_value`].
//!
//! May import: std and zerocopy.

use std::mem::MaybeUninit;
use zerocopy::{IntoBytes, TryFromBytes};

/// Returns a value after `fill` has written its bytes, or the error of `invalid` if they are no
/// valid value.
///
/// The bytes are filled in at their final place and checked there. For a type of which all bytes
/// are valid the check compiles to nothing.
#[inline]
pub fn read_value<T: TryFromBytes + IntoBytes, E>(
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    invalid: impl FnOnce() -> E,
) -> Result<T, E> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY:
    // - The pointer is valid for `size_of::<T>()` bytes and not used otherwise while `bytes` lives.
    // - All of these bytes are initialized, to zero, and stay so: only bytes are written to them.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    fill(bytes)?;
    // An array of one, since its layout is known to zerocopy for every `T`.
    if <[T; 1]>::try_mut_from_bytes(bytes).is_err() {
        return Err(invalid());
    }
    // SAFETY: zerocopy has just checked that the bytes are a valid `[T; 1]`, which has the layout
    // of a `T`. No byte has changed since.
    Ok(unsafe { value.assume_init() })
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::read_value;

    fn of<T: zerocopy::TryFromBytes + zerocopy::IntoBytes>(bytes: &[u8]) -> Option<T> {
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(bytes);
            Ok(())
        };
        read_value(fill, || ()).ok()
    }

    #[test]
    fn only_valid_bytes_are_a_value() {
        for byte in 0..=u8::MAX {
            let expected = [Some(false), Some(true)].get(usize::from(byte)).copied().flatten();
            assert_eq!(of::<bool>(&[byte]), expected, "{byte}");
        }
        assert_eq!(of::<char>(&u32::from('ß').to_ne_bytes()), Some('ß'));
        assert_eq!(of::<char>(&0xD800_u32.to_ne_bytes()), None);
        assert_eq!(of::<[bool; 3]>(&[1, 0, 1]), Some([true, false, true]));
        assert_eq!(of::<[bool; 3]>(&[1, 0, 2]), None);
        assert_eq!(of::<u64>(&7_u64.to_ne_bytes()), Some(7));
        assert_eq!(of::<()>(&[]), Some(()));
        assert_eq!(read_value::<u8, _>(|_| Err("failed"), || "invalid"), Err("failed"));
        assert_eq!(read_value::<u8, _>(|_| Ok(()), || "invalid"), Ok(0));
    }
}
