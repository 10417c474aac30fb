//! The program behind `lab/power`: durable points on real file systems, at the level of blocks.
//!
//! | arguments | action |
//! |---|---|
//! | `run --fs F --seed N --operations N --images N --folder D` | records a disk, checks images |
//! | `probe --fs F --seed N --folder D` | fails if this machine cannot serve and mount a disk |
//! | `write ..`, `check ..` | processes that a run starts |
//!
//! The folder D must be empty. A run ends with the line `images N violations N unmountable N`.
//!
//! The disk is memory of this process. The process serves it to the kernel as a file, under a loop
//! device. So it sees every block that the kernel writes, and every flush. Another process maps the
//! files, because a process that waits for its own page faults would never answer.
//!
//! | module | contents |
//! |---|---|
//! | [`run`] | one run |
//! | [`disk`] | the sectors and the events of a disk |
//! | [`fuse`] | the kernel's access to the disk |
//! | [`mounts`] | loop devices, file systems and mounts |
//! | [`epochs`] | the images that a power loss can leave |
//! | [`images`] | the choice of images |
//! | [`script`], [`crowd`], [`database`] | the operations on a file, and its allowed states |
//! | [`log_script`] | the operations on a Raft log store, and its allowed states |
//! | [`log_store`] | the file of that store, and the calls on it |
//! | [`writer`] | the process that does the operations |
//! | [`expected`] | the expectations for an image, from the marks before it |
//! | [`checker`] | the process that compares an image with them |
//! | [`filter`] | answers that replace system calls |
//! | [`hurry`] | shortcuts that skip syncs without effect |

#[cfg(target_os = "linux")]
mod checker;
#[cfg(target_os = "linux")]
mod crowd;
#[cfg(target_os = "linux")]
mod database;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod epochs;
#[cfg(target_os = "linux")]
mod expected;
#[cfg(target_os = "linux")]
#[path = "../../../tests/it/common/filter.rs"]
mod filter;
#[cfg(target_os = "linux")]
mod fuse;
#[cfg(target_os = "linux")]
mod hurry;
#[cfg(target_os = "linux")]
mod images;
#[cfg(target_os = "linux")]
mod log_script;
#[cfg(target_os = "linux")]
mod log_store;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod script;
#[cfg(target_os = "linux")]
mod writer;

use std::process::ExitCode;

/// The result of an operation that can fail in any way.
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
            for unmountable in &outcome.unmountable {
                println!("unmountable {unmountable}");
            }
            let (violations, unmountable) = (outcome.violations.len(), outcome.unmountable.len());
            println!("images {} violations {violations} unmountable {unmountable}", outcome.images);
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
