//! A file under the preload does what a vector of bytes does.
//!
//! The variable `ATOMIC_MMAP_PRELOAD_STEPS` sets the number of steps.

use crate::common::{Scratch, child, number_from};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const STEPS: u64 = 20_000;
/// Longest file, in bytes.
const MOST: u64 = 200_000;

/// Plays the role: random steps on the file and on the model.
pub fn compare(path: &Path, seed: u64) {
    let random = &mut fastrand::Rng::with_seed(seed);
    let mut model: Vec<u8> = Vec::new();
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = open().expect("open");
    for step in 0..number_from("ATOMIC_MMAP_PRELOAD_STEPS", STEPS) {
        let at = random.u64(..MOST);
        let data = vec![random.u8(..); random.usize(..20_000)];
        match random.u8(..20) {
            0..6 => write(&file, &mut model, at, &data),
            6..12 => {
                let mut read = vec![0; data.len()];
                let count = file.read_at(&mut read, at).expect("read");
                let expected = model.get(at as usize..).unwrap_or_default();
                assert_eq!(
                    read[..count],
                    expected[..data.len().min(expected.len())],
                    "step {step}"
                );
            }
            12..14 => {
                file.set_len(at).expect("set the length");
                model.resize(at as usize, 0);
            }
            14..16 => {
                let mut other = OpenOptions::new().append(true).open(path).expect("open");
                if model.len() as u64 <= MOST {
                    other.write_all(&data).expect("append");
                    model.extend_from_slice(&data);
                }
            }
            16 => {
                let at = at.min(model.len() as u64);
                seek(&mut file, &mut model, at, &data);
            }
            17 => file.sync_data().expect("sync"),
            18 => assert_eq!(std::fs::metadata(path).expect("stat").len(), model.len() as u64),
            _ => {
                drop(file);
                // Closed, it is a plain file.
                file = open().expect("open");
            }
        }
    }
    drop(file);
    assert_eq!(std::fs::read(path).expect("read"), model);
}

fn write(file: &File, model: &mut Vec<u8>, at: u64, data: &[u8]) {
    file.write_all_at(data, at).expect("write");
    let (at, end) = (at as usize, at as usize + data.len());
    if !data.is_empty() {
        let len = model.len().max(end);
        model.resize(len, 0);
        model[at..end].copy_from_slice(data);
    }
}

fn seek(file: &mut File, model: &mut Vec<u8>, at: u64, data: &[u8]) {
    file.seek(SeekFrom::Start(at)).expect("seek");
    file.write_all(data).expect("write");
    let end = at as usize + data.len();
    let len = model.len().max(end);
    model.resize(len, 0);
    model[at as usize..end].copy_from_slice(data);
    file.seek(SeekFrom::End(-(model.len() as i64))).expect("seek");
    let mut read = Vec::new();
    file.read_to_end(&mut read).expect("read");
    assert!(read == *model);
}

#[test]
fn a_file_does_what_a_vector_of_bytes_does() {
    for seed in 0..2 {
        let scratch = Scratch::new();
        let path = scratch.path("x.dat");
        let output = child(&scratch, "model", &path, seed).output().expect("run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(scratch.companions(), [""; 0]);
    }
}
