//! What is done to the labels of packets on the way to a next hop: one element of `mpls_nh`.

use std::fmt;
use std::sync::Arc;

/// The highest label: it has 20 bits.
pub const LABEL_MAX: u32 = (1 << 20) - 1;

/// How labels are put on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LabelOp {
    /// On a packet that had none, or whose labels stay.
    Push,
    /// In place of the label with which it arrived.
    Swap,
}

/// Labels that are put on packets, outermost first; at least one. Displays as `mpls_nh` has it: `push100/101`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LabelStack {
    /// How.
    pub op: LabelOp,
    /// Which.
    pub labels: Arc<[u32]>,
}

impl LabelStack {
    /// The labels of an element of `mpls_nh`; `None` when it is no such text.
    pub fn parse(text: &str) -> Option<LabelStack> {
        let (op, labels) = match text.strip_prefix("push") {
            Some(labels) => (LabelOp::Push, labels),
            None => (LabelOp::Swap, text.strip_prefix("swap")?),
        };
        let label = |text: &str| {
            let digits = Some(text).filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
            digits.parse().ok().filter(|label| *label <= LABEL_MAX)
        };
        let labels: Option<Arc<[u32]>> = labels.split('/').map(label).collect();
        labels.map(|labels| LabelStack { op, labels })
    }
}

impl fmt::Display for LabelStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.op {
            LabelOp::Push => "push",
            LabelOp::Swap => "swap",
        })?;
        for (n, label) in self.labels.iter().enumerate() {
            write!(f, "{}{label}", if n == 0 { "" } else { "/" })?;
        }
        Ok(())
    }
}
