//! The `[rpki]` table: caches, and the file of local exceptions (SLURM, RFC 8416).

use super::check::Checker;
use super::diagnosis::{Step, key};
use super::file;
use super::list_file::without_quotes;
use super::regular_file::{self, Unread};
use super::tls_client::{TlsClientConfig, TlsClientFile};
use ribtide_prefix::AnyPrefix;
use ribtide_rpki::{Exceptions, Overrides, PrefixFilter};
use ribtide_wire::rtr::{EXPIRE, PORT, Payload, REFRESH, RETRY, TLS_PORT};
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;

/// Origin validation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RpkiConfig {
    /// The caches, in the order of the file; each address and port once.
    pub caches: Vec<RpkiCache>,
    /// Local exceptions.
    pub exceptions: Exceptions,
}

/// A cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RpkiCache {
    /// Its address and TCP port.
    pub address: SocketAddr,
    /// Our address of the connection; the system's choice unless set.
    pub local_address: Option<IpAddr>,
    /// TLS of the connection.
    pub tls: Option<TlsClientConfig>,
    /// The caches of the lowest preference that have records are used.
    pub preference: u8,
    /// Intervals that count instead of the cache's.
    pub overrides: Overrides,
}

impl Checker {
    /// The `[rpki]` table.
    pub(super) fn rpki(&mut self, file: &file::Rpki, folder: &Path) -> RpkiConfig {
        let mut config = RpkiConfig::default();
        if file.cache.is_empty() && file.slurm.is_none() {
            self.problem(
                key!["rpki"],
                "there is no cache, so every route is not-found; write an [[rpki.cache]] table with its address",
            );
        }
        for (i, cache) in file.cache.iter().enumerate() {
            let at: &[Step] = key!["rpki", "cache", i];
            let cache = self.rpki_cache(cache, at, folder);
            if config.caches.iter().any(|other| other.address == cache.address) {
                let message = format!("there is already a cache {}; remove one", cache.address);
                self.problem(&[at, key!["address"]].concat(), message);
            }
            config.caches.push(cache);
        }
        if let Some(path) = &file.slurm {
            let path = folder.join(path);
            match read_slurm(&path) {
                Ok(exceptions) => config.exceptions = exceptions,
                Err(message) => self.problem(key!["rpki", "slurm"], message),
            }
            self.files.push(path);
        }
        config
    }

    fn rpki_cache(&mut self, file: &file::RpkiCache, at: &[Step], folder: &Path) -> RpkiCache {
        let file::RpkiCache {
            address,
            port,
            tls_ca,
            tls_name,
            tls_certificate,
            tls_key,
            preference,
            local_address,
            refresh_interval,
            retry_interval,
            expire_interval,
        } = file;
        let of = |name: &str| [at, key![name]].concat();
        if address.is_unspecified() || address.is_multicast() {
            self.problem(&of("address"), format!("{address} is no address of a cache"));
        }
        if local_address.is_some_and(|local| local.is_ipv4() != address.is_ipv4()) {
            self.problem(
                &of("local-address"),
                "this is of another family than the cache's address; write one of the same",
            );
        }
        if *port == Some(0) {
            self.problem(&of("port"), "there is no port 0; write 323, or the port of the cache");
        }
        let tls = TlsClientFile { ca: tls_ca, name: tls_name, certificate: tls_certificate, key: tls_key };
        let tls = self.tls_client(&tls, *address, at, folder);
        let intervals: [(&str, Option<u32>, RangeInclusive<u32>); 3] = [
            ("refresh-interval", *refresh_interval, REFRESH),
            ("retry-interval", *retry_interval, RETRY),
            ("expire-interval", *expire_interval, EXPIRE),
        ];
        for (name, value, range) in intervals {
            if value.is_some_and(|value| !range.contains(&value)) {
                let (least, most) = (range.start(), range.end());
                self.problem(&of(name), format!("write {least} to {most} seconds (RFC 8210 section 6)"));
            }
        }
        let longest = (*refresh_interval).max(*retry_interval);
        if let (Some(expire), Some(longest)) = (*expire_interval, longest)
            && expire <= longest
        {
            let message = format!(
                "records would expire before they are renewed; write more than {longest} seconds, the longer of \
                 refresh-interval and retry-interval"
            );
            self.problem(&of("expire-interval"), message);
        }
        RpkiCache {
            address: SocketAddr::new(
                *address,
                port.unwrap_or(if tls_ca.is_some() { TLS_PORT } else { PORT }),
            ),
            local_address: *local_address,
            tls,
            preference: preference.unwrap_or(1),
            overrides: Overrides {
                refresh: *refresh_interval,
                retry: *retry_interval,
                expire: *expire_interval,
            },
        }
    }
}

/// A SLURM file (RFC 8416 section 3.2). "An RP MUST consider any deviations from the specifications
/// to be errors."
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Slurm {
    slurm_version: u32,
    validation_output_filters: SlurmFilters,
    locally_added_assertions: SlurmAssertions,
}

/// Those for BGPsec have no effect: there is none here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SlurmFilters {
    prefix_filters: Vec<SlurmFilter>,
    #[serde(rename = "bgpsecFilters")]
    _bgpsec_filters: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SlurmFilter {
    prefix: Option<String>,
    asn: Option<u32>,
    #[serde(rename = "comment")]
    _comment: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SlurmAssertions {
    prefix_assertions: Vec<SlurmAssertion>,
    #[serde(rename = "bgpsecAssertions")]
    _bgpsec_assertions: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SlurmAssertion {
    prefix: String,
    asn: u32,
    max_prefix_length: Option<u8>,
    #[serde(rename = "comment")]
    _comment: Option<String>,
}

/// The largest SLURM file, in bytes.
const SLURM_MAX: u64 = 64 * 1024 * 1024;

/// Reads the local exceptions of a SLURM file.
fn read_slurm(path: &Path) -> Result<Exceptions, String> {
    let show = path.display();
    let text = regular_file::read(path, SLURM_MAX).map_err(|error| match error {
        Unread::TooLong => format!("{show} has more than {SLURM_MAX} bytes"),
        Unread::Failed(why) => format!("{show} cannot be read: {why}"),
    })?;
    parse_slurm(&text).map_err(|message| format!("{show} is no SLURM file (RFC 8416): {message}"))
}

fn parse_slurm(text: &str) -> Result<Exceptions, String> {
    let file: Slurm = serde_json::from_str(text).map_err(|e| without_quotes(&e.to_string()))?;
    if file.slurm_version != 1 {
        return Err(format!("slurmVersion is {}, and only 1 is supported", file.slurm_version));
    }
    let prefix = |text: &str| text.parse::<AnyPrefix>().map_err(|e| format!("\"{text}\": {e}"));
    let filters = file.validation_output_filters.prefix_filters.into_iter().map(|filter| {
        let prefix = filter.prefix.as_deref().map(prefix).transpose()?;
        match (prefix, filter.asn) {
            (None, None) => Err("a prefix filter has neither prefix nor asn".into()),
            (prefix, asn) => Ok(PrefixFilter { prefix, asn }),
        }
    });
    let assertions = file.locally_added_assertions.prefix_assertions.into_iter().map(|assertion| {
        let prefix = prefix(&assertion.prefix)?;
        let width = if prefix.addr().is_ipv4() { 32 } else { 128 };
        let max_len = assertion.max_prefix_length.unwrap_or(prefix.len());
        match (prefix.len()..=width).contains(&max_len) {
            true => Ok(Payload { prefix, max_len, asn: assertion.asn }),
            false => Err(format!("maxPrefixLength {max_len} of {prefix} is not {} to {width}", prefix.len())),
        }
    });
    let filters = filters.collect::<Result<_, String>>()?;
    Ok(Exceptions { filters, assertions: assertions.collect::<Result<_, String>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const ROUTER: &str = "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp]\n";

    /// The example of RFC 8416 section 3.5, without its ellipses.
    #[test]
    fn slurm_files_are_those_of_the_rfc() {
        let text = r#"{
            "slurmVersion": 1,
            "validationOutputFilters": {
                "prefixFilters": [
                    { "prefix": "192.0.2.0/24", "comment": "All VRPs encompassed by prefix" },
                    { "asn": 64496, "comment": "All VRPs matching ASN" },
                    { "prefix": "198.51.100.0/24", "asn": 64497, "comment": "both" }
                ],
                "bgpsecFilters": [ { "asn": 64496, "comment": "All keys for ASN" } ]
            },
            "locallyAddedAssertions": {
                "prefixAssertions": [
                    { "asn": 64496, "prefix": "198.51.100.0/24", "comment": "My other important route" },
                    { "asn": 64496, "prefix": "2001:DB8::/32", "maxPrefixLength": 48, "comment": "de-aggregated" }
                ],
                "bgpsecAssertions": []
            }
        }"#;
        let exceptions = parse_slurm(text).unwrap();
        assert_eq!(exceptions.filters.len(), 3);
        let shown: Vec<String> = exceptions.assertions.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["198.51.100.0/24-24 AS64496", "2001:db8::/32-48 AS64496"]);
        for (from, to, message) in [
            ("\"slurmVersion\": 1", "\"slurmVersion\": 2", "slurmVersion is 2"),
            ("\"maxPrefixLength\": 48", "\"maxPrefixLength\": 31", "31 of 2001:db8::/32 is not 32 to 128"),
            ("\"asn\": 64496, \"comment\": \"All VRPs", "\"comment\": \"All VRPs", "neither prefix nor asn"),
            ("\"bgpsecAssertions\": []", "\"more\": []", "unknown field"),
            ("192.0.2.0/24", "192.0.2.0/33", "192.0.2.0/33"),
        ] {
            let error = parse_slurm(&text.replace(from, to)).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn caches_have_defaults_and_bounds() {
        let config = parse(&format!(
            "{ROUTER}[[rpki.cache]]\naddress = \"192.0.2.1\"\n[[rpki.cache]]\naddress = \"2001:db8::1\"\nport = 8282\n\
             preference = 2\nlocal-address = \"2001:db8::2\"\nrefresh-interval = 60\n"
        ));
        let [first, second] = config.unwrap().rpki.unwrap().caches.try_into().unwrap();
        assert_eq!((first.address.to_string().as_str(), first.preference), ("192.0.2.1:323", 1));
        assert_eq!(second.overrides, Overrides { refresh: Some(60), retry: None, expire: None });
        let problems = |text: &str| -> Vec<String> {
            parse(&format!("{ROUTER}{text}"))
                .unwrap_err()
                .iter()
                .map(|problem| problem.message.clone())
                .collect()
        };
        for (text, message) in [
            ("[rpki]\n", "there is no cache"),
            ("[[rpki.cache]]\naddress = \"0.0.0.0\"\n", "no address of a cache"),
            ("[[rpki.cache]]\naddress = \"10.0.0.1\"\nlocal-address = \"::1\"\n", "another family"),
            ("[[rpki.cache]]\naddress = \"10.0.0.1\"\nexpire-interval = 599\n", "600 to 172800"),
            (
                "[[rpki.cache]]\naddress = \"10.0.0.1\"\nexpire-interval = 600\nrefresh-interval = 600\n",
                "more than 600",
            ),
            (
                "[[rpki.cache]]\naddress = \"10.0.0.1\"\n[[rpki.cache]]\naddress = \"10.0.0.1\"\nport = 323\n",
                "there is already a cache 10.0.0.1:323",
            ),
            ("[rpki]\nslurm = \"/nonexistent/slurm.json\"\n", "cannot be read"),
        ] {
            let found = problems(text);
            assert!(found.iter().any(|problem| problem.contains(message)), "{text}: {found:?}");
        }
    }

    #[test]
    fn tls_takes_a_ca_that_can_be_read() {
        let with = |more: &str| {
            let parsed = parse(&format!("{ROUTER}[[rpki.cache]]\naddress = \"192.0.2.1\"\n{more}"));
            parsed.map_err(|problems| problems[0].message.clone())
        };
        let cache = with("").unwrap().rpki.unwrap().caches.remove(0);
        assert_eq!((cache.address.port(), cache.tls), (323, None));
        for more in ["tls-name = \"a.example\"", "tls-certificate = \"/a\"", "tls-key = \"/a\""] {
            assert!(with(more).unwrap_err().contains("TLS takes tls-ca"), "{more}");
        }
        let missing = "tls-ca = \"/nonexistent/ca.pem\"\n";
        assert!(with(missing).unwrap_err().contains("cannot read /nonexistent/ca.pem"));
        assert!(with(&format!("{missing}tls-key = \"/a\"")).unwrap_err().contains("both"));
        assert!(with(&format!("{missing}tls-name = \"a b\"")).unwrap_err().contains("neither a DNS name"));
    }

    /// A condition on the state works in import of a neighbour, with `[rpki]`, and nowhere else.
    #[test]
    fn a_condition_is_refused_where_it_cannot_work() {
        let with = |rpki: &str, group: &str, more: &str| {
            parse(&format!(
                "{ROUTER}{rpki}[[policy.definition.rov.statement]]\nconditions.rpki = \"invalid\"\n\
                 actions.policy-result = \"reject\"\n[bgp.group.g]\ntype = \"external\"\npeer-asn = 65002\n\
                 neighbors = [\"10.0.0.2\"]\n{group}{more}"
            ))
        };
        let cache = "[[rpki.cache]]\naddress = \"10.0.0.1\"\n";
        let config = with(cache, "import = [\"rov\", \"accept\"]\n", "").unwrap();
        let neighbor = config.bgp.unwrap().neighbors.into_values().next().unwrap();
        assert!(neighbor.settings.import.tests_validity());
        for (rpki, group, more, message) in [
            ("", "import = [\"rov\"]\n", "", "there is no [rpki] table"),
            (cache, "export = [\"rov\"]\n", "", "in import of neighbours"),
            (
                cache,
                "",
                "[bgp.originate]\nnetworks = [\"10.0.0.0/8\"]\nnetwork-policy = [\"rov\"]\n",
                "in import of neighbours",
            ),
            (cache, "", "[fib]\npolicy.bgp = [\"rov\"]\n", "rpki invalid"),
        ] {
            let found: Vec<String> =
                with(rpki, group, more).unwrap_err().iter().map(|problem| problem.message.clone()).collect();
            assert!(found.iter().any(|problem| problem.contains(message)), "{group}{more}: {found:?}");
        }
        let alone =
            "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[[rpki.cache]]\naddress = \"10.0.0.1\"\n";
        assert!(parse(alone).unwrap_err()[0].message.contains("without a [bgp] table"));
    }
}
