//! The second reading of superblocks.

use crate::fuzzing::ground::Cache;
use crate::fuzzing::image::Contents;
use crate::fuzzing::points;
use crate::fuzzing::sums::{self, small, word};
use atomic_mmap::testing::superblock::{Identity, Moment};

/// A decoded superblock.
pub(in crate::fuzzing) struct Superblock {
    pub(super) state: u32,
    pub uuid: [u8; 16],
    pub session: u64,
    pub(super) identity: Identity,
    pub(super) own: Identity,
    pub(super) closed_len: u64,
    pub(super) mtime: Moment,
    /// The checksum of the home file at the close.
    pub(super) closed_sum: Option<u32>,
    /// The home file had a mark before the superblock was written.
    pub(super) is_marked: bool,
    /// The superblock was written before everything that it says was durable.
    pub(super) is_unsettled: bool,
    pub(super) cache: Cache,
    pub(super) name: Vec<u8>,
    pub(super) durable: u32,
    pub(super) durable_len: u64,
}

impl Superblock {
    /// Returns `true` if the session kept durable points.
    pub(super) fn has_points(&self) -> bool {
        self.state == 1 && (1..=2).contains(&self.durable)
    }

    /// Returns `true` if the session ended so that only the last durable point counts.
    pub(super) fn is_undone(&self, is_believed: bool) -> bool {
        self.has_points() && (self.durable == 2 || !is_believed)
    }

    /// Returns `true` if the pair was being created, or if a spatial close did not end.
    pub(super) fn is_unfinished(&self) -> bool {
        self.is_void() || self.state == 1 && self.is_unsettled
    }

    /// Returns `true` if nothing in the file counts, whatever else there is.
    pub(super) fn is_void(&self) -> bool {
        self.state == 3 || self.durable == 3
    }

    /// Returns `true` if the home file's bytes count as they are. `has_mark` says whether the home
    /// file has a mark.
    pub(super) fn is_plain(&self, has_mark: bool) -> bool {
        self.is_void() || self.is_unfinished() && self.is_marked && !has_mark
    }

    /// Returns `true` if the pair was closed, and the reflection file may lack a part that only the
    /// journal has.
    pub(super) fn is_incomplete(&self, is_believed: bool) -> bool {
        let keeps = (1..=2).contains(&self.durable);
        self.state == 2 && self.is_unsettled && keeps && !is_believed
    }

    /// Returns the session of the records that the journal must have.
    pub(super) fn session_of_records(&self) -> u64 {
        match self.state == 2 && self.is_unsettled {
            true => self.session.saturating_sub(1),
            false => self.session,
        }
    }

    /// Looks whether the reflection file says that everything was durable in the end.
    pub(super) fn look_for_settlement(&mut self, reflection: &Contents) {
        let is_said = reflection.word(sums::SETTLED_WORD) == self.session;
        let has_floor = || points::floor(reflection, &self.uuid, self.session) > 0;
        if is_said || self.state == 1 && has_floor() {
            self.is_unsettled = false;
        }
    }
}

/// The state of one copy of the superblock.
#[allow(clippy::large_enum_variant, reason = "few are made, and none is kept")]
pub(in crate::fuzzing) enum Copy {
    Valid(Superblock),
    Newer(u32),
    Corrupt,
    Foreign,
}

pub(in crate::fuzzing) fn moment(bytes: &[u8], seconds: usize, nanos: usize) -> Moment {
    Moment { seconds: word(bytes, seconds) as i64, nanos: small(bytes, nanos) }
}

pub(in crate::fuzzing) fn copy(bytes: &[u8]) -> Copy {
    if !bytes.starts_with(b"AtomMmap") {
        return Copy::Foreign;
    }
    let version = small(bytes, 8);
    if version > 1 {
        return Copy::Newer(version);
    }
    let geometry = [(48, 64), (52, 4096), (56, 64), (60, 80), (64, 4096), (12, 512), (8, 1)];
    let state = small(bytes, 24);
    let is_right = sums::in_superblock(bytes) == sums::of_superblock(bytes)
        && geometry.iter().all(|(at, value)| small(bytes, *at) == *value)
        && word(bytes, 72) == 1 << 30
        && word(bytes, 80) == 1 << 28
        && (1..=3).contains(&state)
        && small(bytes, 428) <= 3
        && u16::from_le_bytes([bytes[168], bytes[169]]) <= 255;
    if !is_right {
        return Copy::Corrupt;
    }
    let born =
        |known, seconds, nanos| (small(bytes, known) != 0).then(|| moment(bytes, seconds, nanos));
    let name_len = usize::from(u16::from_le_bytes([bytes[168], bytes[169]]));
    Copy::Valid(Superblock {
        state,
        uuid: std::array::from_fn(|n| bytes[32 + n]),
        session: word(bytes, 16),
        identity: Identity {
            device: word(bytes, 88),
            inode: word(bytes, 96),
            born: born(116, 104, 112),
        },
        own: Identity { device: 0, inode: word(bytes, 440), born: born(460, 448, 456) },
        closed_len: word(bytes, 120),
        mtime: moment(bytes, 128, 136),
        closed_sum: (small(bytes, 500) != 0).then(|| small(bytes, 496)),
        is_marked: small(bytes, 28) & 1 == 1,
        is_unsettled: small(bytes, 28) & 2 == 2,
        cache: Cache {
            boot: std::array::from_fn(|n| bytes[152 + n]),
            volume: word(bytes, 464),
            uptime: word(bytes, 472),
            started: word(bytes, 480) as i64,
            devices_born: word(bytes, 488),
        },
        name: bytes[170..170 + name_len].to_vec(),
        durable: small(bytes, 428),
        durable_len: word(bytes, 432),
    })
}

pub(in crate::fuzzing) fn same_birth(a: Option<Moment>, b: Option<Moment>) -> bool {
    let is_time = |born: Moment| born.nanos != u32::MAX;
    match (a, b) {
        // A generation number and a time cannot be compared.
        (Some(a), Some(b)) if is_time(a) == is_time(b) => a == b,
        _ => true,
    }
}

pub(in crate::fuzzing) fn same_file(a: &Identity, b: &Identity) -> bool {
    a.inode == b.inode && same_birth(a.born, b.born)
}

/// Maximum change of the clock in nanoseconds that does not indicate a restart.
const CLOCK_SLACK: u64 = 2_000_000_000;

/// Returns `true` if the page cache `was` is still the current one.
pub(in crate::fuzzing) fn is_same_cache(was: &Cache, now: &Cache) -> bool {
    let is_known = was.boot != [0; 16] && was.volume != 0;
    let is_said = was.boot == now.boot && was.volume == now.volume;
    let clock_was_set = was.started.abs_diff(now.started) > CLOCK_SLACK;
    let started_anew = clock_was_set && was.devices_born != now.devices_born;
    is_known && is_said && was.uptime <= now.uptime && !started_anew
}
