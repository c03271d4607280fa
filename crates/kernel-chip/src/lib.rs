//! The Linux kernel as a chip: an implementation of [`ribtide_swss::sai::Sai`] over netlink, in the place of a vendor's SAI
//! library, so that SONiC's route path forwards on a server.
//!
//! The objects of the [virtual switch](ribtide_vswitch) are the model: references, attributes, statuses,
//! and every object type that the kernel does not forward by. Behind it are routes, next hops, groups,
//! neighbours, states and MTUs of netdevs in the kernel of this network namespace. A port is the netdev
//! of its name. What the kernel refuses is not in the model either.
#![forbid(unsafe_code)]

mod neighbors;
mod netdevs;
mod next_hops;
mod routes;
mod status;
mod watch;

use netdevs::{LinkChange, Netdevs};
use next_hops::NextHops;
use ribtide_netlink::{Socket, overran};
use ribtide_prefix::{AnyPrefix, Set};
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wake_up::WakeUp;
use ribtide_swss::sai::notification::{FdbEvent, PortState};
use ribtide_swss::sai::{
    Attr, Attrs, ErrorMode, Item, ObjectId, ObjectType, Oid, Query, QueryReply, RawText, Sai, Status, Verb,
};
use ribtide_vswitch::{Behavior, Limits, PortSetup, VirtualSwitch};
use ribtide_wire::netlink::numbers::IFF_UP;
use ribtide_wire::netlink::{Content, Link, dump_links, write_link_change, write_next_hop_delete};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use watch::Note;

/// Notes that are handled before the next request.
const NOTES_BATCH: usize = 4096;

/// Where the chip's entries are in the kernel. Routes of this table with this protocol number and
/// metric, and next-hop objects and neighbours with this protocol number, belong to the chip: no other
/// program may use the number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The routing table of the default virtual router.
    pub table: u32,
    /// The protocol number (`RTPROT_*`).
    pub protocol: u8,
    /// The metric of routes. One of 0 does not exist for IPv6.
    pub metric: u32,
}

impl Default for Settings {
    /// The main table, before the routes of BGP daemons (20). Connected IPv4 routes have metric 0, those of IPv6 256.
    fn default() -> Settings {
        Settings { table: 254, protocol: 115, metric: 10 }
    }
}

/// What the kernel does with packets of a route, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteState {
    /// There is no such route.
    Absent,
    /// It needs none: a default route that drops.
    NotNeeded,
    /// It drops packets.
    Drops,
    /// It delivers them to this host.
    Local,
    /// It sends them by the next-hop object of this number.
    Via(u32),
    /// The kernel has it not, though it was requested.
    Missing,
}

/// The kernel as a chip. One thread owns it.
pub struct KernelChip {
    model: VirtualSwitch,
    settings: Settings,
    socket: Socket,
    netdevs: Netdevs,
    next_hops: NextHops,
    /// Routes that an earlier syncd left, and that no request has named yet.
    found: Set<AnyPrefix>,
    /// Whether everything that is wanted was requested, so that the rest can go.
    settled: bool,
    /// Whether something in the kernel may differ from the model.
    doubt: bool,
    /// Whether the socket shall be opened again.
    failed: bool,
    notes: Option<ring::Receiver<Note>>,
    /// The port of `socket`, for the thread that reads notifications.
    port: Option<Arc<AtomicU32>>,
    events: Vec<String>,
    /// Entries that another program had changed, and that were corrected.
    repaired: u64,
    buffers: routes::Buffers,
}

impl KernelChip {
    /// The kernel of the calling thread's network namespace, with these ports. It refuses what is beyond `limits`, which
    /// are the sizes of tables that it reports: the kernel itself has only its memory.
    ///
    /// # Errors
    /// A sentence: no permission (CAP_NET_ADMIN), or no next-hop objects (Linux 5.3).
    pub fn open(ports: Vec<PortSetup>, settings: Settings, limits: Limits) -> io::Result<KernelChip> {
        let mut socket = open_socket()?;
        let links = socket.dump(dump_links, |all: &mut Vec<(u32, String, u32)>, content| {
            if let Content::NewLink(link) = content {
                all.push((link.index, link.name.to_owned(), link.flags));
            }
        })?;
        let mut model = VirtualSwitch::new(ports.clone(), Behavior { limits, ..Behavior::default() });
        let mut netdevs = Netdevs::default();
        for (index, name, flags) in &links {
            netdevs.set(&Link { index: *index, name, flags: *flags, ..Link::default() });
        }
        for port in &ports {
            let up = netdevs.index(&port.name).is_some_and(|index| netdevs.is_up(index));
            model.set_carrier(&port.name, up);
        }
        let mut chip = KernelChip {
            model,
            settings,
            socket,
            netdevs,
            next_hops: NextHops::new(settings.protocol),
            found: Set::default(),
            settled: false,
            doubt: false,
            failed: false,
            notes: None,
            port: None,
            events: Vec::new(),
            repaired: 0,
            buffers: routes::Buffers::default(),
        };
        chip.next_hops.objects.check(&mut chip.socket)?;
        chip.find_routes()?;
        Ok(chip)
    }

    /// Subscribes to notifications of netdevs and of other programs' changes. The wake-up says when
    /// [`KernelChip::serve`] has work.
    ///
    /// # Errors
    /// The system's.
    pub fn watch(&mut self, rings: &Rings, stop: &Stop) -> io::Result<WakeUp> {
        let watch::Notes { notes, wake_up, port } =
            watch::start(self.settings, self.socket.port(), rings, stop)?;
        (self.notes, self.port) = (Some(notes), Some(port));
        // What changed before the subscription.
        self.read_links()?;
        Ok(wake_up)
    }

    /// The ports without a netdev of their name.
    pub fn ports_without_netdev(&self) -> Vec<String> {
        let ports = self.model.setup().iter();
        let without = ports.filter(|port| self.netdevs.index(&port.name).is_none());
        without.map(|port| port.name.to_string()).collect()
    }

    /// Routes that an earlier syncd left, and that no request has named yet.
    pub fn found_routes(&self) -> usize {
        self.found.len()
    }

    /// Entries that another program had changed, and that were corrected.
    pub fn repaired(&self) -> u64 {
        self.repaired
    }

    /// The model.
    pub fn model(&self) -> &VirtualSwitch {
        &self.model
    }

    /// The sentences about what the kernel refused, and what was repaired. Empties them.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Shrinks its tables to their contents.
    pub fn shrink_to_fit(&mut self) {
        self.model.shrink_to_fit();
        self.buffers = routes::Buffers::default();
        self.found.shrink_to_fit();
    }

    /// What the kernel has of a route of the default virtual router.
    pub fn route_state(&self, prefix: AnyPrefix) -> RouteState {
        let vr = self.model.default_router().unwrap_or(Oid::NULL);
        let Some(route) = self.model.route_action(vr, prefix) else { return RouteState::Absent };
        match self.action(prefix, route) {
            Ok(None) => RouteState::NotNeeded,
            Ok(Some(routes::Action::Blackhole)) => RouteState::Drops,
            Ok(Some(routes::Action::Local)) => RouteState::Local,
            Ok(Some(routes::Action::Via(id))) => RouteState::Via(id),
            Err(_) => RouteState::Missing,
        }
    }

    /// Everything that is wanted was requested: deletes what an earlier syncd left beside that.
    pub fn settle(&mut self) {
        if self.settled {
            return;
        }
        self.settled = true;
        self.next_hops.objects.keep = false;
        let left = self.found.len();
        match self.compare() {
            Ok(_) if left > 0 => {
                self.events.push(format!(
                    "{left} routes of an earlier syncd were not requested again and are deleted"
                ));
            }
            Ok(_) => {}
            Err(e) => self.lose(&e),
        }
    }

    /// Compares the kernel with the model, and corrects what differs. Returns how many entries did.
    fn compare(&mut self) -> io::Result<usize> {
        self.next_hops.objects.check(&mut self.socket)?;
        self.refresh_refused();
        let accepted = self.next_hops.objects.accepted;
        self.write_next_hops()?;
        let mut differing = (self.next_hops.objects.accepted - accepted) as usize;
        if self.settled {
            differing += self.compare_routes()?;
            differing += self.compare_neighbors(|_| true)?;
            self.next_hops.objects.sweep(&mut self.socket)?;
            self.delete_unused()?;
        }
        self.doubt = false;
        Ok(differing)
    }

    /// Takes in what happened in the kernel.
    pub fn serve(&mut self) {
        let notes: Vec<Note> = match &self.notes {
            Some(notes) => std::iter::from_fn(|| notes.try_recv()).take(NOTES_BATCH).collect(),
            None => Vec::new(),
        };
        if let Err(e) = self.heard(&notes) {
            self.lose(&e);
        }
        if self.failed {
            match open_socket() {
                Ok(socket) => {
                    (self.socket, self.failed) = (socket, false);
                    if let Some(port) = &self.port {
                        port.store(self.socket.port(), Ordering::Relaxed);
                    }
                }
                Err(e) => return self.lose(&e),
            }
        }
        if self.doubt {
            match self.compare() {
                Ok(0) => {}
                Ok(count) => self.note_repairs(count),
                Err(e) => self.lose(&e),
            }
        }
    }

    fn heard(&mut self, notes: &[Note]) -> io::Result<()> {
        let (mut prefixes, mut neighbors, mut objects) = (Set::default(), Set::default(), false);
        let ours: Set<(u32, IpAddr)> = match notes.iter().any(|note| matches!(note, Note::Neighbor { .. })) {
            true => {
                self.model.neighbors().filter_map(|(rif, ip, _)| Some((self.netdev_of(rif)?, ip))).collect()
            }
            false => Set::default(),
        };
        for note in notes {
            match note {
                Note::Link { index, name, flags } => {
                    self.link(&Link { index: *index, name, flags: *flags, ..Link::default() })?;
                }
                Note::LinkGone(index) => self.link_gone(*index)?,
                Note::NextHops => objects = true,
                Note::Route(prefix) => drop(prefixes.insert(*prefix)),
                // The kernel itself learns and forgets others all the time.
                Note::Neighbor { index, ip, marked } if *marked || ours.contains(&(*index, *ip)) => {
                    neighbors.insert(*index);
                }
                Note::Neighbor { .. } => {}
                Note::Lost => {
                    self.doubt = true;
                    self.read_links()?;
                }
            }
        }
        let mut repaired = 0;
        if objects {
            self.next_hops.objects.check(&mut self.socket)?;
            self.refresh_refused();
            let accepted = self.next_hops.objects.accepted;
            self.write_next_hops()?;
            repaired += (self.next_hops.objects.accepted - accepted) as usize;
        }
        if self.settled {
            if !prefixes.is_empty() {
                repaired += self.put_prefixes(&prefixes)?;
            }
            if !neighbors.is_empty() {
                repaired += self.compare_neighbors(|index| neighbors.contains(&index))?;
            }
        }
        self.note_repairs(repaired);
        Ok(())
    }

    fn note_repairs(&mut self, count: usize) {
        if count > 0 {
            self.repaired += count as u64;
            self.events.push(format!("{count} entries differed in the kernel and are written again"));
        }
    }

    /// A request failed as a whole, so the kernel may have done any part of it.
    fn lose(&mut self, e: &io::Error) {
        self.doubt = true;
        self.failed |= !overran(e);
        self.events.push(format!("replies of the kernel are lost ({e}); it is compared with the requests"));
    }

    /// Takes in all netdevs.
    fn read_links(&mut self) -> io::Result<()> {
        let links = self.socket.dump(dump_links, |all: &mut Vec<(u32, String, u32)>, content| {
            if let Content::NewLink(link) = content {
                all.push((link.index, link.name.to_owned(), link.flags));
            }
        })?;
        for (index, name, flags) in &links {
            self.link(&Link { index: *index, name, flags: *flags, ..Link::default() })?;
        }
        for index in self.netdevs.missing(|index| links.iter().any(|(of, ..)| *of == index)) {
            self.link_gone(index)?;
        }
        Ok(())
    }

    fn link(&mut self, link: &Link<'_>) -> io::Result<()> {
        let is_new = self.netdevs.index(link.name) != Some(link.index);
        if is_new && self.netdevs.name(link.index).is_some_and(|former| former != link.name) {
            // It has another name now.
            self.link_gone(link.index)?;
        }
        let change = self.netdevs.set(link);
        if !self.expects(link.name) {
            return Ok(());
        }
        self.model.set_carrier(link.name, link.operative());
        if is_new && link.flags & IFF_UP == 0 && self.is_enabled(link.name) {
            self.set_link(link.index, Some(true), None)?;
        }
        if change == LinkChange::None && !is_new {
            return Ok(());
        }
        let lost = change == LinkChange::Lost;
        self.link_changed(link.index, link.name, lost)?;
        if !lost && self.settled {
            // Switched off, it lost them.
            let index = link.index;
            self.compare_neighbors(|of| of == index)?;
        }
        Ok(())
    }

    fn link_gone(&mut self, index: u32) -> io::Result<()> {
        let Some(name) = self.netdevs.remove(index) else { return Ok(()) };
        if !self.expects(&name) {
            return Ok(());
        }
        if self.netdevs.index(&name).is_none() {
            self.model.set_carrier(&name, false);
        }
        self.link_changed(index, &name, true)
    }

    fn expects(&self, name: &str) -> bool {
        self.model.setup().iter().any(|port| *port.name == *name)
    }

    fn is_enabled(&self, name: &str) -> bool {
        self.model.ports().iter().any(|port| *port.name == *name && port.admin_up)
    }

    /// Switches a netdev on or off, or sets its MTU.
    fn set_link(&mut self, index: u32, up: Option<bool>, mtu: Option<u32>) -> io::Result<()> {
        let mut refusal = None;
        self.socket.request(
            &[()],
            |(), out, seq| write_link_change(out, seq, index, up, mtu),
            |_, refused| refusal = Some(refused),
        )?;
        match refusal {
            None => Ok(()),
            Some(refusal) => {
                self.events.push(format!("the kernel refuses a change of netdev {index}: {}", refusal.text));
                Err(io::Error::from_raw_os_error(refusal.errno))
            }
        }
    }

    fn kind(&self, oid: Oid) -> Option<ObjectType> {
        self.model.kind(oid)
    }

    /// Executes `verb` on one object that the kernel has a part of.
    fn one_object(&mut self, verb: Verb, object: ObjectType, item: &mut Item) -> Status {
        match verb {
            Verb::Create => self.create(object, item),
            Verb::Set => self.set(object, item),
            Verb::Remove => self.remove(object, item),
        }
    }

    fn create(&mut self, object: ObjectType, item: &mut Item) -> Status {
        let before = self.model.last_number();
        if let Err(status) = self.check_kind(object, &item.attrs) {
            return status;
        }
        let done = self.model.one(Verb::Create, object, item);
        let (true, Some(oid)) = (done.is_success(), item.id.oid()) else { return done };
        let in_kernel = match object {
            ObjectType::NextHop | ObjectType::NextHopGroup => self.add_next_hop(oid),
            ObjectType::RouterInterface if self.has_port(oid) => {
                let mtu =
                    item.attrs.iter().find_map(|a| if let Attr::RifMtu(mtu) = a { Some(*mtu) } else { None });
                let mtu = match (mtu, self.netdev_of(oid)) {
                    (Some(mtu), Some(index)) => {
                        self.set_link(index, None, Some(mtu)).map_err(|e| status::of_error(&e))
                    }
                    _ => Ok(()),
                };
                mtu.and_then(|()| self.add_next_hop(oid))
            }
            _ => Ok(()),
        };
        let Err(status) = in_kernel else { return done };
        self.model.one(Verb::Remove, object, &mut Item::bare(oid));
        self.model.number_after(before);
        item.id = ObjectId::Oid(Oid::NULL);
        status
    }

    fn has_port(&self, rif: Oid) -> bool {
        self.model.attribute(rif, |a| matches!(a, Attr::RifPort(_)).then_some(())).is_some()
    }

    fn remove(&mut self, object: ObjectType, item: &mut Item) -> Status {
        let switch = object == ObjectType::Switch;
        let done = self.model.one(Verb::Remove, object, item);
        let (true, Some(oid)) = (done.is_success(), item.id.oid()) else { return done };
        let deleted = if switch { self.empty() } else { self.forget_next_hop(oid) };
        if let Err(e) = deleted {
            // No route uses it; the comparison deletes it.
            self.lose(&e);
        }
        done
    }

    fn forget_next_hop(&mut self, oid: Oid) -> io::Result<()> {
        self.next_hops.forget(oid);
        self.delete_unused()
    }

    /// Deletes everything of the chip from the kernel, behind the model.
    fn empty(&mut self) -> io::Result<()> {
        self.settled = true;
        self.next_hops = NextHops::new(self.settings.protocol);
        self.next_hops.objects.keep = false;
        self.compare().map(drop)
    }

    fn set(&mut self, object: ObjectType, item: &mut Item) -> Status {
        let Some(oid) = item.id.oid() else { return self.model.one(Verb::Set, object, item) };
        let old: Attrs = item
            .attrs
            .iter()
            .filter_map(|new| self.model.attribute(oid, |old| old.same_kind(new).then(|| old.clone())))
            .collect();
        let done = self.model.one(Verb::Set, object, item);
        if !done.is_success() {
            return done;
        }
        let Err(e) = self.set_in_kernel(object, oid, &item.attrs) else { return done };
        for attr in old {
            self.model.one(Verb::Set, object, &mut Item::new(oid, [attr]));
        }
        status::of_error(&e)
    }

    fn set_in_kernel(&mut self, object: ObjectType, oid: Oid, attrs: &[Attr]) -> io::Result<()> {
        for attr in attrs {
            match (object, attr) {
                (ObjectType::Port, Attr::PortAdminState(up)) => {
                    let index = self.model.port_name(oid).and_then(|name| self.netdevs.index(name));
                    if let Some(index) = index {
                        self.set_link(index, Some(*up), None)?;
                    }
                }
                (ObjectType::RouterInterface, Attr::RifMtu(mtu)) => {
                    if let Some(index) = self.netdev_of(oid) {
                        self.set_link(index, None, Some(*mtu))?;
                    }
                }
                (ObjectType::NextHopGroupMember, Attr::MemberWeight(_)) => {
                    if let Some(group) = self.group_of(oid) {
                        self.refresh(group);
                        self.write_next_hops()?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn group_of(&self, member: Oid) -> Option<Oid> {
        self.model.attribute(member, |a| if let Attr::MemberGroup(group) = a { Some(*group) } else { None })
    }

    /// Creates or removes members: each group changes once.
    fn members(&mut self, verb: Verb, items: &mut [Item], statuses: &mut Vec<Status>) {
        let first = statuses.len();
        let mut groups: Vec<Option<Oid>> =
            items.iter().map(|item| item.id.oid().and_then(|oid| self.group_of(oid))).collect();
        let object = ObjectType::NextHopGroupMember;
        self.model.bulk(verb, object, items, ErrorMode::IgnoreError, statuses);
        if verb == Verb::Create {
            let of = |item: &Item| item.id.oid().and_then(|oid| self.group_of(oid));
            groups = items.iter().map(of).collect();
        }
        let mut changed: Vec<Oid> = groups.iter().copied().flatten().collect();
        changed.sort_unstable();
        changed.dedup();
        changed.iter().for_each(|group| self.refresh(*group));
        self.next_hops.unacceptable.clear();
        let written = self.write_next_hops();
        if let Err(e) = &written {
            self.lose(e);
        }
        if verb == Verb::Remove {
            return;
        }
        let failed = |group: &Oid| written.is_err() || self.next_hops.unacceptable.contains(group);
        let failed: Vec<Oid> = changed.iter().copied().filter(failed).collect();
        if failed.is_empty() {
            return;
        }
        let all = items.iter_mut().zip(&groups).zip(statuses.iter_mut().skip(first));
        for ((item, group), status) in all {
            if status.is_success() && group.is_some_and(|group| failed.contains(&group)) {
                self.model.one(Verb::Remove, object, item);
                item.id = ObjectId::Oid(Oid::NULL);
                *status = Status::InsufficientResources;
            }
        }
        failed.iter().for_each(|group| self.refresh(*group));
        if let Err(e) = self.write_next_hops() {
            self.lose(&e);
        }
    }

    /// Executes requests in mode [`ErrorMode::IgnoreError`].
    fn execute(&mut self, verb: Verb, object: ObjectType, items: &mut [Item], statuses: &mut Vec<Status>) {
        match (object, verb) {
            (ObjectType::RouteEntry, _) => self.bulk_of_routes(verb, items, statuses),
            (ObjectType::NextHopGroupMember, Verb::Create | Verb::Remove) => {
                self.members(verb, items, statuses)
            }
            _ => {
                for item in items {
                    statuses.push(match object {
                        ObjectType::NeighborEntry => self.neighbor(verb, item),
                        ObjectType::InsegEntry => match self.check_kind(object, &item.attrs) {
                            Err(status) => status,
                            Ok(()) => self.model.one(verb, object, item),
                        },
                        _ => self.one_object(verb, object, item),
                    });
                }
            }
        }
    }
}

/// A socket that may change routes.
fn open_socket() -> io::Result<Socket> {
    let cannot = |e: io::Error| {
        io::Error::new(e.kind(), format!("the kernel's routing socket (netlink) cannot be used: {e}"))
    };
    let mut socket = Socket::open().map_err(cannot)?;
    let mut answer = None;
    // Object 0 cannot exist, so this changes nothing, and fails without the permission.
    socket
        .request(
            &[()],
            |(), out, seq| write_next_hop_delete(out, 0, 0, seq),
            |_, refused| answer = Some(refused),
        )
        .map_err(cannot)?;
    match answer.map(|refusal| refusal.errno) {
        Some(libc::EPERM | libc::EACCES) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the kernel as the chip needs the capability CAP_NET_ADMIN; run syncd as root or give it the capability",
        )),
        Some(libc::EOPNOTSUPP) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no next-hop objects, which the kernel as the chip needs (Linux 5.3)",
        )),
        _ => Ok(socket),
    }
}

impl Sai for KernelChip {
    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: &mut [Item],
        mode: ErrorMode,
        statuses: &mut Vec<Status>,
    ) {
        if mode == ErrorMode::IgnoreError || items.len() == 1 {
            return self.execute(verb, object, items, statuses);
        }
        // The kernel goes on behind an error, so each entry has its turn.
        let mut stopped = false;
        for item in items.chunks_mut(1) {
            if stopped {
                statuses.push(Status::NotExecuted);
                continue;
            }
            self.execute(verb, object, item, statuses);
            stopped = statuses.last().is_some_and(|status| !status.is_success());
        }
    }

    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        self.model.get(object, id, attrs)
    }

    fn port_states(&mut self) -> Vec<PortState> {
        self.model.port_states()
    }

    fn report_all_ports(&mut self) {
        self.model.report_all_ports();
    }

    fn fdb_events(&mut self) -> Vec<FdbEvent> {
        self.model.fdb_events()
    }

    fn available(&mut self, object: ObjectType, attrs: &[Attr]) -> Result<u64, Status> {
        self.model.available(object, attrs)
    }

    fn entry(&mut self, verb: Verb, object: ObjectType, key: &RawText, attrs: &[Attr]) -> Result<(), Status> {
        self.model.entry(verb, object, key, attrs)
    }

    fn get_entry(&mut self, object: ObjectType, key: &RawText, attrs: &mut [Attr]) -> Result<(), Status> {
        self.model.get_entry(object, key, attrs)
    }

    fn query(&mut self, query: &Query) -> QueryReply {
        self.model.query(query)
    }

    fn own_objects(&mut self, switch: Oid) -> Vec<(ObjectType, Oid)> {
        self.model.own_objects(switch)
    }

    fn object_type(&mut self, rid: Oid) -> Option<ObjectType> {
        self.model.object_type(rid)
    }
}
