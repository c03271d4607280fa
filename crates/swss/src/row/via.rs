//! The next-hop fields of a row, which many rows share.
//!
//! A million routes have few next-hop sets, so a row has one pointer to this. Fields keep their
//! text: a writer formats nothing, and orchagent parses a set once rather than for each route.

use super::{LabelStack, Name, RowError, put_values};
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

/// The fields of a route or next-hop group besides `protocol`, in the order in which fpmsyncd writes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Field {
    /// `true` drops matching packets.
    Blackhole,
    /// Gateways, separated by commas; an empty element is a next hop that is the interface itself.
    Nexthop,
    /// Interfaces, separated by commas. Their number is the number of next hops.
    Ifname,
    /// The index of a next-hop group; a comma list of indexes in a recursive group.
    NexthopGroup,
    /// Label operations per hop.
    MplsNh,
    /// Weights of the hops, separated by commas.
    Weight,
    /// VNIs per hop.
    VniLabel,
    /// MAC addresses of remote routers per hop.
    RouterMac,
    /// SRv6 segment lists.
    Segment,
    /// SRv6 sources.
    SegSrc,
    /// SRv6 VPN segment ids.
    VpnSid,
    /// Index of a PIC context.
    PicContextId,
    /// `true` uses the next hops of the default route as fallback.
    FallbackToDefaultRoute,
    /// The number of labels to pop; only in `LABEL_ROUTE_TABLE`.
    MplsPop,
}

impl Field {
    /// All fields of routes and groups, in order.
    pub const ALL: [Field; 13] = [
        Field::Blackhole,
        Field::Nexthop,
        Field::Ifname,
        Field::NexthopGroup,
        Field::MplsNh,
        Field::Weight,
        Field::VniLabel,
        Field::RouterMac,
        Field::Segment,
        Field::SegSrc,
        Field::VpnSid,
        Field::PicContextId,
        Field::FallbackToDefaultRoute,
    ];
    /// The fields of a complete route row beside `protocol`.
    pub const COMPLETE_ROUTE: &[Field] = Self::ALL.split_at(10).0;

    /// The name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Field::Blackhole => "blackhole",
            Field::Nexthop => "nexthop",
            Field::Ifname => "ifname",
            Field::NexthopGroup => "nexthop_group",
            Field::MplsNh => "mpls_nh",
            Field::Weight => "weight",
            Field::VniLabel => "vni_label",
            Field::RouterMac => "router_mac",
            Field::Segment => "segment",
            Field::SegSrc => "seg_src",
            Field::VpnSid => "vpn_sid",
            Field::PicContextId => "pic_context_id",
            Field::FallbackToDefaultRoute => "fallback_to_default_route",
            Field::MplsPop => "mpls_pop",
        }
    }

    /// The field of this name in routes or groups.
    pub fn from_name(name: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// A next hop of a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hop {
    /// The gateway; `None` for an empty element.
    pub gateway: Option<IpAddr>,
    /// The interface.
    pub ifname: Name,
    /// The weight; 0 without a valid weight.
    pub weight: u32,
    /// The label operation, if any.
    pub labels: Option<LabelStack>,
}

/// The next-hop fields of a row.
///
/// Two values are equal when their fields are: an empty field equals a missing one.
#[derive(Clone, Debug, Default)]
pub struct Via {
    /// Present fields in the order of [`Field`], each once. A value may be empty.
    fields: Vec<(Field, Box<str>)>,
    /// Absent fields are empty rather than unknown: a merge keeps no field of an older row.
    complete: bool,
}

impl PartialEq for Via {
    fn eq(&self, other: &Via) -> bool {
        self.non_empty().eq(other.non_empty())
    }
}

impl Eq for Via {}

impl Hash for Via {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.non_empty().for_each(|field| field.hash(state));
    }
}

impl Via {
    /// Drops matching packets.
    pub fn blackhole() -> Via {
        Via::complete(vec![(Field::Blackhole, "true".into())])
    }

    /// A next-hop group by index.
    pub fn group(index: &str) -> Via {
        Via::complete(vec![(Field::NexthopGroup, index.into())])
    }

    /// Next hops. `weights`: whether the weight field is present.
    pub fn hops<'a>(hops: impl Iterator<Item = (IpAddr, &'a str, u32)>, weights: bool) -> Via {
        let (mut nexthop, mut ifname, mut weight) = (String::new(), String::new(), String::new());
        for (n, (gateway, name, w)) in hops.enumerate() {
            let comma = if n == 0 { "" } else { "," };
            // Writing to a String cannot fail.
            let _ = write!(nexthop, "{comma}{gateway}");
            let _ = write!(ifname, "{comma}{name}");
            let _ = write!(weight, "{comma}{w}");
        }
        let mut fields = vec![(Field::Nexthop, nexthop.into()), (Field::Ifname, ifname.into())];
        if weights {
            fields.push((Field::Weight, weight.into()));
        }
        Via::complete(fields)
    }

    /// EVPN next hops: addresses of VTEPs, interfaces, VNIs and MAC addresses of remote routers.
    pub(crate) fn overlay(nexthop: &str, ifname: &str, vni: &str, router_mac: &str) -> Via {
        Via::complete(vec![
            (Field::Nexthop, nexthop.into()),
            (Field::Ifname, ifname.into()),
            (Field::VniLabel, vni.into()),
            (Field::RouterMac, router_mac.into()),
        ])
    }

    /// An SRv6 segment list by its name, and the source of outer headers (empty without).
    pub(crate) fn segment(name: &str, source: &str) -> Via {
        let source = Some((Field::SegSrc, source.into())).filter(|_| !source.is_empty());
        Via::complete(std::iter::once((Field::Segment, name.into())).chain(source).collect())
    }

    /// A route of an SRv6 VPN: these fields and no others, empty ones too.
    pub(crate) fn vpn(fields: [(Field, &str); 6]) -> Via {
        let mut via = Via::complete(Vec::new());
        fields.into_iter().for_each(|(field, value)| via.put(field, value));
        via
    }

    /// A route of a VNET: next hops without weights, or where they are tunnels, endpoints without interfaces.
    pub(crate) fn vnet(nexthop: &str, ifname: Option<&str>) -> Via {
        let ifname = ifname.map(|ifname| (Field::Ifname, ifname.into()));
        Via::complete(std::iter::once((Field::Nexthop, nexthop.into())).chain(ifname).collect())
    }

    /// Whether it is a route of an SRv6 VPN, to which SONiC's fpmsyncd gives six fields in an order of its own.
    pub(super) fn is_vpn(&self) -> bool {
        let may_be = self.fields.last().is_some_and(|(field, _)| *field >= Field::VpnSid);
        may_be && self.fields.iter().any(|(field, _)| matches!(field, Field::VpnSid | Field::PicContextId))
    }

    /// Whether its row names a protocol. SONiC's fpmsyncd names none for SRv6.
    pub(crate) fn has_protocol(&self) -> bool {
        self.get(Field::Segment).is_empty() && !self.is_vpn()
    }

    /// Writes the fields of a route of an SRv6 VPN, empty ones too.
    pub(super) fn write_vpn(&self, put: &mut dyn FnMut(&str, &str)) {
        const SINGLE: [Field; 7] = [
            Field::Nexthop,
            Field::VpnSid,
            Field::SegSrc,
            Field::PicContextId,
            Field::NexthopGroup,
            Field::Ifname,
            Field::Weight,
        ];
        const GROUP: [Field; 6] = [
            Field::PicContextId,
            Field::NexthopGroup,
            Field::Nexthop,
            Field::VpnSid,
            Field::SegSrc,
            Field::Ifname,
        ];
        let order = if self.get(Field::NexthopGroup).is_empty() { &SINGLE[..] } else { &GROUP };
        for field in order {
            if let Some((_, value)) = self.named().find(|(named, _)| named == field) {
                put(field.name(), value);
            }
        }
    }

    /// Adds labels, one element for each next hop. `None` is written as `na`; without any label the
    /// field is absent.
    pub(crate) fn with_labels(mut self, labels: &[Option<LabelStack>]) -> Via {
        if labels.iter().any(Option::is_some) {
            let text = |labels: &Option<LabelStack>| match labels {
                Some(labels) => labels.to_string(),
                None => "na".into(),
            };
            let elements: Vec<String> = labels.iter().map(text).collect();
            self.put(Field::MplsNh, &elements.join(","));
        }
        self
    }

    fn complete(fields: Vec<(Field, Box<str>)>) -> Via {
        Via { fields, complete: true }
    }

    /// Sets a field.
    pub(crate) fn put(&mut self, field: Field, value: &str) {
        // Only "true" has a meaning.
        let value = if field == Field::Blackhole && value != "true" { "" } else { value };
        match self.fields.binary_search_by_key(&field, |(f, _)| *f) {
            Ok(at) => self.fields[at].1 = value.into(),
            Err(at) => self.fields.insert(at, (field, value.into())),
        }
    }

    /// The text of a field; empty if absent.
    pub fn get(&self, field: Field) -> &str {
        match self.fields.binary_search_by_key(&field, |(f, _)| *f) {
            Ok(at) => &self.fields[at].1,
            Err(_) => "",
        }
    }

    /// Present fields in order, empty or not.
    pub fn named(&self) -> impl Iterator<Item = (Field, &str)> {
        self.fields.iter().map(|(field, value)| (*field, &**value))
    }

    /// The fields with a value, in order.
    pub fn non_empty(&self) -> impl Iterator<Item = (Field, &str)> {
        self.named().filter(|(_, value)| !value.is_empty())
    }

    /// Writes the fields with a value after the protocol, or the filler if there is none.
    pub(super) fn write_fields(&self, protocol: Option<&str>, put: &mut dyn FnMut(&str, &str)) {
        let protocol = ("protocol", protocol.filter(|protocol| !protocol.is_empty()));
        let fields = self.non_empty().map(|(field, value)| (field.name(), Some(value)));
        put_values(std::iter::once(protocol).chain(fields), put);
    }

    /// Reads the protocol and the fields of a row. `own`: a field that not every table has.
    pub(super) fn read_fields<'a>(
        fields: &mut dyn Iterator<Item = (&'a str, &'a str)>,
        own: Option<Field>,
    ) -> (Option<Name>, Via) {
        let (mut protocol, mut via) = (None, Via::default());
        for (name, value) in fields {
            if name == "protocol" {
                protocol = Some(value.into());
            } else if let Some(field) = Field::from_name(name).or(own.filter(|own| own.name() == name)) {
                via.put(field, value);
            }
        }
        (protocol, via)
    }

    /// Whether both have values in the same fields.
    pub fn same_shape(&self, other: &Via) -> bool {
        self.non_empty().map(|(field, _)| field).eq(other.non_empty().map(|(field, _)| field))
    }

    /// Whether both have the same next hops in any order, and otherwise equal fields.
    pub fn same_hops(&self, other: &Via) -> bool {
        const LISTS: [Field; 4] = [Field::Nexthop, Field::Ifname, Field::MplsNh, Field::Weight];
        let rest = |via: &Via| {
            via.non_empty()
                .filter(|(field, _)| !LISTS.contains(field))
                .map(|(f, v)| (f, v.to_owned()))
                .collect::<Vec<_>>()
        };
        let hops = |via: &Via| {
            let mut hops = via.parse_hops().ok()?;
            hops.sort_unstable();
            Some(hops)
        };
        self.same_shape(other)
            && rest(self) == rest(other)
            && hops(self).is_some_and(|ours| hops(other) == Some(ours))
    }

    /// Whether it drops matching packets.
    pub fn is_blackhole(&self) -> bool {
        self.get(Field::Blackhole) == "true"
    }

    /// The next hops in order, without groups. The interface list gives their number; the gateway
    /// list is padded or truncated to it. Weights count only in equal number, and labels must have
    /// equal number.
    ///
    /// # Errors
    /// The text that is not an address or a number.
    pub fn parse_hops(&self) -> Result<Vec<Hop>, RowError> {
        let ifnames = self.get(Field::Ifname);
        if ifnames.is_empty() {
            return Ok(Vec::new());
        }
        let bad = |what: String| RowError::new("next hops", what);
        let weights = self.get(Field::Weight);
        let count = ifnames.split(',').count();
        let weighted = !weights.is_empty() && weights.split(',').count() == count;
        let mut weights = weights.split(',');
        let labels = self.get(Field::MplsNh);
        let stacks = if labels.is_empty() { 0 } else { labels.split(',').count() };
        if stacks != 0 && stacks != count {
            return Err(bad(format!("mpls_nh \"{labels}\" is of {stacks} next hops, not of {count}")));
        }
        let mut labels = labels.split(',');
        let mut gateways = self.get(Field::Nexthop).split(',');
        let mut hops = Vec::with_capacity(count);
        for ifname in ifnames.split(',') {
            let gateway = match gateways.next().unwrap_or("") {
                "" => None,
                text => Some(text.parse().map_err(|_| bad(format!("\"{text}\" is not an address")))?),
            };
            let weight = match weights.next() {
                Some(text) if weighted => {
                    text.parse().map_err(|_| bad(format!("weight \"{text}\" is not a number")))?
                }
                _ => 0,
            };
            let labels = match labels.next().unwrap_or("") {
                "" | "na" => None,
                text => Some(LabelStack::parse(text).ok_or_else(|| {
                    bad(format!("\"{text}\" in mpls_nh is neither na nor push or swap with labels"))
                })?),
            };
            hops.push(Hop { gateway, ifname: ifname.into(), weight, labels });
        }
        Ok(hops)
    }

    /// Merges `newer` into `older`, which was not consumed yet; see [`super::Row::merge`].
    pub(crate) fn merged(older: &Arc<Via>, newer: Arc<Via>) -> Arc<Via> {
        if newer.complete {
            return newer;
        }
        let mut via = Via::clone(older);
        for (field, value) in newer.named() {
            via.put(field, value);
        }
        Arc::new(via)
    }
}
