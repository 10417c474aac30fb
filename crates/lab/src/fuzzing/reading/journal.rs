//! The second reading of a journal that is found beside a reflection file.

use super::superblock::Superblock;
use crate::fuzzing::image::Contents;
use crate::fuzzing::points::{self, Points};
use crate::fuzzing::sums;
use atomic_mmap::Mismatch;

/// The owner of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whose {
    /// There is no journal, or an unfinished one.
    Nobodys,
    Ours,
    /// A pair with another uuid, by an intact header.
    Anothers,
    /// The file has bytes, but no intact header.
    Unknown,
}

pub(super) fn journal_owner(journal: Option<&Contents>, uuid: &[u8; 16]) -> Whose {
    let Some(journal) = journal else { return Whose::Nobodys };
    match points::header(journal) {
        Some(header) if header.uuid == *uuid => Whose::Ours,
        Some(_) => Whose::Anothers,
        None if is_damaged(journal, uuid) => Whose::Ours,
        None => match may_be_unfinished(journal) {
            true => Whose::Nobodys,
            false => Whose::Unknown,
        },
    }
}

/// Returns `true` if a header that is not whole names this pair.
fn is_damaged(journal: &Contents, uuid: &[u8; 16]) -> bool {
    let names = |block: u64| journal.bytes(block * sums::BLOCK + 16, 16) == *uuid;
    (0..2).any(|block| (block + 1) * sums::BLOCK <= journal.len && names(block))
}

/// Returns `true` if an opening may have left this journal without a whole header.
fn may_be_unfinished(journal: &Contents) -> bool {
    let head = journal.bytes(0, journal.len.min(2 * sums::BLOCK) as usize);
    head.chunks(sums::BLOCK as usize).all(|block| {
        block.iter().enumerate().all(|(at, byte)| match at {
            0..8 => [0, b"AtomJrnH"[at]].contains(byte),
            8..64 => true,
            _ => *byte == 0,
        })
    })
}

/// Returns the name of the journal of a reflection file.
pub fn journal_of(name: &str) -> String {
    format!("{name}.journal")
}

/// The records that must be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    /// None: the working state counts.
    None,
    /// The newest one: the last durable point counts, in the page cache that it was made in.
    Newest,
    /// All that no sync has covered.
    All,
}

/// Reads the journal that a pair needs. The error says why it cannot be the right one.
///
/// The journal of a new pair, and its header, become durable with the first durable point, before
/// the floor. Until then a missing one has no record.
pub(super) fn read_points(
    found: &Superblock,
    reflection: &Contents,
    journal: Option<&Contents>,
    needs: Needs,
) -> Result<Points, Mismatch> {
    let session = found.session_of_records();
    let floor = points::floor(reflection, &found.uuid, session);
    let may_be_missing = session <= 1 && floor == 0;
    let Some(journal) = journal else {
        return match may_be_missing {
            true => Ok(Points::none(found.durable_len)),
            false => Err(Mismatch::JournalGone),
        };
    };
    let is_headless = points::header(journal).is_none() && may_be_unfinished(journal);
    let fits = points::covers(journal, &found.uuid, session) || is_headless && may_be_missing;
    if !fits {
        return Err(Mismatch::JournalSwapped);
    }
    let points = Points::read(journal, &found.uuid, session, found.durable_len);
    let of = (reflection, &found.uuid, session);
    let lacks_newest = needs != Needs::None && points.lack_newest(of.0, of.1, of.2);
    let lacks_older = needs == Needs::All && points.lack_older(of.0, of.1, of.2);
    match points.end_before(floor) || lacks_newest || lacks_older {
        true => Err(Mismatch::JournalSwapped),
        false => Ok(points),
    }
}
