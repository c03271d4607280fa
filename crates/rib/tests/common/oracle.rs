//! The expected FIB, worked out from scratch without any of the RIB's machinery: linear searches and recursion.

use super::*;

/// What sources and interfaces said last.
#[derive(Default, Clone)]
pub struct Oracle {
    pub config: RibConfig,
    /// By prefix and source; static ones by distance too.
    pub routes: BTreeMap<(AnyPrefix, Source, u8), RouteSet>,
    pub interfaces: BTreeMap<IfIndex, InterfaceEvent>,
    /// What packets do not reach.
    pub unusable: BTreeSet<(IpAddr, Option<IfIndex>)>,
}

/// The chain is too long.
#[derive(Clone, Debug)]
pub struct Deep;

/// A question: gateway, interface, whether recursion is allowed, the route that asks, levels left.
type Question = (IpAddr, Option<IfIndex>, bool, Option<AnyPrefix>, u8);
/// Hops, whether packets are discarded, and the cost.
type Way = (Vec<FibHop>, bool, u32);
type Found = Result<Option<Way>, Deep>;
type Memo = BTreeMap<Question, Found>;

/// A way out that has no weight of its own.
fn own(hop: FibHop) -> FibHop {
    FibHop { weight: 0, ..hop }
}

impl Oracle {
    pub fn announce(&mut self, prefix: AnyPrefix, set: RouteSet) {
        let source = set.protocol.source();
        let distance = if source == Source::Static { set.distance } else { 0 };
        self.routes.insert((prefix, source, distance), set);
    }

    fn connected(&self) -> BTreeMap<AnyPrefix, BTreeSet<IfIndex>> {
        let mut all: BTreeMap<AnyPrefix, BTreeSet<IfIndex>> = BTreeMap::new();
        for state in self.interfaces.values().filter(|s| s.up) {
            for (address, len) in &state.addresses {
                all.entry(AnyPrefix::from_addr(*address, *len).unwrap()).or_default().insert(state.index);
                all.entry(AnyPrefix::host(*address)).or_default().insert(state.index);
            }
        }
        all
    }

    /// Candidates of every prefix, best first.
    fn candidates(&self) -> BTreeMap<AnyPrefix, Vec<RouteSet>> {
        let mut all: BTreeMap<AnyPrefix, Vec<RouteSet>> = BTreeMap::new();
        for ((prefix, ..), set) in &self.routes {
            all.entry(*prefix).or_default().push(set.clone());
        }
        for (prefix, interfaces) in self.connected() {
            let hops: Vec<ReceivedHop> = interfaces.into_iter().map(dev).collect();
            let connected = RouteSet { allow_recursion: false, ..set(Protocol::Connected, &hops) };
            all.entry(prefix).or_default().push(connected);
        }
        for list in all.values_mut() {
            list.retain(|c| c.distance != 255);
            list.sort_by_key(|c| (c.distance, c.metric, c.protocol));
        }
        all
    }

    fn up(&self, interface: Option<IfIndex>) -> Option<IfIndex> {
        interface.filter(|i| self.interfaces.get(i).is_some_and(|s| s.up))
    }

    /// The FIB that should be.
    pub fn fib(&self) -> BTreeMap<AnyPrefix, (Protocol, FibGroup)> {
        let table = self.candidates();
        let mut memo = Memo::new();
        let mut fib = BTreeMap::new();
        for (prefix, candidates) in &table {
            for candidate in candidates {
                if let Ok(Some(group)) = self.group(&table, *prefix, candidate, 17, true, &mut memo) {
                    fib.insert(*prefix, (candidate.protocol, group));
                    break;
                }
            }
        }
        fib
    }

    /// What a tracked next hop should be told.
    pub fn tracked(&self, address: IpAddr) -> NextHopState {
        match self.gateway(&self.candidates(), (address, None, true, None, 16), &mut Memo::new()) {
            Ok(Some((_, _, cost))) => NextHopState::Reachable { cost },
            _ => NextHopState::Unreachable,
        }
    }

    /// What a candidate leads to. `lenient`: a hop without end is a hop that leads nowhere; else it is an error.
    fn group(
        &self,
        table: &BTreeMap<AnyPrefix, Vec<RouteSet>>,
        owner: AnyPrefix,
        set: &RouteSet,
        budget: u8,
        lenient: bool,
        memo: &mut Memo,
    ) -> Result<Option<FibGroup>, Deep> {
        let first = match &set.next_hops {
            NextHops::Blackhole => Some(FibGroup::Blackhole),
            NextHops::Via(hops) => self.via(table, owner, set, hops, budget, lenient, memo)?,
        };
        let of_backup = RouteSet { allow_recursion: set.backup_recursion, ..set.clone() };
        let backup = self.via(table, owner, &of_backup, &set.backup, budget, lenient, memo)?;
        let holds = match self.holds(table, owner, set.track, budget, memo) {
            Err(Deep) if lenient => false,
            other => other?,
        };
        Ok(first.or(backup).filter(|_| holds))
    }

    /// Whether what is tracked holds.
    fn holds(
        &self,
        table: &BTreeMap<AnyPrefix, Vec<RouteSet>>,
        owner: AnyPrefix,
        track: Option<Track>,
        budget: u8,
        memo: &mut Memo,
    ) -> Result<bool, Deep> {
        match track {
            None => Ok(true),
            Some(Track::Interface(interface)) => Ok(self.up(Some(interface)).is_some()),
            Some(Track::Address(address)) => {
                let exclude = Some(owner).filter(|p| p.contains(address));
                Ok(self.gateway(table, (address, None, true, exclude, budget - 1), memo)?.is_some())
            }
            Some(Track::Prefix(prefix)) => {
                // No interface has such a number: not a question that a gateway asks.
                let mark = Some(u32::MAX - u32::from(prefix.len()));
                let question = (prefix.addr(), mark, true, Some(owner), budget - 1);
                if let Some(found) = memo.get(&question) {
                    return found.clone().map(|found| found.is_some());
                }
                let found = self.exists(table, owner, prefix, budget - 1, memo);
                let there = found.clone().map(|there| there.then(|| (Vec::new(), false, 0)));
                memo.insert(question, there);
                found
            }
        }
    }

    /// Whether a route for `prefix` that is not `owner`'s own leads somewhere.
    fn exists(
        &self,
        table: &BTreeMap<AnyPrefix, Vec<RouteSet>>,
        owner: AnyPrefix,
        prefix: AnyPrefix,
        budget: u8,
        memo: &mut Memo,
    ) -> Result<bool, Deep> {
        if budget == 0 {
            return Err(Deep);
        }
        for candidate in table.get(&prefix).into_iter().flatten().filter(|_| prefix != owner) {
            if candidate.protocol == Protocol::Connected
                || self.group(table, prefix, candidate, budget, false, memo)?.is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What is left of what was found for a gateway.
    fn reached(&self, gateway: IpAddr, found: Option<Way>) -> Option<Way> {
        let (mut hops, hole, cost) = found.filter(|_| !self.unusable.contains(&(gateway, None)))?;
        let lost = |h: &FibHop| self.unusable.contains(&(gateway, Some(h.interface)));
        hops.retain(|h| !(h.gateway == Some(gateway) && lost(h)));
        (hole || !hops.is_empty()).then_some((hops, hole, cost))
    }

    /// What hops lead to.
    #[allow(clippy::too_many_arguments, reason = "a question and what it is asked of")]
    fn via(
        &self,
        table: &BTreeMap<AnyPrefix, Vec<RouteSet>>,
        owner: AnyPrefix,
        set: &RouteSet,
        hops: &[ReceivedHop],
        budget: u8,
        lenient: bool,
        memo: &mut Memo,
    ) -> Result<Option<FibGroup>, Deep> {
        let mut hops = hops.to_vec();
        hops.sort_by_key(|h| (h.gateway, h.interface, h.onlink));
        hops.dedup_by_key(|h| (h.gateway, h.interface, h.onlink));
        let mut all: Vec<FibHop> = Vec::new();
        let mut blackhole = false;
        for hop in hops {
            let found = match hop.gateway {
                None => self.up(hop.interface).map(|i| (vec![own(link(i))], false, 0)),
                Some(address) if hop.onlink => {
                    let there = self.up(hop.interface).map(|interface| {
                        (
                            vec![FibHop { gateway: Some(address), interface, weight: 0, onlink: true }],
                            false,
                            0,
                        )
                    });
                    self.reached(address, there)
                }
                Some(address) => {
                    let exclude = Some(owner).filter(|p| set.allow_recursion && p.contains(address));
                    let question = (address, hop.interface, set.allow_recursion, exclude, budget - 1);
                    match self.gateway(table, question, memo) {
                        Err(Deep) if lenient => None,
                        other => other?,
                    }
                }
            };
            if let Some((hops, hole, _)) = found {
                blackhole |= hole;
                // Weights stay those of the route underneath where it has some and the configuration says so.
                let weight = |h: &FibHop| match h.weight {
                    0 => hop.weight.max(1),
                    _ if !self.config.underlay_weights => hop.weight.max(1),
                    underlay => underlay,
                };
                all.extend(hops.into_iter().map(|h| FibHop { weight: weight(&h), ..h }));
            }
        }
        all.sort_by_key(|h| (h.gateway, h.interface));
        all.dedup_by_key(|h| (h.gateway, h.interface));
        all.truncate(usize::from(self.config.max_ecmp));
        Ok(if all.is_empty() { blackhole.then_some(FibGroup::Blackhole) } else { Some(FibGroup::Hops(all)) })
    }

    fn gateway(
        &self,
        table: &BTreeMap<AnyPrefix, Vec<RouteSet>>,
        question: Question,
        memo: &mut Memo,
    ) -> Found {
        if let Some(found) = memo.get(&question) {
            return found.clone();
        }
        let found = self.ask(table, question, memo).map(|found| self.reached(question.0, found));
        memo.insert(question, found.clone());
        found
    }

    fn ask(&self, table: &BTreeMap<AnyPrefix, Vec<RouteSet>>, question: Question, memo: &mut Memo) -> Found {
        let (address, pinned, recursion, exclude, budget) = question;
        if budget == 0 {
            return Err(Deep);
        }
        let mut covering: Vec<_> = table.iter().filter(|(p, _)| p.contains(address)).collect();
        covering.sort_by_key(|(p, _)| std::cmp::Reverse(p.len()));
        for (prefix, candidates) in covering {
            if prefix.len() == 0 && !self.config.resolve_via_default {
                break;
            }
            for candidate in candidates {
                let NextHops::Via(hops) = &candidate.next_hops else {
                    if recursion && exclude != Some(*prefix) {
                        if self.group(table, *prefix, candidate, budget, false, memo)?.is_none() {
                            continue;
                        }
                        if pinned.is_none() {
                            return Ok(Some((Vec::new(), true, candidate.metric)));
                        }
                        break;
                    }
                    continue;
                };
                if candidate.protocol == Protocol::Connected {
                    if *prefix == AnyPrefix::host(address) {
                        return Ok(None);
                    }
                    let interfaces = hops.iter().filter_map(|h| h.interface);
                    match interfaces.filter(|i| pinned.is_none_or(|p| p == *i)).min() {
                        Some(interface) => {
                            let hop = FibHop { gateway: Some(address), interface, weight: 0, onlink: false };
                            return Ok(Some((vec![hop], false, 0)));
                        }
                        None => break,
                    }
                }
                if !recursion || exclude == Some(*prefix) {
                    continue;
                }
                match self.group(table, *prefix, candidate, budget, false, memo)? {
                    None => continue,
                    Some(FibGroup::Blackhole) if pinned.is_none() => {
                        return Ok(Some((Vec::new(), true, candidate.metric)));
                    }
                    Some(FibGroup::Hops(hops))
                        if hops.iter().any(|h| pinned.is_none_or(|p| p == h.interface)) =>
                    {
                        let hops = hops.into_iter().filter(|h| pinned.is_none_or(|p| p == h.interface));
                        let hops = hops.map(|h| match h.gateway {
                            Some(_) => h,
                            None => FibHop { gateway: Some(address), onlink: true, ..h },
                        });
                        return Ok(Some((hops.collect(), false, candidate.metric)));
                    }
                    Some(_) => break,
                }
            }
        }
        Ok(None)
    }
}
