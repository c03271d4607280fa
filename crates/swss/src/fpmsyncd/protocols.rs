//! Names of the programs that make routes: what stands in a route's `protocol` field.

use crate::row::Name;

/// Numbers of route protocols and their names, as `/etc/iproute2/rt_protos` has them.
#[derive(Clone, Debug)]
pub struct Protocols(Vec<Name>);

/// What iproute2 ships.
const STOCK: [(u8, &str); 22] = [
    (0, "unspec"),
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (8, "gated"),
    (9, "ra"),
    (10, "mrt"),
    (11, "zebra"),
    (12, "bird"),
    (13, "dnrouted"),
    (14, "xorp"),
    (15, "ntk"),
    (16, "dhcp"),
    (18, "keepalived"),
    (42, "babel"),
    (99, "openr"),
    (186, "bgp"),
    (187, "isis"),
    (188, "ospf"),
    (189, "rip"),
    (192, "eigrp"),
];

impl Default for Protocols {
    /// The names that iproute2 ships; a number without a name is hexadecimal, as libnl prints it.
    fn default() -> Self {
        let mut protocols = Protocols::unnamed();
        for (number, name) in STOCK {
            protocols.0[usize::from(number)] = name.into();
        }
        protocols
    }
}

impl Protocols {
    fn unnamed() -> Self {
        Protocols((0..=u8::MAX).map(|number| format!("{number:#x}").into()).collect())
    }

    /// The names of a file in the form of `rt_protos`: a number and a name a line, `#` before a comment. Lines of
    /// another form are passed over, as iproute2 does.
    pub fn parse(text: &str) -> Self {
        let mut protocols = Protocols::unnamed();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            if let (Some(number), Some(name), None) = (words.next(), words.next(), words.next())
                && let Some(number) = number_of(number)
            {
                protocols.0[usize::from(number)] = name.into();
            }
        }
        protocols
    }

    /// The text of a number.
    pub fn name(&self, number: u8) -> &Name {
        &self.0[usize::from(number)]
    }

    /// The number of a text: a name, or a decimal or hexadecimal number. Earlier versions wrote decimal ones.
    pub fn number(&self, text: &str) -> Option<u8> {
        let named = self.0.iter().position(|name| &**name == text);
        named.and_then(|n| u8::try_from(n).ok()).or_else(|| number_of(text))
    }
}

fn number_of(text: &str) -> Option<u8> {
    match text.strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_both_ways() {
        let stock = Protocols::default();
        assert_eq!(&**stock.name(186), "bgp");
        assert_eq!((&**stock.name(196), &**stock.name(5)), ("0xc4", "0x5"));
        assert_eq!(stock.number("static"), Some(4));
        assert_eq!((stock.number("196"), stock.number("0xc4")), (Some(196), Some(196)));
        assert_eq!(stock.number("frr"), None);
        let own = Protocols::parse("#\n4\tstatic # by hand\n0xc4 frr\n300 many\nx y\n");
        assert_eq!((&**own.name(4), &**own.name(196), &**own.name(186)), ("static", "frr", "0xba"));
        assert_eq!(own.number("frr"), Some(196));
    }
}
