//! What is measured: the first load of the routes, or a change of routes that are there.

use super::load::Load;
use super::run::query_switch;
use clap::ValueEnum;
use serde_json::Value;
use std::io;
use std::path::Path;

/// What is measured. All but the first begin with the routes in the chip and the databases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// The routes come for the first time
    #[default]
    Load,
    /// All routes go
    Withdraw,
    /// Each route comes again, through another neighbour
    Replace,
    /// Each route goes and comes again, five times, through two neighbours in turns: changes of a route
    /// may coalesce
    Churn,
    /// Each route through one neighbour comes again, through four
    Ecmp,
    /// The routes name a next-hop object, which changes its neighbour
    NextHop,
}

/// Rounds of churn.
const CHURN_ROUNDS: u8 = 5;
/// The next hops after [`Work::Ecmp`].
const ECMP: u8 = 4;
/// Routes that are looked at while they change.
const SAMPLES: u32 = 200;
/// Prefixes of a query of the switch, whose line has at most 64 KiB.
const PREFIXES_MAX: usize = 2000;

impl Work {
    /// The neighbours that it needs.
    pub(super) fn neighbors(self) -> u8 {
        match self {
            Work::Load | Work::Withdraw => 1,
            Work::Replace | Work::Churn | Work::NextHop => 2,
            Work::Ecmp => ECMP,
        }
    }

    /// The frames before the clock starts; `None`: the clock starts with the routes.
    pub(super) fn before(self, load: Load, ifindex: u32) -> Option<Vec<u8>> {
        match self {
            Work::Load => None,
            Work::Withdraw => Some(load.frames(ifindex, false)),
            Work::Replace | Work::Churn | Work::Ecmp => Some(load.frames_through(&[0], ifindex)),
            Work::NextHop => Some(load.frames_of_object(0, ifindex)),
        }
    }

    /// The changes of each route.
    pub(super) fn changes(self) -> u32 {
        if self == Work::Churn { 2 * u32::from(CHURN_ROUNDS) } else { 1 }
    }

    /// The measured frames.
    pub(super) fn frames(self, load: Load, ifindex: u32, objects: bool) -> Vec<u8> {
        match self {
            Work::Load => load.frames(ifindex, objects),
            Work::Withdraw => load.deletes(),
            Work::Replace => load.frames_through(&[1], ifindex),
            Work::Ecmp => load.frames_through(&[0, 1, 2, 3], ifindex),
            // The routes of an object do not come again.
            Work::NextHop => load.object(1, ifindex),
            Work::Churn => {
                let mut frames = Vec::new();
                for round in 1..=CHURN_ROUNDS {
                    frames.append(&mut load.deletes());
                    frames.append(&mut load.frames_through(&[round % 2], ifindex));
                }
                frames
            }
        }
    }

    /// The neighbours of each route in the end, as numbers; none: no route is left.
    fn result(self) -> &'static [u8] {
        match self {
            Work::Load => &[0],
            Work::Withdraw => &[],
            Work::Replace | Work::NextHop | Work::Churn => &[1],
            Work::Ecmp => &[0, 1, 2, 3],
        }
    }

    /// Whether some routes are as they must be in the end.
    pub(super) fn seems_done(self, load: Load, socket: &Path) -> bool {
        let step = (load.total() / SAMPLES).max(1) as usize;
        self.is_done(&load.prefixes().step_by(step).chain(load.prefixes().last()).collect::<Vec<_>>(), socket)
            .unwrap_or(false)
    }

    /// Whether every route is as it must be in the end.
    pub(super) fn is_all_done(self, load: Load, socket: &Path) -> io::Result<bool> {
        let all: Vec<String> = load.prefixes().collect();
        for some in all.chunks(PREFIXES_MAX) {
            if !self.is_done(some, socket)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_done(self, prefixes: &[String], socket: &Path) -> io::Result<bool> {
        let mut wanted: Vec<String> = Vec::new();
        let router = router(socket)?;
        let answers = query_switch(socket, &format!("routes {router} {}", prefixes.join(" ")))?;
        let Some(answers) = answers.as_array().filter(|answers| answers.len() == prefixes.len()) else {
            return Err(io::Error::other(format!("the switch replies {answers} to a query of routes")));
        };
        Ok(prefixes.iter().zip(answers).all(|(prefix, answer)| {
            wanted.clear();
            let family = if prefix.contains(':') { super::load::gateway_v6 } else { super::load::gateway_v4 };
            wanted.extend(self.result().iter().map(|n| family(*n).to_string()));
            let hops = answer.get("hops").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let mut found: Vec<&str> =
                hops.iter().filter_map(|hop| hop.get("gateway").and_then(Value::as_str)).collect();
            found.sort_unstable();
            wanted.sort_unstable();
            found == wanted
        }))
    }
}

/// The default virtual router, as the switch calls it.
fn router(socket: &Path) -> io::Result<String> {
    let walk = query_switch(socket, "walk 1")?;
    let entry = walk.get("entries").and_then(|entries| entries.get(0)).and_then(Value::as_str);
    let router = entry.and_then(|entry| entry.split_once('|')).map(|(router, _)| router.to_owned());
    router.ok_or_else(|| io::Error::other(format!("the switch has no route: {walk}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::fpm;
    use ribtide_wire::netlink::{Content, NextHops};

    const LOAD: Load = Load { ipv4: 3, ipv6: 2, next_hops: 1 };

    /// What a reader of the frames knows in the end: each route's number of next hops.
    fn replay(frames: &[&[u8]]) -> (Vec<(String, usize)>, usize) {
        let (mut routes, mut messages) = (std::collections::BTreeMap::new(), 0);
        for bytes in frames {
            let mut at = 0;
            while let Some(frame) = fpm::frame(&bytes[at..]).unwrap() {
                for message in frame.messages() {
                    messages += 1;
                    match message.unwrap() {
                        Content::NewRoute(route) => {
                            let hops = match route.next_hops {
                                NextHops::Inline(hops) => hops.count(),
                                NextHops::Id(_) => 1,
                                NextHops::None => 0,
                            };
                            routes.insert(route.prefix.to_string(), hops);
                        }
                        Content::DelRoute(route) => drop(routes.remove(&route.prefix.to_string())),
                        _ => {}
                    }
                }
                at += frame.len;
            }
        }
        (routes.into_iter().collect(), messages)
    }

    #[test]
    fn each_work_leaves_the_routes_that_it_waits_for() {
        for work in Work::value_variants() {
            let before = work.before(LOAD, 7).unwrap_or_default();
            let frames = work.frames(LOAD, 7, false);
            let (routes, _) = replay(&[&before, &frames]);
            let left = if work.result().is_empty() { 0 } else { 5 };
            assert_eq!(routes.len(), left, "{work:?}");
            assert!(routes.iter().all(|(_, hops)| *hops == work.result().len()), "{work:?}: {routes:?}");
            assert!(work.result().iter().all(|n| *n < work.neighbors()));
        }
        let names: Vec<String> = LOAD.prefixes().collect();
        assert_eq!(names, ["11.0.0.0/24", "11.0.1.0/24", "11.0.2.0/24", "2a00::/48", "2a00:0:1::/48"]);
        assert_eq!(
            replay(&[&Work::Churn.frames(LOAD, 7, false)]).1,
            50,
            "each of ten changes of five routes"
        );
    }
}
