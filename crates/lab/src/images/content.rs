//! What must the file hold? A plain model of its bytes.

use std::ops::Range;

/// The whole file, as a reader sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    /// Its bytes; the length is theirs.
    pub bytes: Vec<u8>,
}

/// What an operation changes.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Nothing that a reader could see.
    Nothing,
    /// Bytes, at several places.
    Bytes(Vec<(u64, Vec<u8>)>),
    /// The length; new bytes are zero.
    Len(u64),
}

impl Content {
    /// The file after the operation.
    pub fn after(&self, effect: &Effect) -> Content {
        let mut next = self.clone();
        match effect {
            Effect::Nothing => {}
            Effect::Bytes(parts) => {
                for (at, bytes) in parts {
                    next.bytes[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
                }
            }
            Effect::Len(len) => next.bytes.resize(*len as usize, 0),
        }
        next
    }

    /// The bytes of a range, as far as the file reaches.
    pub fn range(&self, range: &Range<u64>) -> &[u8] {
        let end = (range.end as usize).min(self.bytes.len());
        &self.bytes[(range.start as usize).min(end)..end]
    }
}

/// What was found in the ranges that were looked at.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Found {
    /// The file's length.
    pub len: u64,
    /// The bytes of each range.
    pub parts: Vec<Vec<u8>>,
}

impl Found {
    /// Whether it is what `content` says.
    pub fn is(&self, content: &Content, ranges: &[Range<u64>]) -> bool {
        self.len == content.bytes.len() as u64
            && self.parts.iter().zip(ranges).all(|(part, range)| part == content.range(range))
    }

    /// Where it differs.
    pub fn difference(&self, content: &Content, ranges: &[Range<u64>]) -> String {
        if self.len != content.bytes.len() as u64 {
            return format!("length {} instead of {}", self.len, content.bytes.len());
        }
        for (part, range) in self.parts.iter().zip(ranges) {
            let expected = content.range(range);
            if let Some(n) = part.iter().zip(expected).position(|(a, b)| a != b) {
                let at = range.start + n as u64;
                let end = (n + 8).min(part.len());
                return format!(
                    "page {} byte {}: {:02x?} instead of {:02x?}",
                    at / 4096,
                    at % 4096,
                    &part[n..end],
                    &expected[n..end]
                );
            }
        }
        "no difference".into()
    }
}
