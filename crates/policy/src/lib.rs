//! Routing policy: which routes a peer's routes become, and which of ours it gets.
//!
//! The words are OpenConfig's. *Defined sets* ([`PrefixSet`], [`CommunitySet`], [`AsPathSet`]) have names; a
//! [`Definition`] is a list of [`Statement`]s, each with conditions, actions and what follows; a peer's list of
//! definitions compiles to a [`Policy`]. Reading a file and finding names in it is the configuration's work: here are
//! the forms of the texts and what they mean.
//!
//! A policy is asked millions of times for few attribute sets. So its evaluation is split: a [`Memo`] keeps, for one
//! attribute set, what was decided by the attributes, and a prefix costs look-ups in prefix sets where it matters at all.
//!
//! Two policies are built in, `accept` and `reject`. An external peer without policy accepts and sends nothing
//! (RFC 8212); an internal one accepts and sends all.
#![forbid(unsafe_code)]

mod as_path;
mod community;
mod memo;
mod numbers;
mod policy;
mod prefix_set;
mod regex;
mod route;
mod statement;

pub use as_path::AsPathSet;
pub use community::{AnyCommunity, CommunityPattern, CommunitySet};
pub use memo::Memo;
pub use numbers::{NumberSet, Numbers};
pub use policy::{Policy, PolicyResult};
pub use prefix_set::{PrefixRange, PrefixSet};
pub use regex::Regex;
pub use route::{Changes, DEFAULT_LOCAL_PREF, NewNextHop, Route, Source};
pub use statement::{
    Actions, ChangeCommunities, Condition, Definition, Match, Med, Named, PrefixCondition, Prepend,
    SetNextHop, Sources, Statement, Then,
};
