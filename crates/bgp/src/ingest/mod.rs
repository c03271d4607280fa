//! Ingest: from the UPDATEs of a session to batches of routes for the shards, on a reader thread.
//!
//! A reader brings the attributes of an UPDATE into canonical form in scratch memory, and allocates
//! a set only if it is not among the recent ones. A shard gets one handle per UPDATE. Each reader
//! has a cache of its own, so nothing is shared or locked.

mod batches;
mod import;
mod kept;
mod martians;
mod max_prefixes;
mod originate;
mod peer;
mod received;
mod recent;
mod refresh;
#[cfg(test)]
mod tests;
mod trial;

pub use batches::{ShardBatches, ShardMap};
pub use martians::Martians;
pub use max_prefixes::{LimitAction, LimitCrossed, LimitEvent, MaxPrefixes, PrefixCount};
pub use originate::OriginatedAttributes;
pub use peer::{IngestCounters, IngestPeer, IngestSettings, Refusal};

use crate::attr::{AttrSet, Content};
use crate::message::{PathPrefixes, Prefixes};
use import::Import;
use kept::KeptRoutes;
use max_prefixes::{Accepted, Admission};
use peer::Context;
use received::{Ahead, Received, origin_of, path_of};
pub use received::{KeptFilter, KeptPlace, KeptRoute, ReceivedView};
use recent::Recent;
use ribtide_policy::{PolicyResult, Validation};
use ribtide_prefix::{Afi, AfiSafi, BgpFamilies, BgpFamily, Families, Prefix, Set, for_each_bgp_family};
use ribtide_rpki::Vrps;
use ribtide_wire::bgp::attribute::{Attribute, Attributes, code, flags};
use ribtide_wire::bgp::nlri::{Nlri, PathPrefix};
use ribtide_wire::bgp::update::{self, Disposition, Update};
use ribtide_wire::bgp::{AsPath, NextHop, Notification, build};
use std::hash::Hash;
use std::sync::Arc;

/// Reads UPDATEs and caches recent attribute sets.
#[derive(Default)]
pub struct Ingest {
    recent: Recent,
    /// Results of import policies for recent attribute sets.
    import: Import,
    /// Scratch memory for the attributes of the current UPDATE.
    content: Content,
    /// Scratch memory for prefixes with the same policy result.
    run: Run,
    /// The table that routes are validated against.
    vrps: Arc<Vrps>,
    /// Scratch memory for prefixes that soon are validated.
    ahead: Families<Ahead>,
}

/// Scratch memory for prefixes, and for those with path identifiers.
#[derive(Default)]
struct Run {
    prefixes: BgpFamilies<Prefixes>,
    paths: BgpFamilies<PathPrefixes>,
}

/// What sessions send in a family: prefixes, or prefixes with path identifiers. Each is code of its
/// own, so that add-path costs other sessions nothing.
trait SessionNlri: Nlri + Ord + Hash + 'static {
    fn of(prefix: Prefix<Self::Family>, path_id: u32) -> Self;
    fn run(run: &mut Run) -> &mut Vec<Self>;
    fn accepted(accepted: &mut Accepted<Self::Family>) -> &mut Set<Self>;
    fn kept(received: &mut Received) -> &mut KeptRoutes<Self>;
}

impl<F: BgpFamily> SessionNlri for Prefix<F> {
    fn of(prefix: Prefix<F>, _: u32) -> Prefix<F> {
        prefix
    }

    fn run(run: &mut Run) -> &mut Vec<Prefix<F>> {
        run.prefixes.get_mut::<F>()
    }

    fn accepted(accepted: &mut Accepted<F>) -> &mut Set<Prefix<F>> {
        accepted.prefixes()
    }

    fn kept(received: &mut Received) -> &mut KeptRoutes<Prefix<F>> {
        received.prefixes()
    }
}

impl<F: BgpFamily> SessionNlri for PathPrefix<F> {
    fn of(prefix: Prefix<F>, path_id: u32) -> PathPrefix<F> {
        PathPrefix { prefix, path_id }
    }

    fn run(run: &mut Run) -> &mut Vec<PathPrefix<F>> {
        run.paths.get_mut::<F>()
    }

    fn accepted(accepted: &mut Accepted<F>) -> &mut Set<PathPrefix<F>> {
        accepted.paths()
    }

    fn kept(received: &mut Received) -> &mut KeptRoutes<PathPrefix<F>> {
        received.paths()
    }
}

impl Ingest {
    /// Reads the body of an UPDATE and appends its routes to `out`. Returns the family whose
    /// initial routes are complete, if the UPDATE is an End-of-RIB marker (RFC 4724 section 2).
    ///
    /// # Errors
    /// The NOTIFICATION that closes the session; `out` is unchanged.
    pub fn update(
        &mut self,
        peer: &mut IngestPeer,
        body: &[u8],
        out: &mut ShardBatches,
    ) -> Result<Option<AfiSafi>, Notification> {
        let update = update::parse_filtered(body, &peer.context.update, peer.context.filter.as_ref())?;
        peer.counters.updates += 1;
        peer.counters.discarded_attributes += update.discarded().len() as u64;
        if let Some(last) = update.discarded().last() {
            peer.counters.last_discard = Some(last.fault);
        }
        if let Disposition::TreatAsWithdraw { reason } = update.disposition() {
            peer.counters.treated_as_withdraw += 1;
            peer.counters.last_fault = Some(reason);
        }
        for_each_bgp_family!(F => match update.path_ids().has(F::ID) {
            false => self.routes::<Prefix<F>>(peer, &update, out),
            true => self.paths::<F>(peer, &update, out),
        });
        Ok(update.end_of_rib())
    }

    /// The routes of a session with path identifiers, apart from those of others.
    #[cold]
    #[inline(never)]
    fn paths<F: BgpFamily>(&mut self, peer: &mut IngestPeer, update: &Update<'_>, out: &mut ShardBatches) {
        self.routes::<PathPrefix<F>>(peer, update, out);
    }

    #[inline(always)]
    fn routes<N: SessionNlri>(&mut self, peer: &mut IngestPeer, update: &Update<'_>, out: &mut ShardBatches) {
        let family = N::Family::ID;
        let withdrawn = update.withdrawn_nlri::<N>();
        let announced = || update.announced_nlri::<N>();
        if withdrawn.is_empty() && announced().is_empty() {
            // It is about another family.
            return;
        }
        let IngestPeer { info, settings, context, counters, accepted, received, refreshed } = peer;
        if refresh::any(refreshed) {
            refresh::note::<N>(refreshed, update);
        }
        if !info.families.has(family) {
            counters.ignored += (withdrawn.count() + announced().count()) as u64;
            return;
        }
        let mut routes = Admission::<N> { info, accepted: accepted.get_mut().as_mut(), out };
        if !withdrawn.is_empty() {
            counters.withdrawn += routes.withdraw(withdrawn);
            if let Some(received) = received {
                withdraw::<N>(received, update);
            }
        }
        let Some(mut next_hop) = update.next_hop::<N::Family>() else { return };
        if let Some(zone) = context.zone.or(context.link.filter(|_| next_hop.is_link_local())) {
            next_hop = next_hop.on_link(zone);
        }
        if matches!(update.disposition(), Disposition::TreatAsWithdraw { .. }) {
            return;
        }
        let mut refuse = |why: Refusal, count| {
            counters.refused[why as usize] += count;
            if count > 0 {
                counters.last_refusal = Some(why);
            }
        };
        let canonical = next_hop.addr().to_canonical();
        // It is the receiver's own address (RFC 4271 section 5.1.3), but in a session over the loopback.
        let is_own = canonical.is_loopback() && !info.address.to_canonical().is_loopback();
        // An IPv4-mapped address is no node's IPv6 address (RFC 4291 section 2.5.5.2), and no dataplane forwards IPv6 by an
        // IPv4 neighbour without a label (RFC 4798): such a next hop is semantically incorrect (RFC 4271 section 6.3).
        if is_own || N::Family::AFI == Afi::Ipv6 && canonical.is_ipv4() {
            forget::<N>(received, update);
            return refuse(Refusal::Martian, routes.withdraw(announced()));
        }
        // A policy that rejects all routes does not need the attributes.
        if settings.import.constant() == Some(PolicyResult::Reject) && received.is_none() {
            return refuse(Refusal::ImportPolicy, routes.withdraw(announced()));
        }
        if let Err(why) = self.read(context, update, next_hop) {
            forget::<N>(received, update);
            return refuse(why, routes.withdraw(announced()));
        }
        let Ingest { recent, import, content, run, vrps, ahead: _ } = self;
        // A martian counts as withdrawn: an earlier list may have accepted it.
        let mut martians = Vec::new();
        let first_bytes = settings.martians.first_bytes::<N::Family>();
        let announced = announced().filter(|route| {
            !(first_bytes.has(route.prefix()) && settings.martians.takes(*route, &mut martians))
        });
        let kept =
            received.as_deref_mut().map(|received| (N::kept(received), recent.intern(content).clone()));
        if settings.import.constant_for(content.attributes()) == Some(PolicyResult::Accept) {
            let (count, beyond) = routes.announce(recent.intern(content), announced);
            counters.announced += count;
            refuse(Refusal::MaxPrefixes, beyond);
        } else if let Some(results) = settings.import.constant_by_validity(content.attributes()) {
            let origin = origin_of(content.attributes(), info.egress.local_asn);
            // A prefix that an UPDATE has twice has one result, so the rejected ones may follow.
            let rejected = N::run(run);
            let accepted = announced.filter(|route| {
                let validity = vrps.validate(route.prefix().ip(), origin);
                let is_accepted = results[validity as usize] == PolicyResult::Accept;
                if !is_accepted {
                    rejected.push(*route);
                }
                is_accepted
            });
            let (count, beyond) = routes.announce(recent.intern(content), accepted);
            counters.announced += count;
            refuse(Refusal::MaxPrefixes, beyond);
            if !rejected.is_empty() {
                refuse(Refusal::ImportPolicy, routes.withdraw(rejected.drain(..)));
            }
        } else {
            let source = info.source();
            let validation = settings.import.tests_rpki().then(|| {
                let attributes = content.attributes();
                let rule = context.path_rule().filter(|_| settings.import.tests_path());
                let path = rule.map(|rule| vrps.aspas().verify(path_of(attributes), &rule));
                Validation { vrps, origin: origin_of(attributes, info.egress.local_asn), path }
            });
            let mut result =
                import.evaluate(&settings.import, source, family, next_hop, validation, content, recent);
            let mut add = |attrs: Option<&AttrSet>, prefixes: &mut dyn Iterator<Item = N>| {
                let Some(attrs) = attrs else {
                    return refuse(Refusal::ImportPolicy, routes.withdraw(prefixes));
                };
                let (count, beyond) = routes.announce(attrs, prefixes);
                counters.announced += count;
                refuse(Refusal::MaxPrefixes, beyond);
            };
            if let Some(attrs) = result.settled() {
                add(attrs, &mut { announced });
            } else {
                // Prefixes with the same result become one run.
                let run = N::run(run);
                let mut last: Option<AttrSet> = None;
                for route in announced {
                    let attrs = result.on(route.prefix());
                    if !batches::same(attrs, last.as_ref()) {
                        add(last.as_ref(), &mut run.drain(..));
                        last = attrs.cloned();
                    }
                    run.push(route);
                }
                add(last.as_ref(), &mut run.drain(..));
            }
        }
        if let Some((kept, attrs)) = kept {
            keep::<N>(kept, attrs, update, settings, &martians);
        }
        refuse(Refusal::Martian, routes.withdraw_all(martians));
    }

    /// Reads the attributes of `update` into the scratch memory, unless one forbids the routes.
    fn read(&mut self, context: &Context, update: &Update<'_>, next_hop: NextHop) -> Result<(), Refusal> {
        self.content.begin(next_hop);
        match update.verbatim() {
            Some(verbatim) if context.changes_nothing() => {
                context.check_path(AsPath::new(verbatim.as_path))?;
                self.content.extend(verbatim.bytes);
                Ok(())
            }
            _ => self.read_each(context, update),
        }
    }

    /// Reads the attributes one by one.
    #[inline(never)]
    fn read_each(&mut self, context: &Context, update: &Update<'_>) -> Result<(), Refusal> {
        if let Some(asn) = context.prepended_as() {
            self.read_prepending(context, update, asn)?;
        } else {
            for attribute in update.attributes() {
                context.check(&attribute)?;
                self.content.push(&attribute);
            }
        }
        if let Some(asn) = context.received_otc()
            && !Attributes::new(self.content.attributes()).any(|attribute| attribute.code == code::OTC)
        {
            let flags = flags::OPTIONAL | flags::TRANSITIVE;
            self.content.push(&Attribute { flags, code: code::OTC, value: &asn.to_be_bytes() });
        }
        self.content.sort();
        Ok(())
    }

    /// Reads the attributes with `asn` before the path. The checks are about the path as received.
    #[cold]
    fn read_prepending(&mut self, context: &Context, update: &Update<'_>, asn: u32) -> Result<(), Refusal> {
        for attribute in update.attributes() {
            context.check(&attribute)?;
            if attribute.code == code::AS_PATH {
                let value = build::prepend(AsPath::new(attribute.value), asn, 1);
                self.content.push(&Attribute { value: &value, ..attribute });
            } else {
                self.content.push(&attribute);
            }
        }
        Ok(())
    }

    /// Drops all cached attribute sets and policy results, and scratch memory, when the reader is
    /// idle. A set without another holder would keep memory around it from being freed.
    pub fn forget(&mut self) {
        *self = Ingest { vrps: self.vrps.clone(), ..Ingest::default() };
    }

    /// Cached attribute sets.
    pub fn len(&self) -> usize {
        self.recent.len()
    }

    /// Whether no attribute set is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Forgets withdrawn routes. Apart, as all about kept routes, so that sessions without any stay as fast.
#[cold]
#[inline(never)]
fn withdraw<N: SessionNlri>(received: &mut Received, update: &Update<'_>) {
    N::kept(received).extend(None, &update.withdrawn_nlri::<N>());
}

/// Forgets routes that were announced and that no policy may accept.
#[cold]
#[inline(never)]
fn forget<N: SessionNlri>(received: &mut Option<Box<Received>>, update: &Update<'_>) {
    if let Some(received) = received {
        N::kept(received).extend(None, &update.announced_nlri::<N>());
    }
}

/// Keeps announced routes for another evaluation of the policy, but for martians.
#[cold]
#[inline(never)]
fn keep<N: SessionNlri>(
    kept: &mut KeptRoutes<N>,
    attrs: AttrSet,
    update: &Update<'_>,
    settings: &IngestSettings,
    martians: &[N],
) {
    let routes = update.announced_nlri::<N>();
    if martians.is_empty() {
        kept.extend(Some(attrs), &routes);
    } else {
        kept.extend_each(None, martians.iter().copied());
        kept.extend_each(Some(attrs), routes.filter(|route| !settings.martians.contains(route.prefix())));
    }
}
