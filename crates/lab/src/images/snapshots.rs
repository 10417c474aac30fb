//! Snapshots in the sequences of the part.
//!
//! Owns: the kinds of operation on snapshots, their execution, and the sequences in which they
//! stand beside each other kind. After each recovery all live snapshots are compared with the
//! model, not only the present.

use super::content::Effect;
use super::kinds::{Kind, LAST, Player, Point};
use super::{Job, job, media};
use crate::machine::memory::PAGE;
use atomic_mmap::Result;

/// The kinds of operation on snapshots.
pub const KINDS: [Kind; 6] = [
    Kind::Seal,
    Kind::SealUnderView,
    Kind::DropOldest,
    Kind::DropNewest,
    Kind::RollBack,
    Kind::RollBackSealed,
];
/// The most snapshots at one time.
const MOST: usize = 3;
/// Patterns that the quick run always tries.
const FIRST: usize = 3;

impl Player<'_> {
    /// Runs one operation on snapshots, if there are the snapshots for it.
    pub(super) fn play_snapshot(&mut self, kind: Kind) -> Result<()> {
        if kind == Kind::SealUnderView {
            return self.seal_under_view();
        }
        let sealed = &self.content().sealed;
        let (oldest, newest) = (sealed.keys().next().cloned(), sealed.keys().last().cloned());
        let (Some(oldest), Some(newest)) = (oldest, newest) else {
            return if kind == Kind::Seal { self.seal() } else { Ok(()) };
        };
        let has_room = sealed.len() < MOST;
        match kind {
            Kind::DropOldest => self.drop_snapshot(oldest),
            Kind::DropNewest => self.drop_snapshot(newest),
            Kind::RollBack => self.roll_back(oldest, None),
            Kind::RollBackSealed if has_room => {
                let undo = self.new_name();
                self.roll_back(newest, Some(undo))
            }
            Kind::RollBackSealed => self.roll_back(newest, None),
            _ if has_room => self.seal(),
            _ => Ok(()),
        }
    }

    /// Returns a name that follows those of older snapshots in the order of texts.
    fn new_name(&mut self) -> String {
        self.next_id += 1;
        format!("{:04}", self.next_id)
    }

    fn seal(&mut self) -> Result<()> {
        let name = self.new_name();
        // Where durable points are kept, the seal makes one of the present before it counts.
        self.step_with(Effect::Seal(name.clone()), Point::BothMade, |me, _| {
            me.file().snapshot(&name).map(drop)
        })
    }

    fn seal_under_view(&mut self) -> Result<()> {
        let content = self.content();
        let (end, has_room) = (content.len.min(LAST + PAGE), content.sealed.len() < MOST);
        if end <= LAST || !has_room {
            return Ok(());
        }
        let reader = self.file().try_clone()?;
        let _view = reader.view(LAST..end)?;
        self.write(LAST + 60, 100)?;
        self.seal()?;
        self.write(LAST + 20, 300)?;
        self.write(LAST + 70, 8)
    }

    fn drop_snapshot(&mut self, name: String) -> Result<()> {
        self.step_with(Effect::Drop(name.clone()), Point::Changed, |me, _| {
            me.file().drop_snapshot(&name)
        })
    }

    fn roll_back(&mut self, name: String, undo: Option<String>) -> Result<()> {
        let effect = Effect::RollBack(name.clone(), undo.clone());
        self.step_with(effect, Point::BothMade, |me, _| me.file().roll_back(&name, undo.as_deref()))
    }
}

/// The patterns of sequences. `None` is the place of another kind.
const PATTERNS: [&[Option<Kind>]; 12] = {
    use Kind::{DropNewest, DropOldest, RollBack, RollBackSealed};
    const SEAL: Option<Kind> = Some(Kind::Seal);
    const IT: Option<Kind> = None;
    [
        &[SEAL, IT],
        &[IT, SEAL, IT],
        &[SEAL, IT, Some(RollBack)],
        &[IT, SEAL],
        &[SEAL, IT, Some(DropOldest)],
        &[IT, SEAL, IT, SEAL],
        &[IT, SEAL, IT, Some(RollBackSealed)],
        &[SEAL, IT, SEAL, IT, Some(DropOldest)],
        &[SEAL, IT, SEAL, IT, Some(DropNewest)],
        &[SEAL, IT, SEAL, IT, Some(RollBack)],
        &[SEAL, IT, Some(RollBack), IT],
        &[SEAL, IT, Some(DropOldest), IT, SEAL, IT],
    ]
};

/// Returns the sequences of the first patterns, with each other kind, on each medium. Leaves out
/// `Spilled`, which has many images.
pub(super) fn first(depth: u32) -> Vec<Job> {
    of_patterns(&PATTERNS[..FIRST], |kind| kind != Kind::Spilled, depth)
}

/// Returns the sequences of all patterns, with each other kind, on each medium.
pub(super) fn all(depth: u32) -> Vec<Job> {
    of_patterns(&PATTERNS, |_| true, depth)
}

fn of_patterns(
    patterns: &[&[Option<Kind>]],
    is_wanted: impl Fn(Kind) -> bool,
    depth: u32,
) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (medium, others) in media() {
        for pattern in patterns {
            let of = |other: &Kind| pattern.iter().map(|kind| kind.unwrap_or(*other)).collect();
            jobs.extend(
                others
                    .iter()
                    .filter(|kind| is_wanted(**kind))
                    .map(|other| job(of(other), depth, medium)),
            );
        }
        jobs.extend(KINDS.map(|kind| job(vec![Kind::Seal, kind], depth, medium)));
    }
    jobs
}

/// Returns the sequences of a seal and two operations of any kind, on each medium.
pub(super) fn pairs(depth: u32) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (medium, others) in media() {
        let all = || others.iter().chain(&KINDS);
        for (first, second) in all().flat_map(|first| all().map(move |second| (first, second))) {
            jobs.push(job(vec![Kind::Seal, *first, *second], depth, medium));
        }
    }
    jobs
}

/// Returns a kind at random, one in four of snapshots.
pub(super) fn at_random(rng: &mut fastrand::Rng, others: &[Kind]) -> Kind {
    let from = if rng.u8(..4) == 0 { &KINDS[..] } else { others };
    from[rng.usize(0..from.len())]
}
