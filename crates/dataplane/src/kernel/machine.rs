//! The kernel dataplane without its threads: what the simulator runs.

use super::super::{RepairCounters, RibChannel};
use super::{Stages, System};
use ribtide_config::KernelConfig;
use ribtide_rib::DataplaneId;
use ribtide_runtime::ring::{Closed, Rings};
use std::io;
use std::sync::Arc;

/// The stages of a dataplane. The caller says which one works next.
pub struct KernelMachine {
    stages: Stages,
    id: DataplaneId,
}

impl KernelMachine {
    /// Opens the sockets, of a [`System`] that is simulated.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open(
        system: &System,
        config: KernelConfig,
        channel: RibChannel,
        rings: &Rings,
    ) -> io::Result<KernelMachine> {
        let id = channel.id;
        let stages = Stages::open(system, config, None, &[], channel, None, rings)?;
        Ok(KernelMachine { stages, id })
    }

    /// The watchers read the initial state, as their threads do first.
    ///
    /// # Errors
    /// The RIB manager has stopped.
    pub fn begin(&mut self) -> Result<(), Closed> {
        self.stages.links.begin(Some(self.id))?;
        self.stages.routes.begin()
    }

    /// The writer of routes does its next work. Returns whether there was some.
    ///
    /// # Errors
    /// The RIB manager has stopped.
    pub fn write(&mut self) -> Result<bool, Closed> {
        self.stages.writer.turn()
    }

    /// The writer had nothing to do for 20 ms.
    pub fn set_quiet(&mut self) {
        self.stages.writer.set_quiet();
    }

    /// Sets how many routes a page of the comparison has. With 0 there is no comparison.
    pub fn set_compare_page(&mut self, routes: usize) {
        self.stages.writer.set_compare_page(routes);
    }

    /// The watcher of routes reads notifications.
    ///
    /// # Errors
    /// The RIB manager has stopped.
    pub fn watch_routes(&mut self) -> Result<(), Closed> {
        self.stages.routes.step()
    }

    /// The watcher of interfaces reads notifications.
    ///
    /// # Errors
    /// The RIB manager has stopped.
    pub fn watch_links(&mut self) -> Result<(), Closed> {
        self.stages.links.step()
    }

    /// Whether many notes wait for the writer, so a watcher might wait for it.
    pub fn is_behind(&self) -> bool {
        self.stages.writer.has_many_notes()
    }

    /// Whether the writer has a socket, has read all notes, and doubts nothing.
    pub fn is_informed(&self) -> bool {
        self.stages.writer.is_informed()
    }

    /// Counters of the comparison with the kernel.
    pub fn repairs(&self) -> &Arc<RepairCounters> {
        &self.stages.handle.repairs
    }
}
