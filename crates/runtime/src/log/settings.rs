//! What of the log is configured: which lines are written, and how.

use super::target;
use std::fmt;
use std::str::FromStr;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// What of the log is configured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LogSettings {
    /// The least level of each target's lines.
    pub levels: Levels,
    /// How a line is written.
    pub format: Format,
}

/// The least level of each target's lines, as `info,bgp=debug`: tracing-subscriber's [`Targets`], of [`target::ALL`] only.
#[derive(Clone, PartialEq, Debug)]
pub struct Levels(pub(super) Targets);

impl Default for Levels {
    fn default() -> Levels {
        Levels(Targets::new().with_default(LevelFilter::INFO))
    }
}

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Levels, String> {
        let refused =
            |why: &str| format!("{why}; write a level, and others of single targets, as in info,bgp=debug");
        // tracing-subscriber takes a missing level for "error".
        if text.split(',').any(|part| part.is_empty() || part.ends_with('=')) {
            return Err(refused(&format!("\"{text}\" lacks a level")));
        }
        let targets: Targets = text.parse().map_err(|e| refused(&format!("\"{text}\": {e}")))?;
        let known = |name: &str| {
            let within = |target: &str| target.split("::").next() == Some(name);
            target::ALL.iter().any(|(target, _)| *target == name || within(target))
        };
        if let Some((name, _)) = targets.iter().find(|(name, _)| !known(name)) {
            let all: Vec<&str> = target::ALL.iter().map(|(target, _)| *target).collect();
            return Err(refused(&format!(
                "\"{name}\" is neither a level (off, error, warn, info, debug, trace) nor a target ({})",
                all.join(", ")
            )));
        }
        let default = targets.default_level().unwrap_or(LevelFilter::INFO);
        Ok(Levels(targets.with_default(default)))
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a line is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// `TIME LEVEL TARGET: SENTENCE KEY=VALUE …`.
    #[default]
    Text,
    /// An object with `timestamp`, `level`, `message`, the fields and `target`.
    Json,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        match text {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            _ => Err(format!("\"{text}\" is no format of the log; write \"text\" or \"json\"")),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Text => "text",
            Format::Json => "json",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_read_what_they_display() {
        for text in ["info", "off", "bgp=debug,warn", "bgp::session=debug,rib=off,error"] {
            let levels: Levels = text.parse().unwrap();
            assert_eq!(levels.to_string().parse(), Ok(levels), "{text}");
        }
        assert_eq!("bgp=debug".parse::<Levels>(), "info,bgp=debug".parse());
    }

    #[test]
    fn levels_unknown_word_is_refused_with_those_that_are() {
        for (text, expected) in [
            ("", "\"\" lacks a level; write a level, and others of single targets, as in info,bgp=debug"),
            ("info,bgp=", "\"info,bgp=\" lacks a level"),
            (
                "verbose",
                "\"verbose\" is neither a level (off, error, warn, info, debug, trace) nor a target (api, bfd",
            ),
            ("info,bpg=debug", "\"bpg\" is neither a level"),
            ("bgp=loud", "\"bgp=loud\": "),
        ] {
            let refused = text.parse::<Levels>().unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }
}
