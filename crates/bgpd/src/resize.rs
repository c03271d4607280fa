//! Another number of shard threads, while sessions last and routes flow.
//!
//! The caller carries it out, on its own thread, in this order:
//!
//! 1. **New shards start**, owning nothing.
//! 2. **Workers ask for no dumps**, and those under way are answered in full: a dump must see every prefix once. Members
//!    that come meanwhile wait for their tables a little longer.
//! 3. **The RIB manager tells new shards too** of next hops, and whether best paths wait for dataplanes. What it said of
//!    next hops before is with the former ones, and comes with the routes.
//! 4. **Readers learn of new shards**, and tell them which sessions last. From now on all shards hear of every session, and
//!    readers read little at a time, and only when shards and those behind them keep up, so that shards soon come to rest.
//!    Tables of logical shards that come get their room, so that none grows in a stop.
//! 5. **Parts of logical shards move**, one stop of the readers after the other, and between two stops routes flow as always, by
//!    the map as it is then. In a stop
//!    - *readers stop reading*, and what they read is in the shards' rings. Bytes wait in the sockets and then at the
//!      peers: that is TCP's back-pressure, and the session thread sees unread bytes before it takes a peer for dead. All else
//!      goes on: timers, keepalives, writes, the RIB and its dataplanes;
//!    - *shards come to rest*: they have handled what readers and the RIB manager sent, and what they said of it is in the
//!      rings of workers and RIB manager. Now no route is on its way between a reader and a shard. If that takes longer than
//!      [`REST_TIMEOUT`], readers read on, and it is tried again a little later;
//!    - *parts move*, each of [`PART_PATHS_MAX`] paths or of one prefix, until [`MOVE_TIME`] is over: out of the former owner,
//!      into the new one once the former one has said all, and the former one gives the next part meanwhile. Every shard feeds the same ring of a worker, and the same ring of the RIB manager, so what the new owner
//!      says of a prefix comes behind what the former one said. Questions of the API wait, and find every prefix where the
//!      map has it then;
//!    - *readers learn the map*, and read on. Memory that is not needed any more is given back when they do.
//! 6. **Workers learn the new map**, ask for the dumps that waited, and so does the RIB manager. Shards that own nothing any more
//!    do what is left to do and end.
//!
//! **Nothing waits in a circle**, because no stage waits for this. A paused reader and a paused worker only leave something
//! where it is: in sockets, and in the list of dumps to ask for. Both still answer, and whoever waits for them without
//! this waits no longer with it. This in turn waits for what goes on by itself: with no new input the shards empty
//! their rings as far as workers and the RIB manager take what they say, and those take it as always (see
//! ARCHITECTURE.md, "Why nothing waits in a circle"). Should that last too long, it ends there: what has moved has moved, all
//! shards that have something stay, and the next resize goes on from that map.
//!
//! **Next hops.** A new owner's first use of a next hop and the former one's last go to the RIB manager in either order,
//! or it may hear of an end before a beginning. It counts, so the worst is that it forgets a next hop for a moment and
//! resolves it from the start when a shard asks next. What a shard knows of next hops moves with the routes; what the RIB manager says
//! from step 3 on, every shard hears itself.
//!
//! **What waits for dataplanes** its new owner asks for again, behind what the former one asked. Which prefixes are
//! blocked the RIB manager says once more now and then, and at the end: what it said while one was on its way, neither owner
//! took for its own.
//!
//! **Sessions that end meanwhile.** A reader tells the end of a session to the shards that it knows at that moment, and
//! tells the session thread how many; each of them has heard of its beginning, and answers when it holds nothing more of it,
//! also one that ends after.

use super::owners::Owners;
use super::placement::Placement;
use super::reader::Reader;
use super::shard::{Outputs, ShardBuilder, ShardPort};
use super::{Bgp, stage};
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::message::ShardIn;
use ribtide_bgp::shard::{Cut, HashSeed, Split};
use ribtide_config::Threads;
use ribtide_prefix::{LOGICAL_SHARDS, LogicalShard};
use ribtide_ribd::RibStage;
use ribtide_runtime::call::{NoReply, PendingCall, StageHandle};
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::{Rings, Sender};
use ribtide_runtime::thread::Stop;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// How long a dump, and shards before one stop, may take to come to rest until the resize gives up.
const RESIZE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often to look.
const RESIZE_POLL_INTERVAL: Duration = Duration::from_micros(200);
/// How long readers stop for shards that do not come to rest, before they read on.
const REST_TIMEOUT: Duration = Duration::from_millis(20);
/// How long parts move in one stop; the last may begin just before.
const MOVE_TIME: Duration = Duration::from_millis(10);
/// Paths of a part, about a millisecond's work, unless one prefix alone has more; and of one stop, whatever clocks say.
const PART_PATHS_MAX: usize = 2048;
const STOP_PATHS_MAX: usize = 16 * PART_PATHS_MAX;
/// How long readers read between two stops, at least; else as long as they stopped.
const GAP: Duration = Duration::from_millis(2);
/// How often the RIB manager says which prefixes are blocked.
const SAY_BLOCKED: Duration = Duration::from_secs(1);

/// What it takes to start a shard.
pub(super) struct ShardFactory {
    /// How many there ever were.
    pub(super) shards_ever: u32,
    pub(super) placement: Placement,
    pub(super) options: DecisionOptions,
    pub(super) seed: HashSeed,
    pub(super) outputs: Outputs,
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
        let builder = ShardBuilder::new(index, self.shards_ever, &self.rings, None);
        self.shards_ever += 1;
        let (port, stage) = builder.build(self.options, &self.seed, self.outputs.clone(), &self.meters);
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
    /// How readers stopped.
    pub stops: Stops,
    /// The most paths that moved in one stop.
    pub most_paths: usize,
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
    /// A stage did not become idle.
    Restless(&'static str),
    /// A stage does not answer.
    NoReply(NoReply),
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
                "{who} did not come to rest within {} s, so logical shards that have not moved stay where they are, and all \
                 shards that have any go on; `ribtide show pipeline` shows which queue is full, try again with less load",
                RESIZE_TIMEOUT.as_secs()
            ),
            NotResized::NoReply(e) => write!(f, "the number of shards is as before: {e}"),
        }
    }
}

impl std::error::Error for NotResized {}

impl From<NoReply> for NotResized {
    fn from(e: NoReply) -> NotResized {
        NotResized::NoReply(e)
    }
}

/// The stops of readers in one resize.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stops {
    /// How many.
    pub count: u64,
    /// Those in which nothing moved, because shards did not come to rest.
    pub in_vain: u64,
    /// How long the longest of any reader was.
    pub longest: Duration,
    /// How many were longer than each of [`Stops::LIMITS`].
    pub over: [u64; Stops::LIMITS.len()],
    /// For how long readers read nothing, all stops together.
    pub all: Duration,
}

impl Stops {
    /// Lengths of stops that are told apart.
    pub const LIMITS: [Duration; 3] =
        [Duration::from_millis(10), Duration::from_millis(25), Duration::from_millis(50)];

    /// Readers stopped, the longest of them for so long.
    fn add(&mut self, longest: Duration, in_vain: bool) {
        self.count += 1;
        self.in_vain += u64::from(in_vain);
        self.longest = self.longest.max(longest);
        self.over.iter_mut().zip(Stops::LIMITS).for_each(|(over, limit)| *over += u64::from(longest > limit));
        self.all += longest;
    }
}

/// What is to move, and what has moved.
struct Moves {
    /// Logical shards, each with the shard that it moves to. One that has begun to move is the first.
    left: VecDeque<Split>,
    /// Logical shards whose former and new owners hold room for them that they need no more.
    done: Vec<(LogicalShard, [ShardPort; 2])>,
    logical_shards: usize,
    prefixes: u64,
    most_paths: usize,
}

impl Moves {
    /// What leads from the owners that there are to `to` of them.
    fn new(owners: &Owners, to: usize, seed: &HashSeed) -> Moves {
        let mut map = owners.map;
        let mut left: VecDeque<Split> = owners.split.clone().into_iter().collect();
        left.iter().for_each(|split| map[usize::from(split.logical)] = split.taker);
        for (logical, (giver, taker)) in (0..).zip(map.into_iter().zip(Owners::remap(&map, to))) {
            if giver != taker {
                left.push_back(Split { logical, cut: Cut::START, taker, seed: seed.clone() });
            }
        }
        Moves { left, done: Vec::new(), logical_shards: 0, prefixes: 0, most_paths: 0 }
    }

    /// The shards that give and take a logical shard.
    fn both(owners: &Owners, split: &Split) -> [ShardPort; 2] {
        let giver = owners.map[usize::from(split.logical)];
        [giver, split.taker].map(|number| owners.shards[usize::from(number)].clone())
    }

    /// Makes room for what is to come.
    fn reserve(&self, owners: &Owners) -> Result<(), NoReply> {
        for split in &self.left {
            let [giver, taker] = Moves::both(owners, split);
            let (begun, left) = (taker.keep_table(split.logical)?, giver.keep_table(split.logical)?);
            taker.reserve_table(split.logical, (begun.0 + left.0, begun.1 + left.1))?;
        }
        Ok(())
    }

    /// Shrinks the tables of logical shards that move no longer.
    fn shrink(&mut self) -> Result<(), NoReply> {
        let shrink = |(logical, both): (LogicalShard, [ShardPort; 2])| {
            both.iter().try_for_each(|shard| shard.shrink_table(logical))
        };
        self.done.drain(..).try_for_each(shrink)
    }

    /// Nothing more moves: shrinks all tables, but for a logical shard that is in two parts.
    fn end(&mut self, owners: &Owners) -> Result<(), NoReply> {
        // Without its new owner, nothing was reserved.
        let there = |split: &&Split| usize::from(split.taker) < owners.shards.len();
        let whole = self.left.iter().filter(|split| split.cut == Cut::START).filter(there);
        self.done.extend(whole.map(|split| (split.logical, Moves::both(owners, split))));
        self.shrink()
    }

    /// Moves some. All shards are at rest.
    fn some(&mut self, owners: &mut Owners) -> Result<(), NoReply> {
        let (begin, mut moved) = (Instant::now(), 0);
        let mut taken: Option<PendingCall<()>> = None;
        while moved < STOP_PATHS_MAX
            && begin.elapsed() < MOVE_TIME
            && let Some(split) = self.left.pop_front()
        {
            let [giver, taker] = Moves::both(owners, &split);
            let paths = PART_PATHS_MAX.min(STOP_PATHS_MAX - moved);
            let part = giver.extract(split.logical, split.cut, paths)?;
            giver.said()?;
            let cut = part.end();
            moved += part.paths();
            self.prefixes += part.prefixes() as u64;
            // One part at a time, so that the clock is not far behind.
            if let Some(taken) = taken.replace(taker.adopt(part)?) {
                taken.wait()?;
            }
            if cut == Cut::END {
                owners.map[usize::from(split.logical)] = split.taker;
                owners.split = None;
                self.logical_shards += 1;
                self.done.push((split.logical, [giver, taker]));
            } else {
                let split = Split { cut, ..split };
                owners.split = Some(split.clone());
                self.left.push_front(split);
            }
        }
        self.most_paths = self.most_paths.max(moved);
        taken.map_or(Ok(()), PendingCall::wait)
    }
}

impl Resized {
    fn of(from: usize, to: usize, moves: &Moves, stops: &Stops) -> Resized {
        let Moves { logical_shards, prefixes, most_paths, .. } = *moves;
        Resized { from, to, logical_shards, prefixes, stops: *stops, most_paths }
    }
}

impl Bgp {
    /// Spreads the logical shards over so many threads. `rib` is the RIB manager, where there is one.
    ///
    /// # Errors
    /// Why not all of them are where they should be. What has moved until then has moved.
    pub fn resize(
        &self,
        threads: Threads,
        rib: Option<&StageHandle<RibStage>>,
    ) -> Result<Resized, NotResized> {
        let Ok(mut factory) = self.factory.try_lock() else { return Err(NotResized::Busy) };
        if self.hosted.shards || threads == Threads::Off {
            return Err(NotResized::Off);
        }
        let to = usize::from(factory.placement.stages(threads));
        if !(1..=usize::from(LOGICAL_SHARDS)).contains(&to) {
            return Err(NotResized::Number(to));
        }
        let (former, mut moves) = {
            let owners = self.owners.read();
            (owners.shards.clone(), Moves::new(&owners, to, &factory.seed))
        };
        let from = former.len();
        let mut stops = Stops::default();
        if from == to && moves.left.is_empty() {
            return Ok(Resized::of(from, to, &moves, &stops));
        }
        // Those there are, and behind them those that come.
        let all = factory.grow(&former, to).map_err(NotResized::Thread)?;

        let outcome = self
            .prepare(&all[from..], &moves, &factory.outputs, rib)
            .and_then(|()| self.move_all(&mut moves, &mut stops, rib))
            .and_then(|()| self.let_go(&mut stops, to));
        moves.end(&self.owners.read())?;
        for reader in &self.readers {
            reader.wait(|r| r.hold_back(None))?;
        }
        for worker in &self.workers {
            worker.remap(requests(&self.owners.read().shards))?;
            worker.resume_dumps()?;
        }
        let in_force = self.owners.read().shards.clone();
        tell(rib, &in_force)?;
        all.into_iter().skip(in_force.len()).for_each(ShardPort::retire);
        outcome.map(|()| Resized::of(from, to, &moves, &stops))
    }

    /// Until no dump is under way, and everybody who sends to shards knows the new ones.
    fn prepare(
        &self,
        new: &[ShardPort],
        moves: &Moves,
        outputs: &Outputs,
        rib: Option<&StageHandle<RibStage>>,
    ) -> Result<(), NotResized> {
        for worker in &self.workers {
            worker.pause_dumps()?;
        }
        for worker in &self.workers {
            until("a dump for members that joined", || Ok(!worker.ask(|w| w.dumps_in_flight())?))?;
        }
        let all = [&self.owners.read().shards, new].concat();
        tell(rib, &all)?;
        for reader in &self.readers {
            let inboxes = new.iter().map(ShardPort::inbox).collect();
            let downstream = Some(outputs.clone());
            reader.wait(move |r| {
                r.add_shards(inboxes);
                r.hold_back(downstream);
            })?;
        }
        self.owners.write().shards = all;
        Ok(moves.reserve(&self.owners.read())?)
    }

    /// Moves what is to move, in as many stops as that takes.
    fn move_all(
        &self,
        moves: &mut Moves,
        stops: &mut Stops,
        rib: Option<&StageHandle<RibStage>>,
    ) -> Result<(), NotResized> {
        let shards = self.owners.read().shards.clone();
        let mut said = Instant::now();
        while !moves.left.is_empty() {
            let before = stops.all;
            self.stop(stops, shards.len(), |owners| moves.some(owners))?;
            moves.shrink()?;
            if said.elapsed() > SAY_BLOCKED {
                tell(rib, &shards)?;
                said = Instant::now();
            }
            std::thread::sleep((stops.all - before).max(GAP));
        }
        Ok(())
    }

    /// Those who send to shards forget all but the first `to`, which have everything.
    fn let_go(&self, stops: &mut Stops, to: usize) -> Result<(), NotResized> {
        if self.owners.read().shards.len() > to {
            self.stop(stops, to, |_| Ok(()))?;
        }
        Ok(())
    }

    /// Stops the readers. When they and all shards are at rest, `act` is done, and readers go on by the map that it leaves, with
    /// the first `shards` shards. Where that rest does not come soon, they go on as they were, and it is tried again.
    fn stop(
        &self,
        stops: &mut Stops,
        shards: usize,
        mut act: impl FnMut(&mut Owners) -> Result<(), NoReply>,
    ) -> Result<(), NotResized> {
        let begin = Instant::now();
        loop {
            // Those who ask shards have their answers first: no reader waits for them.
            let mut owners = self.owners.write();
            let paused = all(&self.readers, |reader| reader.start(Reader::pause));
            let restless = paused.and_then(|_| self.come_to_rest(&owners.shards));
            let (done, restless) = match restless {
                Ok(None) => (Some(act(&mut owners)), ""),
                Ok(Some(who)) => (None, who),
                Err(e) => (Some(Err(e)), ""),
            };
            if done.is_some() {
                owners.shards.truncate(shards);
            }
            let stopped = all(&self.readers, |reader| {
                let map = done.is_some().then(|| (owners.map, owners.split.clone()));
                reader.start(move |r| {
                    if let Some((map, split)) = map {
                        r.remap(map, split, shards);
                    }
                    r.resume()
                })
            })?;
            drop(owners);
            let longest = stopped.into_iter().max().unwrap_or_default();
            stops.add(longest, done.is_none());
            if let Some(done) = done {
                return Ok(done?);
            }
            if begin.elapsed() > RESIZE_TIMEOUT {
                return Err(NotResized::Restless(restless));
            }
            std::thread::sleep(longest.max(GAP));
        }
    }

    /// Waits until no route is on its way between a reader and a shard, for [`REST_TIMEOUT`]. Who is not at rest then.
    fn come_to_rest(&self, shards: &[ShardPort]) -> Result<Option<&'static str>, NoReply> {
        let begin = Instant::now();
        loop {
            let restless = self.restless(shards)?;
            if restless.is_none() || begin.elapsed() > REST_TIMEOUT {
                return Ok(restless);
            }
            std::thread::sleep(RESIZE_POLL_INTERVAL);
        }
    }

    /// Who has something of which it is not known yet what becomes of it.
    fn restless(&self, shards: &[ShardPort]) -> Result<Option<&'static str>, NoReply> {
        let readers = all(&self.readers, |reader| reader.start(Reader::at_rest))?;
        if readers.contains(&false) {
            return Ok(Some("a reader"));
        }
        let taken = shards.iter().all(ShardPort::has_taken_all);
        let rest = taken && !all(shards, ShardPort::ask_all_said)?.contains(&false);
        Ok((!rest).then_some("a shard"))
    }
}

/// Asks all of them, and then waits for the answers, so that the slowest alone is waited for.
fn all<S, R>(
    stages: &[S],
    ask: impl FnMut(&S) -> Result<PendingCall<R>, NoReply>,
) -> Result<Vec<R>, NoReply> {
    let answers: Vec<PendingCall<R>> = stages.iter().map(ask).collect::<Result<_, _>>()?;
    answers.into_iter().map(PendingCall::wait).collect()
}

/// The RIB manager tells these shards of next hops from now on.
fn tell(rib: Option<&StageHandle<RibStage>>, shards: &[ShardPort]) -> Result<(), NoReply> {
    let Some(rib) = rib else { return Ok(()) };
    let channels = shards.iter().map(ShardPort::feedback_channel).collect();
    rib.wait(move |rib| rib.set_shards(channels))
}

fn requests(shards: &[ShardPort]) -> Vec<Sender<ShardIn>> {
    shards.iter().map(ShardPort::feedback).collect()
}

/// Looks until it is so.
fn until(who: &'static str, mut so: impl FnMut() -> Result<bool, NoReply>) -> Result<(), NotResized> {
    let begin = Instant::now();
    while !so()? {
        if begin.elapsed() > RESIZE_TIMEOUT {
            return Err(NotResized::Restless(who));
        }
        std::thread::sleep(RESIZE_POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
