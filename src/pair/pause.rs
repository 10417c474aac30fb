//! Holds pauses between two steps of an operation, for tests.

use std::cell::RefCell;

thread_local! {
    static AFTER_LENGTH: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static AT_NEW_LENGTH: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Runs `pause` once in this thread, right after the thread next loads a file's length.
pub fn at_next_length(pause: impl FnOnce() + 'static) {
    AFTER_LENGTH.set(Some(Box::new(pause)));
}

/// Runs the pause that was set, if any. Called after each load of a file's length.
pub fn after_length() {
    if let Some(pause) = AFTER_LENGTH.take() {
        pause();
    }
}

/// Runs `pause` once in this thread, right after the thread next publishes a new length.
pub fn at_next_new_length(pause: impl FnOnce() + 'static) {
    AT_NEW_LENGTH.set(Some(Box::new(pause)));
}

/// Runs the pause that was set, if any. Called after each new length.
pub fn after_new_length() {
    if let Some(pause) = AT_NEW_LENGTH.take() {
        pause();
    }
}
