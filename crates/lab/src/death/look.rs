//! The look at the files that a killed process has left.
//!
//! Owns: how a child opens the files, compares them, and closes them in each way.
//!
//! May import: `kinds`, `state`.

use super::kinds::Stage;
use super::state::State;
use atomic_mmap::{CloseMode, Error, Integrity};

/// Beginning of the name of what was received of a stream. A crash in an import leaves it.
const RECEIVED: &str = ".atomic-mmap-import-";

/// Opens and recovers the files at `path`, and returns the number of the state that they hold. Then
/// closes the file, directly or after a fast close, and checks the plain bytes. The file gives up
/// its snapshots and sums, and leaves no companion. Runs in a child.
pub fn look(stage: &Stage<'_>, states: &[State], fast_first: bool) -> Result<usize, String> {
    let call = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let file = stage.open().map_err(call("cannot be opened"))?;
    let found = State::of(&file)?;
    let state = states
        .iter()
        .position(|state| state.is(&found))
        .ok_or_else(|| format!("holds no state that may be: {}", found.differences(states)))?;
    let has_companions = !found.sealed.is_empty() || states.iter().any(|state| state.has_sums);
    let again = |file: &_, what: &str| match State::of(file)? {
        same if states[state].is(&same) => Ok(()),
        other => Err(format!("{what}: {}", other.differences(std::slice::from_ref(&found)))),
    };
    let file = if fast_first {
        file.close(CloseMode::Fast).map_err(call("cannot be closed fast"))?;
        let file = stage.open().map_err(call("cannot be opened again"))?;
        if has_companions {
            again(&file, "holds another state after a fast close")?;
        }
        file
    } else {
        file
    };
    file.close(CloseMode::Spatial).map_err(call("cannot be closed"))?;
    let plain = std::fs::read(stage.path).map_err(|e| format!("cannot be read: {e}"))?;
    if plain != found.bytes {
        let plain = State { bytes: plain, ..found.clone() };
        let wrong = plain.differences(std::slice::from_ref(&found));
        return Err(format!("the closed file holds other bytes than were read: {wrong}"));
    }
    if has_companions {
        let file = stage.open().map_err(call("cannot be opened after a spatial close"))?;
        again(&file, "holds another state after a spatial close")?;
        for name in found.sealed.keys() {
            file.drop_snapshot(name).map_err(call("a snapshot cannot be dropped"))?;
        }
        file.close(CloseMode::Fast).map_err(call("cannot be closed without snapshots"))?;
        let file = stage.open_as(Integrity::Off).map_err(call("cannot be opened without sums"))?;
        file.close(CloseMode::Spatial).map_err(call("cannot be closed without sums"))?;
    }
    let left: Vec<_> = std::fs::read_dir(stage.path.parent().expect("a folder"))
        .map_err(|e| e.to_string())?
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with(RECEIVED))
        .map(|entry| entry.path())
        .filter(|path| path != stage.path)
        .collect();
    if !left.is_empty() {
        return Err(format!("closed, and these are left: {left:?}"));
    }
    Ok(state)
}
