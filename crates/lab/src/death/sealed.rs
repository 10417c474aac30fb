//! The kinds of operation on files with snapshots and with page sums.
//!
//! Owns: those kinds, and the stream that one of them takes.
//!
//! May import: `kinds`, `process`, `writer`.

use super::kinds::{Import, Kind, LEN, PAGE, Planted, REGION, Step, fill};
use super::process::ask;
use super::writer::PATIENCE;
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Integrity, Medium};
use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

/// The length of the file in the stream. It ends in the second region.
const IMPORTED: u64 = REGION + 5000;

fn page(number: u64) -> u64 {
    number * PAGE
}

fn kind(name: &'static str, durability: Durability, before: Vec<Step>, act: Step) -> Kind {
    Kind { name, before, act, durability, planted: None }
}

/// Returns a kind on a full file, without page sums.
fn plain(name: &'static str, extra: &[Step], act: Step) -> Kind {
    let before = [&[Step::Open, Step::Write(0, LEN)], extra].concat();
    kind(name, Durability::OnSync, before, act)
}

/// Returns a kind on a full file with page sums.
fn summed(name: &'static str, extra: &[Step], act: Step) -> Kind {
    let before = [&[Step::OpenAs(Integrity::OnRead), Step::Write(0, LEN)], extra].concat();
    kind(name, Durability::OnSync, before, act)
}

/// Returns a kind on a file with page sums in which no page was touched since its open.
fn untouched(name: &'static str, act: Step) -> Kind {
    summed(name, &[Step::Close(CloseMode::Fast), Step::Open], act)
}

/// Returns the kinds on files with snapshots.
pub fn with_snapshots() -> Vec<Kind> {
    use Step::*;
    let p = page;
    let first = [Seal("a")];
    let second = [Seal("a"), Write(p(3), 900), Seal("b"), Write(p(3) + 30, 2000)];
    let changed =
        [Seal("a"), Write(p(3), 200), Write(p(70), 9000), SetLen(REGION + p(20) + 33), Write(0, 9)];
    let sealed = [Seal("a"), Write(p(3), 200)];
    vec![
        plain("first seal", &[], Seal("a")),
        plain("second seal", &sealed, Seal("b")),
        plain("keep in a slice", &first, Write(p(3) + 70, 24)),
        plain("keep in a page", &first, Write(p(5) + 100, 700)),
        plain("keep of a page", &first, Write(p(6), PAGE)),
        plain("keep over regions", &first, Write(REGION - 100, 200)),
        plain(
            "keep under a view",
            &[Seal("a"), View(p(40), p(42)), Write(p(40) + 10, 300), Seal("b")],
            Write(p(40) + 100, 500),
        ),
        plain("keep past the end", &first, SetLen(REGION + p(5) + 33)),
        plain("keep of a document", &first, Replace(p(5) + 33)),
        plain("drop the oldest", &second, Drop("a")),
        plain("drop the newest", &second, Drop("b")),
        plain("drop the only one", &sealed, Drop("a")),
        plain("roll back", &changed, RollBack("a", None)),
        plain("roll back and seal", &changed, RollBack("a", Some("c"))),
        plain("roll back to the oldest", &second, RollBack("a", None)),
        plain("import over", &[], Import(import())),
        plain("import over snapshots", &sealed, Import(import())),
        plain("close fast with snapshots", &sealed, Close(CloseMode::Fast)),
        plain("close spatial with snapshots", &sealed, Close(CloseMode::Spatial)),
        plain(
            "open what was closed with snapshots",
            &[Seal("a"), Write(p(3), 200), Close(CloseMode::Fast)],
            Open,
        ),
    ]
}

/// Returns the kinds on files with page sums.
pub fn with_sums() -> Vec<Kind> {
    use Step::*;
    let p = page;
    let many = Tx { parts: (0..90).map(|n| (p(n) + 50, 20)).collect(), reads: false };
    let plain_file = [Close(CloseMode::Spatial)];
    let changed = [Seal("a"), Write(p(3), 200), Write(p(70), 9000)];
    vec![
        summed("sum in a slice", &[Write(p(3) + 100, 20)], Write(p(3) + 70, 24)),
        summed("sum of a page", &[Write(p(6) + 60, 10)], Write(p(6), PAGE)),
        summed("sums of two pages", &[Write(p(9), 65)], Write(p(8), 2 * PAGE)),
        summed("sums over regions", &[Write(REGION - 90, 40)], Write(REGION - 100, 200)),
        summed("sums of 90 pages", &[], many),
        summed(
            "sum under a view",
            &[View(p(40), p(42)), Write(p(40) + 10, 300)],
            Write(p(40) + 100, 500),
        ),
        summed("grow with sums", &[], SetLen(LEN + REGION + 77)),
        summed("cut a page with a sum", &[Write(LEN - 30, 30)], SetLen(REGION + p(5) + 33)),
        summed("a shorter document with sums", &[Write(p(4), 300)], Replace(p(5) + 33)),
        summed("deploy with sums", &[Write(p(4) + 50, 30)], Deploy(p(2), p(6))),
        summed("close fast with sums", &[Write(50, 20)], Close(CloseMode::Fast)),
        summed("close spatial with sums", &[Write(50, 20)], Close(CloseMode::Spatial)),
        summed("open with sums", &[Write(50, 20), Close(CloseMode::Fast)], Open),
        untouched("first touch by verify", Verify),
        untouched("first touch by a write", Write(p(3) + 70, 24)),
        untouched("first touch by a view", View(p(40), p(42))),
        plain("first sums", &plain_file, OpenAs(Integrity::OnScrub)),
        plain("first sums of a pair", &[Close(CloseMode::Fast)], OpenAs(Integrity::OnRead)),
        summed("last sums", &[Close(CloseMode::Fast)], OpenAs(Integrity::Off)),
        summed("first seal with sums", &[], Seal("a")),
        summed("keep with sums", &[Seal("a")], Write(REGION - 100, 200)),
        summed("roll back with sums", &changed, RollBack("a", Some("c"))),
        summed("import over with sums", &changed, Import(import())),
    ]
}

/// Returns more kinds, for files with durable points.
pub fn of_durable_points() -> Vec<Kind> {
    use Durability::{AtomicSync, EveryWrite, OnSync};
    use Step::*;
    let p = page;
    let with = |name, durability, extra: &[Step], act| {
        let begin = [OpenAs(Integrity::OnRead), Write(0, LEN), Sync];
        kind(name, durability, [&begin, extra].concat(), act)
    };
    let sealed = [Seal("a"), Write(p(3), 200), Write(p(70), 9000)];
    vec![
        with("sum in place", OnSync, &[Write(p(3), 900)], Write(p(3) + 30, 700)),
        with("sums by journal", OnSync, &[Write(p(3), 200), Write(p(70), 9000)], Sync),
        with("sums by flush", OnSync, &[Write(p(3), 300_000)], Sync),
        with("a sum that is synced", EveryWrite, &[Write(p(3), 200)], Write(p(3) + 30, 700)),
        with("a cut of a point with sums", OnSync, &[Write(p(3), 200)], SetLen(REGION + 33)),
        with("a seal of a point", OnSync, &[Write(p(3), 200)], Seal("a")),
        with("a point that keeps", OnSync, &sealed, Sync),
        with("a point that keeps by flush", OnSync, &[Seal("a"), Write(p(3), 300_000)], Sync),
        with("a roll back of a point", OnSync, &sealed, RollBack("a", None)),
        with("a drop beside a point", OnSync, &sealed, Drop("a")),
        with("keep of all or nothing", AtomicSync, &sealed, Write(p(3), 700)),
    ]
}

/// Returns a kind with a planted bug that only files with snapshots and sums can have.
pub fn planted(planted: Planted) -> Kind {
    let is_right = |kind: &Kind| kind.name == "keep with sums";
    let kind = with_sums().into_iter().find(is_right).expect("a kind");
    Kind { planted: Some(planted), ..kind }
}

/// Returns the stream. A child makes it, since this process opens no file.
fn import() -> &'static Import {
    static IMPORT: OnceLock<Import> = OnceLock::new();
    IMPORT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let (name, stream) = ("imported", folder.path().join("stream"));
        let mut bytes = vec![0; IMPORTED as usize];
        for (at, len) in [(page(3), 9000), (page(70) - 100, 200), (IMPORTED - 20, 20)] {
            let (at, len) = (at.min(IMPORTED - len), len);
            bytes[at as usize..(at + len) as usize].copy_from_slice(&fill(777, at, len));
        }
        let made = ask(PATIENCE, || match export(folder.path(), name, &bytes, &stream) {
            Ok(()) => String::new(),
            Err(e) => e.to_string(),
        });
        assert_eq!(made, Ok(String::new()), "no stream");
        let stream = std::fs::read(stream).expect("the stream");
        Import { name, bytes, stream }
    })
}

fn export(folder: &Path, name: &str, bytes: &[u8], to: &Path) -> atomic_mmap::Result<()> {
    let options = AtomicMappedFile::options().create(true).len(bytes.len() as u64);
    let options = options.medium(Medium::PageCache).allow_any_file_system(true);
    let file = options.open(folder.join("sender"))?;
    file.write_at(bytes, 0)?;
    file.snapshot(name)?;
    file.export(None, name, File::create(to).expect("a file"))?;
    file.close(CloseMode::Spatial).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_kind_has_a_name_and_its_states_differ_as_it_says() {
        let kinds = [with_snapshots(), with_sums(), of_durable_points()].concat();
        let others = [super::super::kinds::all(), super::super::kinds::of_durable_points()];
        let names: BTreeSet<_> =
            others.concat().iter().chain(&kinds).map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds.len() + others.concat().len());
        for kind in &kinds {
            let [before, after] = kind.states();
            let changes_nothing = matches!(
                kind.act,
                Step::Open | Step::Close(_) | Step::Sync | Step::Deploy(..) | Step::Verify
            ) || matches!(kind.act, Step::View(..))
                || kind.durability == Durability::AtomicSync;
            assert_eq!(before == after, changes_nothing, "{}", kind.name);
        }
    }
}
