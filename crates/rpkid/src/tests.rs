//! The thread on loopback, with caches that the test plays itself.

use super::*;
use ribtide_prefix::V4;
use ribtide_rpki::{Origin, State, Validity};
use ribtide_wire::rtr::{self, Payload, Pdu};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long anything may take before a test fails; nothing waits that long when all is well.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A cache that the test plays.
struct Played {
    listener: TcpListener,
    stream: Option<TcpStream>,
}

impl Played {
    fn new() -> Played {
        Played { listener: TcpListener::bind("127.0.0.1:0").unwrap(), stream: None }
    }

    fn table(&self, more: &str) -> String {
        let port = self.listener.local_addr().unwrap().port();
        format!("[[rpki.cache]]\naddress = \"127.0.0.1\"\nport = {port}\n{more}")
    }

    fn accept(&mut self) {
        self.stream = Some(self.listener.accept().unwrap().0);
    }

    /// Reads a query and answers with these announcements.
    fn answer(&mut self, query: Pdu<'_>, session: u16, serial: u32, announced: &[(&str, u32)]) {
        let stream = self.stream.as_mut().unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let mut expected = Vec::new();
        query.write(rtr::VERSION, &mut expected);
        let mut read = vec![0; expected.len()];
        stream.read_exact(&mut read).unwrap();
        assert_eq!(read, expected);
        let mut bytes = Vec::new();
        Pdu::CacheResponse { session }.write(rtr::VERSION, &mut bytes);
        for (prefix, asn) in announced {
            let prefix: ribtide_prefix::AnyPrefix = prefix.parse().unwrap();
            let payload = Payload { prefix, max_len: prefix.len(), asn: *asn };
            Pdu::Prefix { announce: true, payload }.write(rtr::VERSION, &mut bytes);
        }
        Pdu::EndOfData { session, serial, intervals: None }.write(rtr::VERSION, &mut bytes);
        stream.write_all(&bytes).unwrap();
    }
}

struct Running {
    handle: StageHandle<Engine>,
    /// The numbers of IPv4 payloads and changed prefixes of each published table.
    published: Arc<Mutex<Vec<(usize, usize)>>>,
    stop: Stop,
}

fn parsed(text: &str) -> RpkiConfig {
    let head = "[router]\nasn = 65001\nrouter-id = \"10.255.0.1\"\n[bgp]\n";
    ribtide_config::parse(&format!("{head}{text}")).unwrap().rpki.unwrap()
}

impl Running {
    fn new(text: &str) -> Running {
        let (stop, published) = (Stop::default(), Arc::new(Mutex::new(Vec::new())));
        let seen = published.clone();
        let publish: Publish =
            Box::new(move |vrps, changed| seen.lock().unwrap().push((vrps.len::<V4>(), changed.v4.len())));
        let handle = start(&parsed(text), publish, Clock::default(), stop.clone()).unwrap();
        Running { handle, published, stop }
    }

    fn view(&self) -> View {
        self.handle.call(|engine| engine.view()).unwrap()
    }

    fn wait(&self, what: &str, holds: impl Fn(&View) -> bool) -> View {
        let begin = Instant::now();
        loop {
            let view = self.view();
            if holds(&view) {
                return view;
            }
            assert!(begin.elapsed() < TEST_TIMEOUT, "{what}: {view:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn state(view: &View, prefix: &str, asn: u32) -> Validity {
    view.vrps.validate_any(prefix.parse().unwrap(), Origin(Some(asn)))
}

#[test]
fn records_of_the_preferred_caches_are_joined() {
    let [mut one, mut two, mut spare] = [Played::new(), Played::new(), Played::new()];
    let caches = [one.table(""), two.table(""), spare.table("preference = 2\n")].concat();
    let running = Running::new(&caches);
    assert!(running.view().is_degraded());
    spare.accept();
    spare.answer(Pdu::ResetQuery, 3, 1, &[("12.0.0.0/8", 3)]);
    let view = running.wait("the spare cache", |view| view.vrps.len::<V4>() == 1);
    assert!(!view.is_degraded() && view.caches[2].in_use);
    one.accept();
    one.answer(Pdu::ResetQuery, 1, 1, &[("10.0.0.0/8", 1), ("11.0.0.0/8", 1)]);
    // A better one takes over whole.
    let view = running.wait("a preferred cache", |view| view.vrps.len::<V4>() == 2);
    assert!(view.caches[0].in_use && !view.caches[2].in_use);
    two.accept();
    two.answer(Pdu::ResetQuery, 2, 1, &[("11.0.0.0/8", 1), ("11.0.0.0/8", 2)]);
    let view = running.wait("both", |view| view.vrps.len::<V4>() == 3);
    assert_eq!(
        (state(&view, "11.0.0.0/8", 2), state(&view, "12.0.0.0/8", 3)),
        (Validity::Valid, Validity::NotFound)
    );
    assert_eq!(*running.published.lock().unwrap(), [(1, 1), (2, 3), (3, 1)]);
    // The connection ends: the records stay, and the next query is for what changed.
    one.stream = None;
    let view = running.wait("the loss", |view| !matches!(view.caches[0].state, State::Idle { .. }));
    assert_eq!((view.vrps.len::<V4>(), view.caches[0].in_use), (3, true));
    assert_eq!(view.caches[0].last_error.as_deref(), Some("closed by the cache"));
    one.accept();
    one.answer(Pdu::SerialQuery { session: 1, serial: 1 }, 1, 2, &[("13.0.0.0/8", 1)]);
    let view = running.wait("the change", |view| view.vrps.len::<V4>() == 4);
    assert_eq!(
        (view.caches[0].connects, view.caches[0].id, view.caches[0].records),
        (2, Some((1, 2)), (3, 0))
    );
    // A reload: the connection and the records of a cache that stays last, those of another go.
    let other = parsed(&[one.table("preference = 9\n"), spare.table("preference = 2\n")].concat());
    let changes = running.handle.call(move |engine| engine.configure(&other)).unwrap();
    assert_eq!(changes, Changes { added: 0, removed: 1, changed: 1, exceptions: false });
    let view = running.wait("the reload", |view| view.vrps.len::<V4>() == 1);
    assert_eq!((state(&view, "12.0.0.0/8", 3), view.caches[0].connects), (Validity::Valid, 2));
}

#[test]
fn a_cache_that_refuses_is_tried_again() {
    let mut cache = Played::new();
    let table = cache.table("");
    let address = cache.listener.local_addr().unwrap();
    // No process listens.
    cache.listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let running = Running::new(&table);
    let view = running.wait("a refusal", |view| view.caches[0].failures > 0);
    assert!(view.caches[0].last_error.as_ref().unwrap().contains("refused") && view.is_degraded());
    cache.listener = TcpListener::bind(address).unwrap();
    cache.accept();
    cache.answer(Pdu::ResetQuery, 1, 1, &[("10.0.0.0/8", 1)]);
    let view = running.wait("an answer", |view| view.vrps.len::<V4>() == 1);
    assert_eq!((view.caches[0].connects, view.caches[0].last_error.as_deref()), (1, None));
}

#[test]
fn assertions_are_used_without_a_cache() {
    let folder = std::env::temp_dir().join(format!("ribtide-slurm-{}", std::process::id()));
    let slurm = |assertions: &str| {
        std::fs::write(
            &folder,
            format!(
                r#"{{"slurmVersion": 1, "validationOutputFilters": {{"prefixFilters": [], "bgpsecFilters": []}},
                "locallyAddedAssertions": {{"prefixAssertions": [{assertions}], "bgpsecAssertions": []}}}}"#
            ),
        )
        .unwrap();
    };
    let table = format!("[rpki]\nslurm = \"{}\"\n", folder.display());
    slurm(r#"{"asn": 1, "prefix": "10.0.0.0/8"}"#);
    let running = Running::new(&table);
    // Before any call, which would wake the thread.
    let begin = Instant::now();
    while *running.published.lock().unwrap() != [(1, 1)] {
        assert!(begin.elapsed() < TEST_TIMEOUT, "no table was published");
        std::thread::sleep(Duration::from_millis(5));
    }
    let view = running.wait("the assertion", |view| view.vrps.len::<V4>() == 1);
    assert_eq!((view.exceptions, view.is_degraded()), ((0, 1), false));
    slurm("");
    let other = parsed(&table);
    assert!(running.handle.call(move |engine| engine.configure(&other)).unwrap().exceptions);
    running.wait("no assertion", |view| view.vrps.is_empty());
    std::fs::remove_file(&folder).unwrap();
}
