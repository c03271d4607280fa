//! Text of `ribtide show` and of the suites' reports: aligned tables, numbers with separators.

use std::fmt::Write as _;

/// A table with a header; numbers to the right, words to the left.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
    widths: Vec<usize>,
}

/// A column of figures: its title, and the text of an item there.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

impl Table {
    /// Columns by name; a name that starts with `>` is aligned to the right.
    pub fn new(header: &[&str]) -> Table {
        let right = header.iter().map(|h| h.starts_with('>')).collect();
        let names = header.iter().map(|h| h.trim_start_matches('>').to_string()).collect();
        let widths = vec![0; header.len()];
        Table { rows: vec![names], right, widths }
    }

    /// `rows` with the header as the first: the first column to the left, all others to the right.
    pub fn of_figures(rows: &[Vec<String>]) -> Table {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        Table { rows: rows.to_vec(), right: (0..columns).map(|c| c > 0).collect(), widths: vec![0; columns] }
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
