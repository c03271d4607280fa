//! Reads the previous object ids of a warm start from ASIC_DB; see [`PreviousIds`].

use super::{Daemon, Error};
use ribtide_prefix::AnyPrefix;
use ribtide_swss::Db;
use ribtide_swss::orch::PreviousIds;
use ribtide_swss::row::{Field, Name, RouteKey, RouteRow};
use ribtide_swss::sai::{Attr, ObjectType, Oid, RouteEntry, SWITCH, text};
use std::collections::BTreeMap;

/// One route of each index of NEXTHOP_GROUP_TABLE. The next-hop id of its entry in ASIC_DB is the group of the index.
#[derive(Default)]
pub(super) struct IndexRoutes(BTreeMap<Name, AnyPrefix>);

impl IndexRoutes {
    /// Notes a row of ROUTE_TABLE.
    pub(super) fn look(&mut self, key: &RouteKey, row: &RouteRow) {
        let RouteKey::Route { vrf: None, prefix, .. } = key else { return };
        let index = row.via.get(Field::NexthopGroup);
        if !index.is_empty() && !self.0.contains_key(index) {
            self.0.insert(index.into(), *prefix);
        }
    }
}

/// Reads all numbered objects, and the group of each index by `routes`.
pub(super) fn read(routes: IndexRoutes, daemon: &Daemon) -> Result<PreviousIds, Error> {
    let mut previous_ids = PreviousIds::default();
    let mut rows = daemon.connect(Db::Asic)?;
    let prefix = rows.database().key("ASIC_STATE", "");
    let entry = |name: &str| ObjectType::ALL.iter().any(|of| of.is_entry() && name.starts_with(of.name()));
    rows.scan(&format!("{prefix}*"), |connection, names| {
        let names: Vec<&str> =
            names.iter().filter_map(|name| name.strip_prefix(&prefix)).filter(|name| !entry(name)).collect();
        let keys: Vec<String> = names.iter().map(|name| format!("{prefix}{name}")).collect();
        let hashes = connection.query_all(keys.iter().map(|key| ["HGETALL", key]))?;
        for (name, hash) in names.iter().zip(hashes) {
            let (Ok((object, id)), pairs) = (text::read_row_key(name), hash.into_pairs()) else { continue };
            if pairs.is_empty() {
                continue;
            }
            let attrs = pairs.iter().filter_map(|(name, value)| text::read_field(name, value).ok().flatten());
            previous_ids.object(object, &id, &attrs.collect());
        }
        Ok(())
    })?;
    let router = Attr::SwitchDefaultVirtualRouter(Oid::NULL);
    let router = rows.query(&["HGET", "HIDDEN", router.name()])?.into_text();
    let Some(vr) = router.as_deref().and_then(text::read_oid) else { return Ok(previous_ids) };
    let field = Attr::RouteNextHop(Oid::NULL);
    let keys: Vec<String> = (routes.0.values())
        .map(|dest| {
            let mut key = prefix.clone();
            text::write_row_key(
                ObjectType::RouteEntry,
                &RouteEntry { switch: SWITCH, vr, dest: *dest }.into(),
                &mut key,
            );
            key
        })
        .collect();
    let next_hops = rows.query_all(keys.iter().map(|key| ["HGET", key, field.name()]))?;
    for (index, next_hop) in routes.0.into_keys().zip(next_hops) {
        let next_hop = next_hop.into_text().as_deref().and_then(text::read_oid);
        if let Some(group) = next_hop.filter(|oid| oid.object_type() == Some(ObjectType::NextHopGroup)) {
            previous_ids.index(index, group);
        }
    }
    Ok(previous_ids)
}
