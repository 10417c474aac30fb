//! Messages to the host.

use std::fs::File;
use std::io::Write;
use std::sync::Mutex;

/// A serial line to the host, or a file. A message counts once its line end has arrived.
pub struct Say(Mutex<File>);

impl Say {
    pub fn new(file: File) -> Say {
        Say(Mutex::new(file))
    }

    pub fn line(&self, text: &str) {
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // If no message reaches the host, the run is useless.
        file.write_all(format!("{text}\n").as_bytes()).expect("say");
    }

    pub fn violation(&self, text: &str) {
        self.line(&format!("violation {}", text.replace('\n', " ")));
        eprintln!("violation: {text}");
    }
}
