//! Local exceptions (SLURM, RFC 8416): payloads of the caches that are not used, and own ones.

use crate::aspa::Aspas;
use crate::records::{Records, is_within, joined};
use crate::vrps::{Vrp, VrpList, Vrps};
use ribtide_prefix::{AnyPrefix, Families, Family, for_each_family};
use ribtide_wire::rtr::Payload;

/// A prefix filter (RFC 8416 section 3.3.1); at least one of its parts is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixFilter {
    /// Payloads whose prefix is this one or more specific.
    pub prefix: Option<AnyPrefix>,
    /// Payloads of this AS.
    pub asn: Option<u32>,
}

impl PrefixFilter {
    fn removes<F: Family>(&self, vrp: &Vrp<F>) -> bool {
        self.prefix.is_none_or(|filter| is_within(vrp.prefix, filter))
            && self.asn.is_none_or(|asn| asn == vrp.asn)
    }
}

/// Filters, and assertions that are added after them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exceptions {
    /// A payload that one of these removes is not used (section 3.3.1).
    pub filters: Vec<PrefixFilter>,
    /// These are used in any case (section 3.4.1).
    pub assertions: Vec<Payload>,
}

impl Exceptions {
    /// The table of the records of these caches with the exceptions.
    pub fn table<'a>(&self, caches: impl Iterator<Item = &'a Records> + Clone) -> Vrps {
        let aspas = caches.clone().flat_map(Records::aspas);
        let aspas = Aspas::new(aspas.map(|(customer, providers)| (customer, providers.iter().copied())));
        let mut lists: Families<VrpList> = joined(caches);
        if !self.filters.is_empty() {
            for_each_family!(F => lists.get_mut::<F>().retain(|vrp| self.keeps(vrp)));
        }
        for Payload { prefix, max_len, asn } in &self.assertions {
            let (max_len, asn) = (*max_len, *asn);
            match *prefix {
                AnyPrefix::V4(prefix) => lists.v4.push(Vrp { prefix, max_len, asn }),
                AnyPrefix::V6(prefix) => lists.v6.push(Vrp { prefix, max_len, asn }),
            }
        }
        Vrps::new(lists).with_aspas(aspas)
    }

    fn keeps<F: Family>(&self, vrp: &Vrp<F>) -> bool {
        !self.filters.iter().any(|filter| filter.removes(vrp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Changes;
    use ribtide_prefix::{V4, V6};

    fn payload(prefix: &str, max_len: u8, asn: u32) -> Payload {
        Payload { prefix: prefix.parse().unwrap(), max_len, asn }
    }

    /// The example of RFC 8416 section 3.3.1, with payloads beside each filter.
    #[test]
    fn filters_remove_and_assertions_add() {
        let exceptions = Exceptions {
            filters: vec![
                PrefixFilter { prefix: Some("192.0.2.0/24".parse().unwrap()), asn: None },
                PrefixFilter { prefix: None, asn: Some(64496) },
                PrefixFilter { prefix: Some("198.51.100.0/24".parse().unwrap()), asn: Some(64497) },
            ],
            assertions: vec![payload("198.51.100.0/24", 24, 64496), payload("2001:db8::/32", 48, 64496)],
        };
        let mut first = Changes::default();
        for vrp in [
            payload("192.0.2.0/24", 24, 1),
            payload("192.0.2.128/25", 25, 1),
            payload("192.0.0.0/16", 24, 1),
            payload("203.0.113.0/24", 24, 64496),
            payload("2001:db8:1::/48", 48, 64496),
            payload("198.51.100.0/24", 24, 64497),
            payload("198.51.100.0/24", 24, 64498),
        ] {
            first.push(vrp, true);
        }
        let mut second = Changes::default();
        second.push(payload("192.0.0.0/16", 24, 1), true);
        second.push(payload("192.0.0.0/16", 25, 1), true);
        let [mut one, mut two] = [Records::default(), Records::default()];
        one.apply(first).unwrap();
        two.apply(second).unwrap();
        let vrps = exceptions.table([&one, &two].into_iter());
        let shown: Vec<String> = vrps.iter::<V4>().map(|vrp| vrp.payload().to_string()).collect();
        assert_eq!(
            shown,
            [
                "192.0.0.0/16-24 AS1",
                "192.0.0.0/16-25 AS1",
                "198.51.100.0/24-24 AS64496",
                "198.51.100.0/24-24 AS64498"
            ]
        );
        assert_eq!(vrps.len::<V6>(), 1);
    }
}
