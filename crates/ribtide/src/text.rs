//! Text output: durations, sizes and lists. Tables and numbers are those of the suites' reports.

pub(crate) use ribtide_text::{Table, number};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Write as _;

/// Writes to standard output. `println!` would panic on a closed pipe; see [`unwritten`].
pub(crate) fn write_stdout(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(unwritten)
}

/// Why standard output cannot be written. Where its reader is gone (`| head`), the process ends at once and says nothing.
pub(crate) fn unwritten(e: std::io::Error) -> String {
    if e.kind() == std::io::ErrorKind::BrokenPipe {
        end_of_reader();
    }
    format!("cannot write the output: {e}")
}

/// When nothing reads the output any more: 128 and the number of SIGPIPE.
const SIGPIPE_STATUS: i32 = 128 + 13;

/// Ends the process with the status of one that SIGPIPE ended.
pub(crate) fn end_of_reader() -> ! {
    ribtide_runtime::log::flush();
    std::process::exit(SIGPIPE_STATUS)
}

/// Whether nothing will read standard output any more, because the other end of its pipe is closed.
pub(crate) fn is_reader_gone() -> bool {
    let stdout = std::io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let closed = PollFlags::ERR | PollFlags::HUP;
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(closed)
}

/// Lets tables know the columns of a line: `COLUMNS`, or those of the terminal. Output that goes elsewhere has a line for
/// each row.
pub(crate) fn find_width() {
    let of_variable = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let of_terminal =
        || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    if let Some(columns) = of_variable.or_else(of_terminal).filter(|columns| *columns > 0) {
        ribtide_text::set_width(columns);
    }
}

/// Writes a line to standard error; a closed one is ignored.
pub(crate) fn write_stderr(sentence: &str) {
    let _ = writeln!(std::io::stderr(), "ribtide: {sentence}");
}

/// Why a reply of a router is of no use.
pub(crate) fn not_understood(path: &str, e: &serde_json::Error) -> String {
    format!("the router's reply to {path} cannot be read ({e}); is it another version?")
}

/// `1 path`, `2 paths`: a number and what it counts.
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{} {what}{}", number(n), if n == 1 { "" } else { "s" })
}

/// A duration: `7s`, `3m12s`, `2h05m`, `4d03h`.
pub(crate) fn duration(seconds: u64) -> String {
    let (d, h, m, s) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, _) => format!("{m}m{s:02}s"),
        (0, _, _) => format!("{h}h{m:02}m"),
        _ => format!("{d}d{h:02}h"),
    }
}

/// Bytes in binary units.
pub(crate) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 || unit == "GiB" {
            return if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    unreachable!("the last unit takes everything")
}

/// `words` in lines of at most 110 columns, or those of the terminal if it has less, that begin with `indent`, the first also with `title`.
pub(crate) fn wrap(indent: &str, title: &str, between: &str, words: &[String]) -> String {
    let width = ribtide_text::width().map_or(110, |columns| columns.clamp(40, 110));
    let mut out = String::new();
    let mut line = format!("{indent}{title}");
    let mut fresh = true;
    for (i, word) in words.iter().enumerate() {
        let word = if i + 1 < words.len() { format!("{word}{between}") } else { word.clone() };
        if !fresh && line.chars().count() + word.trim_end().chars().count() > width {
            out.push_str(line.trim_end());
            out.push('\n');
            line = format!("{indent}{}", " ".repeat(title.len()));
        }
        line.push_str(&word);
        fresh = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

/// The text with lines of at most 80 columns: the rest of a longer line follows, indented. A line ends after a comma or a
/// semicolon where there is one.
pub(crate) fn fold(text: &str) -> String {
    const WIDTH: usize = 80;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len() + 4;
        let (mut rest, mut width) = (line, WIDTH);
        while rest.chars().count() > width {
            let bound = rest.char_indices().nth(width + 1).map_or(rest.len(), |(at, _)| at);
            // A word without a space before it stays whole.
            let start = rest.len() - rest.trim_start().len();
            let part = rest.get(start..bound).unwrap_or_default();
            // Between two phrases, if one ends in the second half of the line: a label stays with what follows it.
            let phrase = part.rfind(", ").max(part.rfind("; ")).map(|at| at + 1).filter(|at| *at > width / 2);
            let Some(space) = phrase.or_else(|| part.rfind(' ')) else { break };
            out.push_str(rest[..start + space].trim_end());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            rest = rest[start + space..].trim_start();
            width = WIDTH - indent;
        }
        out.push_str(rest);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_as_people_write_them() {
        assert_eq!(
            [duration(7), duration(192), duration(7500), duration(356_400)],
            ["7s", "3m12s", "2h05m", "4d03h"]
        );
        assert_eq!([count(1, "path"), count(1000, "path")], ["1 path", "1,000 paths"]);
        assert_eq!([bytes(17), bytes(1536), bytes(3 << 30)], ["17 B", "1.5 KiB", "3.0 GiB"]);
    }

    #[test]
    fn folded_lines_have_at_most_80_columns_and_the_same_words() {
        let long = format!("  Title {}\nshort\n", "some words, ".repeat(20));
        let folded = fold(&long);
        assert!(folded.lines().all(|line| line.chars().count() <= 80) && folded.lines().count() > 3);
        assert_eq!(
            folded.split_whitespace().collect::<Vec<_>>(),
            long.split_whitespace().collect::<Vec<_>>()
        );
        assert!(folded.lines().nth(1).unwrap().starts_with("      "));
        let reason = format!("  Last error, {}\n", "reason ".repeat(20).trim_end());
        assert!(fold(&reason).starts_with("  Last error, reason reason"), "{}", fold(&reason));
        let word = "x".repeat(100);
        assert_eq!(fold(&word), format!("{word}\n"));
        assert_eq!(fold(&"y".repeat(80)).lines().count(), 1);
    }

    #[test]
    fn long_lists_go_on_in_the_next_line() {
        let few = ["a".to_string(), "b".to_string()];
        assert_eq!(wrap("  ", "Members ", ", ", &few), "  Members a, b\n");
        assert_eq!(wrap("  ", "Members ", "  ", &[]), "  Members\n");
        let many: Vec<String> = (0..40).map(|n| format!("192.0.2.{n}")).collect();
        let text = wrap("  ", "Members ", "  ", &many);
        assert!(text.lines().count() == 5 && text.lines().all(|l| l.len() <= 110 && l.starts_with("  ")));
        assert!(text.lines().nth(1).unwrap().starts_with("          192.0.2."));
        assert_eq!(text.split_whitespace().count(), 41);
    }
}
