//! Addresses with the zone of link-local ones.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::net::{AddrParseError, IpAddr};
use std::str::FromStr;

/// An address; of a link-local one its interface too. As text and in JSON `192.0.2.1`, or `fe80::1%swp1` (RFC 4007
/// section 11).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZonedAddress {
    /// The address.
    pub address: IpAddr,
    /// The interface, where the address is valid on its link alone.
    pub zone: Option<String>,
}

impl<A: Into<IpAddr>> From<A> for ZonedAddress {
    fn from(address: A) -> ZonedAddress {
        ZonedAddress { address: address.into(), zone: None }
    }
}

impl PartialEq<IpAddr> for ZonedAddress {
    fn eq(&self, other: &IpAddr) -> bool {
        self.address == *other && self.zone.is_none()
    }
}

impl fmt::Display for ZonedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            // As one text, so that a width applies.
            Some(zone) => f.pad(&format!("{}%{zone}", self.address)),
            None => self.address.fmt(f),
        }
    }
}

impl FromStr for ZonedAddress {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<ZonedAddress, AddrParseError> {
        let (address, zone) =
            text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
        Ok(ZonedAddress { address: address.parse()?, zone: zone.map(str::to_owned) })
    }
}

impl Serialize for ZonedAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for ZonedAddress {
    fn schema_name() -> Cow<'static, str> {
        "ZonedAddress".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "An address; of a link-local one its interface too: `fe80::1%swp1` (RFC 4007 section 11)."
        })
    }
}

impl<'de> Deserialize<'de> for ZonedAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ZonedAddress, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_have_the_zone_of_a_link_local_address() {
        for text in ["192.0.2.1", "2001:db8::1", "fe80::1", "fe80::1%swp1"] {
            let address: ZonedAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            let json = serde_json::to_string(&address).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<ZonedAddress>(&json).unwrap(), address);
        }
        assert!("swp1".parse::<ZonedAddress>().is_err());
    }
}
