//! Filters of attributes by code, well formed or not.

use super::super::attribute::code;

/// A set of attribute codes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CodeSet([u64; 4]);

impl CodeSet {
    /// Whether `code` is in it.
    #[inline]
    pub fn contains(&self, code: u8) -> bool {
        self.0.get(usize::from(code >> 6)).is_some_and(|word| word >> (code & 63) & 1 != 0)
    }

    /// Adds `code`; false when it was a member.
    #[inline]
    pub fn insert(&mut self, code: u8) -> bool {
        let new = !self.contains(code);
        if let Some(word) = self.0.get_mut(usize::from(code >> 6)) {
            *word |= 1 << (code & 63);
        }
        new
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        *self == CodeSet::default()
    }
}

/// Outcomes of attributes by code, before they are checked (the outcomes are RFC 7606's).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AttributeFilter {
    /// These are discarded, and the routes are kept.
    pub discard: CodeSet,
    /// Routes that come with one of these are treated as withdrawn.
    pub withdraw: CodeSet,
}

impl AttributeFilter {
    /// Attributes that cannot be filtered. Without them there is no route (RFC 4271 section 5, RFC
    /// 4760); without AS4_PATH, a loop through a two-octet speaker is not detected (RFC 6793).
    pub const NEVER: [u8; 6] = [
        code::ORIGIN,
        code::AS_PATH,
        code::NEXT_HOP,
        code::MP_REACH_NLRI,
        code::MP_UNREACH_NLRI,
        code::AS4_PATH,
    ];

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.discard.is_empty() && self.withdraw.is_empty()
    }
}
