//! Neighbours by interface: sessions over link-local addresses, whose addresses the router learns.

use super::check::{BgpConfig, Both, Checker, InterfaceConfig, NeighborSettings};
use super::diagnosis::{Step, key};
use super::file;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Bytes of an interface name, at most (`IFNAMSIZ` of Linux, less the final zero).
const NAME_MAX: usize = 15;

/// The name of an interface, or a pattern: `*` stands for any characters, `?` for one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InterfacePattern(String);

impl InterfacePattern {
    /// Checks a name or pattern.
    ///
    /// # Errors
    /// A sentence that says what to write.
    pub fn new(text: &str) -> Result<InterfacePattern, String> {
        let bad = |c: char| c == '/' || c == '%' || c.is_whitespace();
        if text.is_empty() || text.len() > NAME_MAX || text.contains(bad) || text == "." || text == ".." {
            return Err(format!(
                "\"{text}\" is no interface; write a name of 1 to {NAME_MAX} characters such as \"swp1\", or a pattern such as \
                 \"swp*\""
            ));
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(format!(
                "\"{text}\" is an address; write it in neighbors, or the name of an interface here"
            ));
        }
        Ok(InterfacePattern(text.to_owned()))
    }

    /// The text of the configuration.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it names one interface.
    pub fn is_name(&self) -> bool {
        !self.0.contains(['*', '?'])
    }

    /// Whether it stands for the interface `name`.
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut text) = (self.0.as_bytes(), name.as_bytes());
        // Behind the last `*`, and the text that it does not stand for yet.
        let mut retry: Option<(&[u8], &[u8])> = None;
        loop {
            match (pattern, text) {
                ([b'*', rest @ ..], _) => {
                    retry = Some((rest, text));
                    pattern = rest;
                }
                ([p, rest @ ..], [t, left @ ..]) if *p == b'?' || p == t => (pattern, text) = (rest, left),
                ([], []) => return true,
                _ => match retry {
                    Some((rest, [_, left @ ..])) => {
                        retry = Some((rest, left));
                        (pattern, text) = (rest, left);
                    }
                    _ => return false,
                },
            }
        }
    }

    /// The more specific of two patterns for one interface is the greater: a name before patterns, then the one with more
    /// characters that stand for themselves.
    fn precision(&self) -> (bool, usize) {
        (self.is_name(), self.0.bytes().filter(|byte| !matches!(byte, b'*' | b'?')).count())
    }
}

impl fmt::Display for InterfacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The neighbours of the interfaces that a name or pattern stands for, one on each.
#[derive(Clone, PartialEq, Debug)]
pub struct InterfaceNeighbor {
    /// The interfaces.
    pub interface: InterfacePattern,
    /// The description.
    pub description: Option<String>,
    /// The settings of these neighbours.
    pub settings: NeighborSettings,
}

impl BgpConfig {
    /// The neighbour of an interface, if its name has one: by the most specific pattern.
    pub fn interface_neighbor(&self, name: &str) -> Option<&InterfaceNeighbor> {
        most_specific(&self.interfaces, name)
    }
}

/// The most specific of these for the interface `name`.
pub fn most_specific<'a>(all: &'a [InterfaceNeighbor], name: &str) -> Option<&'a InterfaceNeighbor> {
    let matching = all.iter().filter(|neighbor| neighbor.interface.matches(name));
    matching.max_by_key(|neighbor| (neighbor.interface.precision(), &neighbor.interface))
}

impl Checker {
    /// Adds the neighbour of an interface. `place`: where it is written, `known`: the interfaces, where the configuration has
    /// them all.
    pub(super) fn interface_neighbor(
        &mut self,
        bgp: &mut BgpConfig,
        text: &str,
        own: Option<&file::Neighbor>,
        settings: NeighborSettings,
        place: &[Step],
    ) {
        let interface = match InterfacePattern::new(text) {
            Ok(interface) => interface,
            Err(message) => return self.problem(place, message),
        };
        if let Some(first) = bgp.interfaces.iter().find(|other| other.interface == interface) {
            let message = format!(
                "interface \"{interface}\" is already in group \"{}\"; it can be in one group only",
                first.settings.group
            );
            self.problem(place, message);
        }
        if settings.is_multihop() || settings.multihop.is_some() {
            let message = "link-local addresses do not leave their link, so the neighbour of an interface is one hop away; \
                           remove multihop, or write ttl-security = 1";
            self.problem(place, message);
        }
        if settings.local_address.is_some() {
            self.problem(
                place,
                "the session of an interface has its link-local address; remove local-address",
            );
        }
        if let Some(bfd) = settings.bfd {
            if bfd.min_ttl.is_some() {
                let message =
                    "the neighbour of an interface is one hop away; remove multihop and min-ttl of bfd";
                self.problem(place, message);
            }
            if !self.bfd_listens_to_all {
                let message = "packets to link-local addresses are received on the address \"::\" alone; add it to bfd.listen";
                self.problem(place, message);
            }
        }
        if settings.tcp_ao.is_some() {
            let message = "keys of TCP-AO belong to addresses, and any link may have the same link-local address; remove tcp-ao, \
                           or write password, the same for all neighbours by interface";
            self.problem(place, message);
        }
        let description = own.and_then(|own| own.description.clone());
        bgp.interfaces.push(InterfaceNeighbor { interface, description, settings });
    }

    /// Checks what all neighbours by interface have in common. `known`: all interfaces, where the configuration names them.
    pub(super) fn interface_neighbors(&mut self, bgp: &BgpConfig, known: Option<&[InterfaceConfig]>) {
        let passwords: Vec<_> =
            bgp.interfaces.iter().map(|n| (&n.settings.group, &n.settings.password)).collect();
        if let Some((group, _)) = passwords.iter().find(|(_, password)| *password != passwords[0].1) {
            let message = "TCP-MD5 keys belong to addresses, and any link may have the same link-local address; write the same \
                           password for all neighbours by interface, or none";
            self.problem(key!["bgp", "group", group.as_str()], message);
        }
        let Some(known) = known else { return };
        for neighbor in &bgp.interfaces {
            if !known.iter().any(|interface| neighbor.interface.matches(&interface.name)) {
                let message = format!(
                    "there is no [[interface]] table for \"{}\", so its next hops cannot resolve; write one",
                    neighbor.interface
                );
                self.problem(key!["bgp", "group", neighbor.settings.group.as_str()], message);
            }
        }
    }

    /// Whether IPv4 routes may have IPv6 next hops (RFC 8950); so it is by interface, where there need be no IPv4 address.
    pub(super) fn extended_next_hop(&mut self, both: &Both<'_>, by_interface: bool) -> bool {
        both.value(|n| &n.extended_next_hop, |g| &g.extended_next_hop).unwrap_or(by_interface)
    }
}

/// The range of all link-local addresses, for TCP-MD5 keys.
pub const LINK_LOCAL: (IpAddr, u8) = (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnyAsn, parse};

    fn pattern(text: &str) -> InterfacePattern {
        InterfacePattern::new(text).unwrap()
    }

    #[test]
    fn matches_takes_names_and_wildcards() {
        for (text, yes, no) in [
            ("swp1", &["swp1"][..], &["swp10", "swp", "xswp1"][..]),
            ("swp*", &["swp", "swp1", "swp10s1"], &["sw", "eth0", "aswp1"]),
            ("Ethernet?", &["Ethernet0", "Ethernet9"], &["Ethernet", "Ethernet10"]),
            ("*s*1", &["swp1", "s1", "asb1c1"], &["swp2", "1s", "s12"]),
            ("*", &["", "lo"], &[]),
            ("a*b*c", &["abc", "axbxc", "abbc"], &["ab", "acb", "abcd"]),
        ] {
            let pattern = pattern(text);
            assert!(yes.iter().all(|name| pattern.matches(name)), "{text}");
            assert!(!no.iter().any(|name| pattern.matches(name)), "{text}");
        }
        for wrong in ["", "a/b", "two words", "fe80::1", "10.0.0.1", "0123456789abcdef", "swp1%2"] {
            assert!(InterfacePattern::new(wrong).is_err(), "{wrong}");
        }
    }

    fn bgp(group: &str) -> Result<BgpConfig, String> {
        let text = format!(
            "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp.group.fabric]\ntype = \"external\"\n{group}"
        );
        let said = |problems: Vec<crate::Problem>| {
            problems.iter().map(|p| p.message.clone()).collect::<Vec<_>>().join("\n")
        };
        Ok(parse(&text).map_err(said)?.bgp.unwrap())
    }

    #[test]
    fn interface_neighbor_is_by_the_most_specific_pattern() {
        let bgp = bgp(
            "peer-asn = \"external\"\ninterfaces = [\"swp*\", \"swp1*\"]\n[[bgp.group.fabric.neighbor]]\ninterface = \"swp1\"\n\
             peer-asn = 65002\ndescription = \"spine\"\nextended-next-hop = false",
        )
        .unwrap();
        let of = |name| bgp.interface_neighbor(name).map(|n| (n.interface.as_str(), n.settings.peer_asn));
        assert_eq!(of("swp2"), Some(("swp*", AnyAsn::AnyExternal)));
        assert_eq!(of("swp12"), Some(("swp1*", AnyAsn::AnyExternal)));
        assert_eq!(of("swp1"), Some(("swp1", AnyAsn::Exactly(65002))));
        assert_eq!(of("eth0"), None);
        let spine = bgp.interface_neighbor("swp1").unwrap();
        assert_eq!(spine.description.as_deref(), Some("spine"));
        assert!(!spine.settings.extended_next_hop && bgp.interfaces[0].settings.extended_next_hop);
    }

    #[test]
    fn interfaces_are_refused_with_the_reason() {
        let external = "peer-asn = \"external\"\n";
        for (group, expected) in [
            ("interfaces = [\"swp1\"]", "needs its AS"),
            ("peer-asn = 2\ninterfaces = [\"fe80::1\"]", "is an address"),
            ("peer-asn = 2\ninterfaces = [\"a b\"]", "is no interface"),
            ("peer-asn = 2\ninterfaces = [\"swp1\", \"swp1\"]", "already in group \"fabric\""),
            ("peer-asn = 2\nmultihop = 2\ninterfaces = [\"swp1\"]", "one hop away"),
            ("peer-asn = 2\nttl-security = 2\ninterfaces = [\"swp1\"]", "one hop away"),
            ("peer-asn = 2\nbfd = { multihop = true }\ninterfaces = [\"swp1\"]", "is one hop away"),
            (
                "peer-asn = 2\nbfd = true\ninterfaces = [\"swp1\"]\n[bfd]\nlisten = [\"2001:db8::1\"]",
                "add it to bfd.listen",
            ),
            ("peer-asn = 2\nlocal-address = \"::1\"\ninterfaces = [\"swp1\"]", "remove local-address"),
            (
                "peer-asn = 2\ninterfaces = [\"swp1\"]\n[[bgp.group.fabric.neighbor]]\ninterface = \"swp2\"\npassword = \"x\"",
                "the same password",
            ),
            (
                "peer-asn = 2\n[[bgp.group.fabric.neighbor]]\ndescription = \"x\"",
                "write address or interface",
            ),
            (
                "peer-asn = 2\n[[bgp.group.fabric.neighbor]]\naddress = \"10.0.0.2\"\ninterface = \"swp1\"",
                "write address or interface",
            ),
            ("peer-asn = 2\nneighbors = [\"fe80::1\"]", "write interfaces"),
            (
                "peer-asn = 2\ninterfaces = [\"swp1\"]\n[fib]\nvirtual-asic = true\n[[interface]]\nname = \"Ethernet0\"",
                "no [[interface]] table for \"swp1\"",
            ),
        ] {
            let said = bgp(group).unwrap_err();
            assert!(said.contains(expected), "{group}: {said}");
        }
        bgp(&format!("{external}ttl-security = 1\npassword = \"x\"\ninterfaces = [\"swp1\", \"eth*\"]"))
            .unwrap();
    }
}
