//! BFD: the `[bfd]` table, and the settings of neighbours and static routes. All users of a
//! neighbour share one session.

use super::check::Checker;
use super::diagnosis::{Step, key};
use super::file;
use super::statics::StaticRoute;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Intervals that may be configured, in milliseconds.
const INTERVALS: std::ops::RangeInclusive<u32> = 10..=60_000;

/// The configuration of BFD.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BfdConfig {
    /// Local addresses on which packets are received.
    pub listen: Vec<IpAddr>,
    /// The sessions.
    pub sessions: BTreeMap<BfdPeer, BfdSession>,
}

/// The neighbour of a session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BfdPeer {
    /// Its address.
    pub address: IpAddr,
    /// The name of its interface; only for link-local addresses, which exist on every link.
    pub interface: Option<String>,
}

impl fmt::Display for BfdPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            None => self.address.fmt(f),
            Some(interface) => write!(f, "{} on {interface}", self.address),
        }
    }
}

/// A session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BfdSession {
    /// Its settings; strict if next hops may not use the neighbour before the session was up.
    pub settings: BfdSettings,
    /// The local address; the choice of the system unless given.
    pub local: Option<IpAddr>,
    /// Whether a BGP neighbour uses it.
    pub bgp: bool,
}

/// The settings of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BfdSettings {
    /// Desired minimum transmit interval in milliseconds.
    pub min_tx: u32,
    /// Required minimum receive interval in milliseconds.
    pub min_rx: u32,
    /// Detection multiplier: lost packets after which the neighbour declares the session down.
    pub multiplier: u8,
    /// Minimum TTL of packets of a multihop neighbour.
    pub min_ttl: Option<u8>,
    /// Whether users rely on the neighbour only after the session was up.
    pub strict: bool,
}

impl file::Bfd {
    /// Whether it disables BFD.
    pub(super) fn is_off(&self) -> bool {
        matches!(self, file::Bfd::Switch(false))
    }
}

impl Checker {
    /// The `[bfd]` table.
    pub(super) fn bfd(&mut self, file: &file::BfdDefaults) -> BfdConfig {
        for (i, address) in file.listen.iter().flatten().enumerate() {
            if address.is_multicast() || matches!(address, IpAddr::V6(a) if a.is_unicast_link_local()) {
                let message = format!(
                    "packets cannot be received on {address}; write a global address of this machine"
                );
                self.problem(key!["bfd", "listen", i], message);
            }
        }
        let any = || vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let listen = file.listen.clone().unwrap_or_else(any);
        self.bfd_timers(file.min_tx, file.min_rx, file.multiplier, &[Step::from("bfd")]);
        self.bfd_defaults = (file.min_tx, file.min_rx, file.multiplier);
        self.bfd_listens_to_all = listen.contains(&IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        BfdConfig { listen, sessions: BTreeMap::new() }
    }

    fn bfd_timers(&mut self, tx: Option<u32>, rx: Option<u32>, multiplier: Option<u8>, place: &[Step]) {
        let at = |name: &str| [place, &[Step::from(name)]].concat();
        for (name, value) in [("min-tx", tx), ("min-rx", rx)] {
            if let Some(ms) = value.filter(|ms| !INTERVALS.contains(ms)) {
                let message =
                    format!("an interval of {ms} ms cannot be kept to; write 10 to 60000 milliseconds");
                self.problem(&at(name), message);
            }
        }
        if multiplier == Some(0) {
            self.problem(
                &at("multiplier"),
                "without a packet that may be missing no session lasts; write 1 to 255",
            );
        }
    }

    /// Checks the BFD settings of a neighbour or route at `place`; `far`: whether the neighbour is
    /// multihop by default.
    pub(super) fn bfd_settings(
        &mut self,
        file: &file::Bfd,
        far: bool,
        place: &[Step],
    ) -> Option<BfdSettings> {
        let table = match file {
            file::Bfd::Switch(false) => return None,
            file::Bfd::Switch(true) => file::BfdTable::default(),
            file::Bfd::Table(table) => table.clone(),
        };
        self.bfd_timers(table.min_tx, table.min_rx, table.multiplier, place);
        let multihop = table.multihop.unwrap_or(far || table.min_ttl.is_some());
        if table.min_ttl == Some(0) || (table.min_ttl.is_some() && !multihop) {
            let message = "min-ttl is for a neighbour several hops away, and 1 to 255 (255 less the hops in between); over a \
                        link every packet has a TTL of 255";
            self.problem(&[place, &[Step::from("min-ttl")]].concat(), message);
        }
        let (tx, rx, multiplier) = self.bfd_defaults;
        Some(BfdSettings {
            min_tx: table.min_tx.or(tx).unwrap_or(300),
            min_rx: table.min_rx.or(rx).unwrap_or(300),
            multiplier: table.multiplier.or(multiplier).unwrap_or(3),
            min_ttl: multihop.then(|| table.min_ttl.unwrap_or(1)),
            strict: table.strict.unwrap_or(false),
        })
    }

    /// Adds a session for each gateway of a static route.
    pub(super) fn bfd_of_static(&mut self, bfd: &mut BfdConfig, i: usize, route: &StaticRoute) {
        let Some(settings) = route.bfd else { return };
        let hops = route.hops.iter().filter_map(|hop| Some((hop.gateway?, hop.interface.clone())));
        for (address, interface) in hops.chain(route.backup.iter().map(|gateway| (*gateway, None))) {
            let link_local = matches!(address, IpAddr::V6(a) if a.is_unicast_link_local());
            let peer = BfdPeer { address, interface: interface.filter(|_| link_local) };
            let session = BfdSession { settings, local: None, bgp: false };
            self.bfd_session(bfd, peer, session, key!["static", i, "bfd"]);
        }
    }

    /// Adds a session for a route or neighbour at `place`.
    pub(super) fn bfd_session(
        &mut self,
        bfd: &mut BfdConfig,
        peer: BfdPeer,
        requested: BfdSession,
        place: &[Step],
    ) {
        if !bfd.listen.iter().any(|l| l.is_ipv4() == peer.address.is_ipv4()) {
            let message = format!(
                "BFD with {} receives nothing, for bfd.listen has no address of its family; add one",
                peer.address
            );
            self.problem(place, message);
        }
        let Some(session) = bfd.sessions.get_mut(&peer) else {
            bfd.sessions.insert(peer, requested);
            return;
        };
        let timers = |s: &BfdSettings| (s.min_tx, s.min_rx, s.multiplier, s.min_ttl);
        if timers(&session.settings) != timers(&requested.settings) {
            let message = format!(
                "there is one BFD session with {}, and it is asked for with other settings elsewhere; write the same in both \
                 places",
                peer.address
            );
            self.problem(place, message);
        }
        session.local = session.local.or(requested.local);
        session.bgp |= requested.bgp;
        session.settings.strict |= requested.settings.strict;
    }
}
