//! Plays an MRT file into a BGP session: a table as one peer sent it or as all peers together had it, a stream of
//! updates in its order.

use crate::expected::Expected;
use crate::options::{ConnectOptions, Role, SpeakerOptions, StayOptions};
use crate::progress::Progress;
use crate::recording::{self, RecordedPeer, Summary};
use crate::routes::{PathAttributes, Routes};
use crate::sender::{Sender, Sent};
use crate::session::{Peer, Session, Speaker};
use crate::{AddressPool, Error};
use ribtide_prefix::{Afi, AnyPrefix, Family, Map, V4, V6, for_each_family};
use ribtide_wire::bgp::attribute::{AsPath, Attributes, code};
use ribtide_wire::bgp::{NextHop, build};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

/// The options of `replay`.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// The MRT file: TABLE_DUMP, TABLE_DUMP_V2 or BGP4MP, plain or compressed by gzip or bzip2.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The router.
    #[command(flatten)]
    pub connect: ConnectOptions,
    /// The identity of the sender.
    #[command(flatten)]
    pub speaker: SpeakerOptions,
    /// The recorded peer whose routes are sent: its number or address, "auto" (of a table, the peer with
    /// the most prefixes; of a stream, all peers), or "all" (of a table, the first path of each prefix).
    #[arg(long, value_name = "PEER", default_value = "auto")]
    pub peer: PeerChoice,
    /// Whether the tool's AS is put before the recorded AS path. With "never", ribtide as the router needs
    /// enforce-first-as = false.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub prepend: Prepend,
    /// The next hops: "keep" sends the recorded ones. "self" sends the tool's address; for IPv6 routes over
    /// an IPv4 session in the IPv4-mapped form, and for IPv4 routes over an IPv6 session the recorded one.
    /// "map:PREFIX" gives each recorded next hop its own address in PREFIX; it can be given once for IPv4
    /// and once for IPv6. Link-local next hops are never sent.
    #[arg(long, value_name = "RULE", default_value = "keep")]
    pub next_hop: Vec<NextHopRule>,
    /// The end of the run.
    #[command(flatten)]
    pub stay: StayOptions,
}

impl Options {
    /// The player's speaker.
    pub fn speaker(&self) -> Speaker {
        self.speaker.speaker(Role::Sender, 0, false)
    }
}

/// The recorded peers whose routes are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerChoice {
    /// Of a table, the peer with the most prefixes; of a stream, all peers.
    Auto,
    /// All peers.
    All,
    /// One peer by its number from 0: in the file's peer table or, without one, in order of appearance.
    Number(usize),
    /// One peer by its address.
    Address(IpAddr),
}

impl FromStr for PeerChoice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(PeerChoice::Auto),
            "all" => Ok(PeerChoice::All),
            _ => text
                .parse()
                .map(PeerChoice::Number)
                .or_else(|_| text.parse().map(PeerChoice::Address))
                .map_err(|_| "write auto, all, a number or an address".into()),
        }
    }
}

/// Whether the tool's AS is put before a recorded path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Prepend {
    /// If the router has another AS, and the path does not begin with the tool's AS.
    Auto,
    /// Never.
    Never,
}

/// The rewriting of next hops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextHopRule {
    /// They stay.
    Keep,
    /// They become our own address.
    Own,
    /// Each becomes an address of its own in the prefix; those of the other family stay.
    Map(AnyPrefix),
}

impl FromStr for NextHopRule {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "keep" => Ok(NextHopRule::Keep),
            None if text == "self" => Ok(NextHopRule::Own),
            Some(("map", prefix)) => prefix
                .parse()
                .map(NextHopRule::Map)
                .map_err(|e: ribtide_prefix::ParsePrefixError| e.to_string()),
            _ => Err("write keep, self or map:PREFIX, such as map:10.0.0.0/16".into()),
        }
    }
}

/// The result of a replay.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Report {
    /// Whose routes; `None`: of all peers.
    pub peer: Option<RecordedPeer>,
    /// What the file held.
    pub file: Summary,
    /// What was sent.
    pub sent: Sent,
    /// IPv4 prefixes that the router has from us in the end.
    pub ipv4: usize,
    /// IPv6 prefixes that the router has from us in the end.
    pub ipv6: usize,
    /// Seconds from the first byte to when the system had taken the last.
    pub seconds: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, file) = (&self.sent, &self.file);
        match self.peer {
            Some(p) => writeln!(f, "played the routes of {} (AS {})", p.address, p.asn)?,
            None => writeln!(f, "played the routes of all peers")?,
        }
        writeln!(
            f,
            "{} prefixes announced and {} withdrawn in {} UPDATEs of {} bytes and {:.2} s: {:.0} prefixes/s",
            sent.announced,
            sent.withdrawn,
            sent.updates,
            sent.bytes,
            self.seconds,
            (sent.announced + sent.withdrawn) as f64 / self.seconds
        )?;
        write!(f, "the router now has {} IPv4 and {} IPv6 prefixes from here", self.ipv4, self.ipv6)?;
        if let Some(cut) = file.cut {
            write!(f, "\n{cut}; all before it was played")?;
        }
        for (count, what) in [
            (file.unusable, "entries or UPDATEs have attributes that no router can use"),
            (file.add_path, "UPDATEs with path identifiers were left out"),
            (
                sent.left_out,
                "prefixes were left out: the router does not take their family, or a message cannot hold their attributes",
            ),
            (file.bad, "records could not be read"),
        ] {
            if count > 0 {
                write!(f, "\n{count} {what}")?;
            }
        }
        match &file.first_bad {
            Some(first) => write!(f, " (the first: {first})"),
            None => Ok(()),
        }
    }
}

/// A session that a file is played into. Dropped, it closes the session.
pub struct Replay {
    options: Options,
    session: Session,
    routes: Routes,
}

/// Plays the file, prints the report, and stays for as long as the options say.
///
/// # Errors
/// The file cannot be read, has nothing to play, or the session did not come up or ended.
pub fn run(options: &Options) -> Result<Report, Error> {
    let mut replay = Replay::connect(options)?;
    let report = replay.play()?;
    crate::print(&report, options.stay.json);
    replay.stay()?;
    Ok(report)
}

impl Replay {
    /// Brings the session up.
    ///
    /// # Errors
    /// The file does not exist, or the session did not come up.
    pub fn connect(options: &Options) -> Result<Replay, Error> {
        // Checked before the session, so that the router sees no session without routes.
        std::fs::File::open(&options.file)
            .map_err(|source| Error::File { path: options.file.clone(), source })?;
        let session = options.connect.connect(&options.speaker())?.start(|_| Ok(()))?;
        Ok(Replay { options: options.clone(), session, routes: Routes::default() })
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The routes sent to the router.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The expected forwarding of a router without other routes.
    pub fn expected(&self) -> Expected {
        Expected::of(&self.routes)
    }

    /// Plays the whole file and sends End-of-RIB.
    ///
    /// # Errors
    /// The file cannot be read or has nothing to play, or the session ended.
    pub fn play(&mut self) -> Result<Report, Error> {
        let path = self.options.file.clone();
        let choice = self.choose()?;
        let started = Instant::now();
        let progress = Progress::new("sent", 0, self.options.stay.quiet);
        let peer = *self.session.peer();
        let mut rewrite = Rewrite::new(&self.options, &peer);
        let mut sender = Sender::new(&self.session);
        let routes = &mut self.routes;
        // A table is collected first, so that prefixes with equal attributes share UPDATEs.
        let mut table_waits = false;
        let selects = |p| choice.is_none_or(|chosen| chosen == p);
        let file = recording::read(&path, !peer.internal, selects, |event| {
            if event.table {
                table_waits = true;
                for_each_family!(F => {
                    if let Some(set) = PathAttributes::of::<F>(event.update) {
                        let set = routes.intern(rewrite.set(&set));
                        for prefix in event.update.announced::<F>() {
                            // Of several paths to a prefix, one session carries one: the first.
                            if routes.get(prefix).is_none() {
                                routes.insert(prefix, set);
                            }
                        }
                    }
                });
                return Ok(());
            }
            if std::mem::take(&mut table_waits) {
                send_all(routes, &mut sender, &progress)?;
            }
            for_each_family!(F => {
                let withdrawn: Vec<_> = event.update.withdrawn::<F>().collect();
                if !withdrawn.is_empty() {
                    withdrawn.iter().for_each(|p| { routes.remove(*p); });
                    progress.add(withdrawn.len() as u64);
                    sender.withdraw(withdrawn.into_iter())?;
                }
                if let Some(set) = PathAttributes::of::<F>(event.update) {
                    let set = rewrite.set(&set);
                    let announced: Vec<_> = event.update.announced::<F>().collect();
                    progress.add(announced.len() as u64);
                    sender.announce(&set.block, set.next_hop, announced.iter().copied())?;
                    let set = routes.intern(set);
                    announced.into_iter().for_each(|p| { routes.insert(p, set); });
                }
            });
            Ok(())
        })?;
        if file.events == 0 {
            return Err(Error::NothingToPlay { path, missing: "IPv4 or IPv6 unicast routes to play".into() });
        }
        if table_waits {
            send_all(routes, &mut sender, &progress)?;
        }
        sender.end_of_rib()?;
        Ok(Report {
            peer: choice,
            file,
            sent: sender.sent(),
            ipv4: self.routes.count::<V4>(),
            ipv6: self.routes.count::<V6>(),
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// Keeps the session up for as long as the options say. A ROUTE-REFRESH is replied to with all
    /// routes.
    ///
    /// # Errors
    /// The session ended.
    pub fn stay(&self) -> Result<(), Error> {
        let sessions = std::slice::from_ref(&self.session);
        self.options.stay.stay(sessions, |_, afi| {
            let mut sender = Sender::new(&self.session);
            let silent = Progress::new("", 0, true);
            match afi {
                Afi::Ipv4 => send_family::<V4>(&self.routes, &mut sender, &silent)?,
                Afi::Ipv6 => send_family::<V6>(&self.routes, &mut sender, &silent)?,
            }
            sender.flush()
        })
    }

    /// The peer whose routes are played; `None`: all.
    fn choose(&self) -> Result<Option<RecordedPeer>, Error> {
        let path = &self.options.file;
        let none = |missing| Error::NothingToPlay { path: path.clone(), missing };
        if self.options.peer == PeerChoice::All {
            return Ok(None);
        }
        let survey = recording::survey(path)?;
        match self.options.peer {
            PeerChoice::Auto if survey.table => {
                survey.busiest().map(Some).ok_or_else(|| none("unicast routes to play".into()))
            }
            PeerChoice::Auto | PeerChoice::All => Ok(None),
            PeerChoice::Number(n) => {
                let found = survey.peers.get(n).map(|(peer, _)| Some(*peer));
                found.ok_or_else(|| {
                    none(format!(
                        "peer number {n}; its peers are 0 to {}",
                        survey.peers.len().saturating_sub(1)
                    ))
                })
            }
            PeerChoice::Address(address) => {
                let found = survey.peers.iter().find(|(peer, _)| peer.address == address);
                found.map(|(peer, _)| Some(*peer)).ok_or_else(|| none(format!("peer {address}")))
            }
        }
    }
}

fn send_all(routes: &Routes, sender: &mut Sender<'_>, progress: &Progress) -> Result<(), Error> {
    for_each_family!(F => send_family::<F>(routes, sender, progress)?);
    Ok(())
}

fn send_family<F: Family>(
    routes: &Routes,
    sender: &mut Sender<'_>,
    progress: &Progress,
) -> Result<(), Error> {
    for group in routes.in_order::<F>().chunk_by(|(a, _), (b, _)| a == b) {
        let set = routes.set(group[0].0);
        sender.announce(&set.block, set.next_hop, group.iter().map(|(_, prefix)| *prefix))?;
        progress.add(group.len() as u64);
    }
    Ok(())
}

/// Rewrites recorded attributes for our session.
struct Rewrite {
    /// The AS to prepend to paths that begin with another.
    asn: Option<u32>,
    /// LOCAL_PREF for routes without one: the peer is internal.
    local_pref: Option<u32>,
    own: Option<IpAddr>,
    pools: Vec<AddressPool>,
    mapped: Map<IpAddr, u64>,
}

impl Rewrite {
    fn new(options: &Options, peer: &Peer) -> Rewrite {
        let pool = |rule: &NextHopRule| match rule {
            NextHopRule::Map(prefix) => Some(AddressPool::new(*prefix)),
            NextHopRule::Keep | NextHopRule::Own => None,
        };
        Rewrite {
            asn: (!peer.internal && options.prepend == Prepend::Auto).then_some(options.speaker().asn),
            local_pref: peer.internal.then_some(100),
            own: options.next_hop.contains(&NextHopRule::Own).then_some(peer.local.ip()),
            pools: options.next_hop.iter().filter_map(pool).collect(),
            mapped: Map::default(),
        }
    }

    fn set(&mut self, set: &PathAttributes) -> PathAttributes {
        let mut block = Vec::with_capacity(set.block.len() + 16);
        let mut local_pref = self.local_pref;
        for a in Attributes::new(&set.block) {
            // Attributes ascend by type, so the place for a missing one is before the first greater.
            if a.code >= code::LOCAL_PREF
                && let Some(preference) = local_pref.take()
                && a.code != code::LOCAL_PREF
            {
                build::local_pref(&mut block, preference);
            }
            match (a.code, self.asn) {
                (code::AS_PATH, Some(asn)) if AsPath::new(a.value).first_as() != Some(asn) => {
                    let path = build::prepend(AsPath::new(a.value), asn, 1);
                    build::as_path(&mut block, AsPath::new(&path));
                }
                _ => build::attribute(&mut block, a.flags, a.code, a.value),
            }
        }
        if let Some(preference) = local_pref {
            build::local_pref(&mut block, preference);
        }
        PathAttributes { next_hop: self.next_hop(set.next_hop.addr()), block }
    }

    fn next_hop(&mut self, recorded: IpAddr) -> NextHop {
        let pool = self.pools.iter().find(|pool| pool.prefix().addr().is_ipv4() == recorded.is_ipv4());
        let addr = if let Some(own) = self.own {
            match (own, recorded) {
                // The only encoding of an IPv4 next hop for IPv6 routes (RFC 4798 section 2).
                (IpAddr::V4(own), IpAddr::V6(_)) => own.to_ipv6_mapped().into(),
                // The other direction needs extended next hops (RFC 8950).
                (IpAddr::V6(_), IpAddr::V4(_)) => recorded,
                _ => own,
            }
        } else if let Some(pool) = pool {
            let next = self.mapped.len() as u64;
            pool.addr(*self.mapped.entry(recorded).or_insert(next))
        } else {
            recorded
        };
        addr.into()
    }
}
