//! SONiC's `context_config.json` (sonic-sairedis, `lib/ContextConfigContainer.cpp`): whether a context's requests go over
//! ZeroMQ, and to which endpoint.

use super::Error;
use super::events::log;
use clap::Args;
use ribtide_settings::Mode;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// SONiC's context_config.json.
#[derive(Args, Clone, Debug)]
pub struct ContextFile {
    /// SONiC's context_config.json, which may turn on ZeroMQ and has its endpoint
    #[arg(short = 'x', long = "contextContig", alias = "contextConfig", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The number of this syncd's context in that file
    #[arg(short = 'g', long = "globalContext", value_name = "NUMBER", default_value_t = 0)]
    pub number: u32,
}

#[derive(Deserialize)]
struct Contexts {
    #[serde(rename = "CONTEXTS")]
    contexts: Vec<Context>,
}

/// The settings of a context for the route path.
#[derive(Deserialize, Default, PartialEq, Debug)]
pub(super) struct Context {
    guid: u32,
    #[serde(rename = "dbAsic", default = "asic_db")]
    db_asic: String,
    zmq_enable: Option<bool>,
    pub(super) zmq_endpoint: Option<String>,
}

fn asic_db() -> String {
    "ASIC_DB".into()
}

impl ContextFile {
    /// The context; the default one without a file, or with a missing one, as in SONiC.
    pub(super) fn read(&self, daemon: &str) -> Result<Context, Error> {
        let Some(file) = &self.file else { return Ok(Context::default()) };
        match std::fs::read_to_string(file) {
            Ok(text) => self.find(file, &text),
            Err(e) => {
                log!(daemon, warn, file = %file.display(), error = %e, "no context file, so the default context");
                Ok(Context::default())
            }
        }
    }

    fn find(&self, file: &Path, text: &str) -> Result<Context, Error> {
        let (file, number) = (file.display(), self.number);
        let all: Contexts = serde_json::from_str(text).map_err(|e| {
            Error::Configuration(format!("{file} is not a context_config.json of SONiC: {e}"))
        })?;
        let context = all.contexts.into_iter().find(|context| context.guid == number).ok_or_else(|| {
            Error::Configuration(format!("{file} has no context {number}; name one that it has with -g"))
        })?;
        if context.db_asic != asic_db() {
            return Err(Error::Configuration(format!(
                "context {number} of {file} keeps its objects in {}; ribtide's syncd keeps them in ASIC_DB only: give it a \
                 database_config.json in which ASIC_DB is that database, and a context that says ASIC_DB",
                context.db_asic
            )));
        }
        Ok(context)
    }
}

impl Context {
    /// The mode of the command line as this context changes it.
    pub(super) fn mode(&self, requested: Mode) -> Mode {
        match self.zmq_enable {
            Some(true) if !requested.is_zmq() => Mode::ZmqSync,
            Some(false) if requested.is_zmq() => Mode::RedisSync,
            _ => requested,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_found_and_obeyed() {
        let text = r#"{"CONTEXTS": [
            {"guid": 0, "name": "syncd", "dbAsic": "ASIC_DB", "dbState": "STATE_DB", "zmq_enable": true,
             "zmq_endpoint": "tcp://127.0.0.1:5565", "switches": [{"index": 0, "hwinfo": ""}]},
            {"guid": 1, "name": "gb", "dbAsic": "GB_ASIC_DB", "zmq_enable": false},
            {"guid": 2, "name": "third", "zmq_enable": false},
            {"guid": 3, "name": "fourth"}]}"#;
        let find = |number, text| ContextFile { file: None, number }.find(Path::new("contexts"), text);
        let first = find(0, text).unwrap();
        assert_eq!(first.zmq_endpoint.as_deref(), Some("tcp://127.0.0.1:5565"));
        assert_eq!(
            [Mode::RedisSync, Mode::ZmqAsync].map(|mode| first.mode(mode)),
            [Mode::ZmqSync, Mode::ZmqAsync]
        );
        let third = find(2, text).unwrap();
        assert_eq!(
            [Mode::RedisAsync, Mode::ZmqSync].map(|mode| third.mode(mode)),
            [Mode::RedisAsync, Mode::RedisSync]
        );
        let fourth = find(3, text).unwrap();
        assert_eq!(
            [Mode::RedisAsync, Mode::ZmqSync].map(|mode| fourth.mode(mode)),
            [Mode::RedisAsync, Mode::ZmqSync]
        );
        let message = |number, text| find(number, text).unwrap_err().to_string();
        assert!(message(1, text).contains("GB_ASIC_DB"));
        assert!(message(9, text).contains("has no context 9"));
        assert!(message(0, "[]").contains("contexts is not a context_config.json"));
        let missing = ContextFile { file: Some("/nowhere/context_config.json".into()), number: 0 };
        assert_eq!(missing.read("syncd").unwrap(), Context::default());
    }
}
