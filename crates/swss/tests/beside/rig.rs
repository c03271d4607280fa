//! Both orchagents at one syncd, `crate::syncd::Syncd`: ribtide's is the real state machine, SONiC's are requests that
//! were recorded or written by hand.

use crate::syncd::Syncd;
use ribtide_swss::beside::{Beside, BesideEvent, BesideOut, LearnedRow, ViewRecord};
use ribtide_swss::orch::{Orch, OrchConfig, OrchEvent, OrchOut, VidCounter, VidSource};
use ribtide_swss::row::RouteRow;
use ribtide_swss::sai::text::Message;
use ribtide_swss::{Change, Row, json};

/// The two orchagents and syncd.
pub(crate) struct Rig {
    pub(crate) beside: Beside,
    pub(crate) orch: Orch,
    pub(crate) syncd: Syncd,
    /// Replies to the client, in order.
    pub(crate) replies: Vec<(u64, Message)>,
    pub(crate) events: Vec<BesideEvent>,
    /// Events of ribtide's orchagent.
    pub(crate) own_events: Vec<OrchEvent>,
    /// What outlives ribtide of a view in progress.
    view: Vec<ViewRecord>,
    pub(crate) number: u64,
    pub(crate) now_ms: u64,
}

fn message(key: &str, op: &str, fields: &[&str]) -> Message {
    let mut value = String::new();
    json::write_strings(fields.iter().copied(), &mut value);
    let value = if op == "Dremove" { "{}".into() } else { value };
    Message { key: key.into(), value, op: op.to_owned().into() }
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let mut vids = VidCounter::default();
        // Ids of the recorded client are below.
        vids.pass(0x100_0000).unwrap();
        Rig::with(vids)
    }

    pub(crate) fn with(vids: VidCounter) -> Rig {
        Rig {
            beside: Beside::new(Box::new(vids.clone()), 1),
            orch: Orch::new(
                OrchConfig {
                    responses: true,
                    verifies: true,
                    retry_ms: 10,
                    link_local_in_vrfs: false,
                    ..OrchConfig::default()
                },
                Box::new(vids),
            ),
            syncd: Syncd::default(),
            replies: Vec::new(),
            events: Vec::new(),
            own_events: Vec::new(),
            view: Vec::new(),
            number: 0,
            now_ms: 0,
        }
    }

    /// Runs everything until nothing moves.
    pub(crate) fn settle(&mut self) {
        let (mut out, mut own) = (BesideOut::default(), OrchOut::default());
        loop {
            self.orch.run(&mut own);
            let mut moved = !own.requests.is_empty();
            own.requests.drain(..).for_each(|request| self.beside.request(request));
            self.beside.run(&mut out);
            moved |= self.carry_out(&mut out, &mut own);
            self.own_events.append(&mut own.events);
            if !moved {
                return;
            }
        }
    }

    pub(crate) fn carry_out(&mut self, out: &mut BesideOut, own: &mut OrchOut) -> bool {
        self.record(out);
        let mut moved = !(out.requests.is_empty() && out.replies.is_empty() && out.rows.is_empty());
        for row in out.rows.drain(..) {
            match row {
                LearnedRow::Port(row) => self.orch.port(row),
                LearnedRow::Vrf(row) => self.orch.vrf(row),
                LearnedRow::Interface(row) => self.orch.interface(row),
                LearnedRow::Neighbor(row) => self.orch.neighbor(row),
            }
        }
        out.replies.drain(..).for_each(|reply| self.orch.reply(reply, own));
        for request in std::mem::take(&mut out.requests) {
            let reply = self.syncd.execute(&request);
            assert!(self.beside.reply(reply, out));
        }
        self.record(out);
        moved |= !out.to_client.is_empty();
        self.replies.append(&mut out.to_client);
        self.events.append(&mut out.events);
        moved
    }

    /// Keeps the view in progress.
    pub(crate) fn record(&mut self, out: &mut BesideOut) {
        for record in out.view.drain(..) {
            if !matches!(record, ViewRecord::Passed(..)) {
                self.view.clear();
            }
            if record != ViewRecord::Ended {
                self.view.push(record);
            }
        }
    }

    /// A request of the client, without waiting for its reply.
    pub(crate) fn ask(&mut self, key: &str, op: &str, fields: &[&str]) -> u64 {
        self.number += 1;
        self.beside.client(self.number, message(key, op, fields));
        self.settle();
        self.number
    }

    /// A change of syncd that neither orchagent requested.
    pub(crate) fn at_syncd(&mut self, key: &str, op: &str, fields: &[&str]) {
        let reply = self.syncd.execute(&message(key, op, fields));
        assert_eq!(reply.key, "SAI_STATUS_SUCCESS", "{op} {key}");
    }

    /// A request of the client, and the status of the reply.
    pub(crate) fn client(&mut self, key: &str, op: &str, fields: &[&str]) -> String {
        let number = self.ask(key, op, fields);
        self.status(number).unwrap_or_else(|| panic!("no reply to {op} {key}"))
    }

    pub(crate) fn status(&self, number: u64) -> Option<String> {
        self.replies.iter().find(|(of, _)| *of == number).map(|(_, reply)| reply.key.clone())
    }

    /// Lets time go by.
    pub(crate) fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(100) {
            self.now_ms += 100;
            let (mut out, mut own) = (BesideOut::default(), OrchOut::default());
            self.beside.tick(self.now_ms, &mut out);
            self.orch.tick(self.now_ms, &mut own);
            own.requests.drain(..).for_each(|request| self.beside.request(request));
            self.carry_out(&mut out, &mut own);
            self.settle();
        }
    }

    /// A row of ROUTE_TABLE (`field=value`, separated by spaces), or `DEL`.
    pub(crate) fn route(&mut self, key: &str, row: &str) {
        let key = RouteRow::parse_key(key).unwrap();
        let fields = &mut row.split(' ').filter_map(|pair| pair.split_once('='));
        self.orch.route(match row {
            "DEL" => Change::del(key),
            _ => Change::set(key, RouteRow::from_fields(fields).unwrap()),
        });
        self.settle();
    }

    /// ribtide's orchagent starts again: it knows what ASIC_DB has, and the rows that come again.
    pub(crate) fn restart_ribtide(&mut self, former: std::ops::Range<u64>) {
        let mut vids = VidCounter::default();
        vids.pass(former.end).unwrap();
        let syncd = std::mem::take(&mut self.syncd);
        let view = std::mem::take(&mut self.view);
        *self = Rig { syncd, view, number: self.number, ..Rig::with(vids) };
        self.beside.found_former_ids(vec![former]);
        self.beside.found_switch(
            ribtide_swss::sai::text::read_oid("oid:0x3000000000022").unwrap(),
            ribtide_swss::sai::text::read_oid("oid:0x1000000000001").unwrap(),
        );
        for (key, fields) in &self.syncd.objects {
            self.beside.found(key, fields.iter().map(|(n, v)| (n.clone(), v.clone())).collect());
        }
        let (mut out, mut own) = (BesideOut::default(), OrchOut::default());
        self.beside.found_all(&mut out);
        self.beside.found_view(self.view.clone());
        self.carry_out(&mut out, &mut own);
        self.settle();
    }

    /// The target of a route in the chip.
    pub(crate) fn target(&self, dest: &str) -> Option<String> {
        self.syncd.routes().remove(dest)
    }
}
