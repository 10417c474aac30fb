//! What did the papers measure, and how does everybody here do by it? Figures, and a page with all of them.
//!
//! | module | question |
//! |---|---|
//! | `effort` | how large are the files, and how long is measured? |
//! | `papers` | which papers are repeated, and what did they find? |
//! | `limits` | what does the hardware do at best? |
//! | `field` | who is measured, and who cannot be? |
//! | `script` | what does a turn do, and does what it wrote read back? |
//! | `cell` | how long does it take everybody, in turns? |
//! | `figure` | what is a figure before it is drawn? |
//! | `micro`, `threads`, `transactions`, `latency`, `volume`, `ycsb`, `recovery` | the figures |
//! | `pages` | how are records kept in pages, by whoever keeps the pages? |
//! | `death` | how does a process die while it writes? |
//! | `draw`, `page` | how does a figure look, and where does it stand? |
//!
//! Imports go downwards: the last four into nobody but the figures and this file, the figures into
//! everything above them. May import `offsets`, `memory`, `scratch`, `subject`, `ours`, `baselines`, `peers`.

mod cell;
mod death;
mod draw;
mod effort;
mod field;
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
mod ycsb;

pub use death::die_if_asked;
pub use effort::Effort;

use field::Field;
use indicatif::{ProgressBar, ProgressStyle};
use page::Facts;
use std::io;
use std::path::Path;

/// Measures and draws all figures into `out`, with files under `base`. In about two minutes if `quick`,
/// else in a quarter of an hour.
///
/// Some figures are about a process that dies: this program is run again with the same arguments, gets
/// here again, and is killed here. Who leaves something behind before calls [`die_if_asked`] first.
///
/// # Errors
/// What the system says, and whoever is measured.
pub fn make(out: &Path, base: Option<&Path>, quick: bool) -> io::Result<()> {
    make_with(out, base, if quick { &effort::QUICK } else { &effort::FULL })
}

/// The same, with an effort of one's own.
///
/// # Errors
/// What the system says, and whoever is measured.
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

/// Counts cells. How many there will be is known by the figure that is at work, and grows.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "{elapsed_precise} {bar:30} {pos}/{len} {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
