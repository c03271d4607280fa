//! Requests whose socket fails: a kernel that accepts everything, until its sockets break.

use super::*;
use ribtide_netlink::{SimulatedKernel, SimulatedPeer};
use ribtide_swss::sai::{GroupType, NextHopType, RifType};
use ribtide_wire::netlink::numbers::{NLM_F_ACK, NLM_F_DUMP, NLMSG_DONE, NLMSG_ERROR};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

#[derive(Default)]
struct State {
    opened: usize,
    /// Whether each open socket fails.
    broken: bool,
}

/// A kernel without netdevs.
#[derive(Clone, Default)]
struct Yes(Arc<Mutex<State>>);

struct Peer {
    kernel: Yes,
    replies: VecDeque<Vec<u8>>,
}

impl SimulatedKernel for Yes {
    fn open(&self) -> io::Result<Box<dyn SimulatedPeer>> {
        let mut state = self.0.lock().unwrap();
        state.opened += 1;
        state.broken = false;
        Ok(Box::new(Peer { kernel: self.clone(), replies: VecDeque::new() }))
    }

    fn monitor(&self, _: &[u32]) -> io::Result<Box<dyn SimulatedPeer>> {
        Err(io::Error::other("no notifications"))
    }
}

impl SimulatedPeer for Peer {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.kernel.0.lock().unwrap().broken {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let mut rest = bytes;
        while let Some((head, _)) = rest.split_first_chunk::<16>() {
            let length = u32::from_ne_bytes(head[..4].try_into().unwrap()) as usize;
            let flags = u16::from_ne_bytes(head[6..8].try_into().unwrap());
            let kind = match (flags & NLM_F_DUMP == NLM_F_DUMP, flags & NLM_F_ACK != 0) {
                (true, _) => Some(NLMSG_DONE),
                (false, true) => Some(NLMSG_ERROR),
                (false, false) => None,
            };
            if let Some(kind) = kind {
                let mut reply = 36u32.to_ne_bytes().to_vec();
                reply.extend(kind.to_ne_bytes());
                reply.extend(0u16.to_ne_bytes());
                reply.extend(&head[8..12]);
                reply.extend(7u32.to_ne_bytes());
                // No error, and the header of the request.
                reply.extend(0u32.to_ne_bytes());
                reply.extend(head);
                self.replies.push_back(reply);
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(())
    }

    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let reply = self.replies.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        into[..reply.len()].copy_from_slice(&reply);
        Ok(reply.len())
    }

    fn leave_out(&mut self, _: u32) {}

    fn wait(&mut self, _: Duration) -> bool {
        false
    }
}

fn make(chip: &mut KernelChip, object: ObjectType, attrs: impl IntoIterator<Item = Attr>) -> (Status, Oid) {
    let mut item = Item::new(Oid::NULL, attrs);
    let status = chip.one(Verb::Create, object, &mut item);
    (status, item.id.oid().unwrap())
}

fn set_netdevs(chip: &mut KernelChip, ports: &[PortSetup]) {
    for (index, port) in (5..).zip(ports) {
        chip.netdevs.set(&netdevs::LinkState { index, name: port.name.to_string(), flags: 0, mtu: 1500 });
    }
}

/// Each of these requests fails with its socket: the client has a status, the model is as before, and the chip opens
/// another socket and compares the kernel with the model.
#[test]
fn request_whose_socket_fails_is_followed_by_a_comparison() {
    let kernel = Yes::default();
    let ports: Vec<PortSetup> = PortSetup::usual().into_iter().take(2).collect();
    let sockets = Sockets::simulated(Arc::new(kernel.clone()));
    let mut chip =
        KernelChip::with_sockets(ports.clone(), Settings::default(), Limits::default(), sockets).unwrap();
    set_netdevs(&mut chip, &ports);
    let (status, switch) =
        make(&mut chip, ObjectType::Switch, [Attr::raw("SAI_SWITCH_ATTR_INIT_SWITCH", "true")]);
    assert_eq!(status, Status::Success);
    let vr = chip.model.default_router().unwrap();
    let own = chip.model.own_objects(switch);
    let is_front =
        |(_, oid): &&(ObjectType, Oid)| chip.model.port_name(*oid).is_some_and(|name| name == &ports[0].name);
    let port = own.iter().find(is_front).unwrap().1;
    let rif =
        [Attr::RifVirtualRouter(vr), Attr::RifKind(RifType::Port), Attr::RifPort(port), Attr::RifMtu(9100)];
    let attrs = rif.clone();
    let (status, rif_oid) = make(&mut chip, ObjectType::RouterInterface, attrs);
    assert_eq!(status, Status::Success);
    let hop = [
        Attr::NextHopKind(NextHopType::Ip),
        Attr::NextHopIp("10.0.0.2".parse().unwrap()),
        Attr::NextHopRif(rif_oid),
    ];
    let (status, hop_oid) = make(&mut chip, ObjectType::NextHop, hop.clone());
    assert_eq!(status, Status::Success);
    let group = [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)];
    let (_, group_oid) = make(&mut chip, ObjectType::NextHopGroup, group.clone());
    let member = [Attr::MemberGroup(group_oid), Attr::MemberNextHop(hop_oid), Attr::MemberWeight(1)];
    let (status, member_oid) = make(&mut chip, ObjectType::NextHopGroupMember, member.clone());
    assert_eq!(status, Status::Success);
    let other_hop = [
        Attr::NextHopKind(NextHopType::Ip),
        Attr::NextHopIp("10.0.0.3".parse().unwrap()),
        Attr::NextHopRif(rif_oid),
    ];
    let requests = [
        (Verb::Create, ObjectType::NextHop, Item::new(Oid::NULL, other_hop)),
        (Verb::Create, ObjectType::NextHopGroup, Item::new(Oid::NULL, group)),
        (Verb::Set, ObjectType::RouterInterface, Item::new(rif_oid, [Attr::RifMtu(1400)])),
        (Verb::Set, ObjectType::Port, Item::new(port, [Attr::PortAdminState(true)])),
    ];
    for (verb, object, item) in requests {
        let before = (kernel.0.lock().unwrap().opened, chip.next_hops.oids().count());
        // The comparison found none.
        set_netdevs(&mut chip, &ports);
        kernel.0.lock().unwrap().broken = true;
        let mut item = item;
        let what = format!("{verb:?} {object:?}");
        assert_eq!(chip.one(verb, object, &mut item), Status::Failure, "{what}");
        assert!(chip.doubt && chip.failed, "{what}");
        assert!(!chip.serve(), "{what}");
        assert!(!chip.doubt && !chip.failed, "{what}");
        let now = (kernel.0.lock().unwrap().opened, chip.next_hops.oids().count());
        assert_eq!(now, (before.0 + 1, before.1), "{what}");
        assert_eq!(chip.take_events().iter().filter(|event| event.contains("are lost")).count(), 1, "{what}");
    }
    let mtu = |a: &Attr| if let Attr::RifMtu(mtu) = a { Some(*mtu) } else { None };
    assert_eq!(chip.model.attribute(rif_oid, mtu), Some(9100));
    assert!(chip.enabled.is_empty() && chip.model.kind(member_oid).is_some());
    // While no socket can be used, the caller is asked to come again.
    kernel.0.lock().unwrap().broken = true;
    chip.lose(&io::Error::from_raw_os_error(libc::EIO));
    chip.failed = false;
    assert!(chip.serve());
    assert!(!chip.serve());
}
