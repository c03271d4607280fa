//! An update group: members that get the same, what waits for them, and how it is packed.

use super::output::{Sink, Stream};
use super::paths::{Handle, Paths};
use super::{Counters, Receiver, Write, export};
use crate::message::{Change, DumpRequest, NONE};
use crate::peer::{EgressSettings, PeerId, PeerInfo};
use ribtide_prefix::{Families, Family, Map, PerFamily, Prefix};
use ribtide_wire::bgp::build::{self, UpdatePacker};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Peers by number.
pub(super) type Peers = Map<PeerId, Arc<PeerInfo>>;

pub(super) struct Group {
    pub(super) settings: EgressSettings,
    pub(super) members: BTreeMap<PeerId, Member>,
    /// The members as receivers, in the order of peers.
    everyone: Arc<[Receiver]>,
    lanes: Families<Lanes>,
    pub(super) counters: Counters,
}

pub(super) struct Member {
    session: u32,
    pub(super) blocked: bool,
    pub(super) counters: Counters,
}

struct Lanes;
impl PerFamily for Lanes {
    type Of<F: Family> = Lane<F>;
}

/// What waits to be sent, of one family.
struct Lane<F: Family> {
    pending: Map<Prefix<F>, Pending>,
    dumps: Vec<Dump<F>>,
}

impl<F: Family> Default for Lane<F> {
    fn default() -> Self {
        Lane { pending: Map::default(), dumps: Vec::new() }
    }
}

/// A prefix whose best path changed since the last flush.
#[derive(Clone, Copy)]
struct Pending {
    /// The source of what the members were sent last, unless they were sent nothing. All but the source have it.
    had: Option<PeerId>,
    /// What to send them now; [`NONE`]: a withdrawal. Held.
    new: Handle,
    /// A dump told some members of a path in between, so that `had` is not the whole truth.
    told: bool,
}

/// The table on its way to members that joined, or that asked for it again.
struct Dump<F: Family> {
    token: u64,
    joiners: Vec<Joiner>,
    /// How many shards have not answered it fully; `None` until they are asked.
    shards_left: Option<u32>,
    /// Paths are held.
    items: Vec<(Handle, Prefix<F>)>,
    /// Some shard has answered: who comes now needs another dump.
    answered: bool,
}

#[derive(Clone, Copy)]
struct Joiner {
    receiver: Receiver,
    end_of_rib: bool,
}

impl Group {
    pub(super) fn new(settings: EgressSettings) -> Group {
        Group {
            settings,
            members: BTreeMap::new(),
            everyone: Arc::new([]),
            lanes: Families::default(),
            counters: Counters::default(),
        }
    }

    /// A member joins the stream; its dumps are still to be asked for with [`Group::dump`].
    pub(super) fn join(&mut self, receiver: Receiver) {
        let member = Member { session: receiver.session, blocked: false, counters: Counters::default() };
        self.members.insert(receiver.peer, member);
        self.list_members();
    }

    /// A member leaves; whether it was the last.
    pub(super) fn leave(&mut self, peer: PeerId, paths: &mut Paths) -> bool {
        self.members.remove(&peer);
        self.list_members();
        ribtide_prefix::for_each_family!(F => self.lanes.get_mut::<F>().leave(peer, paths));
        let last = self.members.is_empty();
        if last {
            ribtide_prefix::for_each_family!(F => self.lanes.get_mut::<F>().clear(paths));
        }
        last
    }

    fn list_members(&mut self) {
        self.everyone =
            self.members.iter().map(|(peer, m)| Receiver { peer: *peer, session: m.session }).collect();
    }

    /// Wants the table of a family for a member, in a dump shared with others that want it now.
    pub(super) fn dump<F: Family>(&mut self, peer: PeerId, end_of_rib: bool, token: &mut u64) {
        let Some(session) = self.members.get(&peer).map(|m| m.session) else { return };
        let joiner = Joiner { receiver: Receiver { peer, session }, end_of_rib };
        let dumps = &mut self.lanes.get_mut::<F>().dumps;
        match dumps.iter_mut().find(|d| !d.answered) {
            Some(dump) if dump.joiners.iter().any(|j| j.receiver.peer == peer) => {}
            Some(dump) => dump.joiners.push(joiner),
            None => {
                *token += 1;
                dumps.push(Dump {
                    token: *token,
                    joiners: vec![joiner],
                    shards_left: None,
                    items: Vec::new(),
                    answered: false,
                });
            }
        }
    }

    /// Takes in changes of best paths. `exported` maps their path numbers to handles, [`NONE`] where the group does
    /// not get the path.
    pub(super) fn change<F: Family>(
        &mut self,
        changes: &[Change<F>],
        exported: &[Handle],
        paths: &mut Paths,
    ) {
        let handle = |path: u32| exported.get(path as usize).copied().unwrap_or(NONE);
        let pending = &mut self.lanes.get_mut::<F>().pending;
        for change in changes {
            let (old, new) = (handle(change.old), handle(change.new));
            if old == new {
                continue;
            }
            let had = paths.source(old);
            let entry = pending.entry(change.prefix).or_insert(Pending { had, new: NONE, told: false });
            paths.hold(new);
            paths.release(std::mem::replace(&mut entry.new, new));
            if new == NONE && entry.had.is_none() && !entry.told {
                pending.remove(&change.prefix);
            }
        }
    }

    /// Whether this group asked for the dump of this token.
    pub(super) fn expects<F: Family>(&self, token: u64) -> bool {
        self.lanes.get::<F>().dumps.iter().any(|d| d.token == token)
    }

    /// Takes in part of a dump.
    pub(super) fn dumped<F: Family>(
        &mut self,
        token: u64,
        items: &[Change<F>],
        exported: &[Handle],
        last: bool,
        paths: &mut Paths,
    ) {
        let lane = self.lanes.get_mut::<F>();
        let Some(dump) = lane.dumps.iter_mut().find(|d| d.token == token) else { return };
        dump.answered = true;
        for item in items {
            let handle = exported.get(item.new as usize).copied().unwrap_or(NONE);
            if handle != NONE {
                paths.hold(handle);
                dump.items.push((handle, item.prefix));
                if let Some(pending) = lane.pending.get_mut(&item.prefix) {
                    pending.told = true;
                }
            }
        }
        dump.shards_left = dump.shards_left.map(|left| left.saturating_sub(u32::from(last)));
    }

    /// The dumps that are to be asked of every one of `shards` shards.
    pub(super) fn requests(&mut self, worker: u32, shards: u32, out: &mut Vec<DumpRequest>) {
        ribtide_prefix::for_each_family!(F => {
            for dump in self.lanes.get_mut::<F>().dumps.iter_mut().filter(|d| d.shards_left.is_none()) {
                dump.shards_left = Some(shards);
                out.push(DumpRequest { worker, token: dump.token, afi: F::AFI });
            }
        });
    }

    /// Whether some shard has not answered all that was asked of it.
    pub(super) fn dumps_under_way(&self) -> bool {
        let mut any = false;
        ribtide_prefix::for_each_family!(F => {
            any |= self.lanes.get::<F>().dumps.iter().any(|d| d.shards_left.is_some_and(|left| left > 0));
        });
        any
    }

    /// What a flush would send: prefixes, and a marker for each dump that is complete.
    pub(super) fn due(&self) -> usize {
        let mut markers = 0;
        ribtide_prefix::for_each_family!(F => {
            markers += self.lanes.get::<F>().dumps.iter().filter(|d| d.shards_left == Some(0)).count();
        });
        if self.blocked() { 0 } else { self.waiting() + markers }
    }

    /// Prefixes that wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        let mut waiting = 0;
        ribtide_prefix::for_each_family!(F => {
            let lane = self.lanes.get::<F>();
            waiting += lane.pending.len() + lane.dumps.iter().map(|d| d.items.len()).sum::<usize>();
        });
        waiting
    }

    /// Whether some member cannot take more: then everything waits, coalescing, and nothing is lost.
    pub(super) fn blocked(&self) -> bool {
        self.members.values().any(|m| m.blocked)
    }

    /// Whether the dumps that `peer` asked for have not all been sent.
    pub(super) fn joining(&self, peer: PeerId) -> bool {
        let mut joining = false;
        ribtide_prefix::for_each_family!(F => {
            let dumps = &self.lanes.get::<F>().dumps;
            joining |= dumps.iter().any(|d| d.joiners.iter().any(|j| j.receiver.peer == peer));
        });
        joining
    }

    /// Packs up to `budget` prefixes.
    pub(super) fn flush<F: Family>(
        &mut self,
        paths: &mut Paths,
        peers: &Peers,
        budget: usize,
        out: &mut Vec<Write>,
    ) {
        // What a dump says of a prefix is older than what is pending for it: dumps go first.
        let left = self.flush_dumps::<F>(paths, peers, budget, out);
        self.flush_pending::<F>(paths, peers, left, out);
    }

    /// Packs what dumps hold and returns what is left of the budget: nothing unless all was packed.
    fn flush_dumps<F: Family>(
        &mut self,
        paths: &mut Paths,
        peers: &Peers,
        mut budget: usize,
        out: &mut Vec<Write>,
    ) -> usize {
        let mut dumps = std::mem::take(&mut self.lanes.get_mut::<F>().dumps);
        dumps.retain_mut(|dump| {
            let take = dump.items.len().min(budget);
            budget -= take;
            let rest = dump.items.len() - take;
            let mut announced = dump.items.split_off(rest);
            let mut sink = Sink::new(dump.receivers(|_| true));
            self.announce::<F>(&mut announced, paths, peers, &mut sink);
            self.deliver(sink, out);
            if !dump.items.is_empty() || dump.shards_left != Some(0) {
                return true;
            }
            let mut sink = Sink::new(dump.receivers(|j| j.end_of_rib));
            sink.write(None, |stream| {
                build::end_of_rib(F::AFI, &mut stream.bytes);
                stream.counters.messages += 1;
                stream.counters.end_of_rib += 1;
            });
            self.deliver(sink, out);
            false
        });
        self.lanes.get_mut::<F>().dumps = dumps;
        budget
    }

    fn flush_pending<F: Family>(
        &mut self,
        paths: &mut Paths,
        peers: &Peers,
        budget: usize,
        out: &mut Vec<Write>,
    ) {
        let pending = &mut self.lanes.get_mut::<F>().pending;
        if pending.is_empty() || budget == 0 {
            return;
        }
        let mut announced: Vec<(Handle, Prefix<F>)> = Vec::new();
        // For all but one; for just one.
        let mut withdrawn: Vec<(Option<PeerId>, Prefix<F>)> = Vec::new();
        let mut withdrawn_from: Vec<(PeerId, Prefix<F>)> = Vec::new();
        for (prefix, Pending { had, new, told }) in pending.extract_if(|_, _| true).take(budget) {
            if new == NONE {
                // The source never had it; but with a dump in between, who has it is not worth finding out.
                withdrawn.push((had.filter(|_| !told), prefix));
                continue;
            }
            // The new source gets nothing of its own path, so it must lose what it had of another's.
            if let Some(source) = paths.source(new)
                && (told || had.is_some_and(|had| had != source))
                && self.members.contains_key(&source)
            {
                withdrawn_from.push((source, prefix));
            }
            announced.push((new, prefix));
        }
        if pending.is_empty() && pending.capacity() > 1 << 16 {
            *pending = Map::default();
        }

        let mut sink = Sink::new(self.everyone.clone());
        withdrawn.sort_unstable();
        for run in withdrawn.chunk_by(|a, b| a.0 == b.0) {
            sink.write(run[0].0, |stream| self.withdraw(run.iter().map(|w| w.1), stream));
        }
        self.announce::<F>(&mut announced, paths, peers, &mut sink);
        self.deliver(sink, out);

        withdrawn_from.sort_unstable();
        for run in withdrawn_from.chunk_by(|a, b| a.0 == b.0) {
            let only = self.everyone.iter().copied().filter(|r| r.peer == run[0].0).collect();
            let mut sink = Sink::new(only);
            sink.write(None, |stream| self.withdraw(run.iter().map(|w| w.1), stream));
            self.deliver(sink, out);
        }
    }

    /// Packs announcements, those of one path together, and releases the paths.
    fn announce<F: Family>(
        &self,
        items: &mut [(Handle, Prefix<F>)],
        paths: &mut Paths,
        peers: &Peers,
        sink: &mut Sink,
    ) {
        // Sorted by prefix too: what is sent then does not depend on how the table was sharded.
        items.sort_unstable();
        let mut attributes = Vec::new();
        for run in items.chunk_by(|a, b| a.0 == b.0) {
            let prefixes = || run.iter().map(|item| item.1);
            let path = paths.get(run[0].0);
            let source = path.and_then(|path| peers.get(&path.source));
            if let (Some(path), Some(source)) = (path, source) {
                attributes.clear();
                export::attributes(&self.settings, source, &path.attrs, &mut attributes);
                let next_hop = export::next_hop(&self.settings, source, F::AFI, path.attrs.next_hop());
                sink.write(Some(source.id), |stream| {
                    let max = usize::from(self.settings.max_message);
                    let packed = next_hop.and_then(|next_hop| {
                        let packer = UpdatePacker::new(&attributes, next_hop, max);
                        packer.announce(prefixes(), &mut stream.bytes).ok()
                    });
                    match packed {
                        Some(messages) => {
                            stream.counters.messages += messages as u64;
                            stream.counters.updates += messages as u64;
                            stream.counters.announced += run.len() as u64;
                        }
                        // Too long for these members (RFC 8654 section 4): to them the route is gone.
                        None => {
                            stream.counters.too_long += run.len() as u64;
                            self.withdraw(prefixes(), stream);
                        }
                    }
                });
            }
            run.iter().for_each(|item| paths.release(item.0));
        }
    }

    fn withdraw<F: Family>(&self, prefixes: impl ExactSizeIterator<Item = Prefix<F>>, stream: &mut Stream) {
        stream.counters.withdrawn += prefixes.len() as u64;
        let messages = build::withdraw(prefixes, usize::from(self.settings.max_message), &mut stream.bytes);
        stream.counters.messages += messages as u64;
        stream.counters.updates += messages as u64;
    }

    /// Hands out what a sink holds, and counts it for the group and for who gets it.
    fn deliver(&mut self, sink: Sink, out: &mut Vec<Write>) {
        for closed in sink.finish() {
            self.counters.add(&closed.counters);
            let mut reached = false;
            for receiver in closed.write.receivers() {
                reached = true;
                if let Some(member) = self.members.get_mut(&receiver.peer) {
                    member.counters.add(&closed.counters);
                }
            }
            if reached {
                out.push(closed.write);
            }
        }
    }
}

impl<F: Family> Lane<F> {
    fn leave(&mut self, peer: PeerId, paths: &mut Paths) {
        self.dumps.retain_mut(|dump| {
            dump.joiners.retain(|j| j.receiver.peer != peer);
            if dump.joiners.is_empty() {
                dump.items.drain(..).for_each(|(handle, _)| paths.release(handle));
            }
            !dump.joiners.is_empty()
        });
    }

    fn clear(&mut self, paths: &mut Paths) {
        self.pending.drain().for_each(|(_, pending)| paths.release(pending.new));
    }
}

impl<F: Family> Dump<F> {
    fn receivers(&self, which: impl Fn(&Joiner) -> bool) -> Arc<[Receiver]> {
        let mut receivers: Vec<Receiver> =
            self.joiners.iter().filter(|j| which(j)).map(|j| j.receiver).collect();
        receivers.sort_unstable();
        receivers.into()
    }
}
