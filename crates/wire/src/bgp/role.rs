//! BGP roles (RFC 9234): the relation of two ASes, and what it permits to routes.

use std::fmt;
use std::str::FromStr;

/// The role of a speaker in an external session, with its value in the capability (RFC 9234 section 4.1, Table 1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Role {
    /// The neighbour is its customer.
    Provider = 0,
    /// A route server; the neighbour is its client.
    RouteServer = 1,
    /// A client of a route server, which is the neighbour.
    RouteServerClient = 2,
    /// The neighbour is its provider.
    Customer = 3,
    /// Both are peers.
    Peer = 4,
}

impl Role {
    const NAMED: [(Role, &'static str); 5] = [
        (Role::Provider, "provider"),
        (Role::RouteServer, "rs"),
        (Role::RouteServerClient, "rs-client"),
        (Role::Customer, "customer"),
        (Role::Peer, "peer"),
    ];

    /// The role of a value of the capability, if it is assigned.
    pub fn from_u8(value: u8) -> Option<Role> {
        Self::NAMED.iter().map(|(role, _)| *role).find(|role| *role as u8 == value)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(role, _)| *role == self).map_or("", |(_, name)| name)
    }

    /// The role that the neighbour must have (RFC 9234 section 4.2, Table 2).
    pub fn counterpart(self) -> Role {
        match self {
            Role::Provider => Role::Customer,
            Role::Customer => Role::Provider,
            Role::RouteServer => Role::RouteServerClient,
            Role::RouteServerClient => Role::RouteServer,
            Role::Peer => Role::Peer,
        }
    }

    /// Whether a route with this value of OTC, or none, is a leak when it comes from the neighbour, whose AS is `asn`
    /// (RFC 9234 section 5, ingress rules 1 and 2).
    pub fn leaks(self, otc: Option<u32>, asn: u32) -> bool {
        match self.counterpart() {
            Role::Customer | Role::RouteServerClient => otc.is_some(),
            Role::Peer => otc.is_some_and(|value| value != asn),
            Role::Provider | Role::RouteServer => false,
        }
    }

    /// Whether a route from the neighbour without OTC gets one, with its AS (ingress rule 3).
    pub fn marks_received(self) -> bool {
        matches!(self.counterpart(), Role::Provider | Role::Peer | Role::RouteServer)
    }

    /// Whether a route to the neighbour without OTC gets one, with our AS (egress rule 1).
    pub fn marks_sent(self) -> bool {
        matches!(self.counterpart(), Role::Customer | Role::Peer | Role::RouteServerClient)
    }

    /// Whether a route with OTC must not be sent to the neighbour (egress rule 2).
    pub fn keeps_marked(self) -> bool {
        matches!(self.counterpart(), Role::Provider | Role::Peer | Role::RouteServer)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let named = Self::NAMED.iter().find(|(_, name)| *name == text).map(|(role, _)| *role);
        named.ok_or_else(|| {
            let names: Vec<String> = Self::NAMED.iter().map(|(_, name)| format!("\"{name}\"")).collect();
            format!("\"{text}\" is no BGP role; write our own towards the neighbour: {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_the_values_and_pairs_of_the_rfc() {
        for (role, value, name, pair) in [
            (Role::Provider, 0, "provider", Role::Customer),
            (Role::RouteServer, 1, "rs", Role::RouteServerClient),
            (Role::RouteServerClient, 2, "rs-client", Role::RouteServer),
            (Role::Customer, 3, "customer", Role::Provider),
            (Role::Peer, 4, "peer", Role::Peer),
        ] {
            assert_eq!(
                (Role::from_u8(value), name.parse(), role.counterpart()),
                (Some(role), Ok(role), pair)
            );
            assert_eq!((role as u8, role.to_string().as_str()), (value, name));
        }
        assert_eq!(Role::from_u8(5), None);
        assert!("transit".parse::<Role>().unwrap_err().contains("\"provider\", \"rs\", \"rs-client\""));
    }

    /// The rules of RFC 9234 section 5, by the neighbour's role as the text has them.
    #[test]
    fn otc_rules_are_those_of_section_5() {
        let ours = |neighbor: Role| neighbor.counterpart();
        for neighbor in [Role::Customer, Role::RouteServerClient] {
            assert!(ours(neighbor).leaks(Some(7), 7) && !ours(neighbor).leaks(None, 7));
            assert!(
                ours(neighbor).marks_sent()
                    && !ours(neighbor).marks_received()
                    && !ours(neighbor).keeps_marked()
            );
        }
        for neighbor in [Role::Provider, Role::RouteServer] {
            assert!(!ours(neighbor).leaks(Some(8), 7) && !ours(neighbor).leaks(None, 7));
            assert!(
                ours(neighbor).marks_received()
                    && ours(neighbor).keeps_marked()
                    && !ours(neighbor).marks_sent()
            );
        }
        let peer = ours(Role::Peer);
        assert!(peer.leaks(Some(8), 7) && !peer.leaks(Some(7), 7) && !peer.leaks(None, 7));
        assert!(peer.marks_received() && peer.marks_sent() && peer.keeps_marked());
    }
}
