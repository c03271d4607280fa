//! What import settings make of routes, apart from any session: nothing is counted, kept or sent.
//!
//! `ribtide check --diff` evaluates the settings of a file so, on a thread of its own, with the code that evaluates
//! received routes.

use super::received::{origin_of, path_of};
use super::{Ingest, IngestPeer};
use crate::attr::AttrSet;
use ribtide_policy::Validation;
use ribtide_prefix::{BgpFamily, Prefix};

impl Ingest {
    /// The attributes with which a session with these settings accepts a route before import policy; `None`: it refuses
    /// the route.
    ///
    /// `attrs` has passed the checks of the session that received it, so of those before the policy only the present ones
    /// count: martians, and attributes that forbid a route. Limits are left out of account.
    pub fn trial<F: BgpFamily>(
        &mut self,
        peer: &IngestPeer,
        prefix: Prefix<F>,
        attrs: &AttrSet,
    ) -> Option<AttrSet> {
        let IngestPeer { info, settings, context, .. } = peer;
        if !info.families.has(F::ID) || settings.martians.contains(prefix) {
            return None;
        }
        // A path with our AS before it is not as the peer sent it.
        if context.prepended_as().is_none() && attrs.attributes().any(|a| context.check(&a).is_err()) {
            return None;
        }
        let Ingest { recent, import, content, vrps, .. } = self;
        content.begin(attrs.next_hop());
        attrs.attributes().for_each(|attribute| content.push(&attribute));
        let validation = settings.import.tests_rpki().then(|| {
            let rule = context.path_rule().filter(|_| settings.import.tests_path());
            let path = rule.map(|rule| vrps.aspas().verify(path_of(attrs.bytes()), &rule));
            Validation { vrps, origin: origin_of(attrs.bytes(), info.egress.local_asn), path }
        });
        let (source, next_hop) = (info.source(), attrs.next_hop());
        let mut result =
            import.evaluate(&settings.import, source, F::ID, next_hop, validation, content, recent);
        result.on(prefix).cloned()
    }
}
