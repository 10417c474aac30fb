//! A second thread, for operations by another thread than the lab's.
//!
//! Owns: [`Second`].

use crate::machine::world::be_thread;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A second thread, which runs the work that it receives, in order.
pub struct Second {
    work: Option<Sender<Box<dyn FnOnce() + Send>>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Default for Second {
    fn default() -> Self {
        Second::new()
    }
}

impl Second {
    /// Starts the thread.
    pub fn new() -> Second {
        let (work, get) = channel::<Box<dyn FnOnce() + Send>>();
        let (say, done) = channel();
        let thread = std::thread::spawn(move || {
            be_thread(1);
            while let Ok(work) = get.recv() {
                // The caller notices a panic of the code under test, because no answer arrives.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                if say.send(()).is_err() {
                    break;
                }
            }
        });
        Second { work: Some(work), done, thread: Some(thread) }
    }

    /// Runs the work there, and waits for its end.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        let sender = self.work.as_ref().expect("a living thread");
        sender.send(Box::new(work)).expect("a living thread");
        self.done.recv().expect("a living thread");
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}
