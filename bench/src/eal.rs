//! DPDK for benchmarks: EAL with the words of a command line.

use crate::Outcome;
use dpdk::{Eal, Library, completed};

/// Starts EAL with these words, separated by blanks; its own thread runs on `core`.
///
/// # Errors
/// DPDK is not installed, or refuses the words.
pub fn start(words: &str, core: usize) -> Outcome<()> {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    Eal::start(Library::find().map_err(dpdk::StartError::from)?, &completed(&words, core as u32), || ())?;
    Ok(())
}
