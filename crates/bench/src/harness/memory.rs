//! The state of the machine's memory at the start of a run.

use std::fs;
use std::io::{self, Write};

/// A folder in memory.
const FOLDER: &str = "/dev/shm";
const CHUNK: usize = 1 << 20;

/// Touches so many bytes of the machine's memory, and frees them.
///
/// Memory that was free for a while costs more: a virtual machine returns it to its host (free page
/// reporting), and clearing a page then takes six times as long. Which run pays for that is chance.
/// So compared runs start with recently used memory. Without a folder in memory, or room in it,
/// this does nothing.
pub fn touch(bytes: usize) {
    let path = format!("{FOLDER}/ribtide-bench-{}", std::process::id());
    let fill = || -> io::Result<()> {
        let mut file = fs::File::create(&path)?;
        let chunk = vec![1; CHUNK];
        for _ in 0..bytes.div_ceil(CHUNK) {
            file.write_all(&chunk)?;
        }
        Ok(())
    };
    let _ = fill();
    let _ = fs::remove_file(&path);
}
