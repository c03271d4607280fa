//! Routing policy: acceptance and changes of routes at import and export.
//!
//! The terms are OpenConfig's. *Defined sets* ([`PrefixSet`], [`CommunitySet`], [`AsPathSet`]) have
//! names. A [`Definition`] is a list of [`Statement`]s, each with conditions, actions and a result.
//! A peer's list of definitions compiles to a [`Policy`]. The configuration reads files and
//! resolves names; this crate parses the texts of values.
//!
//! A policy is evaluated millions of times for few attribute sets. So a [`Memo`] stores the part
//! that the attributes decide, and a prefix costs only look-ups in prefix sets.
//!
//! Two policies are built in, `accept` and `reject`. An external peer without policy accepts and
//! sends nothing (RFC 8212); an internal one accepts and sends everything.
#![forbid(unsafe_code)]

mod as_path;
mod community;
mod filter;
mod graceful_shutdown;
mod memo;
mod numbers;
mod policy;
mod prefix_set;
mod regex;
mod route;
mod statement;

pub use as_path::AsPathSet;
pub use community::{AnyCommunity, CommunityPattern, CommunitySet};
pub use filter::{AttributeFilter, PrefixFilter};
pub use graceful_shutdown::GracefulShutdown;
pub use memo::Memo;
pub use numbers::{NumberSet, Numbers};
pub use policy::{Policy, PolicyResult};
pub use prefix_set::{PrefixRange, PrefixSet};
pub use regex::Regex;
pub use route::{Changes, DEFAULT_LOCAL_PREF, NewNextHop, Route, RouteType, Source, Validation};
pub use statement::{
    Actions, ChangeCommunities, Condition, Definition, Match, Med, Named, PathCondition, PrefixCondition,
    Prepend, PresenceCondition, SetNextHop, Sources, Statement, Then, ValidityCondition,
};
