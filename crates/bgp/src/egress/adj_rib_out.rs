//! The Adj-RIB-Out of a member (RFC 4271 section 3.2), computed on request.
//!
//! A worker keeps no copy of sent routes. So a page of advertised paths goes through [`Offers`], as
//! changes of best paths do before they are packed, and gets its attributes from the code that
//! packs them. So the view and the sent UPDATEs have one origin. For a member that takes ranked
//! paths, the selection among these is the packer's too.

use super::offers::{Handles, Offers};
use super::paths::Path;
use super::ranked::Selector;
use super::{Worker, conditional, export, offers};
use crate::message::{BestPath, RankedBatch};
use crate::peer::{EgressSettings, PeerId, PeerInfo};
use ribtide_prefix::{AfiSafi, BgpFamily, Prefix};
use ribtide_wire::bgp::NextHop;
use ribtide_wire::bgp::build::UpdatePacker;

/// A path as sent to a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advertised {
    /// The attributes in wire form, without the next hop. AS numbers have four bytes; a member without support for them
    /// gets AS_TRANS and AS4_PATH in their place (RFC 6793).
    pub attributes: Vec<u8>,
    /// The next hop.
    pub next_hop: NextHop,
}

/// A path as sent to a member that may get several of a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdvertisedPath {
    /// Its identifier (RFC 7911); `None` if the member gets none.
    pub id: Option<u32>,
    /// Its form.
    pub form: Advertised,
}

/// The export of a path to a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The group's number in its worker.
    pub group: u32,
    /// The number of members beside the path's source.
    pub members: usize,
    /// Whether these get the path.
    pub sent: bool,
    /// The reasons, as sentences.
    pub messages: Vec<String>,
}

/// Why a member gets no path of BGP's default route.
pub(super) const OWN_DEFAULT: &str = "its own default route is sent in its place (default-originate)";
/// Why a path that may be sent is not.
const TOO_LONG: &str = "not sent: its attributes do not fit a message of the session (RFC 8654)";

impl Worker {
    /// The default route that a member is sent in place of any of BGP (`default-originate`), while there is one.
    pub fn own_default<F: BgpFamily>(&self, peer: PeerId) -> Option<AdvertisedPath> {
        self.default_by::<F>(&self.groups.get(self.member_of.get(&peer)?)?.settings)
    }

    /// What a member is sent of these prefixes and advertised paths, in their order; `None` inside: nothing. `None`
    /// without a session of the peer in this worker. It says nothing about pending changes, and leaves
    /// [`Worker::own_default`] out of account. O(prefixes).
    pub fn adj_rib_out<F: BgpFamily>(
        &mut self,
        peer: PeerId,
        page: &[(Prefix<F>, BestPath)],
    ) -> Option<Vec<Option<Advertised>>> {
        let Worker { peers, groups, member_of, paths, .. } = self;
        let settings = &groups.get(member_of.get(&peer)?)?.settings;
        let best: Vec<BestPath> = page.iter().map(|(_, best)| best.clone()).collect();
        let mut handles = Handles::new(best.len());
        let mut sent = Vec::with_capacity(page.len());
        {
            let mut offers = Offers::new(settings, peers, F::ID, &best, &mut handles);
            for (at, (prefix, best)) in (0..).zip(page) {
                let handle = offers.handle(at, *prefix, paths);
                // A path is not sent to its source; the packer leaves that member out.
                let gets = paths.get(handle).filter(|_| best.source != peer);
                sent.push(gets.and_then(|path| form(settings, peers.get(&path.source)?, path, *prefix)));
            }
        }
        handles.release(paths);
        Some(sent)
    }

    /// Whether the paths for a member depend on others than the best ones; then [`Worker::ranked_adj_rib_out`] has its
    /// Adj-RIB-Out. `None` without a session of the peer in this worker.
    pub fn member_takes_ranked(&self, peer: PeerId, family: AfiSafi) -> Option<bool> {
        Some(self.groups.get(self.member_of.get(&peer)?)?.settings.takes_ranked(family))
    }

    /// What a member that takes ranked paths is sent of each changed prefix of `page` with its new paths, by
    /// identifier, in the order of the changes. `None` without a session of the peer in this worker. It says
    /// nothing about pending changes, and leaves [`Worker::own_default`] out of account. O(paths).
    pub fn ranked_adj_rib_out<F: BgpFamily>(
        &mut self,
        peer: PeerId,
        page: &RankedBatch,
    ) -> Option<Vec<Vec<AdvertisedPath>>> {
        let Worker { peers, groups, member_of, paths, .. } = self;
        let settings = &groups.get(member_of.get(&peer)?)?.settings;
        let selector = Selector::new::<F>(settings, &page.paths);
        let mut handles = Handles::new(page.paths.len());
        let mut sent = Vec::with_capacity(page.changes.get::<F>().len());
        {
            let mut offers = Offers::new(settings, peers, F::ID, &page.paths, &mut handles);
            for change in page.changes.get::<F>() {
                let (prefix, (_, ranked)) = (change.prefix, page.of(change));
                let selected = selector.select(ranked, prefix, &mut offers);
                let advertised = selected.into_iter().filter_map(|one| {
                    let handle = offers.handle(one.path, prefix, paths);
                    // A selected path is not sent to its source; the packer leaves that member out.
                    let path = paths.get(handle).filter(|path| path.source != peer)?;
                    let form = form(settings, peers.get(&path.source)?, path, prefix)?;
                    Some(AdvertisedPath { id: selector.id(one), form })
                });
                sent.push(advertised.collect());
            }
        }
        handles.release(paths);
        Some(sent)
    }

    /// The form in which `peer` gets `best`, the advertised path of a prefix, with reasons as sentences; `None` when
    /// it does not get it.
    pub fn advertised<F: BgpFamily>(
        &self,
        peer: PeerId,
        prefix: Prefix<F>,
        best: &BestPath,
    ) -> (Option<Advertised>, Vec<String>) {
        let mut messages = Vec::new();
        let advertised = self.explain(peer, prefix, best, &mut messages);
        (advertised, messages)
    }

    fn explain<F: BgpFamily>(
        &self,
        peer: PeerId,
        prefix: Prefix<F>,
        best: &BestPath,
        messages: &mut Vec<String>,
    ) -> Option<Advertised> {
        let settings = &self.groups.get(self.member_of.get(&peer)?)?.settings;
        if prefix.len() == 0
            && let Some(path) = conditional::default_path::<F>(settings, &self.peers)
        {
            messages.push(OWN_DEFAULT.into());
            return form(settings, self.peers.get(&path.source)?, &path, prefix);
        }
        let source = self.peers.get(&best.source)?;
        if best.source == peer {
            messages.push("not sent: it came from this peer".into());
            return None;
        }
        evaluate(settings, source, best, prefix, messages).flatten()
    }

    /// The export of `best`, the best path of a prefix, in each group, evaluated for the first
    /// member that is not its source; or of the ranked paths, where the group takes these.
    pub fn exports<F: BgpFamily>(
        &self,
        prefix: Prefix<F>,
        best: &BestPath,
        ranked: &RankedBatch,
    ) -> Vec<Export> {
        self.groups
            .iter()
            .filter_map(|(id, group)| {
                if group.settings.takes_ranked(F::ID) {
                    return Some(self.export_ranked(*id, group, prefix, ranked));
                }
                let member = group.members.keys().find(|peer| **peer != best.source)?;
                let (advertised, messages) = self.advertised(*member, prefix, best);
                let members = group.members.keys().filter(|peer| **peer != best.source).count();
                Some(Export { group: *id, members, sent: advertised.is_some(), messages })
            })
            .collect()
    }
}

/// The form of a path for a group, with reasons as sentences: `None` if the group does not accept it, `None` inside if
/// no message can have it.
pub(super) fn evaluate<F: BgpFamily>(
    settings: &EgressSettings,
    source: &PeerInfo,
    path: &BestPath,
    prefix: Prefix<F>,
    messages: &mut Vec<String>,
) -> Option<Option<Advertised>> {
    let path = offers::explain(settings, source, path, prefix, messages)?;
    let form = form(settings, source, &path, prefix);
    if form.is_none() {
        messages.push(TOO_LONG.into());
    }
    Some(form)
}

/// A path as the members of a group get it. `None` if there is no next hop, or the attributes leave no room for a
/// prefix in a message (RFC 8654 section 4).
pub(super) fn form<F: BgpFamily>(
    settings: &EgressSettings,
    source: &PeerInfo,
    path: &Path,
    prefix: Prefix<F>,
) -> Option<Advertised> {
    let mut attributes = Vec::new();
    let next_hop = export::form(settings, source, F::ID, path, &mut attributes)?;
    let max = usize::from(settings.max_message);
    UpdatePacker::new(&attributes, next_hop, max).announce([prefix], &mut Vec::new()).ok()?;
    if !settings.four_octet_as {
        let wide = EgressSettings { four_octet_as: true, ..settings.clone() };
        attributes.clear();
        export::attributes(&wide, source, path, &mut attributes);
    }
    Some(Advertised { attributes, next_hop })
}
