//! orchagent's outputs beside requests to syncd: NEIGH_RESOLVE_TABLE, link states in PORT_TABLE of APPL_DB and STATE_DB,
//! STATE_DB's rows of default routes and capabilities, COUNTERS_DB's `CRM:STATS`, and route responses.

use super::appl_transport::Lag;
use super::config_db::Switch;
use super::config_watch::ConfigWatch;
use super::direct_responses::ResponseSender;
use super::orch_stage::{OrchOutputs, Subscriber};
use super::response_publisher::ResponsePublisher;
use super::settings::Settings;
use super::unhandled_tables::{self, Found};
use super::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_runtime::date::date;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::Rings;
use ribtide_swss::orch::{Crm, Orch, OrchOut, PortReport};
use ribtide_swss::row::{Name, NeighResolveRow, PortRow, RouteKey, RouteStateRow};
use ribtide_swss::sai::OperStatus;
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::{Bookkeeping, Fields, Pipeline, Producer, ProducerStateTable};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The tables that orchagent writes.
pub(super) struct RedisOutputs {
    resolve: ProducerStateTable<NeighResolveRow>,
    /// STATE_DB, with default routes, capabilities, and speeds of ports.
    state: Bookkeeping,
    /// PORT_TABLE of APPL_DB: link states.
    ports: PortTable,
    counters: Bookkeeping,
    publisher: ResponsePublisher,
    /// Whether responses are published.
    publishes: bool,
    /// The direct responses, while FIB suppression is on.
    response_sender: Option<ResponseSender>,
    suppression: FibSuppression,
    /// What the counters were last written from.
    crm: Crm,
    /// Not beside SONiC's orchagent, which handles all tables.
    unhandled: Option<Found>,
    is_beside: bool,
}

/// CRM's fields of objects that SONiC's orchagent makes beside ribtide's.
const OF_NEIGHBORS: [&str; 4] = [
    "crm_stats_ipv4_nexthop_",
    "crm_stats_ipv6_nexthop_",
    "crm_stats_ipv4_neighbor_",
    "crm_stats_ipv6_neighbor_",
];

impl RedisOutputs {
    /// `suppression`: the setting of FIB suppression, and whether it is on `now`. `warm`: responses
    /// of an earlier run count until [`OrchOutputs::restored`]. `is_beside`: SONiC's orchagent writes
    /// CRM, too.
    pub(super) fn open(
        (suppression, now): (FibSuppression, bool),
        warm: bool,
        is_beside: bool,
        lag: Lag,
        daemon: &Daemon,
    ) -> Result<RedisOutputs, Error> {
        Ok(RedisOutputs {
            resolve: ProducerStateTable::open(&daemon.databases, Pipeline::default(), &daemon.stop)?,
            state: daemon.bookkeeping.clone(),
            ports: PortTable(Bookkeeping::start(Db::Appl, &daemon.databases, &daemon.stop)?, BTreeMap::new()),
            counters: Bookkeeping::start(Db::Counters, &daemon.databases, &daemon.stop)?,
            // An earlier response is confirmed again, or its route is gone.
            publisher: ResponsePublisher::start(warm, lag, daemon)?,
            publishes: now,
            response_sender: now.then(|| ResponseSender::start(&daemon.rings)).transpose()?,
            suppression,
            crm: Crm::default(),
            unhandled: (!is_beside).then(|| unhandled_tables::watch(daemon)).transpose()?,
            is_beside,
        })
    }
}

/// Link states in PORT_TABLE of APPL_DB, as SONiC's PortsOrch writes them: into the row itself, for
/// readers, without a message to a consumer. With the fields of each port that were written last.
struct PortTable(Bookkeeping, BTreeMap<Name, Fields>);

impl PortTable {
    fn write(&mut self, report: &PortReport) {
        let PortTable(table, written) = self;
        let fields = written.entry(report.name.clone()).or_default();
        fields.insert("oper_status".into(), report.oper_status().into());
        if let Some(count) = report.flap_count {
            fields.insert("flap_count".into(), count.to_string());
            let since = match report.status {
                OperStatus::Up => Some("last_up_time"),
                OperStatus::Down => Some("last_down_time"),
                _ => None,
            };
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            fields.extend(since.map(|field| (field.into(), time_text(now))));
        }
        table.set_fields(PortRow::TABLE, &report.name, fields.clone());
    }
}

/// A time in seconds since 1970 as `Tue Nov 24 00:42:37 2026`, in UTC: that of SONiC's PortsOrch.
fn time_text(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let weekday = DAYS[(days % 7) as usize];
    let month = MONTHS.get(month as usize - 1).copied().unwrap_or_default();
    let (hours, minutes) = (rest / 3600, rest / 60 % 60);
    format!("{weekday} {month} {day:02} {hours:02}:{minutes:02}:{:02} {year}", rest % 60)
}

/// The setting of FIB suppression. fpmsyncd and orchagent both watch CONFIG_DB; fpmsyncd counts no response before
/// orchagent has sent which routes are in the chip, so the order in which the two see a change does not matter.
pub(super) struct FibSuppression {
    /// Whether the command line forces it (`-F`).
    pub(super) always: bool,
    /// The setting in CONFIG_DB.
    pub(super) config: ConfigWatch,
    /// The active value, for other threads.
    pub(super) is: Arc<AtomicBool>,
    pub(super) settings: Arc<Mutex<Settings>>,
    pub(super) rings: Rings,
}

impl RedisOutputs {
    /// Sends responses to fpmsyncd before their publication.
    fn answer(&mut self, out: &OrchOut) {
        if let Some(response_sender) = &mut self.response_sender {
            response_sender.answer(&out.refusals, &out.responses, &out.found);
        }
    }

    /// Begins or ends responses when the setting changed.
    fn apply_config(&mut self, orch: &mut Orch) -> Result<(), Error> {
        let FibSuppression { always, config, is, settings, rings } = &self.suppression;
        // The check that follows a wake-up, in any case.
        let on = config.is_on() || *always;
        if orch.restoring() {
            return Ok(());
        }
        if on != orch.answers() {
            tracing::info!(target: target::ORCHAGENT, "FIB suppression is {}", if on { "on" } else { "off" });
            orch.answer(on);
            is.store(on, Relaxed);
            self.response_sender = on.then(|| ResponseSender::start(rings)).transpose()?;
            let value = if on { "enabled" } else { "disabled" };
            let mut settings = settings.lock().unwrap_or_else(PoisonError::into_inner);
            settings.note(&Switch::SuppressFibPending.name(), value, value, "");
            settings.write();
        }
        if !on {
            self.publishes = false;
        } else if !self.publishes && self.publisher.is_idle() {
            // Earlier publications are older.
            self.publishes = true;
            let mut keys = Vec::new();
            orch.carried_out(|vrf, prefix| keys.push(RouteKey::new(vrf.cloned(), prefix)));
            self.publisher.resume(keys)?;
        }
        Ok(())
    }
}

impl OrchOutputs for RedisOutputs {
    fn carry_out(&mut self, _: &mut Orch, out: &mut OrchOut) -> Result<bool, Error> {
        write(&mut self.resolve, &mut out.resolve)?;
        out.default_routes.drain(..).for_each(|change| self.state.change(&change));
        out.capability.drain(..).for_each(|change| self.state.change(&change));
        out.port_reports.drain(..).for_each(|report| self.ports.write(&report));
        for (name, speed) in out.port_speeds.drain(..) {
            let speed = speed.map_or_else(|| "N/A".into(), |speed| speed.to_string());
            let fields = [("speed", speed), ("fec", "N/A".into())];
            let fields = fields.into_iter().map(|(field, value)| (field.into(), value)).collect();
            self.state.set_fields(PortRow::TABLE, &name, fields);
        }
        // Only the client of batches needs these; a direct subscriber gets refusals.
        out.status_changes.clear();
        if !out.responses.is_empty() || !out.found.is_empty() || !out.refusals.is_empty() {
            self.answer(out);
            // SONiC publishes successes only.
            out.refusals.clear();
            if self.publishes {
                // Found routes precede responses to requests.
                self.publisher.publish(&out.found)?;
                self.publisher.publish(&out.responses)?;
            }
            out.found.clear();
            out.responses.clear();
        }
        Ok(false)
    }

    fn has_room(&self) -> bool {
        self.publisher.has_room()
    }

    fn publishes(&self) -> bool {
        self.publishes
    }

    fn publish_again(&mut self, responses: &[Change<RouteStateRow>]) -> Result<(), Error> {
        self.publisher.publish(responses)
    }

    fn new_subscriber(&mut self, orch: &Orch) -> Option<Subscriber> {
        self.response_sender.as_mut().and_then(|response_sender| response_sender.new_subscriber(orch))
    }

    fn begin_subscription(&mut self, orch: &mut Orch) {
        if let Some(response_sender) = &mut self.response_sender {
            response_sender.begin_subscription(orch);
        }
    }

    fn after_round(&mut self, orch: &mut Orch, quiet: bool, waiting: bool) -> Result<(), Error> {
        if let Some(response_sender) = &mut self.response_sender {
            response_sender.look(waiting || !quiet);
            // An fpmsyncd that is not connected may read publications.
            self.publisher.awaited(!response_sender.is_connected());
        }
        self.apply_config(orch)
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        if let Some(response_sender) = &self.response_sender {
            response_sender.watch(select);
        }
        self.suppression.config.watch(select);
    }

    fn due(&self) -> Option<Instant> {
        self.response_sender.as_ref().and_then(ResponseSender::due)
    }

    fn unsent(&self) -> usize {
        self.response_sender.as_ref().map_or(0, ResponseSender::unsent)
    }

    fn idle(&self) -> bool {
        self.publisher.is_idle()
    }

    fn restored(&mut self, out: &mut OrchOut) -> Result<(), Error> {
        // The last state of each default route; intermediate drops are not in the chip.
        let last: BTreeMap<_, _> = out.default_routes.drain(..).map(|change| (change.key, change)).collect();
        out.default_routes.extend(last.into_values());
        self.answer(out);
        let mut responses = std::mem::take(&mut out.found);
        responses.append(&mut out.responses);
        self.publisher.reconcile(responses)
    }

    fn tick(&mut self, orch: &Orch) -> Result<(), Error> {
        if let Some(unhandled) = &self.unhandled {
            unhandled.look_at_interfaces(orch);
        }
        // SONiC's orchagent writes at each poll what it counts, and that is without ribtide's routes.
        if *orch.crm() != self.crm || self.is_beside {
            self.crm = orch.crm().clone();
            let mut fields = Fields::new();
            let is_theirs = |field: &str| OF_NEIGHBORS.iter().any(|kind| field.starts_with(kind));
            self.crm.fields(&mut |field, value| {
                if !(self.is_beside && is_theirs(field)) {
                    fields.insert(field.into(), value.into());
                }
            });
            self.counters.set_fields("CRM", "STATS", fields);
        }
        Ok(())
    }
}

fn write<R: Row>(table: &mut impl Producer<R>, changes: &mut Vec<Change<R>>) -> Result<(), Error> {
    if !changes.is_empty() {
        table.write(changes)?;
        table.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        // `LC_ALL=C date -u -d @SECONDS '+%a %b %d %H:%M:%S %Y'` is the judge.
        let texts = [0, 951_782_400, 1_795_480_957, 4_107_542_399].map(time_text);
        let dates = [
            "Thu Jan 01 00:00:00 1970",
            "Tue Feb 29 00:00:00 2000",
            "Tue Nov 24 00:42:37 2026",
            "Sun Feb 28 23:59:59 2100",
        ];
        assert_eq!(texts, dates);
    }
}
