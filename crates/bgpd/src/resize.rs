//! A change of the number of shard threads, while sessions last and routes flow.
//!
//! The caller's thread does it in this order:
//!
//! 1. **New shards start**, owning nothing.
//! 2. **Workers stop dump requests**, and dumps under way are completed, because a dump must
//!    contain every prefix once. New members wait for their tables.
//! 3. **The RIB manager adds the new shards** to its notifications of next hops and of FIB
//!    suppression. Earlier states of next hops are with the former owners and move with the routes.
//! 4. **Readers add the new shards** and inform them of all sessions. From now on all shards get
//!    every session message. Readers read a little at a time, and only while shards and later
//!    stages keep up, so that shards soon become idle. New owners reserve their tables, so that
//!    none grows during a stop.
//! 5. **Parts of logical shards move**, in one stop of the readers after the other. Between two
//!    stops routes flow by the current map. In a stop
//!    - *readers stop reading*, and everything read is in the queues of shards. Bytes wait in the
//!      sockets and then at the peers (TCP back-pressure). The session thread checks for unread
//!      bytes before it declares a peer silent. Timers, keepalives, writes, the RIB and its
//!      dataplanes continue;
//!    - *shards become idle*: they have handled all input of readers and the RIB manager, and their
//!      output is in the queues of workers and the RIB manager. Now no route is between a reader
//!      and a shard. After [`IDLE_TIMEOUT`] readers resume, and the stop is repeated later;
//!    - *parts move* until [`MOVE_TIME`] is over, each of [`PART_PATHS_MAX`] paths or of one
//!      prefix. The new owner adopts a part after all effects of the former owner are sent, while
//!      the former owner extracts the next part. All shards share one queue to each worker and one
//!      to the RIB manager, so messages of the new owner about a prefix follow those of the former
//!      one. Queries of the API wait, and then find every prefix where the map says;
//!    - *readers get the map* and resume, and unused memory is freed.
//! 6. **Workers get the new map** and send the waiting dump requests; the RIB manager gets it, too.
//!    Shards that own nothing finish their work and end.
//!
//! **Nothing waits in a circle**, because no stage waits for the resize. A paused reader or worker
//! only delays input, in sockets or in the list of dump requests. Both still reply, and no stage
//! waits for them that did not before. The resize waits for progress that needs no input: shards
//! empty their queues as workers and the RIB manager accept output (see ARCHITECTURE.md, "Why
//! nothing waits in a circle"). If that takes too long, the resize ends: moved parts stay moved,
//! all shards with routes stay, and the next resize begins with that map.
//!
//! **Next hops.** The first use of a next hop by a new owner, and the last use by the former one,
//! reach the RIB manager in any order. It counts uses, so at worst it removes a next hop for a
//! moment and resolves it again. States of next hops move with the routes; later reports reach
//! every shard from step 3 on.
//!
//! **FIB suppression.** The new owner requests the fence of waiting routes again, after the request
//! of the former owner. The RIB manager repeats the list of blocked prefixes now and then, and at
//! the end, because neither owner applies a report about a prefix that moves.
//!
//! **Sessions that end in a resize.** A reader reports the end of a session to the shards that it
//! knows then, and their number to the session thread. Each of these shards got the start of the
//! session, and reports when it has no route of it, even if the shard ends later.

use super::egress::EgressOut;
use super::owners::Owners;
use super::placement::Placement;
use super::reader::Reader;
use super::shard::{Outputs, ShardBuilder, ShardPort};
use super::stage::{Home, NamedStage};
use super::{Bgp, NotChanged, stage};
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::message::ShardIn;
use ribtide_bgp::shard::{Cut, HashSeed, Split};
use ribtide_config::Threads;
use ribtide_prefix::{ByFamily, LOGICAL_SHARDS, LogicalShard};
use ribtide_ribd::RibStage;
use ribtide_runtime::call::{NoReply, PendingCall, StageHandle};
use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::{Rings, Sender};
use ribtide_runtime::thread::Stop;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// How long dumps, and shards before a stop, may take to become idle before the resize gives up.
const RESIZE_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval.
const RESIZE_POLL_INTERVAL: Duration = Duration::from_micros(200);
/// How long readers stop for shards that do not become idle.
const IDLE_TIMEOUT: Duration = Duration::from_millis(20);
/// How long parts move in a stop; the last may begin just before the end.
const MOVE_TIME: Duration = Duration::from_millis(10);
/// Paths of a part, about a millisecond of work, unless one prefix has more; and paths of one stop.
const PART_PATHS_MAX: usize = 2048;
const STOP_PATHS_MAX: usize = 16 * PART_PATHS_MAX;
/// How long readers read between two stops at least; else as long as they stopped.
const GAP: Duration = Duration::from_millis(2);
/// How often the RIB manager repeats the blocked prefixes.
const SAY_BLOCKED: Duration = Duration::from_secs(1);

/// What the start of a shard or worker needs.
pub(super) struct ShardFactory {
    /// The number of shards that ever existed.
    pub(super) shards_ever: u32,
    pub(super) placement: Placement,
    pub(super) options: DecisionOptions,
    pub(super) seed: HashSeed,
    pub(super) outputs: Outputs,
    pub(super) rings: Rings,
    pub(super) meters: Meters,
    pub(super) stop: Stop,
    /// The queue of the session thread for workers.
    pub(super) writes: Sender<EgressOut>,
    /// The home of shards that the session thread never runs.
    pub(super) threads: Home,
    /// Workers that get new sessions.
    pub(super) update_threads: usize,
    /// Whether a thread waits for workers in excess to lose their members.
    pub(super) is_draining: bool,
}

impl ShardFactory {
    /// The CPU of each thread that writes beside the session thread.
    pub(super) fn writers(&self) -> Vec<Option<Cpus>> {
        (1..self.update_threads).map(|index| self.placement.stage(index)).collect()
    }

    /// These shards, and new ones up to `to`.
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
        let stage = NamedStage::new(format!("shard-{index}"), &self.threads, stage);
        stage::spawn(stage, cpus, self.stop.clone())?;
        Ok(port)
    }
}

/// The result of a resize.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resized {
    /// Shard threads before; 0: the session thread ran the shard.
    pub from: usize,
    /// Shard threads now; 0: the session thread runs the shard.
    pub to: usize,
    /// Logical shards with another owner.
    pub logical_shards: usize,
    /// Prefixes in them.
    pub prefixes: u64,
    /// The stops of readers.
    pub stops: Stops,
    /// The most paths that moved in a stop.
    pub most_paths: usize,
}

/// Why the number of shards has not changed. Displays as a sentence.
#[derive(Debug)]
pub enum NotResized {
    /// Stages cannot move from or to the session thread.
    NotMoved(NotChanged),
    /// The number is out of range.
    Number(usize),
    /// A thread cannot be created.
    Thread(io::Error),
    /// A stage did not become idle.
    NotIdle(&'static str),
    /// A stage does not reply.
    NoReply(NoReply),
}

impl fmt::Display for NotResized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotResized::NotMoved(e) => e.fmt(f),
            NotResized::Number(n) => write!(f, "{n} shard threads cannot be; 1 to 64 can, or \"auto\""),
            NotResized::Thread(e) => write!(
                f,
                "the system gives no thread for another shard: {e}; the number is as before, raise the limit of processes \
                 (ulimit -u)"
            ),
            NotResized::NotIdle(who) => write!(
                f,
                "{who} did not become idle within {} s, so logical shards that have not moved stay where they are, and all \
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
    /// The number of stops.
    pub count: u64,
    /// Stops in which nothing moved, because shards did not become idle.
    pub without_move: u64,
    /// The longest stop of any reader.
    pub longest: Duration,
    /// Stops longer than each of [`Stops::LIMITS`].
    pub over: [u64; Stops::LIMITS.len()],
    /// The total time of stops.
    pub all: Duration,
}

impl Stops {
    /// Limits of the counted lengths.
    pub const LIMITS: [Duration; 3] =
        [Duration::from_millis(10), Duration::from_millis(25), Duration::from_millis(50)];

    /// Notes a stop with its length in the slowest reader.
    fn add(&mut self, longest: Duration, without_move: bool) {
        self.count += 1;
        self.without_move += u64::from(without_move);
        self.longest = self.longest.max(longest);
        self.over.iter_mut().zip(Stops::LIMITS).for_each(|(over, limit)| *over += u64::from(longest > limit));
        self.all += longest;
    }
}

/// The remaining and completed moves.
struct Moves {
    /// Logical shards with their new owners. One that has begun to move is the first.
    left: VecDeque<Split>,
    /// Moved logical shards whose owners still have reserved tables.
    done: Vec<(LogicalShard, [ShardPort; 2])>,
    logical_shards: usize,
    prefixes: u64,
    most_paths: usize,
}

impl Moves {
    /// The moves from the present owners to `to` shards.
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

    /// The former and the new owner of a logical shard.
    fn both(owners: &Owners, split: &Split) -> [ShardPort; 2] {
        let giver = owners.map[usize::from(split.logical)];
        [giver, split.taker].map(|number| owners.shards[usize::from(number)].clone())
    }

    /// Reserves the tables of the next moves.
    fn reserve(&self, owners: &Owners) -> Result<(), NoReply> {
        for split in &self.left {
            let [giver, taker] = Moves::both(owners, split);
            let (begun, left) = (taker.keep_table(split.logical)?, giver.keep_table(split.logical)?);
            taker.reserve_table(split.logical, ByFamily::new(|family| begun[family] + left[family]))?;
        }
        Ok(())
    }

    /// Shrinks the tables of moved logical shards.
    fn shrink(&mut self) -> Result<(), NoReply> {
        let shrink = |(logical, both): (LogicalShard, [ShardPort; 2])| {
            both.iter().try_for_each(|shard| shard.shrink_table(logical))
        };
        self.done.drain(..).try_for_each(shrink)
    }

    /// Ends all moves: shrinks all tables, except those of a logical shard in two parts.
    fn end(&mut self, owners: &Owners) -> Result<(), NoReply> {
        // Nothing was reserved without the new owner.
        let there = |split: &&Split| usize::from(split.taker) < owners.shards.len();
        let whole = self.left.iter().filter(|split| split.cut == Cut::START).filter(there);
        self.done.extend(whole.map(|split| (split.logical, Moves::both(owners, split))));
        self.shrink()
    }

    /// Moves parts. All shards are idle.
    fn some(&mut self, owners: &mut Owners) -> Result<(), NoReply> {
        let (begin, mut moved) = (Instant::now(), 0);
        let mut taken: Option<PendingCall<()>> = None;
        let mut watched: Vec<[ShardPort; 2]> = Vec::new();
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
            if part.is_watched() {
                watched.push([giver.clone(), taker.clone()]);
            }
            // One part at a time, so that the clock is checked often.
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
        taken.map_or(Ok(()), PendingCall::wait)?;
        // The session thread hears first what new owners have more of watched routes.
        watched.iter().try_for_each(|[_, taker]| taker.said())?;
        watched.iter().try_for_each(|[giver, _]| giver.release_watch_news())
    }
}

impl Resized {
    fn of(from: usize, to: usize, moves: &Moves, stops: &Stops) -> Resized {
        let Moves { logical_shards, prefixes, most_paths, .. } = *moves;
        Resized { from, to, logical_shards, prefixes, stops: *stops, most_paths }
    }
}

impl Bgp {
    /// Selects best paths by these options from now on. Shards select every route again, some thousand at a time. Returns
    /// whether they differ from the former ones.
    ///
    /// # Errors
    /// A shard has ended.
    pub fn set_options(&self, options: DecisionOptions) -> Result<bool, NotResized> {
        let mut factory = self.factory();
        if factory.options == options {
            return Ok(false);
        }
        factory.options = options;
        let shards = self.owners.read().shards.clone();
        for shard in &shards {
            shard.set_options(options)?;
        }
        Ok(true)
    }

    /// Spreads the logical shards over so many threads; [`Threads::Off`]: the session thread runs the one shard, and the
    /// readers. `rib`: the RIB manager, if routes are installed. The caller has a [reservation](Bgp::reserve).
    ///
    /// # Errors
    /// Why not all logical shards have the intended owner. Moved parts stay moved.
    pub fn resize(
        &self,
        threads: Threads,
        rib: Option<&StageHandle<RibStage>>,
    ) -> Result<Resized, NotResized> {
        let mut factory = self.factory();
        let to = usize::from(factory.placement.stages(threads));
        if !(1..=usize::from(LOGICAL_SHARDS)).contains(&to) {
            return Err(NotResized::Number(to));
        }
        let (former, mut moves) = {
            let owners = self.owners.read();
            (owners.shards.clone(), Moves::new(&owners, to, &factory.seed))
        };
        let from = former.len();
        let was_off = self.hosted().shards;
        if was_off && threads != Threads::Off {
            self.unhost(&factory, &self.homes.shards).map_err(NotResized::NotMoved)?;
        }
        let mut resized = self.spread(&mut factory, former, &mut moves, to, rib)?;
        // None at all is not one.
        resized.from = if was_off { 0 } else { from };
        if threads == Threads::Off {
            if !was_off {
                self.host_shards().map_err(NotResized::NotMoved)?;
            }
            resized.to = 0;
        }
        Ok(resized)
    }

    /// Moves logical shards until the first `to` shards own all.
    fn spread(
        &self,
        factory: &mut ShardFactory,
        former: Vec<ShardPort>,
        moves: &mut Moves,
        to: usize,
        rib: Option<&StageHandle<RibStage>>,
    ) -> Result<Resized, NotResized> {
        let from = former.len();
        let mut stops = Stops::default();
        if from == to && moves.left.is_empty() {
            return Ok(Resized::of(from, to, moves, &stops));
        }
        // The existing shards, followed by the new ones.
        let all = factory.grow(&former, to).map_err(NotResized::Thread)?;

        let outcome = self
            .prepare(&all[from..], moves, &factory.outputs, rib)
            .and_then(|()| self.move_all(moves, &mut stops, rib))
            .and_then(|()| self.let_go(&mut stops, to));
        moves.end(&self.owners.read())?;
        for reader in &self.readers {
            reader.wait(|r| r.hold_back(None))?;
        }
        for (_, worker) in self.workers.running() {
            worker.remap(requests(&self.owners.read().shards))?;
            worker.resume_dumps()?;
        }
        let in_force = self.owners.read().shards.clone();
        send_owners(rib, &in_force)?;
        all.into_iter().skip(in_force.len()).for_each(ShardPort::retire);
        outcome.map(|()| Resized::of(from, to, moves, &stops))
    }

    /// Waits until no dump is under way and all senders know the new shards.
    fn prepare(
        &self,
        new: &[ShardPort],
        moves: &Moves,
        outputs: &Outputs,
        rib: Option<&StageHandle<RibStage>>,
    ) -> Result<(), NotResized> {
        for (_, worker) in self.workers.running() {
            worker.pause_dumps()?;
        }
        for (_, worker) in self.workers.running() {
            until("a dump for members that joined", || Ok(!worker.call(|w| w.dumps_in_flight())?))?;
        }
        let all = [&self.owners.read().shards, new].concat();
        send_owners(rib, &all)?;
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

    /// Makes all moves, in as many stops as needed.
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
                send_owners(rib, &shards)?;
                said = Instant::now();
            }
            std::thread::sleep((stops.all - before).max(GAP));
        }
        Ok(())
    }

    /// Reduces the shards of all senders to the first `to`, which own everything.
    fn let_go(&self, stops: &mut Stops, to: usize) -> Result<(), NotResized> {
        if self.owners.read().shards.len() > to {
            self.stop(stops, to, |_| Ok(()))?;
        }
        Ok(())
    }

    /// Stops the readers and waits until they and all shards are idle. Then it calls `act`, and
    /// readers resume with the resulting map and the first `shards` shards. If the stages do not
    /// become idle soon, readers resume unchanged, and it is repeated later.
    fn stop(
        &self,
        stops: &mut Stops,
        shards: usize,
        mut act: impl FnMut(&mut Owners) -> Result<(), NoReply>,
    ) -> Result<(), NotResized> {
        let begin = Instant::now();
        loop {
            // The lock waits for queries; no reader waits for them.
            let mut owners = self.owners.write();
            let paused = all(&self.readers, |reader| reader.start(Reader::pause));
            let not_idle = paused.and_then(|_| self.wait_until_idle(&owners.shards));
            let (done, not_idle) = match not_idle {
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
                return Err(NotResized::NotIdle(not_idle));
            }
            std::thread::sleep(longest.max(GAP));
        }
    }

    /// Waits up to [`IDLE_TIMEOUT`] until no route is between a reader and a shard. Returns the
    /// kind of stage that is not idle.
    fn wait_until_idle(&self, shards: &[ShardPort]) -> Result<Option<&'static str>, NoReply> {
        let begin = Instant::now();
        loop {
            let not_idle = self.not_idle(shards)?;
            if not_idle.is_none() || begin.elapsed() > IDLE_TIMEOUT {
                return Ok(not_idle);
            }
            std::thread::sleep(RESIZE_POLL_INTERVAL);
        }
    }

    /// The kind of stage that has unhandled input.
    fn not_idle(&self, shards: &[ShardPort]) -> Result<Option<&'static str>, NoReply> {
        let readers = all(&self.readers, |reader| reader.start(Reader::is_idle))?;
        if readers.contains(&false) {
            return Ok(Some("a reader"));
        }
        let taken = shards.iter().all(ShardPort::has_taken_all);
        let idle = taken && !all(shards, ShardPort::call_all_sent)?.contains(&false);
        Ok((!idle).then_some("a shard"))
    }
}

/// Calls all of them, and then waits for all replies, so the slowest decides the time.
fn all<S, R>(
    stages: &[S],
    call: impl FnMut(&S) -> Result<PendingCall<R>, NoReply>,
) -> Result<Vec<R>, NoReply> {
    let answers: Vec<PendingCall<R>> = stages.iter().map(call).collect::<Result<_, _>>()?;
    answers.into_iter().map(PendingCall::wait).collect()
}

/// Sets the shards that the RIB manager notifies.
fn send_owners(rib: Option<&StageHandle<RibStage>>, shards: &[ShardPort]) -> Result<(), NoReply> {
    let Some(rib) = rib else { return Ok(()) };
    let channels = shards.iter().map(ShardPort::feedback_channel).collect();
    rib.wait(move |rib| rib.set_shards(channels))
}

fn requests(shards: &[ShardPort]) -> Vec<Sender<ShardIn>> {
    shards.iter().map(ShardPort::feedback).collect()
}

/// Polls until the condition holds.
fn until(who: &'static str, mut so: impl FnMut() -> Result<bool, NoReply>) -> Result<(), NotResized> {
    let begin = Instant::now();
    while !so()? {
        if begin.elapsed() > RESIZE_TIMEOUT {
            return Err(NotResized::NotIdle(who));
        }
        std::thread::sleep(RESIZE_POLL_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
