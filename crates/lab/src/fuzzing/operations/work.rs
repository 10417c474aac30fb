//! The operations of the target, on the file and on the model.
//!
//! May import: `state`, and what the target imports.

use super::state::{State, assert_same};
use super::{PAGE, Run, check_views, on_second_thread};
use crate::fuzzing::input::{Input, filling};
use atomic_mmap::{AtomicMappedFile, Error, View};

/// The most snapshots at one time.
const SNAPSHOTS: usize = 3;

impl Run<'_> {
    /// Does one operation on snapshots, or verifies the file.
    fn on_snapshots(&mut self, file: &AtomicMappedFile, has_views: bool, input: &mut Input<'_>) {
        let which = input.byte();
        let all = &self.model.sealed;
        let (oldest, newest) = (all.keys().next().cloned(), all.keys().next_back().cloned());
        let chosen = if which & 8 != 0 { oldest } else { newest };
        let has_room = all.len() < SNAPSHOTS;
        self.next += 1;
        let name = format!("{:04}", self.next);
        match (which & 7, chosen) {
            (0..=2, _) if has_room => {
                file.snapshot(&name).expect("to seal");
                self.model.seal(name);
            }
            (3, Some(chosen)) => {
                file.drop_snapshot(&chosen).expect("to drop");
                self.model.sealed.remove(&chosen);
            }
            (4..=5, Some(chosen)) => {
                let undo = (which & 1 == 1 && has_room).then_some(name);
                match file.roll_back(&chosen, undo.as_deref()) {
                    Ok(()) => self.model.roll_back(&chosen, undo),
                    Err(Error::Pinned { .. }) if has_views => {}
                    Err(error) => panic!("to roll back: {error}"),
                }
            }
            _ => State::of(file).assert_is(&self.model, "verified"),
        }
    }

    /// Returns a place in the file, and the number of bytes that fit there, at most `most`.
    fn place(&self, input: &mut Input<'_>, most: u64) -> (u64, usize) {
        let len = self.model.bytes.len() as u64;
        let at = match len {
            0 => 0,
            // Most operations overlap: in the first pages, and at the end of the first region.
            _ => {
                let at = match input.byte() {
                    n @ 0..=99 => u64::from(n) * 64 / 3,
                    n @ 100..=149 => 262_144 - 1600 + u64::from(n - 100) * 64,
                    n @ 150..=199 => u64::from(n - 150) * PAGE,
                    _ => input.number(3),
                };
                at % len
            }
        };
        (at, most.min(len - at) as usize)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.next += 1;
        filling(self.next, len)
    }

    fn apply(&mut self, at: u64, bytes: &[u8]) {
        self.model.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn operate<'f>(
        &mut self,
        file: &'f AtomicMappedFile,
        views: &mut Vec<(View<'f>, Vec<u8>)>,
        op: u8,
        input: &mut Input<'_>,
    ) {
        let second = op >> 5 & 1 == 1;
        match op & 31 {
            0..=8 => {
                let most = match op & 31 {
                    0..=3 => 1 + u64::from(input.byte()),
                    4 => 64,
                    5 => 1 + input.number(2) % 9000,
                    6 => PAGE * (1 + u64::from(input.byte() % 12)),
                    7 => 1 + input.number(3) % 300_000,
                    _ => PAGE,
                };
                let (mut at, mut len) = self.place(input, most);
                if matches!(op & 31, 6 | 8) {
                    at = at / PAGE * PAGE;
                    len = most.min(self.model.bytes.len() as u64 - at) as usize;
                }
                let bytes = self.bytes(len);
                self.apply(at, &bytes);
                if second {
                    let file = file.try_clone().expect("another handle");
                    on_second_thread(move || file.write_at(&bytes, at)).expect("to write");
                } else {
                    file.write_at(&bytes, at).expect("to write");
                }
            }
            9..=13 => self.transaction(file, op, second, input),
            14 => {
                let (at, len) = self.place(input, 8);
                if len == 8 {
                    let old = self.number(at);
                    let new = file.update(at, |n: &mut u64| {
                        *n = n.wrapping_add(3);
                        *n
                    });
                    assert_eq!(new.expect("to update"), old.wrapping_add(3));
                    self.apply(at, &old.wrapping_add(3).to_le_bytes());
                }
            }
            15 => {
                let (at, len) = self.place(input, 8);
                if len == 8 {
                    let (old, wrong) = (self.number(at), input.byte() & 1);
                    let slot = file.slot::<u64>(at).expect("a slot");
                    let expected = old ^ u64::from(wrong);
                    let done = slot.compare_exchange(&expected, &!old).expect("to compare");
                    assert_eq!(done.is_ok(), wrong == 0);
                    if wrong == 0 {
                        self.apply(at, &(!old).to_le_bytes());
                    }
                }
            }
            16 | 17 => {
                let (at, len) = self.place(input, 20_000);
                let view = file.view(at..at + len as u64).expect("a view");
                let bytes = self.model.bytes[at as usize..at as usize + len].to_vec();
                views.push((view, bytes));
            }
            18 | 19 => {
                check_views(views);
                if !views.is_empty() {
                    drop(views.swap_remove(usize::from(input.byte()) % views.len()));
                }
            }
            20 | 21 => {
                let (at, len) = self.place(input, 300_000);
                let range = at..at + len as u64;
                if second {
                    let file = file.try_clone().expect("another handle");
                    on_second_thread(move || file.deploy(range)).expect("to deploy");
                } else {
                    file.deploy(range).expect("to deploy");
                }
            }
            22..=24 => {
                let len = match op & 31 {
                    22 => self.place(input, 0).0,
                    23 => (self.model.bytes.len() as u64 + input.number(2)) % self.most,
                    _ => input.number(3) % self.most,
                };
                let bytes = second.then(|| self.bytes(len as usize));
                let changed = match &bytes {
                    Some(bytes) => file.replace(bytes),
                    None => file.set_len(len),
                };
                match changed {
                    Ok(()) => {
                        self.model.bytes.resize(len as usize, 0);
                        bytes.into_iter().for_each(|bytes| self.model.bytes = bytes);
                    }
                    Err(Error::Pinned { .. }) if !views.is_empty() => {}
                    Err(error) => panic!("{len} bytes: {error}"),
                }
            }
            25 => file.sync().map(drop).expect("to sync"),
            26 => {
                let (at, len) = self.place(input, 3 * PAGE);
                let mut found = vec![0; len];
                if second {
                    let file = file.try_clone().expect("another handle");
                    found = on_second_thread(move || file.read_at(&mut found, at).map(|()| found))
                        .expect("to read");
                } else {
                    file.read_at(&mut found, at).expect("to read");
                }
                assert_same(&found, &self.model.bytes[at as usize..at as usize + len], "read");
            }
            27 => State::of(file).assert_is(&self.model, "read"),
            31 if second => self.on_snapshots(file, !views.is_empty(), input),
            // Past the end: the write is refused and changes nothing.
            _ => {
                let at = self.model.bytes.len() as u64;
                let error = file.write_at(b"too far", at.saturating_sub(3));
                assert!(matches!(error, Err(Error::PastEnd { .. })), "{error:?}");
            }
        }
    }

    fn transaction(
        &mut self,
        file: &AtomicMappedFile,
        op: u8,
        second: bool,
        input: &mut Input<'_>,
    ) {
        let count = match op & 31 {
            9 | 10 => 2 + usize::from(input.byte() % 4),
            11 => 1 + usize::from(input.byte() % 100),
            _ => 3,
        };
        let mut parts = Vec::new();
        if op & 31 == 11 {
            // More words than a lane has room for: a few bytes on each of many pages.
            let (at, _) = self.place(input, 0);
            for n in 0..count as u64 {
                let at = (at + n * PAGE) % (self.model.bytes.len() as u64).max(1);
                parts.push((at, 10.min(self.model.bytes.len() as u64 - at) as usize));
            }
        } else {
            for _ in 0..count {
                let most = 1 + u64::from(input.byte()) * if op & 31 == 12 { 40 } else { 1 };
                parts.push(self.place(input, most));
            }
        }
        let rolls_back = op & 31 == 13;
        let was = self.model.clone();
        let mut writes = Vec::new();
        for (at, len) in parts {
            let bytes = self.bytes(len);
            self.apply(at, &bytes);
            writes.push((at, bytes, self.model.bytes[at as usize..at as usize + len].to_vec()));
        }
        let wanted = self.model.bytes.clone();
        let file = file.try_clone().expect("another handle");
        let work = move || {
            let mut tx = file.begin();
            for (at, bytes, now) in &writes {
                tx.write_at(bytes, *at).expect("to write");
                let mut found = vec![0; now.len()];
                tx.read_at(&mut found, *at).expect("to read one's own");
                assert_same(&found, now, "one's own");
            }
            if let Some((at, ..)) = writes.first() {
                let len = (wanted.len() - *at as usize).min(200);
                let mut found = vec![0; len];
                tx.read_at(&mut found, *at).expect("to read");
                assert_same(&found, &wanted[*at as usize..*at as usize + len], "in a transaction");
            }
            if rolls_back {
                tx.rollback();
            } else {
                tx.commit().expect("to commit");
            }
        };
        if second {
            on_second_thread(work);
        } else {
            work();
        }
        if rolls_back {
            self.model = was;
        }
    }

    fn number(&self, at: u64) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|n| self.model.bytes[at as usize + n]))
    }
}
