//! Packets of the virtual switch: its ports are netdevs, and its host interfaces are tap devices, as
//! those of SONiC's virtual switch (sonic-sairedis `vslib/SwitchStateBaseHostif.cpp`).
//!
//! One thread reads all devices. The stage of syncd forwards the frames and writes them, so a packet sees the
//! tables as they are, and no table needs a lock. A full queue drops the newest frames, as a chip does, and
//! counts them.

mod device;
mod room;

use super::links::{self, Carrier, LinkEvent};
use super::{Daemon, Error};
use crossbeam_channel::Select;
use device::{Buffer, Device, Segments};
use ribtide_prefix::Map;
use ribtide_runtime::clock::Clock;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, TrySend};
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_swss::sai::Oid;
use ribtide_vswitch::{Frame, HostInterface, Interface, VirtualSwitch};
use room::Room;
use rustix::event::epoll;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Batches in the queue to syncd at most.
const ARRIVALS: usize = 64;
/// Frames of a device in one batch at most, so that each has its turn.
const BATCH_MAX: usize = 64;
/// Batches between two looks for requests.
const TURN: usize = 4;
/// Events of the kernel in one read.
const EVENTS: usize = 64;
/// How often a tap device whose name is in use is tried again, and the pause before.
const TAP_ATTEMPTS: usize = 50;
const TAP_PAUSE: Duration = Duration::from_millis(1);

/// A frame that came.
struct Arrival {
    /// The number of its device.
    device: u64,
    frame: Vec<u8>,
    segments: Option<Segments>,
}

/// The devices that the reader reads, by number.
struct Devices {
    epoll: OwnedFd,
    all: Mutex<Map<u64, Arc<Device>>>,
    /// The room of the frames that wait for syncd.
    room: Room,
}

impl Devices {
    fn all(&self) -> MutexGuard<'_, Map<u64, Arc<Device>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: u64, device: &Arc<Device>) -> io::Result<()> {
        self.all().insert(number, device.clone());
        epoll::add(&self.epoll, device, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        Ok(())
    }

    fn remove(&self, number: u64) {
        if let Some(device) = self.all().remove(&number) {
            // A device that is gone has left already.
            let _ = epoll::delete(&self.epoll, &device);
        }
    }
}

/// A netdev with the device that reads it.
struct Opened {
    number: u64,
    device: Arc<Device>,
}

/// The packets of syncd's virtual switch.
pub struct PacketPath {
    devices: Arc<Devices>,
    arrivals: ring::Receiver<Vec<Arrival>>,
    links: ring::Receiver<LinkEvent>,
    /// The ports' netdevs by name; `None`: it does not exist.
    ports: BTreeMap<String, Option<(u32, Opened)>>,
    /// The host interfaces, with whether each has a carrier. `None`: the system refused it.
    hosts: BTreeMap<Oid, (HostInterface, Option<Opened>)>,
    /// What each device is, and the device of each interface.
    interfaces: Map<u64, Interface>,
    of: Map<Interface, Arc<Device>>,
    /// [`VirtualSwitch::host_interface_changes`] at the last look.
    seen: Option<u64>,
    clock: Clock,
    /// When learned addresses may be too old.
    next_aging: Option<u64>,
    numbers: u64,
}

impl PacketPath {
    /// Starts to read the netdevs of `ports`, as they come.
    ///
    /// # Errors
    /// A sentence: the system gives no thread or descriptor, or does not list its interfaces.
    pub(super) fn start(
        ports: impl IntoIterator<Item = String>,
        switch: &mut VirtualSwitch,
        daemon: &Daemon,
    ) -> Result<PacketPath, Error> {
        let failed = |e: io::Error| Error::System(format!("cannot read the packets of ports: {e}"));
        let (now, links) = links::watch(daemon.name, &daemon.rings, &daemon.stop)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let devices = Arc::new(Devices { epoll, all: Mutex::default(), room: Room::default() });
        let (tx, arrivals) = daemon.rings.bounded("packets to syncd", ARRIVALS);
        let (reader, wait, stop) =
            (devices.clone(), WaitFd::new(&daemon.stop).map_err(failed)?, daemon.stop.clone());
        thread::spawn("packets", move || read(&reader, &wait, &tx, &stop)).map_err(failed)?;
        let ports: BTreeMap<_, _> = ports.into_iter().map(|name| (name, None)).collect();
        ports.keys().for_each(|name| switch.set_carrier(name, false));
        let mut path = PacketPath {
            devices,
            arrivals,
            links,
            ports,
            hosts: BTreeMap::new(),
            interfaces: Map::default(),
            of: Map::default(),
            seen: None,
            clock: Clock::default(),
            next_aging: None,
            numbers: 0,
        };
        now.into_iter().for_each(|event| path.link(event, switch));
        for (name, _) in path.ports.iter().filter(|(_, opened)| opened.is_none()) {
            tracing::warn!(target: target::SYNCD, port = name, "the port has no netdev of its name; it has a link once there is one");
        }
        Ok(path)
    }

    /// Makes `select` ready when there is something to do.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.arrivals.watch(select);
        self.links.watch(select);
    }

    /// When there is something to do without a frame or a change.
    pub(super) fn until(&self) -> Option<Instant> {
        self.next_aging.map(|at| Instant::now() + self.clock.until(at))
    }

    /// Takes in changes of links, follows the host interfaces, and forwards some of the frames that wait.
    pub(super) fn step(&mut self, switch: &mut VirtualSwitch) {
        while let Some(event) = self.links.try_recv() {
            self.link(event, switch);
        }
        if self.seen != Some(switch.host_interface_changes()) {
            self.follow(switch);
        }
        self.next_aging = switch.tick(self.clock.now());
        for _ in 0..TURN {
            let Some(batch) = self.arrivals.try_recv() else { break };
            for arrival in batch {
                self.forward(&arrival, switch);
                self.devices.room.give_back(arrival.frame.len());
            }
        }
        for (device, count) in self.devices.room.take_missed() {
            if let Some(from) = self.interfaces.get(&device) {
                switch.count_missed(*from, count);
            }
        }
    }

    fn forward(&self, arrival: &Arrival, switch: &mut VirtualSwitch) {
        let Some(from) = self.interfaces.get(&arrival.device) else { return };
        let Arrival { frame, segments, .. } = arrival;
        let longest = segments.map_or(frame.len(), |segments| segments.longest(frame));
        let mut unsent = 0;
        switch.packet(*from, Frame { bytes: frame, longest }, &mut |to, out| {
            let segments = match segments {
                None => None,
                Some(segments) => match segments.moved(frame.len(), out.len()) {
                    None => return,
                    moved => moved,
                },
            };
            // A full device loses it, as a wire does.
            if self.of.get(&to).is_some_and(|device| device.send(out, segments).is_err()) {
                unsent += 1;
            }
        });
        if unsent > 0 {
            switch.count_unsent(unsent);
        }
    }

    /// Takes in an event of a netdev.
    fn link(&mut self, event: LinkEvent, switch: &mut VirtualSwitch) {
        let (index, now) = match event {
            LinkEvent::Named(index, name, carrier) => (index, Some((name, carrier))),
            LinkEvent::Gone(index) => (index, None),
        };
        let is_it = |name: &str| now.as_ref().is_some_and(|(now, _)| now == name);
        let former = self
            .ports
            .iter_mut()
            .find(|(name, opened)| opened.as_ref().is_some_and(|(of, _)| *of == index) && !is_it(name));
        if let Some((name, opened)) = former {
            if let Some((_, opened)) = opened.take() {
                self.devices.remove(opened.number);
            }
            switch.set_carrier(name, false);
            self.seen = None;
        }
        let Some((name, carrier)) = now else { return };
        let Some(opened) = self.ports.get_mut(&name) else { return };
        if opened.as_ref().is_none_or(|(of, _)| *of != index) {
            if let Some((_, opened)) = opened.take() {
                self.devices.remove(opened.number);
            }
            let device = open(&self.devices, &mut self.numbers, || Device::port(index));
            match device {
                Ok(device) => {
                    silence(&name);
                    *opened = Some((index, device));
                }
                Err(e) => {
                    let cure = "syncd needs CAP_NET_RAW";
                    tracing::warn!(target: target::SYNCD, port = name, error = %e, cure, "the netdev of a port cannot be read");
                }
            }
            self.seen = None;
        }
        switch.set_carrier(&name, carrier == Carrier::Up && opened.is_some());
    }

    /// Makes and removes tap devices, so that each host interface has one, and gives each its carrier.
    fn follow(&mut self, switch: &VirtualSwitch) {
        self.seen = Some(switch.host_interface_changes());
        let wanted: BTreeMap<Oid, HostInterface> =
            switch.host_interfaces().into_iter().map(|interface| (interface.oid, interface)).collect();
        // A tap lives while a descriptor of it is open, and a new one may have its name.
        self.interfaces.clear();
        self.of.clear();
        let same =
            |one: &HostInterface, other: &HostInterface| one.name == other.name && one.mac == other.mac;
        self.hosts.retain(|oid, (had, opened)| {
            let stays = wanted.get(oid).is_some_and(|wanted| same(had, wanted));
            if let Some(opened) = opened.as_ref().filter(|_| !stays) {
                self.devices.remove(opened.number);
            }
            stays
        });
        for (oid, wanted) in wanted {
            let (had, opened) = self.hosts.entry(oid).or_insert_with(|| {
                let made = open(&self.devices, &mut self.numbers, || open_tap(&wanted));
                let opened = made.inspect_err(|e| {
                    let cure = "syncd needs CAP_NET_ADMIN and /dev/net/tun, and no other netdev of this name";
                    tracing::warn!(target: target::SYNCD, name = &*wanted.name, error = %e, cure, "the netdev of a host interface cannot be made");
                });
                // A new tap has a carrier.
                (HostInterface { up: true, ..wanted.clone() }, opened.ok())
            });
            if had.up != wanted.up
                && let Some(opened) = opened
                && opened.device.set_carrier(wanted.up).is_err()
            {
                tracing::debug!(target: target::SYNCD, name = &*wanted.name, "the kernel does not take the carrier of a tap device");
            }
            had.up = wanted.up;
        }
        let ports = switch.front_panel().into_iter().filter_map(|(oid, name)| {
            let (_, opened) = self.ports.get(&*name)?.as_ref()?;
            Some((Interface::Port(oid), opened))
        });
        let hosts = self
            .hosts
            .iter()
            .filter_map(|(oid, (_, opened))| Some((Interface::Host(*oid), opened.as_ref()?)));
        for (interface, Opened { number, device }) in ports.chain(hosts) {
            self.interfaces.insert(*number, interface);
            self.of.insert(interface, device.clone());
        }
    }
}

/// Keeps this host from answering at the netdev of a port, where the switch does: the kernel answers ARP
/// for an address of any of its interfaces, and gives each interface an IPv6 address.
fn silence(port: &str) {
    for (family, name, value) in [("ipv4", "arp_ignore", "8"), ("ipv6", "disable_ipv6", "1")] {
        let path = format!("/proc/sys/net/{family}/conf/{port}/{name}");
        if let Err(e) = std::fs::write(&path, value) {
            let cure = format!("set it to {value}, or hosts may learn the MAC address of {port}");
            tracing::warn!(target: target::SYNCD, path, error = %e, cure, "a setting of a port's netdev cannot be changed");
        }
    }
}

/// Makes a tap device. The reader may hold a former one of its name for a moment.
fn open_tap(wanted: &HostInterface) -> io::Result<Device> {
    let mut attempts = 0;
    loop {
        match Device::tap(&wanted.name, wanted.mac.0) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && attempts < TAP_ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(TAP_PAUSE);
            }
            made => return made,
        }
    }
}

/// Opens a device, and lets the reader read it.
fn open(
    devices: &Devices,
    numbers: &mut u64,
    open: impl FnOnce() -> io::Result<Device>,
) -> io::Result<Opened> {
    let device = Arc::new(open()?);
    *numbers += 1;
    let number = *numbers;
    devices.add(number, &device).inspect_err(|_| devices.remove(number))?;
    Ok(Opened { number, device })
}

/// Whether a device will give nothing any more: its netdev is gone.
fn is_gone(error: &io::Error) -> bool {
    [Errno::NODEV, Errno::NXIO, Errno::BADFD, Errno::BADF]
        .iter()
        .any(|gone| error.raw_os_error() == Some(gone.raw_os_error()))
}

/// Reads every device until `stop`.
fn read(devices: &Devices, wait: &WaitFd, arrivals: &ring::Sender<Vec<Arrival>>, stop: &Stop) -> Ended {
    let (mut buffer, mut events) = (Buffer::new(), Vec::with_capacity(EVENTS));
    let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    while !stop.stopped() {
        if let Err(e) = wait.wait(&devices.epoll, Duration::MAX) {
            tracing::error!(target: target::SYNCD, error = %e, "packets cannot be waited for");
            return Ended::at_stop(stop);
        }
        events.clear();
        let _ = epoll::wait(&devices.epoll, rustix::buffer::spare_capacity(&mut events), Some(&none));
        for event in &events {
            let number = event.data.u64();
            let Some(device) = devices.all().get(&number).cloned() else { continue };
            let mut batch = Vec::new();
            for _ in 0..BATCH_MAX {
                match device.receive(&mut buffer) {
                    Ok((frame, segments)) => {
                        if devices.room.take(frame.len()) {
                            batch.push(Arrival { device: number, frame: frame.to_vec(), segments });
                        } else {
                            devices.room.miss(number, 1);
                        }
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    // The socket says so once, when its netdev is switched off.
                    Err(e) if e.kind() == io::ErrorKind::NetworkDown => {}
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) if is_gone(&e) => {
                        tracing::warn!(target: target::SYNCD, error = %e, "a netdev is gone");
                        devices.remove(number);
                        break;
                    }
                    // A frame that the kernel cannot hand over, such as segments of a protocol that virtio does not name. It is lost.
                    Err(e) => tracing::debug!(target: target::SYNCD, error = %e, "a frame cannot be read"),
                }
            }
            if batch.is_empty() {
                continue;
            }
            match arrivals.try_send(batch) {
                Ok(()) => {}
                Err(TrySend::Full(batch)) => {
                    batch.iter().for_each(|arrival| devices.room.give_back(arrival.frame.len()));
                    devices.room.miss(number, batch.len() as u64);
                }
                Err(TrySend::Closed(closed)) => return closed.into(),
            }
        }
    }
    Ended::at_stop(stop)
}
