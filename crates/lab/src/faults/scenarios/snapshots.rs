//! The scenarios with snapshots.
//!
//! Owns: sealing, dropping and going back, the calls beside snapshots that keep bytes for them, and
//! streams between files.

use super::streams::Stream;
use super::{LEN, LONGER, Op, PAGE, Quirk, Scenario, THREE_BLOCKS, open};
use crate::faults::scenarios::Kind;
use atomic_mmap::{CloseMode, Medium};

/// Prefix of the names of these scenarios.
pub const PREFIX: &str = "snapshots: ";

/// Length of a whole file that is sent.
const SHORT: u64 = 50_001;

/// Adds the scenarios.
pub(super) fn add(medium: Medium, all: &mut Vec<Scenario>) {
    let mut add = |name: &str, kind: Kind, then: Vec<Op>| {
        let ops = [vec![open()], then].concat();
        let (name, quirk) = (format!("{PREFIX}{name}"), Quirk::None);
        all.push(Scenario { name, kind, quirk, elsewhere: false, lacking: &[], ops });
    };
    let small = || Op::Write(10_000, 100);
    let over = || Op::Write(8_100, 400);
    let whole = || Op::Write(16 * PAGE, 9 * PAGE as usize);
    let close = Op::Close;

    let made = vec![small(), Op::Seal("a"), over(), Op::Seal("b"), Op::DropSnapshot("a"), small()];
    add("the first", Kind::Plain, made);
    let parts = vec![(8_000, 99), (300_000, 900)];
    let kept = vec![
        small(),
        whole(),
        Op::View(0..9000, Some((4000, 500))),
        Op::Tx(parts),
        Op::Deploy(0..200_000),
        over(),
        Op::DropSnapshot("b"),
        Op::Write(0, 200_000),
    ];
    add("beside writes", Kind::Sealed, kept);
    let lengths = vec![
        Op::SetLen(130_001),
        Op::Seal("c"),
        Op::SetLen(LONGER),
        Op::Write(LONGER - 5000, 5000),
        Op::Replace(9000),
    ];
    add("beside lengths", Kind::Sealed, lengths);
    let back = vec![small(), Op::RollBack("a", Some("c")), over(), Op::RollBack("c", None)];
    add("going back", Kind::Sealed, back);
    let longer = vec![Op::SetLen(20_001), Op::Seal("c"), over(), Op::RollBack("b", None)];
    add("going back to more", Kind::Sealed, longer);
    let shorter =
        vec![Op::SetLen(20_001), Op::Seal("c"), Op::SetLen(LEN), over(), Op::RollBack("c", None)];
    add("going back to less", Kind::Sealed, shorter);
    let closed = vec![
        over(),
        close(CloseMode::Fast),
        open(),
        whole(),
        close(CloseMode::Spatial),
        open(),
        Op::DropSnapshot("a"),
        Op::DropSnapshot("b"),
        close(CloseMode::Fast),
        open(),
    ];
    add("closes", Kind::Sealed, closed);
    let changes = |name, len| Stream { name, len, is_whole: false, step: 45_000 };
    let whole = |name, len| Stream { is_whole: true, ..changes(name, len) };
    let taken = vec![Op::Import(changes("c", LEN)), small(), Op::Import(whole("d", SHORT))];
    add("import", Kind::Sealed, taken);
    let lengths = vec![Op::Import(changes("c", LONGER)), Op::Import(changes("d", 130_001))];
    add("import of other lengths", Kind::Sealed, lengths);
    add("import to an empty file", Kind::Empty, vec![Op::Import(whole("c", SHORT))]);
    // A frame has 64 pages.
    let broken = Stream { step: 4_500, ..changes("c", LEN) };
    let resumed = vec![Op::BreakImport(broken.clone(), 1), Op::Resume(broken, 1), small()];
    add("import that goes on", Kind::Sealed, resumed);
    let sent = vec![Op::Export(None, "a"), over(), Op::Export(Some("a"), "b")];
    add("export", Kind::Sealed, sent);
    add("import of a new file", Kind::Plain, vec![Op::ImportNew(whole("c", SHORT)), small()]);
    add("died", Kind::SealedInUse, vec![small(), Op::DropSnapshot("a"), over()]);
    if medium == Medium::PageCache {
        let points = vec![
            Op::Write(17_000, THREE_BLOCKS),
            Op::Sync,
            Op::Write(500, 300_000),
            Op::Sync,
            Op::SetLen(130_001),
            small(),
            Op::Sync,
        ];
        add("beside points", Kind::Sealed, points);
    }
}
