//! The order in which objects can be made: each after all that it names.

use super::store::Store;
use crate::sai::{Attrs, ObjectId, ObjectType, Oid};
use ribtide_prefix::Map;

/// The typed objects in an order in which they can be made where their attributes do not say more: a
/// next hop needs its neighbour, which it does not name. Objects of other types come after ports.
pub const ORDER: [ObjectType; 16] = [
    ObjectType::Switch,
    ObjectType::Port,
    ObjectType::Hostif,
    ObjectType::Lag,
    ObjectType::LagMember,
    ObjectType::Vlan,
    ObjectType::BridgePort,
    ObjectType::VlanMember,
    ObjectType::VirtualRouter,
    ObjectType::RouterInterface,
    ObjectType::NeighborEntry,
    ObjectType::NextHop,
    ObjectType::NextHopGroup,
    ObjectType::NextHopGroupMember,
    ObjectType::RouteEntry,
    ObjectType::InsegEntry,
];

/// The place of a type among objects that do not name each other.
pub fn place(object: ObjectType) -> usize {
    const OTHERS: usize = 1;
    match ORDER.iter().position(|of| *of == object) {
        Some(place) if place > OTHERS => place + 1,
        Some(place) => place,
        None => OTHERS + 1,
    }
}

/// How many objects must be made before each, one after the other: 0 for one that names none of
/// them. Objects that name each other in a circle count as the last.
pub(super) fn depths(objects: &[(ObjectType, ObjectId, Attrs)]) -> Vec<u32> {
    let places: Map<Oid, usize> =
        objects.iter().enumerate().filter_map(|(n, (_, id, _))| Some((id.oid()?, n))).collect();
    // The objects that name each, and how many of those that an object names are not done yet.
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); objects.len()];
    let mut left = vec![0u32; objects.len()];
    for (n, (_, id, attrs)) in objects.iter().enumerate() {
        let (mut id, mut attrs) = (*id, attrs.clone());
        let key = id.oid().is_none().then(|| id.oids_mut().map(|oid| *oid).collect::<Vec<_>>());
        let named =
            attrs.iter_mut().flat_map(|attr| attr.oids_mut().to_vec()).chain(key.into_iter().flatten());
        for used in named.filter_map(|oid| places.get(&oid)).filter(|used| **used != n) {
            users[*used].push(n);
            left[n] += 1;
        }
    }
    let mut depths = vec![0u32; objects.len()];
    let mut ready: Vec<usize> = (0..objects.len()).filter(|n| left[*n] == 0).collect();
    let mut deepest = 0;
    while let Some(n) = ready.pop() {
        deepest = deepest.max(depths[n]);
        for user in std::mem::take(&mut users[n]) {
            depths[user] = depths[user].max(depths[n] + 1);
            left[user] -= 1;
            if left[user] == 0 {
                ready.push(user);
            }
        }
    }
    for (depth, left) in depths.iter_mut().zip(left) {
        if left > 0 {
            *depth = deepest + 1;
        }
    }
    depths
}

/// Sorts objects so that each comes after all that it names.
pub(super) fn sort(objects: Vec<(ObjectType, ObjectId, Attrs)>) -> Vec<(ObjectType, ObjectId, Attrs)> {
    let depths = depths(&objects);
    let mut sorted: Vec<_> = depths.into_iter().zip(objects).collect();
    sorted.sort_by_key(|(depth, (object, id, _))| {
        (*object != ObjectType::Switch, *depth, place(*object), *object, *id)
    });
    sorted.into_iter().map(|(_, object)| object).collect()
}

/// Every object but routes, labels, and entries whose key is not typed, each after all that it names.
pub(super) fn creation_order(store: &Store) -> Vec<(ObjectType, ObjectId, Attrs)> {
    let ids = store.ids().filter(|(object, _)| *object != ObjectType::InsegEntry);
    let objects = ids.filter_map(|(object, id)| Some((object, id, store.get(object, &id)?.clone())));
    sort(objects.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sai::Attr;

    fn object(object: &str, index: u64, attrs: &[(&str, Oid)]) -> (ObjectType, ObjectId, Attrs) {
        let object = ObjectType::from_name(&format!("SAI_OBJECT_TYPE_{object}")).unwrap();
        let attrs = attrs.iter().map(|(name, oid)| Attr::raw(name, &oid.to_string())).collect();
        (object, Oid::vid(object, index).into(), attrs)
    }

    #[test]
    fn objects_come_after_what_they_name_whatever_their_types() {
        let group = object("ACL_TABLE_GROUP", 1, &[]);
        let table = object("ACL_TABLE", 2, &[]);
        let oid = |of: &(ObjectType, ObjectId, Attrs)| of.1.oid().unwrap();
        let member = object(
            "ACL_TABLE_GROUP_MEMBER",
            3,
            &[("SAI_ACL_TABLE_GROUP_MEMBER_ATTR_ACL_TABLE_ID", oid(&table))],
        );
        let port = object("PORT", 4, &[("SAI_PORT_ATTR_INGRESS_ACL", oid(&group))]);
        let mut circle = object("MIRROR_SESSION", 5, &[]);
        let other = object("POLICER", 6, &[("X", oid(&circle))]);
        circle.2.push(Attr::raw("SAI_MIRROR_SESSION_ATTR_POLICER", &oid(&other).to_string()));
        let all = vec![circle, port.clone(), member.clone(), table.clone(), group.clone(), other];
        let sorted = sort(all);
        let at = |of: &(ObjectType, ObjectId, Attrs)| sorted.iter().position(|other| other == of).unwrap();
        assert!(at(&group) < at(&port) && at(&table) < at(&member));
        assert_eq!(sorted.len(), 6);
    }

    #[test]
    fn a_long_chain_is_no_deep_recursion() {
        let mut all = vec![object("POLICER", 0, &[])];
        for n in 1..100_000 {
            let before = all[n - 1].1.oid().unwrap();
            all.push(object("POLICER", n as u64, &[("X", before)]));
        }
        all.reverse();
        assert_eq!(sort(all).first().unwrap().1.oid().unwrap().index(), 0);
    }
}
