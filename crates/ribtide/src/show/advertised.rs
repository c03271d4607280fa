//! What a neighbour is sent, and why a route is not.

use super::attributes::{Shown, cell, line};
use super::route::age;
use crate::text::{Table, count, duration};
use ribtide_model::{AdvertisedPage, AdvertisedRoute};

pub(super) fn table() -> Table {
    Table::new(&[
        "",
        "Prefix",
        "Next hop",
        ">Age",
        ">Pref",
        ">MED",
        "AS path",
        "Communities, or why it is not sent",
    ])
}

/// `*` marks a route that is sent.
pub(super) fn row(table: &mut Table, route: &AdvertisedRoute) {
    let (nothing, prefix) = (|| "-".to_owned(), prefix(route));
    table.row(match &route.sent {
        Some(sent) => {
            let shown = Shown::from(sent);
            [
                "*".into(),
                prefix,
                sent.next_hop.to_string(),
                age(route.age_seconds),
                cell(shown.local_pref),
                cell(shown.med),
                shown.path_and_origin(),
                shown.all_communities(),
            ]
        }
        None => [
            String::new(),
            prefix,
            nothing(),
            age(route.age_seconds),
            nothing(),
            nothing(),
            nothing(),
            route.reasons.last().cloned().unwrap_or_default(),
        ],
    });
}

/// Everything about a route.
pub(super) fn detail(route: &AdvertisedRoute) -> String {
    let mut out = format!("{}\n", prefix(route));
    out += &line("Age", &route.age_seconds.map_or_else(String::new, duration));
    match &route.sent {
        None => out += &line("Sent", "no"),
        Some(sent) => {
            let link_local =
                sent.link_local.map_or(String::new(), |address| format!(", link-local {address}"));
            out += &line("Next hop", &format!("{}{link_local}", sent.next_hop));
            out += &Shown::from(sent).lines();
        }
    }
    out + &reasons(route)
}

/// The prefix, with the path identifier where several paths are sent.
fn prefix(route: &AdvertisedRoute) -> String {
    match route.path_id {
        Some(id) => format!("{} (path {id})", route.prefix),
        None => route.prefix.clone(),
    }
}

/// A line if the neighbour does not have everything yet.
pub(super) fn progress(page: &AdvertisedPage) -> String {
    match (page.joining, page.waiting) {
        (true, _) => "The neighbour waits for a whole table; it has not got all of this yet.\n".into(),
        (false, 0) => String::new(),
        (false, waiting) => format!("Not sent yet: {}.\n", count(waiting, "change")),
    }
}

/// A line for each reason of a single route.
pub(super) fn reasons(route: &AdvertisedRoute) -> String {
    route.reasons.iter().map(|reason| format!("{reason}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_model::SentPath;

    #[test]
    fn a_sent_route_has_its_attributes_and_another_the_reason() {
        let sent = SentPath {
            next_hop: "192.0.2.1".parse().unwrap(),
            link_local: None,
            as_path: "65001 65010".into(),
            origin: "igp".into(),
            local_pref: None,
            med: Some(7),
            aigp: None,
            communities: vec!["65001:1".into()],
            large_communities: vec!["65001:1:2".into()],
            extended_communities: vec![],
            aggregator: None,
            originator_id: None,
            cluster_list: vec![],
            only_to_customer: None,
            other_attributes: vec![],
        };
        let routes = [
            AdvertisedRoute {
                prefix: "10.0.0.0/8".into(),
                path_id: None,
                age_seconds: Some(75),
                sent: Some(sent.clone()),
                reasons: vec![],
            },
            AdvertisedRoute {
                prefix: "10.1.0.0/16".into(),
                path_id: None,
                age_seconds: None,
                sent: None,
                reasons: vec!["first".into(), "not sent: it came from this peer".into()],
            },
        ];
        let mut table = table();
        routes.iter().for_each(|route| row(&mut table, route));
        let text = table.render();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "   Prefix       Next hop     Age  Pref  MED  AS path        Communities, or why it is not sent",
                "*  10.0.0.0/8   192.0.2.1  1m15s     -    7  65001 65010 i  65001:1 65001:1:2",
                "   10.1.0.0/16  -              -     -    -  -              not sent: it came from this peer",
            ]
        );
        assert_eq!(reasons(&routes[1]), "first\nnot sent: it came from this peer\n");
        let several = AdvertisedRoute { path_id: Some(65_537), ..routes[0].clone() };
        let mut table = super::table();
        row(&mut table, &several);
        assert!(table.render().contains("*  10.0.0.0/8 (path 65537)  192.0.2.1 "));
    }

    #[test]
    fn a_neighbour_that_lags_is_said_to() {
        let page = |waiting, joining| AdvertisedPage { routes: vec![], waiting, joining, next: None };
        assert_eq!(progress(&page(0, false)), "");
        assert_eq!(progress(&page(1, false)), "Not sent yet: 1 change.\n");
        assert!(progress(&page(0, true)).contains("waits for a whole table"));
    }
}
