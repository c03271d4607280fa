//! An event as one line: tracing-subscriber's text or JSON, behind the priority for journald.

use super::Format;
use std::cell::Cell;
use std::fmt::{self, Debug, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tracing::field::Field;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{self, Full, Json, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes events as lines. Clones share the choice between text and JSON.
#[derive(Clone)]
pub(super) struct Lines {
    is_json: Arc<AtomicBool>,
    /// Lines begin with their priority, for journald.
    journal: bool,
    text: format::Format<Full>,
    json: format::Format<Json>,
}

/// An event as a JSON object, its fields beside time, level and target.
pub(super) fn json() -> format::Format<Json> {
    format::json().flatten_event(true).with_current_span(false).with_span_list(false)
}

impl Lines {
    pub(super) fn new(format: Format, journal: bool) -> Lines {
        let json = json();
        let is_json = Arc::new(AtomicBool::new(format == Format::Json));
        Lines { is_json, journal, text: format::format(), json }
    }

    pub(super) fn set(&self, format: Format) {
        self.is_json.store(format == Format::Json, Relaxed);
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.journal {
            write!(out, "<{}>", priority(*event.metadata().level()))?;
        }
        match self.is_json.load(Relaxed) {
            true => self.json.format_event(ctx, out, event),
            false => self.text.format_event(ctx, out, event),
        }
    }
}

thread_local! {
    /// The text of a value, kept so that most fields allocate nothing.
    static TEXT: Cell<String> = const { Cell::new(String::new()) };
}

/// Longer texts are not kept.
const KEPT_MAX: usize = 1024;

/// Writes a field of a text line. Peers and clients choose parts of values, and a line is one event: a value is one word or
/// has quotes, and control characters are escaped.
pub(super) fn write_field(out: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    // A value that logs while it is formatted finds an empty string.
    let mut text = TEXT.take();
    text.clear();
    let written = write!(text, "{value:?}").and_then(|()| write_text(out, field.name(), &text));
    if text.capacity() <= KEPT_MAX {
        TEXT.set(text);
    }
    written
}

/// Writes the sentence of an event as in a text line: control characters are escaped.
///
/// # Errors
/// Those of `out`.
pub fn write_message(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    match text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        true => out.write_str(text),
        false => text.chars().try_for_each(|c| match c.is_control() {
            true => write!(out, "{}", c.escape_default()),
            false => out.write_char(c),
        }),
    }
}

/// Writes a value that is text as in a text line: a word as it is, other text in quotes.
///
/// # Errors
/// Those of `out`.
pub fn write_value(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    let is_word = !text.is_empty()
        && !text.contains(|c: char| c.is_whitespace() || c.is_control() || "\"=\\".contains(c));
    if is_word { out.write_str(text) } else { write!(out, "{text:?}") }
}

fn write_text(out: &mut Writer<'_>, name: &str, text: &str) -> fmt::Result {
    if name == "message" {
        return write_message(out, text);
    }
    out.write_str(name)?;
    out.write_char('=')?;
    // A string has its quotes already.
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let value = quoted.unwrap_or(text);
    let is_plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'=' | b'\\');
    if !value.is_empty() && value.bytes().all(is_plain) {
        return out.write_str(value);
    }
    let is_word = |text: &str| {
        !text.is_empty()
            && !text.contains(|c: char| c.is_whitespace() || c.is_control() || "\"=\\".contains(c))
    };
    let quoted =
        quoted.filter(|text| !text.replace("\\\"", "").contains(|c: char| c == '"' || c.is_control()));
    match quoted {
        Some(word) if is_word(word) => out.write_str(word),
        None if !is_word(text) => write!(out, "{text:?}"),
        _ => out.write_str(text),
    }
}

/// syslog(3)'s number of a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LogSettings, capture, target};
    use super::*;

    fn lines(levels: &str, format: Format, body: impl FnOnce()) -> Vec<String> {
        let settings = LogSettings { levels: levels.parse().unwrap(), format };
        capture(&settings, body).lines().map(str::to_owned).collect()
    }

    fn event() {
        let (neighbor, vrf): (std::net::IpAddr, Option<&str>) = ([192, 0, 2, 1].into(), None);
        let error = std::io::Error::other("\"not\"\n\"found\"");
        tracing::warn!(
            target: target::BGP_SESSION,
            %neighbor, asn = 65010u32, vrf, known = true, group = "upstream", reason = "a \"b\"\nc", %error, empty = "",
            "the session\u{7} is\ndown"
        );
    }

    #[test]
    fn text_line_has_time_level_target_sentence_and_fields() {
        let lines = lines("info", Format::Text, event);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.len() == "2026-11-25T23:27:56.123456Z".len() && time.ends_with('Z'), "{time}");
        assert_eq!(
            rest,
            " WARN bgp::session: the session\\u{7} is\\ndown neighbor=192.0.2.1 asn=65010 known=true group=upstream \
             reason=\"a \\\"b\\\"\\nc\" error=\"\\\"not\\\"\\n\\\"found\\\"\" empty=\"\""
        );
    }

    #[test]
    fn json_line_has_numbers_as_numbers() {
        let lines = lines("info", Format::Json, event);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        let rest = line.split_once("Z\",").unwrap().1;
        assert_eq!(
            rest,
            "\"level\":\"WARN\",\"message\":\"the session\\u0007 is\\ndown\",\"neighbor\":\"192.0.2.1\",\"asn\":65010,\
             \"known\":true,\"group\":\"upstream\",\"reason\":\"a \\\"b\\\"\\nc\",\"error\":\"\\\"not\\\"\\n\\\"found\\\"\",\"empty\":\"\",\
             \"target\":\"bgp::session\"}"
        );
    }

    #[test]
    fn levels_of_targets_choose_lines() {
        let events = || {
            tracing::debug!(target: target::BGP_SESSION, "one");
            tracing::debug!(target: target::RIB, "two");
            tracing::info!(target: target::RIB, "three");
            tracing::error!(target: target::KERNEL, "four");
        };
        let sentences = |levels: &str| -> Vec<String> {
            let lines = lines(levels, Format::Text, events);
            lines.iter().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
        };
        assert_eq!(sentences("info"), ["three", "four"]);
        assert_eq!(sentences("debug"), ["one", "two", "three", "four"]);
        assert_eq!(sentences("info,bgp=debug"), ["one", "three", "four"]);
        assert_eq!(sentences("debug,bgp::session=off,rib=info"), ["three", "four"]);
        assert_eq!(sentences("warn"), ["four"]);
        assert_eq!(sentences("off"), [""; 0]);
    }

    #[test]
    fn priority_is_that_of_syslog() {
        assert_eq!(
            [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE].map(priority),
            [3, 4, 6, 7, 7]
        );
    }
}
