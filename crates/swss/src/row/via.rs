//! Where a route or a next-hop group leads: the fields that many rows share, held once.
//!
//! A million routes have few next-hop sets, so a row holds one pointer to this. The texts are kept as the database
//! has them: writing a row formats nothing, and a set is parsed once by who programs it, not once per route.

use super::{LabelStack, Name, RowError, put_said};
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

/// The fields of a route or next-hop group besides `protocol`, in the order in which fpmsyncd writes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Field {
    /// `true` drops what matches.
    Blackhole,
    /// Gateways, comma separated; an empty element is a next hop that is the interface alone.
    Nexthop,
    /// Interfaces, comma separated; how many there are is how many next hops there are.
    Ifname,
    /// The index of a next-hop group; a comma list of indexes in a recursive group.
    NexthopGroup,
    /// Label operations per hop.
    MplsNh,
    /// Weights per hop, comma separated.
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
    /// `true` lets the default route's next hops stand in.
    FallbackToDefaultRoute,
    /// How many labels are taken off; only in `LABEL_ROUTE_TABLE`.
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
    /// Those that a complete route row names beside `protocol`.
    pub const COMPLETE_ROUTE: &[Field] = Self::ALL.split_at(10).0;

    /// The field's name in the database.
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

    /// The field of a route or a group with this name.
    pub fn from_name(name: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// One next hop as a row names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hop {
    /// The gateway; `None` when the row has an empty element.
    pub gateway: Option<IpAddr>,
    /// The interface.
    pub ifname: Name,
    /// The weight; 0 when the row has no usable weights.
    pub weight: u32,
    /// What is done to labels; `None` for nothing.
    pub labels: Option<LabelStack>,
}

/// The next-hop fields of a row.
///
/// Two values are equal when their fields are: an empty field equals a missing one.
#[derive(Clone, Debug, Default)]
pub struct Via {
    /// Named fields in the order of [`Field`], each once. A value may be empty.
    fields: Vec<(Field, Box<str>)>,
    /// Fields that are not named are empty, rather than unsaid: nothing of an older row survives this one.
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
    /// Drops what matches.
    pub fn blackhole() -> Via {
        Via::complete(vec![(Field::Blackhole, "true".into())])
    }

    /// A next-hop group by index.
    pub fn group(index: &str) -> Via {
        Via::complete(vec![(Field::NexthopGroup, index.into())])
    }

    /// Next hops. `weights` says whether the weight field is written.
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

    /// The same with labels, one element for each next hop; a `None` among them is `na`, and without any the field is not
    /// written.
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

    /// Names a field, in place of an earlier value.
    pub(crate) fn put(&mut self, field: Field, value: &str) {
        // Whatever is not "true" is as good as not said.
        let value = if field == Field::Blackhole && value != "true" { "" } else { value };
        match self.fields.binary_search_by_key(&field, |(f, _)| *f) {
            Ok(at) => self.fields[at].1 = value.into(),
            Err(at) => self.fields.insert(at, (field, value.into())),
        }
    }

    /// The text of a field; empty when it is not named.
    pub fn get(&self, field: Field) -> &str {
        match self.fields.binary_search_by_key(&field, |(f, _)| *f) {
            Ok(at) => &self.fields[at].1,
            Err(_) => "",
        }
    }

    /// The fields that are named, whether empty or not, in order.
    pub fn named(&self) -> impl Iterator<Item = (Field, &str)> {
        self.fields.iter().map(|(field, value)| (*field, &**value))
    }

    /// The fields with a value, in order.
    pub fn non_empty(&self) -> impl Iterator<Item = (Field, &str)> {
        self.named().filter(|(_, value)| !value.is_empty())
    }

    /// Writes the fields with a value after the protocol's; the filler when there is none.
    pub(super) fn write_fields(&self, protocol: Option<&str>, put: &mut dyn FnMut(&str, &str)) {
        let protocol = ("protocol", protocol.filter(|protocol| !protocol.is_empty()));
        let fields = self.non_empty().map(|(field, value)| (field.name(), Some(value)));
        put_said(std::iter::once(protocol).chain(fields), put);
    }

    /// Reads the protocol and the fields of a row. `own` is a field that not every table has.
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

    /// Whether both have the same fields with something in them.
    pub fn same_shape(&self, other: &Via) -> bool {
        self.non_empty().map(|(field, _)| field).eq(other.non_empty().map(|(field, _)| field))
    }

    /// Whether both name the same next hops, in whatever order, and otherwise the same.
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

    /// Whether it drops what matches.
    pub fn is_blackhole(&self) -> bool {
        self.get(Field::Blackhole) == "true"
    }

    /// The next hops that it names itself, in order. The interface list says how many there are; gateways are
    /// padded or cut to it; weights count only if there are as many, and labels must be as many.
    ///
    /// # Errors
    /// What is not an address or a number.
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

    /// Merges `newer` into `older`, which was not consumed yet: see [`super::Row::merge`].
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
