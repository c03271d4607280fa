//! Sends a generated table to a router, from one or many senders.

use crate::expected::{Expected, Rank};
use crate::options::{ConnectOptions, Role, SpeakerOptions, StayOptions, defaults};
use crate::progress::Progress;
use crate::sender::{Sender, Sent};
use crate::session::{Session, Speaker};
use crate::table::{Feed, FeedOptions, Path, Table, TableOptions};
use crate::{AddressPool, Error};
use ribtide_prefix::{Afi, AnyPrefix, Families, Family, V4, V6, for_each_family};
use std::fmt;
use std::net::IpAddr;
use std::time::Instant;

/// The options of `blast`.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// The router.
    #[command(flatten)]
    pub connect: ConnectOptions,
    /// The identity of the senders.
    #[command(flatten)]
    pub speaker: SpeakerOptions,
    /// The number of sessions that send the table. All announce the same prefixes, each in its own order
    /// and with its own AS paths.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub senders: u32,
    /// Give each sender its own AS number: consecutive numbers from --asn on.
    #[arg(long)]
    pub asn_per_sender: bool,
    /// The table.
    #[command(flatten)]
    pub table: TableOptions,
    /// The seed of the order of announcements; sender N uses this number plus N.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub order_seed: u64,
    /// Its next hops.
    #[command(flatten)]
    pub next_hops: NextHopOptions,
    /// The share of the prefixes that is withdrawn and announced again after the table.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=100))]
    pub churn: u8,
    /// The number of times that --churn is repeated, each time with other prefixes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub churn_rounds: u32,
    /// The end of the run.
    #[command(flatten)]
    pub stay: StayOptions,
}

/// The addresses of generated next hops.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct NextHopOptions {
    /// The number of next hops of each family.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub next_hops: u32,
    /// The IPv4 next hops: the first addresses of this prefix.
    #[arg(long, value_name = "PREFIX", default_value = "10.0.0.0/16", value_parser = prefix_of::<V4>)]
    pub next_hops4: AnyPrefix,
    /// The IPv6 next hops: the first addresses of this prefix.
    #[arg(long, value_name = "PREFIX", default_value = "2001:db8::/64", value_parser = prefix_of::<V6>)]
    pub next_hops6: AnyPrefix,
}

impl Default for NextHopOptions {
    fn default() -> Self {
        defaults()
    }
}

fn prefix_of<F: Family>(text: &str) -> Result<AnyPrefix, String> {
    text.parse::<ribtide_prefix::Prefix<F>>().map(|p| p.any()).map_err(|e| e.to_string())
}

impl Default for Options {
    fn default() -> Self {
        defaults()
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Report {
    /// The seed of the table.
    pub seed: u64,
    /// IPv4 prefixes of the table.
    pub ipv4: usize,
    /// IPv6 prefixes of the table.
    pub ipv6: usize,
    /// Sets of attributes that one sender announces.
    pub sets: usize,
    /// The announcements of all senders.
    pub sent: Sent,
    /// Seconds from the first byte to when the system had taken the last.
    pub seconds: f64,
    /// The churn.
    pub churn: Sent,
    /// Seconds that took.
    pub churn_seconds: f64,
    /// Each sender.
    pub senders: Vec<SenderReport>,
}

/// The announcements of one sender.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct SenderReport {
    /// The sender's own address.
    pub from: IpAddr,
    /// What it sent.
    pub sent: Sent,
    /// Seconds it took.
    pub seconds: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "table {}: {} IPv4 and {} IPv6 prefixes in {} sets of attributes",
            self.seed, self.ipv4, self.ipv6, self.sets
        )?;
        let line = |f: &mut fmt::Formatter<'_>, sent: &Sent, seconds: f64| {
            let prefixes = sent.announced + sent.withdrawn;
            let rate = prefixes as f64 / seconds;
            write!(
                f,
                "{prefixes} prefixes in {} UPDATEs of {} bytes in {seconds:.2} s: {rate:.0} prefixes/s",
                sent.updates, sent.bytes
            )
        };
        match self.senders.len() {
            1 => write!(f, "1 sender: ")?,
            n => write!(f, "{n} senders: ")?,
        }
        line(f, &self.sent, self.seconds)?;
        if self.churn.updates > 0 {
            write!(f, "\nchurn: ")?;
            line(f, &self.churn, self.churn_seconds)?;
        }
        if self.sent.left_out > 0 {
            write!(
                f,
                "\n{} prefixes were left out: the router does not take their address family",
                self.sent.left_out
            )?;
        }
        Ok(())
    }
}

/// Sessions that a table is sent into. Dropped, it closes them.
pub struct Blast {
    options: Options,
    table: Table,
    sessions: Vec<Session>,
}

/// Sends the table and the churn, prints the report, and stays for as long as the options say.
///
/// # Errors
/// A session did not come up or ended.
pub fn run(options: &Options) -> Result<Report, Error> {
    let blast = Blast::connect(options)?;
    let report = blast.send()?;
    crate::print(&report, options.stay.json);
    blast.stay()?;
    Ok(report)
}

impl Blast {
    /// Makes the table and brings the sessions up.
    ///
    /// # Errors
    /// A session did not come up.
    pub fn connect(options: &Options) -> Result<Blast, Error> {
        let table = Table::new(&options.table);
        let sessions = (0..options.senders)
            .map(|i| {
                let connect = options.connect.nth(i, options.senders)?;
                connect.connect(&options.speaker_of(i))?.start(|_| Ok(()))
            })
            .collect::<Result<_, _>>()?;
        Ok(Blast { options: options.clone(), table, sessions })
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The sessions, one for each sender.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// The feed of sender `index`.
    pub fn feed(&self, index: usize) -> Feed<'_> {
        let session = self.sessions[index].peer();
        let options = &self.options;
        let next_hops = &options.next_hops;
        self.table.feed(FeedOptions {
            sender: index as u32,
            asn: (!session.internal).then(|| options.speaker_of(index as u32).asn),
            order: options.order_seed + index as u64,
            next_hops: Families {
                v4: AddressPool::new(next_hops.next_hops4),
                v6: AddressPool::new(next_hops.next_hops6),
            },
            next_hop_count: next_hops.next_hops,
            shortest_of: None,
            version: 0,
        })
    }

    /// Sends the table from all senders at once, then the churn.
    ///
    /// # Errors
    /// A session ended.
    pub fn send(&self) -> Result<Report, Error> {
        let prefixes = self.table.count::<V4>() + self.table.count::<V6>();
        let started = Instant::now();
        let senders = {
            let progress = Progress::new("sent", prefixes as u64 * self.sessions.len() as u64, self.quiet());
            self.each_sender(|sender, feed| {
                for_each_family!(F => announce::<F>(sender, feed, &progress)?);
                sender.end_of_rib()
            })?
        };
        let seconds = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let mut churn = Sent::default();
        if self.options.churn > 0 {
            for round in 0..self.options.churn_rounds {
                for sender in self.each_sender(|sender, feed| self.churn(round, sender, feed))? {
                    churn += sender.sent;
                }
            }
        }
        let churn_seconds = started.elapsed().as_secs_f64();
        let mut sent = Sent::default();
        senders.iter().for_each(|s| sent += s.sent);
        Ok(Report {
            seed: self.options.table.seed,
            ipv4: self.table.count::<V4>(),
            ipv6: self.table.count::<V6>(),
            sets: self.table.group_count::<V4>() + self.table.group_count::<V6>(),
            sent,
            seconds,
            churn,
            churn_seconds,
            senders,
        })
    }

    /// Keeps the sessions up for as long as the options say. A ROUTE-REFRESH is replied to with the
    /// family's table.
    ///
    /// # Errors
    /// A session ended.
    pub fn stay(&self) -> Result<(), Error> {
        self.options.stay.stay(&self.sessions, |index, afi| {
            let mut sender = Sender::new(&self.sessions[index]);
            let (feed, silent) = (self.feed(index), Progress::new("", 0, true));
            match afi {
                Afi::Ipv4 => announce::<V4>(&mut sender, &feed, &silent)?,
                Afi::Ipv6 => announce::<V6>(&mut sender, &feed, &silent)?,
            }
            sender.flush()
        })
    }

    /// The expected forwarding of a router without other routes: the best path of all senders.
    pub fn expected(&self) -> Expected {
        let mut expected = Expected::default();
        let mut path = Path::default();
        for (index, session) in self.sessions.iter().enumerate() {
            let feed = self.feed(index);
            let router_id = self.options.speaker_of(index as u32).router_id;
            for_each_family!(F => {
                for (group, prefixes) in feed.groups::<F>().filter(|_| session.peer().takes(F::AFI)) {
                    feed.path::<F>(group, &mut path);
                    let rank = Rank {
                        hops: path.as_path.len() as u32,
                        origin: path.origin as u8,
                        router_id,
                        address: session.peer().local.ip(),
                    };
                    prefixes.iter().for_each(|prefix| expected.offer(*prefix, rank, path.next_hop));
                }
            });
        }
        expected
    }

    /// Runs `work` for every sender, each on a thread of its own.
    fn each_sender(
        &self,
        work: impl Fn(&mut Sender<'_>, &Feed<'_>) -> Result<(), Error> + Sync,
    ) -> Result<Vec<SenderReport>, Error> {
        let one = |index: usize| {
            let session = &self.sessions[index];
            let mut sender = Sender::new(session);
            let started = Instant::now();
            work(&mut sender, &self.feed(index))?;
            let seconds = started.elapsed().as_secs_f64();
            Ok(SenderReport { from: session.peer().local.ip(), sent: sender.sent(), seconds })
        };
        std::thread::scope(|scope| {
            let one = &one;
            let threads: Vec<_> =
                (0..self.sessions.len()).map(|index| scope.spawn(move || one(index))).collect();
            threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
        })
    }

    /// Withdraws one share of the table's groups and announces it again.
    fn churn(&self, round: u32, sender: &mut Sender<'_>, feed: &Feed<'_>) -> Result<(), Error> {
        // Every hundredth group from a place of its own each round, as many as there are percent.
        let share = u32::from(self.options.churn);
        let hit = |group: usize| (group as u32).wrapping_add(round.wrapping_mul(share)) % 100 < share;
        for_each_family!(F => {
            for (_, prefixes) in feed.groups::<F>().filter(|(group, _)| hit(*group)) {
                sender.withdraw(prefixes.iter().copied())?;
            }
        });
        let mut send = GroupWriter::default();
        for_each_family!(F => {
            for (group, prefixes) in feed.groups::<F>().filter(|(group, _)| hit(*group)) {
                send.announce::<F>(sender, feed, group, prefixes)?;
            }
        });
        sender.flush()
    }

    fn quiet(&self) -> bool {
        self.options.stay.quiet
    }
}

impl Options {
    /// The speaker of sender number `index`.
    pub fn speaker_of(&self, index: u32) -> Speaker {
        self.speaker.speaker(Role::Sender, index, self.asn_per_sender)
    }
}

/// Memory of one group's attributes, reused for the next.
#[derive(Default)]
struct GroupWriter {
    path: Path,
    block: Vec<u8>,
}

impl GroupWriter {
    fn announce<F: Family>(
        &mut self,
        sender: &mut Sender<'_>,
        feed: &Feed<'_>,
        group: usize,
        prefixes: &[ribtide_prefix::Prefix<F>],
    ) -> Result<(), Error> {
        feed.path::<F>(group, &mut self.path);
        self.block.clear();
        self.path.encode(&mut self.block);
        sender.announce(&self.block, self.path.next_hop.into(), prefixes.iter().copied())
    }
}

fn announce<F: Family>(sender: &mut Sender<'_>, feed: &Feed<'_>, progress: &Progress) -> Result<(), Error> {
    let mut writer = GroupWriter::default();
    // Threads share the counter, so each adds to it in batches.
    let mut uncounted = 0;
    for (group, prefixes) in feed.groups::<F>() {
        writer.announce::<F>(sender, feed, group, prefixes)?;
        uncounted += prefixes.len() as u64;
        if uncounted > 4096 {
            progress.add(std::mem::take(&mut uncounted));
        }
    }
    progress.add(uncounted);
    Ok(())
}
