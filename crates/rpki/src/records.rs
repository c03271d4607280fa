//! The records of one cache, and the changes of one answer.
//!
//! An answer is applied as a whole at its End of Data, so routes never see a part of one.

use crate::vrps::{Vrp, VrpList};
use ribtide_prefix::{AnyPrefix, Families, Family, Prefix, for_each_family, per_family};
use ribtide_wire::rtr::{AspaFamilies, ErrorCode, Payload};
use std::collections::BTreeMap;
use std::fmt;

/// A customer, and the families that its record is for.
type AspaKey = (u32, AspaFamilies);

/// The records of a cache, sorted, each once.
#[derive(Debug, Default)]
pub struct Records {
    payloads: Families<VrpList>,
    /// Providers by customer, one list for each value of the families.
    aspas: BTreeMap<AspaKey, Box<[u32]>>,
}

per_family! {
    /// Announcements (`true`) and withdrawals in the order received.
    #[derive(Debug)]
    struct ChangeList<F> = Vec<(Vrp<F>, bool)>;
}

/// The changes of an answer, in the order received.
#[derive(Debug, Default)]
pub struct Changes {
    payloads: Families<ChangeList>,
    /// Customers with their new providers; `None`: withdrawn.
    aspas: Vec<(AspaKey, Option<Box<[u32]>>)>,
    /// Providers of all ASPA records.
    providers: usize,
}

/// A change that does not fit the records: the cache and the router disagree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnfitChange {
    /// [`ErrorCode::DUPLICATE_ANNOUNCEMENT`] or [`ErrorCode::UNKNOWN_WITHDRAWAL`].
    pub code: ErrorCode,
    /// The record.
    pub record: Record,
}

/// A record of a cache. Displays as in Error Reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// A payload.
    Payload(Payload),
    /// The ASPA record of a customer.
    Aspa(u32),
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Record::Payload(payload) => payload.fmt(f),
            Record::Aspa(customer) => write!(f, "ASPA of AS{customer}"),
        }
    }
}

impl Changes {
    /// Adds a change.
    pub fn push(&mut self, Payload { prefix, max_len, asn }: Payload, announce: bool) {
        match prefix {
            AnyPrefix::V4(prefix) => self.payloads.v4.push((Vrp { prefix, max_len, asn }, announce)),
            AnyPrefix::V6(prefix) => self.payloads.v6.push((Vrp { prefix, max_len, asn }, announce)),
        }
    }

    /// Adds the providers of a customer in these families, or their withdrawal.
    pub fn push_aspa(
        &mut self,
        customer: u32,
        families: AspaFamilies,
        providers: Option<impl ExactSizeIterator<Item = u32>>,
    ) {
        let providers: Option<Box<[u32]>> = providers.map(Iterator::collect);
        self.providers += providers.as_ref().map_or(0, |providers| providers.len());
        self.aspas.push(((customer, families), providers));
    }

    /// The number of changes; each provider of an ASPA record counts, too.
    pub fn len(&self) -> usize {
        self.payloads.v4.len() + self.payloads.v6.len() + self.aspas.len() + self.providers
    }

    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Records {
    /// The records of a family.
    pub fn get<F: Family>(&self) -> &[Vrp<F>] {
        self.payloads.get::<F>()
    }

    /// The ASPA records: providers by customer. A cache of former drafts has one for each family.
    pub fn aspas(&self) -> impl ExactSizeIterator<Item = (u32, &[u32])> {
        self.aspas.iter().map(|((customer, _), providers)| (*customer, &**providers))
    }

    /// Applies the changes of an answer. O(n + m log m). An announced ASPA record replaces a present one
    /// (draft-ietf-sidrops-8210bis section 5.12).
    ///
    /// # Errors
    /// A payload is announced that is there, or a record withdrawn that is not (RFC 8210 section 5.6); the
    /// records are unchanged.
    pub fn apply(&mut self, changes: Changes) -> Result<(), UnfitChange> {
        let mut new: Families<VrpList> = Families::default();
        let Families { v4, v6 } = changes.payloads;
        new.v4 = merge(&self.payloads.v4, v4)?;
        new.v6 = merge(&self.payloads.v6, v6)?;
        // Whether each customer has a record after the changes so far.
        let mut there: BTreeMap<AspaKey, bool> = BTreeMap::new();
        for (key, providers) in &changes.aspas {
            let known = there.entry(*key).or_insert_with(|| self.aspas.contains_key(key));
            if providers.is_none() && !*known {
                let record = Record::Aspa(key.0);
                return Err(UnfitChange { code: ErrorCode::UNKNOWN_WITHDRAWAL, record });
            }
            *known = providers.is_some();
        }
        self.payloads = new;
        for (key, providers) in changes.aspas {
            match providers {
                Some(providers) => drop(self.aspas.insert(key, providers)),
                None => drop(self.aspas.remove(&key)),
            }
        }
        Ok(())
    }

    /// Removes all.
    pub fn clear(&mut self) {
        *self = Records::default();
    }
}

fn merge<F: Family>(old: &[Vrp<F>], mut changes: Vec<(Vrp<F>, bool)>) -> Result<Vec<Vrp<F>>, UnfitChange> {
    // Stable: changes of one record stay in order.
    changes.sort_by_key(|(vrp, _)| *vrp);
    let mut new = Vec::with_capacity(old.len() + changes.len());
    let mut olds = old.iter().copied().peekable();
    let mut changes = changes.into_iter().peekable();
    while let Some((vrp, _)) = changes.peek().copied() {
        while let Some(before) = olds.next_if(|old| *old < vrp) {
            new.push(before);
        }
        let mut there = olds.next_if_eq(&vrp).is_some();
        while let Some((_, announce)) = changes.next_if(|(other, _)| *other == vrp) {
            if announce == there {
                let code = match announce {
                    true => ErrorCode::DUPLICATE_ANNOUNCEMENT,
                    false => ErrorCode::UNKNOWN_WITHDRAWAL,
                };
                return Err(UnfitChange { code, record: Record::Payload(vrp.payload()) });
            }
            there = announce;
        }
        if there {
            new.push(vrp);
        }
    }
    new.extend(olds);
    new.shrink_to_fit();
    Ok(new)
}

/// The payloads of several caches together, those of equal records once.
pub(crate) fn joined<'a>(all: impl Iterator<Item = &'a Records>) -> Families<VrpList> {
    let mut lists: Families<VrpList> = Families::default();
    for records in all {
        for_each_family!(F => lists.get_mut::<F>().extend_from_slice(records.get::<F>()));
    }
    lists
}

/// Whether a filter of this prefix concerns a payload's: it is the same or covers it.
pub(crate) fn is_within<F: Family>(prefix: Prefix<F>, filter: AnyPrefix) -> bool {
    match (filter, prefix.any()) {
        (AnyPrefix::V4(filter), AnyPrefix::V4(prefix)) => filter.covers(prefix),
        (AnyPrefix::V6(filter), AnyPrefix::V6(prefix)) => filter.covers(prefix),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(prefix: &str, asn: u32) -> Payload {
        let prefix: AnyPrefix = prefix.parse().unwrap();
        Payload { prefix, max_len: prefix.len(), asn }
    }

    fn changes(all: &[(&str, u32, bool)]) -> Changes {
        let mut changes = Changes::default();
        all.iter().for_each(|(prefix, asn, announce)| changes.push(payload(prefix, *asn), *announce));
        changes
    }

    fn aspas(families: AspaFamilies, all: &[(u32, Option<&[u32]>)]) -> Changes {
        let mut changes = Changes::default();
        for (customer, providers) in all {
            changes.push_aspa(*customer, families, providers.map(|of| of.iter().copied()));
        }
        changes
    }

    /// The former drafts have a PDU for each family.
    #[test]
    fn aspa_records_of_two_families_come_and_go_by_themselves() {
        let [v4, v6] = [0, 1].map(AspaFamilies::Flags);
        let mut records = Records::default();
        records.apply(aspas(v4, &[(1, Some(&[7]))])).unwrap();
        records.apply(aspas(v6, &[(1, Some(&[8]))])).unwrap();
        let shown = |records: &Records| records.aspas().map(|(c, of)| (c, of.to_vec())).collect::<Vec<_>>();
        assert_eq!(shown(&records), [(1, vec![7]), (1, vec![8])]);
        records.apply(aspas(v4, &[(1, None)])).unwrap();
        assert_eq!(shown(&records), [(1, vec![8])]);
        assert!(records.apply(aspas(v4, &[(1, None)])).is_err());
    }

    #[test]
    fn an_aspa_record_replaces_the_former_one_and_an_unknown_one_cannot_go() {
        let aspas = |all: &[(u32, Option<&[u32]>)]| aspas(AspaFamilies::Both, all);
        let mut records = Records::default();
        let first = aspas(&[(1, Some(&[7, 8])), (2, Some(&[9])), (3, Some(&[0])), (3, None)]);
        assert_eq!(first.len(), 8);
        records.apply(first).unwrap();
        records.apply(aspas(&[(1, Some(&[5]))])).unwrap();
        let shown = |records: &Records| records.aspas().map(|(c, of)| (c, of.to_vec())).collect::<Vec<_>>();
        assert_eq!(shown(&records), [(1, vec![5]), (2, vec![9])]);
        let unfit = records.apply(aspas(&[(2, None), (2, None)])).unwrap_err();
        assert_eq!(
            (unfit.code, unfit.record.to_string()),
            (ErrorCode::UNKNOWN_WITHDRAWAL, "ASPA of AS2".into())
        );
        assert_eq!(shown(&records).len(), 2, "unchanged");
        records.apply(aspas(&[(2, None), (2, Some(&[4]))])).unwrap();
        assert_eq!(shown(&records)[1], (2, vec![4]));
    }

    #[test]
    fn an_answer_is_applied_as_a_whole() {
        let mut records = Records::default();
        let first = [("11.0.0.0/8", 1, true), ("10.0.0.0/8", 1, true), ("2001:db8::/32", 1, true)];
        records.apply(changes(&first)).unwrap();
        let shown = |records: &Records| -> Vec<String> {
            let v4 = records.get::<ribtide_prefix::V4>().iter().map(|vrp| vrp.payload().to_string());
            v4.chain(records.get::<ribtide_prefix::V6>().iter().map(|vrp| vrp.payload().to_string()))
                .collect()
        };
        assert_eq!(shown(&records), ["10.0.0.0/8-8 AS1", "11.0.0.0/8-8 AS1", "2001:db8::/32-32 AS1"]);
        // Withdrawn and announced again, and the reverse, in one answer.
        let second = [
            ("10.0.0.0/8", 1, false),
            ("10.0.0.0/8", 1, true),
            ("12.0.0.0/8", 1, true),
            ("12.0.0.0/8", 1, false),
            ("11.0.0.0/8", 1, false),
            ("10.0.0.0/8", 2, true),
        ];
        records.apply(changes(&second)).unwrap();
        assert_eq!(shown(&records), ["10.0.0.0/8-8 AS1", "10.0.0.0/8-8 AS2", "2001:db8::/32-32 AS1"]);
        for (unfit, code) in [
            ([("13.0.0.0/8", 1, true), ("10.0.0.0/8", 1, true)], ErrorCode::DUPLICATE_ANNOUNCEMENT),
            ([("13.0.0.0/8", 1, true), ("10.0.0.0/8", 3, false)], ErrorCode::UNKNOWN_WITHDRAWAL),
            ([("13.0.0.0/8", 1, true), ("2001:db8::/32", 2, false)], ErrorCode::UNKNOWN_WITHDRAWAL),
        ] {
            assert_eq!(records.apply(changes(&unfit)).unwrap_err().code, code);
            assert_eq!(records.get::<ribtide_prefix::V4>().len(), 2, "unchanged");
        }
    }
}
