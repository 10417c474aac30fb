use atomic_mmap::{AtomicMappedFile, CloseMode, record};

record! {
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Vote {
        term: u64,
        candidate: u64,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Makes a file of 1 MiB of zeros. If it exists, opens it with what it holds.
    let f = AtomicMappedFile::create("state.dat", 1 << 20)?;

    // Bytes. This write crosses a page boundary, and is still one operation.
    f.write_at(b"all or nothing", 4090)?;
    let mut back = [0; 14];
    f.read_at(&mut back, 4090)?;
    assert_eq!(&back, b"all or nothing");

    // Records.
    f.store(0, &Vote { term: 7, candidate: 2 })?;
    assert_eq!(f.load::<Vote>(0)?.term, 7);

    // Read-modify-write, as one operation.
    let runs = f.update(64, |n: &mut u64| {
        *n += 1;
        *n
    })?;
    println!("run {runs}");

    // Handles to one value and to an array of values. A struct can keep them (`into_owned`).
    let vote = f.slot::<Vote>(0)?;
    let old = vote.load()?;
    assert_eq!(vote.compare_exchange(&old, &Vote { term: 8, candidate: 1 })?, Ok(()));
    let offsets = f.array::<u64>(8192, 1000)?;
    offsets.set(3, &41)?;
    offsets.slot(3)?.fetch_max(42)?;
    assert_eq!(offsets.get(3)?, 42);

    // A transaction over any ranges. The closure runs again after a conflict.
    f.transact(|tx| {
        let a: u64 = tx.load(8192)?;
        tx.store(8200, &(a + 1))?;
        tx.write_at(b"together", 100_000)
    })?;

    // Closing leaves one plain, complete file, and no hidden files beside it.
    f.close(CloseMode::Spatial)?;
    assert_eq!(std::fs::read("state.dat")?.len(), 1 << 20);
    Ok(())
}
