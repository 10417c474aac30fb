//! The process that checks images. It mounts the disk and opens the files as after a restart. It
//! compares their bytes and continues to work with some of them.
//!
//! The process receives `mark TEXT` for each mark before the power loss, and then `image SEED`. It
//! answers with one line: `ok` or `bad WHY`.
//!
//! A second process of this kind receives `recover` instead. It opens and closes the files and
//! syncs its writes, because the power may fail again during this recovery.

use crate::Anything;
use crate::crowd::LEN;
use crate::database;
use crate::expected::{Expected, Logged, Stored};
use crate::hurry::{skip_syncs, stop};
use crate::log_store::{self, Logs, call};
use crate::mounts::{System, other_boot, own_mounts, unmount};
use crate::run::UNMOUNTABLE;
use crate::script::Content;
use crate::writer::{options, options_of};
use atomic_mmap::{AtomicMappedFile, CloseMode, Options};
use pollster::block_on;
use std::fs;
use std::io::{Write, stdin, stdout};
use std::path::Path;

/// The process continues to work with one image out of this number. That costs as much as five
/// other images.
const GO_ON: u8 = 8;

/// Answers requests until there are no more.
pub fn answer(
    system: System,
    device: &Path,
    folder: &Path,
    seed: u64,
    recovers: bool,
) -> Anything<()> {
    own_mounts()?;
    let scratch = folder.parent().ok_or("a folder in the scratch folder")?;
    if recovers {
        other_boot(scratch, 1)?;
    } else {
        // The files that the other process left belong to an earlier boot, too.
        other_boot(scratch, 2)?;
        skip_syncs()?;
    }
    let mut expected = Expected::new(system, seed);
    for line in stdin().lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("mark", mark)) => expected.hear(mark)?,
            Some(("image", seed)) => {
                let mut random = fastrand::Rng::with_seed(seed.parse()?);
                say(look(system, device, folder, &expected, &mut random))?;
            }
            None if line == "recover" => say(recover(system, device, folder, &expected))?,
            _ => return Err(format!("{line:?} is not understood").into()),
        }
    }
    Ok(())
}

fn say(result: Anything<()>) -> Anything<()> {
    let answer = match result {
        Ok(()) => "ok".to_owned(),
        Err(why) => format!("bad {}", why.to_string().replace('\n', " ")),
    };
    Ok(writeln!(stdout(), "{answer}")?)
}

/// Opens and closes each file that exists.
fn recover(system: System, device: &Path, folder: &Path, expected: &Expected) -> Anything<()> {
    system
        .mount(device, folder)
        .map_err(|e| format!("{UNMOUNTABLE}: {} cannot be mounted: {e}", system.name()))?;
    let open_all = || -> Anything<()> {
        let scripts = expected.scripts.iter().map(|file| file.plan);
        let crowds = expected.crowds.iter().map(|file| file.crowd);
        let scripts = scripts.map(|plan| (plan.name, options_of(&plan)));
        let crowds = crowds.map(|crowd| (crowd.name, options(crowd.durability, LEN)));
        for (name, options) in scripts.chain(crowds) {
            if folder.join(name).exists() {
                options.open(folder.join(name))?.close(CloseMode::Fast)?;
            }
        }
        if folder.join(log_store::FILE).exists() {
            Logs::open(folder)?.close(shipped::CloseMode::Fast)?;
        }
        for database in expected.databases.iter().map(|file| file.database) {
            if folder.join(database.name).exists() {
                let connection = database.open(folder, "fast")?;
                database::last(&connection)?;
                connection.close().map_err(|(_, error)| error)?;
            }
        }
        Ok(())
    };
    let opened = open_all();
    let unmounted = unmount(folder);
    opened?;
    Ok(unmounted?)
}

fn look(
    system: System,
    device: &Path,
    folder: &Path,
    expected: &Expected,
    random: &mut fastrand::Rng,
) -> Anything<()> {
    system
        .mount(device, folder)
        .map_err(|e| format!("{UNMOUNTABLE}: {} cannot be mounted: {e}", system.name()))?;
    let found = look_at_files(folder, expected, random);
    stop(folder);
    let unmounted = unmount(folder);
    found?;
    Ok(unmounted.map_err(|e| format!("cannot be unmounted: {e}"))?)
}

fn look_at_files(folder: &Path, expected: &Expected, random: &mut fastrand::Rng) -> Anything<()> {
    for file in &expected.scripts {
        let (name, plan) = (file.plan.name, &file.plan);
        let path = folder.join(name);
        if let Some(plain) = file.plain()
            && fs::read(&path).map_err(|e| format!("{name}, closed: {e}"))? != plain
        {
            return Err(format!("{name}: the plain bytes are not what was closed").into());
        }
        let options = || options_of(plan);
        look_at_file(&path, &options, file.may_be_missing(), &|found| file.check(found), random)?;
    }
    for file in &expected.crowds {
        let path = folder.join(file.crowd.name);
        let options = || options(file.crowd.durability, LEN);
        look_at_file(&path, &options, file.may_be_missing(), &|found| file.check(found), random)?;
    }
    for file in &expected.databases {
        let looked = look_at_database(folder, file, random);
        looked.map_err(|e| format!("{}: {e}", file.database.name))?;
    }
    let looked = look_at_log(folder, &expected.log, random);
    Ok(looked.map_err(|e| format!("{}: {e}", log_store::FILE))?)
}

/// Opens a database, and runs more transactions in some of them. These must leave a plain file,
/// which SQLite reads without this crate.
fn look_at_database(folder: &Path, file: &Stored, random: &mut fastrand::Rng) -> Anything<()> {
    let path = folder.join(file.database.name);
    if !path.exists() {
        return if file.numbers.may_be_missing() { Ok(()) } else { Err("it is gone".into()) };
    }
    let goes_on = random.u8(..GO_ON) == 0;
    let connection = file.database.open(folder, if goes_on { "spatial" } else { "fast" })?;
    let mut last = database::last(&connection)?;
    file.numbers.check(last)?;
    if goes_on {
        for _ in 0..3 {
            last += 1;
            database::run(&connection, last, random.u64(..))?;
        }
    }
    connection.close().map_err(|(_, error)| error)?;
    if goes_on {
        let plain = rusqlite::Connection::open(path)?;
        let found = database::last(&plain)?;
        if found != last {
            return Err(format!("going on: transaction {found} is the last one, not {last}").into());
        }
    }
    Ok(())
}

/// Opens the log store, and makes more calls in some of its images.
fn look_at_log(folder: &Path, file: &Logged, random: &mut fastrand::Rng) -> Anything<()> {
    if !folder.join(log_store::FILE).exists() {
        return if file.numbers.may_be_missing() { Ok(()) } else { Err("it is gone".into()) };
    }
    let mut logs = Logs::open(folder)?;
    let mut state = file.state_of(&logs.read()?)?;
    if random.u8(..GO_ON) == 0 {
        for _ in 0..6 {
            let op = state.advance();
            block_on(call(&mut logs.groups[state.group()], op))?;
        }
        logs.close(shipped::CloseMode::Spatial)?;
        logs = Logs::open(folder)?;
        if let Some(differs) = state.difference(&logs.read()?) {
            return Err(format!("going on: {differs}").into());
        }
    }
    logs.close(shipped::CloseMode::Fast)
}

fn look_at_file(
    path: &Path,
    options: &dyn Fn() -> Options,
    may_be_missing: bool,
    check: &dyn Fn(&Content) -> Result<(), String>,
    random: &mut fastrand::Rng,
) -> Anything<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !path.exists() {
        return if may_be_missing { Ok(()) } else { Err(format!("{name} is gone").into()) };
    }
    let file = options().open(path).map_err(|e| format!("{name} does not open: {e}"))?;
    let found = Content::of(&file).map_err(|e| format!("{name}: {e}"))?;
    check(&found)?;
    if random.u8(..GO_ON) == 0 {
        go_on(path, file, found, options, random).map_err(|e| format!("{name}, going on: {e}"))?;
    } else {
        file.close(CloseMode::Fast).map_err(|e| format!("{name}: closing: {e}"))?;
    }
    Ok(())
}

/// Writes, syncs, closes and reopens the file.
fn go_on(
    path: &Path,
    file: AtomicMappedFile,
    mut content: Content,
    options: &dyn Fn() -> Options,
    random: &mut fastrand::Rng,
) -> Anything<()> {
    let bytes = &mut content.bytes;
    for _ in 0..4 {
        let len = random.usize(1..=bytes.len().min(20_000));
        let at = random.usize(..=bytes.len() - len);
        let mut data = vec![0; len];
        random.fill(&mut data);
        file.write_at(&data, at as u64)?;
        bytes[at..at + len].copy_from_slice(&data);
        if random.bool() {
            file.sync()?;
        }
    }
    let mode = if random.bool() { CloseMode::Fast } else { CloseMode::Spatial };
    file.close(mode)?;
    if mode == CloseMode::Spatial && fs::read(path)? != content.bytes {
        return Err("the plain bytes are others".into());
    }
    let file = options().open(path)?;
    if Content::of(&file)? != content {
        return Err("opened again it holds other bytes".into());
    }
    file.close(CloseMode::Fast)?;
    Ok(())
}
