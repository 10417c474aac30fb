//! The scenarios: the initial state of the files, and the calls.
//!
//! Owns: the initial states of the files, the calls, and the content of the file after each call if
//! nothing fails. The scenarios reach every entry point that makes system calls. They reach it in
//! every state in which it makes different ones. `mod.rs` checks that they use every system call.

mod ops;
mod snapshots;
mod space;
mod start;
mod streams;

use atomic_mmap::testing::call;
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Medium, Mismatch, OnMismatch, Options,
};
pub use ops::{Bench, Failure, Op, Opened, Opening, difference};
pub use space::SpaceOp;
pub use start::{Kind, Quirk, Sealed, Start, bytes, read_sealed};
use std::path::PathBuf;
use std::time::Duration;

const PAGE: u64 = 4096;
/// Length of the file: two regions and a part of a page, short enough for full comparisons.
pub const LEN: u64 = 400_100;
/// Length after a growth.
const LONGER: u64 = 650_000;
/// Length that allows a logged write of more than one extent of the log.
const LARGE: u64 = 1_500_000;
/// The shortest journal: 14 blocks for records after two headers, so a few syncs fill it.
pub const JOURNAL_LEN: u64 = 64 << 10;
/// Prefix of the names of scenarios with durable points.
pub const OF_POINTS: &str = "points: ";
/// Length of a write with a record of three blocks: the longest that uses the journal.
const THREE_BLOCKS: usize = 9_000;

/// The medium and the folder of a scenario.
#[derive(Clone, Debug)]
pub struct Ground {
    /// Name in messages.
    pub name: &'static str,
    /// A folder of the lab.
    pub base: PathBuf,
    /// The forced medium, or `None` to use the detected one.
    pub forced: Option<Medium>,
}

impl Ground {
    /// Returns options with the medium and a short journal.
    pub fn options(&self) -> Options {
        let options = AtomicMappedFile::options().journal_len(JOURNAL_LEN);
        match self.forced {
            Some(medium) => options.medium(medium),
            None => options,
        }
    }

    /// Returns the medium that an open file reports.
    pub fn medium(&self) -> Medium {
        self.forced.unwrap_or(if self.base.starts_with("/dev/shm") {
            Medium::Ram
        } else {
            Medium::PageCache
        })
    }
}

/// An initial state, and calls.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name in messages.
    pub name: String,
    /// The state of the files before the first call.
    pub kind: Kind,
    /// The change of the files behind the crate's back.
    pub quirk: Quirk,
    /// The reflection file lies in another folder.
    pub elsewhere: bool,
    /// System calls that this system does not have.
    pub lacking: &'static [&'static str],
    /// The calls.
    pub ops: Vec<Op>,
}

fn opening(expected: Opened) -> Opening {
    Opening {
        create: None,
        wish: OnMismatch::Refuse,
        policy: DeployPolicy::Manual,
        on_drop: CloseMode::Spatial,
        durability: Durability::OnSync,
        sync_every: None,
        forces_medium: false,
        mark_at: None,
        has_budget: false,
        expected,
    }
}

fn open() -> Op {
    Op::Open(opening(Opened::Whole))
}

fn create(len: u64) -> Op {
    Op::Open(Opening { create: Some(len), ..opening(Opened::New(len)) })
}

/// Returns all scenarios for a medium.
pub fn all(medium: Medium) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut add = |name: &str, kind: Kind, ops: Vec<Op>| {
        let (name, elsewhere) = (name.to_owned(), name.starts_with("elsewhere"));
        all.push(Scenario { name, kind, quirk: Quirk::None, elsewhere, lacking: &[], ops });
    };
    let fast = || Op::Close(CloseMode::Fast);
    let spatial = || Op::Close(CloseMode::Spatial);
    let small = || Op::Write(10_000, 100);
    // Parts of two pages; and whole pages, which move with their region's word.
    let over = || Op::Write(8_100, 400);
    let whole = || Op::Write(16 * PAGE, 9 * PAGE as usize);
    let everything = || Op::Read(0, LEN as usize);

    add("create", Kind::Nothing, vec![create(LEN), small(), spatial()]);
    let marked = |len| {
        let opening = opening(Opened::New(len));
        Op::Open(Opening { create: Some(len), mark_at: Some(1024), ..opening })
    };
    add("create, marked", Kind::Nothing, vec![marked(LEN), small(), spatial()]);
    add("create, empty", Kind::Nothing, vec![create(0), Op::SetLen(5000), fast()]);
    add(
        "give an empty file a length",
        Kind::Empty,
        vec![Op::Open(Opening { create: Some(LEN), ..opening(Opened::New(LEN)) }), small()],
    );
    add("open a plain file", Kind::Plain, vec![open(), everything(), Op::Drop]);
    add("open after a fast close", Kind::Closed, vec![open(), everything(), fast()]);
    add("open after a crash", Kind::Crashed, vec![open(), everything()]);
    add("open after a cut", Kind::Cut, vec![open(), Op::SetLen(LEN), Op::Read(0, LEN as usize)]);
    add("open after half a growth", Kind::HalfGrown, vec![open(), Op::SetLen(LONGER), small()]);

    add("first writes", Kind::Plain, vec![open(), small(), over(), whole(), everything()]);
    add(
        "first writes of a session",
        Kind::Closed,
        vec![open(), small(), over(), whole(), Op::Write(300_000, 3), everything()],
    );
    add(
        "first writes into a hole",
        Kind::Sparse,
        vec![
            open(),
            Op::Read(300_000, 5000),
            Op::Write(300_010, 20),
            Op::Write(50_010, 20),
            Op::Update(50_000, 200_000),
            everything(),
        ],
    );
    let pages = |step: u64| (0..90).map(|n| (n * PAGE + step, 24)).collect::<Vec<_>>();
    add(
        "a transaction that spills",
        Kind::Closed,
        vec![open(), Op::Tx(pages(70)), Op::Tx(vec![(5, 10), (300_000, 9000)]), everything()],
    );
    add(
        "views",
        Kind::Closed,
        vec![
            open(),
            Op::View(0..30_000, None),
            Op::View(0..9000, Some((100, 50))),
            Op::View(0..9000, Some((4000, 500))),
            Op::View(20_000..70_000, Some((19_000, 60_000))),
            everything(),
        ],
    );
    add(
        "views of holes",
        Kind::Sparse,
        vec![
            open(),
            Op::View(300_000..310_000, None),
            Op::View(48_000..60_000, Some((50_000, 100))),
        ],
    );
    add(
        "a large logged write",
        Kind::Large,
        vec![open(), Op::Write(0, 100), Op::View(0..1000, Some((0, 1_300_000))), Op::Read(0, 5000)],
    );
    add(
        "deploy",
        Kind::Closed,
        vec![
            open(),
            Op::Deploy(0..LEN),
            whole(),
            Op::Deploy(4096..200_000),
            Op::Deploy(0..LEN),
            small(),
        ],
    );
    let with = |policy| Op::Open(Opening { policy, ..opening(Opened::Whole) });
    add(
        "deployment after writes",
        Kind::Plain,
        vec![with(DeployPolicy::Eager), small(), over(), whole()],
    );
    let scattered = (0..20).map(|n| (40_960 + n * 192, 64)).collect();
    add(
        "deployment for readers",
        Kind::Closed,
        vec![
            with(DeployPolicy::Lazy),
            Op::Tx(scattered),
            Op::Read(40_960, 80_000),
            Op::Read(40_960, 80_000),
        ],
    );
    add(
        "lengths",
        Kind::Closed,
        vec![
            open(),
            Op::SetLen(130_001),
            Op::SetLen(LONGER),
            Op::Write(LONGER - 5000, 5000),
            Op::SetLen(0),
            Op::SetLen(LEN),
            small(),
        ],
    );
    add(
        "lengths after writes",
        Kind::Plain,
        vec![open(), whole(), over(), Op::SetLen(20 * PAGE + 7), Op::SetLen(LEN), everything()],
    );
    add(
        "documents",
        Kind::Plain,
        vec![open(), Op::Replace(700), Op::Replace(50_000), Op::Replace(0), Op::Replace(5000)],
    );
    add("sync", Kind::Plain, vec![open(), small(), Op::Sync, over(), Op::Sync, Op::Read(0, 9000)]);
    add("fast close", Kind::Plain, vec![open(), small(), whole(), fast(), open(), over(), fast()]);
    add("spatial close", Kind::Closed, vec![open(), small(), over(), whole(), spatial(), open()]);
    add(
        "drop",
        Kind::Closed,
        vec![
            Op::Open(Opening { on_drop: CloseMode::Fast, ..opening(Opened::Whole) }),
            over(),
            Op::Drop,
            open(),
            whole(),
            Op::Drop,
        ],
    );
    add("another handle", Kind::Plain, vec![open(), Op::TryClone, small(), Op::TryClone]);

    for (name, kind) in [("elsewhere: create", Kind::Nothing), ("elsewhere: plain", Kind::Plain)] {
        let first = if kind == Kind::Nothing { create(LEN) } else { open() };
        add(name, kind, vec![first, over(), fast(), open(), over(), spatial()]);
    }
    for (name, lacking) in [
        ("no fallocate", &[call::ALLOCATE][..]),
        ("no holes", &[call::PUNCH, call::NEXT_DATA, call::NEXT_HOLE][..]),
        ("no attributes", &[call::GET_XATTR, call::SET_XATTR, call::REMOVE_XATTR][..]),
    ] {
        all.push(Scenario {
            name: name.to_owned(),
            kind: Kind::Sparse,
            quirk: Quirk::None,
            elsewhere: false,
            lacking,
            ops: vec![
                open(),
                over(),
                Op::View(8_000..9_000, Some((8_100, 50))),
                Op::SetLen(LONGER),
                Op::Deploy(0..LONGER),
                Op::SetLen(LEN),
                fast(),
                open(),
                Op::Update(8_100, 300_000),
                spatial(),
            ],
        });
    }
    mismatches(medium, &mut all);
    snapshots::add(medium, &mut all);
    space::add(medium, &mut all);
    if medium == Medium::PageCache {
        durable_points(&mut all);
    }
    all
}

/// Adds the scenarios that make, keep and go back to durable points.
fn durable_points(all: &mut Vec<Scenario>) {
    let mut add = |name: &str, kind: Kind, quirk: Quirk, first: Op, then: Vec<Op>| {
        let mut ops = vec![first];
        ops.extend(then);
        let (name, elsewhere, lacking) = (format!("{OF_POINTS}{name}"), false, &[][..]);
        all.push(Scenario { name, kind, quirk, elsewhere, lacking, ops });
    };
    let small = || Op::Write(10_000, 100);
    let over = || Op::Write(8_100, 400);
    let three_blocks = |n: u64| Op::Write(n * 17_000, THREE_BLOCKS);
    let with = |durability| Op::Open(Opening { durability, ..opening(Opened::Whole) });
    let (every, undone) = (Durability::EveryWrite, Durability::AtomicSync);
    let none = Quirk::None;

    // The second and third write are in place.
    let by_journal =
        vec![small(), Op::Sync, over(), small(), Op::Tx(vec![(8_000, 99), (50, 9)]), Op::Sync];
    add("by journal", Kind::Plain, none, open(), by_journal);
    let by_flush = vec![Op::Write(500, 300_000), Op::Sync, small(), Op::Sync];
    add("by flush", Kind::Plain, none, open(), by_flush);
    // The fifth sync finds no room.
    let full = (0..5).flat_map(|n| [three_blocks(n), Op::Sync]).collect();
    add("a full journal", Kind::Plain, none, open(), full);
    let half = vec![
        three_blocks(0),
        Op::Sync,
        three_blocks(1),
        Op::Sync,
        three_blocks(2),
        Op::SyncAndCheckpoint,
        small(),
        Op::Sync,
    ];
    add("checkpoint in the background", Kind::Plain, none, open(), half);
    let interval = Some(Duration::from_millis(10));
    let waits = Op::Open(Opening { sync_every: interval, ..opening(Opened::Whole) });
    let written = vec![Op::WriteAndWait(10_000, 100), Op::WriteAndWait(8_100, 400)];
    add("by themselves", Kind::Plain, none, waits, written);
    let written = vec![
        small(),
        over(),
        Op::Tx(vec![(8_000, 99), (300_000, 900)]),
        Op::Update(8_000, 200_000),
        Op::SetLen(LONGER),
        Op::SetLen(130_001),
        Op::Deploy(0..130_000),
        small(),
        Op::Replace(9000),
        Op::Replace(40_000),
    ];
    add("every write", Kind::Plain, none, with(every), written);
    let written =
        vec![small(), Op::Sync, over(), small(), Op::Close(CloseMode::Fast), with(undone), over()];
    add("all or nothing", Kind::Plain, none, with(undone), written);
    let back = |durability| Op::Open(Opening { durability, ..opening(Opened::Point) });
    let go_on = || vec![small(), over(), Op::Sync, small()];
    add("all or nothing, died", Kind::AtomicSync, none, back(undone), go_on());
    add("died", Kind::Synced, none, open(), go_on());
    add("died in a sync", Kind::HalfSynced, none, open(), go_on());
    let by_sync = Durability::OnSync;
    add("restarted", Kind::Synced, Quirk::Restarted, back(by_sync), go_on());
    add("restarted in a sync", Kind::HalfSynced, Quirk::Restarted, back(by_sync), go_on());
    let lengths = vec![
        small(),
        Op::Sync,
        over(),
        Op::SetLen(130_001),
        Op::SetLen(LONGER),
        Op::Write(LONGER - 5000, 5000),
        Op::Sync,
        Op::SetLen(0),
        Op::SetLen(LEN),
        small(),
    ];
    add("lengths", Kind::Plain, none, open(), lengths);
    let deployed = vec![over(), Op::Sync, over(), Op::Deploy(0..LEN), small(), Op::Sync, small()];
    add("deploy", Kind::Plain, none, open(), deployed);
    let closed = vec![
        small(),
        Op::Sync,
        over(),
        Op::Close(CloseMode::Fast),
        open(),
        over(),
        Op::Sync,
        small(),
        Op::Close(CloseMode::Spatial),
    ];
    add("closes", Kind::Plain, none, open(), closed);
    let gone = Mismatch::JournalGone;
    for (wish, expected) in [
        (OnMismatch::Refuse, Opened::Refused(gone)),
        (OnMismatch::Trust, Opened::Refused(gone)),
        (OnMismatch::Discard, Opened::HomeBytes),
    ] {
        let how = Op::Open(Opening { wish, ..opening(expected) });
        let then = if wish == OnMismatch::Discard { vec![small(), Op::Sync] } else { Vec::new() };
        add(&format!("no journal, {wish:?}"), Kind::Synced, Quirk::NoJournal, how, then);
    }
}

/// Adds a scenario for every mismatch with every wish.
fn mismatches(medium: Medium, all: &mut Vec<Scenario>) {
    use Mismatch as M;
    let table: &[(Quirk, Kind, Mismatch, Option<Opened>)] = &[
        (Quirk::NoReflection, Kind::Closed, M::ReflectionGone, None),
        (Quirk::Replaced, Kind::Closed, M::HomeReplaced, None),
        (Quirk::Swapped, Kind::Closed, M::Swapped, None),
        (Quirk::Corrupt, Kind::Crashed, M::Corrupt, None),
        (Quirk::LogOverflow, Kind::Crashed, M::Corrupt, None),
        (Quirk::CutReflection, Kind::Closed, M::ReflectionTruncated, None),
        (Quirk::CutHome, Kind::Crashed, M::HomeTruncated, None),
        (Quirk::Changed, Kind::Closed, M::HomeChanged, Some(Opened::Whole)),
        (Quirk::Restarted, Kind::Crashed, M::Restarted, Some(Opened::Whole)),
        (Quirk::Foreign, Kind::Closed, M::Foreign, None),
        (Quirk::Newer, Kind::Closed, M::Newer { version: 77 }, None),
    ];
    let mut push = |quirk: Quirk, kind, how: Opening, then: Vec<Op>| {
        let name = match quirk {
            Quirk::Foreign => format!("{quirk:?} of {kind:?}, {:?}", how.wish),
            Quirk::Restarted if how.forces_medium => format!("{quirk:?}, forced, {:?}", how.wish),
            _ => format!("{quirk:?}, {:?}", how.wish),
        };
        let mut ops = vec![Op::Open(how)];
        ops.extend(then);
        let (elsewhere, lacking) = (false, &[][..]);
        all.push(Scenario { name, kind, quirk, elsewhere, lacking, ops });
    };
    for &(quirk, kind, why, trusted) in table {
        let is_kept = matches!(why, M::Foreign | M::Newer { .. });
        let is_none = why == M::Restarted && medium == Medium::Dax;
        let forces_medium = why == M::Restarted && medium == Medium::Ram;
        let goes_back = why == M::Restarted && medium == Medium::PageCache;
        for wish in [OnMismatch::Refuse, OnMismatch::Discard, OnMismatch::Trust] {
            let expected = match wish {
                _ if is_none => Opened::Whole,
                _ if goes_back => Opened::Point,
                OnMismatch::Discard if !is_kept => Opened::HomeBytes,
                OnMismatch::Trust => trusted.unwrap_or(Opened::Refused(why)),
                _ => Opened::Refused(why),
            };
            let then = match expected {
                Opened::Refused(_) => Vec::new(),
                _ => vec![Op::Write(100, 50)],
            };
            push(quirk, kind, Opening { wish, forces_medium, ..opening(expected) }, then);
        }
    }
    for wish in [OnMismatch::Refuse, OnMismatch::Trust, OnMismatch::Discard] {
        // Without a mark no file is missing. The file in the place belongs to another pair and
        // stays.
        let how = Opening { wish, ..opening(Opened::Whole) };
        push(Quirk::Foreign, Kind::Plain, how, vec![Op::Write(100, 50)]);
        if medium == Medium::Ram {
            // Files in memory that still exist did not survive a restart, so there was none.
            let how = Opening { wish, ..opening(Opened::Whole) };
            push(Quirk::Restarted, Kind::Crashed, how, vec![Op::Write(100, 50)]);
        }
        let how = Opening { create: Some(777), wish, ..opening(Opened::New(777)) };
        push(Quirk::NoHome, Kind::Closed, how, Vec::new());
    }
    for wish in [OnMismatch::Refuse, OnMismatch::Discard] {
        let how = Opening { create: Some(777), wish, ..opening(Opened::New(777)) };
        push(Quirk::Renamed, Kind::Closed, how, vec![Op::Write(100, 50)]);
    }
    push(Quirk::Emptied, Kind::Closed, opening(Opened::HomeBytes), vec![Op::Write(100, 50)]);
}
