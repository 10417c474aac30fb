//! Tests of `io::gather`.

use super::fixture::new_file;

/// Reads ranges of all sizes from pages in which random slices were written, with holes of the
/// home file between them.
#[test]
fn gather_copies_any_mix_of_slices_and_holes() {
    const LEN: usize = 6 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), LEN as u64);
    let mut model = vec![0u8; LEN];
    let mut state = 7u64;
    let mut random = |below: usize| {
        // Xorshift: the same sequence in every run.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for round in 0..4000 {
        // The second chunk is not written in the first rounds, so its home file stays a hole
        // until then.
        let first = if round < 3000 { 0 } else { 2 << 20 };
        let at = (random(64) * 4096 + random(4096) + first).min(LEN - 300);
        let data = vec![random(256) as u8; 1 + random(300)];
        file.write_at(&data, at as u64).expect("a write");
        model[at..at + data.len()].copy_from_slice(&data);
        if round % 4 == 0 {
            let len = 1 + random([200, 5000, 100_000, 3 << 20][round / 4 % 4]);
            let at = random((LEN - len).min(1 << 20)) + if round % 3 == 0 { 0 } else { first };
            let mut read = vec![0; len];
            file.engine().gather(&mut read, at as u64..(at + len) as u64).expect("a read");
            assert!(read == model[at..at + len], "{len} bytes at {at}, round {round}");
        }
    }
}
