//! `heatmap`: which parts of a file are written to.

use crate::args::{Common, Form, Heatmap};
use crate::heat::Heat;
use crate::outcome::{Failure, Outcome};
use crate::report::{Report, print};
use crate::verdict;
use atomic_mmap::Inspection;
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// The pause between two looks at the words of an open file.
const PAUSE: Duration = Duration::from_millis(50);

pub fn run(common: &Common, of: &Heatmap) -> Result<Outcome, Failure> {
    let form = form(of)?;
    let look = common.options().inspect(&of.file)?;
    if let Some(picture) = &of.output {
        refuse_own_files(picture, &look)?;
    }
    let mut heat = Heat::new(look.len);
    let unit = match of.seconds {
        None => {
            look.each_reflected_page(|offset, slices| heat.add(offset, count(slices)))?;
            "slices of 64 bytes in the reflection file"
        }
        Some(seconds) => {
            let end = Instant::now() + Duration::from_secs(seconds);
            let mut before = words(&look)?;
            while Instant::now() < end {
                std::thread::sleep(PAUSE.min(end.saturating_duration_since(Instant::now())));
                let now = words(&look)?;
                changed(&before, &now, |offset, slices| heat.add(offset, count(slices)));
                before = now;
            }
            "changes of a slice of 64 bytes"
        }
    };
    if common.json {
        let mut report = Report::new("heatmap");
        report.path("file", Some(&look.home));
        report.bytes("length", look.len);
        report.text("unit", Some(unit.into()));
        report.bytes("cell_bytes", heat.cell_len());
        report.count("total", heat.total());
        report.add("cells", heat.counts(), "");
        report.print(true)?;
        if of.output.is_none() {
            return Ok(verdict::outcome(&look));
        }
    }
    let picture = match form {
        Form::Text => heat.text(unit).into_bytes(),
        Form::Svg => heat.svg(unit).into_bytes(),
        Form::Png => {
            heat.png().map_err(|e| Failure::Io("picture".into(), std::io::Error::other(e)))?
        }
    };
    match &of.output {
        Some(path) => write(path, &picture).map_err(Failure::io(path))?,
        None => {
            print(&picture)?;
        }
    }
    Ok(verdict::outcome(&look))
}

/// Refuses a picture in the place of the file or of its companions, also by other names of them.
fn refuse_own_files(picture: &Path, look: &Inspection) -> Result<(), Failure> {
    let id = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let beside = [&look.reflection, &look.journal, &look.snapshot_file].map(Option::as_ref);
    let taken = id(picture);
    if taken.is_some()
        && [Some(&look.home)].into_iter().chain(beside).flatten().any(|path| id(path) == taken)
    {
        let message = "the picture would replace the file or one of its companions";
        return Err(Failure::Usage(format!("{}: {message}", atomic_mmap::shown(&picture))));
    }
    Ok(())
}

/// Returns the form that was asked for, or that the picture's name tells.
fn form(of: &Heatmap) -> Result<Form, Failure> {
    let named = |path: &Path| match path.extension().and_then(|end| end.to_str()) {
        Some("png") => Ok(Form::Png),
        Some("svg") => Ok(Form::Svg),
        Some("txt") => Ok(Form::Text),
        _ => Err(Failure::Usage(format!(
            "{}: ends in none of png, svg and txt; choose one with --form",
            atomic_mmap::shown(&path)
        ))),
    };
    match (of.form, &of.output) {
        (Some(form), _) => Ok(form),
        (None, Some(path)) => named(path),
        (None, None) => Ok(Form::Text),
    }
}

fn count(slices: u64) -> u64 {
    u64::from(slices.count_ones())
}

/// Returns the slices in the reflection file, by the offset of their page.
pub fn words(look: &Inspection) -> Result<BTreeMap<u64, u64>, Failure> {
    let mut words = BTreeMap::new();
    look.each_reflected_page(|offset, slices| {
        words.insert(offset, slices);
    })?;
    Ok(words)
}

/// Calls `visit` for each page with slices that have moved between the two looks. A write moves the
/// slices that it changes, except for parts of a slice in RAM. Two writes in between move a slice
/// there and back. So a heat map counts looks that differ, and not writes.
pub fn changed(
    before: &BTreeMap<u64, u64>,
    now: &BTreeMap<u64, u64>,
    mut visit: impl FnMut(u64, u64),
) {
    for (offset, slices) in now {
        let moved = slices ^ before.get(offset).unwrap_or(&0);
        if moved != 0 {
            visit(*offset, moved);
        }
    }
    for (offset, slices) in before {
        if !now.contains_key(offset) {
            visit(*offset, *slices);
        }
    }
}

/// Writes a picture where the user wants it, as a shell does, but waits for no reader of a pipe.
fn write(path: &Path, picture: &[u8]) -> std::io::Result<()> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut how = File::options();
    how.write(true).create(true).truncate(true).custom_flags(nonblocking);
    let mut file = how.open(path)?;
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    file.write_all(picture)
}
