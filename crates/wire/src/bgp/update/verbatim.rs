//! Messages whose attributes are stored as they came, which are most: their attributes are copied together.

use super::super::attribute::{Attribute, as_path, code, flags};
use super::UpdateContext;

/// The attributes of an UPDATE in the form in which [`Update::attributes`](super::Update::attributes) gives
/// them, in ascending order of codes: AS_PATH, and of the other well-known ones, MULTI_EXIT_DISC and
/// communities any.
#[derive(Clone, Copy, Debug)]
pub struct Verbatim<'a> {
    /// Their bytes, those before and those after NEXT_HOP or MP_REACH_NLRI.
    pub bytes: [&'a [u8]; 2],
    /// The value of AS_PATH.
    pub as_path: &'a [u8],
}

/// Whether the attributes of a message are as in [`Verbatim`], as far as they were read.
pub(super) struct Layout<'a> {
    holds: bool,
    last: u8,
    /// The attribute with the next hop.
    gap: Option<(usize, usize)>,
    as_path: &'a [u8],
}

impl<'a> Layout<'a> {
    pub(super) fn new() -> Layout<'a> {
        Layout { holds: true, last: 0, gap: None, as_path: &[] }
    }

    /// Another attribute, which is [common](is_common).
    #[inline]
    pub(super) fn add(&mut self, attribute: &Attribute<'a>) {
        self.holds &= attribute.code > self.last;
        self.last = attribute.code;
        if attribute.code == code::AS_PATH {
            self.as_path = attribute.value;
        }
    }

    /// The attribute with the next hop, by its place in the block.
    #[inline]
    pub(super) fn add_next_hop(&mut self, start: usize, end: usize) {
        self.holds &= self.gap.is_none();
        self.gap = Some((start, end));
    }

    /// Another attribute of any other kind.
    pub(super) fn add_other(&mut self) {
        self.holds = false;
    }

    /// The attributes in `block`, all of which were added.
    #[inline]
    pub(super) fn finish(&self, block: &'a [u8]) -> Option<Verbatim<'a>> {
        let (start, end) = self.gap.filter(|_| self.holds)?;
        Some(Verbatim { bytes: [block.get(..start)?, block.get(end..)?], as_path: self.as_path })
    }
}

/// Whether an attribute is one of those that nearly all routes have, without a fault, and stored as it came. Others need
/// their row in the [`registry`](super::super::attribute::registry), which says the same of these.
#[inline(always)]
pub(super) fn is_common(attribute: &Attribute<'_>, ctx: &UpdateContext) -> bool {
    const WELL_KNOWN: u8 = flags::TRANSITIVE;
    const TRANSITIVE: u8 = flags::OPTIONAL | flags::TRANSITIVE;
    let Attribute { flags, code, value } = *attribute;
    // A length that needs one byte is stored in one.
    let flags = if value.len() > usize::from(u8::MAX) { flags & !flags::EXTENDED_LENGTH } else { flags };
    match (code, flags) {
        (code::ORIGIN, WELL_KNOWN) => matches!(value, [0..=2]),
        (code::AS_PATH, WELL_KNOWN) => ctx.four_octet_as && as_path::is_valid(value, 4, ctx.confederation),
        (code::NEXT_HOP, WELL_KNOWN) | (code::MED, flags::OPTIONAL) => value.len() == 4,
        (code::LOCAL_PREF, WELL_KNOWN) => !ctx.external && value.len() == 4,
        (code::ATOMIC_AGGREGATE, WELL_KNOWN) => value.is_empty(),
        (code::COMMUNITIES, TRANSITIVE) => !value.is_empty() && value.len().is_multiple_of(4),
        (code::EXTENDED_COMMUNITIES, TRANSITIVE) => !value.is_empty() && value.len().is_multiple_of(8),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{AttributeOutcome, check};
    use super::super::parse;
    use super::*;
    use crate::bgp::build;
    use proptest::prelude::*;

    /// Values that are right and wrong for some codes.
    const VALUES: [&[u8]; 12] = [
        &[],
        &[0],
        &[3],
        &[1, 2],
        &[0; 4],
        &[10, 0, 0, 1],
        &[2, 1, 0, 0, 0, 7],
        &[2, 1, 0, 0, 0, 0],
        &[3, 1, 0, 0, 0, 7],
        &[2, 1, 0, 7],
        &[1; 8],
        &[1; 12],
    ];
    const CODES: [u8; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 32, 35, 99];

    fn contexts() -> impl Iterator<Item = UpdateContext> {
        (0..8).map(|n| UpdateContext {
            confederation: n & 4 != 0,
            ..UpdateContext::new(n & 1 != 0, n & 2 != 0)
        })
    }

    #[test]
    fn registry_keeps_each_common_attribute() {
        let mut common = 0;
        for ctx in contexts() {
            for (code, flags) in
                (0..=255).flat_map(|code| [0, 0x10, 0x40, 0x80, 0xc0, 0xe0].map(|flags| (code, flags)))
            {
                for value in VALUES {
                    let attribute = Attribute { flags, code, value };
                    if is_common(&attribute, &ctx) {
                        common += 1;
                        assert!(
                            matches!(check(&attribute, &ctx), AttributeOutcome::Keep),
                            "{attribute:?} {ctx:?}"
                        );
                    }
                }
            }
        }
        assert!(common > 100, "{common}");
    }

    #[test]
    fn plain_route_of_each_family_is_verbatim() {
        let block = |attributes: &[&[u8]]| {
            let all = attributes.concat();
            [&[0, 0][..], &(all.len() as u16).to_be_bytes(), &all].concat()
        };
        let (origin, path) = (&[0x40, 1, 1, 0][..], &[0x40, 2, 6, 2, 1, 0, 0, 0, 7][..]);
        let (hop, communities) = (&[0x40, 3, 4, 10, 0, 0, 1][..], &[0xc0, 8, 4, 0, 1, 0, 2][..]);
        let reach =
            [&[0x80, 14, 26, 0, 2, 1, 16, 0x20, 1][..], &[0; 14], &[0, 32, 0x20, 1, 0xd, 0xb8]].concat();
        let ctx = UpdateContext::new(true, true);
        let four = [block(&[origin, path, hop, communities]), vec![8, 10]].concat();
        let verbatim = parse(&four, &ctx).unwrap().verbatim().unwrap();
        assert_eq!(verbatim.bytes, [&[origin, path].concat()[..], communities]);
        assert_eq!(verbatim.as_path, &path[3..]);
        let six = block(&[&reach, origin, path, communities]);
        assert_eq!(
            parse(&six, &ctx).unwrap().verbatim().unwrap().bytes,
            [&[][..], &[origin, path, communities].concat()]
        );
        for other in [
            &[origin, path, communities, hop][..],
            &[path, origin, hop],
            &[origin, path, hop, &[0xe0, 8, 4, 0, 1, 0, 2]],
        ] {
            let body = [block(other), vec![8, 10]].concat();
            let verbatim = parse(&body, &ctx).unwrap().verbatim();
            assert_eq!(verbatim.is_some(), other[2] == communities, "{other:?}");
        }
    }

    proptest! {
        // Whatever comes, these bytes are the attributes that the message keeps.
        #[test]
        fn verbatim_bytes_are_the_kept_attributes(
            chosen in prop::collection::vec((0..CODES.len(), 0..8u8, 0..VALUES.len(), any::<bool>()), 0..8),
            sort: bool,
            ctx in 0..8usize,
        ) {
            let mut rows: Vec<(u8, u8, &[u8])> = vec![(1, 0x40, &[0]), (2, 0x40, VALUES[6]), (3, 0x40, VALUES[5])];
            rows.extend(chosen.iter().map(|(code, flags, value, _)| (CODES[*code], flags << 5, VALUES[*value])));
            if sort {
                rows.sort_by_key(|row| row.0);
                rows.dedup_by_key(|row| row.0);
            }
            let mut block = Vec::new();
            for (n, (code, flags, value)) in rows.iter().enumerate() {
                let long = n >= 3 && chosen.get(n - 3).is_some_and(|row| row.3);
                match long {
                    true => block.extend_from_slice(&[flags | 0x10, *code, 0, value.len() as u8]),
                    false => block.extend_from_slice(&[flags & !0x10, *code, value.len() as u8]),
                }
                block.extend_from_slice(value);
            }
            let body = [&[0, 0][..], &(block.len() as u16).to_be_bytes(), &block, &[8, 10]].concat();
            let ctx = contexts().nth(ctx).unwrap();
            if let Ok(update) = parse(&body, &ctx) && let Some(verbatim) = update.verbatim() {
                let mut kept = Vec::new();
                let mut last = 0;
                for a in update.attributes() {
                    prop_assert!(a.code > last);
                    last = a.code;
                    build::attribute(&mut kept, a.flags, a.code, a.value);
                    if a.code == code::AS_PATH {
                        prop_assert_eq!(a.value, verbatim.as_path);
                    }
                }
                prop_assert_eq!(verbatim.bytes.concat(), kept);
            }
        }
    }
}
