//! AS_PATH of sent routes.
//!
//! The changes happen in this order: the segments of our confederation (RFC 5065 section 4.1), private AS numbers, the override of the receivers' AS, our own AS. The export
//! policy has seen the path before.

use crate::peer::{EgressSettings, RemovePrivateAs};
use ribtide_wire::bgp::attribute::{SegmentKind, is_private};
use ribtide_wire::bgp::{AsPath, build};

/// The value of AS_PATH of a route with `path` for external receivers.
pub(super) fn external(settings: &EgressSettings, path: AsPath<'_>) -> Vec<u8> {
    let EgressSettings { local_asn, hidden_asn, as_override, remove_private_as, .. } = settings;
    let own = hidden_asn.unwrap_or(*local_asn);
    // Wherever they are: none may leave the confederation (RFC 5065 section 5).
    let in_confederation = path.segments().any(|segment| segment.kind.is_confed());
    if let (None, None, None, false) = (hidden_asn, as_override, remove_private_as, in_confederation) {
        return build::prepend(path, own, 1);
    }
    let outside = outside(path);
    let path = AsPath::new(&outside);
    let removal = remove_private_as.filter(|removal| removal.applies(settings, path));
    let mut edited = Vec::with_capacity(path.as_bytes().len());
    for segment in path.segments() {
        let asns = segment.asns().filter_map(|asn| match removal {
            Some(removal) if removal.affects(settings, asn) => removal.replace.then_some(own),
            _ if *as_override == Some(asn) => Some(own),
            _ => Some(asn),
        });
        write_segment(&mut edited, segment.kind, asns);
    }
    let path = build::prepend(AsPath::new(&edited), own, 1);
    match hidden_asn {
        Some(_) => build::prepend(AsPath::new(&path), *local_asn, 1),
        None => path,
    }
}

/// The path without the segments of a confederation.
fn outside(path: AsPath<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.as_bytes().len());
    for segment in path.segments().filter(|segment| !segment.kind.is_confed()) {
        write_segment(&mut out, segment.kind, segment.asns());
    }
    out
}

/// Appends a segment, unless it has no AS number.
fn write_segment(out: &mut Vec<u8>, kind: SegmentKind, asns: impl Iterator<Item = u32>) {
    let begin = out.len();
    out.extend_from_slice(&[kind as u8, 0]);
    let mut count = 0;
    for asn in asns {
        out.extend_from_slice(&asn.to_be_bytes());
        count += 1;
    }
    match count {
        0 => out.truncate(begin),
        count => out[begin + 1] = count,
    }
}

impl RemovePrivateAs {
    /// Whether it changes this path: with `all` any, else one without a public AS number but ours.
    fn applies(&self, settings: &EgressSettings, path: AsPath<'_>) -> bool {
        self.all || path.asns().all(|asn| is_private(asn) || is_ours(settings, asn))
    }

    /// Whether it removes or replaces this AS number.
    fn affects(&self, settings: &EgressSettings, asn: u32) -> bool {
        is_private(asn) && asn != self.peer_asn && !is_ours(settings, asn)
    }
}

/// Whether the AS is ours. The export policy may have prepended it.
fn is_ours(settings: &EgressSettings, asn: u32) -> bool {
    asn == settings.local_asn || Some(asn) == settings.hidden_asn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{FamilySet, PeerKind};
    use ribtide_policy::Policy;
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    /// The path that a peer of AS 65020 gets from AS 3333.
    fn sent(change: impl FnOnce(&mut EgressSettings), segments: &[(SegmentKind, &[u32])]) -> String {
        let (id, families) = (Ipv4Addr::LOCALHOST, FamilySet::IPV4_UNICAST);
        let mut settings =
            EgressSettings::new(PeerKind::External, 3333, id, families, Arc::new(Policy::accept()));
        change(&mut settings);
        let mut value = Vec::new();
        segments.iter().for_each(|(kind, asns)| write_segment(&mut value, *kind, asns.iter().copied()));
        AsPath::new(&external(&settings, AsPath::new(&value))).to_string()
    }

    fn sequence(change: impl FnOnce(&mut EgressSettings), asns: &[u32]) -> String {
        sent(change, &[(SegmentKind::Sequence, asns)])
    }

    fn private(all: bool, replace: bool) -> impl Fn(&mut EgressSettings) {
        let removal = RemovePrivateAs { all, replace, peer_asn: 65020 };
        move |settings| settings.remove_private_as = Some(removal)
    }

    /// RFC 5065 section 4.1: what is behind the border of the confederation 3333 is not seen.
    #[test]
    fn external_path_has_no_segment_of_the_confederation() {
        use SegmentKind::{ConfedSequence, ConfedSet, Sequence, Set};
        let plain = |_: &mut EgressSettings| {};
        let path =
            [(ConfedSequence, &[65001, 65002][..]), (ConfedSet, &[65003]), (Sequence, &[7]), (Set, &[8])];
        assert_eq!(sent(plain, &path), "3333 7 {8}");
        assert_eq!(sent(plain, &path[..2]), "3333");
        let behind = [(Sequence, &[7][..]), (ConfedSequence, &[65001]), (Sequence, &[8])];
        assert_eq!(sent(plain, &behind), "3333 7 8", "a neighbour inside made a malformed path");
        let local_as = |s: &mut EgressSettings| (s.local_asn, s.hidden_asn) = (4444, Some(3333));
        assert_eq!(sent(local_as, &path), "4444 3333 7 {8}");
        let public = [(ConfedSequence, &[7][..]), (Sequence, &[64512])];
        assert_eq!(sent(private(false, false), &public), "3333", "a member AS is not in the path any more");
    }

    /// RFC 7705 section 3: AS 3333 poses as AS 4444, with and without "Replace Old AS".
    #[test]
    fn external_path_under_local_as_shows_both_or_the_other_alone() {
        let both = |s: &mut EgressSettings| (s.local_asn, s.hidden_asn) = (4444, Some(3333));
        assert_eq!(sequence(both, &[1, 2]), "4444 3333 1 2");
        assert_eq!(sequence(both, &[]), "4444 3333");
        assert_eq!(sequence(|s| s.local_asn = 4444, &[1, 2]), "4444 1 2");
        assert_eq!(sequence(|_| {}, &[1, 2]), "3333 1 2");
        // Our AS as the path behind us has it.
        let overridden = |s: &mut EgressSettings| {
            (s.local_asn, s.hidden_asn, s.as_override) = (4444, Some(3333), Some(65020));
        };
        assert_eq!(sequence(overridden, &[65020, 1, 65020]), "4444 3333 3333 1 3333");
    }

    #[test]
    fn as_override_replaces_each_occurrence_of_the_receivers_as() {
        let settings = |s: &mut EgressSettings| s.as_override = Some(65020);
        assert_eq!(sequence(settings, &[65020, 65020, 7]), "3333 3333 3333 7");
        let set = [(SegmentKind::Sequence, &[1][..]), (SegmentKind::Set, &[65020, 2])];
        assert_eq!(sent(settings, &set), "3333 1 {3333,2}");
    }

    #[test]
    fn remove_private_as_without_all_leaves_paths_with_a_public_as() {
        assert_eq!(sequence(private(false, false), &[64512, 65534, 4_200_000_001]), "3333");
        assert_eq!(sequence(private(false, false), &[64512, 1, 64513]), "3333 64512 1 64513");
        assert_eq!(sequence(private(false, true), &[64512, 64513]), "3333 3333 3333");
        assert_eq!(sequence(private(false, true), &[64512, 1]), "3333 64512 1");
        assert_eq!(sequence(private(true, false), &[64512, 1, 64513]), "3333 1");
        assert_eq!(sequence(private(true, true), &[64512, 1, 64513]), "3333 3333 1 3333");
        // 64511, 65535 and 4294967295 are not for private use.
        let public = [64511, 65535, 4_294_967_295];
        assert_eq!(sequence(private(true, false), &public), "3333 64511 65535 4294967295");
    }

    #[test]
    fn remove_private_as_keeps_the_receivers_as_and_prepends_of_a_private_local_as() {
        assert_eq!(sequence(private(true, false), &[64512, 65020]), "3333 65020");
        let ours = |s: &mut EgressSettings| {
            s.local_asn = 65001;
            private(false, false)(s);
        };
        assert_eq!(sequence(ours, &[65001, 65001, 64512]), "65001 65001 65001");
        let set = [
            (SegmentKind::Sequence, &[64512][..]),
            (SegmentKind::Set, &[64513]),
            (SegmentKind::Sequence, &[9]),
        ];
        assert_eq!(sent(private(true, false), &set), "3333 9", "no empty segment stays");
        // Removal comes before the override.
        let both = |s: &mut EgressSettings| {
            private(true, false)(s);
            s.as_override = Some(65020);
        };
        assert_eq!(sequence(both, &[65020, 64512]), "3333 3333");
    }
}
