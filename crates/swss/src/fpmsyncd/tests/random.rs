//! Random messages and sessions against the simplest model: what was said last, written out.

use super::*;
use crate::row::NextHopGroupRow;
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Act {
    /// A route by inline hops: gateway and interface of each.
    Inline(u8, Vec<(u8, u8)>),
    ById(u8, u32),
    Blackhole(u8),
    Del(u8),
    Way(u32, u8, u8),
    Group(u32, Vec<u32>),
    DelObject(u32),
    Link(u8, bool),
    Take,
    /// A new session announces so much of what there is, and ends its replay.
    Reconnect(u8),
}

/// What the daemon says of a route.
#[derive(Clone, Debug)]
enum Said {
    Row(String),
    Object(u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let (to, id, n) = (0..6u8, 1..7u32, 0..4u8);
    let act = prop_oneof![
        3 => (to.clone(), prop::collection::vec((n.clone(), n.clone()), 1..3)).prop_map(|(to, hops)| Act::Inline(to, hops)),
        6 => (to.clone(), id.clone()).prop_map(|(to, id)| Act::ById(to, id)),
        1 => to.clone().prop_map(Act::Blackhole),
        3 => to.prop_map(Act::Del),
        5 => (1..4u32, n.clone(), n.clone()).prop_map(|(id, gw, by)| Act::Way(id, gw, by)),
        5 => (4..7u32, prop::collection::vec(1..4u32, 1..3)).prop_map(|(id, of)| Act::Group(id, of)),
        // zebra deletes an object when no route names it, and makes it again when one does.
        1 => id.prop_map(Act::DelObject),
        1 => (n, any::<bool>()).prop_map(|(by, named)| Act::Link(by, named)),
        4 => Just(Act::Take),
        1 => any::<u8>().prop_map(Act::Reconnect),
    ];
    prop::collection::vec(act, 1..80)
}

fn key(to: u8) -> String {
    if to.is_multiple_of(2) { format!("10.{to}.0.0/16") } else { format!("fc00:{to}::/32") }
}

/// The interface of index 100 + `by` before and after it is renamed; one is the management's.
fn name(by: u8, renamed: bool) -> String {
    match (by, renamed) {
        (3, _) => "eth0".into(),
        (_, true) => format!("Ethernet1{by}"),
        _ => format!("Ethernet{by}"),
    }
}

/// Everything the daemon knows, and APPL_DB as the changes made it.
struct Model {
    bench: Bench,
    routes: BTreeMap<u8, Said>,
    ways: BTreeMap<u32, (u8, u8)>,
    groups: BTreeMap<u32, Vec<u32>>,
    inline: BTreeMap<u8, Vec<(u8, u8)>>,
    renamed: [bool; 4],
    rows: BTreeMap<String, String>,
    indexes: BTreeMap<String, String>,
}

impl Model {
    fn new() -> Model {
        let mut bench = Bench::new();
        for by in 0..4 {
            bench.machine.link(100 + u32::from(by), &name(by, false), &mut bench.out);
        }
        Model {
            bench,
            routes: BTreeMap::new(),
            ways: BTreeMap::new(),
            groups: BTreeMap::new(),
            inline: BTreeMap::new(),
            renamed: [false; 4],
            rows: BTreeMap::new(),
            indexes: BTreeMap::new(),
        }
    }

    fn say_inline(&mut self, to: u8, hops: &[(u8, u8)]) {
        let hops: Vec<(String, u32, u16)> =
            hops.iter().map(|(gw, by)| (format!("10.9.0.{gw}"), 100 + u32::from(*by), 1)).collect();
        let hops: Vec<(&str, u32, u16)> = hops.iter().map(|(gw, by, w)| (gw.as_str(), *by, *w)).collect();
        self.bench.route_in(0, &key(to), &hops);
    }

    fn say_way(&mut self, id: u32) {
        let (gw, by) = self.ways[&id];
        self.bench.hop(id, &format!("10.9.0.{gw}"), 100 + u32::from(by));
    }

    fn say_group(&mut self, id: u32) {
        let members: Vec<(u32, u16)> = self.groups[&id].iter().map(|member| (*member, 2)).collect();
        self.bench.group(id, &members);
    }

    fn hops(&self, hops: &[(u8, u8)], weight: Option<u8>) -> String {
        let list = |f: &dyn Fn(u8, u8) -> String| {
            hops.iter().map(|(gw, by)| f(*gw, *by)).collect::<Vec<_>>().join(",")
        };
        let mut text = format!(
            "nexthop={} ifname={}",
            list(&|gw, _| format!("10.9.0.{gw}")),
            list(&|_, by| name(by, self.renamed[usize::from(by)]))
        );
        if let Some(weight) = weight {
            text += &format!(" weight={}", list(&|_, _| weight.to_string()));
        }
        text
    }

    /// The row of a group; none while a member is unknown.
    fn group_row(&self, id: u32) -> Option<String> {
        let hops: Option<Vec<(u8, u8)>> =
            self.groups.get(&id)?.iter().map(|way| self.ways.get(way).copied()).collect();
        Some(self.hops(&hops?, Some(2)))
    }

    /// The row of a route; none when its object is unknown.
    fn route_row(&self, to: u8) -> Option<Option<String>> {
        let row = match &self.routes[&to] {
            Said::Row(row) => row.clone(),
            Said::Object(id) => match (self.ways.get(id), self.group_row(*id)) {
                (Some((_, 3)), _) => return Some(None),
                (Some(way), _) => self.hops(&[*way], None),
                (None, Some(_)) => format!("nexthop_group={id}"),
                (None, None) => return None,
            },
        };
        let row = match self.inline.get(&to).map(Vec::as_slice) {
            Some([(_, 3)]) => return Some(None),
            Some(hops) => self.hops(hops, Some(1)),
            None => row,
        };
        Some(Some(format!("protocol=bgp {row}")))
    }

    fn take(&mut self) {
        self.bench.machine.take(&mut self.bench.out);
        fn put<R: Row>(rows: &mut BTreeMap<String, String>, changes: Vec<Change<R>>) {
            for change in changes {
                let mut key = String::new();
                R::key_text(&change.key, &mut key);
                let Some(row) = change.row else {
                    assert!(rows.remove(&key).is_some(), "{key} is deleted and was not there");
                    continue;
                };
                let (mut text, mut names) = (Vec::new(), Vec::new());
                row.fields(&mut |field, value| {
                    text.push(format!("{field}={value}"));
                    names.push(field.to_string());
                });
                // A row with other fields says so.
                if let Some(old) = rows.insert(key, text.join(" ")) {
                    let old: Vec<&str> = old.split(' ').filter_map(|pair| pair.split('=').next()).collect();
                    assert_eq!(change.reshaped, old != names);
                }
            }
        }
        let out = std::mem::take(&mut self.bench.out);
        // Every route that names a group finds it: before, between and after.
        put::<NextHopGroupRow>(&mut self.indexes, out.groups);
        self.check_named();
        put::<RouteRow>(&mut self.rows, out.routes);
        self.check_named();
        put::<NextHopGroupRow>(&mut self.indexes, out.old_groups);
    }

    fn check_named(&self) {
        for (key, row) in &self.rows {
            if let Some((_, id)) = row.split_once("nexthop_group=") {
                assert!(self.indexes.contains_key(id), "{key} names group {id}, which is not there");
            }
        }
    }

    /// All that can be said is said exactly; what waits is not judged.
    fn check(&mut self) {
        self.take();
        for to in 0..6 {
            let found = self.rows.get(&key(to));
            match self.routes.contains_key(&to).then(|| self.route_row(to)) {
                None => assert_eq!(found, None, "{}", key(to)),
                Some(Some(row)) => assert_eq!(found, row.as_ref(), "{}", key(to)),
                Some(None) => {
                    let Said::Object(id) = self.routes[&to] else { panic!("{}", key(to)) };
                    // A group that had its members once keeps its row.
                    let known = self.groups.contains_key(&id);
                    let view = self.bench.machine.lookup(None, prefix(&key(to))).unwrap();
                    assert!(known || view.waits_for == Some(id));
                }
            }
        }
        for id in 4..7 {
            if let Some(row) = self.group_row(id) {
                assert_eq!(self.indexes.get(&id.to_string()), Some(&row));
            } else if !self.groups.contains_key(&id) {
                assert_eq!(self.indexes.get(&id.to_string()), None);
            }
        }
    }

    fn used(&self, id: u32) -> bool {
        self.routes.values().any(|said| matches!(said, Said::Object(of) if *of == id))
            || self.groups.values().any(|members| members.contains(&id))
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Inline(to, hops) => {
                self.say_inline(to, &hops);
                self.routes.insert(to, Said::Row(String::new()));
                self.inline.insert(to, hops);
            }
            Act::ById(to, id) => {
                self.bench.by_id(&key(to), id);
                self.inline.remove(&to);
                self.routes.insert(to, Said::Object(id));
            }
            Act::Blackhole(to) => {
                self.bench.kind(&key(to), RouteKind::Blackhole);
                self.inline.remove(&to);
                self.routes.insert(to, Said::Row("blackhole=true".into()));
            }
            Act::Del(to) => {
                self.bench.del(&key(to));
                self.inline.remove(&to);
                self.routes.remove(&to);
            }
            Act::Way(id, gw, by) => {
                self.ways.insert(id, (gw, by));
                self.say_way(id);
            }
            Act::Group(id, members) => {
                self.groups.insert(id, members);
                self.say_group(id);
            }
            Act::DelObject(id) => {
                if !self.used(id) && (self.ways.remove(&id).is_some() || self.groups.remove(&id).is_some()) {
                    self.bench.send(Content::DelNextHop(id));
                }
            }
            Act::Link(by, renamed) => {
                self.renamed[usize::from(by)] = renamed;
                self.bench.machine.link(100 + u32::from(by), &name(by, renamed), &mut self.bench.out);
            }
            Act::Take => self.take(),
            Act::Reconnect(keep) => self.reconnect(keep),
        }
    }

    fn reconnect(&mut self, keep: u8) {
        self.bench.reconnect();
        self.routes.retain(|to, _| keep & 1 << to != 0);
        self.inline.retain(|to, _| keep & 1 << to != 0);
        let (mut ways, mut groups) = (std::mem::take(&mut self.ways), std::mem::take(&mut self.groups));
        ways.retain(|id, _| self.used(*id) || groups.values().any(|members| members.contains(id)));
        groups.retain(|id, _| self.used(*id));
        (self.ways, self.groups) = (ways, groups);
        // As zebra's walk: objects first.
        self.ways.clone().keys().for_each(|id| self.say_way(*id));
        self.groups.clone().keys().for_each(|id| self.say_group(*id));
        for (to, said) in self.routes.clone() {
            match (said, self.inline.get(&to).cloned()) {
                (_, Some(hops)) => self.say_inline(to, &hops),
                (Said::Object(id), None) => self.bench.by_id(&key(to), id),
                (Said::Row(_), None) => self.bench.kind(&key(to), RouteKind::Blackhole),
            }
        }
        if keep & 0x80 != 0 {
            self.take();
        }
        self.bench.machine.end_of_replay(&mut self.bench.out);
        self.check();
    }
}

proptest! {
    #![proptest_config(Config { cases: 1000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn rows_are_what_was_said_last(acts in acts()) {
        let mut model = Model::new();
        for act in acts {
            model.act(act);
        }
        model.check();
        // All that is withdrawn leaves nothing.
        model.reconnect(0);
        prop_assert!(model.rows.is_empty() && model.indexes.is_empty(), "{:?} {:?}", model.rows, model.indexes);
        prop_assert!(model.bench.machine.is_empty());
        prop_assert_eq!(model.bench.machine.sources.len(), 0);
    }
}
