//! `ribtide route`: routes that the router originates for a client of its API.

use crate::client::Client;
use crate::show::Output;
use crate::text::{Table, count};
use clap::{Args, Subcommand};
use ribtide_model::{AddRoute, AddRoutes, OwnedRoutePage, RoutesChanged, WithdrawRoutes};
use std::net::IpAddr;

/// Routes of one request.
const PAGE: usize = 1000;
/// The owner of routes of the command line.
const OWNER: &str = "cli";

/// What to do with routes of API clients.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Route {
    /// Originate a route, or change it
    Add(Add),
    /// Withdraw routes
    Delete {
        /// The prefixes
        #[arg(required_unless_present = "all")]
        prefixes: Vec<String>,
        /// All routes of the owner
        #[arg(long, conflicts_with = "prefixes")]
        all: bool,
        /// The owner of the routes
        #[arg(long, default_value = OWNER, value_name = "NAME")]
        owner: String,
    },
    /// List the routes of API clients, with their owners
    List {
        /// Only routes of this owner
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
    },
}

/// A route.
#[derive(Clone, Debug, Args)]
pub(crate) struct Add {
    /// The prefix
    prefix: String,
    /// The next hop
    #[arg(required_unless_present = "discard")]
    next_hop: Option<IpAddr>,
    /// Discard packets in place of a next hop
    #[arg(long, conflicts_with = "next_hop")]
    discard: bool,
    /// MULTI_EXIT_DISC
    #[arg(long, value_name = "N")]
    med: Option<u32>,
    /// LOCAL_PREF
    #[arg(long, value_name = "N")]
    local_pref: Option<u32>,
    /// A community, such as 65001:100; may be given several times
    #[arg(long = "community", value_name = "COMMUNITY")]
    communities: Vec<String>,
    /// The owner of the route
    #[arg(long, default_value = OWNER, value_name = "NAME")]
    owner: String,
    /// Withdraw it after so many seconds, unless it is added again
    #[arg(long, value_name = "SECONDS")]
    expires: Option<u32>,
}

/// Runs `ribtide route`.
pub(crate) fn run(what: &Route, output: &Output) -> Result<(), String> {
    let client = Client::of(output)?;
    let reply: RoutesChanged = match what {
        Route::List { owner } => return list(&client, owner.as_deref(), output),
        Route::Add(add) => {
            let Add { prefix, next_hop, discard, med, local_pref, communities, owner, expires } = add.clone();
            let route = AddRoute { prefix, next_hop, discard, med, local_pref, communities };
            let request = AddRoutes { owner, expires, replace: false, routes: vec![route] };
            client.post("/v1/bgp/originated", &request)?
        }
        Route::Delete { prefixes, all, owner } => {
            let request = WithdrawRoutes { owner: owner.clone(), prefixes: prefixes.clone(), all: *all };
            client.post("/v1/bgp/originated/withdraw", &request)?
        }
    };
    output.print(&reply, |reply| format!("{reply}\n"))
}

fn list(client: &Client, owner: Option<&str>, output: &Output) -> Result<(), String> {
    let mut routes = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let owner = owner.map_or(String::new(), |owner| format!("&owner={owner}"));
        let from = cursor.as_ref().map_or(String::new(), |cursor| format!("&cursor={cursor}"));
        let page: OwnedRoutePage = client.get(&format!("/v1/bgp/originated?limit={PAGE}{owner}{from}"))?;
        routes.extend(page.routes);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    output.print(&routes, |routes| {
        let mut table =
            Table::new(&["Prefix", "Next hop", "Owner", ">Expires s", ">MED", ">LocPrf", "Communities"]);
        let option = |n: Option<u32>| n.map_or("-".into(), |n| n.to_string());
        for owned in routes {
            let route = &owned.route;
            table.row([
                route.prefix.clone(),
                route.next_hop.map_or("discard".into(), |hop| hop.to_string()),
                owned.owner.clone(),
                owned.expires.map_or("never".into(), |s| s.to_string()),
                option(route.med),
                option(route.local_pref),
                route.communities.join(" "),
            ]);
        }
        format!("{}{}\n", table.render(), count(routes.len() as u64, "route"))
    })
}
