//! Tests of the command line: every command, exit code and JSON object, over files in every state.

mod common;
mod ends;
mod files;
mod live;
mod names;
mod refusals;
mod snapshots;
mod texts;
mod transfer;
