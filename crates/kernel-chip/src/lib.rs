//! The Linux kernel as a chip: an implementation of [`ribtide_swss::sai::Sai`] over netlink, in the place of a vendor's SAI
//! library, so that SONiC's route path forwards on a server.
//!
//! The objects of the [virtual switch](ribtide_vswitch) are the model: references, attributes, statuses,
//! and every object type that the kernel does not forward by. Behind it are routes, next hops, groups,
//! neighbours, states and MTUs of netdevs in the kernel of this network namespace. A port is the netdev
//! of its name. What the kernel refuses is not in the model either.
#![forbid(unsafe_code)]

mod links;
mod neighbors;
mod netdevs;
mod next_hops;
mod routes;
mod status;
mod watch;

use netdevs::Netdevs;
use next_hops::NextHops;
use ribtide_netlink::{Socket, Sockets, overran};
use ribtide_prefix::{AnyPrefix, Map, Set};
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wake_up::WakeUp;
use ribtide_swss::sai::notification::{FdbEvent, PortState};
use ribtide_swss::sai::{
    Attr, Attrs, ErrorMode, Item, ObjectId, ObjectType, Oid, Query, QueryReply, RawText, Sai, Status, Verb,
};
use ribtide_vswitch::{Behavior, Limits, PortSetup, VirtualSwitch};
use ribtide_wire::netlink::write_next_hop_delete;
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
    /// The metric of routes. One of 0 does not exist for IPv6. IPv6 routes of a prefix that the kernel has as a
    /// connected one have 256 more.
    pub metric: u32,
}

impl Default for Settings {
    /// The main table, before the routes of BGP daemons (20).
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
    sockets: Sockets,
    socket: Socket,
    netdevs: Netdevs,
    /// Whether each port shall be switched on. One without a request stays as it is.
    enabled: Map<Oid, bool>,
    next_hops: NextHops,
    /// Routes that an earlier syncd left, and that no request has named yet.
    found: Set<AnyPrefix>,
    /// The IPv6 prefixes that the kernel has as connected ones.
    connected: Set<AnyPrefix>,
    /// Whether everything that is wanted was requested, so that the rest can go.
    settled: bool,
    /// Whether something in the kernel may differ from the model.
    doubt: bool,
    /// Whether the socket shall be opened again.
    failed: bool,
    /// Whether an event says that replies are lost, since the last complete comparison.
    loss_reported: bool,
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
        KernelChip::with_sockets(ports, settings, limits, Sockets::default())
    }

    /// As [`KernelChip::open`], of the kernel that these sockets reach.
    ///
    /// # Errors
    /// As [`KernelChip::open`].
    pub fn with_sockets(
        ports: Vec<PortSetup>,
        settings: Settings,
        limits: Limits,
        sockets: Sockets,
    ) -> io::Result<KernelChip> {
        let mut socket = open_socket(&sockets)?;
        let links = links::dump(&mut socket)?;
        let mut model = VirtualSwitch::new(ports.clone(), Behavior { limits, ..Behavior::default() });
        let mut netdevs = Netdevs::default();
        for link in &links {
            let _ = netdevs.set(link);
        }
        for port in &ports {
            let up = netdevs.index(&port.name).is_some_and(|index| netdevs.is_up(index));
            model.set_carrier(&port.name, up);
        }
        let mut chip = KernelChip {
            model,
            settings,
            sockets,
            socket,
            netdevs,
            enabled: Map::default(),
            next_hops: NextHops::new(settings.protocol),
            found: Set::default(),
            connected: Set::default(),
            settled: false,
            doubt: false,
            failed: false,
            loss_reported: false,
            notes: None,
            port: None,
            events: Vec::new(),
            repaired: 0,
            buffers: routes::Buffers::default(),
        };
        chip.next_hops.objects.check(&mut chip.socket)?;
        chip.find_routes()?;
        chip.connected = chip.dump_connected()?;
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
        self.compare()?;
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
        // A failure after this sets it again.
        self.doubt = false;
        let mut differing = self.read_links()?;
        self.next_hops.objects.check(&mut self.socket)?;
        // Whatever the objects were set to, a change before may have been left half way.
        self.refresh_all();
        let accepted = self.next_hops.objects.accepted;
        self.write_next_hops()?;
        differing += (self.next_hops.objects.accepted - accepted) as usize;
        self.connected = self.dump_connected()?;
        if self.settled {
            differing += self.compare_routes()?;
            differing += self.compare_neighbors(|_| true)?;
            self.next_hops.objects.sweep(&mut self.socket)?;
            self.delete_unused()?;
        }
        self.loss_reported &= self.doubt;
        Ok(differing)
    }

    /// Takes in what happened in the kernel. Returns whether it could not be brought to what was requested, so that the
    /// caller calls again after a pause.
    pub fn serve(&mut self) -> bool {
        let notes: Vec<Note> = match &self.notes {
            Some(notes) => std::iter::from_fn(|| notes.try_recv()).take(NOTES_BATCH).collect(),
            None => Vec::new(),
        };
        if !notes.is_empty()
            && let Err(e) = self.heard(&notes)
        {
            self.lose(&e);
        }
        if self.failed {
            match open_socket(&self.sockets) {
                Ok(socket) => {
                    (self.socket, self.failed) = (socket, false);
                    if let Some(port) = &self.port {
                        port.store(self.socket.port(), Ordering::Relaxed);
                    }
                }
                Err(e) => self.lose(&e),
            }
        }
        if self.doubt && !self.failed {
            match self.compare() {
                Ok(0) => {}
                Ok(count) => self.note_repairs(count),
                Err(e) => self.lose(&e),
            }
        }
        self.doubt
    }

    /// Takes in notes. One that fails keeps no other from being taken in.
    fn heard(&mut self, notes: &[Note]) -> io::Result<()> {
        let (mut prefixes, mut neighbors) = (Set::default(), Set::default());
        let (mut objects, mut links, mut connected) = (false, false, false);
        let ours: Set<(u32, IpAddr)> = match notes.iter().any(|note| matches!(note, Note::Neighbor { .. })) {
            true => {
                self.model.neighbors().filter_map(|(rif, ip, _)| Some((self.netdev_of(rif)?, ip))).collect()
            }
            false => Set::default(),
        };
        for note in notes {
            let taken = match note {
                Note::Link(link) => {
                    links |= self.differs(link);
                    self.link(link)
                }
                Note::LinkGone(index) => self.link_gone(*index),
                Note::NextHops => {
                    objects = true;
                    Ok(())
                }
                Note::Route(prefix, metric) => {
                    if *metric == self.metric_of(*prefix) {
                        prefixes.insert(*prefix);
                    }
                    Ok(())
                }
                Note::Connected => {
                    connected = true;
                    Ok(())
                }
                // The kernel itself learns and forgets others all the time.
                Note::Neighbor { index, ip, marked } => {
                    if *marked || ours.contains(&(*index, *ip)) {
                        neighbors.insert(*index);
                    }
                    Ok(())
                }
                Note::Lost => {
                    self.doubt = true;
                    Ok(())
                }
            };
            if let Err(e) = taken {
                self.lose(&e);
            }
        }
        if self.doubt {
            // The comparison does all that follows.
            return Ok(());
        }
        let mut repaired = 0;
        if links {
            repaired += self.read_links()?;
        }
        if objects {
            self.next_hops.objects.check(&mut self.socket)?;
            self.refresh_refused();
            let accepted = self.next_hops.objects.accepted;
            self.write_next_hops()?;
            repaired += (self.next_hops.objects.accepted - accepted) as usize;
        }
        if connected {
            self.follow_connected()?;
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
        if !std::mem::replace(&mut self.loss_reported, true) {
            self.events
                .push(format!("replies of the kernel are lost ({e}); it is compared with the requests"));
        }
    }

    /// As [`KernelChip::lose`]. Returns the status of the request.
    fn lost(&mut self, e: &io::Error) -> Status {
        self.lose(e);
        status::of_error(e)
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
                    (Some(mtu), Some(index)) => self.set_link(index, None, Some(mtu)),
                    _ => Ok(()),
                };
                mtu.and_then(|()| self.add_next_hop(oid))
            }
            ObjectType::Port => item.attrs.iter().try_for_each(|attr| match attr {
                Attr::PortAdminState(up) => self.enable(oid, *up),
                _ => Ok(()),
            }),
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
        self.enabled.remove(&oid);
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
        self.enabled.clear();
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
        let Err(status) = self.set_in_kernel(object, oid, &item.attrs) else { return done };
        for attr in old {
            self.model.one(Verb::Set, object, &mut Item::new(oid, [attr]));
        }
        if let Some(group) = self.group_of(oid) {
            self.refresh(group);
        }
        status
    }

    fn set_in_kernel(&mut self, object: ObjectType, oid: Oid, attrs: &[Attr]) -> Result<(), Status> {
        for attr in attrs {
            match (object, attr) {
                (ObjectType::Port, Attr::PortAdminState(up)) => self.enable(oid, *up)?,
                (ObjectType::RouterInterface, Attr::RifMtu(mtu)) => {
                    if let Some(index) = self.netdev_of(oid) {
                        self.set_link(index, None, Some(*mtu))?;
                    }
                }
                (ObjectType::NextHopGroupMember, Attr::MemberWeight(_)) => {
                    if let Some(group) = self.group_of(oid) {
                        self.refresh(group);
                        self.write_next_hops().map_err(|e| self.lost(&e))?;
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
fn open_socket(sockets: &Sockets) -> io::Result<Socket> {
    let cannot = |e: io::Error| {
        io::Error::new(e.kind(), format!("the kernel's routing socket (netlink) cannot be used: {e}"))
    };
    let mut socket = sockets.open().map_err(cannot)?;
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

#[cfg(test)]
mod tests;
