//! The `[bmp]` and `[mrt]` tables: stations that get routes, and files into which they are written.

use super::BgpConfig;
use super::check::Checker;
use super::diagnosis::{Step, key};
use super::file;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The `[bmp]` table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BmpConfig {
    /// sysName of the Initiation; `None`: the name of the host.
    pub system_name: Option<String>,
    /// sysDescr of the Initiation; `None`: ribtide and its version.
    pub system_description: Option<String>,
    /// The stations, by name.
    pub stations: Vec<BmpStation>,
}

/// A station.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BmpStation {
    /// Its name.
    pub name: String,
    /// Its address and TCP port.
    pub address: SocketAddr,
    /// Our address of the connection; the system's choice unless set.
    pub local_address: Option<IpAddr>,
    /// What it gets.
    pub views: BmpViews,
    /// Between two reports of statistics; zero: there are none.
    pub statistics_interval: Duration,
    /// The longest time between two attempts to connect.
    pub retry_interval: Duration,
    /// Bytes that may wait for the station.
    pub queue: usize,
}

/// The tables that a station gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BmpViews {
    /// Routes before import policy (RFC 7854), of neighbours that keep them.
    pub pre_policy: bool,
    /// Routes after import policy (RFC 7854).
    pub post_policy: bool,
    /// Routes after export policy (RFC 8671).
    pub adj_rib_out: bool,
    /// Best paths (RFC 9069).
    pub loc_rib: bool,
}

/// The `[mrt]` table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MrtConfig {
    /// Dumps of the table.
    pub table: Option<MrtFiles>,
    /// Received UPDATEs and states of sessions.
    pub updates: Option<MrtFiles>,
}

/// A series of MRT files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MrtFiles {
    /// The name of a file, with the conversions of [`MRT_CONVERSIONS`] for the time at which it begins, in UTC.
    pub file: PathBuf,
    /// The time of a file, or between two dumps. Files begin at multiples of it since 1970.
    pub interval: Duration,
    /// Whether files are compressed with gzip.
    pub gzip: bool,
}

/// The conversions of strftime(3) in names of MRT files.
pub const MRT_CONVERSIONS: &str = "YmdHMSs%";

/// Seconds between reports of statistics unless set.
const STATISTICS_INTERVAL: u32 = 60;
/// Seconds between attempts to connect unless set.
const RETRY_INTERVAL: u32 = 60;
/// Mebibytes that may wait for a station unless set.
const QUEUE: u32 = 64;
/// Seconds of a file unless set, and between dumps: those of collectors.
const UPDATES_INTERVAL: u32 = 900;
const TABLE_INTERVAL: u32 = 7200;

impl Checker {
    /// The `[bmp]` table.
    pub(super) fn bmp(&mut self, file: &file::Bmp, bgp: Option<&BgpConfig>) -> BmpConfig {
        if bgp.is_none() {
            let message = "without a [bgp] table there is nothing to monitor; add one, or remove this";
            self.problem(key!["bmp"], message);
        }
        let mut stations: Vec<BmpStation> = Vec::new();
        for (name, station) in &file.station {
            let at: &[Step] = key!["bmp", "station", name.as_str()];
            let station = self.bmp_station(name, station, at);
            if let Some(other) = stations.iter().find(|other| other.address == station.address) {
                let message = format!(
                    "station \"{}\" has this address and port too; one connection carries all views, so remove one",
                    other.name
                );
                self.problem(&[at, key!["address"]].concat(), message);
            }
            let keeps = |bgp: &BgpConfig| {
                let keeps = |settings: &super::NeighborSettings| {
                    settings.keep_received || settings.import.tests_validity()
                };
                bgp.neighbors.values().any(|neighbor| keeps(&neighbor.settings))
                    || bgp.dynamic.iter().any(|range| keeps(&range.settings))
            };
            if station.views.pre_policy && bgp.is_some_and(|bgp| !keeps(bgp)) {
                let message = "adj-rib-in-pre-policy has the neighbours whose routes are kept before import policy, and \
                               there is none; set keep-received = true for a group or neighbour, or remove this view";
                self.problem(&[at, key!["views"]].concat(), message);
            }
            stations.push(station);
        }
        for (name, text) in
            [("system-name", &file.system_name), ("system-description", &file.system_description)]
        {
            if text.as_ref().is_some_and(|text| text.is_empty() || text.len() > 255) {
                self.problem(key!["bmp", name], "write 1 to 255 bytes (RFC 1213, DisplayString)");
            }
        }
        let file::Bmp { system_name, system_description, station: _ } = file;
        BmpConfig {
            system_name: system_name.clone(),
            system_description: system_description.clone(),
            stations,
        }
    }

    fn bmp_station(&mut self, name: &str, file: &file::BmpStation, at: &[Step]) -> BmpStation {
        let file::BmpStation {
            address,
            port,
            local_address,
            views,
            statistics_interval,
            retry_interval,
            queue_mib,
        } = file;
        let of = |name: &'static str| [at, key![name]].concat();
        if address.is_unspecified() || address.is_multicast() {
            self.problem(&of("address"), format!("{address} is no address of a station"));
        }
        if local_address.is_some_and(|local| local.is_ipv4() != address.is_ipv4()) {
            self.problem(
                &of("local-address"),
                "this is of another family than the station's address; write one of the same",
            );
        }
        if *port == 0 {
            self.problem(&of("port"), "there is no port 0; write the TCP port of the station");
        }
        if views.is_empty() {
            self.problem(&of("views"), "a station without a view gets no routes; write at least one");
        }
        let mut set = BmpViews::default();
        for (i, view) in views.iter().enumerate() {
            let flag = match view {
                file::BmpView::AdjRibInPrePolicy => &mut set.pre_policy,
                file::BmpView::AdjRibInPostPolicy => &mut set.post_policy,
                file::BmpView::AdjRibOutPostPolicy => &mut set.adj_rib_out,
                file::BmpView::LocRib => &mut set.loc_rib,
            };
            if std::mem::replace(flag, true) {
                self.problem(&[&of("views")[..], key![i]].concat(), "this view is there twice; remove one");
            }
        }
        let statistics = statistics_interval.unwrap_or(STATISTICS_INTERVAL);
        if statistics > 86_400 {
            self.problem(
                &of("statistics-interval"),
                "write 0 to 86400 seconds; with 0 there are no statistics",
            );
        }
        let retry = retry_interval.unwrap_or(RETRY_INTERVAL);
        if !(1..=3600).contains(&retry) {
            self.problem(&of("retry-interval"), "write 1 to 3600 seconds");
        }
        let queue = queue_mib.unwrap_or(QUEUE);
        if !(1..=4096).contains(&queue) {
            self.problem(&of("queue-mib"), "write 1 to 4096");
        }
        BmpStation {
            name: name.to_owned(),
            address: SocketAddr::new(*address, *port),
            local_address: *local_address,
            views: set,
            statistics_interval: Duration::from_secs(statistics.into()),
            retry_interval: Duration::from_secs(retry.into()),
            queue: (queue as usize) << 20,
        }
    }

    /// The `[mrt]` table. Paths of files are relative to `folder`.
    pub(super) fn mrt(&mut self, file: &file::Mrt, folder: &Path, has_bgp: bool) -> MrtConfig {
        if !has_bgp {
            let message = "without a [bgp] table there is nothing to write; add one, or remove this";
            self.problem(key!["mrt"], message);
        }
        let file::Mrt { table, updates } = file;
        let config = MrtConfig {
            table: table.as_ref().map(|t| self.mrt_files(t, folder, key!["mrt", "table"], TABLE_INTERVAL)),
            updates: updates
                .as_ref()
                .map(|u| self.mrt_files(u, folder, key!["mrt", "updates"], UPDATES_INTERVAL)),
        };
        if let (Some(table), Some(updates)) = (&config.table, &config.updates)
            && table.file == updates.file
        {
            let message =
                "dumps of the table have this name too, and one file would replace the other; write another";
            self.problem(key!["mrt", "updates", "file"], message);
        }
        config
    }

    fn mrt_files(&mut self, file: &file::MrtFiles, folder: &Path, at: &[Step], interval: u32) -> MrtFiles {
        let of = |name: &'static str| [at, key![name]].concat();
        let text = file.file.to_string_lossy();
        let mut rest = text.split('%').skip(1);
        let mut conversions = Vec::new();
        while let Some(part) = rest.next() {
            match part.chars().next() {
                // `%%` splits into an empty part and the text after it.
                None => drop((conversions.push('%'), rest.next())),
                Some(conversion) => conversions.push(conversion),
            }
        }
        if let Some(unknown) = conversions.iter().find(|c| !MRT_CONVERSIONS.contains(**c)) {
            let message =
                format!("there is no conversion %{unknown}; write %Y, %m, %d, %H, %M, %S, %s or %%");
            self.problem(&of("file"), message);
        }
        if file.file.file_name().is_none() {
            self.problem(&of("file"), "this names no file; write its path, for example rib.%Y%m%d.%H%M.mrt");
        }
        let seconds = file.interval.unwrap_or(interval);
        if !(1..=604_800).contains(&seconds) {
            self.problem(&of("interval"), "write 1 to 604800 seconds");
        }
        // Each conversion tells times apart that are this far from each other.
        let has = |all: &str| all.chars().all(|c| conversions.contains(&c));
        let distinct = has("s")
            || (has("YmdHMS"))
            || (has("YmdHM") && seconds.is_multiple_of(60))
            || (has("YmdH") && seconds.is_multiple_of(3600))
            || (has("Ymd") && seconds.is_multiple_of(86_400));
        if !distinct {
            let message = format!(
                "files that begin {seconds} s apart would have one name, and each would replace the one before; write \
                 the date and time as far as they differ, for example %Y%m%d.%H%M"
            );
            self.problem(&of("file"), message);
        }
        MrtFiles {
            file: folder.join(&file.file),
            interval: Duration::from_secs(seconds.into()),
            gzip: matches!(file.compression, Some(file::Compression::Gzip)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const ROUTER: &str = "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n";
    const BGP: &str = "[bgp.group.g]\ntype = \"external\"\npeer-asn = 65002\nneighbors = [\"10.0.0.2\"]\n";

    fn problems(text: &str) -> Vec<String> {
        let found = parse(&format!("{ROUTER}{text}")).unwrap_err();
        found.iter().map(|problem| problem.message.clone()).collect()
    }

    #[test]
    fn stations_have_defaults_and_bounds() {
        let text = format!(
            "{ROUTER}{BGP}keep-received = true\n[bmp.station.a]\naddress = \"192.0.2.1\"\nport = 5000\n\
             views = [\"adj-rib-in-pre-policy\", \"loc-rib\"]\n[bmp.station.b]\naddress = \"192.0.2.1\"\nport = 5001\n\
             views = [\"adj-rib-in-post-policy\", \"adj-rib-out-post-policy\"]\nstatistics-interval = 0\nqueue-mib = 1\n"
        );
        let [a, b] = parse(&text).unwrap().bmp.unwrap().stations.try_into().unwrap();
        let views = BmpViews { pre_policy: true, post_policy: false, adj_rib_out: false, loc_rib: true };
        assert_eq!(
            (a.name.as_str(), a.address.to_string().as_str(), a.views),
            ("a", "192.0.2.1:5000", views)
        );
        assert_eq!(
            (a.statistics_interval.as_secs(), a.retry_interval.as_secs(), a.queue),
            (60, 60, 64 << 20)
        );
        assert_eq!((b.statistics_interval, b.queue), (Duration::ZERO, 1 << 20));
        assert!(b.views.adj_rib_out && b.views.post_policy && !b.views.loc_rib);
        for (text, message) in [
            ("address = \"0.0.0.0\"\nport = 1\nviews = [\"loc-rib\"]\n", "no address of a station"),
            ("address = \"10.0.0.1\"\nport = 0\nviews = [\"loc-rib\"]\n", "no port 0"),
            ("address = \"10.0.0.1\"\nport = 1\nviews = []\n", "without a view"),
            ("address = \"10.0.0.1\"\nport = 1\nviews = [\"loc-rib\", \"loc-rib\"]\n", "there twice"),
            ("address = \"10.0.0.1\"\nport = 1\nviews = [\"adj-rib-in-pre-policy\"]\n", "there is none"),
            (
                "address = \"10.0.0.1\"\nport = 1\nviews = [\"loc-rib\"]\nlocal-address = \"::1\"\n",
                "another family",
            ),
            ("address = \"10.0.0.1\"\nport = 1\nviews = [\"loc-rib\"]\nqueue-mib = 0\n", "1 to 4096"),
            ("address = \"10.0.0.1\"\nport = 1\nviews = [\"loc-rib\"]\nretry-interval = 0\n", "1 to 3600"),
        ] {
            let found = problems(&format!("{BGP}[bmp.station.a]\n{text}"));
            assert!(found.iter().any(|problem| problem.contains(message)), "{text}: {found:?}");
        }
        let twice = "[bmp.station.a]\naddress = \"10.0.0.1\"\nport = 1\nviews = [\"loc-rib\"]\n[bmp.station.b]\n\
                     address = \"10.0.0.1\"\nport = 1\nviews = [\"loc-rib\"]\n";
        assert!(problems(&format!("{BGP}{twice}"))[0].contains("station \"a\" has this address"));
        assert!(problems("[bmp]\n")[0].contains("without a [bgp] table"));
    }

    #[test]
    fn file_names_tell_files_apart() {
        let with = |text: &str| format!("{BGP}[mrt.table]\n{text}");
        let text = with("file = \"/var/lib/rib.%Y%m%d.%H%M.mrt.gz\"\ncompression = \"gzip\"\n");
        let mrt = parse(&format!("{ROUTER}{text}")).unwrap().mrt.unwrap();
        let table = mrt.table.unwrap();
        assert_eq!((table.interval.as_secs(), table.gzip, mrt.updates), (7200, true, None));
        for (text, message) in [
            ("file = \"rib.mrt\"\n", "would have one name"),
            ("file = \"rib.%Y%m%d.%H\"\ninterval = 60\n", "would have one name"),
            ("file = \"rib.%%s\"\n", "would have one name"),
            ("file = \"rib.%s.%q\"\n", "no conversion %q"),
            ("file = \"rib.%s\"\ninterval = 0\n", "1 to 604800"),
            ("file = \"%s/..\"\n", "names no file"),
        ] {
            let found = problems(&with(text));
            assert!(found.iter().any(|problem| problem.contains(message)), "{text}: {found:?}");
        }
        for text in ["file = \"100%%.%s\"\ninterval = 1\n", "file = \"%Y%m%d\"\ninterval = 86400\n"] {
            assert!(parse(&format!("{ROUTER}{}", with(text))).is_ok(), "{text}");
        }
        let both = "[mrt.table]\nfile = \"a.%s\"\n[mrt.updates]\nfile = \"a.%s\"\n";
        assert!(problems(&format!("{BGP}{both}"))[0].contains("have this name too"));
        assert!(problems("[mrt]\n")[0].contains("without a [bgp] table"));
    }
}
