//! Settings in JSON: the file is the document, and no crash leaves half of one.
//!
//! `cargo run --release --example settings -- [folder]`

mod scratch;

use atomic_mmap::{AtomicMappedFile, CloseMode};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Default, PartialEq, Debug)]
struct Settings {
    theme: String,
    recent: Vec<String>,
}

fn load(file: &AtomicMappedFile) -> std::io::Result<Settings> {
    match &file.read_vec()?[..] {
        [] => Ok(Settings::default()), // a new file
        document => Ok(serde_json::from_slice(document)?),
    }
}

fn save(file: &AtomicMappedFile, settings: &Settings) -> std::io::Result<()> {
    file.replace(&serde_json::to_vec_pretty(settings)?)?; // bytes and length: one operation
    Ok(file.sync().map(drop)?) // from here on it survives a power loss
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = scratch::Scratch::from_args()?;
    let path = scratch.path("settings.json");
    let file = AtomicMappedFile::options().create(true).open(&path)?;
    let mut settings = Settings { theme: "dark".into(), ..load(&file)? };
    save(&file, &settings)?;
    settings.recent.push("a.txt".into());
    save(&file, &settings)?;
    file.close(CloseMode::Spatial)?; // a plain file again, for every editor
    assert_eq!(serde_json::from_slice::<Settings>(&std::fs::read(&path)?)?, settings);
    println!("{}: {}", path.display(), std::fs::read_to_string(&path)?);
    Ok(())
}
