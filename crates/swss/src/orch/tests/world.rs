//! orchagent, syncd, the chip, and what the databases hold, with a queue between them that tests can disturb.

use super::chip::{Chip, Forwarding};
use crate::orch::{Orch, OrchConfig, OrchEvent, OrchOut, PreviousIds, Refusal, RouteState};
use crate::row::{
    Change, IntfRow, LabelRouteRow, LagMemberRow, LagRow, NeighRow, NextHopGroupRow, PortRow, RouteKey,
    RouteResponse, RouteRow, Row, VlanMemberRow, VlanRow, VrfRow,
};
use crate::sai::notification::{PortState, read_port_state_change, write_port_state_change};
use crate::sai::{
    Attr, Item, ObjectType, Oid, OperStatus, RouteEntry, SaiCall, SaiReply, SaiRequest, VidCounter, text,
};
use crate::syncd::{AsicChange, PackedChanges, Syncd, SyncdOut};
use std::collections::BTreeMap;

pub(super) struct World {
    pub(super) orch: Orch,
    pub(super) syncd: Syncd<Chip>,
    pub(super) out: OrchOut,
    pub(super) asic_db: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) hidden: Vec<Attr>,
    pub(super) rid_of: BTreeMap<Oid, Oid>,
    /// Requests without a reply.
    pub(super) queue: Vec<SaiRequest>,
    /// All requests so far.
    pub(super) sent: Vec<SaiRequest>,
    pub(super) vids: VidCounter,
    pub(super) now_ms: u64,
    /// What the tables of APPL_DB hold.
    rows: BTreeMap<String, BTreeMap<String, String>>,
    config: OrchConfig,
}

fn fields<R: Row>(text: &str) -> R {
    R::from_fields(&mut text.split(' ').filter_map(|pair| pair.split_once('='))).unwrap()
}

fn change<R: Row>(key: &str, text: &str) -> Change<R> {
    let key = R::parse_key(key).unwrap();
    if text == "DEL" { Change::del(key) } else { Change::set(key, fields(text)) }
}

impl World {
    /// A world that has started, with ports Ethernet0 to Ethernet3, each routed: Ethernet*n* has 10.0.*n*.1/24.
    pub(super) fn new(config: OrchConfig) -> World {
        let mut world = World::bare(config, Chip::new());
        world.ports();
        for n in 0..4 {
            world.set(&format!("INTF_TABLE:Ethernet{n}"), "NULL=NULL");
            world.set(&format!("INTF_TABLE:Ethernet{n}:10.0.{n}.1/24"), "scope=global family=IPv4");
        }
        world.settle();
        world.sent.clear();
        world
    }

    pub(super) fn with_responses() -> World {
        World::new(OrchConfig { responses: true, ..OrchConfig::default() })
    }

    pub(super) fn bare(config: OrchConfig, chip: Chip) -> World {
        let vids = VidCounter::default();
        World {
            orch: Orch::new(config.clone(), Box::new(vids.clone())),
            syncd: Syncd::new(chip, Box::new(vids.clone())),
            out: OrchOut::default(),
            asic_db: BTreeMap::new(),
            hidden: Vec::new(),
            rid_of: BTreeMap::new(),
            queue: Vec::new(),
            sent: Vec::new(),
            vids,
            now_ms: 0,
            rows: BTreeMap::new(),
            config,
        }
    }

    pub(super) fn ports(&mut self) {
        for n in 0..4 {
            let lanes = format!("lanes={},{} speed=100000 admin_status=up", n * 4, n * 4 + 1);
            self.set(&format!("PORT_TABLE:Ethernet{n}"), &lanes);
        }
        self.set("PORT_TABLE:PortConfigDone", "count=4");
        self.set("PORT_TABLE:PortInitDone", "lanes=0");
    }

    /// Hands in a change: `TABLE:KEY`, and fields or `DEL`.
    pub(super) fn set(&mut self, key: &str, text: &str) {
        if text == "DEL" {
            self.rows.remove(key);
        } else {
            let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
            let row = self.rows.entry(key.into()).or_default();
            row.extend(pairs.map(|(field, value)| (field.into(), value.into())));
        }
        self.take(key, text);
    }

    /// Changes a row of APPL_DB without orchagent: fields in place of the former ones, or `DEL`.
    pub(super) fn set_unnoticed(&mut self, key: &str, text: &str) {
        self.rows.remove(key);
        if text != "DEL" {
            let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
            self.rows.insert(key.into(), pairs.map(|(field, value)| (field.into(), value.into())).collect());
        }
    }

    /// The fields of a row of APPL_DB; none without one.
    pub(super) fn read(&self, key: &str) -> Vec<(String, String)> {
        self.rows.get(key).into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The keys of a table of APPL_DB.
    pub(super) fn keys(&self, table: &str) -> Vec<String> {
        let key = |name: &String| Some(name.split_once(':').filter(|(of, _)| *of == table)?.1.to_owned());
        self.rows.keys().filter_map(key).collect()
    }

    /// Hands a change to orchagent alone.
    pub(super) fn take(&mut self, key: &str, text: &str) {
        let (table, key) = key.split_once(':').unwrap();
        match table {
            PortRow::TABLE => self.orch.port(change(key, text)),
            LagRow::TABLE => self.orch.lag(change(key, text)),
            LagMemberRow::TABLE => self.orch.lag_member(change(key, text)),
            VlanRow::TABLE => self.orch.vlan(change(key, text)),
            VlanMemberRow::TABLE => self.orch.vlan_member(change(key, text)),
            IntfRow::TABLE => self.orch.interface(change(key, text)),
            NeighRow::TABLE => self.orch.neighbor(change(key, text)),
            VrfRow::TABLE => self.orch.vrf(change(key, text)),
            NextHopGroupRow::TABLE => self.orch.nexthop_group(change(key, text)),
            RouteRow::TABLE => self.orch.route(change(key, text)),
            LabelRouteRow::TABLE => self.orch.label_route(change(key, text)),
            _ => panic!("{table}"),
        }
    }

    /// What a row of a table says in full.
    fn row_text(&self, key: &str) -> String {
        let pairs = self.rows[key].iter().map(|(field, value)| format!("{field}={value}"));
        pairs.collect::<Vec<_>>().join(" ")
    }

    /// What ASIC_DB says of an earlier run.
    fn previous_ids(&self) -> PreviousIds {
        let mut previous_ids = PreviousIds::default();
        let mut next_hops = BTreeMap::new();
        for (key, row) in &self.asic_db {
            let (object, id) = text::read_row_key(key).unwrap();
            let fields = row.iter().filter_map(|(name, value)| text::read_field(name, value).unwrap());
            let attrs = fields.collect();
            previous_ids.object(object, &id, &attrs);
            if let crate::sai::ObjectId::Route(entry) = id {
                let to = attrs
                    .iter()
                    .find_map(|a| if let Attr::RouteNextHop(oid) = a { Some(*oid) } else { None });
                next_hops.extend(to.map(|to| (entry.dest, to)));
            }
        }
        for (key, row) in &self.rows {
            let route = key.strip_prefix("ROUTE_TABLE:").map(|key| RouteRow::parse_key(key).unwrap());
            if let (Some(RouteKey::Route { vrf: None, prefix, .. }), Some(index)) =
                (route, row.get("nexthop_group"))
                && let Some(to) = next_hops.get(&prefix)
                && to.object_type() == Some(ObjectType::NextHopGroup)
            {
                previous_ids.index(index.as_str().into(), *to);
            }
        }
        previous_ids
    }

    /// orchagent is started again, warm, and takes what `rows` changed meanwhile into account. Returns what the chip was
    /// asked for.
    pub(super) fn restart_warm(&mut self, changes: &[(&str, &str)]) -> usize {
        self.restart_warm_from(self.previous_ids(), changes)
    }

    pub(super) fn restart_warm_from(&mut self, previous_ids: PreviousIds, changes: &[(&str, &str)]) -> usize {
        // The one that is on its way out takes them, and does nothing of it.
        changes.iter().for_each(|(key, text)| self.set(key, text));
        self.queue.clear();
        self.out = OrchOut::default();
        self.orch = Orch::new(self.config.clone(), Box::new(self.vids.clone()));
        self.orch.restore(previous_ids);
        for key in self.rows.keys().cloned().collect::<Vec<_>>() {
            let text = self.row_text(&key);
            self.take(&key, &text);
        }
        let before = self.syncd.chip().requested;
        self.settle();
        assert!(self.orch.restoring() && self.syncd.in_view());
        self.orch.restored();
        self.settle();
        assert!(!self.orch.restoring() && !self.syncd.in_view());
        self.syncd.chip().requested - before
    }

    pub(super) fn neighbor(&mut self, ip: &str) {
        let n = ip.split('.').nth(2).unwrap();
        self.set(&format!("NEIGH_TABLE:Ethernet{n}:{ip}"), "neigh=02:00:00:00:00:01 family=IPv4");
    }

    /// A link goes up or down at the chip, and syncd reports it.
    pub(super) fn link(&mut self, n: u32, up: bool) {
        self.link_unheard(n, up);
        let port = self.syncd.vid(Chip::port(4 * n)).unwrap();
        let status = if up { OperStatus::Up } else { OperStatus::Down };
        let message = write_port_state_change(&[PortState { port, status }]);
        let states = read_port_state_change(&message).unwrap().unwrap();
        self.orch.port_states(&states, &mut self.out);
    }

    /// The same, but the report is lost.
    pub(super) fn link_unheard(&mut self, n: u32, up: bool) {
        match up {
            true => drop(self.syncd.chip_mut().down.remove(&(4 * n))),
            false => drop(self.syncd.chip_mut().down.insert(4 * n)),
        }
    }

    /// Lets orchagent go on, and takes what it asks for.
    pub(super) fn run(&mut self) {
        self.orch.run(&mut self.out);
        for request in self.out.requests.drain(..) {
            self.sent.push(request.clone());
            self.queue.push(request);
        }
    }

    /// Carries out one request, and hands the reply back.
    pub(super) fn answer(&mut self, at: usize) {
        let request = self.queue.remove(at);
        // As over Redis: through text, where it can be.
        let message = text::write_request(&request);
        let mut read = text::read_request(request.id, &message.key, &message.value, &message.op).unwrap();
        if let (SaiCall::Bulk { mode, .. }, SaiCall::Bulk { mode: sent, .. }) =
            (&mut read.call, &request.call)
        {
            *mode = *sent;
        }
        assert_eq!(read, request);
        let mut out = SyncdOut::default();
        self.syncd.handle(read, &mut out);
        self.write_rows(out.rows);
        for reply in out.replies {
            let message = text::write_reply(&reply, text::ReplyTo::to(&request.call));
            let again = text::read_reply(reply.id, &message.key, &message.value, &message.op).unwrap();
            // Without any attribute, a bulk of gets has statuses.
            assert!(again == reply || matches!(request.call, SaiCall::BulkGet { .. }), "{again:?} {reply:?}");
            self.reply(again);
        }
    }

    pub(super) fn reply(&mut self, reply: SaiReply) {
        self.orch.reply(reply, &mut self.out);
    }

    pub(super) fn write_rows(&mut self, rows: PackedChanges) {
        for row in rows.unpack() {
            let mut key = String::new();
            match row {
                AsicChange::Wipe => {
                    self.asic_db.clear();
                    self.rid_of.clear();
                    self.hidden.clear();
                }
                AsicChange::Set(object, id, attrs) => {
                    text::write_row_key(object, &id, &mut key);
                    let row = self.asic_db.entry(key).or_default();
                    text::row_fields(&attrs, &mut |field, value| {
                        drop(row.insert(field.into(), value.into()))
                    });
                }
                AsicChange::Remove(object, id) => {
                    text::write_row_key(object, &id, &mut key);
                    assert!(self.asic_db.remove(&key).is_some(), "{key}");
                }
                AsicChange::Map(vid, rid) => assert_eq!(self.rid_of.insert(vid, rid), None),
                AsicChange::Unmap(vid, rid) => assert_eq!(self.rid_of.remove(&vid), Some(rid)),
                AsicChange::SetEntry(object, ..) | AsicChange::RemoveEntry(object, _) => {
                    panic!("orchagent makes no {object:?}")
                }
                AsicChange::Hidden(attr) => self.hidden.push(attr),
                AsicChange::View(_) => {}
            }
        }
    }

    /// Goes on until nothing moves; requests in order.
    pub(super) fn settle(&mut self) {
        loop {
            self.run();
            if self.queue.is_empty() {
                break;
            }
            self.answer(0);
        }
        assert!(self.orch.idle());
        assert_eq!(self.syncd.chip().violations, [""; 0]);
    }

    pub(super) fn tick(&mut self, ms: u64) {
        self.now_ms += ms;
        self.orch.tick(self.now_ms, &mut self.out);
        self.settle();
    }

    /// The virtual router of the default VRF.
    pub(super) fn default_router(&self) -> Oid {
        self.orch.objects.vrfs.oid(crate::orch::routes::DEFAULT_VRF).unwrap()
    }

    /// Where the chip sends packets of a route: `-` nowhere, `drop`, `cpu`, an interface, or next hops.
    pub(super) fn forwarding(&self, key: &str) -> String {
        let Ok(RouteKey::Route { vrf, prefix, .. }) = RouteRow::parse_key(key) else { panic!("{key}") };
        let switch = self.syncd.rid(crate::sai::SWITCH).unwrap();
        let vr = match vrf {
            None => self.syncd.rid(self.default_router()),
            Some(_) => {
                let objects = &self.orch.objects;
                objects.vrfs.find(&vrf).and_then(|id| objects.vrfs.oid(id)).and_then(|v| self.syncd.rid(v))
            }
        };
        let Some(vr) = vr else { return "-".into() };
        World::shown(self.syncd.chip().forwarding(&RouteEntry { switch, vr, dest: prefix }))
    }

    /// Where the chip sends packets with a label: as [`World::forwarding`], and behind it how many labels it takes off.
    pub(super) fn label_forwarding(&self, label: u32) -> String {
        match self.syncd.chip().of_label(label) {
            None => "-".into(),
            Some((forwarding, pop)) => format!("{} pop{}", World::shown(Some(forwarding)), pop.unwrap()),
        }
    }

    fn shown(forwarding: Option<Forwarding>) -> String {
        match forwarding {
            None => "-".into(),
            Some(Forwarding::Drop) => "drop".into(),
            Some(Forwarding::Cpu) => "cpu".into(),
            Some(Forwarding::Interface(lane)) => format!("Ethernet{}", lane / 4),
            Some(Forwarding::Hops(hops)) => {
                let hops = hops.into_iter().map(|(ip, labels, lane, weight)| {
                    let to = if labels.is_empty() { ip.to_string() } else { format!("{labels}@{ip}") };
                    // What is no port shows itself; see `Chip::lane`.
                    let to = if lane < 100 {
                        assert_eq!(ip.to_string().split('.').nth(2).unwrap(), (lane / 4).to_string());
                        to
                    } else {
                        format!("{to}@{lane}")
                    };
                    if weight == 0 { to } else { format!("{to}*{weight}") }
                });
                hops.collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Why a route waits, or was given up.
    pub(super) fn why(&self, key: &str) -> String {
        let Ok(RouteKey::Route { vrf, prefix, .. }) = RouteRow::parse_key(key) else { panic!("{key}") };
        let state = self.orch.explain(vrf.as_deref(), prefix);
        let why = |state: RouteState| {
            state.waiting.map(|waiting| waiting.to_string()).or(state.given_up.map(|why| why.to_string()))
        };
        state.and_then(why).unwrap_or_default()
    }

    /// The calls on one type of object since the last call, in short.
    pub(super) fn calls(&mut self, of: ObjectType) -> Vec<String> {
        let show = |item: &Item| {
            let id = match &item.id {
                crate::sai::ObjectId::Route(entry) => entry.dest.to_string(),
                crate::sai::ObjectId::Neighbor(entry) => entry.ip.to_string(),
                crate::sai::ObjectId::Inseg(entry) => entry.label.to_string(),
                crate::sai::ObjectId::Oid(_) => "oid".into(),
            };
            let attrs: Vec<String> = item
                .attrs
                .iter()
                .map(|attr| match attr {
                    Attr::RouteNextHop(oid) | Attr::InsegNextHop(oid) if oid.is_null() => "null".into(),
                    Attr::RouteNextHop(_) | Attr::InsegNextHop(_) => "to".into(),
                    Attr::InsegPop(pop) => format!("pop{pop}"),
                    other => other.to_string().rsplit(['=', '_']).next().unwrap_or_default().to_lowercase(),
                })
                .collect();
            format!("{id} {}", attrs.join("+")).trim_end().to_string()
        };
        let calls = self.sent.drain(..).filter_map(|request| match request.call {
            SaiCall::One { verb, object, item } if object == of => Some(format!("{verb:?} {}", show(&item))),
            SaiCall::Bulk { verb, object, items, .. } if object == of => {
                Some(format!("{verb:?} {}", items.iter().map(show).collect::<Vec<_>>().join(", ")))
            }
            _ => None,
        });
        calls.collect()
    }

    /// What was refused or failed since the last call.
    pub(super) fn events(&mut self) -> Vec<String> {
        self.out.events.drain(..).map(|event: OrchEvent| event.to_string()).collect()
    }

    /// The messages of responses since the last call.
    pub(super) fn responses(&mut self) -> Vec<String> {
        self.out.responses.drain(..).map(|change| RouteResponse::of(&change).message()).collect()
    }

    /// Who was refused, and why; each with the digest of the row that APPL_DB has.
    pub(super) fn refusals(&mut self) -> Vec<String> {
        let show = |Refusal { key, row, why }: Refusal| {
            let mut text = "ROUTE_TABLE:".to_owned();
            RouteRow::key_text(&key, &mut text);
            let there = self.rows[&text].iter().map(|(field, value)| (&**field, &**value));
            assert_eq!(row, RouteRow::from_fields(&mut { there }).unwrap().digest(), "{text}");
            format!("{text}: {why}")
        };
        self.out.refusals.drain(..).map(show).collect()
    }

    /// Nothing is left but what the start made, and the router's addresses.
    pub(super) fn assert_empty(&self) {
        let chip = self.syncd.chip();
        assert_eq!(chip.count(ObjectType::NextHop), 0);
        assert_eq!(chip.count(ObjectType::NextHopGroup), 0);
        assert_eq!(chip.count(ObjectType::NextHopGroupMember), 0);
        assert!(chip.neighbors.is_empty() && chip.labels.is_empty());
        let (neighbors, groups, indexes) = self.orch.objects.counts();
        assert_eq!(neighbors, 0, "neighbours are remembered that no route names");
        assert_eq!((self.orch.backlog(), self.orch.retry_cache_len()), (0, 0));
        assert_eq!(groups, (0, 0, 0));
        assert_eq!(indexes, 0, "indexes are remembered that no route names");
        let routes = chip.routes.keys().map(|entry| entry.dest.to_string());
        let other: Vec<String> =
            routes.filter(|dest| self.forwarding(dest) != "cpu" && self.forwarding(dest) != "drop").collect();
        assert_eq!(other, [""; 0]);
        let crm = self.orch.crm();
        assert_eq!(crm.route[0].used + crm.route[1].used, chip.routes.len() as u32);
        let rest = [
            crm.nexthop[0],
            crm.nexthop[1],
            crm.neighbor[0],
            crm.nexthop_group,
            crm.nexthop_group_member,
            crm.mpls_inseg,
            crm.mpls_nexthop,
        ];
        assert!(rest.iter().all(|usage| usage.used == 0), "{crm:?}");
    }

    /// ASIC_DB says what the chip holds.
    pub(super) fn assert_db_agrees(&self) {
        let chip = self.syncd.chip();
        let of = |object: ObjectType| {
            self.asic_db.keys().filter(|key| key.starts_with(&format!("{}:", object.name()))).count()
        };
        assert_eq!(of(ObjectType::RouteEntry), chip.routes.len());
        assert_eq!(of(ObjectType::NeighborEntry), chip.neighbors.len());
        assert_eq!(of(ObjectType::InsegEntry), chip.labels.len());
        assert_eq!(self.orch.crm().mpls_inseg.used, chip.labels.len() as u32);
        let labelled = |attrs: &Vec<Attr>| attrs.iter().any(|attr| matches!(attr, Attr::NextHopLabels(_)));
        let labelled = chip.objects.values().filter(|(_, attrs)| labelled(attrs)).count();
        assert_eq!(self.orch.crm().mpls_nexthop.used, labelled as u32);
        for object in [
            ObjectType::Lag,
            ObjectType::LagMember,
            ObjectType::Vlan,
            ObjectType::BridgePort,
            ObjectType::VlanMember,
            ObjectType::NextHop,
            ObjectType::NextHopGroup,
            ObjectType::NextHopGroupMember,
            ObjectType::RouterInterface,
        ] {
            assert_eq!(of(object), chip.count(object));
        }
        for (key, row) in self.asic_db.iter().filter(|(key, _)| key.contains("ROUTE_ENTRY")) {
            let (_, id) = text::read_row_key(key).unwrap();
            let crate::sai::ObjectId::Route(entry) = id else { panic!("{key}") };
            let rid = |vid: Oid| self.rid_of[&vid];
            let in_chip =
                &chip.routes[&RouteEntry { switch: rid(entry.switch), vr: rid(entry.vr), dest: entry.dest }];
            assert_eq!(row.len(), in_chip.len(), "{key}: {row:?} {in_chip:?}");
            for (field, value) in row {
                let mut attr = Attr::read(field, value).unwrap();
                for oid in attr.oids_mut().iter_mut().filter(|oid| !oid.is_null()) {
                    *oid = rid(*oid);
                }
                assert!(in_chip.contains(&attr), "{key}: {attr} {in_chip:?}");
            }
        }
    }
}
