//! Faults of SONiC's fpmsyncd that an operator may want again.

/// Where fpmsyncd does as SONiC's although that is a fault: something around it may count on that. By default none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AsSonic {
    /// Weights are `rtnh_hops`, at least 1. FPM carries the weight minus 1 there, as the kernel does, so weights 1, 2 and 3 become
    /// 1, 1 and 2.
    pub weights: bool,
    /// Routes in the kernel's tables 253 to 255 are dropped. FRR sends them without SONiC's patches, which put the interface of
    /// the VRF in place of the table.
    pub main_table: bool,
    /// IP routes whose next hops push labels are dropped: SONiC's takes each route with an encapsulation for one of EVPN or SRv6.
    pub mpls_push: bool,
    /// A single next-hop object keeps the next hop with which it was announced first.
    pub next_hop_change: bool,
}

impl AsSonic {
    /// All of them.
    pub const ALL: AsSonic =
        AsSonic { weights: true, main_table: true, mpls_push: true, next_hop_change: true };

    /// The weight of a next hop that has `weight` in FPM.
    pub(super) fn weight(self, weight: u16) -> u16 {
        if self.weights { weight.saturating_sub(1).max(1) } else { weight.max(1) }
    }
}
