//! Receivers that take all a router sends, count it and, when asked, keep it to be compared.

use crate::options::{ConnectOptions, POLL_INTERVAL, Role, SpeakerOptions, defaults, interrupted, nth};
use crate::progress::Progress;
use crate::routes::Routes;
use crate::session::{self, Opened, Peer, Session, Speaker};
use crate::{Error, lock};
use ribtide_prefix::{AfiSafi, Family, for_each_family};
use ribtide_wire::bgp::Update;
use ribtide_wire::bgp::message::HEADER_LEN;
use ribtide_wire::bgp::update::{Disposition, UpdateContext, parse};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The options of `sink`.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// Wait for the router's connection on this address, instead of connecting to it. Several receivers
    /// listen on consecutive addresses, or all on 0.0.0.0 or [::]. --wait limits the time.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["to", "from"])]
    pub listen: Option<SocketAddr>,
    /// The router.
    #[command(flatten)]
    pub connect: ConnectOptions,
    /// The identity of the receivers.
    #[command(flatten)]
    pub speaker: SpeakerOptions,
    /// The number of sessions.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub receivers: u32,
    /// Give each receiver its own AS number: consecutive numbers from --asn on.
    #[arg(long)]
    pub asn_per_receiver: bool,
    /// Keep the routes, and report their number and a digest at the end. Equal routes have equal digests.
    #[arg(long)]
    pub table: bool,
    /// End when every receiver has received this many announced prefixes.
    #[arg(long, value_name = "N")]
    pub until_prefixes: Option<u64>,
    /// End when a receiver got routes and then nothing for this long.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub until_idle: Option<Duration>,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
}

impl Default for Options {
    fn default() -> Self {
        defaults()
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "write a number of seconds, such as 2 or 0.5")?;
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

/// The report of all receivers.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Report {
    /// Each receiver.
    pub receivers: Vec<ReceiverReport>,
}

/// The report of one receiver.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct ReceiverReport {
    /// The receiver's own address.
    pub address: IpAddr,
    /// AS number of the router.
    pub peer_asn: u32,
    /// Announced prefixes, repetitions included.
    pub announced: u64,
    /// Withdrawn prefixes, repetitions included.
    pub withdrawn: u64,
    /// UPDATE messages.
    pub updates: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// UPDATEs whose routes count as withdrawn because an attribute is malformed (RFC 7606).
    pub malformed: u64,
    /// Seconds from the first UPDATE to the last that had a prefix.
    pub seconds: f64,
    /// Seconds from the first UPDATE to End-of-RIB of IPv4, then of IPv6.
    pub end_of_rib: [Option<f64>; 2],
    /// Prefixes held in the end, when routes are kept.
    pub held: Option<usize>,
    /// Digest of the routes held, when they are kept.
    pub digest: Option<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.receivers.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            let rate = (r.announced + r.withdrawn) as f64 / r.seconds.max(1e-6);
            write!(
                f,
                "{}: {} prefixes announced, {} withdrawn in {} UPDATEs of {} bytes and {:.2} s: {rate:.0} prefixes/s",
                r.address, r.announced, r.withdrawn, r.updates, r.bytes, r.seconds
            )?;
            for (family, at) in ["IPv4", "IPv6"].iter().zip(r.end_of_rib) {
                if let Some(at) = at {
                    write!(f, "; End-of-RIB of {family} after {at:.2} s")?;
                }
            }
            if let (Some(held), Some(digest)) = (r.held, &r.digest) {
                write!(f, "; {held} held, digest {digest}")?;
            }
            if r.malformed > 0 {
                write!(f, "; {} UPDATEs malformed", r.malformed)?;
            }
        }
        Ok(())
    }
}

/// Receives until what the options say, and prints the report, even when a session ended too early.
///
/// # Errors
/// A session did not come up, or ended before the work was done.
pub fn run(options: &Options) -> Result<Report, Error> {
    let sink = ListeningSink::new(options)?.open()?;
    let outcome = sink.wait();
    let report = sink.report();
    crate::print(&report, options.json);
    outcome.map(|()| report)
}

/// Receivers that listen, if they are to, and have no session yet.
pub struct ListeningSink {
    options: Options,
    listeners: Vec<TcpListener>,
}

impl ListeningSink {
    /// Starts to listen, when the options say so.
    ///
    /// # Errors
    /// A port cannot be listened on.
    pub fn new(options: &Options) -> Result<ListeningSink, Error> {
        let listen = |at: SocketAddr| TcpListener::bind(at).map_err(|source| Error::Listen { at, source });
        let listeners = match options.listen {
            None => Vec::new(),
            Some(all) if all.ip().is_unspecified() => vec![listen(all)?],
            Some(first) => (0..options.receivers)
                .map(|i| listen(SocketAddr::new(nth(first.ip(), i), first.port())))
                .collect::<Result<_, _>>()?,
        };
        Ok(ListeningSink { options: options.clone(), listeners })
    }

    /// The same on a listener that is there already, from which all receivers take their connections.
    pub fn on(options: &Options, listener: TcpListener) -> ListeningSink {
        ListeningSink { options: options.clone(), listeners: vec![listener] }
    }

    /// Where it listens; nowhere when the receivers connect.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|l| l.local_addr().ok()).collect()
    }

    /// Brings every session up.
    ///
    /// # Errors
    /// A session did not come up, or no peer connected in time.
    pub fn open(self) -> Result<Sink, Error> {
        let ListeningSink { options, listeners } = self;
        let interrupted = interrupted()?;
        let one = |index: u32| -> Result<Receiver, Error> {
            let speaker = options.speaker_of(index);
            let opened = match listeners.get(index as usize).or(listeners.last()) {
                Some(listener) => accept(listener, &speaker, options.connect.wait, &interrupted)?,
                None => options.connect.nth(index, options.receivers)?.connect(&speaker)?,
            };
            Receiver::start(opened, options.table)
        };
        // All at once: the order in which the router connects is not known.
        let receivers = std::thread::scope(|scope| {
            let one = &one;
            let threads: Vec<_> = (0..options.receivers).map(|i| scope.spawn(move || one(i))).collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
                .collect::<Result<Vec<_>, _>>()
        })?;
        Ok(Sink { options, receivers, interrupted })
    }
}

impl Options {
    /// Who receiver number `index` says it is.
    pub fn speaker_of(&self, index: u32) -> Speaker {
        self.speaker.speaker(Role::Receiver, index, self.asn_per_receiver)
    }
}

/// Waits for one connection, at most `wait` seconds unless that is zero, and brings the session up.
fn accept(
    listener: &TcpListener,
    speaker: &Speaker,
    wait: u64,
    interrupted: &AtomicBool,
) -> Result<Opened, Error> {
    let waited = Duration::from_secs(wait);
    let deadline = (wait > 0).then(|| Instant::now() + waited);
    let at = listener.local_addr().map_err(Error::System)?;
    let failed = |source| Error::Listen { at, source };
    listener.set_nonblocking(true).map_err(failed)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(failed)?;
                return session::open(stream, speaker);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(source) => return Err(failed(source)),
        }
        if interrupted.load(Relaxed) || deadline.is_some_and(|d| Instant::now() >= d) {
            return Err(Error::NoConnection { at });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Receivers with their sessions up. Dropped, it closes them.
pub struct Sink {
    options: Options,
    receivers: Vec<Receiver>,
    interrupted: Arc<AtomicBool>,
}

impl Sink {
    /// The sessions, one for each receiver.
    pub fn sessions(&self) -> impl ExactSizeIterator<Item = &Session> {
        self.receivers.iter().map(|r| &r.session)
    }

    /// The routes that receiver `index` holds now, if it keeps them. They stand still, and so does the session,
    /// until `look` returns.
    pub fn routes<R>(&self, index: usize, look: impl FnOnce(Option<&Routes>) -> R) -> R {
        look(lock(&self.receivers[index].got).routes.as_ref())
    }

    /// What every receiver got so far.
    pub fn report(&self) -> Report {
        Report { receivers: self.receivers.iter().map(Receiver::report).collect() }
    }

    /// Waits for what the options say, or for Ctrl-C.
    ///
    /// # Errors
    /// A session ended.
    pub fn wait(&self) -> Result<(), Error> {
        let Options { until_prefixes, until_idle, receivers, quiet, .. } = &self.options;
        let total = until_prefixes.unwrap_or(0) * u64::from(*receivers);
        let progress = Progress::new("received", total, *quiet);
        loop {
            let mut done = until_prefixes.is_some() || until_idle.is_some();
            let mut announced = 0;
            for receiver in &self.receivers {
                let got = lock(&receiver.got);
                announced += got.announced;
                let enough = until_prefixes.is_none_or(|n| got.announced >= n);
                let quiet =
                    until_idle.is_none_or(|idle| got.last_message.is_some_and(|at| at.elapsed() >= idle));
                done &= enough && quiet;
            }
            progress.add(announced - progress.done());
            if done || self.interrupted.load(Relaxed) {
                return Ok(());
            }
            for receiver in &self.receivers {
                receiver.session.check()?;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// One session that receives.
struct Receiver {
    session: Session,
    got: Arc<Mutex<Got>>,
}

/// What came.
#[derive(Default)]
struct Got {
    announced: u64,
    withdrawn: u64,
    updates: u64,
    bytes: u64,
    malformed: u64,
    first_message: Option<Instant>,
    last_message: Option<Instant>,
    last_prefix: Option<Instant>,
    end_of_rib: [Option<Instant>; 2],
    routes: Option<Routes>,
}

impl Receiver {
    fn start(opened: Opened, table: bool) -> Result<Receiver, Error> {
        let got = Got { routes: table.then(Routes::default), ..Got::default() };
        let got = Arc::new(Mutex::new(got));
        let peer: Peer = *opened.peer();
        let context = UpdateContext::new(true, !peer.internal);
        let taking = Arc::clone(&got);
        let session = opened.start(move |body| {
            let update = parse(body, &context)?;
            lock(&taking).take(&update, body.len() + HEADER_LEN);
            Ok(())
        })?;
        Ok(Receiver { session, got })
    }

    fn report(&self) -> ReceiverReport {
        let got = lock(&self.got);
        let since_first = |at: Option<Instant>| Some((at? - got.first_message?).as_secs_f64());
        ReceiverReport {
            address: self.session.peer().local.ip(),
            peer_asn: self.session.peer().asn,
            announced: got.announced,
            withdrawn: got.withdrawn,
            updates: got.updates,
            bytes: got.bytes,
            malformed: got.malformed,
            seconds: since_first(got.last_prefix).unwrap_or(0.0),
            end_of_rib: got.end_of_rib.map(since_first),
            held: got.routes.as_ref().map(Routes::total),
            digest: got.routes.as_ref().map(|r| format!("{:016x}", r.digest())),
        }
    }
}

impl Got {
    fn take(&mut self, update: &Update<'_>, len: usize) {
        let now = Instant::now();
        self.first_message.get_or_insert(now);
        self.last_message = Some(now);
        self.updates += 1;
        self.bytes += len as u64;
        self.malformed += u64::from(update.disposition() != Disposition::Normal);
        match update.end_of_rib() {
            Some(AfiSafi::Ipv4Unicast) => self.end_of_rib[0] = Some(now),
            Some(AfiSafi::Ipv6Unicast) => self.end_of_rib[1] = Some(now),
            Some(AfiSafi::Ipv4Multicast | AfiSafi::Ipv6Multicast) => {}
            None => self.last_prefix = Some(now),
        }
        for_each_family!(F => self.count::<F>(update));
        if let Some(routes) = &mut self.routes {
            routes.apply(update);
        }
    }

    fn count<F: Family>(&mut self, update: &Update<'_>) {
        self.announced += update.announced::<F>().count() as u64;
        self.withdrawn += update.withdrawn::<F>().count() as u64;
    }
}
