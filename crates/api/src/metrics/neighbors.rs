//! The metrics of neighbours: by far the most samples of a scrape. Each is a column of one table, whose rows are neighbours.
//! What the samples of a column have in common is text before the first, so that a sample takes four copies.

use super::family::Labels;
use super::registry::*;
use crate::answers::{NeighborCounts, SessionCounts};
use ribtide_bgp::ingest::Refusal;
use ribtide_bgpd::messages::MessageCounts;
use ribtide_model::PerFamilyCount;
use ribtide_prefix::AfiSafi;
use ribtide_wire::bgp::message::MessageType::{self, Keepalive, Notification, Open, RouteRefresh, Update};

/// A neighbour at the time of the scrape.
#[derive(Debug)]
pub(super) struct Row {
    /// Its labels `neighbor` and `group`, escaped once for all its samples.
    labels: Labels,
    counts: NeighborCounts,
}

impl Row {
    pub(super) fn new(counts: NeighborCounts) -> Row {
        let labels = Labels::default().and("neighbor", &counts.address).and("group", &counts.group);
        Row { labels, counts }
    }
}

/// The text between the labels `neighbor` and `group` and the value, with these labels.
macro_rules! more {
    () => {
        "} "
    };
    ($($labels:literal),+) => {
        concat!($(",", $labels),+, "} ")
    };
}

/// Samples of one metric for each neighbour.
pub(super) struct Column {
    pub(super) metric: Metric,
    values: Values,
}

/// The values of a neighbour, with the text between its labels and the value. `None`: it has no sample.
#[derive(Clone, Copy)]
enum Values {
    One(fn(&NeighborCounts) -> Option<u64>),
    /// Of established sessions.
    Session(&'static str, fn(&SessionCounts) -> u64),
    Families(fn(&NeighborCounts) -> Option<PerFamilyCount>),
    /// Maximum prefixes of a direction and family.
    Limits(fn(&NeighborCounts, Direction, AfiSafi) -> Option<u64>),
    Messages(&'static [(&'static str, MessageType); 5], fn(&SessionCounts) -> MessageCounts),
}

use Values::{Families, Limits, Messages, One, Session};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Received,
    Sent,
}

const FAMILIES: [(&str, AfiSafi); 2] =
    [(more!("family=\"ipv4\""), AfiSafi::Ipv4Unicast), (more!("family=\"ipv6\""), AfiSafi::Ipv6Unicast)];

const LIMITS: [(&str, Direction, AfiSafi); 4] = [
    (more!("direction=\"received\"", "family=\"ipv4\""), Direction::Received, AfiSafi::Ipv4Unicast),
    (more!("direction=\"sent\"", "family=\"ipv4\""), Direction::Sent, AfiSafi::Ipv4Unicast),
    (more!("direction=\"received\"", "family=\"ipv6\""), Direction::Received, AfiSafi::Ipv6Unicast),
    (more!("direction=\"sent\"", "family=\"ipv6\""), Direction::Sent, AfiSafi::Ipv6Unicast),
];

const RECEIVED: [(&str, MessageType); 5] = [
    (more!("direction=\"received\"", "type=\"open\""), Open),
    (more!("direction=\"received\"", "type=\"update\""), Update),
    (more!("direction=\"received\"", "type=\"notification\""), Notification),
    (more!("direction=\"received\"", "type=\"keepalive\""), Keepalive),
    (more!("direction=\"received\"", "type=\"route-refresh\""), RouteRefresh),
];

const SENT: [(&str, MessageType); 5] = [
    (more!("direction=\"sent\"", "type=\"open\""), Open),
    (more!("direction=\"sent\"", "type=\"update\""), Update),
    (more!("direction=\"sent\"", "type=\"notification\""), Notification),
    (more!("direction=\"sent\"", "type=\"keepalive\""), Keepalive),
    (more!("direction=\"sent\"", "type=\"route-refresh\""), RouteRefresh),
];

/// Every metric of neighbours.
pub(super) const COLUMNS: &[Column] = &[
    column(NEIGHBOR_UP, One(|n| Some(n.session.is_some().into()))),
    column(NEIGHBOR_STATE, One(|n| Some(n.state_seconds))),
    column(NEIGHBOR_FLAPS, One(|n| Some(n.flaps))),
    column(NEIGHBOR_ACCEPTED, Families(|n| n.session.as_ref().map(|s| s.accepted))),
    column(NEIGHBOR_ACTIVE, Families(|n| n.session.as_ref().map(|s| s.active))),
    column(NEIGHBOR_ADVERTISED, Families(|n| n.session.as_ref().map(|s| s.advertised))),
    column(NEIGHBOR_STALE, Families(|n| Some(n.stale))),
    column(NEIGHBOR_STALE_EXPIRED, One(|n| Some(n.stale_expired))),
    column(NEIGHBOR_MAX, Limits(max_prefixes)),
    column(NEIGHBOR_MAX_COUNT, Limits(used_prefixes)),
    column(NEIGHBOR_MAX_EXCEEDED, Limits(exceeded)),
    column(NEIGHBOR_MAX_DISCARDED, Session(more!(), |s| s.ingest.refused(Refusal::MaxPrefixes))),
    column(NEIGHBOR_MESSAGES, Messages(&RECEIVED, |s| s.messages_received)),
    column(NEIGHBOR_MESSAGES, Messages(&SENT, |s| s.messages_sent)),
    column(
        NEIGHBOR_PREFIXES,
        Session(more!("direction=\"received\"", "what=\"announced\""), |s| s.ingest.announced),
    ),
    column(
        NEIGHBOR_PREFIXES,
        Session(more!("direction=\"received\"", "what=\"withdrawn\""), |s| s.ingest.withdrawn),
    ),
    column(
        NEIGHBOR_PREFIXES,
        Session(more!("direction=\"received\"", "what=\"refused\""), |s| s.ingest.all_refused()),
    ),
    column(
        NEIGHBOR_PREFIXES,
        Session(more!("direction=\"sent\"", "what=\"announced\""), |s| s.sent.announced),
    ),
    column(
        NEIGHBOR_PREFIXES,
        Session(more!("direction=\"sent\"", "what=\"withdrawn\""), |s| s.sent.withdrawn),
    ),
    column(NEIGHBOR_EVALUATED_AGAIN, Session(more!(), |s| s.ingest.evaluated_again)),
    column(NEIGHBOR_TREATED_AS_WITHDRAW, Session(more!(), |s| s.ingest.treated_as_withdraw)),
    column(NEIGHBOR_WRITE_QUEUE, Session(more!(), |s| s.writes.bytes as u64)),
    column(NEIGHBOR_WRITE_BLOCKS, Session(more!(), |s| s.writes.blocks)),
    column(NEIGHBOR_WRITE_STOPS, Session(more!(), |s| s.writes.stops)),
    column(NEIGHBOR_WAITING, Session(more!(), |s| s.waiting)),
    column(NEIGHBOR_SLOW, Session(more!(), |s| s.writes.slow.into())),
];

const fn column(metric: Metric, values: Values) -> Column {
    Column { metric, values }
}

impl Column {
    /// Adds its samples of these neighbours.
    pub(super) fn push(&self, out: &mut String, rows: &[Row]) {
        let name = [self.metric.name, "{"].concat();
        rows.iter().for_each(|row| self.push_row(out, &name, row));
    }

    fn push_row(&self, out: &mut String, name: &str, Row { labels, counts }: &Row) {
        let mut sample = |more: &str, value: u64| {
            out.push_str(name);
            out.push_str(labels.as_str());
            out.push_str(more);
            match u8::try_from(value) {
                // Most values have one digit.
                Ok(digit @ 0..=9) => out.push((b'0' + digit).into()),
                _ => out.push_str(itoa::Buffer::new().format(value)),
            }
            out.push('\n');
        };
        match self.values {
            One(of) => of(counts).into_iter().for_each(|value| sample(more!(), value)),
            Session(more, of) => counts.session.iter().for_each(|session| sample(more, of(session))),
            Families(of) => {
                let Some(count) = of(counts) else { return };
                FAMILIES.into_iter().for_each(|(more, family)| sample(more, count.of(family)));
            }
            Limits(of) => {
                for (more, direction, family) in LIMITS {
                    of(counts, direction, family).into_iter().for_each(|value| sample(more, value));
                }
            }
            Messages(kinds, of) => {
                let Some(messages) = counts.session.as_ref().map(of) else { return };
                kinds.iter().for_each(|(more, kind)| sample(more, messages.of(*kind)));
            }
        }
    }
}

fn max_prefixes(n: &NeighborCounts, direction: Direction, family: AfiSafi) -> Option<u64> {
    let max = match direction {
        Direction::Received => n.max_prefixes.received?.limits[family]?,
        Direction::Sent => n.max_prefixes.sent[family]?,
    };
    Some(max.into())
}

fn used_prefixes(n: &NeighborCounts, direction: Direction, family: AfiSafi) -> Option<u64> {
    max_prefixes(n, direction, family)?;
    let session = n.session.as_ref()?;
    match direction {
        Direction::Received => Some(session.limited[family]?.count.into()),
        Direction::Sent => session.is_member.then(|| session.advertised.of(family)),
    }
}

fn exceeded(n: &NeighborCounts, direction: Direction, family: AfiSafi) -> Option<u64> {
    max_prefixes(n, direction, family)?;
    Some(match direction {
        Direction::Received => n.exceeded[family],
        Direction::Sent => n.exceeded_out[family],
    })
}

#[cfg(test)]
mod tests {
    use super::super::family::names;
    use super::*;

    #[test]
    fn columns_have_the_labels_of_their_metrics_and_every_metric_of_neighbors_is_one() {
        for Column { metric, values } in COLUMNS {
            let more: Vec<&str> = match values {
                One(_) => vec![more!()],
                Session(more, _) => vec![*more],
                Families(_) => FAMILIES.iter().map(|of| of.0).collect(),
                Limits(_) => LIMITS.iter().map(|of| of.0).collect(),
                Messages(kinds, _) => kinds.iter().map(|of| of.0).collect(),
            };
            for more in more {
                let all = [vec!["neighbor", "group"], names(more)].concat();
                assert_eq!(all, metric.labels, "{}", metric.name);
            }
        }
        for metric in METRICS.iter().filter(|metric| metric.labels.starts_with(&["neighbor", "group"])) {
            assert!(COLUMNS.iter().any(|column| column.metric == *metric), "{}", metric.name);
        }
    }
}
