//! A record appended to a log and made durable, against one write of it to a file that was opened
//! with `O_DSYNC`. That file is written with zeroes before, so its length and extents stay: the
//! least that a log can cost on a disk.

use crate::measure::{Effort, Turn, ratio, take_turns};
use crate::ratios::Found;
use crate::scratch::Scratch;
use atomic_mmap::{AtomicMappedFile, CloseMode, Roots};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Bytes of a record.
const RECORD: usize = 256;
/// Bytes of the file with `O_DSYNC`, which is written from its beginning again after its end.
const LEN: u64 = 8 << 20;
/// Number of records that the log keeps.
const KEPT: u64 = 10_000;

/// Measures appends that are durable when they return.
pub fn append(effort: &Effort, scratch: &Scratch, found: &mut Found) -> io::Result<()> {
    let file = AtomicMappedFile::create(scratch.path().join("ours"), 0)?;
    let roots = Roots::open(file.try_clone()?)?;
    let log = roots.log("log")?;
    file.sync()?;
    let plain = scratch.path().join("plain");
    fs::write(&plain, vec![0; LEN as usize])?;
    let plain = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(plain)?;
    plain.sync_all()?;
    let record = [7; RECORD];
    let mut at = 0;
    let mut turns: [Turn<'_>; 2] = [
        Box::new(|_, count| {
            for _ in 0..count {
                let seq = log.append(&[record]).expect("append");
                file.sync().expect("sync");
                if seq % KEPT == KEPT - 1 {
                    log.truncate_front(seq).expect("truncate");
                }
            }
        }),
        Box::new(|_, count| {
            for _ in 0..count {
                plain.write_all_at(&record, at % LEN).expect("write");
                at += RECORD as u64;
            }
        }),
    ];
    let series = take_turns(effort, 2, &mut turns);
    drop(turns);
    let told = "256 bytes appended, durable, against one write with O_DSYNC";
    found.add("log_append_vs_odsync", ratio(&series[0], &series[1]), told);
    drop((roots, log));
    file.close(CloseMode::Fast)?;
    Ok(())
}
