//! Packs prefixes and paths into messages for one cohort's members.

use super::group::Peers;
use super::output::{Closed, Sink};
use super::paths::{Handle, Paths};
use super::{Counters, Receiver, export};
use crate::peer::{EgressSettings, PeerId};
use ribtide_prefix::{AfiSafi, BgpFamily};
use ribtide_wire::bgp::build::{self, UpdatePacker};
use ribtide_wire::bgp::message::{RefreshKind, RouteRefresh};
use ribtide_wire::bgp::nlri::Nlri;
use std::sync::Arc;

/// The packer of one flush to one cohort. No prefix may reach a member twice in it: chunks may be
/// reordered, but for End-of-RIB and the marks of a route refresh.
pub(super) struct Packer<'a> {
    settings: &'a EgressSettings,
    peers: &'a Peers,
    to: Arc<[Receiver]>,
    everyone: Sink,
    others: Vec<Sink>,
    attributes: Vec<u8>,
}

impl<'a> Packer<'a> {
    /// `to` is in the order of peers.
    pub(super) fn new(settings: &'a EgressSettings, peers: &'a Peers, to: Arc<[Receiver]>) -> Packer<'a> {
        let everyone = Sink::new(to.clone());
        Packer { settings, peers, to, everyone, others: Vec::new(), attributes: Vec::new() }
    }

    /// Whether `peer` is among the receivers.
    pub(super) fn reaches(&self, peer: PeerId) -> bool {
        self.to.binary_search_by_key(&peer, |receiver| receiver.peer).is_ok()
    }

    /// Announces prefixes with a path to all members but its source.
    pub(super) fn announce<N: Nlri>(&mut self, path: Handle, run: &[(Handle, N)], paths: &Paths) {
        let prefixes = || run.iter().map(|item| item.1);
        let Some(path) = paths.get(path) else { return };
        let Some(source) = self.peers.get(&path.source) else { return };
        self.attributes.clear();
        let next_hop = export::form(self.settings, source, N::Family::ID, path, &mut self.attributes);
        let max = usize::from(self.settings.max_message);
        let attributes = &self.attributes;
        self.everyone.write(Some(source.id), |bytes, counters| {
            let packed = next_hop.and_then(|next_hop| {
                UpdatePacker::new(attributes, next_hop, max).announce(prefixes(), bytes).ok()
            });
            match packed {
                Some(messages) => {
                    counters.messages += messages as u64;
                    counters.updates += messages as u64;
                    counters.announced += run.len() as u64;
                }
                // Too long for these members (RFC 8654 section 4): the route is withdrawn from
                // them.
                None => {
                    counters.too_long += run.len() as u64;
                    withdraw(prefixes(), max, bytes, counters);
                }
            }
        });
    }

    /// Withdraws prefixes from all but `except`.
    pub(super) fn withdraw<N: Nlri>(
        &mut self,
        except: Option<PeerId>,
        prefixes: impl ExactSizeIterator<Item = N>,
    ) {
        let max = usize::from(self.settings.max_message);
        self.everyone.write(except, |bytes, counters| withdraw(prefixes, max, bytes, counters));
    }

    /// Withdraws prefixes from one receiver.
    pub(super) fn withdraw_from<N: Nlri>(
        &mut self,
        peer: PeerId,
        prefixes: impl ExactSizeIterator<Item = N>,
    ) {
        let max = usize::from(self.settings.max_message);
        let mut sink = Sink::new(self.to.iter().copied().filter(|receiver| receiver.peer == peer).collect());
        sink.write(None, |bytes, counters| withdraw(prefixes, max, bytes, counters));
        self.others.push(sink);
    }

    /// Ends the first table of a family, after all earlier messages.
    pub(super) fn end_of_rib(&mut self, family: AfiSafi) {
        self.mark(|bytes, counters| {
            build::end_of_rib(family, bytes);
            counters.messages += 1;
            counters.end_of_rib += 1;
        });
    }

    /// Marks the begin or the end of a route refresh, after all earlier messages and before all later ones (RFC 7313).
    pub(super) fn refresh_mark(&mut self, family: AfiSafi, kind: RefreshKind) {
        self.mark(|bytes, counters| {
            RouteRefresh::new(family, kind).write(bytes);
            counters.messages += 1;
        });
    }

    /// Adds a message that keeps its place.
    fn mark(&mut self, write: impl FnOnce(&mut Vec<u8>, &mut Counters)) {
        let before = std::mem::replace(&mut self.everyone, Sink::new(self.to.clone()));
        self.others.push(before);
        self.everyone.write(None, write);
        let marker = std::mem::replace(&mut self.everyone, Sink::new(self.to.clone()));
        self.others.push(marker);
    }

    /// What was packed, in order.
    pub(super) fn finish(self) -> impl Iterator<Item = Closed> {
        self.others.into_iter().chain([self.everyone]).flat_map(Sink::finish)
    }
}

fn withdraw<N: Nlri>(
    prefixes: impl ExactSizeIterator<Item = N>,
    max: usize,
    bytes: &mut Vec<u8>,
    counters: &mut Counters,
) {
    counters.withdrawn += prefixes.len() as u64;
    let messages = build::withdraw(prefixes, max, bytes) as u64;
    counters.messages += messages;
    counters.updates += messages;
}
