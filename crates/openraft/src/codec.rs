//! Bytes of entries, votes and log ids.
//!
//! postcard is small, has a stable and documented wire format, and needs no schema beside the
//! types that openraft has already. bincode is no longer maintained.

use atomic_mmap::record;
use atomic_mmap::zerocopy::FromZeros;
use atomic_mmap::zerocopy::little_endian::U32;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest encoded value of a [`Cell`].
const LONGEST: usize = 120;
/// Length of a cell's checksum.
const SUM: usize = 4;
/// Length of checksum and length, in front of the value.
const HEAD: usize = 8;

pub(crate) fn encode<T: Serialize + DeserializeOwned>(value: &T) -> postcard::Result<Vec<u8>> {
    let bytes = postcard::to_stdvec(value)?;
    debug_assert!(
        decode::<T>(&bytes).is_ok_and(|value| postcard::to_stdvec(&value).as_ref() == Ok(&bytes)),
        "{} does not decode to what was encoded: postcard needs types without serde's untagged, \
         flatten and skip_serializing_if",
        std::any::type_name::<T>()
    );
    Ok(bytes)
}

/// Returns the value that `bytes` hold. Bytes after it are an error.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> postcard::Result<T> {
    match postcard::take_from_bytes(bytes)? {
        (value, []) => Ok(value),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}

record! {
    /// An encoded value with its length and checksum. Zeros are none, as in a new file.
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub(crate) struct Cell {
        /// CRC-32C of all bytes after it.
        sum: U32,
        len: U32,
        /// Zero behind the value.
        bytes: [u8; LONGEST],
    }
}

/// The checksum of a cell is wrong.
pub(crate) struct Damaged;

impl Cell {
    /// Returns a cell without a value.
    pub fn none() -> Cell {
        Cell::new_zeroed()
    }
}

/// Fills `to` with an encoded value, as a [`Cell`] of that length has it.
pub(crate) fn put<T: Serialize + DeserializeOwned>(
    value: &T,
    to: &mut [u8],
) -> postcard::Result<()> {
    let encoded = encode(value)?;
    let place = to.get_mut(HEAD..HEAD + encoded.len());
    place.ok_or(postcard::Error::SerializeBufferFull)?.copy_from_slice(&encoded);
    to[HEAD + encoded.len()..].fill(0);
    to[SUM..HEAD].copy_from_slice(&(encoded.len() as u32).to_le_bytes());
    let sum = crc32c::crc32c(&to[SUM..]);
    to[..SUM].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// Returns the encoded value in the bytes of a cell, or `None` without one.
pub(crate) fn value_in(bytes: &[u8]) -> Result<Option<&[u8]>, Damaged> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let (sum, rest) = bytes.split_first_chunk::<SUM>().ok_or(Damaged)?;
    let (len, place) = rest.split_first_chunk().ok_or(Damaged)?;
    let encoded = place.get(..u32::from_le_bytes(*len) as usize).ok_or(Damaged)?;
    let is_whole = u32::from_le_bytes(*sum) == crc32c::crc32c(rest);
    if is_whole { Ok(Some(encoded)) } else { Err(Damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomic_mmap::zerocopy::IntoBytes;

    fn holding<T: Serialize + DeserializeOwned>(value: &T) -> postcard::Result<Cell> {
        let mut cell = Cell::none();
        put(value, cell.as_mut_bytes())?;
        Ok(cell)
    }

    #[test]
    fn a_cell_holds_a_value_or_none() {
        assert!(matches!(value_in(Cell::none().as_bytes()), Ok(None)));
        let cell = holding(&(7_u64, true)).expect("fits");
        let Ok(Some(bytes)) = value_in(cell.as_bytes()) else { panic!("a value") };
        assert_eq!(decode::<(u64, bool)>(bytes), Ok((7, true)));
    }

    #[test]
    fn a_changed_bit_of_a_cell_is_damage() {
        let cell = holding(&"a node".to_owned()).expect("fits");
        for bit in 0..size_of::<Cell>() * 8 {
            let mut changed = cell;
            changed.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
            assert!(value_in(changed.as_bytes()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_value_that_is_too_long_is_an_error() {
        assert!(holding(&"n".repeat(LONGEST - 1)).is_ok());
        assert_eq!(holding(&"n".repeat(LONGEST)).err(), Some(postcard::Error::SerializeBufferFull));
    }

    #[test]
    fn bytes_after_a_value_are_an_error() {
        assert_eq!(decode::<u8>(&[1]), Ok(1));
        assert!(decode::<u8>(&[1, 2]).is_err());
        assert!(decode::<u8>(&[]).is_err());
    }
}
