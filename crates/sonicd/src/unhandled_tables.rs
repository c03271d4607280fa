//! Tables that SONiC's orchagent handles and this one does not: their rows are found, left in place for
//! another orchagent, and reported.
//!
//! Each table is logged once. `RIBTIDE_UNHANDLED|orchagent` of STATE_DB has how many rows each has, and
//! one of their keys; `ribtide show pipeline --sonic` prints it. Rows of handled tables that cannot be
//! programmed, such as interfaces of a VNET, are among them with the reason.

use super::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_runtime::log::target;
use ribtide_runtime::thread::{self, Ended};
use ribtide_runtime::wake_up::WakeUp;
use ribtide_swss::Db;
use ribtide_swss::Row;
use ribtide_swss::orch::Orch;
use ribtide_swss::row::IntfRow;
use ribtide_tables::{Connection, Fields, TableError, wake_ups};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The table in STATE_DB.
const TABLE: &str = "RIBTIDE_UNHANDLED";
/// The interval of looks at tables that no channel announces.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Why a table's rows are not programmed.
const NOT_HANDLED: &str = "ribtide's orchagent does not handle this table; its rows stay for SONiC's";

/// Tables of APPL_DB that SONiC's orchagent consumes (`orchagent/orchdaemon.cpp`) and this one does
/// not.
const APPL: &[&str] = &[
    "ACL_RULE_TABLE",
    "ACL_TABLE_TABLE",
    "ACL_TABLE_TYPE_TABLE",
    "BFD_SESSION_TABLE",
    "BUFFER_PG_TABLE",
    "BUFFER_POOL_TABLE",
    "BUFFER_PORT_EGRESS_PROFILE_LIST_TABLE",
    "BUFFER_PORT_INGRESS_PROFILE_LIST_TABLE",
    "BUFFER_PROFILE_TABLE",
    "BUFFER_QUEUE_TABLE",
    "CLASS_BASED_NEXT_HOP_GROUP_TABLE",
    "COPP_TABLE",
    "DASH_ACL_GROUP_TABLE",
    "DASH_ACL_IN_TABLE",
    "DASH_ACL_OUT_TABLE",
    "DASH_ACL_RULE_TABLE",
    "DASH_APPLIANCE_TABLE",
    "DASH_ENI_ROUTE_TABLE",
    "DASH_ENI_TABLE",
    "DASH_FLOW_DUMP_FILTER_TABLE",
    "DASH_FLOW_SYNC_SESSION_TABLE",
    "DASH_HA_SCOPE_TABLE",
    "DASH_HA_SET_TABLE",
    "DASH_METER_POLICY_TABLE",
    "DASH_METER_RULE_TABLE",
    "DASH_OUTBOUND_PORT_MAP_RANGE_TABLE",
    "DASH_OUTBOUND_PORT_MAP_TABLE",
    "DASH_PREFIX_TAG_TABLE",
    "DASH_QOS_TABLE",
    "DASH_ROUTE_GROUP_TABLE",
    "DASH_ROUTE_RULE_TABLE",
    "DASH_ROUTE_TABLE",
    "DASH_ROUTING_TYPE_TABLE",
    "DASH_TUNNEL_TABLE",
    "DASH_VNET_MAPPING_TABLE",
    "DASH_VNET_TABLE",
    "EVPN_SPLIT_HORIZON_TABLE",
    "FABRIC_MONITOR_TABLE",
    "FABRIC_PORT_TABLE",
    "FC_TO_NHG_INDEX_MAP_TABLE",
    "FDB_TABLE",
    "ICMP_ECHO_SESSION_TABLE",
    "ISOLATION_GROUP_TABLE",
    "L2_NEXTHOP_GROUP_TABLE",
    "MACSEC_EGRESS_SA_TABLE",
    "MACSEC_EGRESS_SC_TABLE",
    "MACSEC_INGRESS_SA_TABLE",
    "MACSEC_INGRESS_SC_TABLE",
    "MACSEC_PORT_TABLE",
    "MCLAG_FDB_TABLE",
    "MUX_CABLE_TABLE",
    "NAPT_TABLE",
    "NAPT_TWICE_TABLE",
    "NAT_DNAT_POOL_TABLE",
    "NAT_GLOBAL_TABLE",
    "NAT_TABLE",
    "NAT_TWICE_TABLE",
    "P4RT_TABLE",
    "PIC_CONTEXT_TABLE",
    "SAG_TABLE",
    "SEND_TO_INGRESS_PORT_TABLE",
    "SFLOW_SAMPLE_RATE_TABLE",
    "SFLOW_SESSION_TABLE",
    "SFLOW_TABLE",
    "SRV6_MY_SID_TABLE",
    "SRV6_SID_LIST_TABLE",
    "STP_FASTAGEING_FLUSH_TABLE",
    "STP_INST_PORT_FLUSH_TABLE",
    "STP_PORT_STATE_TABLE",
    "STP_VLAN_INSTANCE_TABLE",
    "SWITCH_TABLE",
    "TUNNEL_DECAP_TABLE",
    "TUNNEL_DECAP_TERM_TABLE",
    "VNET_ROUTE_TABLE",
    "VNET_ROUTE_TUNNEL_TABLE",
    "VNET_TABLE",
    "VXLAN_EVPN_NVO_TABLE",
    "VXLAN_FDB_TABLE",
    "VXLAN_REMOTE_VNI_TABLE",
    "VXLAN_TUNNEL_MAP_TABLE",
    "VXLAN_TUNNEL_TABLE",
    "VXLAN_VRF_TABLE",
];

/// The same of CONFIG_DB.
const CONFIG: &[&str] = &[
    "ACL_RULE",
    "ACL_TABLE",
    "ACL_TABLE_TYPE",
    "ASIC_SENSORS",
    "BGP_DEVICE_GLOBAL",
    "CRM",
    "DEBUG_COUNTER",
    "DEBUG_COUNTER_DROP_REASON",
    "DEBUG_DROP_MONITOR",
    "DOT1P_TO_TC_MAP",
    "DSCP_TO_FC_MAP",
    "DSCP_TO_TC_MAP",
    "DTEL",
    "DTEL_EVENT",
    "DTEL_INT_SESSION",
    "DTEL_QUEUE_REPORT",
    "DTEL_REPORT_SESSION",
    "EXP_TO_FC_MAP",
    "FLEX_COUNTER_TABLE",
    "FLOW_COUNTER_ROUTE_PATTERN",
    "HIGH_FREQUENCY_TELEMETRY_GROUP",
    "HIGH_FREQUENCY_TELEMETRY_PROFILE",
    "MAP_PFC_PRIORITY_TO_QUEUE",
    "MCLAG_DOMAIN",
    "MCLAG_INTERFACE",
    "MIRROR_SESSION",
    "MPLS_TC_TO_TC_MAP",
    "MUX_CABLE",
    "NVGRE_TUNNEL",
    "NVGRE_TUNNEL_MAP",
    "PASS_THROUGH_ROUTE_TABLE",
    "PBH_HASH",
    "PBH_HASH_FIELD",
    "PBH_RULE",
    "PBH_TABLE",
    "PEER_SWITCH",
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP",
    "PFC_WD",
    "POLICER",
    "PORT_QOS_MAP",
    "PORT_STORM_CONTROL",
    "QUEUE",
    "SCHEDULER",
    "SRV6_MY_SIDS",
    "SWITCH_FAST_LINKUP",
    "SWITCH_HASH",
    "SWITCH_TRIMMING",
    "TC_TO_DOT1P_MAP",
    "TC_TO_DSCP_MAP",
    "TC_TO_PRIORITY_GROUP_MAP",
    "TC_TO_QUEUE_MAP",
    "TWAMP_SESSION",
    "VNET_ROUTE",
    "VNET_ROUTE_TUNNEL",
    "WATERMARK_TABLE",
    "WRED_PROFILE",
];

/// The same of STATE_DB.
const STATE: &[&str] = &[
    "BFD_SESSION_TABLE",
    "FDB_TABLE",
    "HW_MUX_CABLE_TABLE",
    "ICMP_ECHO_SESSION_TABLE",
    "MCLAG_REMOTE_FDB_TABLE",
    "MIRROR_SESSION_TABLE",
    "TWAMP_SESSION_TABLE",
    "VNET_MONITOR_TABLE",
];

/// The rows of a table that are not programmed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UnhandledTable {
    /// How many there are.
    pub rows: u64,
    /// The key of one.
    pub example: String,
    /// Why.
    pub why: String,
}

/// Those of all tables, by database and table: `APPL_DB VNET_TABLE`.
pub type UnhandledTables = BTreeMap<String, UnhandledTable>;

/// What was found. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Found(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    tables: UnhandledTables,
    /// The tables that were logged.
    logged: std::collections::BTreeSet<String>,
}

impl Found {
    fn set(&self, db: Db, table: &str, rows: u64, example: &str, why: &str) {
        let name = format!("{} {table}", db.name());
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rows == 0 {
            state.tables.remove(&name);
            return;
        }
        if state.logged.insert(name.clone()) {
            tracing::warn!(
                target: target::ORCHAGENT,
                database = db.name(),
                table,
                rows,
                example,
                reason = why,
                "rows of a table are not programmed"
            );
        }
        let (example, why) = (example.into(), why.into());
        state.tables.insert(name, UnhandledTable { rows, example, why });
    }

    /// Sets the rows of INTF_TABLE that are not programmed. O(interfaces): few.
    pub(super) fn look_at_interfaces(&self, orch: &Orch) {
        let mut interfaces = orch.interfaces_not_programmed().peekable();
        let first = interfaces.peek().map(|(name, why)| (name.to_string(), *why));
        let (example, why) = first.unwrap_or_default();
        self.set(Db::Appl, IntfRow::TABLE, interfaces.count() as u64, &example, why);
    }

    /// Writes all to STATE_DB at each change.
    fn publish(&self, daemon: &Daemon) {
        let found = self.clone();
        daemon.bookkeeping.follow(TABLE, daemon.name, move || {
            let text = |table: &UnhandledTable| serde_json::to_string(table).unwrap_or_default();
            let state = found.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.tables.iter().map(|(name, table)| (name.clone(), text(table))).collect::<Fields>()
        });
    }
}

/// Those of a daemon, from this STATE_DB.
///
/// # Errors
/// A sentence when the database cannot be read.
pub(super) fn of(daemon: &str, state: &mut Connection) -> Result<UnhandledTables, Error> {
    let key = state.database().key(TABLE, daemon);
    let fields = state.query(&["HGETALL", &key])?.into_pairs();
    let table = |(name, text): (String, String)| Some((name, serde_json::from_str(&text).ok()?));
    Ok(fields.into_iter().filter_map(table).collect())
}

/// Starts the thread that looks for such rows: at the start, when a producer announces some, and
/// every minute in the databases whose tables have no channels.
pub(super) fn watch(daemon: &Daemon) -> Result<Found, Error> {
    let found = Found::default();
    found.publish(daemon);
    let appl = daemon.databases.get(Db::Appl);
    let channels: Vec<String> = APPL.iter().map(|table| format!("{table}_CHANNEL@{}", appl.id)).collect();
    let announced = wake_ups(appl, channels, &daemon.stop)?;
    let tables = [(Db::Appl, APPL), (Db::Config, CONFIG), (Db::State, STATE)];
    let tables = tables.map(|(db, tables)| Ok((db, tables, daemon.connect(db)?)));
    let tables = tables.into_iter().collect::<Result<_, Error>>()?;
    let mut looker = Looker { found: found.clone(), daemon: daemon.clone(), announced, tables };
    let body = move || looker.run();
    thread::spawn("unhandled-tables", body)
        .map_err(Error::no_thread("to look for tables that are not handled"))?;
    Ok(found)
}

struct Looker {
    found: Found,
    daemon: Daemon,
    /// Of each table of APPL_DB.
    announced: Vec<WakeUp>,
    tables: Vec<(Db, &'static [&'static str], Connection)>,
}

impl Looker {
    fn run(&mut self) -> Ended {
        let signal = self.daemon.stop.signal();
        while !self.daemon.stop.stopped() {
            if let Err(e) = self.look() {
                if self.daemon.stop.stopped() {
                    break;
                }
                tracing::warn!(target: target::ORCHAGENT, error = %e, "tables that are not handled cannot be looked for; looking again");
            }
            let mut select = Select::new();
            signal.watch(&mut select);
            self.announced.iter().for_each(|wake_up| wake_up.watch(&mut select));
            let _ = select.ready_timeout(LOOK_INTERVAL);
            // Rows of one producer come together.
            self.daemon.stop.sleep(Duration::from_secs(1));
            self.announced.iter().for_each(|wake_up| _ = wake_up.take());
        }
        Ended::at_stop(&self.daemon.stop)
    }

    fn look(&mut self) -> Result<(), TableError> {
        let found = &self.found;
        for (db, tables, connection) in &mut self.tables {
            match db {
                Db::Appl => look_at_queues(found, connection, tables)?,
                _ => look_at_rows(found, connection, *db, tables)?,
            }
        }
        self.daemon.bookkeeping.hurry();
        Ok(())
    }
}

/// Rows of producers that no consumer took are in the table's set of keys. APPL_DB has all routes, so
/// it is not searched for others, which another orchagent took.
fn look_at_queues(found: &Found, appl: &mut Connection, tables: &[&str]) -> Result<(), TableError> {
    let sets: Vec<String> = tables.iter().map(|table| format!("{table}_KEY_SET")).collect();
    let counts = appl.query_all(sets.iter().map(|set| ["SCARD", set]))?;
    for ((table, set), count) in tables.iter().zip(&sets).zip(counts) {
        let rows = count.as_integer().and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        let example = match rows {
            0 => None,
            _ => appl.query(&["SRANDMEMBER", set])?.into_text(),
        };
        found.set(Db::Appl, table, rows, &example.unwrap_or_default(), NOT_HANDLED);
    }
    Ok(())
}

fn look_at_rows(
    found: &Found,
    connection: &mut Connection,
    db: Db,
    tables: &[&str],
) -> Result<(), TableError> {
    let mut rows: BTreeMap<&str, (u64, String)> = BTreeMap::new();
    connection.scan("*", |_, names| {
        for name in names {
            let Some((table, key)) = name.split_once(db.separator()) else { continue };
            let Ok(at) = tables.binary_search(&table) else { continue };
            let (count, example) = rows.entry(tables[at]).or_insert((0, key.to_owned()));
            *count += 1;
            // The same one at each look.
            if *key < **example {
                *example = key.to_owned();
            }
        }
        Ok(())
    })?;
    for table in tables {
        let (count, example) = rows.remove(table).unwrap_or_default();
        found.set(db, table, count, &example, NOT_HANDLED);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_runtime::log::{LogSettings, capture};

    #[test]
    fn tables_are_sorted_and_none_is_one_that_orchagent_handles() {
        use ribtide_swss::row::{
            LabelRouteRow, LagMemberRow, LagRow, NeighRow, NextHopGroupRow, PortRow, RouteRow, VlanMemberRow,
            VlanRow, VrfRow,
        };
        for tables in [APPL, CONFIG, STATE] {
            assert!(tables.is_sorted());
        }
        let handled = [
            PortRow::TABLE,
            LagRow::TABLE,
            LagMemberRow::TABLE,
            VlanRow::TABLE,
            VlanMemberRow::TABLE,
            VrfRow::TABLE,
            IntfRow::TABLE,
            NeighRow::TABLE,
            NextHopGroupRow::TABLE,
            LabelRouteRow::TABLE,
            RouteRow::TABLE,
        ];
        assert!(handled.iter().all(|table| APPL.binary_search(table).is_err()));
    }

    #[test]
    fn table_is_logged_once_and_shown_while_it_has_rows() {
        let found = Found::default();
        let lines = capture(&LogSettings::default(), || {
            found.set(Db::Appl, "VNET_TABLE", 2, "Vnet1", NOT_HANDLED);
            found.set(Db::Appl, "VNET_TABLE", 3, "Vnet1", NOT_HANDLED);
        });
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.contains("table=VNET_TABLE rows=2 example=Vnet1 "), "{lines}");
        assert_eq!(found.0.lock().unwrap().tables["APPL_DB VNET_TABLE"].rows, 3);
        let lines = capture(&LogSettings::default(), || {
            found.set(Db::Appl, "VNET_TABLE", 0, "", NOT_HANDLED);
            found.set(Db::Appl, "VNET_TABLE", 1, "Vnet2", NOT_HANDLED);
        });
        assert_eq!(lines, "");
    }
}
