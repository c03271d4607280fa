//! A simulated Linux kernel: links, addresses, next-hop objects and routes, behind netlink sockets
//! whose bytes are those of the real one.
//!
//! It knows what ribtide depends on: which requests the kernel refuses and with which error, what
//! goes with an object, a link or an address, and which of that has a notification.
//! `tests/kernel.rs` sends the same random requests to the real kernel and to this one, and compares
//! every reply, every notification and the tables.
//!
//! [`faults`] lists what may go wrong with a call.

mod dump;
mod encode;
pub mod faults;
mod links;
mod objects;
mod routes;
mod socket;

pub use links::Link;
pub use objects::{Object, ObjectContent};
pub use routes::{RouteEntry, RouteForward};

use faults::Faults;
use ribtide_netlink::{SimulatedKernel, SimulatedPeer, Sockets};
use ribtide_prefix::{Afi, AnyPrefix};
use ribtide_wire::netlink::{Content, Message, messages};
use routes::Routes;
use socket::{Peer, Receiver};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The port id in notifications of changes that no request caused.
const NO_PORT: u32 = 0;
/// The port id of the other programs of a simulation.
const OTHERS: u32 = 1;

/// A kernel. Clones are the same one.
#[derive(Clone, Default)]
pub struct Kernel(Arc<Mutex<State>>);

/// Its state.
#[derive(Default)]
pub struct State {
    links: BTreeMap<u32, Link>,
    objects: BTreeMap<u32, Object>,
    /// Tables exist from their first route on.
    tables: BTreeMap<(Afi, u32), Routes>,
    sockets: BTreeMap<u32, Receiver>,
    last_port: u32,
    /// Changes of next-hop objects, which a dump notices.
    objects_version: u64,
    /// Changes of routes, which a dump of IPv6 routes notices.
    routes_version: u64,
    /// Milliseconds since the start.
    now_ms: u64,
    /// The protocol number of the program under test.
    pub own_protocol: u8,
    /// What it changed of other programs: a sentence each.
    pub foreign_changes: Vec<String>,
    /// What goes wrong.
    pub faults: Faults,
    /// Routes that the deletion of an object by a request took along, and the port of the request.
    pub taken_along: Vec<(AnyPrefix, RouteEntry, u32)>,
}

impl Kernel {
    /// A kernel without links.
    pub fn new() -> Kernel {
        let state = State { last_port: 1000, ..State::default() };
        Kernel(Arc::new(Mutex::new(state)))
    }

    /// Its state, for the simulation. No socket may be used meanwhile.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its sockets.
    pub fn sockets(&self) -> Sockets {
        Sockets::simulated(Arc::new(self.clone()))
    }
}

impl SimulatedKernel for Kernel {
    fn open(&self) -> io::Result<Box<dyn SimulatedPeer>> {
        Peer::open(self, &[])
    }

    fn monitor(&self, groups: &[u32]) -> io::Result<Box<dyn SimulatedPeer>> {
        Peer::open(self, groups)
    }
}

impl State {
    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Lets time pass.
    pub fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// Another program sends requests. Returns the error of each that was refused.
    pub fn by_others(&mut self, bytes: &[u8]) -> Vec<i32> {
        let requests = messages(bytes).map(|message| message.expect("a message of this crate"));
        requests.filter_map(|message| self.request(&message, OTHERS).err()).collect()
    }

    /// Deliberate: requests on behalf of the program under test.
    pub fn by_program(&mut self, bytes: &[u8]) {
        for message in messages(bytes).flatten() {
            // A refusal changes nothing.
            let _ = self.request(&message, NO_PORT);
        }
    }

    /// Does one request of the socket with this port id.
    ///
    /// # Errors
    /// The error number, positive.
    fn request(&mut self, message: &Message<'_>, port: u32) -> Result<(), i32> {
        let flags = message.flags;
        match Content::decode(message) {
            Ok(Content::NewRoute(route)) => self.new_route(&route, flags, port),
            Ok(Content::DelRoute(route)) => self.delete_route(&route, port),
            Ok(Content::NewNextHop(object)) => self.new_object(&object, flags, port),
            Ok(Content::DelNextHop(id)) => self.delete_object(id, port),
            Ok(_) => Err(libc::EOPNOTSUPP),
            Err(_) => Err(libc::EINVAL),
        }
    }

    /// The next-hop objects, by id.
    pub fn objects(&self) -> &BTreeMap<u32, Object> {
        &self.objects
    }

    /// The routes of a table, in the order in which packets match them.
    pub fn routes(&self, afi: Afi, table: u32) -> impl Iterator<Item = (AnyPrefix, &RouteEntry)> {
        self.tables.get(&(afi, table)).into_iter().flat_map(Routes::iter)
    }

    /// The links, by index.
    pub fn links(&self) -> &BTreeMap<u32, Link> {
        &self.links
    }
}
