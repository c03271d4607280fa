//! ExaBGP's commands, such as `announce route 10.0.0.0/24 next-hop 10.0.0.1 origin igp`, as the UPDATE that ribtide writes
//! for the same route.

use crate::bgp::attribute::{Aggregator, Community, ExtendedCommunity, LargeCommunity, Origin, code, flags};
use crate::bgp::message::{MAX_EXTENDED_LEN, MAX_LEN};
use crate::bgp::nlri::{Nlri, PathPrefix};
use crate::bgp::{AsPath, NextHop, build};
use ribtide_prefix::{AfiSafi, AnyPrefix, BgpFamily, Prefix, V4, V6};
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// A command of the families that ribtide has.
#[derive(Debug)]
pub(super) enum Command {
    EndOfRib(AfiSafi),
    Announce(Announcement),
    Withdraw(Vec<AnyPrefix>),
}

/// The routes of one UPDATE.
#[derive(Debug)]
pub(super) struct Announcement {
    prefixes: Vec<AnyPrefix>,
    pub(super) next_hop: NextHop,
    pub(super) path_id: Option<u32>,
    attributes: Vec<Text>,
}

/// An attribute, as the command has it.
#[derive(Debug)]
enum Text {
    Origin(Origin),
    /// The value of AS_PATH.
    Path(Vec<u8>),
    Med(u32),
    LocalPreference(u32),
    AtomicAggregate,
    Aggregator(Aggregator),
    Originator(Ipv4Addr),
    Clusters(Vec<Ipv4Addr>),
    Communities(Vec<Community>),
    Extended(Vec<ExtendedCommunity>),
    Large(Vec<LargeCommunity>),
    Aigp(u64),
    Other {
        flags: u8,
        code: u8,
        value: Vec<u8>,
    },
}

/// The command; `None` for a family that ribtide does not have.
pub(super) fn parse(text: &str) -> Option<Command> {
    let spaced = text.replace('[', " [ ").replace(']', " ] ");
    let mut words = spaced.split_whitespace().peekable();
    let verb = words.next()?;
    match (verb, words.next()?) {
        ("announce", "eor") => match (words.next()?, words.next()?) {
            ("ipv4", "unicast") => Some(Command::EndOfRib(AfiSafi::Ipv4Unicast)),
            ("ipv6", "unicast") => Some(Command::EndOfRib(AfiSafi::Ipv6Unicast)),
            _ => None,
        },
        ("withdraw", "route") => {
            let prefixes = words.map(|word| word.parse().unwrap()).collect();
            Some(Command::Withdraw(prefixes))
        }
        ("announce", "route") => announcement(words),
        ("announce", "attributes") => announcement(words),
        ("announce", "ipv4" | "ipv6") if words.next() == Some("unicast") => announcement(words),
        _ => None,
    }
}

fn announcement<'a>(words: impl Iterator<Item = &'a str>) -> Option<Command> {
    let mut words = words.peekable();
    let mut prefixes = Vec::new();
    let (mut next_hop, mut path_id, mut split) = (None, None, None);
    let mut attributes = Vec::new();
    while let Some(word) = words.next() {
        if word == "nlri" || word.contains('/') {
            prefixes.extend(word.parse::<AnyPrefix>().ok());
            continue;
        }
        if word == "atomic-aggregate" {
            attributes.push(Text::AtomicAggregate);
            continue;
        }
        let mut values = vec![words.next()?];
        if values == ["["] {
            values = words.by_ref().take_while(|word| *word != "]").collect();
        }
        let one = || values[0];
        attributes.push(match word {
            "next-hop" => {
                next_hop = Some(NextHop::from(one().parse::<IpAddr>().unwrap()));
                continue;
            }
            "path-information" => {
                path_id = Some(u32::from(one().parse::<Ipv4Addr>().unwrap()));
                continue;
            }
            "split" => {
                split = Some(one().trim_start_matches('/').parse::<u8>().unwrap());
                continue;
            }
            // Labels and route distinguishers are those of other families.
            "label" | "rd" => return None,
            "origin" => Text::Origin(match one() {
                "igp" => Origin::Igp,
                "egp" => Origin::Egp,
                "incomplete" => Origin::Incomplete,
                other => panic!("origin {other}"),
            }),
            "as-path" => {
                let asns = values.iter().flat_map(|asn| asn.parse::<u32>().unwrap().to_be_bytes());
                let head = [2, values.len() as u8];
                Text::Path(head.into_iter().chain(asns).collect())
            }
            "med" => Text::Med(one().parse().unwrap()),
            "local-preference" => Text::LocalPreference(one().parse().unwrap()),
            "aggregator" => {
                let (asn, router_id) = one().split_once(':').unwrap();
                let (asn, router_id) = (asn.parse().unwrap(), router_id.parse().unwrap());
                Text::Aggregator(Aggregator { asn, router_id })
            }
            "originator-id" => Text::Originator(one().parse().unwrap()),
            "cluster-list" => Text::Clusters(all(&values)),
            "community" => Text::Communities(all(&values)),
            "large-community" => Text::Large(all(&values)),
            "extended-community" => Text::Extended(values.iter().map(|v| extended(v)).collect()),
            "aigp" => Text::Aigp(one().parse().unwrap()),
            "attribute" => {
                let hex = |digits: &str| u8::from_str_radix(digits, 16).unwrap();
                let [code, flags, value] = values[..] else { panic!("{values:?}") };
                let value = value.trim_start_matches("0x").as_bytes();
                let value = value.chunks(2).map(|two| hex(str::from_utf8(two).unwrap())).collect();
                let byte = |word: &str| hex(word.trim_start_matches("0x"));
                Text::Other { flags: byte(flags), code: byte(code), value }
            }
            other => panic!("unknown word {other}"),
        });
    }
    if !attributes.iter().any(|text| matches!(text, Text::Path(_))) {
        attributes.push(Text::Path(Vec::new()));
    }
    if let Some(len) = split {
        prefixes = prefixes.into_iter().flat_map(|prefix| parts(prefix, len)).collect();
    }
    let next_hop = next_hop.expect("a next hop");
    Some(Command::Announce(Announcement { prefixes, next_hop, path_id, attributes }))
}

fn all<T: FromStr<Err: std::fmt::Debug>>(words: &[&str]) -> Vec<T> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

/// The prefixes of `len` bits in an IPv4 prefix.
fn parts(prefix: AnyPrefix, len: u8) -> Vec<AnyPrefix> {
    let AnyPrefix::V4(prefix) = prefix else { panic!("{prefix}") };
    let part = |n: u32| AnyPrefix::V4(Prefix::new(prefix.bits() | n << (32 - len), len));
    (0..1 << (len - prefix.len())).map(part).collect()
}

/// ExaBGP names the types as RFC 4360 does, and writes four bytes of a value also as an address.
fn extended(text: &str) -> ExtendedCommunity {
    let (name, rest) = text.split_once(':').unwrap();
    let values: Vec<u64> = rest
        .split(':')
        .map(|v| v.parse().unwrap_or_else(|_| u64::from(u32::from(v.parse::<Ipv4Addr>().unwrap()))))
        .collect();
    let bytes = |n: u64| ExtendedCommunity(n.to_be_bytes());
    match (name, &values[..]) {
        ("target" | "origin", [_, value]) => {
            let name = if name == "target" { "rt" } else { "soo" };
            let who = rest.split(':').next().unwrap();
            format!("{name}:{who}:{value}").parse().unwrap()
        }
        ("redirect", [asn, value]) => bytes(0x8008 << 48 | asn << 32 | value),
        ("l2info", [encapsulation, control, mtu, preference]) => {
            bytes(0x800a << 48 | encapsulation << 40 | control << 32 | mtu << 16 | preference)
        }
        _ => panic!("{text}"),
    }
}

impl Command {
    /// What ribtide writes on a session with four-octet AS numbers, or two-octet ones.
    pub(super) fn write(&self, four_octet_as: bool, extended_message: bool) -> Vec<u8> {
        let max_len = if extended_message { MAX_EXTENDED_LEN } else { MAX_LEN };
        let mut out = Vec::new();
        match self {
            Command::EndOfRib(family) => build::end_of_rib(*family, &mut out),
            Command::Withdraw(prefixes) => {
                build::withdraw(of_family::<V4>(prefixes), max_len, &mut out);
                build::withdraw(of_family::<V6>(prefixes), max_len, &mut out);
            }
            Command::Announce(announcement) => {
                let mut parts: Vec<(u8, Vec<u8>)> = Vec::new();
                for text in &announcement.attributes {
                    parts.extend(text.write(four_octet_as));
                }
                parts.sort_by_key(|(code, _)| *code);
                let attributes: Vec<u8> = parts.into_iter().flat_map(|(_, bytes)| bytes).collect();
                announcement.announce::<V4>(&attributes, max_len, &mut out);
                announcement.announce::<V6>(&attributes, max_len, &mut out);
            }
        }
        out
    }
}

fn of_family<F: BgpFamily>(prefixes: &[AnyPrefix]) -> Vec<Prefix<F>> {
    prefixes.iter().filter_map(|prefix| prefix.to_string().parse().ok()).collect()
}

impl Announcement {
    /// Whether it has IPv6 prefixes.
    pub(super) fn is_ipv6(&self) -> bool {
        self.prefixes.iter().any(|prefix| matches!(prefix, AnyPrefix::V6(_)))
    }

    fn announce<F: BgpFamily>(&self, attributes: &[u8], max_len: usize, out: &mut Vec<u8>) {
        let packer = build::UpdatePacker::new(attributes, self.next_hop, max_len);
        let prefixes = of_family::<F>(&self.prefixes);
        match self.path_id {
            None => announce(&packer, prefixes, out),
            Some(path_id) => {
                let paths = prefixes.into_iter().map(|prefix| PathPrefix { prefix, path_id }).collect();
                announce(&packer, paths, out);
            }
        }
    }
}

fn announce<N: Nlri>(packer: &build::UpdatePacker<'_>, nlri: Vec<N>, out: &mut Vec<u8>) {
    if !nlri.is_empty() {
        assert_eq!(packer.announce(nlri, out), Ok(1));
    }
}

impl Text {
    /// The attributes with their codes: two where AS numbers do not fit.
    fn write(&self, four_octet_as: bool) -> Vec<(u8, Vec<u8>)> {
        let mut out = Vec::new();
        let mut second = Vec::new();
        let code = match self {
            Text::Origin(origin) => {
                build::origin(&mut out, *origin);
                code::ORIGIN
            }
            Text::Path(value) => {
                let path = AsPath::new(value);
                if four_octet_as {
                    build::as_path(&mut out, path);
                } else {
                    build::as_path_two_octet(&mut out, path);
                    build::as4_path(&mut second, path);
                }
                code::AS_PATH
            }
            Text::Med(med) => {
                build::med(&mut out, *med);
                code::MED
            }
            Text::LocalPreference(preference) => {
                build::local_pref(&mut out, *preference);
                code::LOCAL_PREF
            }
            Text::AtomicAggregate => {
                build::attribute(&mut out, flags::TRANSITIVE, code::ATOMIC_AGGREGATE, &[]);
                code::ATOMIC_AGGREGATE
            }
            Text::Aggregator(aggregator) => {
                if four_octet_as {
                    build::aggregator(&mut out, 0, *aggregator);
                } else {
                    build::aggregator_two_octet(&mut out, 0, *aggregator);
                    build::as4_aggregator(&mut second, *aggregator);
                }
                code::AGGREGATOR
            }
            Text::Originator(router_id) => {
                build::originator_id(&mut out, *router_id);
                code::ORIGINATOR_ID
            }
            Text::Clusters(ids) => {
                let later: Vec<u8> = ids[1..].iter().flat_map(|id| id.octets()).collect();
                build::cluster_list(&mut out, ids[0], &later);
                code::CLUSTER_LIST
            }
            Text::Communities(list) => {
                let value: Vec<u8> = list.iter().flat_map(|c| c.0.to_be_bytes()).collect();
                build::list(&mut out, 0, code::COMMUNITIES, &value);
                code::COMMUNITIES
            }
            Text::Extended(list) => {
                let value: Vec<u8> = list.iter().flat_map(|c| c.0).collect();
                build::list(&mut out, 0, code::EXTENDED_COMMUNITIES, &value);
                code::EXTENDED_COMMUNITIES
            }
            Text::Large(list) => {
                let parts = |c: &LargeCommunity| [c.global, c.local1, c.local2].map(u32::to_be_bytes);
                let value: Vec<u8> = list.iter().flat_map(parts).flatten().collect();
                build::list(&mut out, 0, code::LARGE_COMMUNITIES, &value);
                code::LARGE_COMMUNITIES
            }
            Text::Aigp(metric) => {
                // RFC 7311 section 3: type 1, length 11.
                let value = [&[1, 0, 11][..], &metric.to_be_bytes()].concat();
                build::attribute(&mut out, flags::OPTIONAL, code::AIGP, &value);
                code::AIGP
            }
            Text::Other { flags, code, value } => {
                build::attribute(&mut out, *flags, *code, value);
                *code
            }
        };
        // AS4_PATH and AS4_AGGREGATOR have the codes 17 and 18.
        let second_code = if code == code::AS_PATH { code::AS4_PATH } else { code::AS4_AGGREGATOR };
        [(code, out), (second_code, second)].into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect()
    }
}
