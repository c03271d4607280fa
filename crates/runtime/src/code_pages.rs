//! Clean pages of the program that only its start used.
//!
//! The kernel maps 64 KiB of a program around each page that is touched, and unmaps none while memory
//! is free. So a process that lasts keeps the code of its command line, of its configuration's parser
//! and of the start of its stages. [`unmap`] gives these pages back to the page cache. What is used
//! again is mapped again from there, 64 KiB at a time. Reasons and measurements: ADR 67.

use crate::log::target;
use std::io;
use std::ops::Range;

/// Unmaps the pages of the program and of its libraries that this process has not changed, and
/// returns the bytes of them. The next access to one maps it again, so only time is lost.
///
/// # Errors
/// The kernel does not tell the mappings of the process, or refuses the advice. Either leaves every
/// page usable.
#[allow(unsafe_code)]
pub fn unmap() -> io::Result<u64> {
    let mut unmapped = 0;
    for Mapping { range, resident } in clean_mappings(&std::fs::read_to_string("/proc/self/smaps")?) {
        let (start, len) = (std::ptr::with_exposed_provenance_mut(range.start), range.len());
        // SAFETY: The range is a private, read-only mapping of a file, none of whose pages is a copy of
        // this process: the kernel reads each again from the file. Nothing unmaps or writes the
        // mappings of the program and of its libraries while it runs.
        if unsafe { libc::madvise(start, len, libc::MADV_DONTNEED) } != 0 {
            return Err(io::Error::last_os_error());
        }
        unmapped += resident;
    }
    Ok(unmapped)
}

/// [`unmap`] at the end of a part of the start, with the result in the log.
pub fn unmap_start() {
    match unmap() {
        Ok(bytes) => tracing::debug!(target: target::PROCESS, bytes, "unmapped pages of the program"),
        Err(e) => tracing::debug!(target: target::PROCESS, "pages of the program stay mapped: {e}"),
    }
}

/// A mapping whose pages are all those of its file.
#[derive(PartialEq, Eq, Debug)]
struct Mapping {
    range: Range<usize>,
    /// Bytes in memory.
    resident: u64,
}

/// The mappings in the text of `/proc/PID/smaps` that may be unmapped: of a file, private, not
/// writable, and without a page that the process has changed. Relocated data, and code in which a
/// debugger has set breakpoints, have such pages.
fn clean_mappings(smaps: &str) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = Vec::new();
    let mut is_candidate = false;
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        match first.strip_suffix(':') {
            None => {
                let [permissions, _offset, _device, _inode, file] = std::array::from_fn(|_| words.next());
                let range = first.split_once('-').and_then(|(start, end)| {
                    let address = |digits| usize::from_str_radix(digits, 16).ok();
                    Some(address(start)?..address(end)?)
                });
                let of_file = file.is_some_and(|file| file.starts_with('/'));
                is_candidate = of_file && matches!(permissions, Some("r-xp" | "r--p"));
                let range = range.filter(|_| is_candidate);
                all.extend(range.map(|range| Mapping { range, resident: 0 }));
            }
            Some(key) if is_candidate => {
                let bytes = words.next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024;
                match key {
                    "Rss" => all.iter_mut().last().into_iter().for_each(|last| last.resident = bytes),
                    "Anonymous" | "Private_Dirty" | "Swap" | "Locked" if bytes > 0 => {
                        all.pop();
                        is_candidate = false;
                    }
                    _ => {}
                }
            }
            Some(_) => {}
        }
    }
    all.retain(|mapping| mapping.resident > 0);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 r--p 00000000 fe:00 55 /usr/bin/ribtide
Rss:                   8 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
3000-9000 r-xp 00002000 fe:00 55 /usr/bin/ribtide
Rss:                  16 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
9000-a000 r--p 00008000 fe:00 55 /usr/bin/ribtide
Rss:                   4 kB
Private_Dirty:         4 kB
Anonymous:             4 kB
a000-b000 rw-p 00009000 fe:00 55 /usr/bin/ribtide
Rss:                   4 kB
Anonymous:             0 kB
b000-c000 r-xp 00000000 fe:00 56 /usr/lib/with breakpoints.so
Rss:                   4 kB
Private_Dirty:         0 kB
Anonymous:             4 kB
c000-d000 r--s 00000000 fe:00 57 /var/lib/shared
Rss:                   4 kB
Anonymous:             0 kB
d000-e000 r-xp 00000000 00:00 0 [vdso]
Rss:                   4 kB
Anonymous:             0 kB
e000-f000 r--p 00000000 fe:00 58 /usr/lib/untouched.so
Rss:                   0 kB
Anonymous:             0 kB
f000-f800 r--p 00000000 00:00 0
Rss:                   4 kB
Anonymous:             0 kB
";

    #[test]
    fn clean_mappings_are_those_of_files_without_changed_pages() {
        let clean = clean_mappings(SMAPS);
        let expected = [(0x1000..0x3000, 8 << 10), (0x3000..0x9000, 16 << 10)];
        assert_eq!(clean, expected.map(|(range, resident)| Mapping { range, resident }));
        assert_eq!(clean_mappings("nonsense\n: 7\nRss: 8 kB\n"), []);
    }

    #[test]
    fn unmap_gives_back_pages_of_this_program_and_it_runs_on() {
        static TABLE: [u64; 4096] = {
            let mut table = [0; 4096];
            let mut n = 0;
            while n < table.len() {
                table[n] = n as u64;
                n += 1;
            }
            table
        };
        let sum = || std::hint::black_box(&TABLE).iter().sum::<u64>();
        assert_eq!(sum(), 4095 * 2048);
        assert!(unmap().unwrap() > 64 << 10);
        assert_eq!(sum(), 4095 * 2048, "constants and code are those of the file");
        assert!(unmap().unwrap() > 0, "what is used is mapped again");
    }
}
