//! Lists of routes and payloads, of any length: a page at a time.

use super::printer::{Printed, Printer};
use super::{advertised as sent, escape, fib as selected, query, received as before_policy, route, rpki};
use ribtide_model::{
    AdvertisedPage, FailedPage, FibPage, ReceivedPage, RoutePage, RpkiAspaPage, RpkiTablePage, Sharding,
};

/// Routes of one request: the router has those of one page in memory at a time.
const PAGE: usize = 1000;
/// Routes before import policy of one request: the policy runs for each.
const RECEIVED: usize = 1000;
/// Prefixes of one request about advertised routes: the policy runs for each.
const ADVERTISED: usize = 1000;
/// Payloads of one request.
const PAYLOADS: usize = 2000;

/// BGP routes that fit `only`, a part of a query. `is_one`: a prefix selects one.
pub(super) fn routes(to: &mut Printer, only: &str, is_one: bool) -> Printed {
    let mut table = route::table();
    to.list(("/v1/routes", "routes"), PAGE, only, |to, page: RoutePage| {
        to.rows(&page.routes, &mut table, route::rows)?;
        if let (true, [one]) = (is_one, page.routes.as_slice()) {
            to.text(&route::owner(one))?;
        }
        Ok(page.next)
    })
}

/// The same with everything about each path.
pub(super) fn routes_in_detail(to: &mut Printer, only: &str) -> Printed {
    let mut gap = "";
    to.list(("/v1/routes", "routes"), PAGE, only, |to, page: RoutePage| {
        for route in &page.routes {
            to.text(&format!("{gap}{}", route::detail(route)))?;
            gap = "\n";
        }
        Ok(page.next)
    })
}

/// The routes of a neighbour before import policy that fit `only`: all, or those that the policy rejects.
/// `detail`: every attribute of each.
pub(super) fn received(to: &mut Printer, address: &str, which: &str, only: &str, detail: bool) -> Printed {
    let mut table = before_policy::table();
    let path = format!("/v1/bgp/neighbors/{}/{which}", escape(address));
    let mut gap = "";
    to.list((&path, "routes"), RECEIVED, only, |to, page: ReceivedPage| {
        if !detail {
            to.rows(&page.routes, &mut table, before_policy::row)?;
            return Ok(page.next);
        }
        for route in &page.routes {
            to.text(&format!("{gap}{}", before_policy::detail(route)))?;
            gap = "\n";
        }
        Ok(page.next)
    })
}

/// What a neighbour is sent of what fits `only`. `is_one`: a prefix selects one, which has reasons.
/// `detail`: every attribute of each.
pub(super) fn advertised(to: &mut Printer, address: &str, only: &str, is_one: bool, detail: bool) -> Printed {
    let (mut table, mut gap) = (sent::table(), "");
    let path = format!("/v1/bgp/neighbors/{}/advertised", escape(address));
    let mut first = true;
    to.list((&path, "routes"), ADVERTISED, only, |to, page: AdvertisedPage| {
        if std::mem::take(&mut first) {
            to.text(&sent::progress(&page))?;
        }
        if detail {
            for route in &page.routes {
                to.text(&format!("{gap}{}", sent::detail(route)))?;
                gap = "\n";
            }
            return Ok(page.next);
        }
        to.rows(&page.routes, &mut table, sent::row)?;
        if let (true, [first, ..]) = (is_one, page.routes.as_slice()) {
            to.text(&sent::reasons(first))?;
        }
        Ok(page.next)
    })
}

/// The payloads that fit `only`.
pub(super) fn payloads(to: &mut Printer, only: &str) -> Printed {
    let mut table = rpki::payload_table();
    to.list(("/v1/rpki/table", "payloads"), PAYLOADS, only, |to, page: RpkiTablePage| {
        to.rows(&page.payloads, &mut table, rpki::payload_row)?;
        Ok(page.next)
    })
}

/// The ASPA records that fit `only`.
pub(super) fn aspas(to: &mut Printer, only: &str) -> Printed {
    let mut table = rpki::aspa_table();
    to.list(("/v1/rpki/aspas", "aspas"), PAYLOADS, only, |to, page: RpkiAspaPage| {
        to.rows(&page.aspas, &mut table, rpki::aspa_row)?;
        Ok(page.next)
    })
}

pub(super) fn shard_routes(to: &mut Printer, shard: usize) -> Printed {
    let mut table = route::table_of_shard();
    if !to.json {
        let all: Sharding = to.client.get("/v1/routes/sharding")?;
        let own = all.shards.iter().find(|s| s.summary.shard == shard);
        to.text(&own.map(route::shard).unwrap_or_default())?;
    }
    to.list(
        ("/v1/routes", "routes"),
        PAGE,
        &query(&[("shard", Some(shard.to_string()))]),
        |to, page: RoutePage| {
            to.rows(&page.routes, &mut table, route::rows_of_shard)?;
            Ok(page.next)
        },
    )
}

/// The selected routes that fit `only`, a part of a query.
pub(super) fn fib(to: &mut Printer, only: &str) -> Printed {
    let mut table = selected::fib_table();
    to.list(("/v1/fib", "routes"), PAGE, only, |to, page: FibPage| {
        to.rows(&page.routes, &mut table, selected::fib_row)?;
        Ok(page.next)
    })
}

/// The routes that a dataplane could not install, and that fit `only`.
pub(super) fn failed(to: &mut Printer, only: &str) -> Printed {
    let mut table = selected::failed_table();
    to.list(("/v1/fib/failed", "routes"), PAGE, only, |to, page: FailedPage| {
        to.rows(&page.routes, &mut table, selected::failed_row)?;
        Ok(page.next)
    })
}
