//! Why a path is sent, or not.

use super::*;
use crate::message::RankedBatch;

#[test]
fn explanation_has_reasons_as_sentences() {
    let infos = harness_peers();
    let worker = joined(&infos);
    let reasons = |peer, source, attrs, prefix: &str| {
        let best = BestPath { attrs, source: PeerId(source), suppressed: false };
        worker.advertised(PeerId(peer), p4(prefix), &best).1
    };
    let plain = || attrs_for(3, AfiSafi::Ipv4Unicast);
    let one = |reason: &str| vec![reason.to_string()];
    assert_eq!(reasons(0, 0, plain(), "0.0.0.0/8"), one("not sent: it came from this peer"));
    assert_eq!(
        reasons(5, 0, attrs(7), "0.0.0.0/8"),
        one("not sent: it has the community no-export, and the peer is external")
    );
    assert_eq!(reasons(5, 0, attrs(8), "0.0.0.0/8"), one("not sent: it has the community no-advertise"));
    let client =
        "not sent: it came from an internal peer, and neither of the two is a client of a route reflector";
    assert_eq!(reasons(4, 3, plain(), "0.0.0.0/8"), one(client));
    assert_eq!(reasons(7, 0, plain(), "0.0.0.0/8"), one("reject: holds for every route; rejected"));
    assert_eq!(
        reasons(8, 0, plain(), "0.0.0.0/8"),
        [
            "accept: holds for every route; accepted",
            "not sent: there is no next hop of this family that the peer could use"
        ]
    );
    let best = BestPath { attrs: plain(), source: PeerId(10), suppressed: false };
    let exports = worker.exports(p4("0.0.0.0/8"), &best, &RankedBatch::default());
    let sent = |e: &Export| (e.members, e.sent);
    // Two clients; one that IPv4 goes to alone; two internal ones; externals; the two-octet one, the one that gets nothing,
    // the one without IPv4 next hop; the client and the other external one with the policy.
    let expected =
        [(2, true), (1, true), (2, true), (1, true), (1, true), (1, false), (1, false), (1, true), (1, true)];
    assert_eq!(exports.iter().map(sent).collect::<Vec<_>>(), expected);
    assert_eq!(
        reasons(10, 0, plain(), "80.0.0.0/8"),
        [
            "divided, statement 1: match-prefix-set \"even\" does not hold",
            "divided, statement 2: match-community-set \"tagged\" does not hold",
            "divided, statement 3: match-prefix-set \"first\" does not hold",
            "no policy decided: rejected, since the peer is external (RFC 8212)"
        ]
    );
}
