//! Neighbours as permanent entries of the kernel.
//!
//! They have the protocol number of this chip and the flag for entries of other programs, so that a
//! later syncd knows which of them an earlier one left.

use crate::KernelChip;
use crate::status;
use ribtide_netlink::Refusal;
use ribtide_prefix::Map;
use ribtide_swss::sai::{Attr, Item, NeighborEntry, ObjectId, ObjectType, Sai, Status, Verb};
use ribtide_wire::netlink::numbers::{NLM_F_CREATE, NLM_F_REPLACE};
use ribtide_wire::netlink::{Content, Neighbor, dump_neighbors};
use std::io;
use std::net::IpAddr;

/// A request to the kernel.
#[derive(Clone, Copy)]
struct NeighborChange {
    ifindex: u32,
    ip: IpAddr,
    /// `None` deletes.
    mac: Option<[u8; 6]>,
}

impl KernelChip {
    /// Executes a request about one neighbour.
    pub(crate) fn neighbor(&mut self, verb: Verb, item: &mut Item) -> Status {
        let ObjectId::Neighbor(entry) = item.id else {
            return self.model.one(verb, ObjectType::NeighborEntry, item);
        };
        match verb {
            Verb::Remove => {
                // The model answers for one that is not there.
                if self.model.neighbor_mac(entry.rif, entry.ip).is_some()
                    && let Err(status) = self.put_neighbor(&entry, None)
                {
                    return status;
                }
                self.model.one(verb, ObjectType::NeighborEntry, item)
            }
            Verb::Create | Verb::Set => {
                let before = self.model.neighbor_mac(entry.rif, entry.ip);
                let done = self.model.one(verb, ObjectType::NeighborEntry, item);
                let mac = self.model.neighbor_mac(entry.rif, entry.ip);
                let (true, Some(mac)) = (done.is_success() && mac != before, mac) else { return done };
                let Err(status) = self.put_neighbor(&entry, Some(mac.0)) else { return done };
                // As it was.
                match before {
                    None => self.model.one(Verb::Remove, ObjectType::NeighborEntry, &mut Item::bare(entry)),
                    Some(mac) => {
                        let mut old = Item::new(entry, [Attr::NeighborMac(mac)]);
                        self.model.one(Verb::Set, ObjectType::NeighborEntry, &mut old)
                    }
                };
                status
            }
        }
    }

    /// Writes a neighbour, or deletes it. One without a netdev waits for it.
    fn put_neighbor(&mut self, entry: &NeighborEntry, mac: Option<[u8; 6]>) -> Result<(), Status> {
        let Some(ifindex) = self.netdev_of(entry.rif) else { return Ok(()) };
        let mut refusal = None;
        let sent = self.request_neighbors(&[NeighborChange { ifindex, ip: entry.ip, mac }], |_, refused| {
            refusal = Some(refused);
        });
        if let Err(e) = sent {
            self.lose(&e);
            return Err(status::of_error(&e));
        }
        match refusal {
            Some(refusal) if refusal.errno != libc::ENETDOWN => {
                self.events.push(format!("the kernel refuses the neighbour {}: {}", entry.ip, refusal.text));
                Err(status::of_refusal(&refusal))
            }
            // A netdev that is switched off gets its neighbours when it is on again.
            _ => Ok(()),
        }
    }

    fn request_neighbors(
        &mut self,
        changes: &[NeighborChange],
        mut refused: impl FnMut(usize, Refusal),
    ) -> io::Result<()> {
        let protocol = self.settings.protocol;
        self.socket.request(
            changes,
            |NeighborChange { ifindex, ip, mac }, out, seq| {
                let neighbor = Neighbor::permanent(*ifindex, *ip, mac.unwrap_or_default(), protocol);
                match mac {
                    Some(_) => neighbor.write_new(out, NLM_F_CREATE | NLM_F_REPLACE, seq),
                    None => neighbor.write_delete(out, 0, seq),
                }
            },
            |at, refusal| {
                let deletes = changes.get(at).is_some_and(|change| change.mac.is_none());
                if !(deletes && status::is_gone(&refusal)) {
                    refused(at, refusal);
                }
            },
        )
    }

    /// Compares the kernel's neighbours of the netdevs that `of` selects with those that it shall have, and corrects
    /// what differs. Returns how many did.
    pub(crate) fn compare_neighbors(&mut self, of: impl Fn(u32) -> bool) -> io::Result<usize> {
        let protocol = self.settings.protocol;
        let mut there =
            self.socket.dump(dump_neighbors, |all: &mut Map<(u32, IpAddr), Neighbor>, content| {
                if let Content::NewNeighbor(neighbor) = content {
                    all.insert((neighbor.ifindex, neighbor.ip), neighbor);
                }
            })?;
        let mut changes = Vec::new();
        for (rif, ip, mac) in self.model.neighbors() {
            let Some(ifindex) = self.netdev_of(rif).filter(|index| of(*index)) else { continue };
            let wanted = Neighbor::permanent(ifindex, ip, mac.0, protocol);
            if there.remove(&(ifindex, ip)) != Some(wanted) {
                changes.push(NeighborChange { ifindex, ip, mac: Some(mac.0) });
            }
        }
        // What other programs and the kernel itself learned stays.
        let surplus =
            there.into_values().filter(|neighbor| neighbor.protocol == protocol && of(neighbor.ifindex));
        changes.extend(surplus.map(|Neighbor { ifindex, ip, .. }| NeighborChange { ifindex, ip, mac: None }));
        let mut first = None;
        self.request_neighbors(&changes, |at, refusal| {
            first.get_or_insert((at, refusal));
        })?;
        if let Some((change, refusal)) = first.and_then(|(at, refusal)| Some((changes.get(at)?, refusal))) {
            let (ip, text) = (change.ip, refusal.text);
            self.events.push(format!("the kernel refuses the neighbour {ip} again: {text}"));
        }
        Ok(changes.len())
    }
}
