//! A file or a folder for each command.

pub mod bench;
pub mod cp;
pub mod doctor;
pub mod generate;
pub mod heatmap;
pub mod inspect;
pub mod pages;
pub mod repair;
pub mod settle;
pub mod snapshot;
pub mod stats;
pub mod transfer;
pub mod verify;
pub mod watch;
