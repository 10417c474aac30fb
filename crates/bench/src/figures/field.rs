//! Who is measured, and who cannot be?
//!
//! Owns: the list of contenders, and all of them opened at once, each in a folder of its own, so that they
//! can take turns. Every page of every slot, log and cache was written before anybody is measured.

use super::limits;
use crate::scratch::Scratch;
use crate::subject::{Kind, Subject, touch_parts};
use crate::{baselines, ours, peers};
use indicatif::ProgressBar;
use std::io;
use std::path::Path;

/// Which of the page's groups somebody belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// This crate.
    Ours,
    /// The hardware.
    Limit,
    /// A paper's way, written here.
    Baseline,
    /// What users have today.
    Peer,
}

/// Somebody who is measured.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    pub kind: Kind,
    pub group: Group,
}

/// Everybody, in the order of tables.
pub fn everybody() -> Vec<Contender> {
    let ours: &[Kind] = &[ours::OURS];
    let groups = [
        (Group::Ours, ours),
        (Group::Limit, limits::ALL),
        (Group::Baseline, baselines::ALL),
        (Group::Peer, peers::ALL),
    ];
    groups
        .iter()
        .flat_map(|(group, kinds)| {
            kinds.iter().map(|kind| Contender { kind: *kind, group: *group })
        })
        .collect()
}

/// A contender who is there.
pub struct Entrant {
    pub contender: Contender,
    pub subject: Box<dyn Subject>,
}

/// Everybody who could be opened.
pub struct Field {
    // Before the folder: files are closed, then removed.
    pub entrants: Vec<Entrant>,
    /// Names, and why not.
    pub absent: Vec<(&'static str, String)>,
    pub len: u64,
    _scratch: Scratch,
}

impl Field {
    /// Opens everybody and writes everything more than once.
    pub fn open(base: Option<&Path>, len: u64, bar: &ProgressBar) -> io::Result<Field> {
        Field::of(&everybody(), base, len, bar)
    }

    /// Opens these.
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

    /// Those who are there.
    pub fn contenders(&self) -> Vec<Contender> {
        self.entrants.iter().map(|entrant| entrant.contender).collect()
    }
}

/// Writes everything three times: in large pieces, so that whatever has two places for a page has used
/// both, and in pages; and parts of each page.
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
