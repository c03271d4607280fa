//! The label operation of a next hop: one element of `mpls_nh`.

use std::fmt;
use std::sync::Arc;

/// The highest label: it has 20 bits.
pub const LABEL_MAX: u32 = (1 << 20) - 1;

/// The operation on the label stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LabelOp {
    /// Push onto the existing labels, if any.
    Push,
    /// Swap the incoming label.
    Swap,
}

/// Outgoing labels, outermost first; at least one. Displays as in `mpls_nh`: `push100/101`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LabelStack {
    /// The operation.
    pub op: LabelOp,
    /// The labels.
    pub labels: Arc<[u32]>,
}

impl LabelStack {
    /// Parses an element of `mpls_nh`; `None` if it is invalid.
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
