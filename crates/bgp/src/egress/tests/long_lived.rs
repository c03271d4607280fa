//! Routes with LLGR_STALE (RFC 9494 section 4.3).

use super::*;
use ribtide_policy::ChangeCommunities;
use ribtide_wire::bgp::attribute::Community;

/// The attributes as sent from a source to a peer that gets long-lived stale routes or not, or the reason against it. The
/// export policy removes all communities.
fn sent(source_has: bool, peer_has: bool, stale: bool) -> Result<AttrSet, String> {
    let communities = ChangeCommunities { remove_all: true, ..ChangeCommunities::default() };
    let actions = Actions { communities, ..Actions::default() };
    let statements = vec![Statement { actions, then: Then::Accept, ..Statement::default() }];
    let definition = Definition { name: "bare".into(), statements };
    let mut settings = peer(2, PeerKind::External).egress;
    (settings.export, settings.long_lived) =
        (Arc::new(Policy::new(vec![Arc::new(definition)], true)), peer_has);
    let source = PeerInfo { long_lived: source_has, ..peer(1, PeerKind::External) };
    let plain = attrs(3).with_community(Community(7));
    let attrs = if stale { plain.with_community(Community::LLGR_STALE) } else { plain };
    let mut messages = Vec::new();
    let best = BestPath { attrs, source: source.id, suppressed: false };
    let path = offers::explain(&settings, &source, &best, p4("0.0.0.0/8"), &mut messages);
    path.map(|path| path.attrs).ok_or_else(|| messages.join("; "))
}

#[test]
fn a_long_lived_stale_route_goes_only_to_peers_that_have_the_capability() {
    assert!(sent(true, false, true).unwrap_err().contains("long-lived stale (LLGR_STALE)"));
    assert!(sent(true, true, true).is_ok());
    assert!(sent(true, false, false).is_ok());
    assert!(
        sent(false, false, true).is_ok(),
        "the community of a source to which the capability is not sent"
    );
}

/// RFC 9494 section 4.6.
#[test]
fn partial_deployment_sends_no_export_and_a_local_pref_of_zero() {
    for (kind, partial) in [(PeerKind::Internal, true), (PeerKind::Internal, false), (PeerKind::Client, true)]
    {
        let mut settings = peer(2, kind).egress;
        settings.long_lived_partial = partial;
        let source = PeerInfo { long_lived: true, ..peer(1, PeerKind::External) };
        let plain = attrs(3);
        for attrs in [plain.clone(), plain.with_community(Community::LLGR_STALE)] {
            let stale = attrs.llgr_stale();
            let best = BestPath { attrs, source: source.id, suppressed: false };
            let path = offers::explain(&settings, &source, &best, p4("0.0.0.0/8"), &mut Vec::new());
            assert_eq!(path.is_some(), partial || !stale, "{kind:?}");
            let Some(path) = path else { continue };
            let mut sent = Vec::new();
            export::attributes(&settings, &source, &path, &mut sent);
            let of = |wanted| Attributes::new(&sent).find(|a| a.code == wanted).map(|a| a.value.to_vec());
            let communities = of(code::COMMUNITIES).unwrap_or_default();
            let both = [Community::LLGR_STALE.0.to_be_bytes(), Community::NO_EXPORT.0.to_be_bytes()].concat();
            assert_eq!(communities, if stale { both } else { Vec::new() });
            assert_eq!(of(code::LOCAL_PREF) == Some(vec![0; 4]), stale);
        }
    }
}

#[test]
fn an_export_policy_does_not_remove_the_mark() {
    let communities = |attrs: &AttrSet| attrs.value(code::COMMUNITIES).map(<[u8]>::to_vec);
    let mark = Community::LLGR_STALE.0.to_be_bytes().to_vec();
    assert_eq!(communities(&sent(true, true, true).unwrap()), Some(mark), "the other community goes");
    assert_eq!(communities(&sent(true, true, false).unwrap()), None);
    assert_eq!(communities(&sent(false, true, true).unwrap()), None);
}
