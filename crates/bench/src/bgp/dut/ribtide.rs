//! ribtide as the router under test: this program, or another build of it.

use super::super::topology::{ASN, NETWORK, NETWORK6, Neighbor};
use super::{Error, Site};
use ribtide_prefix::AfiSafi;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;

/// Its settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// `shards`: a number, `auto` or `off`.
    shards: Option<String>,
    /// `update-threads`: the same.
    update_threads: Option<String>,
    /// Whether it installs routes into its virtual ASIC, and with it `suppress-fib-pending`:
    /// whether it advertises confirmed routes only.
    suppress: Option<bool>,
    /// The program, when it is not this one.
    binary: Option<PathBuf>,
}

impl Settings {
    /// The program to run.
    pub(super) fn program(&self) -> PathBuf {
        let this = || std::env::current_exe().unwrap_or_else(|_| "ribtide".into());
        self.binary.clone().unwrap_or_else(this)
    }

    /// Whether routes go into its virtual ASIC.
    pub(super) fn installs(&self) -> bool {
        self.suppress.is_some()
    }

    pub(super) fn commands(&self, site: &Site<'_>) -> Result<Vec<Command>, Error> {
        let path = site.write("ribtide.toml", &self.configuration(site))?;
        let mut command = site.place.command(&self.program().to_string_lossy());
        command.arg("run").arg("-c").arg(path);
        Ok(vec![command])
    }

    fn configuration(&self, site: &Site<'_>) -> String {
        let topology = site.topology;
        let router = topology.router;
        let value =
            |text: &str| if text.parse::<u32>().is_ok() { text.into() } else { format!("\"{text}\"") };
        let mut threads = String::new();
        // Off means everything on one thread, so it stands for both unless both are given.
        let update_threads = self.update_threads.as_ref().or(self.shards.as_ref().filter(|s| *s == "off"));
        for (key, setting) in [("shards", self.shards.as_ref()), ("update-threads", update_threads)] {
            if let Some(setting) = setting {
                // Writing to a string cannot fail.
                let _ = writeln!(threads, "{key} = {}", value(setting));
            }
        }
        let kind = if topology.reflector {
            "type = \"internal\"\nroute-reflector-client = true"
        } else {
            "type = \"external\""
        };
        let list = |neighbors: &[Neighbor]| {
            let one =
                |n: &Neighbor| format!("    {{ address = \"{}\", peer-asn = {} }},\n", n.address, n.asn);
            neighbors.iter().map(one).collect::<String>()
        };
        let mut fib = self.suppress.map_or(String::new(), |suppress| {
            format!("[fib]\nvirtual-asic = {{ lab = true }}\nsuppress-fib-pending = {suppress}\n\n")
        });
        // All next hops are on the common network. Loopback has no IPv6 address there.
        let router6 = topology.router6();
        if self.installs() || router6.is_some() {
            let more = router6.map_or(String::new(), |address| format!(", \"{address}/{NETWORK6}\""));
            let _ = writeln!(
                fib,
                "[[interface]]\nname = \"Ethernet0\"\naddresses = [\"{router}/{NETWORK}\"{more}]\n"
            );
        }
        format!(
            "[router]\nasn = {asn}\nrouter-id = \"{router}\"\n\n\
             [bgp]\nlisten = [\"{router}:{port}\"]\n{threads}\n\
             [bgp.group.senders]\n{kind}\npassive = true\nfamilies = [\"{family}\"]\n\
             import = [\"accept\"]\nexport = [\"reject\"]\nneighbor = [\n{senders}]\n\n\
             [bgp.group.receivers]\n{kind}\npassive = true\nfamilies = [\"{family}\"]\n\
             import = [\"reject\"]\nexport = [\"accept\"]\nneighbor = [\n{receivers}]\n\n\
             {fib}[api]\nsocket = \"{socket}\"\n",
            asn = ASN,
            port = topology.port,
            family = AfiSafi::unicast(topology.family).name(),
            senders = list(&topology.senders),
            receivers = list(&topology.receivers),
            socket = site.folder.join("ribtide.sock").display(),
        )
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shards.as_deref() {
            Some("auto") => f.write_str(":auto")?,
            Some(shards) => write!(f, ":shards={shards}")?,
            None => {}
        }
        if let Some(threads) = &self.update_threads {
            write!(f, ":update-threads={threads}")?;
        }
        if let Some(suppress) = self.suppress {
            write!(f, ":suppress-fib-pending={}", if suppress { "on" } else { "off" })?;
        }
        if let Some(binary) = &self.binary {
            write!(f, ":binary={}", binary.display())?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Settings {
    type Err = String;

    fn from_str(text: &str) -> Result<Settings, String> {
        let mut settings = Settings::default();
        let threads = |text: &str| match text {
            "auto" | "off" => Ok(Some(text.to_string())),
            number if number.parse::<u32>().is_ok_and(|n| n > 0) => Ok(Some(number.to_string())),
            other => Err(format!("\"{other}\" is no number of threads; write one, auto or off")),
        };
        for setting in text.split(':').filter(|s| !s.is_empty()) {
            match setting.split_once('=') {
                None if setting == "auto" => settings.shards = Some("auto".into()),
                Some(("shards", value)) => settings.shards = threads(value)?,
                Some(("update-threads", value)) => settings.update_threads = threads(value)?,
                Some(("suppress-fib-pending", "on")) => settings.suppress = Some(true),
                Some(("suppress-fib-pending", "off")) => settings.suppress = Some(false),
                Some(("binary", path)) => settings.binary = Some(path.into()),
                _ => {
                    return Err(format!(
                        "ribtide has no setting \"{setting}\" here; there are auto, shards=N, update-threads=N, \
                         suppress-fib-pending=on (or off) and binary=PATH"
                    ));
                }
            }
        }
        Ok(settings)
    }
}
