//! Routes that clients of the API announce.
//!
//! Each belongs to an owner, a name that the client chooses, and may expire unless it is announced
//! again. So the routes of a controller that is gone go by themselves. They are in memory alone: a
//! restart of the router forgets them.

use super::Sessions;
use super::origination::READER;
use crate::reader::{Command, Origination};
use ribtide_bgp::fsm::Millis;
use ribtide_bgp::ingest::{IngestSettings, OriginatedAttributes};
use ribtide_bgp::message::by_family;
use ribtide_bgp::peer::LocalSource;
use ribtide_policy::{Actions, AnyCommunity, ChangeCommunities, Med};
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix, BgpFamilies};
use ribtide_wire::bgp::attribute::Origin;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Routes of all owners, at most.
pub const INJECTED_MAX: usize = 100_000;
/// Prefixes of one message to the reader at most.
const BATCH: usize = 4096;

/// A route to announce.
#[derive(Clone, PartialEq, Debug)]
pub struct NewRoute {
    prefix: AnyPrefix,
    attributes: OriginatedAttributes,
    text: InjectedText,
}

impl NewRoute {
    /// A route with what a client said of it.
    ///
    /// # Errors
    /// The field that cannot be used, and why.
    pub fn new(prefix: AnyPrefix, text: InjectedText) -> Result<NewRoute, (String, String)> {
        let bad = |message: String| Err(("next_hop".to_owned(), message));
        match text.next_hop {
            Some(address) if address.is_unspecified() || address.is_multicast() || address.is_loopback() => {
                return bad(format!("{address} is the address of no neighbour"));
            }
            Some(address) if address.to_canonical().is_ipv4() != (prefix.afi() == Afi::Ipv4) => {
                return bad(format!("{address} is of another family than {prefix}"));
            }
            Some(IpAddr::V6(address)) if address.is_unicast_link_local() => {
                return bad(format!("{address} is valid on one link only; write a global address"));
            }
            _ => {}
        }
        let mut add: Vec<AnyCommunity> = Vec::new();
        for (i, community) in text.communities.iter().enumerate() {
            add.push(community.parse().map_err(|e| (format!("communities[{i}]"), e))?);
        }
        let actions = Actions {
            med: text.med.map(Med::Set),
            local_pref: text.local_pref,
            communities: ChangeCommunities { add, ..ChangeCommunities::default() },
            ..Actions::default()
        };
        let plain = OriginatedAttributes::new(Origin::Incomplete);
        let attributes = plain.changed(actions, text.next_hop, AfiSafi::unicast(prefix.afi()));
        Ok(NewRoute { prefix, attributes, text })
    }

    /// Its prefix.
    pub fn prefix(&self) -> AnyPrefix {
        self.prefix
    }
}

/// The injected routes.
#[derive(Default)]
pub(super) struct Injected {
    routes: BTreeMap<AnyPrefix, Entry>,
    expiries: BTreeSet<(Millis, AnyPrefix)>,
}

struct Entry {
    owner: Arc<str>,
    attributes: OriginatedAttributes,
    expires: Option<Millis>,
    text: InjectedText,
}

/// What a client said of a route.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InjectedText {
    /// The next hop; `None`: packets are discarded.
    pub next_hop: Option<IpAddr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// Communities of every kind, as text.
    pub communities: Vec<String>,
}

/// An injected route, for the API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InjectedView {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// The owner.
    pub owner: String,
    /// Milliseconds until it expires.
    pub expires_in: Option<Millis>,
    /// What the client said of it.
    pub text: InjectedText,
}

/// What a request changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InjectedChange {
    /// Routes that are new or have other attributes.
    pub announced: usize,
    /// Routes that only expire later.
    pub refreshed: usize,
    /// Withdrawn routes.
    pub withdrawn: usize,
}

/// Why a request changed nothing. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotInjected {
    /// `bgp.originate.api` is not set.
    Off,
    /// The prefix of the route at this index belongs to another owner.
    Owned(usize, AnyPrefix, String),
    /// There would be too many routes.
    TooMany,
}

impl fmt::Display for NotInjected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotInjected::Off => f.write_str(
                "routes of API clients are not originated; set bgp.originate.api in the configuration, such as api = [\"accept\"]",
            ),
            NotInjected::Owned(index, prefix, owner) => write!(
                f,
                "routes[{index}].prefix: {prefix} belongs to the owner \"{owner}\"; withdraw it there first"
            ),
            NotInjected::TooMany => {
                write!(f, "routes: there would be more than {INJECTED_MAX} routes of API clients; withdraw some first")
            }
        }
    }
}

impl Injected {
    /// When the next route expires.
    pub(super) fn next_expiry(&self) -> Option<Millis> {
        self.expiries.first().map(|(at, _)| *at)
    }

    fn insert(&mut self, prefix: AnyPrefix, entry: Entry) -> Option<Entry> {
        let former = self.remove(prefix);
        self.expiries.extend(entry.expires.map(|at| (at, prefix)));
        self.routes.insert(prefix, entry);
        former
    }

    fn remove(&mut self, prefix: AnyPrefix) -> Option<Entry> {
        let entry = self.routes.remove(&prefix)?;
        if let Some(at) = entry.expires {
            self.expiries.remove(&(at, prefix));
        }
        Some(entry)
    }

    fn of(&self, owner: &str) -> Vec<AnyPrefix> {
        self.routes.iter().filter(|(_, entry)| &*entry.owner == owner).map(|(prefix, _)| *prefix).collect()
    }
}

impl Sessions {
    /// Announces routes of an owner; `replace`: in place of all that it has. Each expires after so many
    /// milliseconds, unless it is announced again. All or nothing.
    ///
    /// # Errors
    /// Why nothing changed.
    pub fn inject(
        &mut self,
        owner: &str,
        expires: Option<Millis>,
        replace: bool,
        routes: Vec<NewRoute>,
    ) -> Result<InjectedChange, NotInjected> {
        if !self.originated.sources.contains_key(&LocalSource::Api) {
            return Err(NotInjected::Off);
        }
        let injected = &self.originated.injected;
        for (index, route) in routes.iter().enumerate() {
            if let Some(entry) = injected.routes.get(&route.prefix).filter(|entry| &*entry.owner != owner) {
                return Err(NotInjected::Owned(index, route.prefix, entry.owner.to_string()));
            }
        }
        let wanted: BTreeSet<AnyPrefix> = routes.iter().map(|route| route.prefix).collect();
        let gone = if replace { injected.of(owner) } else { Vec::new() };
        let gone: Vec<AnyPrefix> = gone.into_iter().filter(|prefix| !wanted.contains(prefix)).collect();
        let fresh = wanted.iter().filter(|prefix| !injected.routes.contains_key(prefix)).count();
        if injected.routes.len() - gone.len() + fresh > INJECTED_MAX {
            return Err(NotInjected::TooMany);
        }
        let (owner, expires): (Arc<str>, _) = (owner.into(), expires.map(|after| self.clock.now() + after));
        let mut change =
            InjectedChange { withdrawn: self.withdraw_injected(&gone), ..InjectedChange::default() };
        let mut announced: BTreeMap<OriginatedAttributes, Vec<AnyPrefix>> = BTreeMap::new();
        for NewRoute { prefix, attributes, text } in routes {
            let entry = Entry { owner: owner.clone(), attributes: attributes.clone(), expires, text };
            let former = self.originated.injected.insert(prefix, entry);
            if former.is_some_and(|former| former.attributes == attributes) {
                change.refreshed += 1;
            } else {
                change.announced += 1;
                announced.entry(attributes).or_default().push(prefix);
            }
        }
        for (attributes, prefixes) in announced {
            self.send_injected(&attributes, &[], &prefixes);
        }
        Ok(change)
    }

    /// Withdraws routes of an owner; `None`: all that it has. Returns how many it had.
    pub fn withdraw_of(&mut self, owner: &str, prefixes: Option<Vec<AnyPrefix>>) -> InjectedChange {
        let of_owner = self.originated.injected.of(owner);
        let gone = match prefixes {
            None => of_owner,
            Some(prefixes) => {
                let of_owner: BTreeSet<AnyPrefix> = of_owner.into_iter().collect();
                prefixes.into_iter().filter(|prefix| of_owner.contains(prefix)).collect()
            }
        };
        InjectedChange { withdrawn: self.withdraw_injected(&gone), ..InjectedChange::default() }
    }

    /// Withdraws the routes that have expired.
    pub(super) fn expire_injected(&mut self) {
        let now = self.clock.now();
        let due = self.originated.injected.expiries.iter().take_while(|(at, _)| *at <= now);
        let due: Vec<AnyPrefix> = due.map(|(_, prefix)| *prefix).collect();
        if !due.is_empty() {
            self.withdraw_injected(&due);
        }
    }

    /// Announces all injected routes again, because the policy or the source is another.
    pub(super) fn inject_again(&mut self) {
        let mut all: BTreeMap<OriginatedAttributes, Vec<AnyPrefix>> = BTreeMap::new();
        for (prefix, entry) in &self.originated.injected.routes {
            all.entry(entry.attributes.clone()).or_default().push(*prefix);
        }
        for (attributes, prefixes) in all {
            self.send_injected(&attributes, &[], &prefixes);
        }
    }

    /// The injected routes of an owner, or of all, in order, after this prefix.
    pub fn injected(&self, owner: Option<&str>, after: Option<AnyPrefix>, limit: usize) -> Vec<InjectedView> {
        use std::ops::Bound::{Excluded, Unbounded};
        let now = self.clock.now();
        let routes = self.originated.injected.routes.range((after.map_or(Unbounded, Excluded), Unbounded));
        let routes = routes.filter(|(_, entry)| owner.is_none_or(|owner| *owner == *entry.owner));
        let view = |(prefix, entry): (&AnyPrefix, &Entry)| InjectedView {
            prefix: *prefix,
            owner: entry.owner.to_string(),
            expires_in: entry.expires.map(|at| at.saturating_sub(now)),
            text: entry.text.clone(),
        };
        routes.take(limit).map(view).collect()
    }

    fn withdraw_injected(&mut self, prefixes: &[AnyPrefix]) -> usize {
        let gone: Vec<AnyPrefix> = prefixes
            .iter()
            .copied()
            .filter(|prefix| self.originated.injected.remove(*prefix).is_some())
            .collect();
        let none = OriginatedAttributes::new(Origin::Incomplete);
        self.send_injected(&none, &gone, &[]);
        gone.len()
    }

    fn send_injected(
        &mut self,
        attributes: &OriginatedAttributes,
        withdrawn: &[AnyPrefix],
        announced: &[AnyPrefix],
    ) {
        let Some(info) = self.originated.sources.get(&LocalSource::Api).cloned() else { return };
        let Some(policy) = self.originated.config.policies.get(&LocalSource::Api).cloned() else { return };
        let withdrawn = withdrawn.chunks(BATCH).map(|prefixes| (by_family(prefixes), BgpFamilies::default()));
        let announced = announced.chunks(BATCH).map(|prefixes| (BgpFamilies::default(), by_family(prefixes)));
        for (withdrawn, announced) in withdrawn.chain(announced) {
            let (info, settings) = (info.clone(), IngestSettings::new(policy.clone()));
            let attributes = attributes.clone();
            let routes = Origination { info, settings, attributes, withdrawn, announced };
            self.outbox.send_to_reader(READER, Command::Originate(Box::new(routes)));
        }
    }
}
