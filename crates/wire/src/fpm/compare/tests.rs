use super::*;
use crate::fpm::{FpmMessage, MAX_SENT, frame};
use crate::netlink::{Content, Hop, Hops, Member, Members, Via};

fn read(bytes: &[u8]) -> Compare {
    let frame = frame(bytes).unwrap().unwrap();
    assert_eq!(frame.len, bytes.len());
    let messages: Vec<_> = frame.raw().map(Result::unwrap).collect();
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert!(matches!(frame.messages().next(), Some(Ok(FpmMessage::Other(_)))), "to others it is unknown");
    Compare::decode(message).unwrap().unwrap()
}

fn prefix(text: &str) -> AnyPrefix {
    text.parse().unwrap()
}

#[test]
fn compare_messages_are_read_as_written() {
    let mut bytes = Vec::new();
    write_offer(&mut bytes);
    assert_eq!(read(&bytes), Compare::Offer(VERSION));
    let keys = vec![
        Key::Object(7),
        Key::Route(0, prefix("10.1.0.0/16")),
        Key::Route(40, prefix("2001:db8::/32")),
        Key::Route(u32::MAX, prefix("0.0.0.0/0")),
    ];
    for query in [Query::Page(0), Query::Page(u64::MAX), Query::Keys(keys.clone()), Query::Keys(Vec::new())] {
        bytes.clear();
        write_query(&mut bytes, 9, &query);
        assert_eq!(read(&bytes), Compare::Query(9, query));
    }
    let entries: Vec<Entry> = keys
        .iter()
        .zip([Some(3), None, Some(u64::MAX), Some(0)])
        .map(|(key, content)| Entry { key: *key, content })
        .collect();
    for (ready, next) in [(true, None), (true, Some(1 << 63)), (false, None)] {
        let reply = Reply { seq: 5, ready, next, entries: entries.clone() };
        bytes.clear();
        write_reply(&mut bytes, &reply);
        assert_eq!(read(&bytes), Compare::Reply(reply));
    }
}

#[test]
fn compare_messages_of_full_size_fit_into_a_frame() {
    let key = Key::Route(u32::MAX, prefix("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/128"));
    let mut bytes = Vec::new();
    write_query(&mut bytes, 1, &Query::Keys(vec![key; KEYS_MAX]));
    assert!(bytes.len() <= MAX_SENT);
    let Compare::Query(_, Query::Keys(keys)) = read(&bytes) else { panic!() };
    assert_eq!(keys.len(), KEYS_MAX);
    for count in [KEYS_MAX, PAGE_MAX / key.entry_len()] {
        let entries = vec![Entry { key, content: Some(1) }; count];
        bytes.clear();
        write_reply(&mut bytes, &Reply { seq: 1, ready: true, next: None, entries });
        assert!(!bytes.is_empty() && bytes.len() <= MAX_SENT);
    }
}

#[test]
fn compare_decode_of_cut_or_foreign_bytes_fails_and_never_panics() {
    let mut bytes = Vec::new();
    let entries = vec![Entry { key: Key::Route(1, prefix("10.0.0.0/8")), content: Some(2) }];
    write_reply(&mut bytes, &Reply { seq: 1, ready: true, next: None, entries });
    let body = &bytes[4 + 16..];
    let decode = |kind, body| Compare::decode(&Message { kind, flags: 0, seq: 1, port: 0, body });
    // The head has 9 bytes and the entry 18; a body without an entry is whole.
    for len in (0..9).chain(10..27) {
        assert!(decode(REPLY, &body[..len]).is_err(), "{len} bytes");
    }
    assert!(decode(REPLY, &body[..27]).is_ok());
    assert!(decode(QUERY, &[9]).is_err() && decode(QUERY, &[KEYS, 9, 0, 0, 0, 0]).is_err());
    assert!(decode(QUERY, &[KEYS, IPV4, 0, 0, 0, 0, 33, 1, 2, 3, 4]).is_err());
    assert_eq!(decode(24, &[]), Ok(None));
}

#[test]
fn fingerprints_differ_with_each_part_and_not_with_the_order() {
    let hop = |gateway: &str, ifindex, weight| Hop {
        via: Via { gateway: (!gateway.is_empty()).then(|| gateway.parse().unwrap()), ifindex, onlink: false },
        weight,
    };
    let of = |to: &str, hops: &[Hop]| {
        next_hops_of(&Route::new(prefix(to), 0, 186, NextHops::Inline(Hops::from(hops))))
    };
    let (a, b) = (hop("10.0.0.1", 7, 1), hop("10.0.0.2", 7, 3));
    let to = "10.1.0.0/16";
    assert_eq!(of(to, &[a, b]), of(to, &[b, a]));
    let mut seen = vec![
        of(to, &[a, b]),
        of(to, &[a]),
        of(to, &[a, a]),
        of(to, &[a, hop("10.0.0.2", 7, 2)]),
        of(to, &[a, hop("10.0.0.2", 8, 3)]),
        of(to, &[hop("::a00:1", 7, 1)]),
        of(to, &[hop("", 7, 1)]),
        of("2001:db8::/32", &[hop("", 7, 1)]),
        next_hops_of(&Route::new(prefix(to), 0, 186, NextHops::Id(7))),
        next_hops_of(&Route { kind: RouteKind::Blackhole, ..Route::new(prefix(to), 0, 186, NextHops::None) }),
        FOREIGN,
    ];
    assert_ne!(route(186, seen[0]), route(2, seen[0]));
    let group = |of: &[(u32, u16)]| {
        let of: Vec<Member> = of.iter().map(|(id, weight)| Member { id: *id, weight: *weight }).collect();
        object(&Forward::Group(Members::from(&of[..])))
    };
    assert_eq!(group(&[(1, 1), (2, 5)]), group(&[(2, 5), (1, 1)]));
    seen.extend([group(&[(1, 1), (2, 5)]), group(&[(1, 5), (2, 1)]), group(&[(1, 1)])]);
    seen.extend([object(&Forward::via(a.via)), object(&Forward::via(b.via))]);
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
    // Both programs must have the same, whatever version of Rust built them.
    assert_eq!(of(to, &[a]), next_hops([("10.0.0.1".parse().unwrap(), 7, 1)]));
    assert!(matches!(
        Content::decode(&Message { kind: OFFER, flags: 0, seq: 0, port: 0, body: &[] }),
        Ok(Content::Other(OFFER))
    ));
}
