//! A short tour of the crate.
//!
//! ```sh
//! cargo run --release --example quickstart            # in the temporary folder
//! cargo run --release --example quickstart -- /dev/shm
//! ```

mod scratch;

use atomic_mmap::zerocopy::FromBytes;
use atomic_mmap::{AtomicMappedFile, CloseMode, record};

record! {
    /// Any type of plain bytes without padding can be stored.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Player {
        level: u32,
        lives: u32,
        coins: u64,
    }
}

const PLAYER: u64 = 0;
const CHEST: u64 = 512;
const STORY: u64 = 4090;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = scratch::Scratch::from_args()?;
    let path = scratch.path("game.dat");

    // Makes a file of 1 MiB of zeros, or opens the existing one.
    let file = AtomicMappedFile::create(&path, 1 << 20)?;
    println!("{} is {} bytes long", path.display(), file.len());
    println!("on {}, what has returned survives: {:?}", file.medium(), file.survives());

    // Bytes 4090 to 4104 lie on two pages. A crash leaves all of them or none.
    file.write_at(b"all or nothing", STORY)?;
    let mut back = [0; 14];
    file.read_at(&mut back, STORY)?;
    println!("over a page boundary: {:?}", str::from_utf8(&back)?);

    // Stores a value instead of bytes.
    file.store(PLAYER, &Player { level: 1, lives: 3, coins: 50 })?;
    println!("stored and loaded: {:?}", file.load::<Player>(PLAYER)?);

    // Reads, changes and writes in one operation, even with concurrent writers.
    let level = file.update(PLAYER, |player: &mut Player| {
        player.level += 1;
        player.level
    })?;
    println!("updated: level {level}");

    // Two places in one operation: the coins are always in exactly one of them.
    file.transact(|tx| {
        tx.update(PLAYER, |player: &mut Player| player.coins -= 20)?;
        tx.update(CHEST, |coins: &mut u64| *coins += 20)
    })?;
    println!("moved 20 coins into the chest");

    // A transaction that is dropped without a commit has no effect.
    let mut tx = file.begin();
    tx.store(CHEST, &0_u64)?;
    drop(tx);

    // A dropped handle closes this way too, but `close` returns errors.
    file.close(CloseMode::Spatial)?;

    // The file is plain now: any program can read it.
    let bytes = std::fs::read(&path)?;
    let (player, _) = Player::read_from_prefix(&bytes).map_err(|_| "a file too short")?;
    println!("read from the plain file: {player:?}");

    let file = AtomicMappedFile::open(&path)?;
    assert_eq!(file.load::<Player>(PLAYER)?, Player { level: 2, lives: 3, coins: 30 });
    assert_eq!(file.load::<u64>(CHEST)?, 20);
    println!("opened again: everything is there");
    Ok(())
}
