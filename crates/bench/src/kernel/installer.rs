//! The installers and how each is started.

use super::run::{FEED, GATEWAYS, ROUTER};
use crate::Error;
use crate::harness::Place;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An installer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Installer {
    /// A loop that sends messages made before.
    Ceiling,
    /// `ip -batch`.
    Ip,
    /// This program as a router, or another build of it.
    Ribtide(Option<PathBuf>),
    /// BIRD as installed.
    Bird,
}

/// AS numbers of the router and its feed.
pub(super) const ASN: u32 = 65_000;
pub(super) const FEED_ASN: u32 = 65_100;
/// Length of their network.
pub(super) const NETWORK: u8 = 16;

impl Installer {
    /// The router's process, with its configuration in `folder`; `None` for installers that are no
    /// router.
    ///
    /// # Errors
    /// The configuration cannot be written.
    pub(super) fn router(&self, place: &Place, folder: &Path) -> Result<Option<Command>, Error> {
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|source| Error::File { path: path.clone(), source })?;
            Ok::<PathBuf, Error>(path)
        };
        let command = match self {
            Installer::Ceiling | Installer::Ip => return Ok(None),
            Installer::Ribtide(binary) => {
                let path = write("ribtide.toml", ribtide(folder))?;
                let this = || std::env::current_exe().unwrap_or_else(|_| "ribtide".into());
                let program = binary.clone().unwrap_or_else(this);
                let mut command = place.command(&program.to_string_lossy());
                command.arg("run").arg("-c").arg(path);
                command
            }
            Installer::Bird => {
                let path = write("bird.conf", bird())?;
                let mut command = place.command("bird");
                command.arg("-f").arg("-c").arg(path);
                command.arg("-s").arg(folder.join("bird.ctl")).arg("-P").arg(folder.join("bird.pid"));
                command
            }
        };
        Ok(Some(command))
    }
}

fn ribtide(folder: &Path) -> String {
    format!(
        "[router]\nasn = {ASN}\nrouter-id = \"{ROUTER}\"\n\n\
         [bgp]\nlisten = [\"{ROUTER}:179\"]\n\n\
         [bgp.group.feed]\ntype = \"external\"\npeer-asn = {FEED_ASN}\npassive = true\nfamilies = [\"ipv4-unicast\"]\n\
         import = [\"accept\"]\nexport = [\"reject\"]\nneighbors = [\"{FEED}\"]\n\n\
         [fib]\nkernel = true\n\n[api]\nsocket = \"{}\"\n",
        folder.join("ribtide.sock").display()
    )
}

/// BIRD compares its table with the kernel's at an interval. An hour is its longest interval, so
/// that no comparison falls into a phase.
fn bird() -> String {
    format!(
        "router id {ROUTER};\nlog stderr {{ warning, error, fatal, bug }};\nprotocol device {{}}\nprotocol direct {{ ipv4; }}\n\
         protocol kernel {{ scan time 3600; ipv4 {{ import none; export where source = RTS_BGP; }}; }}\n\
         protocol bgp feed {{ local {ROUTER} as {ASN}; neighbor {FEED} as {FEED_ASN}; direct; passive; \
         ipv4 {{ import all; export none; }}; }}\n"
    )
}

/// The commands that `ip -batch` needs before its routes.
pub(super) fn ip_objects(link: &str) -> String {
    (1..)
        .zip(GATEWAYS)
        .map(|(id, gateway)| format!("nexthop add id {id} via {gateway} dev {link}\n"))
        .collect()
}

impl fmt::Display for Installer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Installer::Ceiling => f.write_str("ceiling"),
            Installer::Ip => f.write_str("ip"),
            Installer::Ribtide(None) => f.write_str("ribtide"),
            Installer::Ribtide(Some(binary)) => write!(f, "ribtide:binary={}", binary.display()),
            Installer::Bird => f.write_str("bird"),
        }
    }
}

impl std::str::FromStr for Installer {
    type Err = String;

    fn from_str(text: &str) -> Result<Installer, String> {
        match text {
            "ceiling" => Ok(Installer::Ceiling),
            "ip" => Ok(Installer::Ip),
            "ribtide" => Ok(Installer::Ribtide(None)),
            "bird" => Ok(Installer::Bird),
            other => match other.strip_prefix("ribtide:binary=") {
                Some(path) => Ok(Installer::Ribtide(Some(path.into()))),
                None => Err(format!(
                    "no installer is called \"{other}\"; there are ceiling, ribtide, ribtide:binary=PATH, bird and ip"
                )),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Installer;

    #[test]
    fn a_name_reads_back() {
        for name in ["ceiling", "ip", "ribtide", "ribtide:binary=/x/y", "bird"] {
            assert_eq!(name.parse::<Installer>().unwrap().to_string(), name);
        }
        assert!("frr".parse::<Installer>().is_err());
    }
}
