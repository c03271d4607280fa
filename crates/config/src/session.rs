//! Checks of what ends and guards a session: the AS and role of its neighbour, shutdown, GTSM, missing policies.

use super::as_numbers::LocalAs;
use super::check::{AnyAsn, BgpConfig, Both, Checker, NeighborSettings};
use super::file::{self, GroupKind, PeerAsn};
use super::policy::Direction;
use ribtide_policy::GracefulShutdown;
use ribtide_wire::bgp::attribute::code;
use ribtide_wire::bgp::notification::SHUTDOWN_TEXT_MAX;
use ribtide_wire::bgp::role::Role;
use ribtide_wire::bgp::update::AttributeFilter;
use std::collections::BTreeMap;

impl Checker {
    /// The AS that a neighbour of a group of this kind must have.
    pub(super) fn peer_asn(
        &mut self,
        both: &Both<'_>,
        kind: GroupKind,
        dynamic: bool,
        ours: u32,
        local_as: Option<LocalAs>,
    ) -> AnyAsn {
        let other = local_as.map(|local_as| local_as.asn);
        let (peer_asn, at) = both.pick("peer-asn", |n| &n.peer_asn, |g| &g.peer_asn);
        match (kind, peer_asn.copied()) {
            (GroupKind::Internal, None | Some(PeerAsn::Kind(GroupKind::Internal))) => AnyAsn::Exactly(ours),
            (GroupKind::Internal, Some(PeerAsn::Number(n))) => {
                if n != ours && Some(n) != other {
                    let message = format!(
                        "an internal peer has our own AS {ours}, not {n}; write type = \"external\" or remove peer-asn"
                    );
                    self.problem(&at.key(), message);
                }
                AnyAsn::Exactly(ours)
            }
            (GroupKind::Confederation, Some(PeerAsn::Number(n))) => {
                if self.our_confederation.as_ref().is_some_and(|ours| !ours.members.contains(&n)) {
                    let message = format!(
                        "AS {n} is no member of our confederation; add it to bgp.confederation.members, or write type = \
                         \"external\""
                    );
                    self.problem(&at.key(), message);
                }
                AnyAsn::Exactly(n)
            }
            (GroupKind::Confederation, _) => {
                self.problem(
                    both.place,
                    "a neighbour in another member AS needs its number: write peer-asn in the group or at the neighbour",
                );
                AnyAsn::AnyExternal
            }
            (GroupKind::External, Some(PeerAsn::Number(n)))
                if self.our_confederation.as_ref().is_some_and(|ours| ours.members.contains(&n)) =>
            {
                let message =
                    format!("AS {n} is a member of our confederation; write type = \"confederation\"");
                self.problem(&at.key(), message);
                AnyAsn::Exactly(n)
            }
            (GroupKind::External, Some(PeerAsn::Number(n))) => {
                let identifier = self.our_confederation.as_ref().map(|ours| ours.identifier);
                if n == ours || n == 0 || Some(n) == other || Some(n) == identifier {
                    let message = format!(
                        "an external peer cannot have AS {n}; write the neighbour's AS or type = \"internal\""
                    );
                    self.problem(&at.key(), message);
                }
                AnyAsn::Exactly(n)
            }
            (GroupKind::External, Some(PeerAsn::Kind(GroupKind::External))) => AnyAsn::AnyExternal,
            (_, Some(PeerAsn::Kind(_))) => {
                self.problem(
                    &at.key(),
                    "peer-asn contradicts the type of the group; remove it, or write the other type",
                );
                AnyAsn::AnyExternal
            }
            (GroupKind::External, None) => {
                if !dynamic {
                    self.problem(
                        both.place,
                        "an external neighbour needs its AS: write peer-asn in the group or at the neighbour, peer-asn = \
                         \"external\" for any AS but ours",
                    );
                }
                AnyAsn::AnyExternal
            }
        }
    }

    /// The text of a shutdown, which is empty without one; `None`: the session is not shut down.
    pub(super) fn shutdown(&mut self, both: &Both<'_>) -> Option<String> {
        let (shutdown, at) = both.pick("shutdown", |n| &n.shutdown, |g| &g.shutdown);
        match shutdown? {
            file::Shutdown::Switch(on) => on.then(String::new),
            file::Shutdown::Text(text) => {
                if text.len() > SHUTDOWN_TEXT_MAX {
                    let message = format!(
                        "a shutdown text has at most {SHUTDOWN_TEXT_MAX} bytes (RFC 9003), and this has {}; shorten it",
                        text.len()
                    );
                    self.problem(&at.key(), message);
                }
                Some(text.clone())
            }
        }
    }
    /// What graceful shutdown adds to the policies of a neighbour (RFC 8326 section 4).
    pub(super) fn graceful_shutdown(&mut self, both: &Both<'_>, external: bool) -> Graceful {
        let (initiator, at) =
            both.pick("graceful-shutdown", |n| &n.graceful_shutdown, |g| &g.graceful_shutdown);
        let (receiver, receiver_at) = both.pick(
            "graceful-shutdown-receiver",
            |n| &n.graceful_shutdown_receiver,
            |g| &g.graceful_shutdown_receiver,
        );
        for (setting, at) in [(initiator, at), (receiver, receiver_at)] {
            if setting.is_some() && !external {
                self.problem(
                    &at.key(),
                    "graceful shutdown is for external sessions: internal neighbours get LOCAL_PREF 0 with the routes of an \
                     external one (RFC 8326 section 4); remove this, or write type = \"external\"",
                );
            }
        }
        let initiator = initiator == Some(&true);
        let import = match (initiator, receiver.copied().unwrap_or(external)) {
            (true, _) => GracefulShutdown::InitiatorImport,
            (false, true) => GracefulShutdown::Receiver,
            (false, false) => GracefulShutdown::Off,
        };
        let export = if initiator { GracefulShutdown::InitiatorExport } else { GracefulShutdown::Off };
        Graceful { initiator, import, export }
    }

    /// Our role, and whether the neighbour must send its own (RFC 9234).
    pub(super) fn role(&mut self, both: &Both<'_>, external: bool) -> (Option<Role>, bool) {
        let (role, at) = both.pick("role", |n| &n.role, |g| &g.role);
        let (strict, strict_at) = both.pick("role-strict", |n| &n.role_strict, |g| &g.role_strict);
        let strict = strict == Some(&true);
        if role.is_some() && !external {
            self.problem(
                &at.key(),
                "roles are for external sessions (RFC 9234 section 4); remove this, or write type = \"external\"",
            );
        }
        if strict && role.is_none() {
            self.problem(
                &strict_at.key(),
                "role-strict demands the role that corresponds to ours; write role = \"provider\", \"customer\", \"peer\", \
                 \"rs\" or \"rs-client\" too",
            );
        }
        let role = role.map(|name| name.parse()).transpose().unwrap_or_else(|message: String| {
            self.problem(&at.key(), message);
            None
        });
        (role, strict)
    }

    /// With a role, OTC is neither removed nor a reason to withdraw: RFC 9234 section 5 forbids operators to
    /// change its procedures.
    pub(super) fn otc_is_kept(&mut self, both: &Both<'_>, attributes: AttributeFilter) {
        let lists = [
            (
                both.pick("discard-attributes", |n| &n.discard_attributes, |g| &g.discard_attributes).1,
                attributes.discard,
            ),
            (
                both.pick("treat-as-withdraw", |n| &n.treat_as_withdraw, |g| &g.treat_as_withdraw).1,
                attributes.withdraw,
            ),
        ];
        for (at, codes) in lists {
            if codes.contains(code::OTC) {
                self.problem(
                    &at.key(),
                    "with a role the attribute OTC shows route leaks (RFC 9234 section 5); remove \"otc\" (35) from this list, \
                     or remove role",
                );
            }
        }
    }

    /// The number of hops of GTSM (RFC 5082).
    pub(super) fn ttl_security(&mut self, both: &Both<'_>, multihop: Option<u8>) -> Option<u8> {
        let (hops, at) = both.pick("ttl-security", |n| &n.ttl_security, |g| &g.ttl_security);
        let hops = hops.copied()?;
        if !(1..=254).contains(&hops) {
            let message = format!(
                "a neighbour cannot be {hops} hops away; write 1 to 254, 1 for one on a link of ours"
            );
            self.problem(&at.key(), message);
        }
        if multihop.is_some() {
            self.problem(
                &at.key(),
                "ttl-security sends with TTL 255 and multihop with its own; write ttl-security = N for a neighbour that is \
                 N hops away, and remove multihop",
            );
        }
        Some(hops)
    }
}

/// Graceful shutdown of a neighbour (RFC 8326).
pub(super) struct Graceful {
    /// Whether we initiate it.
    pub(super) initiator: bool,
    pub(super) import: GracefulShutdown,
    pub(super) export: GracefulShutdown,
}

/// Neighbours that a warning names; of more it has the number.
const NAMED: usize = 3;

/// A sentence for each group and direction in which external neighbours have no policy, so that RFC 8212 leaves them
/// without routes.
pub(super) fn missing_policies(bgp: &BgpConfig) -> Vec<String> {
    let mut missing: BTreeMap<(&str, Direction), Vec<String>> = BTreeMap::new();
    let neighbors = bgp.neighbors.values().map(|n| (n.address.to_string(), &n.settings));
    let ranges = bgp.dynamic.iter().map(|d| (d.range.to_string(), &d.settings));
    let interfaces = bgp.interfaces.iter().map(|n| (n.interface.to_string(), &n.settings));
    for (name, settings) in neighbors.chain(ranges).chain(interfaces) {
        for (direction, policy) in
            [(Direction::Import, &settings.import), (Direction::Export, &settings.export)]
        {
            if policy.is_missing() {
                missing.entry((&settings.group, direction)).or_default().push(name.clone());
            }
        }
    }
    let sentence = |((group, direction), names): ((&str, Direction), Vec<String>)| {
        let more = names.len().saturating_sub(NAMED);
        let mut list = names[..names.len() - more].join(", ");
        if more > 0 {
            list = format!("{list} and {more} more");
        }
        let (key, effect) = match direction {
            Direction::Import => ("import", "no route is accepted from"),
            Direction::Export => ("export", "no route is sent to"),
        };
        format!(
            "group \"{group}\": {effect} {list}, because an external neighbour without {key} policy has none (RFC 8212); \
             write {key} = [\"accept\"] or a policy of yours, or {key} = [\"reject\"] where that is intended"
        )
    };
    missing.into_iter().map(sentence).collect()
}

/// Whether an external neighbour may be more than one hop away.
pub(super) fn is_multihop(multihop: Option<u8>, ttl_security: Option<u8>) -> bool {
    ttl_security.or(multihop).is_some_and(|hops| hops > 1)
}

impl NeighborSettings {
    /// Whether an external neighbour may be more than one hop away: by `multihop` or `ttl-security`.
    pub fn is_multihop(&self) -> bool {
        is_multihop(self.multihop, self.ttl_security)
    }

    /// The least TTL of received packets (RFC 5082 section 3), if there is one.
    pub fn least_ttl(&self) -> Option<u8> {
        // The link to the neighbour takes none of 255, and every further hop one.
        self.ttl_security.map(|hops| u8::MAX - hops.saturating_sub(1))
    }
}
