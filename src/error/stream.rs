//! Errors of streams between files: of exports and imports.
//!
//! Owns: [`StreamError`] and its messages.
//!
//! Invariant: each message says what the caller can do about it.
//!
//! May import: `shown`.

use super::shown;

/// The reason why an export or import has failed. The receiving file is unchanged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The bytes of the stream contradict their checksums or each other. The frames before are
    /// kept: the sender may begin at frame `frames`.
    #[error(
        "the stream is damaged at offset {offset}: {what}; send it again, from frame {frames} on if \
         you like"
    )]
    Damaged {
        /// The offset of the damaged part in the stream that was read, in bytes.
        offset: u64,
        /// The damage.
        what: &'static str,
        /// The number of frames that are kept.
        frames: u64,
    },
    /// The stream has ended before its last frame. The frames before are kept: the sender may begin
    /// at frame `frames`.
    #[error(
        "the stream ends at offset {offset}, before its last frame; send it again, from frame {frames} \
         on if you like"
    )]
    Cut {
        /// The number of bytes that were read.
        offset: u64,
        /// The number of frames that are kept.
        frames: u64,
    },
    /// A newer version of this crate has written the stream.
    #[error("version {version} of the stream is newer than this crate; use a newer version")]
    Newer {
        /// The stream's version.
        version: u32,
    },
    /// The stream begins at a later frame, and the earlier ones are not there.
    #[error(
        "the stream begins at frame {first}, and {frames} frames of it were received; send it from \
         frame {frames} on"
    )]
    Gap {
        /// The first frame of the stream.
        first: u64,
        /// The number of frames that are kept.
        frames: u64,
    },
    /// The file does not have the bytes that the stream's changes are relative to.
    #[error(
        "the file is not as in snapshot \"{}\" of the sender ({found_len} bytes{} and not {len} with \
         the sum {sum:#x}); send the increment since the state that it has, or the whole",
        shown(base),
        with_sum(found_sum)
    )]
    WrongBase {
        /// The name of the sender's snapshot.
        base: String,
        /// The length of that snapshot, in bytes.
        len: u64,
        /// Its content sum.
        sum: u64,
        /// The length of the file, in bytes.
        found_len: u64,
        /// The content sum of the file. `None` if its length is another one: then its bytes are not
        /// read.
        found_sum: Option<u64>,
    },
    /// The content that the stream leads to would not have the sum that it states.
    #[error("the changes do not lead to the stated content; make the stream anew")]
    WrongResult,
    /// The stream has a whole file, and the receiving file has bytes.
    #[error("the stream has a whole file, and this one is not empty; ask to replace its content")]
    NotEmpty,
    /// The stream has changes of a file, and there is none.
    #[error(
        "the stream has the changes since snapshot \"{}\", and the file is not there; send the \
         whole first",
        shown(base)
    )]
    NoBase {
        /// The name of the sender's snapshot.
        base: String,
    },
    /// The first snapshot is not older than the second one.
    #[error(
        "snapshot \"{}\" is not older than \"{}\"; name the older one first",
        shown(from),
        shown(to)
    )]
    WrongOrder {
        /// The name of the first snapshot.
        from: String,
        /// The name of the second snapshot.
        to: String,
    },
}

/// Returns a sum as a message tells it, if it is known.
fn with_sum(sum: &Option<u64>) -> String {
    sum.map(|sum| format!(" with the sum {sum:#x}")).unwrap_or_default()
}
