//! `/v1/routes`: what the shards hold.

use super::{Inside, Refusal, target};
use crate::api::model::{Path, Route, RoutePage};
use ribtide_bgp::shard::{PathView, RouteView, Shard};
use ribtide_prefix::{AnyPrefix, Family, LOGICAL_SHARDS, Prefix, V4, V6, logical_shard};
use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::{Communities, ExtendedCommunities, LargeCommunities, Origin, code};
use std::net::IpAddr;

/// A page, one prefix, or the longest match of an address.
pub(crate) fn routes(
    inside: &Inside,
    prefix: Option<&str>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<RoutePage, Refusal> {
    let Some(text) = prefix else { return page(inside, cursor, limit) };
    let found = lookup(inside, target(text)?)?;
    let route = found.ok_or_else(|| Refusal::Missing(format!("BGP has no route for {text}")))?;
    Ok(RoutePage { routes: vec![route], next: None })
}

/// The route of exactly this prefix, or of the longest match of this address.
pub(super) fn lookup(inside: &Inside, what: super::Target) -> Result<Option<Route>, Refusal> {
    let prefix = match what {
        super::Target::Prefix(p) => Some(p),
        super::Target::Address(a) => longest_match(inside, a)?,
    };
    match prefix {
        None => Ok(None),
        Some(AnyPrefix::V4(p)) => exact(inside, p),
        Some(AnyPrefix::V6(p)) => exact(inside, p),
    }
}

fn exact<F: Family>(inside: &Inside, prefix: Prefix<F>) -> Result<Option<Route>, Refusal> {
    let Some(shard) = inside.shard_of(logical_shard(prefix)) else { return Ok(None) };
    Ok(shard.ask(move |s| s.lookup(prefix).map(|view| route(&view)))?)
}

fn longest_match(inside: &Inside, address: IpAddr) -> Result<Option<AnyPrefix>, Refusal> {
    let mut best: Option<AnyPrefix> = None;
    for shard in inside.shards() {
        let found = shard.ask(move |s: &mut Shard| match address {
            IpAddr::V4(_) => s.longest_match::<V4>(address).map(Prefix::any),
            IpAddr::V6(_) => s.longest_match::<V6>(address).map(Prefix::any),
        })?;
        best = best.into_iter().chain(found).max_by_key(|p| p.len());
    }
    Ok(best)
}

/// Where the next page starts: family, logical shard, and the last prefix given of it.
///
/// Pages go shard by shard, so a page costs one logical shard's table and the order is not that of addresses.
struct Cursor {
    ipv6: bool,
    shard: u8,
    after: Option<AnyPrefix>,
}

impl Cursor {
    fn parse(text: &str) -> Option<Cursor> {
        let mut parts = text.splitn(3, '.');
        let ipv6 = match parts.next()? {
            "4" => false,
            "6" => true,
            _ => return None,
        };
        let shard = parts.next()?.parse().ok().filter(|s| *s < LOGICAL_SHARDS)?;
        let after = match parts.next()? {
            "" => None,
            prefix => Some(prefix.parse().ok()?),
        };
        Some(Cursor { ipv6, shard, after })
    }

    fn text(&self) -> String {
        let after = self.after.map(|p| p.to_string()).unwrap_or_default();
        format!("{}.{}.{after}", if self.ipv6 { 6 } else { 4 }, self.shard)
    }

    fn next_shard(self) -> Option<Cursor> {
        match (self.shard + 1 < LOGICAL_SHARDS, self.ipv6) {
            (true, _) => Some(Cursor { shard: self.shard + 1, after: None, ..self }),
            (false, false) => Some(Cursor { ipv6: true, shard: 0, after: None }),
            (false, true) => None,
        }
    }
}

fn page(inside: &Inside, cursor: Option<&str>, limit: usize) -> Result<RoutePage, Refusal> {
    let mut at = match cursor {
        None => Some(Cursor { ipv6: false, shard: 0, after: None }),
        Some(text) => Some(Cursor::parse(text).ok_or_else(|| {
            Refusal::Bad(format!(
                "\"{text}\" is no cursor; give back the `next` of the page before, or none to start"
            ))
        })?),
    };
    let mut routes = Vec::new();
    while let Some(cursor) = at.take() {
        let room = limit - routes.len();
        if room == 0 {
            return Ok(RoutePage { routes, next: Some(cursor.text()) });
        }
        let found = match cursor.after {
            _ if !cursor.ipv6 => shard_page::<V4>(inside, &cursor, room)?,
            _ => shard_page::<V6>(inside, &cursor, room)?,
        };
        at = if found.len() == room {
            let after = found.last().and_then(|r| r.prefix.parse().ok());
            Some(Cursor { after, ..cursor })
        } else {
            cursor.next_shard()
        };
        routes.extend(found);
    }
    Ok(RoutePage { routes, next: None })
}

fn shard_page<F: Family>(inside: &Inside, cursor: &Cursor, limit: usize) -> Result<Vec<Route>, Refusal> {
    let logical = cursor.shard;
    let after = cursor.after.and_then(|p| Prefix::<F>::from_addr(p.addr(), p.len()));
    let Some(shard) = inside.shard_of(logical) else { return Ok(Vec::new()) };
    // The text is made on this thread, not on the shard's.
    let views = shard.ask(move |s| s.page::<F>(logical, after, limit))?;
    Ok(views.iter().map(route).collect())
}

fn route<F: Family>(view: &RouteView<F>) -> Route {
    Route { prefix: view.prefix.to_string(), paths: view.paths.iter().map(path).collect() }
}

fn path(view: &PathView) -> Path {
    let attrs = &view.attrs;
    let value = |code| attrs.value(code).unwrap_or_default();
    Path {
        neighbor: view.peer.address,
        best: view.best,
        lost: view.lost.map(|reason| reason.to_string()),
        next_hop: attrs.next_hop().addr(),
        as_path: AsPath::new(value(code::AS_PATH)).to_string(),
        origin: match attrs.origin() {
            Origin::Igp => "igp",
            Origin::Egp => "egp",
            Origin::Incomplete => "incomplete",
        }
        .into(),
        local_pref: attrs.local_pref(),
        med: attrs.med(),
        communities: Communities::new(value(code::COMMUNITIES)).iter().map(|c| c.to_string()).collect(),
        large_communities: LargeCommunities::new(value(code::LARGE_COMMUNITIES))
            .iter()
            .map(|c| c.to_string())
            .collect(),
        extended_communities: ExtendedCommunities::new(value(code::EXTENDED_COMMUNITIES))
            .iter()
            .map(|c| c.to_string())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_and_end() {
        for text in ["4.0.", "4.17.10.0.0.0/8", "6.63.2001:db8::/32"] {
            assert_eq!(Cursor::parse(text).unwrap().text(), text);
        }
        for text in ["", "5.0.", "4.64.", "4.0.banana", "4"] {
            assert!(Cursor::parse(text).is_none(), "{text}");
        }
        assert_eq!(Cursor::parse("4.63.10.0.0.0/8").unwrap().next_shard().unwrap().text(), "6.0.");
        assert!(Cursor::parse("6.63.").unwrap().next_shard().is_none());
    }
}
