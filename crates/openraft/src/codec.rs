//! Bytes of entries, votes and log ids.
//!
//! postcard is small, has a stable and documented wire format, and needs no schema beside the
//! types that openraft has already. bincode is no longer maintained.

use atomic_mmap::record;
use atomic_mmap::zerocopy::little_endian::U32;
use atomic_mmap::zerocopy::{FromZeros, IntoBytes};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest encoded value of a [`Cell`].
const LONGEST: usize = 120;

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

    /// Returns a cell with an encoded value.
    pub fn holding<T: Serialize + DeserializeOwned>(value: &T) -> postcard::Result<Cell> {
        let encoded = encode(value)?;
        let mut cell = Cell::none();
        let place = cell.bytes.get_mut(..encoded.len());
        place.ok_or(postcard::Error::SerializeBufferFull)?.copy_from_slice(&encoded);
        cell.len = (encoded.len() as u32).into();
        cell.sum = cell.checksum().into();
        Ok(cell)
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[size_of::<U32>()..])
    }

    /// Returns the encoded value, or `None` without one.
    pub fn value(&self) -> Result<Option<&[u8]>, Damaged> {
        if *self == Cell::none() {
            return Ok(None);
        }
        let encoded = self.bytes.get(..self.len.get() as usize).ok_or(Damaged)?;
        if self.sum.get() == self.checksum() { Ok(Some(encoded)) } else { Err(Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_holds_a_value_or_none() {
        assert!(matches!(Cell::none().value(), Ok(None)));
        let cell = Cell::holding(&(7_u64, true)).expect("fits");
        let Ok(Some(bytes)) = cell.value() else { panic!("a value") };
        assert_eq!(decode::<(u64, bool)>(bytes), Ok((7, true)));
    }

    #[test]
    fn a_changed_bit_of_a_cell_is_damage() {
        let cell = Cell::holding(&"a node".to_owned()).expect("fits");
        for bit in 0..size_of::<Cell>() * 8 {
            let mut changed = cell;
            changed.as_mut_bytes()[bit / 8] ^= 1 << (bit % 8);
            assert!(changed.value().is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_value_that_is_too_long_is_an_error() {
        assert!(Cell::holding(&"n".repeat(LONGEST - 1)).is_ok());
        assert_eq!(
            Cell::holding(&"n".repeat(LONGEST)).err(),
            Some(postcard::Error::SerializeBufferFull)
        );
    }

    #[test]
    fn bytes_after_a_value_are_an_error() {
        assert_eq!(decode::<u8>(&[1]), Ok(1));
        assert!(decode::<u8>(&[1, 2]).is_err());
        assert!(decode::<u8>(&[]).is_err());
    }
}
