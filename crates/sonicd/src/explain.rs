//! `explain` of SONiC's daemons: the state of a route in each daemon, and in the databases between
//! them.
//!
//! A query is a message on a channel of the server of STATE_DB, like SONiC's own query to orchagent
//! (`RESTARTCHECK`). So it reaches daemons in other containers. The stage of the daemon replies
//! between two batches, on the channel that the query names. The number of subscribers shows
//! whether the daemon runs.

use super::events::log;
use super::{Daemon, Error, route_stages, settings};
use ribtide_model::{Explain, ExplainStage, StageState};
use ribtide_prefix::AnyPrefix;
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::ring::{self, Closed};
use ribtide_runtime::thread::{self, Stop};
use ribtide_settings::DEFAULT_VRF;
use ribtide_swss::fpmsyncd::Fpmsyncd;
use ribtide_swss::fpmsyncd::explain::Waiting;
use ribtide_swss::orch::Orch;
use ribtide_swss::row::{Name, RouteKey, RouteRow};
use ribtide_swss::sai::{ObjectId, ObjectType, Oid, RouteEntry, SWITCH, text};
use ribtide_swss::syncd::Syncd;
use ribtide_swss::{Db, Row};
use ribtide_tables::{Connection, Databases, PubSubEvent, listen};
use ribtide_vswitch::VirtualSwitch;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Queries in the queue of a daemon at most, and replies; further ones are dropped.
const WAITING: usize = 16;
/// Timeout of a reply, longer than that of a call to a stage.
const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(15);

/// A query to a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ExplainQuery {
    /// The channel for the reply.
    answer: String,
    /// The VRF; `None`: the default one.
    vrf: Option<String>,
    /// The destination.
    prefix: String,
    /// The VID of the virtual router.
    router: Option<u64>,
}

/// The reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainReply {
    stage: ExplainStage,
    /// orchagent: the virtual router of the VRF.
    router: Option<u64>,
    /// syncd: the stall of the chip.
    stalled: Option<Stalled>,
}

/// The remaining seconds of a stall, if known.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Stalled {
    left: Option<f64>,
}

impl From<ExplainStage> for ExplainReply {
    fn from(stage: ExplainStage) -> ExplainReply {
        ExplainReply { stage, router: None, stalled: None }
    }
}

fn stage(name: &str, state: StageState, messages: impl Into<String>) -> ExplainStage {
    ExplainStage::new(name, state, vec![messages.into()])
}

/// The query channel of a daemon.
fn channel_of(daemon: &str) -> String {
    format!("RIBTIDE_EXPLAIN_{daemon}")
}

/// Starts to reply to queries to `daemon`; `answer` runs in its stage.
pub(super) fn answer<S: 'static>(
    of: &Daemon,
    handle: StageHandle<S>,
    answer: fn(&mut S, Option<&str>, AnyPrefix, Option<Oid>) -> ExplainReply,
) -> Result<(), Error> {
    let daemon = of.name;
    let state = of.databases.get(Db::State);
    let (query_tx, queries) = ring::unlisted::<ExplainQuery>("queries of explain", WAITING);
    let (mut answers, stop) = (of.connect(Db::State)?, of.stop.clone());
    let body = move || -> Result<Infallible, Closed> {
        loop {
            let ExplainQuery { answer: to, vrf, prefix, router } = queries.recv()?;
            let said = match prefix.parse() {
                Ok(prefix) => handle
                    .call(move |stage: &mut S| answer(stage, vrf.as_deref(), prefix, router.map(Oid)))
                    .unwrap_or_else(|e| stage(daemon, StageState::Off, e.to_string()).into()),
                Err(_) => stage(daemon, StageState::Off, format!("\"{prefix}\" is no prefix")).into(),
            };
            let text = serde_json::to_string(&(daemon, said)).unwrap_or_default();
            // The client sends its query again.
            if let Err(e) = answers.query(&["PUBLISH", &to, &text]) {
                stop.running()?;
                log!(daemon, error, error = %e, "a query about a route is not answered");
            }
            answers.shrink_to_fit();
        }
    };
    thread::spawn("explain", body).map_err(Error::no_thread("to answer queries"))?;
    Ok(listen(state, vec![channel_of(daemon)], &of.stop, move |heard| {
        if let PubSubEvent::Message { payload, .. } = heard
            && let Ok(query) = serde_json::from_str(payload)
        {
            // A full queue drops the query: the client times out, and sends it again.
            let _ = query_tx.try_send(query);
        }
    })?)
}

/// The state in fpmsyncd.
pub(super) fn fpmsyncd(machine: &Fpmsyncd, vrf: Option<&str>, prefix: AnyPrefix) -> ExplainReply {
    let Some(state) = machine.explain(vrf, prefix) else {
        let messages = "no client announces it, or it cannot be carried, and the log has the reason";
        return stage("fpmsyncd", StageState::Absent, messages).into();
    };
    let mut messages: Vec<String> = state.row.iter().map(route_stages::row_text).collect();
    messages.extend(state.waiting.map(|waiting| waiting.to_string()));
    if state.confirmed {
        messages.push("orchagent confirmed it".into());
    }
    if messages.is_empty() {
        messages.push("its interface is none of the switch's, so it has no row".into());
    }
    let how = match state.waiting {
        Some(Waiting::Object(_) | Waiting::Interface(_) | Waiting::Turn) => StageState::Waiting,
        // orchagent has the details.
        Some(Waiting::Answer { .. }) | None => StageState::Passed,
    };
    ExplainStage::new("fpmsyncd", how, messages).into()
}

/// The state in orchagent.
pub(super) fn orchagent(machine: &Orch, vrf: Option<&str>, prefix: AnyPrefix) -> ExplainReply {
    let stage = route_stages::orchagent(machine.explain(vrf, prefix).as_ref());
    ExplainReply { router: machine.virtual_router(vrf).map(|oid| oid.0), ..stage.into() }
}

/// The state in the chip, from syncd.
pub(super) fn syncd(
    machine: &mut Syncd<VirtualSwitch>,
    prefix: AnyPrefix,
    router: Option<Oid>,
) -> ExplainReply {
    let router = router.and_then(|vid| machine.rid(vid));
    let (chip, now) = (machine.chip_mut(), Instant::now());
    let left = |until: Instant| until.saturating_duration_since(now).as_secs_f64();
    let stalled = chip.stalled(now).map(|until| Stalled { left: until.map(left) });
    let stage = route_stages::chip(router.and_then(|router| chip.route_at(router, prefix)).as_ref());
    ExplainReply { stalled, ..stage.into() }
}

/// The state of a route in the daemons on the databases of `config`, and in the databases between
/// them, in the order of the path. With several ASICs, of each, unless `NAMESPACE_ID` selects one.
/// It follows that of a `router`, which also knows the prefix of an address.
///
/// # Errors
/// A sentence when `query` is no prefix, or the databases cannot be read.
pub fn of_daemons(
    config: Option<&Path>,
    vrf: Option<&str>,
    query: &str,
    router: Option<Explain>,
) -> Result<Explain, Error> {
    let known = router.as_ref().and_then(|router| router.prefix.as_deref());
    let prefix: AnyPrefix = known.unwrap_or(query).parse().map_err(|_| {
        let messages =
            "is no prefix such as 10.0.0.0/8; what an address has only a router that knows it can say";
        Error::new(format!("\"{query}\" {messages}"))
    })?;
    let asics = stages(config, vrf, prefix)?;
    let (before, concluded) = router.map(|router| (router.stages, router.conclusion)).unzip();
    let conclusion =
        conclusion_of(&asics).or(concluded).unwrap_or_else(|| format!("nothing is known of {query}"));
    let daemons = asics.into_iter().flat_map(|(_, stages)| stages);
    let stages = before.into_iter().flatten().chain(daemons).collect();
    let vrf = vrf.unwrap_or(DEFAULT_VRF).into();
    Ok(Explain { query: query.into(), vrf, prefix: Some(prefix.to_string()), stages, conclusion })
}

/// The stages of an ASIC, with its name if there are several.
type AsicStages = (Option<String>, Vec<ExplainStage>);

fn stages(config: Option<&Path>, vrf: Option<&str>, prefix: AnyPrefix) -> Result<Vec<AsicStages>, Error> {
    let mut all = Vec::new();
    for (asic, databases) in Databases::of_asics(config)? {
        let mut stages = of_asic(&databases, vrf, prefix)?;
        if let Some(asic) = &asic {
            stages.iter_mut().for_each(|stage| stage.stage = format!("{asic} {}", stage.stage));
        }
        all.push((asic, stages));
    }
    Ok(all)
}

fn of_asic(databases: &Databases, vrf: Option<&str>, prefix: AnyPrefix) -> Result<Vec<ExplainStage>, Error> {
    let mut daemons = Daemons::open(databases, vrf, prefix)?;
    let fpmsyncd = daemons.query("fpmsyncd", None)?;
    let mut appl_db = appl_db(databases, vrf, prefix)?;
    let orchagent = daemons.query("orchagent", None)?;
    let mut asic_db = asic_db(databases, orchagent.router, prefix)?;
    for (stage, daemon, name) in [(&mut appl_db, "fpmsyncd", "appl-db"), (&mut asic_db, "syncd", "asic-db")] {
        let settings = settings::of(daemon, &mut daemons.state)?;
        let off = settings.iter().any(|setting| setting.name == name && setting.active == "off");
        if off && stage.state == StageState::Absent {
            (stage.state, stage.messages) = (StageState::Off, vec![format!("{daemon} does not keep it")]);
        }
    }
    let chip = daemons.query("syncd", orchagent.router)?;
    let mut stages = vec![fpmsyncd.stage, appl_db, orchagent.stage, chip.stage];
    if let Some(Stalled { left }) = chip.stalled {
        route_stages::stalled(&mut stages, left.and_then(|left| Duration::try_from_secs_f64(left).ok()));
    }
    stages.insert(3, asic_db);
    Ok(stages)
}

/// The client and its reply channel.
struct Daemons {
    state: Connection,
    query: ExplainQuery,
    /// Replies with the name of the daemon.
    answers: ring::Receiver<(String, ExplainReply)>,
    stop: Stop,
}

impl Daemons {
    fn open(databases: &Databases, vrf: Option<&str>, prefix: AnyPrefix) -> Result<Daemons, Error> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let answer = format!("RIBTIDE_EXPLAIN_ANSWER_{}_{}", std::process::id(), since.as_nanos());
        let (answer_tx, answers) = ring::unlisted("replies of explain", WAITING);
        let stop = Stop::default();
        listen(databases.get(Db::State), vec![answer.clone()], &stop, move |heard| {
            if let PubSubEvent::Message { payload, .. } = heard
                && let Ok(answer) = serde_json::from_str(payload)
            {
                // One reply is awaited at a time.
                let _ = answer_tx.try_send(answer);
            }
        })?;
        let state = Connection::open(databases.get(Db::State), &stop)?;
        let query =
            ExplainQuery { answer, vrf: vrf.map(str::to_owned), prefix: prefix.to_string(), router: None };
        Ok(Daemons { state, query, answers, stop })
    }

    fn query(&mut self, daemon: &str, router: Option<u64>) -> Result<ExplainReply, Error> {
        let query = serde_json::to_string(&ExplainQuery { router, ..self.query.clone() });
        let query = query.unwrap_or_default();
        let heard = self.state.query(&["PUBLISH", &channel_of(daemon), &query])?.as_integer();
        if heard.is_none_or(|heard| heard == 0) {
            let messages = "does not run on these databases, or is not ribtide's";
            return Ok(stage(daemon, StageState::Off, messages).into());
        }
        let until = Instant::now() + EXPLAIN_TIMEOUT;
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(Some((of, answer))) = self.answers.recv_timeout(left()) {
            // A reply after its timeout may arrive later.
            if of == daemon {
                return Ok(answer);
            }
        }
        Ok(stage(daemon, StageState::Off, "it runs, and does not answer").into())
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// The row of a route in APPL_DB, and whether orchagent has not consumed it.
fn appl_db(databases: &Databases, vrf: Option<&str>, prefix: AnyPrefix) -> Result<ExplainStage, Error> {
    let mut appl = Connection::open(databases.get(Db::Appl), &Stop::default())?;
    let mut key = String::new();
    RouteRow::key_text(&RouteKey::new(vrf.map(Name::from), prefix), &mut key);
    let set = format!("{}_KEY_SET", RouteRow::TABLE);
    let waits = appl.query(&["SISMEMBER", &set, &key])?.as_integer() == Some(1);
    let keys = appl.query(&["SCARD", &set])?.as_integer().unwrap_or(0);
    let row = appl.database().key(RouteRow::TABLE, &key);
    let fields = appl.query(&["HGETALL", &row])?.into_pairs();
    let fields: Vec<String> = fields.into_iter().map(|(field, value)| format!("{field}={value}")).collect();
    let row = (!fields.is_empty()).then(|| format!("{}: {}", RouteRow::TABLE, fields.join(" ")));
    let mut messages: Vec<String> = row.into_iter().collect();
    let state = match (waits, messages.is_empty()) {
        (true, _) => {
            messages.push(format!("its change is one of {keys} that orchagent has not taken ({set})"));
            StageState::Waiting
        }
        (false, false) => StageState::Passed,
        (false, true) => {
            messages.push(format!("{} has no such row", RouteRow::TABLE));
            messages.extend(vnet_row(&mut appl, &key)?);
            StageState::Absent
        }
    };
    Ok(ExplainStage::new("APPL_DB", state, messages))
}

/// That a table of VNET routes has this key, taken or not: its rows are not programmed.
fn vnet_row(appl: &mut Connection, key: &str) -> Result<Option<String>, Error> {
    for table in ["VNET_ROUTE_TABLE", "VNET_ROUTE_TUNNEL_TABLE"] {
        let row = appl.database().key(table, key);
        let there = appl.query(&["EXISTS", &row, &format!("_{row}")])?.as_integer().unwrap_or(0) > 0;
        if there {
            return Ok(Some(format!("{row} is a route of a VNET, and ribtide's orchagent programs none")));
        }
    }
    Ok(None)
}

/// The entry of a route in ASIC_DB, in this virtual router.
fn asic_db(databases: &Databases, router: Option<u64>, prefix: AnyPrefix) -> Result<ExplainStage, Error> {
    let Some(router) = router else {
        let messages = "orchagent does not say which virtual router it would be in";
        return Ok(stage("ASIC_DB", StageState::Absent, messages));
    };
    let mut asic = Connection::open(databases.get(Db::Asic), &Stop::default())?;
    let mut key = asic.database().key("ASIC_STATE", "");
    let entry = RouteEntry { switch: SWITCH, vr: Oid(router), dest: prefix };
    text::write_row_key(ObjectType::RouteEntry, &ObjectId::Route(entry), &mut key);
    let fields = asic.query(&["HGETALL", &key])?.into_pairs();
    let fields: Vec<String> = fields.into_iter().map(|(field, value)| format!("{field}={value}")).collect();
    Ok(match fields.is_empty() {
        true => stage("ASIC_DB", StageState::Absent, "no such entry"),
        false => stage("ASIC_DB", StageState::Passed, fields.join(" ")),
    })
}

/// Where the route is on each ASIC; `None` if no daemon knows it. One sentence covers the ASICs that
/// have it all the way through; each other one has its own.
fn conclusion_of(asics: &[AsicStages]) -> Option<String> {
    let all: Vec<Option<String>> = asics.iter().map(|(_, stages)| conclusion(stages)).collect();
    if let [one] = &all[..] {
        return one.clone();
    }
    if all.iter().all(Option::is_none) {
        return None;
    }
    let name = |(asic, _): &AsicStages| asic.clone().unwrap_or_default();
    let passed = |stage: &ExplainStage| stage.state == StageState::Passed;
    let is_through = |(_, stages): &&AsicStages| {
        let skipped = |stage: &ExplainStage| stage.state == StageState::Off;
        stages.last().is_some_and(passed) && stages.iter().all(|stage| passed(stage) || skipped(stage))
    };
    let through: Vec<String> = asics.iter().filter(is_through).map(name).collect();
    let mut sentences: Vec<String> = Vec::new();
    for (asic, conclusion) in asics.iter().zip(all).filter(|(asic, _)| !is_through(asic)) {
        let conclusion = conclusion.unwrap_or_else(|| "no daemon has the route".into());
        sentences.push(format!("{}: {conclusion}", name(asic)));
    }
    if !through.is_empty() {
        sentences.push(format!("{}: the route is all the way through", through.join(", ")));
    }
    Some(sentences.join("; "))
}

/// Where the route is, as a sentence; `None` if no daemon knows it.
fn conclusion(stages: &[ExplainStage]) -> Option<String> {
    let messages = |stage: &ExplainStage| stage.messages.last().cloned().unwrap_or_default();
    let known = |stage: &&ExplainStage| !matches!(stage.state, StageState::Absent | StageState::Off);
    let last = stages.iter().rev().find(known)?;
    if let Some(stuck) = stages.iter().rev().find(|stage| stage.state == StageState::Stopped) {
        return Some(format!("the route ends at {}: {}", stuck.stage, messages(stuck)));
    }
    // Earlier stages wait for it.
    if let Some(waiting) = stages.iter().rev().find(|stage| stage.state == StageState::Waiting) {
        return Some(format!("the route waits at {}: {}", waiting.stage, messages(waiting)));
    }
    // Stages before and after this one have it.
    let mut since_first = stages.iter().skip_while(|stage| !known(stage));
    if let Some(lost) = since_first.find(|stage| stage.state == StageState::Absent)
        && stages.last().is_some_and(|end| end.stage == last.stage)
    {
        return Some(format!(
            "the route is in {}, and not in {}: {}",
            last.stage,
            lost.stage,
            messages(lost)
        ));
    }
    Some(match stages.last() {
        Some(end) if end.stage == last.stage => {
            format!("the route is all the way through: {} has it", end.stage)
        }
        Some(end) => format!("the route is in {}, and not in {}: {}", last.stage, end.stage, messages(end)),
        None => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conclusion_names_a_missing_stage_and_its_asic() {
        let (passed, absent, off) = (StageState::Passed, StageState::Absent, StageState::Off);
        let stages = |asic: &str, states: [StageState; 3]| {
            let names = ["APPL_DB", "orchagent", "virtual switch"];
            let of = |(name, state)| stage(&format!("{asic}{name}"), state, "no such row");
            names.into_iter().zip(states).map(of).collect::<Vec<_>>()
        };
        let one = |states| conclusion_of(&[(None, stages("", states))]);
        let through = "the route is all the way through: virtual switch has it";
        for states in [[passed; 3], [off, passed, passed], [absent, absent, passed]] {
            assert_eq!(one(states).as_deref(), Some(through));
        }
        assert_eq!(one([absent; 3]), None);
        let lost = one([passed, absent, passed]).unwrap();
        assert_eq!(lost, "the route is in virtual switch, and not in orchagent: no such row");
        let two = |states: [[StageState; 3]; 2]| {
            let asics = [("asic0", states[0]), ("asic1", states[1])];
            let of = |(name, states): (&str, _)| (Some(name.to_owned()), stages(&format!("{name} "), states));
            conclusion_of(&asics.map(of))
        };
        assert_eq!(two([[passed; 3]; 2]).unwrap(), "asic0, asic1: the route is all the way through");
        assert_eq!(
            two([[passed; 3], [passed, passed, absent]]).unwrap(),
            "asic1: the route is in asic1 orchagent, and not in asic1 virtual switch: no such row; \
             asic0: the route is all the way through"
        );
        assert_eq!(two([[absent; 3]; 2]), None);
        assert!(two([[absent; 3], [passed; 3]]).unwrap().starts_with("asic0: no daemon has the route; "));
    }
}
