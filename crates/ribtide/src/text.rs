//! What people read: aligned tables, numbers with separators, durations in words.

use std::fmt::Write as _;
use std::io::Write as _;

/// Writes to standard output. `println!` would panic where the reader has gone (`| head`).
pub(crate) fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| format!("cannot write the output: {e}"))
}

/// Writes a line to standard error, if anybody reads it.
pub(crate) fn complain(sentence: &str) {
    let _ = writeln!(std::io::stderr(), "ribtide: {sentence}");
}

/// A table with a header; numbers to the right, words to the left.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
    widths: Vec<usize>,
}

impl Table {
    /// Columns by name; a name that starts with `>` is aligned to the right.
    pub(crate) fn new(header: &[&str]) -> Table {
        let right = header.iter().map(|h| h.starts_with('>')).collect();
        let names = header.iter().map(|h| h.trim_start_matches('>').to_string()).collect();
        let widths = vec![0; header.len()];
        Table { rows: vec![names], right, widths }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The text of what was added since the last time, each line ended. A list can so be printed page by page: columns
    /// get wider where they must, and never narrower.
    pub(crate) fn render(&mut self) -> String {
        let rows = std::mem::take(&mut self.rows);
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut out = String::new();
        for row in rows {
            let mut line = String::new();
            for (c, cell) in row.iter().enumerate() {
                let gap = if c == 0 { "" } else { "  " };
                let (w, right) = (self.widths[c], self.right[c]);
                let _ = if right { write!(line, "{gap}{cell:>w$}") } else { write!(line, "{gap}{cell:<w$}") };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// `1234567` as `1,234,567`.
pub(crate) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 path`, `2 paths`: a number and what it counts.
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{} {what}{}", number(n), if n == 1 { "" } else { "s" })
}

/// Seconds as people say them: `7s`, `3m12s`, `2h05m`, `4d03h`.
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

/// `words` one after another, in lines of at most 110 columns that begin with `indent`, the first with `title` as well.
pub(crate) fn wrap(indent: &str, title: &str, between: &str, words: &[String]) -> String {
    const WIDTH: usize = 110;
    let mut out = String::new();
    let mut line = format!("{indent}{title}");
    let mut fresh = true;
    for (i, word) in words.iter().enumerate() {
        let word = if i + 1 < words.len() { format!("{word}{between}") } else { word.clone() };
        if !fresh && line.chars().count() + word.trim_end().chars().count() > WIDTH {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_align() {
        let mut table = Table::new(&["Neighbor", ">Received"]);
        table.row(["127.0.0.2".into(), number(1_000_000)]);
        table.row(["::1".into(), number(7)]);
        assert_eq!(table.render(), "Neighbor    Received\n127.0.0.2  1,000,000\n::1                7\n");
        table.row(["2001:db8::1".into(), number(8)]);
        assert_eq!(table.render(), "2001:db8::1          8\n");
    }

    #[test]
    fn numbers_as_people_write_them() {
        assert_eq!([number(0), number(999), number(1000)], ["0", "999", "1,000"]);
        assert_eq!(
            [duration(7), duration(192), duration(7500), duration(356_400)],
            ["7s", "3m12s", "2h05m", "4d03h"]
        );
        assert_eq!([count(1, "path"), count(1000, "path")], ["1 path", "1,000 paths"]);
        assert_eq!([bytes(17), bytes(1536), bytes(3 << 30)], ["17 B", "1.5 KiB", "3.0 GiB"]);
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
