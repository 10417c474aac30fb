//! The superblock: magic, version, geometry, identity of the home file, state.
//!
//! Two copies are kept and written alternately: a torn write leaves the other one. Of the copies
//! with a valid checksum, the one with the higher session number counts. The session number also
//! seeds the checksum of every log record. So a record of an earlier session can never be taken for
//! one of this session.
//!
//! May import: `layout`, `checksum`, `units`, zerocopy and the planted bugs.

use super::layout;
use crate::checksum;
use crate::mutant::planted;
use crate::units::{PAGE, PAGES_PER_REGION, SLICE, SUPERCHUNK};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first bytes of every reflection file.
pub const MAGIC: [u8; 8] = *b"AtomMmap";
/// Bytes of a superblock: one sector, the smallest unit that a disk writes as a whole.
pub const SUPERBLOCK_LEN: usize = 512;
/// The bound of session numbers. No pair is opened this often, so a number from here on is damage.
/// Far below the maximum of a `u64`, so that counting on from any accepted number cannot overflow.
pub const SESSIONS: u64 = 1 << 63;

const STATE_IN_USE: u32 = 1;
const STATE_CLEAN: u32 = 2;
const STATE_EMPTIED: u32 = 3;
const NAME_LEN: usize = 255;
const MARKED: u32 = 1;
const UNSETTLED: u32 = 2;
const SUMS: u32 = 4;
/// The session of a new reflection file.
pub const FIRST_SESSION: u64 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Clone)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    length: U32,
    session: U64,
    state: U32,
    flags: U32,
    uuid: [u8; 16],
    slice: U32,
    page: U32,
    pages_per_region: U32,
    lanes: U32,
    lane: U32,
    reserved1: U32,
    superchunk: U64,
    log_area: U64,
    device: U64,
    inode: U64,
    born_seconds: I64,
    born_nanos: U32,
    born_known: U32,
    closed_len: U64,
    closed_mtime_seconds: I64,
    closed_mtime_nanos: U32,
    closed_ctime_nanos: U32,
    closed_ctime_seconds: I64,
    boot_id: [u8; 16],
    name_len: U16,
    name: [u8; NAME_LEN],
    reserved2: [u8; 3],
    durable: U32,
    durable_len: U64,
    own_inode: U64,
    own_born_seconds: I64,
    own_born_nanos: U32,
    own_born_known: U32,
    volume: U64,
    uptime: U64,
    started: I64,
    devices_born: U64,
    closed_sum: U32,
    closed_sum_known: U32,
    reserved3: [u8; 4],
    checksum: U32,
}

const _: () = {
    assert!(size_of::<Raw>() == SUPERBLOCK_LEN);
    assert!(std::mem::offset_of!(Raw, version) == 8, "version stays here in every format");
    assert!(std::mem::offset_of!(Raw, session) == 16);
    assert!(std::mem::offset_of!(Raw, uuid) == 32);
    assert!(std::mem::offset_of!(Raw, device) == 88);
    assert!(std::mem::offset_of!(Raw, closed_len) == 120);
    assert!(std::mem::offset_of!(Raw, boot_id) == 152);
    assert!(std::mem::offset_of!(Raw, durable) == 428);
    assert!(std::mem::offset_of!(Raw, durable_len) == 432);
    assert!(std::mem::offset_of!(Raw, own_inode) == 440);
    assert!(std::mem::offset_of!(Raw, volume) == 464);
    assert!(std::mem::offset_of!(Raw, closed_sum) == 496);
    assert!(std::mem::offset_of!(Raw, checksum) == SUPERBLOCK_LEN - 4);
};

/// A time of the file system: seconds and nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// The nanoseconds.
    pub nanos: u32,
}

/// The identity of a file, which does not change while the file exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Device number: valid only until the machine restarts.
    pub device: u64,
    /// Inode number: reused after the file is removed.
    pub inode: u64,
    /// Birth time, if the file system has one: tells a reused inode number apart.
    pub born: Option<Moment>,
}

/// The identity of a page cache, apart from the boot's identity. Each 0 is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cache {
    /// The mounted file systems of the pair's files.
    pub volume: u64,
    /// Nanoseconds since the machine was started.
    pub uptime: u64,
    /// The start of the machine by its clock, in nanoseconds since 1970.
    pub started: i64,
    /// When the folder of devices was made, in nanoseconds since 1970.
    pub devices_born: u64,
}

/// The home file's state at its close. Any change since then was made by another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClosedAs {
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change of its bytes.
    pub mtime: Moment,
    /// Time of the last change of its inode.
    pub ctime: Moment,
    /// A checksum over a part of its bytes: `engine::superblock::sample` says which.
    pub sum: Option<u32>,
}

/// The state of the pair when this superblock was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Open, or the process died while the pair was open.
    InUse,
    /// Closed by `CloseMode::Fast`.
    Clean(ClosedAs),
    /// The reflection file was about to be removed and means nothing any more: by a discard, or by
    /// `CloseMode::Spatial` on a file without a mark. The home file is complete.
    Emptied,
}

/// How recovery reads the durable words and the journal of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DurablePoints {
    /// There are none: only working words count.
    None,
    /// The pair was being created: nothing was stored yet.
    NotYet,
    /// Used only after a restart of the machine.
    AfterRestart(DurableBase),
    /// Used after every end without a close: what was not synced is taken back.
    AfterDeath(DurableBase),
}

/// The durable point with which a session began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DurableBase {
    /// Logical length of the home file.
    pub len: u64,
}

const DURABLE_NONE: u32 = 0;
const DURABLE_NOT_YET: u32 = 3;
const DURABLE_AFTER_RESTART: u32 = 1;
const DURABLE_AFTER_DEATH: u32 = 2;

impl DurablePoints {
    /// Returns the durable points with another length of the file.
    pub fn with_len(self, len: u64) -> Self {
        match self {
            DurablePoints::AfterRestart(_) => DurablePoints::AfterRestart(DurableBase { len }),
            DurablePoints::AfterDeath(_) => DurablePoints::AfterDeath(DurableBase { len }),
            other => other,
        }
    }

    /// Returns the durable point with which the session began.
    pub fn base(self) -> Option<DurableBase> {
        match self {
            DurablePoints::None | DurablePoints::NotYet => None,
            DurablePoints::AfterRestart(base) | DurablePoints::AfterDeath(base) => Some(base),
        }
    }
}

/// A superblock with a valid checksum, version and geometry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The number of times that the pair was opened or closed; the higher copy counts.
    pub session: u64,
    /// Open or closed.
    pub state: State,
    /// Identifies the pair; the home file's extended attribute has these bytes, too.
    pub uuid: [u8; 16],
    /// The home file.
    pub identity: Identity,
    /// The file that holds the superblock: a copy of that file has another identity. Inode 0 is
    /// unknown.
    pub own: Identity,
    /// The boot of the machine in which `state` was written.
    pub boot_id: [u8; 16],
    /// The rest of the identity of the page cache that holds the pair's stores.
    pub cache: Cache,
    /// File name of the home file, for messages and for finding an orphan. Truncated to 255 bytes.
    pub name: Vec<u8>,
    /// Which durable points count after which end.
    pub durable: DurablePoints,
    /// `true` if the mark was durable on the home file before this superblock was written. If it
    /// was written unsettled: before it was settled.
    pub is_marked: bool,
    /// `true` if this was written before everything that it says was durable, and may have become
    /// durable before that. In use: the mark may be missing. Closed: the reflection file may not be
    /// whole, and after a restart the journal completes it. The settled word tells whether
    /// everything was durable in the end.
    pub is_unsettled: bool,
    /// `true` if the page sums of this session count: every page has its own.
    pub has_sums: bool,
}

/// Returns a number that tells a session from all others of the pair, also from those with its
/// number: a pair that was restored gives numbers again. The time of its beginning is in it.
pub fn stamp(session: u64, cache: &Cache) -> u64 {
    let Cache { volume, uptime, started, devices_born } = cache;
    let words = [session, *volume, *uptime, *started as u64, *devices_born];
    let sum = checksum::crc32c(b"stamp");
    let sum = words.iter().fold(sum, |sum, word| checksum::crc32c_append(sum, &word.to_le_bytes()));
    session << 32 | u64::from(sum)
}

/// The result of decoding one copy.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "two are made at an opening, and none is kept")]
pub enum Copy {
    /// Valid in every respect.
    Valid(Superblock),
    /// Written by a newer version of this crate.
    Newer(u32),
    /// Ours by its magic, but the checksum or a field is wrong.
    Corrupt,
    /// Not a superblock of this crate.
    Foreign,
}

impl Superblock {
    /// Returns the 512 bytes of this superblock.
    pub fn encode(&self) -> [u8; SUPERBLOCK_LEN] {
        let (state, closed) = match self.state {
            State::InUse => (STATE_IN_USE, ClosedAs::default()),
            State::Clean(closed) => (STATE_CLEAN, closed),
            State::Emptied => (STATE_EMPTIED, ClosedAs::default()),
        };
        let born = self.identity.born.unwrap_or_default();
        let own_born = self.own.born.unwrap_or_default();
        let durable = match self.durable {
            DurablePoints::None => DURABLE_NONE,
            DurablePoints::NotYet => DURABLE_NOT_YET,
            DurablePoints::AfterRestart(_) => DURABLE_AFTER_RESTART,
            DurablePoints::AfterDeath(_) => DURABLE_AFTER_DEATH,
        };
        let name_len = self.name.len().min(NAME_LEN);
        let mut name = [0; NAME_LEN];
        name[..name_len].copy_from_slice(&self.name[..name_len]);
        let mut raw = Raw {
            magic: MAGIC,
            version: layout::FORMAT_VERSION.into(),
            length: (SUPERBLOCK_LEN as u32).into(),
            session: self.session.into(),
            state: state.into(),
            flags: (if self.is_marked { MARKED } else { 0 }
                | if self.is_unsettled { UNSETTLED } else { 0 }
                | if self.has_sums { SUMS } else { 0 })
            .into(),
            uuid: self.uuid,
            slice: (SLICE as u32).into(),
            page: (PAGE as u32).into(),
            pages_per_region: (PAGES_PER_REGION as u32).into(),
            lanes: (layout::LANE_COUNT as u32).into(),
            lane: (layout::LANE as u32).into(),
            reserved1: 0.into(),
            superchunk: (SUPERCHUNK as u64).into(),
            log_area: layout::LOG_AREA_LEN.into(),
            device: self.identity.device.into(),
            inode: self.identity.inode.into(),
            born_seconds: born.seconds.into(),
            born_nanos: born.nanos.into(),
            born_known: u32::from(self.identity.born.is_some()).into(),
            closed_len: closed.len.into(),
            closed_mtime_seconds: closed.mtime.seconds.into(),
            closed_mtime_nanos: closed.mtime.nanos.into(),
            closed_ctime_nanos: closed.ctime.nanos.into(),
            closed_ctime_seconds: closed.ctime.seconds.into(),
            boot_id: self.boot_id,
            name_len: (name_len as u16).into(),
            name,
            reserved2: [0; 3],
            durable: durable.into(),
            durable_len: self.durable.base().map_or(0, |base| base.len).into(),
            own_inode: self.own.inode.into(),
            own_born_seconds: own_born.seconds.into(),
            own_born_nanos: own_born.nanos.into(),
            own_born_known: u32::from(self.own.born.is_some()).into(),
            volume: self.cache.volume.into(),
            uptime: self.cache.uptime.into(),
            started: self.cache.started.into(),
            devices_born: self.cache.devices_born.into(),
            closed_sum: closed.sum.unwrap_or(0).into(),
            closed_sum_known: u32::from(closed.sum.is_some()).into(),
            reserved3: [0; 4],
            checksum: 0.into(),
        };
        raw.checksum = checksum::crc32c(&raw.as_bytes()[..SUPERBLOCK_LEN - 4]).into();
        let mut bytes = [0; SUPERBLOCK_LEN];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// Decodes one copy. Never panics, whatever the bytes.
    pub fn decode(bytes: &[u8; SUPERBLOCK_LEN]) -> Copy {
        let Ok(raw) = Raw::read_from_bytes(&bytes[..]) else {
            return Copy::Foreign;
        };
        if raw.magic != MAGIC {
            return Copy::Foreign;
        }
        // The version comes before the checksum: a newer format may keep its checksum in another
        // place.
        if raw.version.get() > layout::FORMAT_VERSION {
            return Copy::Newer(raw.version.get());
        }
        let sum = checksum::crc32c(&bytes[..SUPERBLOCK_LEN - 4]);
        let geometry_is_ours = raw.version.get() == layout::FORMAT_VERSION
            && raw.length.get() == SUPERBLOCK_LEN as u32
            && raw.slice.get() == SLICE as u32
            && raw.page.get() == PAGE as u32
            && raw.pages_per_region.get() == PAGES_PER_REGION as u32
            && raw.lanes.get() == layout::LANE_COUNT as u32
            && raw.lane.get() == layout::LANE as u32
            && raw.superchunk.get() == SUPERCHUNK as u64
            && raw.log_area.get() == layout::LOG_AREA_LEN;
        let is_whole = raw.checksum.get() == sum || planted!(SuperblockSumNotChecked);
        if !is_whole || !geometry_is_ours {
            return Copy::Corrupt;
        }
        let state = match raw.state.get() {
            STATE_IN_USE => State::InUse,
            STATE_EMPTIED => State::Emptied,
            STATE_CLEAN => State::Clean(ClosedAs {
                len: raw.closed_len.get(),
                mtime: moment(raw.closed_mtime_seconds, raw.closed_mtime_nanos),
                ctime: moment(raw.closed_ctime_seconds, raw.closed_ctime_nanos),
                sum: (raw.closed_sum_known.get() != 0).then(|| raw.closed_sum.get()),
            }),
            _ => return Copy::Corrupt,
        };
        let base = DurableBase { len: raw.durable_len.get() };
        let durable = match raw.durable.get() {
            DURABLE_NONE => DurablePoints::None,
            DURABLE_NOT_YET => DurablePoints::NotYet,
            DURABLE_AFTER_RESTART => DurablePoints::AfterRestart(base),
            DURABLE_AFTER_DEATH => DurablePoints::AfterDeath(base),
            _ => return Copy::Corrupt,
        };
        let name_len = usize::from(raw.name_len.get());
        let Some(name) = raw.name.get(..name_len) else {
            return Copy::Corrupt;
        };
        Copy::Valid(Superblock {
            session: raw.session.get(),
            state,
            uuid: raw.uuid,
            identity: Identity {
                device: raw.device.get(),
                inode: raw.inode.get(),
                born: (raw.born_known.get() != 0).then(|| moment(raw.born_seconds, raw.born_nanos)),
            },
            own: Identity {
                device: 0,
                inode: raw.own_inode.get(),
                born: (raw.own_born_known.get() != 0)
                    .then(|| moment(raw.own_born_seconds, raw.own_born_nanos)),
            },
            boot_id: raw.boot_id,
            cache: Cache {
                volume: raw.volume.get(),
                uptime: raw.uptime.get(),
                started: raw.started.get(),
                devices_born: raw.devices_born.get(),
            },
            name: name.to_vec(),
            durable,
            is_marked: raw.flags.get() & MARKED != 0,
            is_unsettled: raw.flags.get() & UNSETTLED != 0,
            has_sums: raw.flags.get() & SUMS != 0,
        })
    }

    /// Returns the number after that of this session. It is the next one, whatever was accepted:
    /// see [`SESSIONS`].
    pub fn next_number(&self) -> u64 {
        self.session.saturating_add(1)
    }

    /// Returns the number of the session that begins after this one. `used` is the highest number
    /// that the journal knows. After a restore of this superblock from a backup, the numbers up to
    /// `used` have been used before. Their records must not be taken for the new session's. The
    /// result's parity differs from this session's, so that the new superblock overwrites the older
    /// copy.
    pub fn next_session(&self, used: u64) -> u64 {
        let next = self.next_number();
        match used {
            used if used < next || used >= SESSIONS || planted!(SessionsUsedAgain) => next,
            used if (used ^ next) & 1 == 1 => used.saturating_add(1),
            used => used.saturating_add(2),
        }
    }

    /// Returns the stamp of the session that is in use or has ended.
    pub fn stamp(&self) -> u64 {
        let session = match self.state {
            State::InUse => self.session,
            State::Clean(_) | State::Emptied => self.session.saturating_sub(1),
        };
        stamp(session, &self.cache)
    }

    /// Returns the session of the records that complete the pair, if they are needed. A close that
    /// was not settled needs those of the session that it ended.
    pub fn records_of(&self) -> u64 {
        match self.state {
            State::Clean(_) if self.is_unsettled => self.session.saturating_sub(1),
            _ => self.session,
        }
    }

    /// Returns `true` if the journal was made with the pair, and may have no header before the
    /// first durable point.
    pub fn may_lack_header(&self) -> bool {
        self.records_of() <= FIRST_SESSION
    }

    /// Returns `true` if the pair was being made, as far as this superblock tells. Nothing was
    /// stored yet then, unless the home file has its mark.
    pub fn is_being_made(&self) -> bool {
        self.durable == DurablePoints::NotYet || self.state == State::InUse && self.is_unsettled
    }

    /// Returns the index of the copy to which the superblock of this session is written.
    pub fn copy_index(&self) -> usize {
        (self.session & 1) as usize
    }
}

fn moment(seconds: I64, nanos: U32) -> Moment {
    Moment { seconds: seconds.get(), nanos: nanos.get() }
}

/// The result of judging two copies together.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "one is made at an opening, and none is kept")]
pub enum Judged {
    /// The valid copy with the higher session number.
    Valid(Superblock),
    /// At least one copy is of a newer version: nothing may be touched.
    Newer(u32),
    /// Ours, and neither copy is valid.
    Corrupt,
    /// Not a reflection file of this crate.
    Foreign,
}

/// Judges both copies together.
pub fn judge(a: Copy, b: Copy) -> Judged {
    match (a, b) {
        (Copy::Newer(v), _) | (_, Copy::Newer(v)) => Judged::Newer(v),
        (Copy::Valid(a), Copy::Valid(b)) => {
            Judged::Valid(if (a.session >= b.session) ^ planted!(OlderSuperblockCounts) {
                a
            } else {
                b
            })
        }
        (Copy::Valid(one), _) | (_, Copy::Valid(one)) => Judged::Valid(one),
        (Copy::Corrupt, _) | (_, Copy::Corrupt) => Judged::Corrupt,
        (Copy::Foreign, Copy::Foreign) => Judged::Foreign,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Superblock {
        Superblock {
            session: 7,
            state: State::Clean(ClosedAs {
                len: 1 << 30,
                mtime: Moment { seconds: 11, nanos: 12 },
                ctime: Moment { seconds: 13, nanos: 14 },
                sum: Some(19),
            }),
            uuid: *b"0123456789abcdef",
            identity: Identity { device: 2, inode: 3, born: Some(Moment { seconds: 4, nanos: 5 }) },
            own: Identity { device: 0, inode: 6, born: Some(Moment { seconds: 7, nanos: 8 }) },
            boot_id: [9; 16],
            cache: Cache { volume: 15, uptime: 16, started: 17, devices_born: 18 },
            name: b"state.dat".to_vec(),
            durable: DurablePoints::None,
            is_marked: false,
            is_unsettled: false,
            has_sums: false,
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for state in [sample().state, State::InUse, State::Emptied] {
            for born in [sample().identity.born, None] {
                for flags in 0..8 {
                    let mut block = sample();
                    block.state = state;
                    block.identity.born = born;
                    (block.is_marked, block.is_unsettled) = (flags & 1 == 1, flags & 2 == 2);
                    block.has_sums = flags & 4 == 4;
                    assert_eq!(Superblock::decode(&block.encode()), Copy::Valid(block));
                }
            }
        }
    }

    #[test]
    fn a_session_gets_a_number_that_was_not_used_and_the_older_copy() {
        let block = sample();
        for used in [0, 6, 7, 8, 9, 10, 11, 1000, u64::MAX] {
            let next = block.next_session(used);
            let is_damage = used == u64::MAX;
            assert!(next > block.session && (next > used || is_damage), "{used}: {next}");
            assert_ne!(next % 2, block.session % 2, "{used}: {next}");
        }
        assert_eq!(block.next_session(7), 8);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample().encode();
        for bit in 0..SUPERBLOCK_LEN * 8 {
            let mut torn = bytes;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Superblock::decode(&torn), Copy::Valid(_)), "bit {bit}");
        }
    }

    #[test]
    fn the_newer_whole_copy_counts() {
        let old = sample();
        let new = Superblock { session: 8, ..sample() };
        let valid = |b: &Superblock| Copy::Valid(b.clone());
        assert_eq!(judge(valid(&old), valid(&new)), Judged::Valid(new.clone()));
        assert_eq!(judge(valid(&new), valid(&old)), Judged::Valid(new.clone()));
        assert_eq!(judge(Copy::Corrupt, valid(&old)), Judged::Valid(old.clone()));
        assert_eq!(judge(valid(&old), Copy::Foreign), Judged::Valid(old.clone()));
        assert_eq!(judge(valid(&old), Copy::Newer(2)), Judged::Newer(2));
        assert_eq!(judge(Copy::Corrupt, Copy::Foreign), Judged::Corrupt);
        assert_eq!(judge(Copy::Foreign, Copy::Foreign), Judged::Foreign);
    }

    #[test]
    fn a_newer_version_is_told_from_a_broken_one() {
        let mut bytes = sample().encode();
        bytes[8] = 2;
        assert_eq!(Superblock::decode(&bytes), Copy::Newer(2));
        assert_eq!(Superblock::decode(&[0; SUPERBLOCK_LEN]), Copy::Foreign);
    }
}
