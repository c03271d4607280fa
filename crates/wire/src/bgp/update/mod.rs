//! UPDATE: withdrawn routes, announced routes, and their attributes.
//!
//! [`parse`] checks everything once, in one pass that allocates nothing for a message without faults. Every fault
//! has the outcome that RFC 7606 gives it: the session is reset (the `Err` of `parse`), the routes of the message
//! are treated as withdrawn ([`Disposition`]), or an attribute is discarded ([`Update::discarded`]).

mod as4;
mod check;
mod fault;
mod filter;
mod forms;
mod verbatim;

pub use fault::{Discarded, Fault, FaultKind};
pub use filter::{AttributeFilter, CodeSet};
pub use verbatim::Verbatim;

use super::attribute::registry::rule;
use super::attribute::{Attribute, Attributes, code, flags};
use super::next_hop::NextHop;
use super::nlri::{self, Nlri, Nlris, Prefixes};
use super::notification::{self, Notification};
use check::AttributeOutcome;
use ribtide_prefix::{Afi, AfiSafi, BgpFamily, FamilySet, V4, V6};
use std::net::Ipv4Addr;
use verbatim::{Layout, is_common};

/// The properties of a session that parsing depends on. Equal attribute bytes have equal meaning
/// only under an equal context, so a cache of parsed bytes has both in its key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UpdateContext {
    /// Both sides have four-octet AS numbers (RFC 6793).
    pub four_octet_as: bool,
    /// The peer is of another AS.
    pub external: bool,
    /// The Prefix-SID of an external peer is accepted (RFC 8669 section 4); that of an internal one always is.
    pub prefix_sid: bool,
    /// AIGP is accepted (RFC 7311 section 3.3).
    pub aigp: bool,
    /// The peer is inside our confederation, so that AS_PATH may have its segments (RFC 5065 section 4).
    pub confederation: bool,
    /// The families in which the peer sends path identifiers (RFC 7911).
    pub path_ids: FamilySet,
}

impl UpdateContext {
    /// A session without Prefix-SIDs of external peers, AIGP, confederation and path identifiers.
    pub const fn new(four_octet_as: bool, external: bool) -> UpdateContext {
        let path_ids = FamilySet::NONE;
        UpdateContext {
            four_octet_as,
            external,
            prefix_sid: false,
            aigp: false,
            confederation: false,
            path_ids,
        }
    }
}

/// The outcome of the announced routes of an UPDATE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// The routes are announced.
    Normal,
    /// The routes are withdrawn, because a malformed attribute makes them unusable (RFC 7606
    /// section 2).
    TreatAsWithdraw {
        /// The first such fault.
        reason: Fault,
    },
}

/// An UPDATE, checked.
#[derive(Clone, Debug)]
pub struct Update<'a> {
    withdrawn: &'a [u8],
    attributes: &'a [u8],
    nlri: &'a [u8],
    path_ids: FamilySet,
    next_hop: Option<Ipv4Addr>,
    reach: Option<MpReach<'a>>,
    unreach: Option<MpUnreach<'a>>,
    /// The ranges of MP_REACH_NLRI and MP_UNREACH_NLRI in `attributes`, in the order received; the
    /// end of `attributes` when missing.
    mp_ranges: [(usize, usize); 2],
    disposition: Disposition,
    discarded: Vec<Discarded>,
    verbatim: Option<Verbatim<'a>>,
    /// The surviving attributes with four-octet AS numbers, when the peer sent two-octet ones.
    widened: Option<Vec<u8>>,
}

/// An MP_REACH_NLRI of a family that ribtide has.
#[derive(Clone, Copy, Debug)]
struct MpReach<'a> {
    family: AfiSafi,
    next_hop: NextHop,
    nlri: &'a [u8],
}

/// An MP_UNREACH_NLRI of a family that ribtide has.
#[derive(Clone, Copy, Debug)]
struct MpUnreach<'a> {
    family: AfiSafi,
    nlri: &'a [u8],
}

/// Reads and checks the body of an UPDATE.
///
/// # Errors
/// The NOTIFICATION to close with, only where RFC 7606 demands it: prefixes that cannot be located or read,
/// MP_REACH_NLRI or MP_UNREACH_NLRI twice, an unknown well-known attribute, or a serious fault in a message that
/// announces nothing one could withdraw instead (section 5.2).
pub fn parse<'a>(body: &'a [u8], ctx: &UpdateContext) -> Result<Update<'a>, Notification> {
    parse_filtered(body, ctx, None)
}

/// As [`parse`], with a filter of attributes.
///
/// # Errors
/// As [`parse`]; a filter adds none.
pub fn parse_filtered<'a>(
    body: &'a [u8],
    ctx: &UpdateContext,
    filter: Option<&AttributeFilter>,
) -> Result<Update<'a>, Notification> {
    let malformed_list =
        || Notification::new(notification::code::UPDATE, notification::update::MALFORMED_ATTRIBUTE_LIST);
    let (withdrawn, rest) = split_field(body).ok_or_else(malformed_list)?;
    let (attributes, nlri) = split_field(rest).ok_or_else(malformed_list)?;
    let is_valid = |field| nlri::is_valid_field::<V4>(field, ctx.path_ids.has(AfiSafi::Ipv4Unicast));
    if !is_valid(withdrawn) || !is_valid(nlri) {
        return Err(Notification::new(notification::code::UPDATE, notification::update::INVALID_NETWORK));
    }
    let mut update = Update {
        withdrawn,
        attributes,
        nlri,
        path_ids: ctx.path_ids,
        next_hop: None,
        reach: None,
        unreach: None,
        mp_ranges: [(attributes.len(), attributes.len()); 2],
        disposition: Disposition::Normal,
        discarded: Vec::new(),
        verbatim: None,
        widened: None,
    };
    if !attributes.is_empty() || !nlri.is_empty() {
        update.read_attributes(ctx, filter)?;
    }
    Ok(update)
}

/// The family and the field of what an UPDATE announces, as far as that is seen without any check; `None`: nothing, or it
/// is malformed. For prefetching.
#[inline]
pub fn peek_announced(body: &[u8]) -> Option<(AfiSafi, &[u8])> {
    let (_, rest) = split_field(body)?;
    let (mut attributes, nlri) = split_field(rest)?;
    if !nlri.is_empty() {
        return Some((AfiSafi::Ipv4Unicast, nlri));
    }
    while let Some((attribute, after)) = Attribute::split_first(attributes) {
        if attribute.code == code::MP_REACH_NLRI {
            let (family, rest) = split_family(attribute.value)?;
            let (len, rest) = rest.split_first()?;
            // A reserved byte is between next hop and NLRI.
            return Some((family?, rest.get(usize::from(*len) + 1..)?));
        }
        attributes = after;
    }
    None
}

/// A field with two bytes of length before it, and what follows.
#[inline]
fn split_field(buf: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = buf.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

impl<'a> Update<'a> {
    /// Walks the attributes once and decides the outcome of each and of the message.
    fn read_attributes(
        &mut self,
        ctx: &UpdateContext,
        filter: Option<&AttributeFilter>,
    ) -> Result<(), Notification> {
        let block = self.attributes;
        let mut seen = CodeSet::default();
        // Whether an unsupported address family is present: its routes cannot be read, only
        // ignored.
        let mut other_family = false;
        let mut as4 = as4::Parts::default();
        let mut worst: Option<(Fault, &[u8])> = None;
        let mut unwanted = None;
        let mut layout = Layout::new();
        let mut rest = block;
        while !rest.is_empty() {
            let from_here = rest;
            let Some((attribute, after)) = Attribute::split_first(rest) else {
                // RFC 7606 section 4. The attributes before it stay as found, those after it cannot be.
                let code = rest.get(1).copied().unwrap_or(0);
                worst.get_or_insert((Fault { code, kind: FaultKind::Overrun }, rest));
                break;
            };
            rest = after;
            let Attribute { code, value, .. } = attribute;
            let (start, end) = (block.len() - from_here.len(), block.len() - after.len());
            let whole = from_here.get(..end - start).unwrap_or(from_here);
            if !seen.insert(code) {
                if matches!(code, code::MP_REACH_NLRI | code::MP_UNREACH_NLRI) {
                    return Err(Fault { code, kind: FaultKind::Duplicate }.notification(whole));
                }
                self.discard(Fault { code, kind: FaultKind::Duplicate }, start);
                continue;
            }
            if let Some(filter) = filter {
                if filter.discard.contains(code) {
                    self.discard(Fault { code, kind: FaultKind::Unwanted }, start);
                    continue;
                }
                if filter.withdraw.contains(code) {
                    unwanted.get_or_insert(Fault { code, kind: FaultKind::Unwanted });
                }
            }
            if is_common(&attribute, ctx) {
                if code == code::NEXT_HOP {
                    self.next_hop = value.first_chunk::<4>().map(|a| Ipv4Addr::from(*a));
                    layout.add_next_hop(start, end);
                } else {
                    layout.add(&attribute);
                }
                continue;
            }
            let outcome = check::check(&attribute, ctx);
            match outcome {
                AttributeOutcome::Reach => layout.add_next_hop(start, end),
                _ => layout.add_other(),
            }
            match outcome {
                AttributeOutcome::Keep => match code {
                    code::NEXT_HOP => self.next_hop = value.first_chunk::<4>().map(|a| Ipv4Addr::from(*a)),
                    code::AGGREGATOR => as4.aggregator = Some(value),
                    code::AS4_PATH => as4.as4_path = Some(value),
                    code::AS4_AGGREGATOR => as4.as4_aggregator = Some(value),
                    _ => {}
                },
                AttributeOutcome::Discard(kind) => self.discard(Fault { code, kind }, start),
                AttributeOutcome::Withdraw(kind) => {
                    worst.get_or_insert((Fault { code, kind }, whole));
                }
                AttributeOutcome::Unexpected(kind) => {
                    unwanted.get_or_insert(Fault { code, kind });
                }
                AttributeOutcome::Reset(kind) => return Err(Fault { code, kind }.notification(whole)),
                AttributeOutcome::Reach => {
                    self.mark_mp(start, end);
                    self.reach = MpReach::parse(value, ctx.path_ids)
                        .map_err(|kind| Fault { code, kind }.notification(whole))?;
                    other_family = self.reach.is_none();
                }
                AttributeOutcome::Unreach => {
                    self.mark_mp(start, end);
                    self.unreach = MpUnreach::parse(value, ctx.path_ids)
                        .map_err(|kind| Fault { code, kind }.notification(whole))?;
                }
            }
        }
        let announces =
            !self.nlri.is_empty() || other_family || self.reach.is_some_and(|reach| !reach.nlri.is_empty());
        if announces && worst.is_none() {
            // A filtered attribute is no fault, so it resets no session of a message without
            // routes.
            worst = self.whole_message_fault(&seen).or(unwanted).map(|fault| (fault, &[][..]));
        }
        match worst {
            // RFC 7606 section 5.2: the prefixes may be hidden in the malformed part.
            Some((fault, data)) if !announces => Err(fault.notification(data)),
            Some((reason, _)) => {
                self.disposition = Disposition::TreatAsWithdraw { reason };
                Ok(())
            }
            None => {
                if self.discarded.is_empty() {
                    self.verbatim = layout.finish(block);
                }
                if !ctx.four_octet_as {
                    self.widened = Some(as4::widen(Survivors::new(block, &self.discarded), &as4));
                }
                Ok(())
            }
        }
    }

    fn discard(&mut self, fault: Fault, start: usize) {
        self.discarded.push(Discarded { fault, start });
    }

    fn mark_mp(&mut self, start: usize, end: usize) {
        let [first, second] = &mut self.mp_ranges;
        if first.0 == self.attributes.len() {
            *first = (start, end);
        } else {
            *second = (start, end);
        }
    }

    /// The fault of a message with routes whose attributes are each well formed.
    fn whole_message_fault(&self, seen: &CodeSet) -> Option<Fault> {
        let missing = |code| Some(Fault { code, kind: FaultKind::Missing });
        if !seen.contains(code::ORIGIN) {
            return missing(code::ORIGIN);
        }
        if !seen.contains(code::AS_PATH) {
            return missing(code::AS_PATH);
        }
        if !self.nlri.is_empty() {
            // With MP_REACH_NLRI alone, NEXT_HOP is ignored (RFC 4760 section 3).
            let Some(addr) = self.next_hop else { return missing(code::NEXT_HOP) };
            if !NextHop::V4(addr).is_host() {
                return Some(Fault { code: code::NEXT_HOP, kind: FaultKind::Value });
            }
        }
        let reach = self.reach.filter(|reach| !reach.nlri.is_empty())?;
        let kind = if !reach.next_hop.is_host() {
            FaultKind::Value
        } else if reach.family == AfiSafi::Ipv4Unicast
            && !self.nlri.is_empty()
            && self.next_hop.is_some_and(|addr| NextHop::V4(addr) != reach.next_hop)
        {
            FaultKind::Conflict
        } else {
            return None;
        };
        Some(Fault { code: code::MP_REACH_NLRI, kind })
    }

    /// The families whose prefixes have path identifiers: those of the session.
    #[inline]
    pub fn path_ids(&self) -> FamilySet {
        self.path_ids
    }

    /// Whether the routes are as announced.
    #[inline]
    pub fn disposition(&self) -> Disposition {
        self.disposition
    }

    /// The attributes that were discarded because of a fault, in the order received.
    pub fn discarded(&self) -> &[Discarded] {
        &self.discarded
    }

    /// The prefixes of family `F` that are announced; none under [`Disposition::TreatAsWithdraw`], and
    /// none if they have path identifiers: see [`Update::announced_nlri`].
    #[inline]
    pub fn announced<F: BgpFamily>(&self) -> Prefixes<'a, F> {
        self.announced_nlri()
    }

    /// The withdrawn prefixes of family `F`; under [`Disposition::TreatAsWithdraw`] with the
    /// announced ones. Apply them before [`Update::announced`]: a prefix in both is announced (RFC
    /// 4271 section 4.3). None if they have path identifiers: see [`Update::withdrawn_nlri`].
    #[inline]
    pub fn withdrawn<F: BgpFamily>(&self) -> Prefixes<'a, F> {
        self.withdrawn_nlri()
    }

    /// As [`Update::announced`], of NLRI with path identifiers or without. None of those that the
    /// session does not have.
    #[inline]
    pub fn announced_nlri<N: Nlri>(&self) -> Nlris<'a, N> {
        match self.disposition {
            Disposition::Normal if self.has::<N>() => {
                let [classic, mp] = self.announced_fields::<N::Family>();
                Nlris::chain([classic, mp, &[], &[]])
            }
            _ => Nlris::new(&[]),
        }
    }

    /// As [`Update::withdrawn`], of NLRI with path identifiers or without. None of those that the
    /// session does not have.
    #[inline]
    pub fn withdrawn_nlri<N: Nlri>(&self) -> Nlris<'a, N> {
        if !self.has::<N>() {
            return Nlris::new(&[]);
        }
        let classic = if N::Family::ID == AfiSafi::Ipv4Unicast { self.withdrawn } else { &[] };
        let mp = match self.unreach {
            Some(unreach) if unreach.family == N::Family::ID => unreach.nlri,
            _ => &[],
        };
        match self.disposition {
            Disposition::Normal => Nlris::chain([classic, mp, &[], &[]]),
            Disposition::TreatAsWithdraw { .. } => {
                let [announced_classic, announced_mp] = self.announced_fields::<N::Family>();
                Nlris::chain([classic, mp, announced_classic, announced_mp])
            }
        }
    }

    /// Whether the family's NLRI are of this kind.
    #[inline]
    fn has<N: Nlri>(&self) -> bool {
        self.path_ids.has(N::Family::ID) == N::HAS_PATH_ID
    }

    #[inline]
    fn announced_fields<F: BgpFamily>(&self) -> [&'a [u8]; 2] {
        let classic = if F::ID == AfiSafi::Ipv4Unicast { self.nlri } else { &[] };
        let mp = match self.reach {
            Some(reach) if reach.family == F::ID => reach.nlri,
            _ => &[],
        };
        [classic, mp]
    }

    /// The next hop of the announced prefixes of family `F`; there is one whenever there are such prefixes.
    #[inline]
    pub fn next_hop<F: BgpFamily>(&self) -> Option<NextHop> {
        match self.reach {
            Some(reach) if reach.family == F::ID && !reach.nlri.is_empty() => Some(reach.next_hop),
            _ if F::ID == AfiSafi::Ipv4Unicast && !self.nlri.is_empty() => self.next_hop.map(NextHop::V4),
            _ => None,
        }
    }

    /// The attributes to store with the announced routes, in the order received, with four-octet AS
    /// numbers. Excluded are discarded attributes, NEXT_HOP, MP_REACH_NLRI, MP_UNREACH_NLRI, and
    /// unrecognized optional ones that are not transitive. An unrecognized attribute gets the
    /// partial flag (RFC 4271 section 5); one that may not be partial loses it (section 4.3). None
    /// under [`Disposition::TreatAsWithdraw`].
    pub fn attributes(&self) -> Survivors<'_> {
        match (&self.widened, self.disposition) {
            (_, Disposition::TreatAsWithdraw { .. }) => Survivors::new(&[], &[]),
            (Some(widened), _) => Survivors::new(widened, &[]),
            (None, _) => Survivors::new(self.attributes, &self.discarded),
        }
    }

    /// The same bytes, where they are stored as they came.
    #[inline]
    pub fn verbatim(&self) -> Option<Verbatim<'a>> {
        self.verbatim
    }

    /// The attribute block as received.
    pub fn raw_attributes(&self) -> &'a [u8] {
        self.attributes
    }

    /// The attribute block as received without MP_REACH_NLRI and MP_UNREACH_NLRI, in up to three
    /// pieces. Under one [`UpdateContext`] and one filter, equal bytes here mean equal
    /// [`Update::attributes`]. With [`Update::next_hop`], they are the key of a cache of parsed
    /// attributes.
    #[inline]
    pub fn attribute_key(&self) -> [&'a [u8]; 3] {
        let [first, second] = self.mp_ranges;
        let piece = |from, to| self.attributes.get(from..to).unwrap_or(&[]);
        [piece(0, first.0), piece(first.1, second.0), piece(second.1, self.attributes.len())]
    }

    /// The family whose End-of-RIB the message is (RFC 4724 section 2).
    pub fn end_of_rib(&self) -> Option<AfiSafi> {
        if !self.withdrawn.is_empty() || !self.nlri.is_empty() {
            return None;
        }
        match self.unreach {
            None => self.attributes.is_empty().then_some(AfiSafi::Ipv4Unicast),
            Some(unreach) => {
                let alone = self.attribute_key().iter().all(|piece| piece.is_empty()) && self.reach.is_none();
                (alone && unreach.nlri.is_empty()).then_some(unreach.family)
            }
        }
    }
}

/// Splits AFI and SAFI off an MP attribute. The family is `None` when ribtide does not have it.
fn split_family(value: &[u8]) -> Option<(Option<AfiSafi>, &[u8])> {
    let (family, rest) = value.split_first_chunk::<3>()?;
    Some((AfiSafi::from_bytes(*family), rest))
}

/// Checks the prefixes of an MP attribute.
fn valid_nlri(family: AfiSafi, field: &[u8], path_ids: FamilySet) -> Result<&[u8], FaultKind> {
    let path_ids = path_ids.has(family);
    let valid = match family.afi() {
        Afi::Ipv4 => nlri::is_valid_field::<V4>(field, path_ids),
        Afi::Ipv6 => nlri::is_valid_field::<V6>(field, path_ids),
    };
    valid.then_some(field).ok_or(FaultKind::Value)
}

impl<'a> MpReach<'a> {
    /// `None` for a family that ribtide does not have (RFC 4760 section 3, RFC 7606 sections 5.3 and 7.11).
    #[inline]
    fn parse(value: &'a [u8], path_ids: FamilySet) -> Result<Option<Self>, FaultKind> {
        let (family, rest) = split_family(value).ok_or(FaultKind::Length)?;
        let (len, rest) = rest.split_first().ok_or(FaultKind::Length)?;
        let (next_hop, rest) = rest.split_at_checked(usize::from(*len)).ok_or(FaultKind::Length)?;
        let (_reserved, field) = rest.split_first().ok_or(FaultKind::Length)?;
        let Some(family) = family else { return Ok(None) };
        let next_hop = NextHop::from_mp(family.afi(), next_hop).ok_or(FaultKind::Length)?;
        Ok(Some(MpReach { family, next_hop, nlri: valid_nlri(family, field, path_ids)? }))
    }
}

impl<'a> MpUnreach<'a> {
    /// `None` for a family that ribtide does not have (RFC 4760 section 4, RFC 7606 section 5.3).
    fn parse(value: &'a [u8], path_ids: FamilySet) -> Result<Option<Self>, FaultKind> {
        let (family, field) = split_family(value).ok_or(FaultKind::Length)?;
        let Some(family) = family else { return Ok(None) };
        Ok(Some(MpUnreach { family, nlri: valid_nlri(family, field, path_ids)? }))
    }
}

/// The attributes that an UPDATE keeps. See [`Update::attributes`].
#[derive(Clone, Debug)]
pub struct Survivors<'u> {
    attributes: Attributes<'u>,
    block_len: usize,
    /// Not yet passed, in order.
    discarded: &'u [Discarded],
}

impl<'u> Survivors<'u> {
    fn new(block: &'u [u8], discarded: &'u [Discarded]) -> Self {
        Survivors { attributes: Attributes::new(block), block_len: block.len(), discarded }
    }
}

impl<'u> Iterator for Survivors<'u> {
    type Item = Attribute<'u>;

    #[inline]
    fn next(&mut self) -> Option<Attribute<'u>> {
        loop {
            let start = self.block_len - self.attributes.remainder().len();
            let attribute = self.attributes.next()?;
            if let Some((first, later)) = self.discarded.split_first()
                && first.start == start
            {
                self.discarded = later;
                continue;
            }
            if matches!(attribute.code, code::NEXT_HOP | code::MP_REACH_NLRI | code::MP_UNREACH_NLRI) {
                continue;
            }
            let rule = rule(attribute.code);
            let kept = attribute.flags & rule.sent_flags;
            if rule.ours {
                return Some(Attribute { flags: kept, ..attribute });
            }
            if attribute.flags & flags::TRANSITIVE != 0 {
                return Some(Attribute { flags: kept | flags::PARTIAL, ..attribute });
            }
        }
    }
}

#[cfg(test)]
mod tests;
