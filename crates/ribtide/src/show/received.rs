//! Routes of a neighbour before import policy.

use super::attributes::{Shown, cell, line};
use crate::text::{Table, duration};
use ribtide_model::ReceivedRoute;

pub(super) fn table() -> Table {
    Table::new(&[
        "",
        "Prefix",
        "Next hop",
        ">Age",
        ">Pref",
        ">MED",
        "RPKI",
        "ASPA",
        "AS path",
        "Communities",
        "Import policy",
    ])
}

/// `*` marks an accepted route.
pub(super) fn row(table: &mut Table, route: &ReceivedRoute) {
    let shown = Shown::from(route);
    let communities = shown.all_communities();
    table.row([
        if route.accepted { "*" } else { "" }.into(),
        prefix(route),
        route.next_hop.to_string(),
        super::route::age(route.age_seconds),
        cell(shown.local_pref),
        cell(shown.med),
        route.validation.clone().unwrap_or_else(|| "-".into()),
        route.aspa.clone().unwrap_or_else(|| "-".into()),
        shown.path_and_origin(),
        if communities.is_empty() { "-".into() } else { communities },
        route.decision.clone(),
    ]);
}

/// Everything about a route.
pub(super) fn detail(route: &ReceivedRoute) -> String {
    let link_local = route.link_local.map_or(String::new(), |address| format!(", link-local {address}"));
    let mut out = format!("{}\n", prefix(route));
    out += &line("Import policy", &route.decision);
    out += &line("Accepted", if route.accepted { "yes" } else { "no" });
    out += &line("Age", &route.age_seconds.map_or_else(String::new, duration));
    out += &line("Next hop", &format!("{}{link_local}", route.next_hop));
    out += &Shown::from(route).lines();
    out += &line("RPKI", route.validation.as_deref().unwrap_or_default());
    out + &line("ASPA", route.aspa.as_deref().unwrap_or_default())
}

/// The prefix, with the path identifier of a session that has them.
fn prefix(route: &ReceivedRoute) -> String {
    match route.path_id {
        None => route.prefix.clone(),
        Some(id) => format!("{} (path {id})", route.prefix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route() -> ReceivedRoute {
        ReceivedRoute {
            prefix: "10.0.0.0/8".into(),
            path_id: None,
            next_hop: "192.0.2.1".parse().unwrap(),
            link_local: None,
            as_path: "65010".into(),
            origin: "igp".into(),
            local_pref: None,
            med: Some(7),
            aigp: None,
            communities: vec!["65010:1".into()],
            large_communities: vec!["65010:1:2".into()],
            extended_communities: vec!["rt:65010:9".into()],
            aggregator: Some("65010 192.0.2.9".into()),
            originator_id: None,
            cluster_list: vec![],
            only_to_customer: None,
            other_attributes: vec![99],
            accepted: false,
            decision: "policy p, statement s: reject".into(),
            validation: None,
            aspa: None,
            age_seconds: None,
        }
    }

    #[test]
    fn received_route_has_its_attributes_and_what_the_policy_decides() {
        let mut table = table();
        row(&mut table, &route());
        row(&mut table, &ReceivedRoute { path_id: Some(7), accepted: true, ..route() });
        let text = table.render();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines[1..],
            [
                "   10.0.0.0/8           192.0.2.1    -     -    7  -     -     65010 i  65010:1 65010:1:2 rt:65010:9  policy p, statement s: reject",
                "*  10.0.0.0/8 (path 7)  192.0.2.1    -     -    7  -     -     65010 i  65010:1 65010:1:2 rt:65010:9  policy p, statement s: reject",
            ],
            "{text}"
        );
    }

    #[test]
    fn detail_has_every_attribute_and_no_line_for_another() {
        let expected = "\
10.0.0.0/8
      Import policy: policy p, statement s: reject
      Accepted: no
      Next hop: 192.0.2.1
      AS path: 65010
      Origin: igp
      MED: 7
      Communities: 65010:1
      Large communities: 65010:1:2
      Extended communities: rt:65010:9
      Aggregator: 65010 192.0.2.9
      Other attributes, by code: 99
";
        assert_eq!(detail(&route()), expected);
    }
}
