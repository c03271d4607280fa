//! The tables of VPNs that fpmsyncd writes: through Redis, whatever routes do, as in SONiC. Most switches have no VPN, so a table has a
//! connection from its first row on.

use super::{Daemon, Error};
use ribtide_swss::row::{
    MySidRow, PicContextRow, SidListRow, VnetRouteRow, VnetTunnelRow, VpnChange, VpnRow, VpnTable,
};
use ribtide_swss::{Change, Name, Row};
use ribtide_tables::{Pipeline, Producer, ProducerStateTable};

/// One table.
struct Table<R: Row> {
    producer: Option<ProducerStateTable<R>>,
    /// The losses of Redis that connections noticed which are closed.
    closed_generation: u64,
}

impl<R: Row> Default for Table<R> {
    fn default() -> Self {
        Table { producer: None, closed_generation: 0 }
    }
}

impl<R: Row> Table<R> {
    fn open(&mut self, daemon: &Daemon) -> Result<&mut ProducerStateTable<R>, Error> {
        let opened = match self.producer.take() {
            Some(table) => table,
            None => ProducerStateTable::open(&daemon.databases, Pipeline::default(), &daemon.stop)?,
        };
        Ok(self.producer.insert(opened))
    }

    fn close(&mut self) {
        self.closed_generation = self.generation();
        self.producer = None;
    }

    fn write(&mut self, changes: &mut Vec<Change<R>>, daemon: &Daemon) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let table = self.open(daemon)?;
        table.write(changes)?;
        Ok(table.flush()?)
    }

    fn probe(&mut self) -> Result<(), Error> {
        match &mut self.producer {
            Some(table) => Ok(table.probe()?),
            None => Ok(()),
        }
    }

    fn generation(&self) -> u64 {
        self.closed_generation + self.producer.as_ref().map_or(0, ProducerStateTable::generation)
    }
}

/// The producers of all these tables.
pub(super) struct VpnTables {
    pic_contexts: Table<PicContextRow>,
    my_sids: Table<MySidRow>,
    sid_lists: Table<SidListRow>,
    vnet_routes: Table<VnetRouteRow>,
    vnet_tunnels: Table<VnetTunnelRow>,
    daemon: Daemon,
}

/// Reads the rows of one table, and keeps its connection where there are some.
fn read<R: Row<Key = Name>>(
    table: &mut Table<R>,
    daemon: &Daemon,
    row: impl Fn(R) -> VpnRow,
    each: &mut impl FnMut(&Name, VpnRow),
) -> Result<(), Error> {
    let mut found = 0;
    table.open(daemon)?.rows(|key, of, _| {
        found += 1;
        each(&key, row(of));
    })?;
    if found == 0 {
        table.close();
    }
    Ok(())
}

impl VpnTables {
    pub(super) fn new(daemon: &Daemon) -> VpnTables {
        VpnTables {
            pic_contexts: Table::default(),
            my_sids: Table::default(),
            sid_lists: Table::default(),
            vnet_routes: Table::default(),
            vnet_tunnels: Table::default(),
            daemon: daemon.clone(),
        }
    }

    /// Every row that the tables have.
    ///
    /// # Errors
    /// Redis is lost for good.
    pub(super) fn rows(&mut self, mut each: impl FnMut(&Name, VpnRow)) -> Result<(), Error> {
        read(&mut self.pic_contexts, &self.daemon, |row| row.0, &mut each)?;
        read(&mut self.my_sids, &self.daemon, |row| row.0, &mut each)?;
        read(&mut self.sid_lists, &self.daemon, |row| row.0, &mut each)?;
        read(&mut self.vnet_routes, &self.daemon, |row| row.0, &mut each)?;
        read(&mut self.vnet_tunnels, &self.daemon, |row| row.0, &mut each)
    }

    /// Writes and flushes these changes.
    ///
    /// # Errors
    /// Redis is lost for good.
    pub(super) fn write(&mut self, changes: &mut Vec<VpnChange>) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let (mut pic_contexts, mut my_sids, mut sid_lists) = (Vec::new(), Vec::new(), Vec::new());
        let (mut vnet_routes, mut vnet_tunnels) = (Vec::new(), Vec::new());
        for change in changes.drain(..) {
            match change.table {
                VpnTable::PicContext => pic_contexts.push(of(change, PicContextRow)),
                VpnTable::MySid => my_sids.push(of(change, MySidRow)),
                VpnTable::SidList => sid_lists.push(of(change, SidListRow)),
                VpnTable::VnetRoute => vnet_routes.push(of(change, VnetRouteRow)),
                VpnTable::VnetTunnel => vnet_tunnels.push(of(change, VnetTunnelRow)),
            }
        }
        self.pic_contexts.write(&mut pic_contexts, &self.daemon)?;
        self.my_sids.write(&mut my_sids, &self.daemon)?;
        self.sid_lists.write(&mut sid_lists, &self.daemon)?;
        self.vnet_routes.write(&mut vnet_routes, &self.daemon)?;
        self.vnet_tunnels.write(&mut vnet_tunnels, &self.daemon)
    }

    /// Notices a Redis that was lost and came back.
    ///
    /// # Errors
    /// Redis is lost for good.
    pub(super) fn probe(&mut self) -> Result<(), Error> {
        self.pic_contexts.probe()?;
        self.my_sids.probe()?;
        self.sid_lists.probe()?;
        self.vnet_routes.probe()?;
        self.vnet_tunnels.probe()
    }

    /// A number that grows with each loss of Redis that a table noticed.
    pub(super) fn generation(&self) -> u64 {
        self.pic_contexts.generation()
            + self.my_sids.generation()
            + self.sid_lists.generation()
            + self.vnet_routes.generation()
            + self.vnet_tunnels.generation()
    }
}

fn of<R: Row<Key = Name>>(change: VpnChange, row: impl Fn(VpnRow) -> R) -> Change<R> {
    Change { key: change.key, row: change.row.map(row), reshaped: change.reshaped }
}
