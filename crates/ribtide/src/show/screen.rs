//! Text of the same commands for one screen, which reads again and again: at most a page of each list.

use super::{bgp, fib, nexthop, performance, query, route, threads};
use crate::client::Client;
use ribtide_model::{
    Explain, Groups, NeighborPage, NextHopGroupPage, Performance, Pipeline, Sharding, Threads,
};

/// Neighbours on a screen at most.
const NEIGHBORS: usize = 256;
/// Next-hop groups on a screen at most.
const GROUPS: usize = 64;

/// What a screen shows in detail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Detail {
    /// `show bgp neighbor`
    Neighbors,
    /// `show bgp group`
    Groups,
    /// `show route rib-sharding`
    Shards,
    /// `show nexthop-group`
    NextHops,
    /// The queues of `show pipeline`
    Queues,
    /// `show threads`
    Threads,
    /// `show performance`
    Performance,
    /// `explain` of this prefix
    Explain(String),
}

impl Detail {
    /// The text, read now.
    ///
    /// # Errors
    /// The sentence of the router, or why it did not answer.
    pub(crate) fn text(&self, client: &Client) -> Result<String, String> {
        match self {
            Detail::Neighbors => {
                let page: NeighborPage = client.get(&format!("/v1/bgp/neighbors?limit={NEIGHBORS}"))?;
                let mut table = bgp::neighbor_table();
                page.neighbors.iter().for_each(|n| bgp::neighbor_row(&mut table, n));
                Ok(with_rest(table.render(), page.next.is_some(), "show bgp neighbor"))
            }
            Detail::Groups => Ok(bgp::groups(&client.get::<Groups>("/v1/bgp/groups")?.groups)),
            Detail::Shards => Ok(route::sharding(&client.get::<Sharding>("/v1/routes/sharding")?)),
            Detail::NextHops => {
                let page: NextHopGroupPage = client.get(&format!("/v1/nexthop-groups?limit={GROUPS}"))?;
                let mut table = nexthop::table();
                page.groups.iter().for_each(|g| nexthop::row(&mut table, &page.cache, g));
                let text = format!("{}\n{}", nexthop::cache(&page.cache), table.render());
                Ok(with_rest(text, page.next.is_some(), "show nexthop-group"))
            }
            Detail::Queues => {
                let pipeline: Pipeline = client.get("/v1/pipeline")?;
                Ok(threads::queues(&pipeline.rings, &pipeline.gauges).render())
            }
            Detail::Threads => Ok(threads::threads(&client.get::<Threads>("/v1/threads")?)),
            Detail::Performance => Ok(performance::all(&client.get::<Vec<Performance>>("/v1/performance")?)),
            Detail::Explain(prefix) => {
                let query = query(&[("prefix", Some(prefix.clone()))]);
                let explained: Explain = client.get(&format!("/v1/explain?{query}"))?;
                // A small screen ends before the last line.
                Ok(format!("=> {}\n{}", explained.conclusion, fib::explain_text(&explained)))
            }
        }
    }
}

/// Names the command that shows the rest of a list.
fn with_rest(text: String, more: bool, command: &str) -> String {
    if more { format!("{text}\nThere are more: ribtide {command}\n") } else { text }
}
