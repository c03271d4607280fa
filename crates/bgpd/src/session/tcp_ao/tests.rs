//! The logic of keys on a socket that follows the kernel's rules, and on this kernel where it has TCP-AO.

use super::*;
use ribtide_config::{self as config, TcpAoAlgorithm};
use std::cell::RefCell;

/// A socket with the rules of `net/ipv4/tcp_ao.c`.
#[derive(Default)]
pub(in crate::session) struct Fake {
    keys: RefCell<Keys>,
    /// TCP-MD5 keys.
    md5: RefCell<Vec<(IpAddr, Vec<u8>)>>,
    current: RefCell<Option<u8>>,
    rnext: RefCell<Option<u8>>,
    /// Whether unsigned segments are refused.
    required: RefCell<bool>,
    is_listening: bool,
    /// A key with this secret is refused.
    refuses: Option<&'static str>,
    /// What was done, in order.
    log: RefCell<Vec<String>>,
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl KeySocket for Fake {
    fn add_key(&self, peers: Peers, key: &TcpAoKey, current: bool, rnext: bool) -> io::Result<()> {
        if self.is_listening && (current || rnext) {
            return Err(error(libc::EINVAL));
        }
        let is_refused = self.refuses.is_some_and(|secret| secret.as_bytes() == key.secret.bytes());
        let has_md5 = self.md5.borrow().iter().any(|(address, _)| peers.contains(Peers::one(*address)));
        if is_refused || has_md5 {
            return Err(error(libc::EPERM));
        }
        let overlaps = |(of, there): &(Peers, TcpAoKey)| {
            (of.contains(peers) || peers.contains(*of))
                && (there.send_id == key.send_id || there.recv_id == key.recv_id)
        };
        if self.keys.borrow().iter().any(overlaps) {
            return Err(error(libc::EEXIST));
        }
        self.keys.borrow_mut().push((peers, key.clone()));
        if current {
            *self.current.borrow_mut() = Some(key.send_id);
        }
        if rnext {
            *self.rnext.borrow_mut() = Some(key.recv_id);
        }
        self.log.borrow_mut().push(format!("add {}", key.send_id));
        Ok(())
    }

    fn delete_key(&self, peers: Peers, key: &TcpAoKey) -> io::Result<()> {
        let mut keys = self.keys.borrow_mut();
        let ids = (key.send_id, key.recv_id);
        let place = keys.iter().position(|(of, there)| *of == peers && (there.send_id, there.recv_id) == ids);
        let place = place.ok_or_else(|| error(libc::ENOENT))?;
        if *self.current.borrow() == Some(key.send_id) || *self.rnext.borrow() == Some(key.recv_id) {
            return Err(error(libc::EBUSY));
        }
        keys.remove(place);
        self.log.borrow_mut().push(format!("delete {}", key.send_id));
        Ok(())
    }

    fn use_keys(&self, current: Option<u8>, rnext: Option<u8>) -> io::Result<()> {
        let keys = self.keys.borrow();
        if keys.is_empty() {
            return Err(error(libc::EINVAL));
        }
        let has = |id: Option<u8>, id_of: fn(&TcpAoKey) -> u8| {
            id.is_none_or(|id| keys.iter().any(|(_, key)| id_of(key) == id))
        };
        if !has(current, |key| key.send_id) || !has(rnext, |key| key.recv_id) {
            return Err(error(libc::ENOENT));
        }
        let mut used = (self.current.borrow_mut(), self.rnext.borrow_mut());
        *used.0 = current.or(*used.0);
        *used.1 = rnext.or(*used.1);
        *self.required.borrow_mut() = true;
        self.log.borrow_mut().push(format!("use {current:?} {rnext:?}"));
        Ok(())
    }

    fn state(&self) -> io::Result<KeyState> {
        let (current, rnext) = (*self.current.borrow(), *self.rnext.borrow());
        Ok(KeyState { current, rnext, ..KeyState::default() })
    }
}

impl Fake {
    pub(in crate::session) fn listening() -> Fake {
        Fake { is_listening: true, ..Fake::default() }
    }

    /// A listening one that refuses a key with this secret.
    pub(in crate::session) fn refusing(secret: &'static str) -> Fake {
        Fake { refuses: Some(secret), ..Fake::listening() }
    }

    pub(in crate::session) fn set_md5(&self, address: IpAddr, len: Option<u8>, key: &[u8]) -> io::Result<()> {
        assert_eq!(len, None);
        let signs = |(of, _): &(Peers, TcpAoKey)| of.contains(Peers::one(address));
        if !key.is_empty() && self.keys.borrow().iter().any(signs) {
            return Err(error(libc::EPERM));
        }
        let mut md5 = self.md5.borrow_mut();
        md5.retain(|(of, _)| *of != address);
        if !key.is_empty() {
            md5.push((address, key.to_vec()));
        }
        Ok(())
    }

    /// All keys with their secrets.
    pub(in crate::session) fn shown(&self) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let md5 = self.md5.borrow();
        let md5 = md5.iter().map(|(address, key)| format!("md5 {address} {}", text(key)));
        let keys = self.keys.borrow();
        let ao =
            keys.iter().map(|(of, key)| format!("{}/{} {}", of.address, of.len, text(key.secret.bytes())));
        md5.chain(ao).collect()
    }

    fn keys(&self) -> Vec<(String, u8)> {
        let keys = self.keys.borrow();
        keys.iter().map(|(of, key)| (format!("{}/{}", of.address, of.len), key.send_id)).collect()
    }

    fn done(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.borrow_mut())
    }
}

fn key(send_id: u8, recv_id: u8, secret: &str) -> TcpAoKey {
    TcpAoKey { send_id, recv_id, algorithm: TcpAoAlgorithm::HmacSha1, secret: secret.into() }
}

fn ao(keys: &[TcpAoKey], current: u8, rnext: u8) -> TcpAoConfig {
    TcpAoConfig { keys: keys.to_vec(), current, rnext }
}

fn bgp(text: &str) -> BgpConfig {
    let text = format!(
        "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp.group.up]\ntype = \"internal\"\n{text}"
    );
    config::parse(&text).unwrap().bgp.unwrap()
}

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

#[test]
fn a_connection_has_its_keys_before_it_is_opened_and_refuses_unsigned_segments() {
    let socket = Fake::default();
    prepare(&socket, PEER, &ao(&[key(1, 2, "a"), key(3, 4, "b")], 3, 2)).unwrap();
    assert_eq!(socket.state().unwrap(), KeyState { current: Some(3), rnext: Some(2), ..KeyState::default() });
    assert_eq!(socket.keys(), [("192.0.2.1/32".to_string(), 1), ("192.0.2.1/32".to_string(), 3)]);
    assert!(*socket.required.borrow());
    let refusing = Fake { refuses: Some("b"), ..Fake::default() };
    let refused = prepare(&refusing, PEER, &ao(&[key(1, 2, "a"), key(3, 4, "b")], 3, 2)).unwrap_err();
    assert!(refused.to_string().contains("192.0.2.1"), "{refused}");
}

#[test]
fn an_accepted_connection_without_keys_is_refused() {
    let ours = ao(&[key(1, 1, "a")], 1, 1);
    let refused = accepted(&Fake::default(), &ours).unwrap_err();
    assert!(refused.contains("not signed"), "{refused}");
    let signed = Fake::default();
    signed.add_key(Peers::one(PEER), &ours.keys[0], false, false).unwrap();
    accepted(&signed, &ours).unwrap();
    assert_eq!(*signed.rnext.borrow(), Some(1));
}

#[test]
fn a_rollover_adds_asks_for_the_new_key_and_removes_the_old_one() {
    let (old, new) = (key(1, 1, "a"), key(2, 2, "b"));
    let first = ao(std::slice::from_ref(&old), 1, 1);
    let socket = Fake::default();
    prepare(&socket, PEER, &first).unwrap();
    socket.done();
    // Both sides get the new key; nothing else changes.
    let both = ao(&[old.clone(), new.clone()], 1, 1);
    roll(&socket, PEER, &first, &both).unwrap();
    assert_eq!(socket.done(), ["add 2"]);
    // The peer is asked for it; what we sign with is the peer's choice.
    let asked = ao(&[old, new.clone()], 1, 2);
    roll(&socket, PEER, &both, &asked).unwrap();
    assert_eq!(socket.done(), ["use None Some(2)"]);
    *socket.current.borrow_mut() = Some(2);
    let last = ao(&[new], 2, 2);
    roll(&socket, PEER, &asked, &last).unwrap();
    assert_eq!(socket.done(), ["use Some(2) None", "delete 1"]);
    assert_eq!(socket.keys(), [("192.0.2.1/32".to_string(), 2)]);
}

#[test]
fn a_key_in_use_that_is_configured_no_longer_is_replaced_first() {
    let (old, new) = (key(1, 1, "a"), key(2, 3, "b"));
    let (first, last) = (ao(&[old], 1, 1), ao(&[new], 2, 3));
    let socket = Fake::default();
    prepare(&socket, PEER, &first).unwrap();
    socket.done();
    roll(&socket, PEER, &first, &last).unwrap();
    assert_eq!(socket.done(), ["add 2", "use Some(2) Some(3)", "delete 1"]);
    // The peer went back to a key that is about to be removed.
    let both = ao(&[key(2, 3, "b"), key(5, 5, "c")], 5, 5);
    roll(&socket, PEER, &last, &both).unwrap();
    *socket.current.borrow_mut() = Some(2);
    socket.done();
    let alone = ao(&[key(5, 5, "c")], 5, 5);
    roll(&socket, PEER, &both, &alone).unwrap();
    assert_eq!(socket.done(), ["use Some(5) None", "delete 2"]);
}

#[test]
fn a_connection_of_a_range_has_the_keys_of_the_range() {
    let bgp = bgp(
        "dynamic-neighbors = [\"192.0.2.0/24\", \"10.0.0.0/8\"]\ntcp-ao = { keys = [{ id = 1, secret = \"a\" }] }",
    );
    let first = bgp.dynamic[0].settings.tcp_ao.clone().unwrap();
    let range = bgp.dynamic.iter().find(|d| d.range.contains(PEER)).unwrap();
    let socket = Fake::default();
    socket.add_key(Peers::of_range(range), &first.keys[0], false, false).unwrap();
    accepted(&socket, &first).unwrap();
    roll(&socket, PEER, &first, &ao(&[key(2, 2, "b")], 2, 2)).unwrap();
    assert_eq!(socket.keys(), [("192.0.2.1/32".to_string(), 2)]);
}

#[test]
fn a_kernel_without_tcp_ao_is_named() {
    let refused = refused(Peers::one(PEER), &error(libc::ENOPROTOOPT));
    assert_eq!(refused.to_string(), format!("the kernel refuses a tcp-ao key of 192.0.2.1: {UNSUPPORTED}"));
    let all = Peers::one(PEER).shortened(0);
    let refused = super::refused(all, &error(libc::EINVAL)).to_string();
    assert!(refused.contains("of 0.0.0.0: ") && refused.contains("bgp.listen"), "{refused}");
}

/// Where this kernel has TCP-AO, a connection over it; else the refusal of a key.
#[test]
fn the_kernel_signs_a_connection_or_has_no_tcp_ao() {
    let peer = IpAddr::from([127, 0, 0, 1]);
    let ours = ao(&[key(1, 2, "secret")], 1, 2);
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let added = listener.add_key(Peers::one(peer), &key(2, 1, "secret"), false, false);
    let supported = is_supported().unwrap();
    assert_eq!(added.is_ok(), supported);
    if !supported {
        println!("skipped: {UNSUPPORTED}");
        assert_eq!(added.unwrap_err().raw_os_error(), Some(libc::ENOPROTOOPT));
        return;
    }
    listener.bind(&std::net::SocketAddr::new(peer, 0).into()).unwrap();
    listener.listen(1).unwrap();
    let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    prepare(&client, peer, &ours).unwrap();
    client.connect(&listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    accepted(&server, &ao(&[key(2, 1, "secret")], 2, 1)).unwrap();
    let next = ao(&[key(1, 2, "secret"), key(3, 3, "other")], 1, 3);
    roll(&client, peer, &ours, &next).unwrap();
    assert_eq!(client.state().unwrap().rnext, Some(3));
}
