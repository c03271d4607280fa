//! The rows of a page that agree with what was read of them.
//!
//! Most rows of a page have few different contents, such as the next hops of some gateways, and the
//! database encodes equal contents in equal bytes. So a reply is decoded only if it is the first of its
//! content: another row with this content and these bytes agrees, too.

use super::mirror::WantedRow;
use ribtide_prefix::HashBuilder;
use ribtide_tables::Hash;
use std::hash::BuildHasher;

/// Contents that are remembered, at most.
const SLOTS: usize = 256;

/// The contents of a page that agreed.
pub(super) struct Agreed<'a, R> {
    /// A row with its encoding in the database, by the hash of the encoding.
    slots: Vec<Option<(&'a R, &'a [u8])>>,
    hasher: HashBuilder,
    /// The fields of one row. Empty between two rows.
    fields: Vec<(&'a str, &'a str)>,
}

impl<R> Default for Agreed<'_, R> {
    fn default() -> Self {
        Agreed { slots: vec![None; SLOTS], hasher: HashBuilder::default(), fields: Vec::new() }
    }
}

impl<'a, R: WantedRow> Agreed<'a, R> {
    /// Whether a row was found as it is wanted: what [`WantedRow::is`] says of the fields.
    pub(super) fn compare(&mut self, row: &'a R, found: Hash<'a>) -> bool {
        let bytes = found.bytes();
        let slot = self.hasher.hash_one(bytes) as usize % SLOTS;
        if let Some(Some((other, same))) = self.slots.get(slot)
            && *same == bytes
            && row.compares_as(other)
        {
            return true;
        }
        self.fields.clear();
        self.fields.extend(found.fields());
        let is = row.is(&self.fields);
        if let Some(slot) = self.slots.get_mut(slot).filter(|_| is) {
            *slot = Some((row, bytes));
        }
        is
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::{appl_db, asic_db, orchagent};
    use ribtide_prefix::Rng;
    use ribtide_swss::Row;
    use ribtide_swss::fpmsyncd;
    use ribtide_swss::orch::{HeldNextHops, HeldRow};
    use ribtide_swss::row::{LabelRouteRow, NextHopGroupRow, RouteRow, RowName};
    use ribtide_swss::sai::{Attr, Attrs, ObjectId, ObjectType, Oid, PacketAction};
    use std::sync::Arc;

    /// Random fields in a random order, few of each, as the server encodes them.
    fn reply(rng: &mut Rng, fields: &[(&str, &[&str])]) -> Vec<u8> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for (name, values) in fields {
            if rng.below(4) > 0 {
                let at = rng.index(pairs.len() + 1).max(pairs.len().saturating_sub(1));
                let value: &&str = rng.pick(values);
                pairs.insert(at, (*name, *value));
            }
        }
        // An array of strings, as a reply is.
        let mut bytes = format!("*{}\r\n", 2 * pairs.len());
        for text in pairs.iter().flat_map(|(name, value)| [name, value]) {
            bytes.push_str(&format!("${}\r\n{text}\r\n", text.len()));
        }
        bytes.into()
    }

    /// Pages of random rows and random replies: what is remembered of other rows changes no result.
    fn check<R: WantedRow>(fields: &[(&str, &[&str])], mut row: impl FnMut(&mut Rng) -> R) {
        let mut rng = Rng::new(1);
        let mut results = [0, 0];
        for page in 0..40 {
            let rows: Vec<R> = (0..400).map(|_| row(&mut rng)).collect();
            let replies: Vec<Vec<u8>> = (0..400).map(|_| reply(&mut rng, fields)).collect();
            let mut agreed = Agreed::default();
            for (n, (row, reply)) in rows.iter().zip(&replies).enumerate() {
                let found = Hash::of(reply);
                let pairs: Vec<_> = found.fields().collect();
                let is = row.is(&pairs);
                assert_eq!(agreed.compare(row, found), is, "row {n} of page {page}: {pairs:?}");
                results[usize::from(is)] += 1;
            }
        }
        assert!(results.iter().all(|count| *count > 100), "{results:?}");
    }

    const HOPS: [(&str, &[&str]); 4] = [
        ("protocol", &["bgp", "static"]),
        ("nexthop", &["10.0.0.1", "10.0.0.2", "10.0.0.1,10.0.0.2", "10.0.0.2,10.0.0.1", "0.0.0.0"]),
        ("ifname", &["Ethernet0", "Ethernet0,Ethernet0"]),
        ("mpls_pop", &["1"]),
    ];

    fn name(rng: &mut Rng) -> RowName {
        let names = [
            ("ROUTE_TABLE", "20.0.0.0/24"),
            ("ROUTE_TABLE", "20.0.1.0/24"),
            ("ROUTE_TABLE", "fe80::/64"),
            ("LABEL_ROUTE_TABLE", "100"),
            ("NEXTHOP_GROUP_TABLE", "7"),
        ];
        let (table, key) = *rng.pick(&names);
        RowName::parse(table, key).unwrap()
    }

    #[test]
    fn rows_of_appl_db_are_compared_as_one_by_one() {
        let texts = [("10.0.0.1", "Ethernet0"), ("10.0.0.1,10.0.0.2", "Ethernet0,Ethernet0")];
        let fields = texts.map(|(hops, ports)| [("protocol", "bgp"), ("nexthop", hops), ("ifname", ports)]);
        let routes = fields.map(|of| RouteRow::from_fields(&mut of.into_iter()).unwrap());
        let labels = fields.map(|of| {
            let of = of.into_iter().chain([("mpls_pop", "1")]);
            LabelRouteRow::from_fields(&mut of.into_iter()).unwrap()
        });
        let groups = fields.map(|of| NextHopGroupRow::from_fields(&mut of.into_iter()).unwrap());
        check(&HOPS, |rng| {
            let mut route = rng.pick(&routes).clone();
            route.protocol = Some((*rng.pick(&["bgp", "static"])).into());
            let row = match rng.below(3) {
                0 => fpmsyncd::WantedRow::Route(route),
                1 => fpmsyncd::WantedRow::Label(rng.pick(&labels).clone()),
                _ => fpmsyncd::WantedRow::Group(rng.pick(&groups).clone()),
            };
            appl_db::Wanted((fpmsyncd::TableKey::Row(name(rng)), row))
        });
    }

    #[test]
    fn rows_of_orchagent_are_compared_as_one_by_one() {
        let fields = [("nexthop", "10.0.0.2,10.0.0.1"), ("ifname", "Ethernet0,Ethernet0")];
        let row = RouteRow::from_fields(&mut fields.into_iter()).unwrap();
        let hops: Arc<[_]> = row.via.parse_hops().unwrap().into();
        let programmed = |next_hops, pop| HeldRow::Programmed { next_hops, pop };
        let held = [
            HeldRow::Nothing,
            HeldRow::UnderWay,
            HeldRow::Refused,
            HeldRow::WithoutEntry,
            HeldRow::Waiting(row.via),
            programmed(HeldNextHops::Hops(hops[..1].into()), None),
            programmed(HeldNextHops::Hops(hops.clone()), None),
            programmed(HeldNextHops::Hops(hops), Some(1)),
            programmed(HeldNextHops::Interface("Ethernet0".into()), None),
            programmed(HeldNextHops::Drop, None),
        ];
        check(&HOPS, |rng| orchagent::Held::new(name(rng), rng.pick(&held).clone()));
    }

    #[test]
    fn rows_of_asic_db_are_compared_as_one_by_one() {
        let drops = Attr::RoutePacketAction(PacketAction::Drop);
        let to = |to| Attr::RouteNextHop(Oid(to));
        let attrs: [Attrs; 5] = [
            Attrs::new(),
            [drops.clone()].into_iter().collect(),
            [to(5)].into_iter().collect(),
            [to(5), drops.clone()].into_iter().collect(),
            [drops, to(6)].into_iter().collect(),
        ];
        let fields: [(&str, &[&str]); 3] = [
            ("NULL", &["NULL"]),
            ("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", &["oid:0x5", "oid:0x6"]),
            ("SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", &["SAI_PACKET_ACTION_DROP", "SAI_PACKET_ACTION_FORWARD"]),
        ];
        let id = ObjectId::from(Oid::vid(ObjectType::VirtualRouter, 7));
        check(&fields, |rng| asic_db::Wanted(((ObjectType::RouteEntry, id), rng.pick(&attrs).clone())));
    }
}
