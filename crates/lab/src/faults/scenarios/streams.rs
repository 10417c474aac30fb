//! Streams between files: the calls that send and take them.
//!
//! Owns: the streams that the calls take. They are exported from other files, where nothing fails.

use super::ops::{Bench, Failure, difference};
use super::start::bytes;
use crate::faults::files::{REFLECTION_PREFIX, REPLICA};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Result, StreamError};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of a stream's header, and of a frame before its body.
const HEADER: usize = 320;
const FRAME: usize = 32;

/// A stream that a call takes.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The name of the snapshot.
    pub name: &'static str,
    /// The length that the file gets.
    pub len: u64,
    /// The stream has a whole file, and no changes of the present.
    pub is_whole: bool,
    /// Distance of the slices that change, in bytes.
    pub step: usize,
}

impl Stream {
    /// Returns the content that the stream of call number `n` leads to. The present is `model`.
    pub fn content(&self, n: usize, model: &[u8]) -> Vec<u8> {
        let data = |at: usize, len| bytes(3000 * (n as u64 + 1) + at as u64, len);
        let mut to = if self.is_whole { data(0, self.len as usize) } else { model.to_vec() };
        to.resize(self.len as usize, 0);
        for at in (0..to.len().saturating_sub(100)).step_by(self.step) {
            to[at..at + 90].copy_from_slice(&data(at, 90));
        }
        if self.is_whole {
            to[9_000..30_000].fill(0);
        }
        to
    }

    /// Returns the bytes of the stream.
    fn bytes(&self, n: usize, bench: &Bench) -> Arc<Vec<u8>> {
        type Made = BTreeMap<(Option<Vec<u8>>, Vec<u8>, &'static str), Arc<Vec<u8>>>;
        static MADE: Mutex<Made> = Mutex::new(BTreeMap::new());
        let to = self.content(n, &bench.model);
        let base = (!self.is_whole && !bench.model.is_empty()).then(|| bench.model.clone());
        let mut made = MADE.lock().expect("no panic");
        let key = (base, to, self.name);
        if let Some(found) = made.get(&key) {
            return Arc::clone(found);
        }
        let stream = Arc::new(send(&bench.ground.base, &key).expect("a stream"));
        made.insert(key, Arc::clone(&stream));
        stream
    }
}

/// Makes a stream from one content to another, by a file of its own.
fn send(
    folder: &Path,
    (base, to, name): &(Option<Vec<u8>>, Vec<u8>, &'static str),
) -> Result<Vec<u8>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let path = folder.join(format!("sender-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let sender = AtomicMappedFile::create(&path, 0)?;
    let mut stream = Vec::new();
    if let Some(base) = base {
        sender.replace(base)?;
        sender.snapshot("base")?;
    }
    sender.replace(to)?;
    sender.snapshot(name)?;
    sender.export(base.is_some().then_some("base"), name, &mut stream)?;
    for found in sender.snapshots() {
        sender.drop_snapshot(&found.name)?;
    }
    sender.close(CloseMode::Spatial)?;
    fs::remove_file(path).expect("remove");
    Ok(stream)
}

/// Returns the offset of frame `n`.
fn frame(stream: &[u8], n: usize) -> usize {
    let len = |at: usize| u32::from_le_bytes(stream[at + 12..at + 16].try_into().expect("4 bytes"));
    (0..n).fold(HEADER, |at, _| at + FRAME + len(at) as usize)
}

/// Exports a snapshot, and compares what a file that takes the stream has.
pub fn export(bench: &Bench, from: Option<&str>, to: &str) -> std::result::Result<(), Failure> {
    let file = bench.file.as_ref().expect("it is open");
    let mut streams = Vec::new();
    let all = from.map(|from| (None, from)).into_iter().chain([(from, to)]);
    for (from, to) in all {
        let mut stream = Vec::new();
        file.export(from, to, &mut stream)?;
        streams.push(stream);
    }
    let path = bench.place.folder.with_extension("taken");
    let _of_the_last_run = fs::remove_file(&path);
    let taken = AtomicMappedFile::options().import(&path, &streams[0][..]);
    let (taken, _) = taken.map_err(|e| wrong(&format!("the stream is not taken: {e:?}")))?;
    for stream in &streams[1..] {
        taken.import(&stream[..]).map_err(|e| wrong(&format!("the changes are not: {e:?}")))?;
    }
    let mut found = vec![0; taken.len() as usize];
    taken.read_at(&mut found, 0).map_err(|e| wrong(&format!("{e:?}")))?;
    for info in taken.snapshots() {
        taken.drop_snapshot(&info.name).map_err(|e| wrong(&format!("{e:?}")))?;
    }
    taken.close(CloseMode::Spatial).map_err(|e| wrong(&format!("{e:?}")))?;
    fs::remove_file(&path).map_err(|e| wrong(&format!("{e:?}")))?;
    difference(&found, &bench.sealed[to]).map_or(Ok(()), |what| Err(wrong(&what)))
}

fn wrong(what: &str) -> Failure {
    Failure::Wrong(what.to_owned())
}

/// Takes a stream.
pub fn import(bench: &Bench, n: usize, stream: &Stream) -> std::result::Result<(), Failure> {
    let (file, bytes) = (bench.file.as_ref().expect("it is open"), stream.bytes(n, bench));
    match stream.is_whole {
        true => file.import_over(&bytes[..])?,
        false => file.import(&bytes[..])?,
    };
    Ok(())
}

/// Takes a stream that breaks behind `frames` frames.
pub fn break_off(
    bench: &Bench,
    n: usize,
    (stream, frames): (&Stream, usize),
) -> std::result::Result<(), Failure> {
    let (file, bytes) = (bench.file.as_ref().expect("it is open"), stream.bytes(n, bench));
    let broken = &bytes[..frame(&bytes, frames) + 20];
    match file.import(broken) {
        Err(Error::Stream { why: StreamError::Cut { frames: found, .. }, .. })
            if found == frames as u64 =>
        {
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err(wrong("a stream is taken that ends too early")),
    }
}

/// Takes the rest of a stream. A call that has failed may have removed the beginning, once all was
/// there. The stream then comes anew.
pub fn resume(
    bench: &mut Bench,
    n: usize,
    (stream, frames): (&Stream, usize),
) -> std::result::Result<(), Failure> {
    // The call before this one has received the beginning of the same stream.
    let bytes = stream.bytes(n - 1, bench);
    let mut rest = bytes[..HEADER].to_vec();
    let found = AtomicMappedFile::import_progress(bench.place.home())?;
    let first = if bench.may_spool_be_gone { frames.min(found as usize) } else { frames };
    rest[16..24].copy_from_slice(&(first as u64).to_le_bytes());
    let sum = crc32c::crc32c(&rest[12..]);
    rest[8..12].copy_from_slice(&sum.to_le_bytes());
    rest.extend_from_slice(&bytes[frame(&bytes, first)..]);
    let result = bench.file.as_ref().expect("it is open").import(&rest[..]);
    bench.may_spool_be_gone |= result.is_err();
    Ok(result.map(drop)?)
}

/// Makes a file beside the open one, compares it, and removes it.
pub fn make(bench: &Bench, n: usize, stream: &Stream) -> std::result::Result<(), Failure> {
    let path = bench.place.folder.join(REPLICA);
    let (bytes, to) = (stream.bytes(n, bench), stream.content(n, &bench.model));
    // A failed call has left nothing, or the whole file.
    if let Ok(left) = fs::read(&path) {
        difference(&left, &to).map_or(Ok(()), |what| Err(wrong(&format!("left: {what}"))))?;
        fs::remove_file(&path).expect("remove");
        remove_companions(bench);
    }
    let options = bench.ground.options();
    let (made, report) = options.import_recorded(&bench.recorder, &path, &bytes[..])?;
    let mut found = vec![0; made.len() as usize];
    made.read_at(&mut found, 0)?;
    difference(&found, &to).map_or(Ok(()), |what| Err(wrong(&what)))?;
    made.drop_snapshot(&report.snapshot.name)?;
    made.close(CloseMode::Spatial)?;
    fs::remove_file(&path).expect("remove");
    Ok(())
}

/// Removes the companions of the file that was made.
fn remove_companions(bench: &Bench) {
    let own = bench.place.reflection().expect("the home file is there");
    let own = own.file_name().expect("a name").to_string_lossy().into_owned();
    for path in bench.place.names() {
        let name = path.file_name().expect("a name").to_string_lossy();
        if name.starts_with(REFLECTION_PREFIX) && !name.starts_with(&own) {
            fs::remove_file(&path).expect("remove");
        }
    }
}
