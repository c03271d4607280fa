//! What orchagent writes beside requests to syncd: which neighbours to resolve, what there is, what became of routes.

use super::Error;
use super::orch_stage::Outlet;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Stop};
use ribtide_swss::orch::{Crm, Orch, OrchOut};
use ribtide_swss::row::{
    DefaultRouteRow, NeighResolveRow, ROUTE_RESPONSE_CHANNEL, RouteResponse, RouteStateRow,
    SwitchCapabilityRow,
};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::{Connection, Databases, Pipeline, PlainTable, Producer, ProducerStateTable};
use std::collections::BTreeMap;

/// Batches of responses that may wait for the publisher.
const BATCHES: usize = 64;

/// The tables that orchagent writes.
pub(super) struct RedisOutlet {
    resolve: ProducerStateTable<NeighResolveRow>,
    default_routes: PlainTable<DefaultRouteRow>,
    capability: PlainTable<SwitchCapabilityRow>,
    responses: Responses,
    counters: Connection,
    /// What the counters were last written from.
    crm: Crm,
}

impl RedisOutlet {
    /// `publisher`: what became of routes is told on a thread of its own (`-A`). `warm`: what an earlier run confirmed
    /// counts until [`Outlet::restored`].
    pub(super) fn open(
        databases: &Databases,
        publisher: bool,
        warm: bool,
        rings: &Rings,
        stop: &Stop,
    ) -> Result<RedisOutlet, Error> {
        // What an earlier run confirmed is confirmed anew, or is gone.
        let mut responses = Connection::open(databases.get(Db::ApplState), stop)?;
        let rows = responses.database().key(RouteStateRow::TABLE, "");
        let mut forget = || {
            responses.scan(&format!("{rows}*"), |connection, names| {
                names.iter().for_each(|name| connection.queue(&["UNLINK", name]));
                connection.flush()
            })
        };
        if !warm {
            forget()?;
        }
        let here = Publisher { route_states: PlainTable::open(databases, stop)?, responses };
        Ok(RedisOutlet {
            resolve: ProducerStateTable::open(databases, Pipeline::default(), stop)?,
            default_routes: PlainTable::open(databases, stop)?,
            capability: PlainTable::open(databases, stop)?,
            responses: match publisher {
                true => Responses::thread(here, rings)?,
                false => Responses::Here(Box::new(here)),
            },
            counters: Connection::open(databases.get(Db::Counters), stop)?,
            crm: Crm::default(),
        })
    }
}

impl Outlet for RedisOutlet {
    fn carry_out(&mut self, _: &mut Orch, out: &mut OrchOut) -> Result<bool, Error> {
        write(&mut self.resolve, &mut out.resolve)?;
        write(&mut self.default_routes, &mut out.default_routes)?;
        write(&mut self.capability, &mut out.capability)?;
        // SONiC tells successes only.
        out.verdicts.clear();
        if out.responses.is_empty() {
            return Ok(false);
        }
        self.responses.publish(std::mem::take(&mut out.responses))?;
        Ok(false)
    }

    fn restored(&mut self, out: &mut OrchOut) -> Result<(), Error> {
        // Of each default route what it came to; on the way there it dropped, but not in the chip.
        let last: BTreeMap<_, _> = out.default_routes.drain(..).map(|change| (change.key, change)).collect();
        out.default_routes.extend(last.into_values());
        self.responses.reconcile(std::mem::take(&mut out.responses))
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

/// Who tells what became of routes.
enum Responses {
    Here(Box<Publisher>),
    Thread(ring::Sender<Told>, crossbeam_channel::Receiver<Error>),
}

/// What the publisher is told.
struct Told {
    responses: Vec<RouteResponse>,
    /// They are of all routes: rows of others go.
    all: bool,
}

impl Responses {
    fn thread(mut publisher: Publisher, rings: &Rings) -> Result<Responses, Error> {
        let (tx, waiting) = rings.bounded::<Told>("route states", BATCHES);
        let (failing, failed) = crossbeam_channel::bounded(1);
        let body = move || {
            while let Ok(batch) = waiting.recv() {
                if let Err(e) = publisher.publish(batch) {
                    let _ = failing.send(e);
                    return;
                }
            }
        };
        thread::spawn("publisher", body).map_err(|e| Error::new(format!("no thread to publish on: {e}")))?;
        Ok(Responses::Thread(tx, failed))
    }

    fn publish(&mut self, responses: Vec<RouteResponse>) -> Result<(), Error> {
        self.tell(Told { responses, all: false })
    }

    /// After a warm start: these are all that there are.
    fn reconcile(&mut self, responses: Vec<RouteResponse>) -> Result<(), Error> {
        self.tell(Told { responses, all: true })
    }

    fn tell(&mut self, told: Told) -> Result<(), Error> {
        match self {
            Responses::Here(publisher) => publisher.publish(told),
            Responses::Thread(publisher, failed) => match publisher.send(told) {
                Ok(()) => Ok(()),
                Err(closed) => Err(failed.try_recv().unwrap_or_else(|_| Error::new(closed.to_string()))),
            },
        }
    }
}

/// Publishes responses, and keeps APPL_STATE_DB.
struct Publisher {
    route_states: PlainTable<RouteStateRow>,
    responses: Connection,
}

impl Publisher {
    fn publish(&mut self, Told { responses, all }: Told) -> Result<(), Error> {
        let mut there = BTreeMap::new();
        if all {
            self.route_states.rows(|key, row| drop(there.insert(key, row)))?;
        }
        // The row first: who hears the message may look for it.
        let mut rows = Vec::with_capacity(responses.len());
        for response in responses {
            self.responses.queue(&["PUBLISH", ROUTE_RESPONSE_CHANNEL, &response.message()]);
            // As in SONiC: the row of a route that was confirmed, no row for one that went, failures leave it as it is.
            if response.is_success() {
                let row = response.protocol.map(|protocol| RouteStateRow { protocol: Some(protocol) });
                if all && row.is_some() && there.remove(&response.key) == row {
                    continue;
                }
                rows.push(Change { key: response.key, row, reshaped: false });
            }
        }
        rows.extend(there.into_keys().map(Change::del));
        write(&mut self.route_states, &mut rows)?;
        Ok(self.responses.flush()?)
    }
}

fn write<R: Row>(table: &mut impl Producer<R>, changes: &mut Vec<Change<R>>) -> Result<(), Error> {
    if !changes.is_empty() {
        table.write(changes)?;
        table.flush()?;
    }
    Ok(())
}
