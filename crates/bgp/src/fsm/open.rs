//! OPEN: our capabilities, the check of the peer's OPEN, and the negotiated session.

use crate::peer::FamilySet;
use ribtide_prefix::{AfiSafi, ByFamily};
use ribtide_wire::bgp::capability::{
    AddPath, AddPathFamily, Capability, ExtendedNextHop, GracefulRestart, LongLivedFamilies, LongLivedFamily,
    RestartFamilies,
};
use ribtide_wire::bgp::notification::{Notification, code, open as subcode};
use ribtide_wire::bgp::open::{Open, OpenBuilder};
use ribtide_wire::bgp::role::Role;
use std::net::Ipv4Addr;

/// The configuration of one session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Our AS.
    pub local_asn: u32,
    /// Our other AS during a migration: sent after the peer refused the first with Bad Peer AS, and so on in turn
    /// (RFC 7705 section 4.2). An internal peer may have either.
    pub alternate_asn: Option<u32>,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// The peer's AS; `None` accepts any but ours.
    pub peer_asn: Option<u32>,
    /// The families that we offer.
    pub families: FamilySet,
    /// The hold time that we offer, in seconds: 0 (none) or at least 3.
    pub hold_time: u16,
    /// Whether to wait for the peer to connect.
    pub passive: bool,
    /// The longest pause between attempts to connect, in seconds.
    pub connect_retry: u16,
    /// Our role (RFC 9234); `None` outside of it.
    pub role: Option<Role>,
    /// Refuse a peer without the role capability.
    pub role_strict: bool,
    /// Whether the peer's routes are retained while it restarts (RFC 4724, RFC 8538).
    pub graceful_restart: bool,
    /// What the peer is to know of restarts of ours; `None`: it is not to retain our routes.
    pub own_restart: Option<OwnRestart>,
    /// The time for which routes of a family may be retained in long-lived graceful restart (RFC 9494), in seconds: ours, which
    /// the peer gets with `own_restart`, and the most for the peer's. 0: not at all, and the capability leaves the family out.
    /// `None`: the capability is not sent. It needs `graceful_restart`.
    pub long_lived: Option<ByFamily<u32>>,
    /// Of the families that we offer, those in which we receive several paths of a prefix (RFC 7911).
    pub add_path_receive: FamilySet,
    /// Those in which we can send several.
    pub add_path_send: FamilySet,
    /// Whether IPv4 routes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
}

/// Restarts of ours, as OPEN tells a peer of them (RFC 4724 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnRestart {
    /// The seconds in which we have a session again, at most [`GracefulRestart::TIME_MAX`].
    pub time: u16,
    /// R: we have restarted, and the peer must not wait for our End-of-RIB.
    pub restarted: bool,
    /// F: the families whose forwarding has lasted since the peer was sent our routes.
    pub forwarding: FamilySet,
}

/// The negotiated values of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// Our AS as the peer knows it: that of our OPEN.
    pub local_asn: u32,
    /// The peer's AS.
    pub asn: u32,
    /// The peer's BGP identifier.
    pub router_id: Ipv4Addr,
    /// The smaller of the two hold times, in seconds; 0: the session has no hold timer.
    pub hold_time: u16,
    /// Families that both carry.
    pub families: FamilySet,
    /// Whether AS numbers have four bytes on this session (RFC 6793).
    pub four_octet_as: bool,
    /// Whether messages may have up to 65,535 bytes (RFC 8654).
    pub extended_message: bool,
    /// Whether the peer understands ROUTE-REFRESH (RFC 2918).
    pub route_refresh: bool,
    /// Whether it also marks the begin and end of a refresh, and understands that of ours (RFC 7313).
    pub enhanced_refresh: bool,
    /// The peer's role, if both sides sent one (RFC 9234).
    pub role: Option<Role>,
    /// What the peer says of its restart, if both sides sent that capability (RFC 4724).
    pub restart: Option<PeerRestart>,
    /// What it says of long-lived graceful restart, if both sides sent that capability too (RFC 9494).
    pub long_lived: Option<PeerLongLived>,
    /// The families in which the peer sends path identifiers (RFC 7911 section 4).
    pub path_ids: FamilySet,
    /// Whether IPv4 routes may have IPv6 next hops, in both directions (RFC 8950 section 4).
    pub extended_next_hop: bool,
    /// The families in which we send path identifiers.
    pub sent_path_ids: FamilySet,
}

/// The long-lived graceful restart capability of a peer, as far as it concerns the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerLongLived {
    /// The seconds for which its routes of a family may be retained after its restart time; 0: not at all.
    pub times: ByFamily<u32>,
    /// The families for which it kept its forwarding over its last restart (F).
    pub forwarding: FamilySet,
}

impl PeerLongLived {
    /// Those of a session with these families; times are at most `most`.
    fn new(theirs: LongLivedFamilies<'_>, session: FamilySet, most: ByFamily<u32>) -> PeerLongLived {
        let mut long_lived = PeerLongLived::default();
        for LongLivedFamily { afi, safi, forwarding, time } in theirs.iter() {
            let family = AfiSafi::from_codes(afi, safi);
            if let Some(family) = family.filter(|family| session.has(*family)) {
                long_lived.times[family] = time.min(most[family]);
                long_lived.forwarding.set(family, forwarding);
            }
        }
        long_lived
    }

    /// The families whose routes may be retained.
    pub fn families(self) -> FamilySet {
        self.times.iter().filter(|(_, time)| **time > 0).map(|(family, _)| family).collect()
    }
}

/// The graceful restart capability of a peer, as far as it concerns the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerRestart {
    /// It has restarted (R).
    pub restarting: bool,
    /// Whether routes are retained also when a NOTIFICATION other than a Hard Reset ends the session:
    /// both sides sent N (RFC 8538).
    pub notification: bool,
    /// The seconds after which it has a session again.
    pub time: u16,
    /// The families of the session whose routes are retained while it restarts.
    pub families: FamilySet,
    /// Those of them for which it kept its forwarding over its last restart (F).
    pub forwarding: FamilySet,
}

impl PeerRestart {
    /// The restart of a session with these families. We always send N.
    fn new(theirs: &GracefulRestart<'_>, session: FamilySet) -> PeerRestart {
        let (mut families, mut forwarding) = (FamilySet::NONE, FamilySet::NONE);
        for (afi, safi, kept) in theirs.families.iter() {
            if let Some(family) = AfiSafi::from_codes(afi, safi).filter(|family| session.has(*family)) {
                families = families.with(family);
                forwarding = if kept { forwarding.with(family) } else { forwarding };
            }
        }
        let GracefulRestart { restarting, notification, time, .. } = *theirs;
        PeerRestart { restarting, notification, time, families, forwarding }
    }
}

/// A refused OPEN: the peer's NOTIFICATION, and the operator's reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    pub(super) notification: Notification,
    pub(super) because: String,
}

impl Settings {
    /// Our first OPEN message.
    #[cfg(test)]
    pub(super) fn first_open(&self) -> Vec<u8> {
        self.open_message(self.local_asn)
    }

    /// The AS to send after a peer refused `asn`, if there is another.
    pub(super) fn other_asn(&self, asn: u32) -> Option<u32> {
        let alternate = self.alternate_asn?;
        Some(if asn == alternate { self.local_asn } else { alternate })
    }

    /// The OPEN message with which we are of AS `asn`.
    pub(super) fn open_message(&self, asn: u32) -> Vec<u8> {
        let mut capabilities = Vec::with_capacity(8);
        capabilities.extend(self.families.iter().map(Capability::multiprotocol));
        capabilities.push(Capability::RouteRefresh);
        if self.extended_next_hop && self.families.has(AfiSafi::Ipv4Unicast) {
            capabilities.push(Capability::ExtendedNextHop(ExtendedNextHop::IPV4_UNICAST_OVER_IPV6));
        }
        capabilities.push(Capability::EnhancedRouteRefresh);
        capabilities.push(Capability::ExtendedMessage);
        capabilities.extend(self.role.map(|role| Capability::Role(role as u8)));
        let mut restart_families = Vec::new();
        if self.graceful_restart {
            // Without families: we retain the peer's routes, and it is not to retain ours (RFC 4724 section 3).
            let (mut restarting, mut time) = (false, 0);
            if let Some(own) = self.own_restart {
                (restarting, time) = (own.restarted, own.time);
                for family in self.families.iter() {
                    RestartFamilies::push(&mut restart_families, family, own.forwarding.has(family));
                }
            }
            let families = RestartFamilies::new(&restart_families);
            let ours = GracefulRestart { restarting, notification: true, time, families };
            capabilities.push(Capability::GracefulRestart(ours));
        }
        let mut long_lived_families = Vec::new();
        if let Some(times) = self.long_lived.filter(|_| self.graceful_restart) {
            let offered = |own: OwnRestart| {
                self.families.iter().filter(move |family| times[*family] > 0).map(move |family| {
                    let ((afi, safi), time) = (family.codes(), times[family]);
                    LongLivedFamily { afi, safi, forwarding: own.forwarding.has(family), time }
                })
            };
            let families: Vec<LongLivedFamily> = self.own_restart.into_iter().flat_map(offered).collect();
            let families = LongLivedFamilies::new(&families, &mut long_lived_families);
            capabilities.push(Capability::LongLivedRestart(families));
        }
        capabilities.push(Capability::FourOctetAs(asn));
        let add_path = AfiSafi::ALL.map(|family| {
            let (afi, safi) = family.codes();
            let receive = self.families.and(self.add_path_receive).has(family);
            AddPathFamily { afi, safi, receive, send: self.families.and(self.add_path_send).has(family) }
        });
        let mut buf = Vec::new();
        if add_path.iter().any(|family| family.receive || family.send) {
            capabilities.push(Capability::AddPath(AddPath::new(&add_path, &mut buf)));
        }
        let mut message = Vec::with_capacity(64);
        OpenBuilder {
            asn,
            hold_time: self.hold_time,
            router_id: self.router_id,
            capabilities: &capabilities,
        }
        .write(&mut message);
        message
    }

    /// Negotiates the session with the peer's OPEN, after ours with AS `local_asn`.
    pub(super) fn negotiate(&self, body: &[u8], local_asn: u32) -> Result<Negotiated, Refusal> {
        let open = Open::parse(body)
            .map_err(|notification| Refusal { because: notification.to_string(), notification })?;
        let refuse =
            |subcode, because| Err(Refusal { notification: Notification::new(code::OPEN, subcode), because });
        let asn = open.asn();
        let internal = self.peer_asn == Some(self.local_asn);
        match self.peer_asn {
            Some(_) if internal && self.alternate_asn == Some(asn) => {}
            Some(wanted) if wanted != asn => {
                return refuse(
                    subcode::BAD_PEER_AS,
                    format!("the peer says it is AS {asn}, but AS {wanted} is configured"),
                );
            }
            None if asn == local_asn => {
                return refuse(
                    subcode::BAD_PEER_AS,
                    format!("the peer says it is AS {asn}, our own, but an external peer is configured"),
                );
            }
            _ => {}
        }
        // RFC 6286 section 2.2: only inside an AS must identifiers differ.
        if (internal || asn == local_asn) && open.router_id == self.router_id {
            return refuse(
                subcode::BAD_IDENTIFIER,
                format!("the peer has our router id {}; give one of the two another", open.router_id),
            );
        }

        let mut theirs = FamilySet::NONE;
        let mut multiprotocol = false;
        let mut roles = Vec::new();
        let mut restart = None;
        let (mut path_ids, mut sent_path_ids) = (FamilySet::NONE, FamilySet::NONE);
        let (mut four_octet_as, mut extended_message) = (false, false);
        let (mut route_refresh, mut enhanced_refresh) = (false, false);
        let mut long_lived = None;
        let mut extended_next_hop = false;
        for capability in open.capabilities() {
            match capability {
                Capability::Multiprotocol { afi, safi } => {
                    multiprotocol = true;
                    theirs = AfiSafi::from_codes(afi, safi).map_or(theirs, |family| theirs.with(family));
                }
                Capability::FourOctetAs(_) => four_octet_as = true,
                Capability::ExtendedNextHop(theirs) => {
                    extended_next_hop |= theirs.families().any(|family| family == (1, 1, 2));
                }
                Capability::ExtendedMessage => extended_message = true,
                Capability::RouteRefresh => route_refresh = true,
                Capability::EnhancedRouteRefresh => enhanced_refresh = true,
                Capability::Role(role) => roles.push(role),
                // Of several, the last one counts (RFC 4724 section 3).
                Capability::GracefulRestart(theirs) if self.graceful_restart => restart = Some(theirs),
                Capability::LongLivedRestart(theirs) => long_lived = Some(theirs),
                // Of several for a family the last counts.
                Capability::AddPath(add_path) => {
                    for AddPathFamily { afi, safi, send, receive } in add_path.families() {
                        if let Some(family) = AfiSafi::from_codes(afi, safi) {
                            path_ids.set(family, send);
                            sent_path_ids.set(family, receive);
                        }
                    }
                }
                _ => {}
            }
        }
        // RFC 4760 section 8: a peer without the capability speaks IPv4 unicast.
        if !multiprotocol {
            theirs = FamilySet::IPV4_UNICAST;
        }
        let families = self.families.and(theirs);
        if families == FamilySet::NONE {
            // RFC 5492 section 5: the data are the capabilities that the peer lacks.
            let mut lacks = Vec::new();
            self.families.iter().for_each(|family| Capability::multiprotocol(family).write(&mut lacks));
            return Err(Refusal {
                notification: Notification::with_data(code::OPEN, subcode::UNSUPPORTED_CAPABILITY, lacks),
                because: "the peer offers none of the configured address families".into(),
            });
        }
        let role = match self.peer_role(&roles) {
            Ok(role) => role,
            Err(because) => return refuse(subcode::ROLE_MISMATCH, because),
        };
        Ok(Negotiated {
            local_asn,
            asn,
            router_id: open.router_id,
            hold_time: self.hold_time.min(open.hold_time),
            families,
            four_octet_as,
            extended_message,
            route_refresh,
            enhanced_refresh,
            role,
            restart: restart.map(|theirs| PeerRestart::new(&theirs, families)),
            // Without the other capability it is ignored (RFC 9494 section 4.5).
            long_lived: long_lived
                .filter(|_| restart.is_some())
                .zip(self.long_lived)
                .map(|(theirs, most)| PeerLongLived::new(theirs, families, most)),
            path_ids: families.and(self.add_path_receive).and(path_ids),
            extended_next_hop: extended_next_hop
                && self.extended_next_hop
                && families.has(AfiSafi::Ipv4Unicast),
            sent_path_ids: families.and(self.add_path_send).and(sent_path_ids),
        })
    }

    /// The peer's role by its capabilities, or why it does not correspond to ours (RFC 9234 section 4.2).
    fn peer_role(&self, received: &[u8]) -> Result<Option<Role>, String> {
        // The same value may be there more than once.
        if received.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err("the peer sends several roles".into());
        }
        let Some(ours) = self.role else { return Ok(None) };
        let wanted = ours.counterpart();
        match received {
            [] if self.role_strict => Err(format!(
                "the peer sends no role, and role-strict demands that it is {wanted}, because ours is {ours}"
            )),
            [] => Ok(None),
            [first, ..] if *first == wanted as u8 => Ok(Some(wanted)),
            [first, ..] => {
                let theirs =
                    Role::from_u8(*first).map_or_else(|| format!("number {first}"), |role| role.to_string());
                Err(format!(
                    "the peer says its role is {theirs}, but ours is {ours}, to which {wanted} corresponds"
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::bgp::message::{MAX_LEN, frame};

    fn settings() -> Settings {
        Settings {
            local_asn: 65001,
            alternate_asn: None,
            router_id: Ipv4Addr::new(10, 0, 0, 1),
            peer_asn: Some(4_200_000_000),
            families: FamilySet::UNICAST,
            hold_time: 90,
            passive: false,
            connect_retry: 5,
            role: None,
            role_strict: false,
            graceful_restart: true,
            own_restart: None,
            long_lived: None,
            add_path_receive: FamilySet::NONE,
            extended_next_hop: false,
            add_path_send: FamilySet::NONE,
        }
    }

    fn theirs() -> Settings {
        Settings {
            local_asn: 4_200_000_000,
            router_id: Ipv4Addr::new(10, 0, 0, 2),
            hold_time: 30,
            ..settings()
        }
    }

    fn theirs_with(role: Option<Role>) -> Settings {
        Settings { role, ..theirs() }
    }

    fn negotiate(ours: &Settings, message: &[u8]) -> Result<Negotiated, Refusal> {
        ours.negotiate(frame(message, MAX_LEN).unwrap().unwrap().body, ours.local_asn)
    }

    fn custom(asn: u32, hold_time: u16, router_id: [u8; 4], capabilities: &[Capability<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        OpenBuilder { asn, hold_time, router_id: router_id.into(), capabilities }.write(&mut out);
        out
    }

    #[test]
    fn two_of_us_agree_on_everything() {
        let n = negotiate(&settings(), &theirs().first_open()).unwrap();
        let expected = Negotiated {
            local_asn: 65001,
            asn: 4_200_000_000,
            router_id: Ipv4Addr::new(10, 0, 0, 2),
            hold_time: 30,
            families: FamilySet::UNICAST,
            four_octet_as: true,
            extended_message: true,
            route_refresh: true,
            enhanced_refresh: true,
            role: None,
            restart: Some(PeerRestart {
                restarting: false,
                notification: true,
                time: 0,
                families: FamilySet::NONE,
                forwarding: FamilySet::NONE,
            }),
            long_lived: None,
            path_ids: FamilySet::NONE,
            extended_next_hop: false,
            sent_path_ids: FamilySet::NONE,
        };
        assert_eq!(n, expected);
    }

    /// RFC 8950 section 4: both advertise it, for the same families.
    #[test]
    fn ipv6_next_hops_of_ipv4_routes_are_what_both_have() {
        let with = |extended_next_hop| Settings { extended_next_hop, ..settings() };
        let theirs = |extended_next_hop| Settings { extended_next_hop, ..theirs() }.first_open();
        for (ours, peers) in [(true, true), (true, false), (false, true), (false, false)] {
            let n = negotiate(&with(ours), &theirs(peers)).unwrap();
            assert_eq!(n.extended_next_hop, ours && peers);
        }
        let any = Settings { peer_asn: None, ..with(true) };
        let unicast = [1, 2].map(|afi| Capability::Multiprotocol { afi, safi: 1 });
        let of = |code, value| {
            negotiate(
                &any,
                &custom(
                    65002,
                    90,
                    [1, 1, 1, 1],
                    &[unicast[0], unicast[1], Capability::Unknown { code, value }],
                ),
            )
        };
        for (value, expected) in [
            (&[0, 1, 0, 1, 0, 2][..], true),
            (&[0, 1, 0, 128, 0, 2, 0, 1, 0, 1, 0, 2], true),
            (&[0, 1, 0, 128, 0, 2], false),
            (&[0, 2, 0, 1, 0, 1], false),
            (&[], false),
            // A malformed one counts as not made.
            (&[0, 1, 0, 1, 0, 2, 0], false),
        ] {
            assert_eq!(of(5, value).unwrap().extended_next_hop, expected, "{value:?}");
        }
        let six = Settings { families: FamilySet::IPV6_UNICAST, ..any.clone() };
        let open = six.first_open();
        let body = frame(&open, MAX_LEN).unwrap().unwrap().body;
        let sends = |c| matches!(c, Capability::ExtendedNextHop(_));
        assert!(!Open::parse(body).unwrap().capabilities().any(sends), "there are no IPv4 routes");
    }

    /// RFC 9234 section 4.2.
    #[test]
    fn roles_must_correspond_and_strict_mode_demands_one() {
        let ours = |role, role_strict| Settings { role, role_strict, ..settings() };
        let they = |role| theirs_with(role).first_open();
        for role in [Role::Provider, Role::RouteServer, Role::RouteServerClient, Role::Customer, Role::Peer] {
            for their_role in (0..6).map(Role::from_u8) {
                let outcome = negotiate(&ours(Some(role), false), &they(their_role)).map(|n| n.role);
                match their_role {
                    None => assert_eq!(outcome, Ok(None)),
                    Some(theirs) if theirs == role.counterpart() => assert_eq!(outcome, Ok(their_role)),
                    Some(_) => assert_eq!(outcome.unwrap_err().notification, Notification::new(2, 11)),
                }
            }
        }
        let strict = negotiate(&ours(Some(Role::Customer), true), &they(None)).unwrap_err();
        assert_eq!(strict.notification, Notification::new(2, 11));
        assert!(strict.because.contains("role-strict demands that it is provider"), "{}", strict.because);
        assert!(negotiate(&ours(Some(Role::Customer), true), &they(Some(Role::Provider))).is_ok());
        assert_eq!(
            negotiate(&ours(None, false), &they(Some(Role::Peer))).unwrap().role,
            None,
            "we send none"
        );
        let both: Vec<_> = [0, 3].map(Capability::Role).into();
        let both = negotiate(
            &Settings { peer_asn: None, ..ours(None, false) },
            &custom(65002, 90, [1, 1, 1, 1], &both),
        );
        assert_eq!(both.unwrap_err().notification, Notification::new(2, 11), "whichever we send");

        let any = Settings { peer_asn: None, ..ours(Some(Role::Customer), false) };
        let with = |roles: &[u8]| {
            let roles: Vec<_> = roles.iter().map(|role| Capability::Role(*role)).collect();
            negotiate(&any, &custom(65002, 90, [1, 1, 1, 1], &roles)).map(|n| n.role).map_err(|r| r.because)
        };
        assert_eq!(with(&[0, 0]), Ok(Some(Role::Provider)));
        assert_eq!(with(&[0, 3]), Err("the peer sends several roles".into()));
        assert!(with(&[9]).unwrap_err().contains("its role is number 9, but ours is customer"));
    }

    /// RFC 7705 section 4.2: an internal peer may have either AS.
    #[test]
    fn alternate_as_is_that_of_an_internal_peer_too() {
        let ours = Settings { peer_asn: Some(65001), alternate_asn: Some(65010), ..settings() };
        let open = |asn, router_id| custom(asn, 90, router_id, &[]);
        for asn in [65001, 65010] {
            let n = negotiate(&ours, &open(asn, [1, 1, 1, 1])).unwrap();
            assert_eq!((n.asn, n.local_asn), (asn, 65001));
            let same_id = negotiate(&ours, &open(asn, [10, 0, 0, 1])).unwrap_err();
            assert_eq!(same_id.notification, Notification::new(2, 3));
        }
        assert!(negotiate(&ours, &open(65011, [1, 1, 1, 1])).is_err());
        let external = Settings { peer_asn: Some(65002), ..ours.clone() };
        assert!(negotiate(&external, &open(65010, [1, 1, 1, 1])).is_err(), "only an internal one");
        assert_eq!((ours.other_asn(65001), ours.other_asn(65010)), (Some(65010), Some(65001)));
        assert_eq!(settings().other_asn(65001), None);
    }

    #[test]
    fn a_peer_without_capabilities_speaks_plain_bgp() {
        let ours = Settings { peer_asn: Some(65002), ..settings() };
        let n = negotiate(&ours, &custom(65002, 0, [1, 1, 1, 1], &[])).unwrap();
        assert_eq!(n.families, FamilySet::IPV4_UNICAST);
        assert_eq!(
            (n.hold_time, n.four_octet_as, n.extended_message, n.route_refresh, n.enhanced_refresh),
            (0, false, false, false, false)
        );
    }

    /// RFC 4724 section 3: families that the session does not carry have no routes to retain.
    #[test]
    fn the_restart_of_a_peer_is_that_of_the_families_of_the_session() {
        let ours = Settings { peer_asn: None, families: FamilySet::IPV4_UNICAST, ..settings() };
        let mut bytes = Vec::new();
        for (afi, safi, flags) in [(1, 1, 0x80), (2, 1, 0x80), (1, 128, 0x80), (1, 1, 0)] {
            bytes.extend_from_slice(&[0, afi, safi, flags]);
        }
        let restart = |restarting, time, bytes| {
            let families = RestartFamilies::new(bytes);
            Capability::GracefulRestart(GracefulRestart { restarting, notification: false, time, families })
        };
        let both = [restart(false, 7, &[]), restart(true, 4095, &bytes)];
        let n = negotiate(&ours, &custom(65002, 90, [1, 1, 1, 1], &both)).unwrap();
        let v4 = FamilySet::IPV4_UNICAST;
        let expected =
            PeerRestart { restarting: true, notification: false, time: 4095, families: v4, forwarding: v4 };
        assert_eq!(n.restart, Some(expected), "the last capability counts");
        let off = Settings { graceful_restart: false, ..ours };
        assert_eq!(negotiate(&off, &custom(65002, 90, [1, 1, 1, 1], &both)).unwrap().restart, None);
        let open = off.first_open();
        let body = frame(&open, MAX_LEN).unwrap().unwrap().body;
        let is_restart = |c: &Capability<'_>| matches!(c, Capability::GracefulRestart(_));
        assert!(!Open::parse(body).unwrap().capabilities().any(|c| is_restart(&c)), "off sends none");
    }

    /// RFC 4724 section 3: every family that we offer, with F where forwarding has lasted, and R after a restart alone.
    #[test]
    fn our_restart_has_the_families_of_open_and_r_and_f_as_they_are() {
        let v4 = FamilySet::IPV4_UNICAST;
        let peer = Settings { peer_asn: None, local_asn: 65009, ..theirs() };
        for (restarted, forwarding) in [(true, v4), (false, FamilySet::ALL), (true, FamilySet::NONE)] {
            let own = OwnRestart { time: 90, restarted, forwarding };
            let ours = Settings { own_restart: Some(own), ..settings() };
            let expected = PeerRestart {
                restarting: restarted,
                notification: true,
                time: 90,
                families: FamilySet::ALL,
                forwarding,
            };
            assert_eq!(negotiate(&peer, &ours.first_open()).unwrap().restart, Some(expected));
            let ours = Settings { families: v4, ..ours };
            assert_eq!(negotiate(&peer, &ours.first_open()).unwrap().restart.unwrap().families, v4);
            let off = Settings { graceful_restart: false, ..ours };
            assert_eq!(negotiate(&peer, &off.first_open()).unwrap().restart, None);
        }
    }

    /// RFC 9494 sections 3.1, 4.1 and 4.5.
    #[test]
    fn long_lived_restart_needs_both_capabilities_of_both() {
        let most = 1_000;
        let own = OwnRestart { time: 90, restarted: true, forwarding: FamilySet::IPV4_UNICAST };
        let every = |time| ByFamily::new(|_| time);
        let ours = Settings { peer_asn: None, long_lived: Some(every(most)), ..settings() };
        let they = |long_lived: Option<u32>, own_restart| Settings {
            long_lived: long_lived.map(every),
            own_restart,
            local_asn: 65009,
            ..theirs()
        };
        let of = |ours: &Settings, they: Settings| negotiate(ours, &they.first_open()).unwrap().long_lived;
        let expected = |time| PeerLongLived { times: ByFamily::new(|_| time), forwarding: own.forwarding };
        assert_eq!(of(&ours, they(Some(70_000), Some(own))), Some(expected(most)), "at most ours");
        assert_eq!(of(&ours, they(Some(7), Some(own))), Some(expected(7)));
        assert_eq!(of(&ours, they(Some(7), None)), Some(PeerLongLived::default()), "a helper");
        // Section 5: each family has its own time; one without is left out.
        let v4 = ByFamily::only(AfiSafi::Ipv4Unicast, 5);
        let only = PeerLongLived { times: v4, forwarding: own.forwarding };
        let some = Settings { long_lived: Some(v4), ..they(Some(7), Some(own)) };
        assert_eq!(of(&ours, some.clone()), Some(only));
        assert_eq!(
            of(&Settings { long_lived: Some(v4), ..ours.clone() }, they(Some(7), Some(own))),
            Some(only)
        );
        let open = some.first_open();
        let parsed = Open::parse(frame(&open, MAX_LEN).unwrap().unwrap().body).unwrap();
        let sent = parsed.capabilities().find_map(|capability| match capability {
            Capability::LongLivedRestart(families) => Some(families.iter().collect::<Vec<_>>()),
            _ => None,
        });
        assert_eq!(sent.unwrap(), [LongLivedFamily { afi: 1, safi: 1, forwarding: true, time: 5 }]);
        assert_eq!(of(&ours, they(None, Some(own))), None);
        let off = Settings { long_lived: None, ..ours.clone() };
        assert_eq!(of(&off, they(Some(7), Some(own))), None);
        let no_restart = Settings { graceful_restart: false, ..they(Some(7), Some(own)) };
        assert_eq!(of(&ours, no_restart), None);
        let mut buf = Vec::new();
        let family = LongLivedFamily { afi: 1, safi: 1, forwarding: true, time: 9 };
        let alone = [Capability::LongLivedRestart(LongLivedFamilies::new(&[family], &mut buf))];
        assert_eq!(negotiate(&ours, &custom(65002, 90, [1, 1, 1, 1], &alone)).unwrap().long_lived, None);
    }

    #[test]
    fn families_are_what_both_have() {
        let ours = Settings { peer_asn: None, ..settings() };
        let six = [Capability::Multiprotocol { afi: 2, safi: 1 }];
        let n = negotiate(&ours, &custom(65002, 90, [1, 1, 1, 1], &six)).unwrap();
        assert_eq!(n.families, FamilySet::IPV6_UNICAST);
        let vpn = [Capability::Multiprotocol { afi: 1, safi: 128 }];
        let refusal = negotiate(&ours, &custom(65002, 90, [1, 1, 1, 1], &vpn)).unwrap_err();
        let ipv4_and_ipv6 = vec![1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1];
        assert_eq!(refusal.notification, Notification::with_data(2, 7, ipv4_and_ipv6));
    }

    #[test]
    fn path_identifiers_come_where_we_receive_and_the_peer_sends() {
        let (none, both) = (FamilySet::NONE, FamilySet::UNICAST);
        let ipv4 = FamilySet::IPV4_UNICAST;
        let ours = |families, add_path_receive| Settings {
            peer_asn: None,
            families,
            add_path_receive,
            ..settings()
        };
        let open = |families: &[(u16, u8, bool, bool)]| {
            let family = |(afi, safi, receive, send): &_| AddPathFamily {
                afi: *afi,
                safi: *safi,
                receive: *receive,
                send: *send,
            };
            let families: Vec<AddPathFamily> = families.iter().map(family).collect();
            let mut buf = Vec::new();
            let add_path = Capability::AddPath(AddPath::new(&families, &mut buf));
            let unicast = [1, 2].map(|afi| Capability::Multiprotocol { afi, safi: 1 });
            custom(65002, 90, [1, 1, 1, 1], &[unicast[0], add_path, unicast[1]])
        };
        let sends = [(1, 1, false, true), (2, 1, true, true)];
        for (ours, sent, path_ids) in [
            (ours(both, both), &sends[..], both),
            (ours(both, ipv4), &sends, ipv4),
            (ours(ipv4, both), &sends, ipv4),
            (ours(both, none), &sends, none),
            (ours(both, both), &[(1, 1, true, false), (2, 1, true, false)], none),
            (ours(both, both), &[(1, 4, true, true), (25, 1, true, true)], none),
            // Twice, the last counts.
            (ours(both, both), &[(2, 1, true, true), (1, 1, true, true), (2, 1, true, false)], ipv4),
        ] {
            assert_eq!(negotiate(&ours, &open(sent)).unwrap().path_ids, path_ids);
        }
        let offered = |settings: &Settings| {
            let message = settings.open_message(settings.local_asn);
            let parsed = Open::parse(frame(&message, MAX_LEN).unwrap().unwrap().body).unwrap();
            let of = |capability| match capability {
                Capability::AddPath(add_path) => {
                    Some(add_path.families().map(|f| (f.afi, f.receive, f.send)).collect())
                }
                _ => None,
            };
            parsed.capabilities().find_map(of)
        };
        let sender = |families, add_path_receive, add_path_send| Settings {
            add_path_send,
            ..ours(families, add_path_receive)
        };
        for (ours, received, sent_path_ids) in [
            (sender(both, none, both), &[(1, 1, true, false), (2, 1, true, true)][..], both),
            (sender(both, both, ipv4), &[(1, 1, true, true), (2, 1, true, true)], ipv4),
            (sender(ipv4, none, both), &[(1, 1, true, false), (2, 1, true, false)], ipv4),
            (sender(both, none, both), &[(1, 1, false, true), (2, 1, false, true)], none),
            (ours(both, both), &[(1, 1, true, true)], none),
        ] {
            assert_eq!(negotiate(&ours, &open(received)).unwrap().sent_path_ids, sent_path_ids);
        }
        assert_eq!(offered(&sender(both, ipv4, both)), Some(vec![(1, true, true), (2, false, true)]));
        assert_eq!(offered(&sender(ipv4, none, both)), Some(vec![(1, false, true)]));
        assert_eq!(offered(&ours(both, both)), Some(vec![(1, true, false), (2, true, false)]));
        assert_eq!(offered(&ours(ipv4, both)), Some(vec![(1, true, false)]));
        assert_eq!(offered(&ours(both, none)), None);
    }

    #[test]
    fn what_is_not_acceptable_is_refused_with_its_subcode() {
        let ours = settings();
        let internal = Settings { peer_asn: Some(65001), ..settings() };
        let any = Settings { peer_asn: None, ..settings() };
        let refusals = [
            (negotiate(&ours, &custom(65003, 90, [1, 1, 1, 1], &[])), 2, "but AS 4200000000 is configured"),
            (negotiate(&any, &custom(65001, 90, [1, 1, 1, 1], &[])), 2, "our own"),
            (negotiate(&internal, &custom(65001, 90, [10, 0, 0, 1], &[])), 3, "has our router id 10.0.0.1"),
            (negotiate(&any, &custom(65002, 2, [1, 1, 1, 1], &[])), 6, "hold time"),
            (negotiate(&any, &custom(65002, 90, [0, 0, 0, 0], &[])), 3, "identifier"),
        ];
        for (refusal, subcode, expected) in refusals {
            let refusal = refusal.unwrap_err();
            assert_eq!((refusal.notification.code, refusal.notification.subcode), (2, subcode));
            assert!(refusal.because.contains(expected), "{}", refusal.because);
        }
        assert!(
            negotiate(&any, &custom(65002, 90, [10, 0, 0, 1], &[])).is_ok(),
            "another AS may have our identifier"
        );
    }
}
