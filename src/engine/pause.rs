//! Stops a thread between two steps of an operation. For tests.

use std::cell::RefCell;

thread_local! {
    static AFTER_LENGTH: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Runs `pause` in this thread once, right after the thread's next look at a file's length.
pub fn at_next_length(pause: impl FnOnce() + 'static) {
    AFTER_LENGTH.set(Some(Box::new(pause)));
}

/// The place of the pause.
pub fn after_length() {
    if let Some(pause) = AFTER_LENGTH.take() {
        pause();
    }
}
