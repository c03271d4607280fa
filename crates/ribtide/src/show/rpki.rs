//! RPKI caches, validated ROA payloads, and validation states.

use crate::text::{Table, count, duration, number};
use ribtide_model::{Rpki, RpkiAspa, RpkiPayload, RpkiValidation};

pub(super) fn caches(rpki: &Rpki) -> String {
    let mut table = Table::new(&[
        "Cache",
        "Transport",
        ">Pref",
        "State",
        ">Version",
        ">Session",
        ">Serial",
        ">IPv4",
        ">IPv6",
        ">ASPA",
        ">Age",
        ">Expires in",
        "Used",
        ">Failures",
    ]);
    let option = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    for c in &rpki.caches {
        let left = c.age_seconds.map(|age| u64::from(c.expire_seconds).saturating_sub(age));
        table.row([
            c.address.to_string(),
            if c.tls { "TLS" } else { "TCP" }.into(),
            c.preference.to_string(),
            c.state.clone(),
            option(c.version.map(|n| n.to_string())),
            option(c.session.map(|n| n.to_string())),
            option(c.serial.map(|n| n.to_string())),
            number(c.records.ipv4),
            number(c.records.ipv6),
            number(c.aspas),
            option(c.age_seconds.map(duration)),
            option(left.map(duration)),
            if c.in_use { "yes" } else { "no" }.into(),
            number(c.failures),
        ]);
    }
    let mut out = if rpki.caches.is_empty() { String::new() } else { table.render() };
    for c in &rpki.caches {
        if let Some(error) = &c.last_error {
            out.push_str(&format!("{}: {error}; next step in {}\n", c.address, duration(c.next_seconds)));
        }
    }
    if rpki.degraded {
        out.push_str(
            "No cache has records: only local assertions validate routes, and all others are not-found.\n",
        );
    }
    let exceptions = match (rpki.filters, rpki.assertions) {
        (0, 0) => String::new(),
        (filters, assertions) => format!(
            "; local exceptions: {}, {}",
            count(filters as u64, "filter"),
            count(assertions as u64, "assertion")
        ),
    };
    out.push_str(&format!(
        "In use: {} IPv4 and {} IPv6 payloads, {}{exceptions}\n",
        number(rpki.payloads.ipv4),
        number(rpki.payloads.ipv6),
        count(rpki.aspas, "ASPA record")
    ));
    out
}

pub(super) fn payload_table() -> Table {
    Table::new(&["Prefix", ">Max length", ">AS"])
}

pub(super) fn payload_row(table: &mut Table, payload: &RpkiPayload) {
    let RpkiPayload { prefix, max_length, asn } = payload;
    table.row([prefix.clone(), max_length.to_string(), asn.to_string()]);
}

pub(super) fn aspa_table() -> Table {
    Table::new(&[">Customer", "Providers"])
}

pub(super) fn aspa_row(table: &mut Table, aspa: &RpkiAspa) {
    let providers = match aspa.providers.as_slice() {
        [0] => "none".into(),
        all => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    };
    table.row([aspa.customer.to_string(), providers]);
}

pub(super) fn validation(v: &RpkiValidation) -> String {
    let origin = v.asn.map_or("an origin NONE".into(), |asn| format!("origin AS {asn}"));
    let mut out = format!("{} with {origin} is {}.\n", v.prefix, v.state);
    if v.covering.is_empty() {
        out.push_str("No payload covers it.\n");
    }
    for c in &v.covering {
        let RpkiPayload { prefix, max_length, asn } = &c.payload;
        let why = c.mismatch.as_ref().map_or("matches".into(), |why| format!("does not match: {why}"));
        out.push_str(&format!("{prefix} to length {max_length}, AS {asn}: {why}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_model::{CoveringPayload, PerFamilyCount, RpkiCache};

    #[test]
    fn a_line_for_each_cache_and_what_is_wrong() {
        let up = RpkiCache {
            address: "192.0.2.1:323".parse().unwrap(),
            local: None,
            tls: false,
            preference: 1,
            state: "idle".into(),
            next_seconds: 3000,
            version: Some(1),
            session: Some(7),
            serial: Some(12),
            records: PerFamilyCount { ipv4: 412_000, ipv6: 98_000 },
            aspas: 1_200,
            age_seconds: Some(600),
            in_use: true,
            refresh_seconds: 3600,
            retry_seconds: 600,
            expire_seconds: 7200,
            connects: 1,
            failures: 0,
            last_error: None,
        };
        let down = RpkiCache {
            address: "[2001:db8::1]:324".parse().unwrap(),
            tls: true,
            state: "waiting".into(),
            next_seconds: 8,
            version: None,
            session: None,
            serial: None,
            records: PerFamilyCount::default(),
            aspas: 0,
            age_seconds: None,
            in_use: false,
            failures: 3,
            last_error: Some("Connection refused".into()),
            ..up.clone()
        };
        let payloads = PerFamilyCount { ipv4: 412_001, ipv6: 98_000 };
        let caches_of = |caches, degraded| Rpki {
            caches,
            payloads,
            aspas: 1_200,
            tables: 3,
            filters: 1,
            assertions: 2,
            degraded,
        };
        let text = caches(&caches_of(vec![up, down.clone()], false));
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "Cache              Transport  Pref  State    Version  Session  Serial     IPv4    IPv6   ASPA     Age  Expires in  Used  Failures",
                "192.0.2.1:323      TCP           1  idle           1        7      12  412,000  98,000  1,200  10m00s       1h50m  yes          0",
                "[2001:db8::1]:324  TLS           1  waiting        -        -       -        0       0      0       -           -  no           3",
                "[2001:db8::1]:324: Connection refused; next step in 8s",
                "In use: 412,001 IPv4 and 98,000 IPv6 payloads, 1,200 ASPA records; local exceptions: 1 filter, 2 assertions",
            ]
        );
        assert!(caches(&caches_of(vec![down], true)).contains("No cache has records"));
    }

    #[test]
    fn a_state_has_its_reasons() {
        let payload = RpkiPayload { prefix: "10.0.0.0/8".into(), max_length: 8, asn: 1 };
        let mismatch = Some("the prefix is longer than 8, the origin is AS 2".into());
        let text = validation(&RpkiValidation {
            prefix: "10.1.0.0/16".into(),
            asn: Some(2),
            state: "invalid".into(),
            covering: vec![CoveringPayload { payload, mismatch }],
        });
        assert_eq!(
            text,
            "10.1.0.0/16 with origin AS 2 is invalid.\n\
             10.0.0.0/8 to length 8, AS 1: does not match: the prefix is longer than 8, the origin is AS 2\n"
        );
    }
}
