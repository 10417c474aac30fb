//! Suppression of panic messages of the code under test, because its panics are reported as
//! findings.

use std::panic;
use std::sync::Mutex;

type Hook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send>;

/// The number of `Quiet` values, and the panic hook that printed before.
static PRINTING: Mutex<(usize, Option<Hook>)> = Mutex::new((0, None));

/// A guard: no panic is printed while one exists.
#[derive(Debug)]
pub struct Quiet(());

impl Quiet {
    /// Suppresses panic messages from now on.
    #[allow(clippy::new_without_default, reason = "it has an effect")]
    pub fn new() -> Quiet {
        let mut printing = PRINTING.lock().expect("no panic under it");
        printing.0 += 1;
        if printing.0 == 1 {
            printing.1 = Some(panic::take_hook());
            panic::set_hook(Box::new(|_| {}));
        }
        Quiet(())
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut printing = PRINTING.lock().expect("no panic under it");
        printing.0 -= 1;
        if printing.0 == 0
            && let Some(hook) = printing.1.take()
        {
            panic::set_hook(hook);
        }
    }
}
