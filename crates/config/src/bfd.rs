//! BFD: the `[bfd]` table, and what neighbours and static routes say of it. All that ask for a session with the same
//! neighbour share one.

use super::check::Checker;
use super::diagnosis::{Step, key};
use super::file;
use super::statics::StaticRoute;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Intervals that may be configured, in milliseconds.
const INTERVALS: std::ops::RangeInclusive<u32> = 10..=60_000;

/// What BFD does, all told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BfdConfig {
    /// Addresses of ours that packets are received on.
    pub listen: Vec<IpAddr>,
    /// The sessions.
    pub sessions: BTreeMap<BfdPeer, BfdSession>,
}

/// Whom a session is with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BfdPeer {
    /// Its address.
    pub address: IpAddr,
    /// The name of the interface that it is on: of link-local addresses only, which are on every link.
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
    /// Its settings; strict where next hops may not lead to the neighbour before it has been up.
    pub settings: BfdSettings,
    /// Our address of it; the system's choice unless given.
    pub local: Option<IpAddr>,
    /// Whether a neighbour of BGP has it.
    pub bgp: bool,
}

/// The settings of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BfdSettings {
    /// We send so often at most, in milliseconds.
    pub min_tx: u32,
    /// We receive so often at most, in milliseconds.
    pub min_rx: u32,
    /// So many packets of ours may be missing before the neighbour takes the session for down.
    pub multiplier: u8,
    /// The least TTL of the neighbour's packets when it may be several hops away.
    pub min_ttl: Option<u8>,
    /// The session must have been up before who asked for it relies on the neighbour.
    pub strict: bool,
}

impl file::Bfd {
    /// Whether it says that there is none.
    pub(super) fn is_off(&self) -> bool {
        matches!(self, file::Bfd::Switch(false))
    }
}

impl Checker {
    /// The `[bfd]` table.
    pub(super) fn bfd(&mut self, file: &file::BfdDefaults) -> BfdConfig {
        for (i, address) in file.listen.iter().flatten().enumerate() {
            if address.is_multicast() || matches!(address, IpAddr::V6(a) if a.is_unicast_link_local()) {
                let says = format!(
                    "packets cannot be received on {address}; write a global address of this machine"
                );
                self.problem(key!["bfd", "listen", i], says);
            }
        }
        let any = || vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let listen = file.listen.clone().unwrap_or_else(any);
        self.bfd_timers(file.min_tx, file.min_rx, file.multiplier, &[Step::from("bfd")]);
        self.bfd_defaults = (file.min_tx, file.min_rx, file.multiplier);
        BfdConfig { listen, sessions: BTreeMap::new() }
    }

    fn bfd_timers(&mut self, tx: Option<u32>, rx: Option<u32>, multiplier: Option<u8>, place: &[Step]) {
        let at = |name: &str| [place, &[Step::from(name)]].concat();
        for (name, value) in [("min-tx", tx), ("min-rx", rx)] {
            if let Some(ms) = value.filter(|ms| !INTERVALS.contains(ms)) {
                let says =
                    format!("an interval of {ms} ms cannot be kept to; write 10 to 60000 milliseconds");
                self.problem(&at(name), says);
            }
        }
        if multiplier == Some(0) {
            self.problem(
                &at("multiplier"),
                "without a packet that may be missing no session lasts; write 1 to 255",
            );
        }
    }

    /// What a neighbour or route says of BFD at `place`; `far`: whether the neighbour is several hops away unless it is
    /// said otherwise.
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
            let says = "min-ttl is for a neighbour several hops away, and 1 to 255 (255 less the hops in between); over a \
                        link every packet has a TTL of 255";
            self.problem(&[place, &[Step::from("min-ttl")]].concat(), says);
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

    /// A static route asks for a session with each of its gateways.
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

    /// A route or neighbour asks for a session at `place`.
    pub(super) fn bfd_session(
        &mut self,
        bfd: &mut BfdConfig,
        peer: BfdPeer,
        wanted: BfdSession,
        place: &[Step],
    ) {
        if !bfd.listen.iter().any(|l| l.is_ipv4() == peer.address.is_ipv4()) {
            let says = format!(
                "BFD with {} receives nothing, for bfd.listen has no address of its family; add one",
                peer.address
            );
            self.problem(place, says);
        }
        let Some(session) = bfd.sessions.get_mut(&peer) else {
            bfd.sessions.insert(peer, wanted);
            return;
        };
        let timers = |s: &BfdSettings| (s.min_tx, s.min_rx, s.multiplier, s.min_ttl);
        if timers(&session.settings) != timers(&wanted.settings) {
            let says = format!(
                "there is one BFD session with {}, and it is asked for with other settings elsewhere; write the same in both \
                 places",
                peer.address
            );
            self.problem(place, says);
        }
        session.local = session.local.or(wanted.local);
        session.bgp |= wanted.bgp;
        session.settings.strict |= wanted.settings.strict;
    }
}
