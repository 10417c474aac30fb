//! The papers' experiments, repeated with all contenders: figures, and a page with all of them.
//!
//! | module | contents |
//! |---|---|
//! | `effort` | file sizes and measuring times |
//! | `papers` | the repeated papers and their results |
//! | `limits` | the limits of the hardware |
//! | `field` | the contenders, measured and absent |
//! | `script` | the operations of a turn, and the check that they read back |
//! | `cell` | the measurement of a cell, in turns |
//! | `figure` | the data of a figure before it is drawn |
//! | `micro`, `threads`, `transactions`, `latency`, `volume`, `ycsb`, `recovery` | the figures |
//! | `pages` | records in pages, over any subject |
//! | `death` | a process that is killed while it writes |
//! | `draw`, `page` | the drawing of a figure, and the page with all of them |
//!
//! Imports go downwards: only the figures and this file import the last four modules, and the
//! figures import all modules above them. All may import `offsets`, `memory`, `scratch`, `subject`,
//! `ours`, `baselines`, `peers`, `measure`.

mod cell;
mod death;
mod draw;
pub(crate) mod effort;
pub(crate) mod field;
mod figure;
mod latency;
mod limits;
mod micro;
mod page;
mod pages;
mod papers;
mod recovery;
mod script;
mod threads;
mod transactions;
mod volume;
pub(crate) mod ycsb;

pub use death::die_if_asked;
pub use effort::Effort;

use field::Field;
use indicatif::{ProgressBar, ProgressStyle};
use page::Facts;
use std::io;
use std::path::Path;

/// Measures all figures and draws them into `out`, with files under `base`. Takes about two minutes
/// if `quick`, and otherwise a quarter of an hour.
///
/// Some figures need a process that is killed. For these, this program runs again with the same
/// arguments, reaches this function, and is killed in it. A caller that leaves files behind before
/// it must call [`die_if_asked`] first.
///
/// # Errors
/// Returns errors of the system and of the contenders.
pub fn make(out: &Path, base: Option<&Path>, quick: bool) -> io::Result<()> {
    make_with(out, base, if quick { &effort::QUICK } else { &effort::FULL })
}

/// Makes the figures like [`make`], with the given effort.
///
/// # Errors
/// Returns errors of the system and of the contenders.
pub fn make_with(out: &Path, base: Option<&Path>, effort: &Effort) -> io::Result<()> {
    die_if_asked()?;
    std::fs::create_dir_all(out)?;
    let begun = std::time::Instant::now();
    let bar = bar();
    let field = Field::open(base, effort.file, &bar)?;
    let mut figures = Vec::new();
    figures.extend(micro::figures(&field, effort, &bar));
    figures.extend(threads::figures(&field, effort, &bar));
    figures.extend(transactions::figures(&field, effort, &bar));
    figures.extend(latency::figures(&field, effort, &bar));
    figures.extend(volume::figures(&field, effort, &bar));
    let contenders = field.contenders();
    let absent = field.absent.clone();
    drop(field);
    figures.extend(ycsb::figures(&contenders, base, effort, &bar)?);
    figures.extend(recovery::figures(&contenders, base, effort, &bar)?);
    let mut drawn = Vec::new();
    for figure in figures {
        let drawing = draw::svg(&figure)?;
        std::fs::write(out.join(figure.file_name()), &drawing)?;
        drawn.push((figure, drawing));
    }
    let facts =
        Facts { contenders: &contenders, absent: &absent, effort, took: begun.elapsed(), base };
    std::fs::write(out.join("index.html"), page::html(&drawn, &facts)?)?;
    bar.finish_and_clear();
    Ok(())
}

/// Makes a bar that counts cells. Each figure adds its own cells, so their number grows.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "{elapsed_precise} {bar:30} {pos}/{len} {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
