//! Another number of shard threads, while sessions last and routes flow.
//!
//! Whoever asks for it does it, on its own thread, in this order:
//!
//! 1. **New shards start**, owning nothing.
//! 2. **Workers ask for no dumps**, and those under way are answered in full: a dump must see every prefix once. Members
//!    that come meanwhile wait for their tables a little longer.
//! 3. **The RIB manager tells new shards too** of next hops, and whether best paths wait for dataplanes. What it said of
//!    next hops before is with the former ones, and comes with the routes.
//! 4. **Readers stop reading**, and what they read is in the shards' rings. Bytes wait in the sockets and then at the
//!    peers: that is TCP's back-pressure, and the session thread sees unread bytes before it takes a peer for dead. All else
//!    goes on: timers, keepalives, writes, the RIB and its dataplanes.
//! 5. **Shards come to rest**: they have handled what readers and the RIB manager sent, and what they said of it is in the
//!    rings of workers and RIB manager. Now no route is on its way between a reader and a shard.
//! 6. **Logical shards move**, one at a time: out of the former owner, into the new one once the former one has said all.
//!    Every shard feeds the same ring of a worker, and the same ring of the RIB manager, so what the new owner says of a
//!    prefix comes behind what the former one said. Questions of the API wait, and find every prefix where the new map has it.
//! 7. **Everybody learns the new map**: readers first, and they read on; then workers, which ask for the dumps that waited,
//!    and the RIB manager. Shards that own nothing any more do what is left to do and end.
//!
//! **Nothing waits in a circle**, because no stage waits for this. A paused reader and a paused worker only leave something
//! where it is: in sockets, and in the list of dumps to ask for. Both still answer, and whoever waits for them without
//! this waits no longer with it. This in turn waits for what goes on by itself: with no new input the shards empty
//! their rings as far as workers and the RIB manager take what they say, and those take it as always (see
//! ARCHITECTURE.md, "Why nothing waits in a circle"). Should that last too long, all goes on as before.
//!
//! **Next hops.** A new owner's first use of a next hop and the former one's last go to the RIB manager in either order,
//! or it may hear of an end before a beginning. It counts, so the worst is that it forgets a next hop for a moment and
//! answers the next one who asks anew. What a shard knows of next hops moves with the routes; what the RIB manager says
//! from step 3 on, every shard hears itself.
//!
//! **What waits for dataplanes** its new owner asks for anew, behind what the former one asked. Which prefixes are
//! blocked the RIB manager says once more at the end: what it said while one was on its way, neither owner took for its own.
//!
//! **Sessions that end meanwhile.** A reader tells the end of a session to the shards that there are at that moment, and
//! tells the session thread how many; each of them answers when it holds nothing more of it, also one that ends after.

use super::owners::Owners;
use super::placement::Placement;
use super::reader::Reader;
use super::shard::{Outlets, ShardBuilder, ShardPort};
use super::{Bgp, stage};
use crate::config::Threads;
use crate::rib::RibStage;
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::message::ShardIn;
use ribtide_prefix::LOGICAL_SHARDS;
use ribtide_runtime::ask::{Asker, NoAnswer};
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::{Rings, Sender};
use ribtide_runtime::thread::Stop;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// How long dumps, readers and shards may each take to come to rest.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often to look.
const LOOK: Duration = Duration::from_micros(500);

/// What it takes to start a shard.
pub(super) struct ShardFactory {
    /// How many there ever were.
    pub(super) lanes: u32,
    pub(super) placement: Placement,
    pub(super) options: DecisionOptions,
    pub(super) outlets: Outlets,
    pub(super) rings: Rings,
    pub(super) meters: Meters,
    pub(super) stop: Stop,
}

impl ShardFactory {
    /// These shards, and new ones until there are `to`.
    fn grow(&mut self, shards: &[ShardPort], to: usize) -> io::Result<Vec<ShardPort>> {
        let mut all = shards.to_vec();
        while all.len() < to {
            match self.start(all.len() as u16) {
                Ok(shard) => all.push(shard),
                Err(error) => {
                    all.into_iter().skip(shards.len()).for_each(ShardPort::retire);
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    fn start(&mut self, index: u16) -> io::Result<ShardPort> {
        let builder = ShardBuilder::new(index, self.lanes, &self.rings, None);
        self.lanes += 1;
        let (port, stage) = builder.build(self.options, self.outlets.clone(), &self.meters);
        let cpus = self.placement.stage(usize::from(index));
        stage::spawn(format!("shard-{index}"), stage, cpus, self.stop.clone())?;
        Ok(port)
    }
}

/// What a resize did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resized {
    /// Shard threads before.
    pub from: usize,
    /// Shard threads now.
    pub to: usize,
    /// Logical shards that have another owner.
    pub logical_shards: usize,
    /// Prefixes in them.
    pub prefixes: u64,
    /// How long readers read nothing.
    pub paused: Duration,
}

/// Why the number of shards is as before. Displays as a sentence.
#[derive(Debug)]
pub enum NotResized {
    /// Another resize is under way.
    Busy,
    /// Between threads and none there is no way but a restart.
    Off,
    /// That many threads cannot be.
    Number(usize),
    /// The system gives no thread.
    Thread(io::Error),
    /// Somebody did not come to rest.
    Restless(&'static str),
    /// A stage does not answer.
    NoAnswer(NoAnswer),
}

impl fmt::Display for NotResized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotResized::Busy => write!(f, "the shards are just being resized; try again when that is done"),
            NotResized::Off => write!(
                f,
                "from or to no shard threads at all (bgp.shards = \"off\") only a restart leads; set bgp.shards in the \
                 configuration and restart the router"
            ),
            NotResized::Number(n) => write!(f, "{n} shard threads cannot be; 1 to 64 can, or \"auto\""),
            NotResized::Thread(e) => write!(
                f,
                "the system gives no thread for another shard: {e}; the number is as before, raise the limit of processes \
                 (ulimit -u)"
            ),
            NotResized::Restless(who) => write!(
                f,
                "{who} did not come to rest within {} s, so the number of shards is as before; `ribtide show pipeline` shows \
                 which queue is full, try again with less load",
                PATIENCE.as_secs()
            ),
            NotResized::NoAnswer(e) => write!(f, "the number of shards is as before: {e}"),
        }
    }
}

impl std::error::Error for NotResized {}

impl From<NoAnswer> for NotResized {
    fn from(e: NoAnswer) -> NotResized {
        NotResized::NoAnswer(e)
    }
}

impl Bgp {
    /// Spreads the logical shards over so many threads. `rib` is the RIB manager, where there is one.
    ///
    /// # Errors
    /// Why all is as it was.
    pub fn resize(&self, threads: Threads, rib: Option<&Asker<RibStage>>) -> Result<Resized, NotResized> {
        let Ok(mut factory) = self.factory.try_lock() else { return Err(NotResized::Busy) };
        if self.hosted.shards || threads == Threads::Off {
            return Err(NotResized::Off);
        }
        let to = usize::from(factory.placement.stages(threads));
        if !(1..=usize::from(LOGICAL_SHARDS)).contains(&to) {
            return Err(NotResized::Number(to));
        }
        let former = self.owners.read().shards.clone();
        let from = former.len();
        if from == to {
            return Ok(Resized { from, to, logical_shards: 0, prefixes: 0, paused: Duration::ZERO });
        }
        // Those there are, and behind them those that come.
        let all = factory.grow(&former, to).map_err(NotResized::Thread)?;

        let outcome = self.come_to_rest(&all, rib).and_then(|paused_at| {
            let (logical_shards, prefixes) = self.move_to(&all, to)?;
            Ok((paused_at, logical_shards, prefixes))
        });
        for reader in &self.readers {
            reader.wait(Reader::resume)?;
        }
        let resumed_at = Instant::now();
        for worker in &self.workers {
            worker.resume_dumps()?;
        }
        let in_force = self.owners.read().shards.clone();
        tell(rib, &in_force)?;
        all.into_iter().skip(in_force.len()).for_each(ShardPort::retire);
        let (paused_at, logical_shards, prefixes) = outcome?;
        Ok(Resized { from, to, logical_shards, prefixes, paused: resumed_at - paused_at })
    }

    /// Until no route is on its way between a reader and a shard. Since when readers have been pausing.
    fn come_to_rest(&self, all: &[ShardPort], rib: Option<&Asker<RibStage>>) -> Result<Instant, NotResized> {
        for worker in &self.workers {
            worker.pause_dumps()?;
        }
        for worker in &self.workers {
            until("a dump for members that joined", || Ok(!worker.ask(|w| w.dumps_under_way())?))?;
        }
        tell(rib, all)?;
        let paused_at = Instant::now();
        for reader in &self.readers {
            reader.wait(Reader::pause)?;
        }
        for reader in &self.readers {
            until("a reader", || reader.ask(Reader::at_rest))?;
        }
        for shard in all {
            until("a shard", || shard.at_rest())?;
        }
        Ok(paused_at)
    }

    /// Moves logical shards so that the first `to` of `all` shards have them, and makes the new map known. How many moved,
    /// and how many prefixes.
    fn move_to(&self, all: &[ShardPort], to: usize) -> Result<(usize, u64), NoAnswer> {
        let mut owners = self.owners.write();
        let map = Owners::remap(&owners.map, to);
        let (mut logical_shards, mut prefixes) = (0, 0);
        for (logical, (giver, taker)) in (0..).zip(owners.map.into_iter().zip(map)) {
            if giver != taker {
                let (giver, taker) = (&all[usize::from(giver)], &all[usize::from(taker)]);
                let moved = giver.extract(logical)?;
                giver.said()?;
                logical_shards += 1;
                prefixes += moved.prefixes() as u64;
                taker.adopt(moved)?;
            }
        }
        let shards = all[..to].to_vec();
        for reader in &self.readers {
            let inboxes = shards.iter().map(ShardPort::inbox).collect();
            reader.wait(move |r| r.remap(map, inboxes))?;
        }
        for worker in &self.workers {
            worker.remap(requests(&shards))?;
        }
        *owners = Owners { shards, map };
        Ok((logical_shards, prefixes))
    }
}

/// The RIB manager tells these shards of next hops from now on.
fn tell(rib: Option<&Asker<RibStage>>, shards: &[ShardPort]) -> Result<(), NoAnswer> {
    let Some(rib) = rib else { return Ok(()) };
    let lanes = shards.iter().map(ShardPort::lane).collect();
    rib.wait(move |rib| rib.set_shards(lanes))
}

fn requests(shards: &[ShardPort]) -> Vec<Sender<ShardIn>> {
    shards.iter().map(ShardPort::feedback).collect()
}

/// Looks until it is so.
fn until(who: &'static str, mut so: impl FnMut() -> Result<bool, NoAnswer>) -> Result<(), NotResized> {
    let begin = Instant::now();
    while !so()? {
        if begin.elapsed() > PATIENCE {
            return Err(NotResized::Restless(who));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
