//! What a peer may send from the moment that its connection is accepted: a session comes of it or a NOTIFICATION. Each
//! message is its type and its body, so that the fuzzer need not learn what a marker is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ribtide_bgp::fsm::{Action, Event, Peer, Settings, Side, State};
use ribtide_bgp::peer::FamilySet;
use ribtide_wire::bgp::message::{MAX_EXTENDED_LEN, frame};
use ribtide_wire::bgp::{MessageType, Notification, message::RouteRefresh};
use std::net::Ipv4Addr;

fuzz_target!(|input: Vec<(u8, &[u8])>| {
    let settings = Settings {
        local_asn: 65001,
        alternate_asn: Some(65002),
        router_id: Ipv4Addr::new(10, 0, 0, 1),
        peer_asn: None,
        families: FamilySet::UNICAST,
        hold_time: 90,
        passive: true,
        connect_retry: 20,
        role: None,
        role_strict: false,
        graceful_restart: true,
        add_path_receive: FamilySet::ALL,
    };
    let (mut peer, mut now, mut out) = (Peer::new(settings, 7), 1_000, Vec::new());
    let mut open = false;
    let mut tell = |event: Event<'_>, now, peer: &mut Peer, open: &mut bool| {
        out.clear();
        peer.handle(event, now, &mut out);
        for action in &out {
            match action {
                Action::Close(Side::Theirs) => *open = false,
                // What it sends, it can read.
                Action::Send(_, bytes) => {
                    let message = frame(bytes, MAX_EXTENDED_LEN).expect("a message").expect("a whole one");
                    assert_eq!(message.total_len, bytes.len());
                }
                _ => {}
            }
        }
        assert!(peer.state() != State::Established || peer.negotiated().is_some());
    };
    tell(Event::Start, now, &mut peer, &mut open);
    for (kind, body) in input {
        now += u64::from(kind >> 4) * 1_000;
        tell(Event::Tick, now, &mut peer, &mut open);
        if !open {
            open = true;
            tell(Event::Accepted, now, &mut peer, &mut open);
        }
        if !open {
            continue;
        }
        let Some(kind) = MessageType::from_u8(kind & 15) else { continue };
        if kind == MessageType::Notification {
            let _ = Notification::parse(body).to_string();
        }
        if kind == MessageType::RouteRefresh {
            let _ = RouteRefresh::parse(body);
        }
        tell(Event::Message(Side::Theirs, kind, body), now, &mut peer, &mut open);
    }
});
