//! The process of the daemon: proc(5).

use super::model::Process;
use rustix::param::{clock_ticks_per_second, page_size};
use std::fs;
use std::path::Path;

/// Fields of `stat` after the name of the program, which may have spaces: the state comes first.
const USER: usize = 11;
const SYSTEM: usize = 12;
const THREADS: usize = 17;
const VIRTUAL: usize = 20;
const RESIDENT: usize = 21;

/// The process whose folder in `/proc` this is.
pub(super) fn read(folder: &Path) -> Process {
    let stat = fs::read_to_string(folder.join("stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let ticks = number(USER).zip(number(SYSTEM)).map(|(user, system)| user + system);
    let limits = fs::read_to_string(folder.join("limits")).unwrap_or_default();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    Process {
        cpu_seconds: ticks.map(|ticks| ticks as f64 / clock_ticks_per_second() as f64),
        resident_bytes: number(RESIDENT).map(|pages| pages * page_size() as u64),
        virtual_bytes: number(VIRTUAL),
        threads: number(THREADS),
        open_files: fs::read_dir(folder.join("fd")).ok().map(|entries| entries.count() as u64),
        // Without a number it is unlimited.
        most_files: files.and_then(|line| line.split_whitespace().next()?.parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_spaces_and_brackets_in_its_name_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let stat = "7 (a) (b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 15 0 9 0 12345 1000000 3 0 0";
        fs::write(folder.path().join("stat"), stat).expect("ours");
        let limits =
            "Limit Soft Limit Hard Limit Units\nMax open files            1024    4096    files     \n";
        fs::write(folder.path().join("limits"), limits).expect("ours");
        let expected = Process {
            cpu_seconds: Some(200.0 / clock_ticks_per_second() as f64),
            resident_bytes: Some(3 * page_size() as u64),
            virtual_bytes: Some(1_000_000),
            threads: Some(9),
            open_files: None,
            most_files: Some(1024),
        };
        assert_eq!(read(folder.path()), expected);
    }

    #[test]
    fn this_process_is_read_and_one_that_is_not_there_is_empty() {
        let this = read(Path::new("/proc/self"));
        assert!(this.resident_bytes.is_some_and(|bytes| bytes > 1 << 16), "{this:?}");
        assert!(this.open_files.is_some_and(|files| files >= 3) && this.threads.is_some_and(|it| it >= 1));
        assert_eq!(read(Path::new("/proc/0")), Process::default());
    }
}
