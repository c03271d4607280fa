//! Conditions of queries on attribute sets, evaluated once for neighbouring paths that share one.

use crate::attr::AttrSet;
use ribtide_policy::AttributeFilter;
use ribtide_prefix::zone::split_zone;

/// The last result for the attributes of neighbouring paths, which often share them.
#[derive(Clone, Debug, Default)]
pub struct FilterMemo(Option<(AttrSet, bool)>);

impl FilterMemo {
    /// Whether attributes fit.
    pub fn fits(&mut self, filter: &AttributeFilter, attrs: &AttrSet) -> bool {
        match &self.0 {
            Some((last, fits)) if AttrSet::ptr_eq(last, attrs) => *fits,
            _ => {
                let fits =
                    filter.is_empty() || filter.fits(attrs.bytes(), split_zone(attrs.next_hop().addr()).0);
                self.0 = Some((attrs.clone(), fits));
                fits
            }
        }
    }
}
