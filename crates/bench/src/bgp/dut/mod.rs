//! Routers under test. Each is a name on the command line, a configuration for a topology, and the
//! commands that run it; the rest of the suite treats all alike.

mod bird;
mod frr;
mod gobgp;
mod openbgpd;
mod ribtide;

use super::topology::Topology;
use crate::Error;
use crate::harness::Place;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use ribtide::Settings;

/// A router under test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dut {
    /// This project's.
    Ribtide(Settings),
    /// BIRD 2 or 3, as installed.
    Bird,
    /// FRR's bgpd with zebra, which holds its next hops; nothing is installed in the kernel.
    Frr,
    /// GoBGP.
    Gobgp,
    /// OpenBGPD.
    Openbgpd,
}

/// The place of a router's run.
pub(super) struct Site<'a> {
    pub(super) place: &'a Place,
    pub(super) topology: &'a Topology,
    /// For its configuration, sockets and logs.
    pub(super) folder: &'a Path,
}

impl Dut {
    /// Other projects' routers, each with its package.
    const OTHERS: [(Dut, &'static str); 4] =
        [(Dut::Bird, "bird2"), (Dut::Frr, "frr"), (Dut::Gobgp, "gobgpd"), (Dut::Openbgpd, "openbgpd")];

    /// Reads a list such as `ribtide:shards=1,2,auto,bird`: a number, `auto` or `off` alone is another value of the
    /// last setting before it.
    ///
    /// # Errors
    /// A sentence about what cannot be read.
    pub fn parse_list(text: &str) -> Result<Vec<Dut>, String> {
        let mut found: Vec<Dut> = Vec::new();
        let mut last: Option<String> = None;
        for item in text.split(',') {
            let again = matches!(item, "auto" | "off") || item.parse::<u32>().is_ok();
            let full = match (&last, again) {
                (Some(stem), true) => format!("{stem}={item}"),
                _ => item.to_string(),
            };
            last = full.rsplit_once('=').map(|(stem, _)| stem.to_string());
            found.push(full.parse()?);
        }
        Ok(found)
    }

    /// Its programs, first the one that prints the version.
    fn programs(&self) -> Vec<PathBuf> {
        match self {
            Dut::Ribtide(settings) => vec![settings.program()],
            Dut::Bird => vec!["bird".into()],
            Dut::Frr => vec!["/usr/lib/frr/bgpd".into(), "/usr/lib/frr/zebra".into()],
            Dut::Gobgp => vec!["gobgpd".into()],
            Dut::Openbgpd => vec!["/usr/sbin/bgpd".into()],
        }
    }

    /// Its version, as it prints it.
    ///
    /// # Errors
    /// It is not installed: what is missing and how to get it.
    pub fn version(&self) -> Result<String, String> {
        let missing = self.programs().into_iter().find(|program| !installed(program));
        if let Some(program) = missing {
            let package = Dut::OTHERS.iter().find(|(dut, _)| dut == self).map(|(_, package)| *package);
            return Err(match package {
                Some(package) => format!(
                    "{self} is not there: no {}; `scripts/setup bench` or `apt-get install {package}` installs it",
                    program.display()
                ),
                None => format!("no {}", program.display()),
            });
        }
        let flag = if *self == Dut::Openbgpd { "-V" } else { "--version" };
        let output = Command::new(&self.programs()[0]).arg(flag).output().map_err(|e| e.to_string())?;
        // Some print it on standard error.
        let text = [output.stdout, output.stderr].concat();
        Ok(String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_string())
    }

    /// Whether it can run on this place.
    ///
    /// # Errors
    /// It needs namespaces, and these are loopback addresses.
    pub fn fits(&self, loopback: bool) -> Result<(), String> {
        match self {
            Dut::Ribtide(settings) if loopback && settings.installs() => Err(format!(
                "{self} installs routes, and none resolves to a loopback address; leave --loopback out"
            )),
            Dut::Ribtide(_) => Ok(()),
            other if loopback => {
                Err(format!("{other} runs in network namespaces only, which need root and no --loopback"))
            }
            _ => Ok(()),
        }
    }

    /// Writes the configuration, and returns the commands to start in order.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn commands(&self, site: &Site<'_>) -> Result<Vec<Command>, Error> {
        match self {
            Dut::Ribtide(settings) => settings.commands(site),
            Dut::Bird => bird::commands(site),
            Dut::Frr => frr::commands(site),
            Dut::Gobgp => gobgp::commands(site),
            Dut::Openbgpd => openbgpd::commands(site),
        }
    }
}

impl Site<'_> {
    /// A file in the folder.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|source| Error::File { path: path.clone(), source })?;
        Ok(path)
    }
}

impl fmt::Display for Dut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dut::Ribtide(settings) => write!(f, "ribtide{settings}"),
            Dut::Bird => f.write_str("bird"),
            Dut::Frr => f.write_str("frr"),
            Dut::Gobgp => f.write_str("gobgp"),
            Dut::Openbgpd => f.write_str("openbgpd"),
        }
    }
}

impl std::str::FromStr for Dut {
    type Err = String;

    fn from_str(text: &str) -> Result<Dut, String> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        if name == "ribtide" {
            return settings.parse().map(Dut::Ribtide);
        }
        Dut::OTHERS.iter().find(|(dut, _)| dut.to_string() == text).map(|(dut, _)| dut.clone()).ok_or_else(|| {
            format!(
                "no router \"{text}\"; there are ribtide (with settings, such as ribtide:shards=2), bird, frr, gobgp \
                 and openbgpd"
            )
        })
    }
}

/// Whether a program is there: a path, or a name to be found in PATH.
fn installed(program: &Path) -> bool {
    if program.components().count() > 1 {
        return program.exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian's folder for daemons is not in every PATH.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join(program)).any(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_routers_and_values_of_their_settings() {
        let names = |text: &str| {
            Dut::parse_list(text).map(|duts| duts.iter().map(Dut::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            names("ribtide:shards=1,2,off,ribtide:auto,bird,frr,gobgp,openbgpd").unwrap(),
            [
                "ribtide:shards=1",
                "ribtide:shards=2",
                "ribtide:shards=off",
                "ribtide:auto",
                "bird",
                "frr",
                "gobgp",
                "openbgpd"
            ]
        );
        assert_eq!(
            names("ribtide:shards=2:update-threads=1,4").unwrap(),
            ["ribtide:shards=2:update-threads=1", "ribtide:shards=2:update-threads=4"]
        );
        assert_eq!(
            names("ribtide:suppress-fib-pending=on,off").unwrap(),
            ["ribtide:suppress-fib-pending=on", "ribtide:suppress-fib-pending=off"]
        );
        for wrong in [
            "",
            "quagga",
            "bird:shards=2",
            "ribtide:shards=0",
            "ribtide:shards=x",
            "ribtide:suppress-fib-pending=1",
            "ribtide:colour=1",
            "2",
        ] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
    }
}
