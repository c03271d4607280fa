//! `NEIGH_TABLE`: resolved neighbours. `NEIGH_RESOLVE_TABLE`: neighbours that orchagent asks to
//! resolve.

use super::{Db, Name, Row, RowError, RowKey};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A MAC address. Written in upper-case hexadecimal with colons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = RowError;

    fn from_str(text: &str) -> Result<Mac, RowError> {
        let bad = || RowError::new("MAC address", format!("\"{text}\" is not six hexadecimal bytes"));
        let mut mac = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut mac {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Mac(mac)) }
    }
}

/// A neighbour: an address on an interface.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NeighKey {
    /// The interface.
    pub ifname: Name,
    /// The address.
    pub ip: IpAddr,
}

impl RowKey for NeighKey {
    fn write(&self, out: &mut String) {
        out.push_str(&self.ifname);
        out.push(':');
        out.push_str(&self.ip.to_string());
    }

    fn parse(text: &str) -> Result<NeighKey, String> {
        let bad = || format!("key \"{text}\" is not INTERFACE:ADDRESS");
        let (ifname, ip) = text.split_once(':').ok_or_else(bad)?;
        Ok(NeighKey { ifname: ifname.into(), ip: ip.parse().map_err(|_| bad())? })
    }
}

/// A row of `NEIGH_TABLE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighRow {
    /// Its MAC address; all zero when unresolved. `None` if absent.
    pub mac: Option<Mac>,
    /// Whether the key is an IPv6 address: the `family` field.
    pub ipv6: bool,
}

impl Row for NeighRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "NEIGH_TABLE";
    type Key = NeighKey;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        if let Some(mac) = self.mac {
            put("neigh", &mac.to_string().to_lowercase());
        }
        put("family", if self.ipv6 { "IPv6" } else { "IPv4" });
    }

    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        let mut row = NeighRow { mac: None, ipv6: false };
        for (field, value) in fields {
            match field {
                "neigh" => row.mac = Some(value.parse()?),
                "family" => row.ipv6 = value == "IPv6",
                _ => {}
            }
        }
        Ok(row)
    }

    fn merge(&mut self, newer: Self) {
        *self = NeighRow { mac: newer.mac.or(self.mac), ipv6: newer.ipv6 };
    }
}

/// A row of `NEIGH_RESOLVE_TABLE`: a route waits for this neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighResolveRow;

impl Row for NeighResolveRow {
    const DB: Db = Db::Appl;
    const TABLE: &'static str = "NEIGH_RESOLVE_TABLE";
    type Key = NeighKey;

    fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        put("mac", "00:00:00:00:00:00");
    }

    fn from_fields<'a>(_: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError> {
        Ok(NeighResolveRow)
    }
}
