//! The names of files: conversions of strftime(3) in UTC.

use ribtide_runtime::date::date;
use std::path::{Path, PathBuf};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// `pattern` for a time in seconds since 1970. Unknown conversions stay as they are; the configuration has none.
pub(super) fn format(pattern: &Path, seconds: u64) -> PathBuf {
    let text = pattern.to_string_lossy();
    let (year, month, day) = date(seconds / DAY);
    let second = seconds % DAY;
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out.push_str(&format!("{year:04}")),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('H') => out.push_str(&format!("{:02}", second / 3600)),
            Some('M') => out.push_str(&format!("{:02}", second / 60 % 60)),
            Some('S') => out.push_str(&format!("{:02}", second % 60)),
            Some('s') => out.push_str(&seconds.to_string()),
            Some('%') | None => out.push('%'),
            Some(other) => out.extend(['%', other]),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_those_of_strftime_in_utc() {
        let name = |pattern: &str, seconds| format(Path::new(pattern), seconds).display().to_string();
        // `date -u -d @SECONDS` is the judge.
        for (seconds, expected) in [
            (0, "19700101.000000"),
            (951_782_399, "20000228.235959"),
            (951_782_400, "20000229.000000"),
            (951_868_800, "20000301.000000"),
            (1_709_164_799, "20240228.235959"),
            (1_709_251_199, "20240229.235959"),
            (1_735_689_599, "20241231.235959"),
            (4_107_542_400, "21000301.000000"),
        ] {
            assert_eq!(name("%Y%m%d.%H%M%S", seconds), expected, "{seconds}");
        }
        assert_eq!(name("/a/%s.100%%%q%", 7), "/a/7.100%%q%");
    }
}
