//! A monitoring station: it takes pages of tables and the changes between them in the order in which the stages send
//! them, and nothing else. In the end its tables must be the stages'.

use crate::stage::Table;
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::message::{BestBatch, NONE, UpdateBatch};
use ribtide_bgp::peer::{PeerId, PeerInfo};
use ribtide_bgp::shard::MonitorPage;
use ribtide_prefix::{
    AfiSafi, AnyPrefix, BgpFamilies, BgpFamily, LOGICAL_SHARDS, LogicalShard, PerBgpFamily,
    for_each_bgp_family,
};
use std::collections::{BTreeMap, VecDeque};

/// Routes after import policy: peer, prefix and path identifier.
pub(crate) type Accepted = BTreeMap<(PeerId, AnyPrefix, u32), AttrSet>;

/// The station.
#[derive(Default)]
pub(crate) struct Station {
    /// The sessions that last.
    sessions: BTreeMap<PeerId, u32>,
    pub(crate) accepted: Accepted,
    pub(crate) best: Table,
    /// Pages that it has not requested yet.
    pub(crate) steps: VecDeque<(AfiSafi, LogicalShard, u32)>,
}

impl Station {
    /// Its session begins: it has nothing, and requests everything.
    pub(crate) fn begin(&mut self) {
        self.accepted.clear();
        self.best.clear();
        self.steps.clear();
        for family in [AfiSafi::Ipv4Unicast, AfiSafi::Ipv6Unicast] {
            self.steps.extend((0..LOGICAL_SHARDS).map(|logical| (family, logical, 0)));
        }
    }

    pub(crate) fn up(&mut self, info: &PeerInfo) {
        if !info.kind.is_local() {
            self.sessions.insert(info.id, info.session);
        }
    }

    pub(crate) fn down(&mut self, peer: PeerId) {
        self.sessions.remove(&peer);
        self.accepted.retain(|(of, ..), _| *of != peer);
    }

    /// A shard handled a batch.
    pub(crate) fn accepted(&mut self, batch: &UpdateBatch) {
        if self.sessions.get(&batch.peer) == Some(&batch.session) {
            apply(&mut self.accepted, batch);
        }
    }

    /// Best paths changed.
    pub(crate) fn best(&mut self, batch: &BestBatch) {
        for_each_bgp_family!(F => for change in batch.changes.get::<F>() {
            let prefix = change.prefix.any();
            match change.new {
                NONE => drop(self.best.remove(&prefix)),
                new => {
                    let path = &batch.paths[new as usize];
                    self.best.insert(prefix, (path.attrs.clone(), path.source));
                }
            }
        });
    }

    /// A requested page.
    pub(crate) fn page(&mut self, page: &MonitorPage) {
        page.accepted.iter().for_each(|batch| self.accepted(batch));
        self.best(page.loc_rib.as_ref().unwrap_or(&page.best));
    }
}

/// Prefixes that earlier operations of a batch took.
struct Taken;

impl PerBgpFamily for Taken {
    type Of<F: BgpFamily> = usize;
}

/// Does what a batch says.
pub(crate) fn apply(table: &mut Accepted, batch: &UpdateBatch) {
    let mut taken = BgpFamilies::<Taken>::default();
    for op in &batch.ops {
        for_each_bgp_family!(F => if F::ID == op.family {
            let taken = taken.get_mut::<F>();
            for prefix in &batch.prefixes.get::<F>()[*taken..*taken + op.count as usize] {
                let key = (batch.peer, prefix.any(), op.path_id);
                match &op.attrs {
                    Some(attrs) => drop(table.insert(key, attrs.clone())),
                    None => drop(table.remove(&key)),
                }
            }
            *taken += op.count as usize;
        });
    }
}
