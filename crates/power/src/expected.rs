//! The required and the allowed contents of an image, computed from the marks before the power
//! loss.

use crate::crowd::{self, CROWDS, Crowd, THREADS};
use crate::database::{DATABASES, Database};
use crate::log_script::{self, GROUPS, Group};
use crate::log_store;
use crate::mounts::System;
use crate::script::{
    Content, Op, PLANS, Plan, Script, State, after, makes_point, point_without_snapshot,
};
use atomic_mmap::CloseMode;

/// The expectations for all files.
pub struct Expected {
    pub scripts: Vec<Followed>,
    pub crowds: Vec<Watched>,
    pub databases: Vec<Stored>,
    pub log: Logged,
}

/// The expectation for a file that follows a script.
pub struct Followed {
    pub plan: Plan,
    script: Script,
    /// The state after the operations that have returned.
    now: State,
    /// The newest durable point that was acknowledged.
    acknowledged: State,
    /// The last content of a removed file, on btrfs. Once, a replay of the btrfs log restored a
    /// removed plain file, although its folder had been synced. The test accepts that, but the
    /// bytes must be right.
    removed: State,
    comes_back: bool,
    under_way: Option<UnderWay>,
    /// The last operation was a spatial close, and it has returned.
    is_plain: bool,
}

struct UnderWay {
    op: Op,
    after: State,
    /// The durable point that the operation makes, if it makes one.
    point: Option<State>,
}

/// The expectation for a file of several threads.
pub struct Watched {
    pub crowd: Crowd,
    /// The operations of each thread that have begun, and those that have returned.
    begun: [u64; THREADS],
    returned: [u64; THREADS],
    /// The operations that had returned when the current sync began.
    to_be_durable: [u64; THREADS],
    /// The operations that must be present.
    durable: [u64; THREADS],
    /// The file was created.
    is_there: bool,
}

/// The expectation for a database.
pub struct Stored {
    pub database: Database,
    pub numbers: Numbers,
}

/// The expectation for the log store.
pub struct Logged {
    pub numbers: Numbers,
    seed: u64,
}

/// The numbers of a file's operations: of transactions, or of calls on the log store.
#[derive(Default)]
pub struct Numbers {
    /// The last operation that has begun, and the last one that was acknowledged.
    begun: u64,
    returned: u64,
}

impl Numbers {
    pub fn may_be_missing(&self) -> bool {
        self.returned == 0
    }

    /// Returns an error if `last` may not be the file's last operation.
    pub fn check(&self, last: u64) -> Result<(), String> {
        match (self.returned..=self.begun).contains(&last) {
            true => Ok(()),
            false => Err(format!(
                "number {last} is the last one, acknowledged is {}, begun {}",
                self.returned, self.begun
            )),
        }
    }

    /// Updates the expectation with a mark. Returns `None` for an unknown one.
    fn hear(&mut self, what: &str, rest: &[&str]) -> Option<()> {
        let [number] = rest else { return None };
        let last = match what {
            "start" => &mut self.begun,
            "commit" => &mut self.returned,
            _ => return None,
        };
        *last = number.parse::<u64>().ok()?.max(*last);
        Some(())
    }
}

impl Logged {
    /// Returns the state that the groups have. Fails if they may not have it.
    pub fn state_of(&self, found: &[Group; GROUPS]) -> Result<log_script::State, String> {
        log_script::State::of(found, self.numbers.returned..=self.numbers.begun, self.seed)
    }
}

impl Expected {
    pub fn new(system: System, seed: u64) -> Expected {
        let followed = |plan: &Plan| Followed {
            plan: *plan,
            script: Script::new(*plan, seed),
            now: None,
            acknowledged: None,
            removed: None,
            comes_back: system == System::Btrfs,
            under_way: None,
            is_plain: false,
        };
        let watched = |crowd: &Crowd| Watched {
            crowd: *crowd,
            begun: [0; THREADS],
            returned: [0; THREADS],
            to_be_durable: [0; THREADS],
            durable: [0; THREADS],
            is_there: false,
        };
        let stored =
            |database: &Database| Stored { database: *database, numbers: Numbers::default() };
        Expected {
            scripts: PLANS.iter().map(followed).collect(),
            crowds: CROWDS.iter().map(watched).collect(),
            databases: DATABASES.iter().map(stored).collect(),
            log: Logged { numbers: Numbers::default(), seed },
        }
    }

    /// Updates the expectation with a mark.
    pub fn hear(&mut self, mark: &str) -> Result<(), String> {
        let not_understood = || format!("the mark {mark:?} is not understood");
        let words: Vec<&str> = mark.split(' ').collect();
        let [what, name, rest @ ..] = &words[..] else { return Err(not_understood()) };
        if let Some(file) = self.scripts.iter_mut().find(|file| file.plan.name == *name) {
            match *what {
                "b" => file.begin(),
                "d" => file.end(),
                _ => return Err(not_understood()),
            }
            return Ok(());
        }
        let mut databases = self.databases.iter_mut();
        let numbers = match databases.find(|file| file.database.name == *name) {
            Some(file) => Some(&mut file.numbers),
            None => Some(&mut self.log.numbers).filter(|_| *name == log_store::FILE),
        };
        if let Some(numbers) = numbers {
            return numbers.hear(what, rest).ok_or_else(not_understood);
        }
        let file = self.crowds.iter_mut().find(|file| file.crowd.name == *name);
        let file = file.ok_or_else(not_understood)?;
        match (*what, rest) {
            ("sync", []) => file.to_be_durable = file.returned,
            ("synced", []) => {
                file.durable = file.to_be_durable;
                file.is_there = true;
            }
            ("begin" | "done", [thread, number]) => {
                let thread: usize = thread.parse().map_err(|_| not_understood())?;
                let number = number.parse().map_err(|_| not_understood())?;
                let numbers = if *what == "begin" { &mut file.begun } else { &mut file.returned };
                numbers[thread] = number;
            }
            _ => return Err(not_understood()),
        }
        Ok(())
    }
}

impl Followed {
    fn begin(&mut self) {
        let op = self.script.next();
        let after = after(&self.plan, &self.now, &op);
        let point = match makes_point(&self.plan, &self.now, &op) {
            true => Some(after.clone()),
            false => point_without_snapshot(&self.acknowledged, &op),
        };
        self.is_plain = false;
        self.under_way = Some(UnderWay { op, after, point });
    }

    fn end(&mut self) {
        let Some(UnderWay { op, after, point }) = self.under_way.take() else { return };
        if let Some(point) = point {
            let was = std::mem::replace(&mut self.acknowledged, point);
            self.removed = was.filter(|_| self.comes_back && matches!(op, Op::Remove));
        }
        self.is_plain = matches!(op, Op::Close(CloseMode::Spatial));
        self.now = after;
    }

    /// Returns the allowed states: the acknowledged durable point, and the one in progress. A seal
    /// and a rollback make one of the present before.
    fn allowed(&self) -> impl Iterator<Item = &State> {
        let is_on_snapshots = |at: &&UnderWay| matches!(at.op, Op::Seal(_) | Op::RollBack(..));
        let present = self.under_way.as_ref().filter(is_on_snapshots).map(|_| &self.now);
        let next = self.under_way.as_ref().and_then(|at| at.point.as_ref()).into_iter();
        let next = next.chain(present);
        let removed = Some(&self.removed).filter(|state| state.is_some());
        std::iter::once(&self.acknowledged).chain(removed).chain(next)
    }

    /// Returns `true` if the file may be missing.
    pub fn may_be_missing(&self) -> bool {
        self.allowed().any(Option::is_none)
    }

    /// Returns the bytes of the plain file, if the file must be a plain file.
    pub fn plain(&self) -> Option<&[u8]> {
        let content = self.acknowledged.as_ref().filter(|_| self.is_plain);
        content.map(|content| &content.bytes[..])
    }

    /// Returns an error if the file may not have this content.
    pub fn check(&self, found: &Content) -> Result<(), String> {
        let mut says = String::new();
        for state in self.allowed() {
            let Some(expected) = state else { continue };
            if expected == found {
                return Ok(());
            }
            says += &format!("; is not a durable point: {}", difference(found, expected));
        }
        Err(format!("{}{says}", self.plan.name))
    }
}

impl Watched {
    pub fn may_be_missing(&self) -> bool {
        !self.is_there
    }

    /// Returns an error if the file may not hold these bytes.
    pub fn check(&self, content: &Content) -> Result<(), String> {
        let name = self.crowd.name;
        let found = crowd::found(&content.bytes).map_err(|e| format!("{name}: {e}"))?;
        let at_least = match self.crowd.durability {
            atomic_mmap::Durability::EveryWrite => self.returned,
            _ => self.durable,
        };
        for thread in 0..THREADS {
            if found[thread] < at_least[thread] || found[thread] > self.begun[thread] {
                return Err(format!(
                    "{name}: {found:?} are there, acknowledged are {at_least:?}, begun {:?}",
                    self.begun
                ));
            }
        }
        Ok(())
    }
}

fn difference(is: &Content, should: &Content) -> String {
    if !is.sealed.keys().eq(should.sealed.keys()) {
        return format!("snapshots {:?} for {:?}", is.sealed.keys(), should.sealed.keys());
    }
    let pairs = is.sealed.iter().zip(should.sealed.values());
    let mut wrong = pairs.filter(|((_, is), should)| is != should);
    let (what, is, should) = match wrong.next() {
        Some(((name, is), should)) => (format!("snapshot {name}: "), &is[..], &should[..]),
        None => (String::new(), &is.bytes[..], &should.bytes[..]),
    };
    if is.len() != should.len() {
        return format!("{what}{} bytes for {}", is.len(), should.len());
    }
    let differ: Vec<usize> = (0..is.len()).filter(|n| is[*n] != should[*n]).collect();
    let (first, last) = (differ.first().unwrap_or(&0), differ.last().unwrap_or(&0));
    format!("{what}{} bytes differ, from {first} to {last}", differ.len())
}
