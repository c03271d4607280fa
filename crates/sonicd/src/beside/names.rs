//! Names of objects that requests do not name: LAGs and sub-interfaces (COUNTERS_DB), VRFs of
//! interfaces (INTF_TABLE); and link states that notifications do not have (PORT_TABLE, LAG_TABLE).

use crate::{Daemon, Error};
use ribtide_swss::Db;
use ribtide_swss::beside::{Beside, BesideOut};
use ribtide_swss::sai::text::read_oid;
use ribtide_tables::Connection;

/// The databases with names.
pub(super) struct Names {
    counters: Connection,
    appl: Connection,
}

impl Names {
    pub(super) fn open(daemon: &Daemon) -> Result<Names, Error> {
        Ok(Names { counters: daemon.connect(Db::Counters)?, appl: daemon.connect(Db::Appl)? })
    }

    /// Reads the names that are missing.
    pub(super) fn look_up(&mut self, beside: &mut Beside) -> Result<(), Error> {
        for map in ["COUNTERS_LAG_NAME_MAP", "COUNTERS_RIF_NAME_MAP"] {
            for (name, oid) in self.counters.query(&["HGETALL", map])?.into_pairs() {
                if let Some(oid) = read_oid(&oid) {
                    beside.name(oid, &name);
                }
            }
        }
        for interface in beside.interfaces_without_vrf() {
            let key = self.appl.database().key("INTF_TABLE", &interface);
            if let Some(vrf) = self.appl.query(&["HGET", &key, "vrf_name"])?.into_text()
                && !vrf.is_empty()
            {
                beside.name_router(&interface, &vrf);
            }
        }
        Ok(())
    }

    /// Reads link states that no notification of syncd had: those of LAGs, and of ports that were
    /// down from the start or up before this process.
    pub(super) fn links(&mut self, beside: &mut Beside, out: &mut BesideOut) -> Result<(), Error> {
        let ports = beside.ports_without_link().into_iter().map(|port| ("PORT_TABLE", port));
        for (table, name) in ports.chain(beside.lags().into_iter().map(|lag| ("LAG_TABLE", lag))) {
            let key = self.appl.database().key(table, &name);
            if let Some(state) = self.appl.query(&["HGET", &key, "oper_status"])?.into_text() {
                beside.link(&name, state == "up", out);
            }
        }
        Ok(())
    }
}
