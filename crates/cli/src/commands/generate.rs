//! `completions` and `man`: texts that are made from the arguments.

use crate::args::Args;
use crate::outcome::{Failure, Outcome};
use crate::report::print;
use clap::CommandFactory;
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
            clap_mangen::generate_to(command, folder).map_err(Failure::io(folder))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(Failure::printing)?;
            print(&page)?;
        }
    }
    Ok(Outcome::Ok)
}
