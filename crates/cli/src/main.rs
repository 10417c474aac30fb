//! The command line of `atomic-mmap`: looks at files, checks them, brings them home, repairs them.
//!
//! | file | holds |
//! |---|---|
//! | `args` | the arguments |
//! | `outcome` | exit codes, and the errors that lead to them |
//! | `report` | what a command prints, for people and as JSON |
//! | `progress` | progress on a terminal, and the end by SIGINT |
//! | `ask` | questions to the user |
//! | `verdict` | what a look at a file means for its user |
//! | `heat` | how many writes each part of a file had, and pictures of it |
//! | `place` | what commands make in folders of other users |
//! | `live` | copies of files that another process has open |
//! | `commands` | a file or a folder for each command |
//!
//! Invariant: a command opens a file by the public calls of `atomic-mmap` alone.

mod args;
mod ask;
mod commands;
mod heat;
mod live;
mod outcome;
mod place;
mod progress;
mod report;
mod verdict;

use args::{Args, Command};
use clap::Parser;
use outcome::{Failure, Outcome};
use report::tell;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(wrong) if wrong.use_stderr() => {
            // Without colours, since a shell may have put names of others into the arguments.
            tell(&wrong.render().to_string());
            return Outcome::Usage.into();
        }
        Err(asked) => asked.exit(),
    };
    if args.common.verbose {
        tell_events();
    }
    progress::end_on_interrupt(args.command.only_reads());
    let json = args.common.json;
    match run(args) {
        Ok(outcome) => outcome.into(),
        Err(failure) => {
            failure.print(json);
            failure.outcome().into()
        }
    }
}

fn run(args: Args) -> Result<Outcome, Failure> {
    let common = &args.common;
    match &args.command {
        Command::Inspect(of) => commands::inspect::run(common, of),
        Command::Verify(of) => commands::verify::run(common, of),
        Command::Settle(of) => commands::settle::run(common, of),
        Command::Repair(of) if of.pages => commands::pages::run(common, of),
        Command::Repair(of) => commands::repair::run(common, of),
        Command::Stats(of) => commands::stats::run(common, of),
        Command::Heatmap(of) => commands::heatmap::run(common, of),
        Command::Watch(of) => commands::watch::run(common, of),
        Command::Cp(of) => commands::cp::run(common, of),
        Command::Snapshot(what) => commands::snapshot::run(common, what),
        Command::Send(of) => commands::transfer::send(common, of),
        Command::Receive(of) => commands::transfer::receive(common, of),
        Command::Doctor(of) => commands::doctor::run(common, of),
        Command::Bench(of) => commands::bench::run(common, of),
        Command::Completions { shell } => commands::generate::completions(*shell),
        Command::Man { folder } => commands::generate::man(folder.as_deref()),
    }
}

/// Prints the events of the library to standard error.
fn tell_events() {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_writer(std::io::stderr)
        // It would tell of a broken standard error there, and panic.
        .log_internal_errors(false)
        .with_ansi(false)
        .without_time()
        .init();
}
