//! The log lines of sessions: one when a neighbour comes up, goes down or is refused, with the reason.
//!
//! A neighbour that flaps must not fill the log. Each has an allowance of lines; the lines that exceed it are counted, and the
//! neighbour's next line has their number.

use super::peer::Peer;
use ribtide_bgp::egress::LimitExceeded;
use ribtide_bgp::fsm::{Millis, Negotiated};
use ribtide_bgp::ingest::{LimitAction, LimitCrossed, LimitEvent};
use ribtide_dataplane::InterfaceLine;
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{AfiSafi, Map};
use ribtide_runtime::log::target;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU64;

/// Lines that a neighbour may cause at once, and how often it earns another.
const NEIGHBOR_BURST_MAX: u32 = 8;
const EARNED: Millis = 15_000;
/// The same of all neighbours together.
const ALL_AT_ONCE: u32 = 2000;
const ALL_EARNED: Millis = 20;
/// Neighbours remembered at most: those whose allowance is not full.
const REMEMBERED: usize = 4096;

/// Logs, within the allowances.
pub(super) struct Log {
    neighbors: Map<IpAddr, Allowance>,
    all: Allowance,
}

impl Default for Log {
    fn default() -> Log {
        Log { neighbors: Map::default(), all: Allowance::full(ALL_AT_ONCE) }
    }
}

/// A neighbour as a line names it.
pub(super) struct Who<'a> {
    /// Its address, with a zone if it is link-local.
    pub(super) address: IpAddr,
    /// The interface that the zone stands for.
    pub(super) interface: Option<&'a str>,
    pub(super) asn: Option<u32>,
    pub(super) group: &'a str,
}

impl<'a> Who<'a> {
    /// A neighbour without a session.
    pub(super) fn of(peer: &'a Peer) -> Who<'a> {
        Who {
            address: peer.address,
            interface: peer.link.as_ref().map(|link| link.name.as_str()),
            asn: peer.fsm.settings().peer_asn,
            group: &peer.settings.group,
        }
    }
}

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, zone) = split_zone(self.address);
        match (self.interface, zone) {
            (Some(interface), _) => write!(f, "{address}%{interface}"),
            (None, Some(zone)) => write!(f, "{address}%{zone}"),
            (None, None) => address.fmt(f),
        }
    }
}

/// What happened to a neighbour.
pub(super) enum News<'a> {
    Up(&'a Negotiated),
    /// After how long, and why; and how long its routes stay in use without a new one, if they do.
    Down(Millis, &'a str, Option<Millis>),
    /// Routes that stayed in use are removed: why.
    Swept(&'a str),
    /// They stay as a last resort from now on: why.
    LongLived(&'a str),
    /// There was no session yet: why not.
    Refused(&'a str),
    /// A maximum of prefixes was reached.
    Limit(LimitLine),
    /// A message of it is an error, and is ignored: which.
    Ignored(&'a str),
}

/// A maximum of prefixes that was reached.
pub(super) struct LimitLine {
    family: AfiSafi,
    prefixes: u64,
    max: u32,
    action: Option<LimitAction>,
    sentence: &'static str,
}

impl From<&LimitEvent> for LimitLine {
    fn from(event: &LimitEvent) -> LimitLine {
        let (action, sentence) = match event.crossed {
            LimitCrossed::Warning => (None, "the neighbor comes near its maximum of prefixes"),
            LimitCrossed::Limit(action) => (Some(action), "the neighbor exceeds its maximum of prefixes"),
        };
        LimitLine { family: event.family, prefixes: event.count.into(), max: event.max, action, sentence }
    }
}

impl From<&LimitExceeded> for LimitLine {
    fn from(exceeded: &LimitExceeded) -> LimitLine {
        let LimitExceeded { family, count, max, .. } = *exceeded;
        let sentence = "the neighbor would be sent more than its maximum of prefixes";
        LimitLine { family, prefixes: count, max, action: None, sentence }
    }
}

impl Log {
    /// Logs a change of an interface, with the sessions that it ended and those that may come again. Such lines come with
    /// those of neighbours, so the allowance of all neighbours counts them.
    pub(super) fn interface(
        &mut self,
        now: Millis,
        line: &InterfaceLine,
        sessions_ended: Option<String>,
        sessions_released: Option<String>,
    ) {
        let Some(lines_left_out) = self.all.take(now, ALL_AT_ONCE, ALL_EARNED) else { return };
        let InterfaceLine { interface, sentence } = line;
        let lines_left_out_of_all = NonZeroU64::new(lines_left_out);
        tracing::info!(target: target::BGP_SESSION, interface, sessions_ended, sessions_released, lines_left_out_of_all, "{sentence}");
    }

    /// Logs news of a neighbour, unless that exceeds an allowance.
    pub(super) fn neighbor(&mut self, now: Millis, who: &Who<'_>, news: &News<'_>) {
        if self.neighbors.len() >= REMEMBERED {
            self.neighbors.retain(|_, allowance| !allowance.is_full(now, NEIGHBOR_BURST_MAX, EARNED));
            if self.neighbors.len() >= REMEMBERED {
                self.neighbors.clear();
            }
        }
        let own = self.neighbors.entry(who.address).or_insert_with(|| Allowance::full(NEIGHBOR_BURST_MAX));
        let Some(lines_left_out) = own.take(now, NEIGHBOR_BURST_MAX, EARNED) else { return };
        let Some(lines_left_out_of_all) = self.all.take(now, ALL_AT_ONCE, ALL_EARNED) else { return };
        let Who { asn, group, .. } = who;
        let neighbor = who;
        let (lines_left_out, lines_left_out_of_all) =
            (NonZeroU64::new(lines_left_out), NonZeroU64::new(lines_left_out_of_all));
        match news {
            News::Up(negotiated) => {
                let families = negotiated.families.iter();
                let families: Vec<&str> = families.map(AfiSafi::name).collect();
                tracing::info!(
                    target: target::BGP_SESSION,
                    %neighbor,
                    asn,
                    group,
                    families = families.join(","),
                    hold_time_s = negotiated.hold_time,
                    lines_left_out,
                    lines_left_out_of_all,
                    "the session is up"
                );
            }
            News::Down(after, reason, retained) => tracing::warn!(
                target: target::BGP_SESSION,
                %neighbor,
                asn,
                group,
                reason,
                uptime_s = after / 1000,
                routes_retained_s = retained.map(|time| time / 1000),
                lines_left_out,
                lines_left_out_of_all,
                "the session is down"
            ),
            News::Swept(reason) | News::LongLived(reason) | News::Refused(reason) => {
                let sentence = match news {
                    News::Swept(_) => "the neighbor's stale routes are removed",
                    News::LongLived(_) => {
                        "the neighbor's stale routes are long-lived stale, and the last choice"
                    }
                    _ => "the neighbor gets no session",
                };
                tracing::warn!(
                    target: target::BGP_SESSION,
                    %neighbor,
                    asn,
                    group,
                    reason,
                    lines_left_out,
                    lines_left_out_of_all,
                    "{sentence}"
                )
            }
            News::Limit(LimitLine { family, prefixes, max, action, sentence }) => tracing::warn!(
                target: target::BGP_SESSION,
                %neighbor,
                asn,
                group,
                family = family.name(),
                prefixes,
                max,
                action = action.map(tracing::field::display),
                lines_left_out,
                lines_left_out_of_all,
                "{sentence}"
            ),
            News::Ignored(message) => tracing::warn!(
                target: target::BGP_SESSION,
                %neighbor,
                asn,
                group,
                ignored = message,
                lines_left_out,
                lines_left_out_of_all,
                "a message of the neighbor is ignored"
            ),
        }
    }
}

/// How many lines may still be written.
struct Allowance {
    left: u32,
    /// When the last one was earned.
    earned: Millis,
    /// Lines that were not allowed since the last that was.
    unsaid: u64,
}

impl Allowance {
    fn full(most: u32) -> Allowance {
        Allowance { left: most, earned: 0, unsaid: 0 }
    }

    fn earn(&mut self, now: Millis, most: u32, every: Millis) {
        let earned = now.saturating_sub(self.earned) / every;
        self.earned += earned * every;
        self.left = self.left.saturating_add(earned.min(Millis::from(most)) as u32).min(most);
    }

    fn is_full(&mut self, now: Millis, most: u32, every: Millis) -> bool {
        self.earn(now, most, every);
        self.left == most && self.unsaid == 0
    }

    /// Takes one line; how many were not allowed before it, or `None` when this one is not either.
    fn take(&mut self, now: Millis, most: u32, every: Millis) -> Option<u64> {
        self.earn(now, most, every);
        if self.left == 0 {
            self.unsaid += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_bgp::ingest::LimitAction;
    use ribtide_bgp::peer::FamilySet;
    use ribtide_runtime::log::{LogSettings, capture};

    fn who(last: u8) -> Who<'static> {
        Who { address: [192, 0, 2, last].into(), interface: None, asn: Some(65010), group: "upstream" }
    }

    /// What is logged, without the time.
    fn lines(body: impl FnOnce()) -> Vec<String> {
        let lines = capture(&LogSettings::default(), body);
        lines.lines().map(|line| line.split_once(' ').unwrap().1.trim_start().to_owned()).collect()
    }

    #[test]
    fn neighbor_up_down_and_refused_have_level_sentence_and_fields() {
        let negotiated = Negotiated {
            local_asn: 65001,
            asn: 65010,
            router_id: [1, 1, 1, 1].into(),
            hold_time: 90,
            families: FamilySet::UNICAST,
            four_octet_as: true,
            extended_message: true,
            route_refresh: true,
            enhanced_refresh: true,
            role: None,
            restart: None,
            long_lived: None,
            extended_next_hop: false,
            path_ids: FamilySet::NONE,
            sent_path_ids: FamilySet::NONE,
        };
        let unknown = Who { asn: None, ..who(2) };
        let mut log = Log::default();
        let lines = lines(|| {
            log.neighbor(0, &who(1), &News::Up(&negotiated));
            log.neighbor(
                9,
                &who(1),
                &News::Down(61_500, "NOTIFICATION received (cease: administrative reset)", None),
            );
            for (crossed, count) in
                [(LimitCrossed::Warning, 80), (LimitCrossed::Limit(LimitAction::Discard), 100)]
            {
                let event = LimitEvent { family: AfiSafi::Ipv6Unicast, crossed, count, max: 100 };
                log.neighbor(9, &who(1), &News::Limit((&event).into()));
            }
            log.neighbor(9, &unknown, &News::Refused("NOTIFICATION sent (OPEN message error: bad peer AS)"));
        });
        assert_eq!(
            lines,
            [
                "INFO bgp::session: the session is up neighbor=192.0.2.1 asn=65010 group=upstream \
                 families=ipv4-unicast,ipv6-unicast hold_time_s=90",
                "WARN bgp::session: the session is down neighbor=192.0.2.1 asn=65010 group=upstream \
                 reason=\"NOTIFICATION received (cease: administrative reset)\" uptime_s=61",
                "WARN bgp::session: the neighbor comes near its maximum of prefixes neighbor=192.0.2.1 asn=65010 \
                 group=upstream family=ipv6-unicast prefixes=80 max=100",
                "WARN bgp::session: the neighbor exceeds its maximum of prefixes neighbor=192.0.2.1 asn=65010 \
                 group=upstream family=ipv6-unicast prefixes=100 max=100 action=discard",
                "WARN bgp::session: the neighbor gets no session neighbor=192.0.2.2 group=upstream \
                 reason=\"NOTIFICATION sent (OPEN message error: bad peer AS)\"",
            ]
        );
    }

    #[test]
    fn interface_line_names_the_sessions_that_it_ends() {
        let line = InterfaceLine { interface: "eth1".into(), sentence: "the interface is down".into() };
        let lines = lines(|| Log::default().interface(0, &line, Some("192.0.2.1, 192.0.2.2".into()), None));
        assert_eq!(
            lines,
            [
                "INFO bgp::session: the interface is down interface=eth1 sessions_ended=\"192.0.2.1, 192.0.2.2\""
            ]
        );
    }

    #[test]
    fn neighbor_that_flaps_logs_less_and_others_are_heard() {
        let mut log = Log::default();
        let first = lines(|| {
            for _ in 0..100 {
                log.neighbor(1, &who(1), &News::Refused("x"));
            }
            log.neighbor(1, &who(2), &News::Refused("y"));
        });
        assert_eq!(first.len(), NEIGHBOR_BURST_MAX as usize + 1);
        assert!(first[NEIGHBOR_BURST_MAX as usize].ends_with(" reason=y"), "{first:?}");
        let second = lines(|| log.neighbor(1 + EARNED, &who(1), &News::Refused("x")));
        let [line] = second.as_slice() else { panic!("{second:?}") };
        assert!(line.ends_with(&format!(" reason=x lines_left_out={}", 100 - NEIGHBOR_BURST_MAX)), "{line}");
    }

    #[test]
    fn neighbors_together_have_an_allowance_and_a_bound() {
        let mut log = Log::default();
        let from = |n: usize| Who { address: [10, 0, (n >> 8) as u8, n as u8].into(), ..who(0) };
        let lines =
            lines(|| (0..3 * REMEMBERED).for_each(|n| log.neighbor(0, &from(n), &News::Refused("x"))));
        assert_eq!(lines.len(), ALL_AT_ONCE as usize);
        assert!(log.neighbors.len() <= REMEMBERED && log.all.left == 0);
    }
}
