//! Static routes, of the default VRF or another.

use super::bfd::BfdSettings;
use super::check::Checker;
use super::diagnosis::{Step, key};
use super::file;
use ribtide_prefix::{Afi, AnyPrefix};
use std::net::IpAddr;

/// A `[[static]]` table.
#[derive(Clone, PartialEq, Debug)]
pub struct StaticRoute {
    /// Its prefix.
    pub prefix: AnyPrefix,
    /// Where to; empty: drop.
    pub hops: Vec<StaticHop>,
    /// Administrative distance.
    pub distance: u8,
    /// Gateways that stand in while `hops` are unresolved.
    pub backup: Vec<IpAddr>,
    /// What must hold for the route to be used.
    pub track: Option<StaticTrack>,
    /// Watch the gateways with BFD.
    pub bfd: Option<BfdSettings>,
}

/// What the use of a static route hangs on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StaticTrack {
    /// That the interface of this name is up.
    Interface(String),
    /// That there is a route for exactly this prefix.
    Prefix(AnyPrefix),
    /// That a route covers this address.
    Address(IpAddr),
}

/// One next hop of a static route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticHop {
    /// The gateway; none: the interface itself.
    pub gateway: Option<IpAddr>,
    /// The interface, by name.
    pub interface: Option<String>,
}

/// Which interfaces a route may name.
pub(super) struct Place {
    /// All that there are, where the configuration says it.
    pub(super) known: Option<Vec<String>>,
    /// Those that are in another VRF.
    pub(super) outside: Vec<String>,
}

impl Place {
    /// Why a route may not name an interface.
    fn refuses(&self, name: &str) -> Option<String> {
        if self.outside.iter().any(|other| other == name) {
            return Some(format!(
                "{name} is in another VRF, and a route cannot leave its own; write an interface of the route's VRF, or move \
                 {name} by the `interfaces` of the VRFs"
            ));
        }
        let unknown = self.known.as_ref().is_some_and(|known| !known.iter().any(|known| known == name));
        unknown.then(|| format!("there is no [[interface]] named \"{name}\"; add one, or write another name"))
    }
}

/// The key of something inside of what is at `at`.
fn below(at: &[Step], key: &[Step]) -> Vec<Step> {
    [at, key].concat()
}

/// Whether an interface can have this address: it is not unspecified, multicast or reserved (RFC 1112 section 4), nor in
/// 0.0.0.0/8 (RFC 1122 section 3.2.1.3).
pub(super) fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => (1..224).contains(&address.octets()[0]),
        IpAddr::V6(address) => !address.is_unspecified() && !address.is_multicast(),
    }
}

impl Checker {
    /// The static routes of a VRF, which are at `at`.
    pub(super) fn statics(&mut self, at: &[Step], files: &[file::Static], place: &Place) -> Vec<StaticRoute> {
        let mut statics: Vec<StaticRoute> = Vec::new();
        for (i, file) in files.iter().enumerate() {
            let at = below(at, key![i]);
            let Some(route) = self.static_route(&at, file) else { continue };
            if statics.iter().any(|r| (r.prefix, r.distance) == (route.prefix, route.distance)) {
                self.problem(
                    &below(&at, key!["prefix"]),
                    format!(
                        "there is already a static route for {} with distance {}; list all its gateways in next-hop, or \
                         write another distance",
                        route.prefix, route.distance
                    ),
                );
            }
            let tracked = file.track.as_ref().and_then(|track| track.interface.as_ref());
            for (name, key) in [
                (file.interface.as_ref(), below(&at, key!["interface"])),
                (tracked, below(&at, key!["track", "interface"])),
            ] {
                if let Some(message) = name.and_then(|name| place.refuses(name)) {
                    self.problem(&key, message);
                }
            }
            statics.push(route);
        }
        statics
    }

    fn static_route(&mut self, at: &[Step], file: &file::Static) -> Option<StaticRoute> {
        let prefix = match file.prefix.parse::<AnyPrefix>() {
            Ok(prefix) => prefix,
            Err(e) => {
                self.problem(&below(at, key!["prefix"]), e.to_string());
                return None;
            }
        };
        let kinds =
            usize::from(file.blackhole) + usize::from(!file.next_hop.is_empty() || file.interface.is_some());
        if kinds != 1 {
            self.problem(
                at,
                "a static route needs either next-hop (and, if you like, interface), or interface alone, or blackhole = true",
            );
        }
        for (j, gateway) in file.next_hop.iter().enumerate() {
            if matches!(gateway, IpAddr::V6(a) if a.is_unicast_link_local()) && file.interface.is_none() {
                self.problem(
                    &below(at, key!["next-hop", j]),
                    format!("{gateway} is on some link; write which in interface"),
                );
            }
        }
        let gateways = [("next-hop", &file.next_hop), ("backup", &file.backup)];
        for (key, all, j, gateway) in
            gateways.iter().flat_map(|(key, all)| all.iter().enumerate().map(|(j, g)| (*key, *all, j, g)))
        {
            if !is_unicast(*gateway) {
                let message = format!(
                    "{gateway} is no address of a neighbour; write the address of one, or interface alone"
                );
                self.problem(&below(at, key![key, j]), message);
            }
            if all[..j].contains(gateway) {
                let message = format!("{gateway} is already in {key}; remove one of the two");
                self.problem(&below(at, key![key, j]), message);
            }
            if prefix.afi() == Afi::Ipv6 && gateway.to_canonical().is_ipv4() {
                let message = format!(
                    "{gateway} is an IPv4 address, and IPv6 is forwarded by IPv6 neighbours; write one"
                );
                self.problem(&below(at, key![key, j]), message);
            }
        }
        let distance = file.distance.unwrap_or(1);
        if distance == 0 || distance == 255 {
            self.problem(
                &below(at, key!["distance"]),
                "a distance is 1 to 254: 0 is for connected routes, 255 is never used",
            );
        }
        let hops = match (file.blackhole, file.next_hop.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => vec![StaticHop { gateway: None, interface: file.interface.clone() }],
            (false, false) => {
                let hop = |g: &IpAddr| StaticHop { gateway: Some(*g), interface: file.interface.clone() };
                file.next_hop.iter().map(hop).collect()
            }
        };
        if file.blackhole && !file.backup.is_empty() {
            self.problem(
                &below(at, key!["backup"]),
                "a blackhole never fails, so nothing can stand in for it; remove backup, or blackhole",
            );
        }
        for (j, gateway) in file.backup.iter().enumerate() {
            if matches!(gateway, IpAddr::V6(a) if a.is_unicast_link_local()) {
                self.problem(
                    &below(at, key!["backup", j]),
                    format!("{gateway} is on some link, and a backup names none; write an address that a route covers"),
                );
            }
        }
        let backup = file.backup.clone();
        let track = file.track.as_ref().and_then(|track| self.track(at, track));
        let place = below(at, key!["bfd"]);
        let bfd = file.bfd.as_ref().and_then(|bfd| self.bfd_settings(bfd, false, &place));
        if bfd.is_some() && file.next_hop.is_empty() {
            self.problem(
                &place,
                "BFD watches gateways, and this route has none; write next-hop, or remove bfd",
            );
        }
        Some(StaticRoute { prefix, hops, distance, backup, track, bfd })
    }

    fn track(&mut self, at: &[Step], file: &file::Track) -> Option<StaticTrack> {
        let file::Track { interface, prefix, address } = file;
        match (interface, prefix, address) {
            (Some(name), None, None) => Some(StaticTrack::Interface(name.clone())),
            (None, Some(prefix), None) => match prefix.parse::<AnyPrefix>() {
                Ok(prefix) => Some(StaticTrack::Prefix(prefix)),
                Err(e) => {
                    self.problem(&below(at, key!["track", "prefix"]), e.to_string());
                    None
                }
            },
            (None, None, Some(IpAddr::V6(address))) if address.is_unicast_link_local() => {
                self.problem(
                    &below(at, key!["track", "address"]),
                    format!("no route covers {address}, which is on every link; track its interface"),
                );
                None
            }
            (None, None, Some(address)) => Some(StaticTrack::Address(*address)),
            _ => {
                self.problem(
                    &below(at, key!["track"]),
                    "a route tracks one thing: write interface, or prefix, or address",
                );
                None
            }
        }
    }
}
