//! The progress of a state machine, which purges of its log wait for.
//!
//! openraft 0.9 hands a received snapshot to the state machine, and purges the log up to it at
//! once. It does not wait for the installation. A crash in between would leave a log that begins
//! behind the machine's state, and no node could start from that.
//!
//! May import nothing of the crate.

use tokio::sync::watch;

/// The index up to which a state machine has the effects of its log durably. Clones share it.
///
/// A [`LogStore`](crate::LogStore) that goes [behind](crate::LogStore::behind) it purges no entry
/// beyond.
#[derive(Clone, Debug)]
pub struct Progress(watch::Sender<Reached>);

#[derive(Clone, Copy, Debug)]
enum Reached {
    /// Everything up to this entry, or nothing yet.
    UpTo(Option<u64>),
    /// The machine has failed, and goes no further.
    Failed,
}

impl Progress {
    /// Returns the progress of a machine that has everything up to the entry `index`, durably, or
    /// nothing yet.
    pub fn new(index: Option<u64>) -> Progress {
        Progress(watch::Sender::new(Reached::UpTo(index)))
    }

    /// Says that the machine has everything up to the entry `index`, durably.
    pub fn reach(&self, index: u64) {
        self.0.send_if_modified(|reached| match reached {
            Reached::UpTo(before) if *before < Some(index) => {
                *before = Some(index);
                true
            }
            _ => false,
        });
    }

    /// Says that the machine goes no further. Purges that wait fail.
    pub fn fail(&self) {
        self.0.send_replace(Reached::Failed);
    }

    /// Begins a step of the machine. If it ends without [`Step::end`], by an error or a panic, the
    /// machine has failed.
    pub fn step(&self) -> Step {
        Step(Some(self.clone()))
    }

    /// Waits until the machine has everything up to the entry `index`. Returns `false` if it never
    /// will.
    pub(crate) async fn wait_for(&self, index: u64) -> bool {
        let mut told = self.0.subscribe();
        let is_decided = |reached: &Reached| match reached {
            Reached::UpTo(up_to) => *up_to >= Some(index),
            Reached::Failed => true,
        };
        matches!(told.wait_for(is_decided).await.as_deref(), Ok(Reached::UpTo(_)))
    }
}

/// A step of a machine that is under way.
#[derive(Debug)]
#[must_use = "the machine has failed when it is dropped"]
pub struct Step(Option<Progress>);

impl Step {
    /// Ends the step well.
    pub fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(progress) = &self.0 {
            progress.fail();
        }
    }
}
