//! The state of the machine's memory as a run begins.

use std::fs;
use std::io::{self, Write};

/// A folder in memory.
const FOLDER: &str = "/dev/shm";
const CHUNK: usize = 1 << 20;

/// Touches so many bytes of the machine's memory, and frees them.
///
/// Memory that was free for a while costs more: a virtual machine gives it back to its host (free page reporting), which has to find
/// other; then clearing a page takes six times as long. Which of two runs pays that is chance, or, if one of them has a database more, not
/// even that. So runs that are compared begin with memory that was in use just now. Where there is no folder in memory, or no room in it,
/// nothing is done.
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
