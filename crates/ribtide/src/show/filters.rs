//! The options that select routes in lists. The router checks their values and evaluates them.

use super::query;
use clap::Args;

/// Which routes around a prefix.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Around {
    /// With a prefix: it and the more specific ones inside it
    #[arg(long, visible_alias = "longer-prefixes", requires = "prefix", conflicts_with = "shorter")]
    longer: bool,
    /// With a prefix or an address: it and the less specific ones that contain it
    #[arg(long, requires = "prefix")]
    shorter: bool,
}

impl Around {
    /// The field of the query; `None`: exactly the prefix.
    fn field(&self) -> Option<String> {
        match (self.longer, self.shorter) {
            (true, _) => Some("longer".into()),
            (_, true) => Some("shorter".into()),
            (false, false) => None,
        }
    }
}

/// Conditions on attributes; all must hold.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Attributes {
    #[command(flatten)]
    around: Around,
    /// Only paths with this community, standard, extended or large, or with one of a pattern such as 65001:*; several
    /// times: with each
    #[arg(long, value_name = "COMMUNITY")]
    community: Vec<String>,
    /// Only AS paths that match this expression over AS numbers, such as "^65001 .* 65010$" or _65010_
    #[arg(long, value_name = "REGEX")]
    as_path: Option<String>,
    /// Only paths from this origin AS, or a range such as 64512-65534
    #[arg(long, value_name = "ASN")]
    origin_as: Option<String>,
    /// Only paths with this next hop
    #[arg(long, value_name = "ADDRESS")]
    next_hop: Option<String>,
    /// Only paths that changed less than so long ago: seconds, or such as 90s, 15m, 6h, 2d
    #[arg(long, value_name = "AGE")]
    age_under: Option<String>,
    /// Only paths that changed at least so long ago
    #[arg(long, value_name = "AGE")]
    age_over: Option<String>,
}

impl Attributes {
    /// Whether a prefix selects only itself.
    pub(super) fn is_exact(&self) -> bool {
        self.around.field().is_none()
    }

    /// The query's fields, with those of the caller.
    pub(super) fn query(&self, more: &[(&str, Option<String>)]) -> String {
        let communities = (!self.community.is_empty()).then(|| self.community.join(","));
        let mut fields = vec![
            ("match", self.around.field()),
            ("community", communities),
            ("as-path", self.as_path.clone()),
            ("origin-as", self.origin_as.clone()),
            ("next-hop", self.next_hop.clone()),
            ("age-under", self.age_under.clone()),
            ("age-over", self.age_over.clone()),
        ];
        fields.extend(more.iter().cloned());
        query(&fields)
    }
}

/// Conditions on a path of BGP; all must hold.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Paths {
    #[command(flatten)]
    pub(super) attributes: Attributes,
    /// Only paths of this neighbour: its address, or its interface
    #[arg(long, value_name = "NEIGHBOR")]
    neighbor: Option<String>,
    /// Everything about each path: all attributes, its age, its neighbour, and how its next hop resolves
    #[arg(long)]
    pub(super) detail: bool,
    /// Only paths in this state: best, not-best, multipath, backup, hidden, stale, waiting, blocked, suppressed, or the
    /// validation state valid, invalid, not-found
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
}

impl Paths {
    /// The query's fields, with those of the caller.
    pub(super) fn query(&self, more: &[(&str, Option<String>)]) -> String {
        let detail = self.detail.then(|| "true".to_owned());
        let own = [("neighbor", self.neighbor.clone()), ("state", self.state.clone()), ("detail", detail)];
        self.attributes.query(&[&own[..], more].concat())
    }
}

/// Conditions on a selected route; all must hold.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Selected {
    #[command(flatten)]
    around: Around,
    /// Only routes through this gateway
    #[arg(long, value_name = "ADDRESS")]
    next_hop: Option<String>,
    /// Only routes of this protocol: connected, static, ebgp, ibgp, kernel
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// Only routes in this state in some dataplane: installed, pending, failed
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only routes that changed less than so long ago: seconds, or such as 90s, 15m, 6h, 2d
    #[arg(long, value_name = "AGE")]
    age_under: Option<String>,
    /// Only routes that changed at least so long ago
    #[arg(long, value_name = "AGE")]
    age_over: Option<String>,
}

/// Conditions on a route that a dataplane could not install; all must hold.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Refused {
    /// Only this prefix
    prefix: Option<String>,
    #[command(flatten)]
    around: Around,
    /// Only those of this dataplane, such as kernel
    #[arg(long, value_name = "NAME")]
    dataplane: Option<String>,
    /// Only those of this VRF
    #[arg(long, value_name = "NAME")]
    vrf: Option<String>,
}

impl Refused {
    /// The query's fields.
    pub(super) fn query(&self) -> String {
        query(&[
            ("prefix", self.prefix.clone()),
            ("match", self.around.field()),
            ("dataplane", self.dataplane.clone()),
            ("vrf", self.vrf.clone()),
        ])
    }
}

/// Conditions on a validated ROA payload; all must hold.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Payloads {
    /// Only payloads of exactly this prefix
    prefix: Option<String>,
    #[command(flatten)]
    around: Around,
    /// Only payloads of this AS
    #[arg(long, value_name = "ASN")]
    asn: Option<u32>,
}

impl Payloads {
    /// The query's fields.
    pub(super) fn query(&self) -> String {
        let asn = self.asn.map(|asn| asn.to_string());
        query(&[("prefix", self.prefix.clone()), ("match", self.around.field()), ("asn", asn)])
    }
}

impl Selected {
    /// The query's fields, with those of the caller.
    pub(super) fn query(&self, more: &[(&str, Option<String>)]) -> String {
        let own = [
            ("match", self.around.field()),
            ("next-hop", self.next_hop.clone()),
            ("protocol", self.protocol.clone()),
            ("state", self.state.clone()),
            ("age-under", self.age_under.clone()),
            ("age-over", self.age_over.clone()),
        ];
        query(&[&own[..], more].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_options_are_fields_of_the_query() {
        assert_eq!(Paths::default().query(&[("prefix", None)]), "");
        let paths = Paths {
            attributes: Attributes {
                around: Around { longer: true, shorter: false },
                community: vec!["65001:1".into(), "rt:65001:2".into()],
                as_path: Some("^65001 .*$".into()),
                ..Attributes::default()
            },
            state: Some("best".into()),
            ..Paths::default()
        };
        assert_eq!(
            paths.query(&[("prefix", Some("10.0.0.0/8".into()))]),
            "match=longer&community=65001%3A1%2Crt%3A65001%3A2&as-path=%5E65001%20.%2A%24&state=best&prefix=10.0.0.0%2F8"
        );
    }
}
