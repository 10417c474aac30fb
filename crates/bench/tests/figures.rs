//! Tests that all figures are made and can be read.
//!
//! This binary has one test only. It runs itself again with the same arguments, for the processes
//! that are killed.

use bench::figures::{Effort, die_if_asked, make_with};
use bench::scratch::Scratch;

#[test]
fn every_figure_is_made_and_names_its_paper() {
    // The child must not make a folder: the kill would leave it.
    die_if_asked().expect("what is asked");
    let scratch = Scratch::new(None).expect("a folder");
    let out = scratch.path().join("figures");
    make_with(&out, Some(scratch.path()), &Effort::TINY).expect("figures");
    let page = std::fs::read_to_string(out.join("index.html")).expect("a page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    for part in ["processor", "kernel", "tmpfs", "18.9", "2.31", "4.3", "atomic-mmap"] {
        assert!(page.contains(part), "no {part} on the page");
    }
    for tag in ["table", "tr", "td", "th", "svg", "p", "small", "h2"] {
        let ends = page.matches(&format!("</{tag}>")).count();
        let begins =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(begins, ends, "<{tag}>");
    }
    let mut figures = 0;
    for entry in std::fs::read_dir(&out).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|ending| ending != "svg") {
            continue;
        }
        figures += 1;
        let drawing = std::fs::read_to_string(&path).expect("a drawing");
        let name = path.display();
        assert!(
            drawing.trim_start().starts_with("<svg") && drawing.trim_end().ends_with("</svg>"),
            "{name}"
        );
        let papers = ["Acumen", "MGSP", "Libnvmmio", "RMMIO", "ADL"];
        assert!(papers.iter().any(|paper| drawing.contains(paper)), "{name} names no paper");
        assert!(drawing.contains("atomic-mmap"), "{name}: without this crate");
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{name}");
        assert!(page.contains(&drawing), "{name} is not on the page");
    }
    assert_eq!(figures, 23, "figures");
}
