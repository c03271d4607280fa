//! Text of `ribtide show` and of the suites' reports: aligned tables, numbers with separators.

use std::fmt::Write as _;
use std::sync::OnceLock;

/// A table with a header; numbers to the right, words to the left.
///
/// A table that is wider than the [width of lines](set_width) wraps the text of its last column. Where that has too little
/// room, its last columns go to lines of their own below each row, each value with the name of its column.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    names: Vec<String>,
    right: Vec<bool>,
    widths: Vec<usize>,
    width: Option<usize>,
    /// The layout, once the first rows are rendered.
    layout: Option<Layout>,
}

/// How rows are set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    /// A line each.
    Whole,
    /// The last column wraps in its place.
    Wrapped,
    /// So many columns, and the others below.
    Folded(usize),
}

/// Columns that the text of a last column needs at least to be wrapped there.
const WRAPPED_MIN: usize = 24;
/// What lines below a row begin with.
const FOLDED_INDENT: &str = "    ";

static WIDTH: OnceLock<usize> = OnceLock::new();

/// Sets the columns of a line, for the rest of the process. Without it no table wraps.
pub fn set_width(columns: usize) {
    let _ = WIDTH.set(columns);
}

/// The columns of a line, if they are known.
pub fn width() -> Option<usize> {
    WIDTH.get().copied()
}

/// A column of figures: its title, and the text of an item there.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

impl Table {
    /// Columns by name; a name that starts with `>` is aligned to the right.
    pub fn new(header: &[&str]) -> Table {
        let right = header.iter().map(|h| h.starts_with('>')).collect();
        let names: Vec<String> = header.iter().map(|h| h.trim_start_matches('>').to_string()).collect();
        Table::of(vec![names.clone()], names, right)
    }

    /// `rows` with the header as the first: the first column to the left, all others to the right.
    pub fn of_figures(rows: &[Vec<String>]) -> Table {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let names = rows.first().cloned().unwrap_or_default();
        Table::of(rows.to_vec(), names, (0..columns).map(|c| c > 0).collect())
    }

    fn of(rows: Vec<Vec<String>>, names: Vec<String>, right: Vec<bool>) -> Table {
        let widths = vec![0; right.len()];
        Table { rows, names, widths, right, width: width(), layout: None }
    }

    /// The same with lines of at most so many columns.
    #[must_use]
    pub fn within(self, columns: usize) -> Table {
        Table { width: Some(columns), ..self }
    }

    /// Figures of `items`: a row with the name of each group, below it one for each of its items.
    pub fn of_groups<'a, T>(
        items: &'a [T],
        group: impl Fn(&'a T) -> &'a str,
        columns: &[Column<'_, T>],
    ) -> Table {
        let mut rows = vec![columns.iter().map(|(title, _)| (*title).to_owned()).collect()];
        let mut last = None;
        for item in items {
            let group = group(item);
            if last.replace(group) != Some(group) {
                rows.push(vec![group.to_owned()]);
            }
            rows.push(columns.iter().map(|(_, cell)| cell(item)).collect());
        }
        Table::of_figures(&rows)
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The text of what was added since the last time, each line ended. A list can so be printed page by page: columns
    /// get wider where they must, and never narrower.
    pub fn render(&mut self) -> String {
        let rows = std::mem::take(&mut self.rows);
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let layout = *self.layout.get_or_insert(layout(&self.widths, &self.right, self.width));
        let mut out = String::new();
        for (at, row) in rows.iter().enumerate() {
            let kept = match layout {
                Layout::Folded(kept) => kept.min(row.len()),
                _ => row.len(),
            };
            self.line(&row[..kept], layout, &mut out);
            let is_header = at == 0 && *row == self.names;
            if kept < row.len() && !is_header {
                self.below(kept, row, &mut out);
            }
        }
        out
    }

    /// A line of cells; with a layout that wraps, the lines of the last cell below each other.
    fn line(&self, cells: &[String], layout: Layout, out: &mut String) {
        let mut line = String::new();
        let mut column = 0;
        for (c, cell) in cells.iter().enumerate() {
            let gap = if c == 0 { "" } else { "  " };
            let (w, right) = (self.widths[c], self.right[c]);
            if layout == Layout::Wrapped && c + 1 == self.widths.len() {
                let start = column + gap.len();
                let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(start));
                for (n, part) in wrapped(cell, room).into_iter().enumerate() {
                    let before = if n == 0 { gap.to_owned() } else { format!("\n{:start$}", "") };
                    let _ = write!(line, "{before}{part}");
                }
                continue;
            }
            let _ = if right { write!(line, "{gap}{cell:>w$}") } else { write!(line, "{gap}{cell:<w$}") };
            column += gap.len() + w.max(cell.chars().count());
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }

    /// The cells of a row from column `first` on, each with the name of its column; without those that say nothing.
    fn below(&self, first: usize, row: &[String], out: &mut String) {
        let named = self.names.iter().zip(row).skip(first);
        let says = |cell: &&String| !cell.is_empty() && *cell != "-";
        let parts = named.filter(|(_, cell)| says(cell)).map(|(name, cell)| format!("{name} {cell}"));
        let text = parts.collect::<Vec<_>>().join(", ");
        if text.is_empty() {
            return;
        }
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(FOLDED_INDENT.len()));
        for part in wrapped(&text, room) {
            out.push_str(FOLDED_INDENT);
            out.push_str(part);
            out.push('\n');
        }
    }
}

/// The layout of columns of these widths in lines of at most `width` columns.
fn layout(widths: &[usize], right: &[bool], width: Option<usize>) -> Layout {
    let needed = |columns: &[usize]| columns.iter().sum::<usize>() + 2 * columns.len().saturating_sub(1);
    let Some(width) = width.filter(|width| needed(widths) > *width) else { return Layout::Whole };
    let (Some((last, before)), Some(false)) = (widths.split_last(), right.last()) else {
        return Layout::Folded(kept(widths, width));
    };
    match needed(before) + 2 + WRAPPED_MIN.min(*last) <= width {
        true => Layout::Wrapped,
        false => Layout::Folded(kept(widths, width)),
    }
}

/// How many columns fit a line, at least one.
fn kept(widths: &[usize], width: usize) -> usize {
    let ends = widths.iter().scan(0, |end, w| {
        let start = if *end == 0 { 0 } else { *end + 2 };
        *end = start + w;
        Some(*end)
    });
    ends.take_while(|end| *end <= width).count().max(1)
}

/// Lines of at most `room` columns, broken at spaces; a longer word has a line of its own.
fn wrapped(text: &str, room: usize) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    while rest.chars().count() > room {
        let end = rest.char_indices().nth(room).map_or(rest.len(), |(end, _)| end);
        let head = rest.get(..end).unwrap_or(rest);
        // A space just behind the room ends a line that fills it.
        let at = match rest[end..].starts_with(' ') {
            true => end,
            false => match head.rfind(' ').or_else(|| rest[end..].find(' ').map(|at| end + at)) {
                Some(at) => at,
                None => break,
            },
        };
        lines.push(rest[..at].trim_end());
        rest = rest[at..].trim_start();
    }
    if lines.is_empty() || !rest.is_empty() {
        lines.push(rest);
    }
    lines
}

/// `1234567` as `1,234,567`.
pub fn number(n: u64) -> String {
    separate(&n.to_string())
}

/// `1234567.4` as `1,234,567`, and all below 0 as `0`.
pub fn rounded(n: f64) -> String {
    separate(&format!("{:.0}", n.max(0.0)))
}

fn separate(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
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

    /// A table with an optional last text.
    fn narrow(columns: usize) -> Table {
        let mut table = Table::new(&["Prefix", "From", ">MED", "AS path"]).within(columns);
        table.row(["10.0.0.0/8", "192.0.2.1", "-", "65001 65002 65003 65004 i"].map(String::from));
        table.row(["10.1.0.0/16", "192.0.2.2", "7", "65001 i"].map(String::from));
        table
    }

    #[test]
    fn a_table_that_fits_is_as_without_a_width() {
        let mut free = narrow(0);
        free.width = None;
        let whole = "Prefix       From       MED  AS path\n\
                     10.0.0.0/8   192.0.2.1    -  65001 65002 65003 65004 i\n\
                     10.1.0.0/16  192.0.2.2    7  65001 i\n";
        assert_eq!((free.render().as_str(), narrow(54).render().as_str()), (whole, whole));
    }

    #[test]
    fn the_last_text_of_a_wider_table_wraps() {
        assert_eq!(
            narrow(53).render(),
            "Prefix       From       MED  AS path\n\
             10.0.0.0/8   192.0.2.1    -  65001 65002 65003 65004\n\
             \x20                            i\n\
             10.1.0.0/16  192.0.2.2    7  65001 i\n"
        );
    }

    #[test]
    fn columns_without_room_go_below_their_row() {
        assert_eq!(
            narrow(30).render(),
            "Prefix       From       MED\n\
             10.0.0.0/8   192.0.2.1    -\n\
             \x20   AS path 65001 65002 65003\n\
             \x20   65004 i\n\
             10.1.0.0/16  192.0.2.2    7\n\
             \x20   AS path 65001 i\n"
        );
        let text = narrow(12).render();
        assert!(text.starts_with("Prefix\n10.0.0.0/8\n    From\n    192.0.2.1,\n"), "{text}");
        let mut paged = narrow(30);
        paged.render();
        paged.row(["10.2.0.0/16", "192.0.2.3", "-", ""].map(String::from));
        assert_eq!(paged.render(), "10.2.0.0/16  192.0.2.3    -\n", "without what says nothing");
    }

    #[test]
    fn no_line_is_wider_than_asked_for_and_no_word_is_lost() {
        for columns in 20..90 {
            let text = narrow(columns).render();
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}:\n{text}");
            for word in ["65004", "10.1.0.0/16", "192.0.2.2"] {
                assert!(text.contains(word), "{columns}:\n{text}");
            }
        }
        assert_eq!(wrapped("ä ö ü", 3), ["ä ö", "ü"]);
        assert_eq!((wrapped("", 3), wrapped("abcdef g", 3)), (vec![""], vec!["abcdef", "g"]));
    }

    #[test]
    fn tables_of_figures_align() {
        let row = |cells: [&str; 2]| cells.map(String::from).to_vec();
        let rows = [row(["a", "long"]), row(["bcd", "1"])];
        assert_eq!(Table::of_figures(&rows).render(), "a    long\nbcd     1\n");
        assert_eq!(Table::of_figures(&[]).render(), "");
    }

    #[test]
    fn numbers_as_people_write_them() {
        assert_eq!([0, 999, 1000].map(number), ["0", "999", "1,000"]);
        assert_eq!([0.4, 999.0, 1000.0, 1_234_567.0].map(rounded), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(rounded(-1.0), "0");
    }
}
