//! Errors of a configuration file, as a person reads them: place, what is wrong, the line itself, what to write.

use super::shown::{HIDDEN, SECRET_KEYS};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// One thing wrong with a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The key it is about, such as `bgp.group.clients.peer-asn`; an element of a list is `[2]`. Empty: the file.
    pub key: Vec<Step>,
    /// What is wrong, and what to write instead.
    pub message: String,
    /// Where in the text, in bytes, once located.
    pub span: Option<Range<usize>>,
}

/// One step of the way to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Into a table.
    Name(String),
    /// Into a list.
    Index(usize),
}

impl From<&str> for Step {
    fn from(name: &str) -> Step {
        Step::Name(name.into())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Step {
        Step::Index(index)
    }
}

/// The path to a key: `key!["bgp", "group", name]`.
macro_rules! key {
    ($($step:expr),* $(,)?) => { &[$($crate::diagnosis::Step::from($step)),*] };
}
pub(super) use key;

impl Problem {
    pub(super) fn new(key: &[Step], message: impl Into<String>) -> Problem {
        Problem { key: key.to_vec(), message: message.into(), span: None }
    }

    pub(super) fn syntax(error: &toml::de::Error, text: &str) -> Problem {
        // The message of a wrong type quotes the value.
        if let Some(key) = error.span().and_then(|span| key_before(text, span.start))
            && SECRET_KEYS.contains(&key)
        {
            let message = format!("this cannot stand here; {key} is a text in quotation marks");
            return Problem { key: Vec::new(), message, span: error.span() };
        }
        let mut message = plain(&error.message().trim().replace('\n', "; "));
        if let Some(meant) = suggestion(&message) {
            message.push_str(&format!("; did you mean `{meant}`?"));
        }
        Problem { key: Vec::new(), message, span: error.span() }
    }

    /// Finds the key in the text. A key that the text lacks gets the place of its table.
    pub(super) fn locate(mut self, text: &str) -> Problem {
        // The message of a wrong type quotes the value.
        if let Some(Step::Name(name)) = self.key.last()
            && SECRET_KEYS.contains(&name.as_str())
            && let Some((_, cure)) = self.message.split_once(" cannot stand here")
        {
            self.message = format!("this cannot stand here{cure}");
        }
        let Ok(document) = DeTable::parse(text) else { return self };
        let mut span = 0..0;
        let mut value: Option<&DeValue<'_>> = None;
        for step in &self.key {
            let next = match (step, value) {
                (Step::Name(name), None) => document.get_ref().get(name.as_str()),
                (Step::Name(name), Some(DeValue::Table(table))) => table.get(name.as_str()),
                (Step::Index(i), Some(DeValue::Array(items))) => items.get(*i),
                _ => None,
            };
            let Some(next) = next else { break };
            span = next.span();
            value = Some(next.get_ref());
        }
        self.span = Some(span);
        self
    }
}

/// Line and column, counted from 1, of a byte of a text.
fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = &text[..byte.min(text.len())];
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Warnings that are located at most: each reads the text. Of more there is the number.
const LOCATED: usize = 20;

/// A valid setting that is probably not intended. Displays the sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    /// Its line and column in the file, counted from 1; `None`: it is about the whole.
    pub place: Option<(usize, usize)>,
    /// What has no effect, and what to write instead.
    pub message: String,
}

impl Warning {
    /// The warnings with their places in the text, in order.
    pub(super) fn located(found: Vec<Problem>, text: &str) -> Vec<Warning> {
        let more = found.len().saturating_sub(LOCATED);
        let locate = |problem: Problem| {
            let Problem { message, span, .. } = problem.locate(text);
            Warning { place: span.map(|span| place(text, span.start)), message }
        };
        let mut all: Vec<Warning> = found.into_iter().take(LOCATED).map(locate).collect();
        all.sort_by_key(|warning| warning.place);
        if more > 0 {
            all.push(Warning {
                place: None,
                message: format!("{more} more policies, statements and sets have no effect"),
            });
        }
        all
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The key whose value begins at this place.
fn key_before(text: &str, at: usize) -> Option<&str> {
    let before = text.get(..at)?.trim_end().strip_suffix('=')?.trim_end();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    before.trim_end_matches(['"', '\'']).rsplit(|c: char| !is_part(c)).next()
}

/// A message of serde or of a type's parser in the words of the file's author, with a cure.
fn plain(message: &str) -> String {
    match message {
        "invalid socket address syntax" => {
            return "this is no address with a port; write one such as \"0.0.0.0:179\" or \"[::]:179\""
                .into();
        }
        "invalid IP address syntax" => {
            return "this is no IP address; write one such as \"192.0.2.1\" or \"2001:db8::1\"".into();
        }
        "invalid IPv4 address syntax" => {
            return "this is not in the form of an IPv4 address; write one such as \"10.0.0.1\"".into();
        }
        "missing field `router`" => {
            return "there is no [router] table; write one with asn and router-id".into();
        }
        _ => {}
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("{name} is missing; add it to this table");
    }
    let wrong = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, requested)) = wrong.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return message.into();
    };
    let write = match requested {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "a boolean" => "true or false",
        "a string" => "text in quotes",
        "a sequence" if found == "map" => {
            "a list in brackets or, for a list of tables, a header with double brackets, as in [[interface]]"
        }
        "a sequence" => "a list in brackets, such as [\"first\", \"second\"]",
        other => other,
    };
    let found = if found == "map" { "a table" } else { found };
    format!("{found} cannot stand here; write {write}")
}

/// For serde's "unknown field" and "unknown variant" messages: the expected name nearest to the one written.
fn suggestion(message: &str) -> Option<String> {
    let mut names = message.split('`').skip(1).step_by(2);
    let written = names.next()?;
    if message.starts_with("unknown ") { nearest(written, names).map(str::to_owned) } else { None }
}

/// The name that was probably meant.
pub(super) fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, nearest) = names.into_iter().map(|name| (edit_distance(written, name), name)).min()?;
    (distance <= 2.max(written.len() / 3)).then_some(nearest)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// A configuration that cannot be used, with all its problems. Displays them as a compiler would.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    path: PathBuf,
    text: String,
    /// The problems, in the order of the file.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    pub(super) fn new(path: &Path, text: &str, mut problems: Vec<Problem>) -> ConfigError {
        problems.sort_by_key(|p| p.span.as_ref().map_or(0, |s| s.start));
        ConfigError { path: path.into(), text: text.into(), problems }
    }

    pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> ConfigError {
        let message = match error.kind() {
            std::io::ErrorKind::InvalidData => "is not text in UTF-8, as TOML is".to_string(),
            std::io::ErrorKind::PermissionDenied => {
                format!("cannot be read: {error}; run as its owner or as root")
            }
            _ => format!("cannot be read: {error}; give an existing file with `-c FILE`"),
        };
        ConfigError::of_file(path, message)
    }

    pub(super) fn too_long(path: &Path, max: u64) -> ConfigError {
        ConfigError::of_file(path, format!("has more than {max} bytes; give a configuration with `-c FILE`"))
    }

    fn of_file(path: &Path, message: String) -> ConfigError {
        ConfigError {
            path: path.into(),
            text: String::new(),
            problems: vec![Problem { key: Vec::new(), message, span: None }],
        }
    }

    /// One line for each problem: the file, line, column, and what is wrong.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.problems.iter().map(|problem| match &problem.span {
            None => format!("{}: {}", self.path.display(), problem.message),
            Some(span) => {
                let (line, column) = self.place(span.start);
                format!("{}:{line}:{column}: {}", self.path.display(), problem.message)
            }
        })
    }

    fn place(&self, byte: usize) -> (usize, usize) {
        place(&self.text, byte)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (problem, line)) in self.problems.iter().zip(self.lines()).enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            f.write_str(&line)?;
            let Some(span) = &problem.span else { continue };
            let (line, column) = self.place(span.start);
            writeln!(f)?;
            let source = match secret_lines(&self.text).get(line - 1) {
                Some(true) => HIDDEN.to_owned(),
                _ => without_secrets(self.text.lines().nth(line - 1).unwrap_or_default()),
            };
            let number = line.to_string();
            let width = span.len().min(source.chars().count().saturating_sub(column - 1)).max(1);
            writeln!(f, "  {number} | {source}")?;
            write!(f, "  {:w$} | {:c$}{}", "", "", "^".repeat(width), w = number.len(), c = column - 1)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// A line of the file as it may be shown: nothing after a key whose value is secret, because the quotes may be what
/// is wrong.
fn without_secrets(line: &str) -> String {
    let secret = SECRET_KEYS.iter().filter_map(|key| value_of(line, key)).min();
    match secret.and_then(|at| line.get(..at)) {
        Some(before) => format!("{before}{HIDDEN}"),
        None => line.into(),
    }
}

/// The end of a secret that began in an earlier line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SecretEnd {
    /// This quote.
    Quote(&'static str),
    /// So many closing brackets of a list.
    Brackets(usize),
}

/// Of each line of a text whether it begins inside a secret value. The text may be no TOML, so a quote that is open to the
/// end of its line continues, and one that nothing closes lasts to the end of the text.
fn secret_lines(text: &str) -> Vec<bool> {
    let mut open: Option<SecretEnd> = None;
    let mut inside = Vec::new();
    for line in text.lines() {
        inside.push(open.is_some());
        let rest = match open {
            None => line,
            Some(end) => match after_end(line, end) {
                Ok(rest) => rest,
                Err(still) => {
                    open = Some(still);
                    continue;
                }
            },
        };
        let last = SECRET_KEYS.iter().filter_map(|key| last_value_of(rest, key)).max();
        open = last.and_then(|at| rest.get(at..)).and_then(opened);
    }
    inside
}

/// What follows the end of a secret in a line; an error is the end that is left.
fn after_end(line: &str, end: SecretEnd) -> Result<&str, SecretEnd> {
    match end {
        SecretEnd::Quote(quote) => line.find(quote).and_then(|at| line.get(at + quote.len()..)).ok_or(end),
        SecretEnd::Brackets(depth) => brackets(line, depth).map_err(SecretEnd::Brackets),
    }
}

/// The end of a value, if it is in a later line.
fn opened(value: &str) -> Option<SecretEnd> {
    for quote in ["\"\"\"", "'''", "\"", "'"] {
        if let Some(rest) = value.strip_prefix(quote) {
            return (!rest.contains(quote)).then_some(SecretEnd::Quote(quote));
        }
    }
    value.starts_with('[').then(|| brackets(value, 0).err().map(SecretEnd::Brackets)).flatten()
}

/// What follows the bracket that closes `depth` open ones and those of this line; an error is the number left open.
fn brackets(line: &str, mut depth: usize) -> Result<&str, usize> {
    let mut quote: Option<char> = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth <= 1 => return Ok(&line[at + 1..]),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    Err(depth.max(1))
}

/// Where the text begins that `line` gives to `key`, for the last time.
fn last_value_of(line: &str, key: &str) -> Option<usize> {
    let (mut from, mut last) = (0, None);
    while let Some(at) = line.get(from..).and_then(|rest| value_of(rest, key)) {
        last = Some(from + at);
        from += at.max(1);
    }
    last
}

/// Where the text begins that `line` gives to `key`.
fn value_of(line: &str, key: &str) -> Option<usize> {
    line.match_indices(key).find_map(|(at, _)| {
        let after = line.get(at + key.len()..)?;
        let value = after.trim_start_matches(['"', '\'', ' ', '\t']).strip_prefix('=')?.trim_start();
        Some(line.len() - value.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_inside_of_a_secret_are_not_shown() {
        let inside = |text: &str| secret_lines(text);
        assert_eq!(inside("password = \"\"\"\nhunter\n2\"\"\"\nasn = 1\n"), [false, true, true, false]);
        assert_eq!(inside("password = '''a\nb = \"c\"\nasn = 1\n"), [false, true, true]);
        assert_eq!(inside("secret = [\"a\",\n \"]b\",\n]\nasn = 1"), [false, true, true, false]);
        // The author forgot a quote, or took two lines.
        assert_eq!(inside("password = \"hunter\n2\"\nasn = 1"), [false, true, false]);
        assert_eq!(inside("password = \"hunter2\"\nasn = 1"), [false, false]);
        let keys = "keys = [{ secret = 'a', id = 1 }, { secret = '''\nb''', id = 2 }]\nasn = 1";
        assert_eq!(inside(keys), [false, true, false]);
        assert_eq!(inside("x = \"\"\"\nfoo\n\"\"\"\n"), [false, false, false]);
        assert!(brackets("a]", 1) == Ok("") && brackets("[[", 0) == Err(2));
    }

    #[test]
    fn a_secret_of_a_wrong_type_is_not_quoted() {
        for line in ["password = 12345678", "password=12345678", "\"password\" = 12345678"] {
            let text = format!("[bgp.group.up]\npeer-asn = 1\n{line}\n");
            let error = toml::from_str::<crate::file::File>(&text).unwrap_err();
            let problem = Problem::syntax(&error, &text);
            assert!(!problem.message.contains("1234"), "{}", problem.message);
            assert!(problem.message.contains("password is a text in quotation marks"), "{}", problem.message);
        }
    }

    #[test]
    fn an_error_inside_of_a_secret_shows_none_of_it() {
        for text in [
            "[bgp.group.g]\npassword = \"\"\"\nhunter\\q2\n\"\"\"\n",
            "[bgp.group.g]\npassword = '''\nhunter2\n",
            "[bgp.group.g]\npassword = [\n\"hunter2\" \"hunter3\"]\n",
            "[bgp.group.g]\npassword = \"hunter\nhunter2\"\n",
        ] {
            let error = crate::load_text(text, Path::new("x.toml")).unwrap_err().to_string();
            assert!(error.contains("x.toml:") && !error.contains("hunter"), "{error}");
        }
    }

    #[test]
    fn lines_are_shown_without_secrets() {
        for (line, shown) in [
            ("password = \"abc\"", "password = ********"),
            (
                "keys = [{ id = 1, secret='abc', secret-file = \"f\" }, { secret = \"ä\" }]",
                "keys = [{ id = 1, secret=********",
            ),
            ("\"password\" = \"abc", "\"password\" = ********"),
            ("password = abc", "password = ********"),
            ("password = 12345678", "password = ********"),
            ("description = \"no password\"", "description = \"no password\""),
            ("secret-file = \"/etc/k\"", "secret-file = \"/etc/k\""),
        ] {
            assert_eq!(without_secrets(line), shown);
        }
    }
}
