//! Files that an open takes: plain, closed, after SIGKILL, in use.

use crate::common::{Holder, LEN, Run, assert_known, command, make, options, run, scratch, write};
use crate::refusals::answer;
use atomic_mmap::{AtomicMappedFile, CloseMode, Integrity};
use serde_json::json;
use snapbox::{assert_data_eq, str};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Every command that only looks.
const LOOKS: [&[&str]; 6] = [
    &["inspect"],
    &["verify"],
    &["stats"],
    &["heatmap"],
    &["watch", "--count", "1", "--interval", "0.01"],
    &["repair"],
];

#[test]
fn a_plain_file() {
    let scratch = scratch();
    let path = scratch.file("plain");
    std::fs::write(&path, [7; 5000]).expect("write");
    let before = scratch.contents();
    assert_data_eq!(
        run(&["inspect"], &path).code(0).out(),
        str![[r#"
file              [..]/plain
in use            no
mark              none
found             no reflection file
decision          a plain file, complete by itself
length            4.9 KiB
length on disk    4.9 KiB
reflection file   none
journal           none
snapshot file     none
snapshots         none
uuid              none
lanes to recover  0

"#]]
    );
    for look in LOOKS {
        run(look, &path).code(0);
        let json = run(&[look, &["--json"]].concat(), &path).code(0).json();
        assert_eq!(json["command"], look[0]);
    }
    let settled = run(&["settle", "--json"], &path).code(0).json();
    assert_eq!((&settled["was"], &settled["plain"]), (&"fresh".into(), &true.into()));
    assert_eq!(scratch.contents(), before);
}

#[test]
fn a_file_that_was_closed_fast() {
    let scratch = scratch();
    let path = scratch.file("closed");
    make(&path, CloseMode::Fast);
    let before = scratch.contents();
    assert_data_eq!(
        run(&["verify"], &path).code(0).out(),
        str![[r#"
file             [..]/closed
mark             names this file
found            its reflection file; the file is as it was; closed
decision         closed; an open goes on with both files
recovery is due  no
page sums        none
bytes read       256 KiB
ok               yes

"#]]
    );
    for look in LOOKS {
        run(look, &path).code(0);
        run(&[look, &["--json"]].concat(), &path).code(0).json();
    }
    let stats = run(&["stats", "--json"], &path).code(0).json();
    assert_eq!(stats["length_bytes"], LEN);
    assert!(stats["reflected_bytes"].as_u64().is_some_and(|bytes| bytes >= 10_000), "{stats}");
    let reflection = scratch.reflection().metadata().expect("the reflection file").blocks() * 512;
    assert_eq!(stats["companions_allocated_bytes"], reflection, "the only companion in memory");
    let line =
        run(&["watch", "--count", "1", "--interval", "0.01", "--json"], &path).code(0).json();
    assert_eq!(line["companions_allocated_bytes"], reflection);
    let prometheus = run(&["stats", "--prometheus"], &path).code(0).out();
    let name = path.canonicalize().expect("a path");
    let line = format!("atomic_mmap_file_length_bytes{{file=\"{}\"}} {LEN}\n", name.display());
    assert!(prometheus.contains(&line), "{prometheus}");
    let copy = scratch.file("copy");
    let copied = command().arg("cp").args([&path, &copy]).output().expect("run");
    assert_eq!(copied.status.code(), Some(0));
    assert_known(&copy);
    std::fs::remove_file(&copy).expect("remove");
    assert_eq!(scratch.contents(), before, "nothing of these commands writes");

    run(&["settle"], &path).code(0);
    assert_eq!(scratch.names(), ["closed"]);
    assert_known(&path);
}

#[test]
fn a_file_after_sigkill() {
    for medium in ["ram", "page-cache"] {
        let scratch = scratch();
        let path = scratch.file("killed");
        std::fs::write(&path, [0; LEN as usize]).expect("write");
        Holder::start(&path).kill();
        let before = scratch.contents();
        let look = run(&["inspect", "--json"], &path).code(0).json();
        assert_eq!(look["decision"], "recover", "{look}");
        assert_eq!(look["found"], "of-this-file");
        assert_eq!(
            (&look["found_home"], &look["found_state"]),
            (&"as-it-was".into(), &"died".into())
        );
        let told = run(&["inspect"], &path).code(0).out();
        assert!(told.contains("the process that had it open has died\n"), "{told}");
        assert!(!told.contains("OfThisFile") && !told.contains('{'), "{told}");
        // It said "closed", and `inspect` said "crashed".
        let watch = ["watch", "--count", "1", "--interval", "0.01"];
        let told = run(&watch, &path).code(0).out();
        assert!(told.starts_with("crashed: "), "{told}");
        let line = run(&[&watch[..], &["--json"]].concat(), &path).code(0).json();
        assert_eq!((&line["decision"], &line["in_use"]), (&look["decision"], &false.into()));
        assert_eq!(look["in_use"], false);
        let verified = run(&["verify", "--json"], &path).code(0).json();
        assert_eq!((&verified["ok"], &verified["recovery_is_due"]), (&true.into(), &true.into()));
        let copy = scratch.file("copy");
        let copied = command().args(["cp", "--json"]).args([&path, &copy]).output().expect("run");
        assert_eq!(copied.status.code(), Some(0));
        assert_known(&copy);
        std::fs::remove_file(&copy).expect("remove");
        assert_eq!(scratch.contents(), before);

        let settled = run(&["-v", "settle", "--medium", medium], &path).code(0);
        for event in ["opened", "Recover", "closed"] {
            assert!(settled.err().contains(event), "{event}: {}", settled.err());
        }
        assert_eq!(scratch.names(), ["killed"]);
        assert_known(&path);
    }
}

#[test]
fn a_file_in_use_by_another_process() {
    let scratch = scratch();
    let path = scratch.file("used");
    let mut holder = Holder::start(&path);
    let look = run(&["inspect", "--json"], &path).code(0).json();
    assert_eq!((&look["in_use"], &look["decision"]), (&true.into(), &().into()));
    assert_eq!((&look["length"], &look["process"]), (&LEN.into(), &holder.id().into()));
    for refused in ["verify", "settle", "repair"] {
        let failed = run(&[refused, "--json"], &path).code(5);
        assert_eq!(failed.error()["code"], "busy", "{refused}");
        let said = run(&[refused], &path).code(5).err();
        assert!(said.starts_with("error: ") && said.contains("open"), "{said}");
        assert!(said.contains(&format!("another process, number {}", holder.id())), "{said}");
    }
    let copy = scratch.file("copy");
    let copied = command().arg("cp").args([&path, &copy]).output().expect("run");
    assert_eq!((copied.status.code(), copy.exists()), (Some(5), false));
    assert_eq!(heat_of(&path, 40), 0);
    holder.write_at(40 * 4096);
    assert_eq!(heat_of(&path, 40), 64, "a page is 64 slices");
    run(&["watch", "--count", "2", "--interval", "0.01"], &path).code(0);
    drop(holder);
    run(&["verify"], &path).code(0);
}

/// Returns the number in the cell of a page: the file has fewer pages than a picture has cells.
fn heat_of(path: &Path, page: usize) -> u64 {
    let heat = run(&["heatmap", "--json"], path).code(0).json();
    assert_eq!(heat["cell_bytes"], 4096);
    heat["cells"][page].as_u64().expect("a number")
}

/// Counts what changes while it watches, and not what was there before. A look may miss two writes
/// that cancel out, so the test watches until one has seen a change.
#[test]
fn a_heat_map_over_time() {
    let scratch = scratch();
    let path = scratch.file("used");
    let mut holder = Holder::start(&path);
    loop {
        let mut command = command();
        let command = command.args(["heatmap", "--seconds", "1", "--json"]).arg(&path);
        let mut watcher = command.stdout(std::process::Stdio::piped()).spawn().expect("start");
        while watcher.try_wait().expect("wait").is_none() {
            holder.write_at(50 * 4096);
        }
        let output = watcher.wait_with_output().expect("its output");
        let heat: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let cells = heat["cells"].as_array().expect("cells");
        assert!(cells[0..40].iter().all(|count| *count == 0), "{heat}");
        if cells[50].as_u64().is_some_and(|count| count > 0) {
            return;
        }
    }
}

#[test]
fn pictures() {
    let scratch = scratch();
    let path = scratch.file("closed");
    make(&path, CloseMode::Fast);
    for (name, begins) in [("a.png", &b"\x89PNG"[..]), ("a.svg", b"<svg "), ("a.txt", b"    0 byt")]
    {
        let picture = scratch.file(name);
        let picture = picture.to_str().expect("a path");
        run(&["heatmap", "--output", picture], &path).code(0);
        assert!(std::fs::read(picture).expect("a picture").starts_with(begins), "{name}");
    }
    let png = run(&["heatmap", "--form", "png"], &path).code(0);
    assert_eq!(png.0.stdout, std::fs::read(scratch.file("a.png")).expect("a picture"));
    let before = scratch.contents();
    let link = scratch.file("link.txt");
    std::os::unix::fs::symlink(&path, &link).expect("link");
    for own in [&path, &link, &scratch.reflection()] {
        let own = own.to_str().expect("a path");
        let refused = run(&["heatmap", "--form", "text", "-o", own], &path).code(2);
        assert!(refused.err().contains("would replace"), "{}", refused.err());
    }
    std::fs::remove_file(link).expect("remove");
    assert_eq!(scratch.contents(), before);
    let unknown = run(&["heatmap", "-o", "picture.bmp"], &path).code(2);
    assert!(unknown.err().contains("png, svg and txt"));
}

#[test]
fn a_file_with_snapshots_is_settled_only_if_they_may_go() {
    let scratch = scratch();
    let path = scratch.file("sealed");
    make(&path, CloseMode::Fast);
    let file = AtomicMappedFile::open(&path).expect("open");
    file.snapshot("before").expect("seal");
    file.close(CloseMode::Fast).expect("close");
    let look = run(&["inspect", "--json"], &path).code(0).json();
    assert_eq!(
        (&look["snapshots"][0]["name"], &look["snapshots"][0]["length"]),
        (&"before".into(), &LEN.into())
    );
    assert!(look["snapshot_file"].as_str().is_some_and(|name| name.ends_with(".snapshots")));
    assert!(run(&["inspect"], &path).code(0).out().contains("\"before\" (1)"));
    let before = scratch.contents();
    let refused = run(&["settle"], &path).code(2);
    assert!(refused.err().contains("--drop-snapshots"), "{}", refused.err());
    assert_eq!(scratch.contents(), before);
    let settled = run(&["settle", "--json", "--drop-snapshots"], &path).code(0).json();
    assert_eq!((&settled["dropped_snapshots"], &settled["plain"]), (&1.into(), &true.into()));
    assert_eq!(scratch.names(), ["sealed"]);
    assert_known(&path);
}

/// The reflection file of a closed pair with page sums has lost a bit.
#[test]
fn a_page_that_its_sum_does_not_fit_is_named_by_verify() {
    let scratch = scratch();
    let path = scratch.file("damaged");
    let options = AtomicMappedFile::options().create(true).len(20_000);
    let file = options.integrity(Integrity::OnRead).open(&path).expect("open");
    file.write_at(&[7; 20_000], 0).expect("write");
    let reflection = file.reflection_path().to_owned();
    file.close(CloseMode::Fast).expect("close");
    let verified = run(&["verify", "--json"], &path).code(0).json();
    assert_eq!((&verified["ok"], &verified["page_sums"]), (&true.into(), &5.into()));
    let bytes = std::fs::read(&reflection).expect("read");
    let at = bytes.windows(64).position(|slot| slot == [7; 64]).expect("a slot");
    let reflection = std::fs::OpenOptions::new().write(true).open(reflection).expect("open");
    reflection.write_all_at(&[6], at as u64).expect("damage");
    let verified = run(&["verify", "--json"], &path).code(3).json();
    assert_eq!(verified["damaged"], serde_json::json!([[0, 4096]]));
    assert_eq!(verified["ok"], false);
    let refused = run(&["repair", "--pages", "--yes"], &path).code(3).out();
    assert!(refused.contains("left") && refused.contains("0..4096"), "{refused}");
}

/// Two of three pages are damaged. The snapshot has one of them whole.
#[test]
fn damaged_pages_go_back_to_a_snapshot() {
    let scratch = scratch();
    let path = scratch.file("damaged");
    let options = AtomicMappedFile::options().create(true).len(3 * 4096);
    let file = options.integrity(Integrity::OnScrub).open(&path).expect("open");
    let pages = [[1; 4096], [2; 4096], [3; 4096]].concat();
    file.write_at(&pages, 0).expect("write");
    file.snapshot("monday").expect("seal");
    (8..10).for_each(|fill| file.write_at(&[fill; 4096], 4096).expect("write"));
    let reflection = file.reflection_path().to_owned();
    file.close(CloseMode::Fast).expect("close");
    let bytes = std::fs::read(&reflection).expect("read");
    let reflection = std::fs::OpenOptions::new().write(true).open(reflection).expect("open");
    for fill in [1, 9] {
        let at = bytes.windows(64).position(|slot| slot == [fill; 64]).expect("a slot");
        reflection.write_all_at(&[6], at as u64).expect("damage");
    }
    for wrong in
        [&["--pages", "--range", "5000"][..], &["--pages", "--trust"], &["--range", "0..1"]]
    {
        run(&[&["repair"], wrong].concat(), &path).code(2);
    }
    let elsewhere = ["repair", "--json", "--pages", "--yes", "--range", "8192..12288"];
    let found = run(&elsewhere, &path).code(0).json();
    assert_eq!((&found["damaged"], &found["repaired"]), (&json!([]), &false.into()));
    let asked = answer(&["repair", "--pages"], &path, "n\n").code(3);
    assert!(asked.err().contains("let 2 damaged pages go back"), "{}", asked.err());
    let one = ["repair", "--json", "--pages", "--yes", "--range", "4096..8192"];
    let done = run(&one, &path).code(4).json();
    assert_eq!(done["pages"], json!([{"page": [4096, 8192], "snapshot": "monday"}]));
    assert_eq!((&done["left"], &done["repaired"]), (&json!([]), &true.into()));
    let done = run(&["repair", "--json", "--pages", "--yes"], &path).code(3).json();
    assert_eq!(done["left"], json!([{"page": [0, 4096], "drop_first": null}]));
    assert_eq!((&done["pages"], &done["repaired"]), (&json!([]), &false.into()));
    assert!(std::fs::read(&path).expect("read")[4096..] == pages[4096..]);
}

/// The companions of a file with page sums hold the sums, so they stay.
#[test]
fn a_file_with_page_sums_is_plain_when_the_sums_are_switched_off() {
    let scratch = scratch();
    let path = scratch.file("summed");
    let file = options().integrity(Integrity::OnScrub).open(&path).expect("open");
    write(&file);
    file.close(CloseMode::Fast).expect("close");
    assert_eq!(run(&["settle", "--json"], &path).code(0).json()["plain"], false);
    assert_known(&path);
    let mut off = command();
    off.env("ATOMIC_MMAP_INTEGRITY", "off").args(["settle", "--json"]).arg(&path);
    assert_eq!(Run(off.output().expect("run")).code(0).json()["plain"], true);
    assert_eq!(scratch.names(), ["summed"]);
    assert_known(&path);
}
