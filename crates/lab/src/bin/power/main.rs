//! What `lab/power` runs: durable points on real file systems, at the level of their blocks.
//!
//! | arguments | |
//! |---|---|
//! | `run --fs F --seed N --operations N --images N --folder D` | records one file system's disk and looks at images of it. D is empty. Says `images N violations N` at the end |
//! | `probe --fs F --seed N --folder D` | fails where this machine does not let a disk be served, or the file system be mounted |
//! | `write ..`, `check ..` | processes that a run starts |
//!
//! The disk is this process's memory, served to the kernel as a file, with a loop device over it. So every
//! block that the kernel writes comes by here, and every flush. Whoever maps files is another process: one
//! that waits for its own page faults would never answer.
//!
//! | module | question |
//! |---|---|
//! | [`run`] | how does one run go? |
//! | [`disk`] | what is on the disk, and what has happened to it? |
//! | [`fuse`] | how does the kernel get at the disk? |
//! | [`mounts`] | how does a disk become a folder? |
//! | [`epochs`] | what may the disk hold when the power goes? |
//! | [`images`] | which of that is tried? |
//! | [`script`], [`crowd`] | what is done to a file, and what may be left of it? |
//! | [`writer`] | who does it? |
//! | [`expected`] | what must an image hold, by the marks before it? |
//! | [`checker`] | does it? |
//! | [`hurry`] | without waiting for syncs that matter to nobody? |

#[cfg(target_os = "linux")]
mod checker;
#[cfg(target_os = "linux")]
mod crowd;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod epochs;
#[cfg(target_os = "linux")]
mod expected;
#[cfg(target_os = "linux")]
mod fuse;
#[cfg(target_os = "linux")]
mod hurry;
#[cfg(target_os = "linux")]
mod images;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod script;
#[cfg(target_os = "linux")]
mod writer;

use std::process::ExitCode;

/// Anything that went wrong.
#[cfg(target_os = "linux")]
type Anything<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("this needs Linux");
    ExitCode::FAILURE
}

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    match linux() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("power: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(target_os = "linux")]
fn linux() -> Anything<ExitCode> {
    let mut words = std::env::args().skip(1);
    let mode = words.next().ok_or("run, write or check?")?;
    let mut options = std::collections::HashMap::new();
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
        options.insert(option, value);
    }
    let get = |option: &str| options.get(option).ok_or_else(|| format!("{option} is missing"));
    let seed = get("--seed")?.parse()?;
    let folder = get("--folder")?.into();
    match mode.as_str() {
        "run" => {
            let run = run::Run {
                system: get("--fs")?.parse()?,
                seed,
                operations: get("--operations")?.parse()?,
                images: get("--images")?.parse()?,
                folder,
                keep: options.get("--keep").map(Into::into),
            };
            let outcome = run.run()?;
            for violation in &outcome.violations {
                println!("violation {violation}");
            }
            println!("images {} violations {}", outcome.images, outcome.violations.len());
            let is_clean = outcome.violations.is_empty();
            Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        "probe" => {
            let system = get("--fs")?.parse()?;
            let run = run::Run { system, seed, operations: 0, images: 0, folder, keep: None };
            run.probe()?;
            Ok(ExitCode::SUCCESS)
        }
        "write" => {
            let operations = get("--operations")?.parse()?;
            writer::write(&folder, get("--marks")?.as_ref(), seed, operations)?;
            Ok(ExitCode::SUCCESS)
        }
        "check" => {
            let device: std::path::PathBuf = get("--device")?.into();
            let recovers = get("--recovers")?.parse()?;
            checker::answer(get("--fs")?.parse()?, &device, &folder, seed, recovers)?;
            Ok(ExitCode::SUCCESS)
        }
        other => Err(format!("{other}? run, probe, write, check").into()),
    }
}
