//! The contenders: those that are measured, and those that are absent.
//!
//! Owns: the list of contenders, and all of them opened together, each in its own folder, so that
//! they can take turns. Every page of every slot, log and cache is written before any measurement.

use super::limits;
use crate::scratch::Scratch;
use crate::subject::{Kind, Subject, touch_parts};
use crate::{baselines, ours, peers};
use indicatif::ProgressBar;
use std::io;
use std::path::Path;

/// The group of a contender on the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// This crate.
    Ours,
    /// The hardware.
    Limit,
    /// A paper's protocol, written for this bench.
    Baseline,
    /// A system that users have today.
    Peer,
}

/// A system to measure.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    pub kind: Kind,
    pub group: Group,
}

/// Returns all contenders, in the order of tables.
pub fn contenders() -> Vec<Contender> {
    of_groups(&[
        (Group::Ours, &[ours::OURS]),
        (Group::Limit, limits::ALL),
        (Group::Baseline, baselines::ALL),
        (Group::Peer, peers::ALL),
    ])
}

/// Returns the contenders of these groups, in their order.
pub fn of_groups(groups: &[(Group, &[Kind])]) -> Vec<Contender> {
    groups
        .iter()
        .flat_map(|(group, kinds)| {
            kinds.iter().map(|kind| Contender { kind: *kind, group: *group })
        })
        .collect()
}

/// A contender that could be opened.
pub struct Entrant {
    pub contender: Contender,
    pub subject: Box<dyn Subject>,
}

/// All contenders that could be opened.
pub struct Field {
    // Dropped before the folder: the files are closed, and then removed.
    pub entrants: Vec<Entrant>,
    /// Names of contenders that could not be opened, with the reasons.
    pub absent: Vec<(&'static str, String)>,
    pub len: u64,
    _scratch: Scratch,
}

impl Field {
    /// Opens all contenders and writes their files more than once.
    pub fn open(base: Option<&Path>, len: u64, bar: &ProgressBar) -> io::Result<Field> {
        Field::of(&contenders(), base, len, bar)
    }

    /// Opens these contenders.
    pub fn of(
        contenders: &[Contender],
        base: Option<&Path>,
        len: u64,
        bar: &ProgressBar,
    ) -> io::Result<Field> {
        let scratch = Scratch::new(base)?;
        let (mut entrants, mut absent) = (Vec::new(), Vec::new());
        bar.inc_length(contenders.len() as u64);
        for (number, &contender) in contenders.iter().enumerate() {
            let name = contender.kind.name;
            bar.set_message(format!("{name} is opened and written once"));
            match (contender.kind.open)(&scratch.folder(&number.to_string())?, len) {
                Ok(subject) => {
                    touch(&*subject, len);
                    entrants.push(Entrant { contender, subject });
                }
                Err(reason) => absent.push((name, reason.to_string())),
            }
            bar.inc(1);
        }
        Ok(Field { entrants, absent, len, _scratch: scratch })
    }

    /// Returns the contenders that could be opened.
    pub fn contenders(&self) -> Vec<Contender> {
        self.entrants.iter().map(|entrant| entrant.contender).collect()
    }
}

/// Writes the whole file three times. Large writes make a contender use both places of a page, if
/// it has two. Then pages and parts of each page are written.
pub fn touch(subject: &dyn Subject, len: u64) {
    for (pass, piece) in [64 << 10, 64 << 10, 4096].into_iter().enumerate() {
        let data = vec![pass as u8; piece];
        for offset in (0..len).step_by(piece) {
            subject.write(&data[..piece.min((len - offset) as usize)], offset);
            subject.sync();
        }
    }
    touch_parts(subject, len);
}
