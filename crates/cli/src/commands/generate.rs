//! `completions` and `man`: texts that are made from the arguments.

use crate::args::Args;
use crate::outcome::{Failure, Outcome};
use crate::place;
use crate::report::print;
use clap::{Command, CommandFactory};
use std::path::Path;

pub fn completions(shell: clap_complete::Shell) -> Result<Outcome, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "atomic-mmap", &mut text);
    print(&text)?;
    Ok(Outcome::Ok)
}

/// Prints the man page, or writes a page for each command into a folder.
pub fn man(folder: Option<&Path>) -> Result<Outcome, Failure> {
    let command = Args::command();
    match folder {
        Some(folder) => {
            std::fs::create_dir_all(folder).map_err(Failure::io(folder))?;
            let mut command = command.disable_help_subcommand(true);
            command.build();
            write_pages(&command, folder)?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(Failure::printing)?;
            print(&page)?;
        }
    }
    Ok(Outcome::Ok)
}

/// Writes the pages of a command and of those in it.
fn write_pages(command: &Command, folder: &Path) -> Result<(), Failure> {
    for within in command.get_subcommands().filter(|within| !within.is_hide_set()) {
        write_pages(within, folder)?;
    }
    let (page, mut text) = (clap_mangen::Man::new(command.clone()), Vec::new());
    page.render(&mut text).map_err(Failure::printing)?;
    place::write(folder, &page.get_filename(), &text)
}
