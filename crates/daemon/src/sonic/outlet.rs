//! What orchagent writes beside requests to syncd: which neighbours to resolve, what there is, what became of routes.

use super::Error;
use super::answers::Answering;
use super::north::Lag;
use super::orch_stage::Outlet;
use super::publisher::Publisher;
use crossbeam_channel::Select;
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::Stop;
use ribtide_swss::orch::{Crm, Orch, OrchOut};
use ribtide_swss::row::{DefaultRouteRow, NeighResolveRow, SwitchCapabilityRow};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::zmq::Process;
use ribtide_tables::{Connection, Databases, Pipeline, PlainTable, Producer, ProducerStateTable};
use std::collections::BTreeMap;

/// The tables that orchagent writes.
pub(super) struct RedisOutlet {
    resolve: ProducerStateTable<NeighResolveRow>,
    default_routes: PlainTable<DefaultRouteRow>,
    capability: PlainTable<SwitchCapabilityRow>,
    publisher: Publisher,
    /// With FIB suppression.
    answering: Option<Answering>,
    counters: Connection,
    /// What the counters were last written from.
    crm: Crm,
}

impl RedisOutlet {
    /// `answers`: fpmsyncd waits to hear what became of routes. `warm`: what an earlier run confirmed counts until
    /// [`Outlet::restored`].
    pub(super) fn open(
        databases: &Databases,
        answers: bool,
        warm: bool,
        lag: Lag,
        rings: &Rings,
        stop: &Stop,
    ) -> Result<RedisOutlet, Error> {
        Ok(RedisOutlet {
            resolve: ProducerStateTable::open(databases, Pipeline::default(), stop)?,
            default_routes: PlainTable::open(databases, stop)?,
            capability: PlainTable::open(databases, stop)?,
            // What an earlier run confirmed is confirmed anew, or is gone.
            publisher: Publisher::start(databases, warm, lag, rings, stop)?,
            answering: answers.then(|| Answering::start(rings, stop)).transpose()?,
            counters: Connection::open(databases.get(Db::Counters), stop)?,
            crm: Crm::default(),
        })
    }
}

impl RedisOutlet {
    /// Tells fpmsyncd, before anybody else is told.
    fn answer(&mut self, out: &OrchOut) {
        if let Some(answering) = &mut self.answering {
            answering.answer(&out.responses, &out.found);
        }
    }
}

impl Outlet for RedisOutlet {
    fn carry_out(&mut self, _: &mut Orch, out: &mut OrchOut) -> Result<bool, Error> {
        write(&mut self.resolve, &mut out.resolve)?;
        write(&mut self.default_routes, &mut out.default_routes)?;
        write(&mut self.capability, &mut out.capability)?;
        // SONiC tells successes only.
        out.verdicts.clear();
        if !out.responses.is_empty() || !out.found.is_empty() {
            self.answer(out);
            // What was found is older than what was asked for.
            self.publisher.publish(out.found.drain(..).chain(out.responses.drain(..)))?;
        }
        Ok(false)
    }

    fn is_asked(&mut self, orch: &Orch) -> Option<Option<Process>> {
        self.answering.as_mut().and_then(|answering| answering.is_asked(orch))
    }

    fn begin(&mut self, orch: &mut Orch) {
        if let Some(answering) = &mut self.answering {
            answering.begin(orch);
        }
    }

    fn after_round(&mut self, _: &mut Orch, _: bool) -> Result<(), Error> {
        if let Some(answering) = &mut self.answering {
            answering.look();
            // Who is not connected may listen to what is published.
            self.publisher.awaited(!answering.is_connected());
        }
        Ok(())
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        if let Some(answering) = &self.answering {
            answering.watch(select);
        }
    }

    fn idle(&self) -> bool {
        self.publisher.is_idle()
    }

    fn restored(&mut self, out: &mut OrchOut) -> Result<(), Error> {
        // Of each default route what it came to; on the way there it dropped, but not in the chip.
        let last: BTreeMap<_, _> = out.default_routes.drain(..).map(|change| (change.key, change)).collect();
        out.default_routes.extend(last.into_values());
        self.answer(out);
        let mut responses = std::mem::take(&mut out.found);
        responses.append(&mut out.responses);
        self.publisher.reconcile(responses)
    }

    fn tick(&mut self, orch: &Orch) -> Result<(), Error> {
        if *orch.crm() == self.crm {
            return Ok(());
        }
        self.crm = orch.crm().clone();
        let mut args = vec!["HSET".to_owned(), "CRM:STATS".to_owned()];
        self.crm.fields(&mut |field, value| args.extend([field.to_owned(), value.to_owned()]));
        self.counters.queue(&args.iter().map(String::as_str).collect::<Vec<_>>());
        Ok(self.counters.flush()?)
    }
}

fn write<R: Row>(table: &mut impl Producer<R>, changes: &mut Vec<Change<R>>) -> Result<(), Error> {
    if !changes.is_empty() {
        table.write(changes)?;
        table.flush()?;
    }
    Ok(())
}
