//! The `[bgp.originate]` table.

use super::*;

#[test]
fn originated_routes_have_sources_with_policies() {
    let page = include_str!("../../../../docs/configuration.md");
    let example = page.split("```toml").find(|part| part.starts_with("\n[bgp.originate]")).unwrap();
    let example = example.split("```").next().unwrap();
    let router = "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n";
    let config = parse(&format!("{router}{example}")).unwrap_or_else(|e| panic!("{e:?}"));
    let originate = config.bgp.unwrap().originate;
    assert_eq!(originate.networks.len(), 2);
    let sources: Vec<_> = originate.policies.keys().map(|source| source.name()).collect();
    assert_eq!(sources, ["network", "connected", "static"]);
    let [network, connected, statics] = originate.policies.values().collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!(
        network.constant(),
        Some(ribtide_policy::PolicyResult::Accept),
        "without a list all are taken"
    );
    assert_eq!((connected.name(), statics.name()), ("accept", "customers"));
}

#[test]
fn what_cannot_be_originated_is_refused() {
    let error = |text: &str| error(&format!("[bgp.originate]\n{text}"));
    assert!(error("networks = [\"10.0.0.0/33\"]").contains("10.0.0.0/33"));
    assert!(error("networks = [\"10.0.0.0/8\", \"10.0.0.0/8\"]").contains("twice"));
    assert!(error("static = [\"accept\"]").contains("[fib]"));
    assert!(error("networks = [\"10.0.0.0/8\"]\nrequire-route = true").contains("[fib]"));
    assert!(
        error("kernel = [\"accept\"]\n[fib]\nfpm = [\"127.0.0.1:2620\"]").contains("no routes are imported")
    );
    let self_set = "networks = [\"10.0.0.0/8\"]\nnetwork-policy = [\"p\"]\n[[policy.definition.p.statement]]\n\
                    actions.set-next-hop = \"192.0.2.1\"\n";
    assert!(error(self_set).contains("our own address"));
}

#[test]
fn aggregates_are_those_of_the_document() {
    let page = include_str!("../../../../docs/configuration.md");
    let example = page.split("```toml").find(|part| part.starts_with("\n[[bgp.aggregate]]")).unwrap();
    let example = example.split("```").next().unwrap();
    let router = "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n";
    let config = parse(&format!("{router}{example}")).unwrap_or_else(|e| panic!("{e:?}"));
    let aggregates = config.bgp.unwrap().originate.aggregates;
    let texts: Vec<String> = aggregates
        .iter()
        .map(|(prefix, aggregate)| {
            format!(
                "{prefix} {:?} {}",
                matches!(aggregate.suppress, SuppressConfig::All),
                aggregate.policy.name()
            )
        })
        .collect();
    assert_eq!(texts, ["203.0.113.0/24 true none", "2001:db8::/32 false tag"]);
}

#[test]
fn what_cannot_be_aggregated_is_refused() {
    let error = |text: &str| error(&format!("[[bgp.aggregate]]\n{text}"));
    assert!(error("prefix = \"10.0.0.0/33\"").contains("10.0.0.0/33"));
    assert!(error("prefix = \"10.0.0.1/32\"").contains("no prefix is more specific"));
    assert!(error("prefix = \"10.0.0.0/8\"\n[[bgp.aggregate]]\nprefix = \"10.0.0.0/8\"").contains("already"));
    assert!(error("prefix = \"10.0.0.0/8\"\nas-set = true").contains("RFC 9774"));
    assert!(
        error("prefix = \"10.0.0.0/8\"\nsummary-only = true\nsuppress = [\"accept\"]")
            .contains("one of both")
    );
    assert!(error("prefix = \"10.0.0.0/8\"\nsuppress = [\"none\"]").contains("none"));
}

#[test]
fn presence_of_routes_is_for_export_and_default_routes() {
    let sets = "[policy.prefix-set.up]\nprefixes = [\"192.0.2.0/24\"]\n[[policy.definition.p.statement]]\n\
                conditions.routes-absent = \"up\"\nactions.policy-result = \"accept\"\n";
    let group = |settings: &str| {
        format!("[bgp.group.g]\ntype = \"internal\"\nneighbors = [\"192.0.2.1\"]\n{settings}\n{sets}")
    };
    let router = "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n";
    let text = group("export = [\"p\"]\ndefault-originate = { routes-exist = \"up\" }");
    let config = parse(&format!("{router}{text}")).unwrap_or_else(|e| panic!("{e:?}"));
    let bgp = config.bgp.unwrap();
    let settings = &bgp.neighbors.values().next().unwrap().settings;
    let sets: Vec<_> = settings.export.presence_sets().iter().map(|set| set.name().to_owned()).collect();
    assert_eq!(sets, ["up"]);
    let condition = settings.default_originate.as_ref().unwrap().condition.as_ref();
    assert_eq!(condition.map(|set| set.name()), Some("up"));
    assert!(error(&group("import = [\"p\"]")).contains("export of neighbours only"));
    assert!(error(&group("default-originate = { routes-exist = \"dawn\" }")).contains("no prefix-set"));
    for several in ["add-path = { send = \"all\" }", "add-path = { send = 2 }"] {
        let text = group(&format!("export = [\"p\"]\ndefault-originate = true\n{several}"));
        assert!(parse(&format!("{router}{text}")).is_ok(), "{several}");
    }
    assert!(error(&group("default-originate = 3")).contains("true, false, or a table"));
}

#[test]
fn unsuppress_is_a_policy_and_refused_where_it_cannot_work() {
    let with = |more: &str| {
        let text = format!(
            "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[policy.prefix-set.p]\nprefixes = [\"10.0.0.0/8\"]\n\
             [[policy.definition.when.statement]]\nconditions.routes-exist = \"p\"\nactions.policy-result = \"accept\"\n\
             [bgp.group.g]\ntype = \"external\"\npeer-asn = 65002\nneighbors = [\"10.0.0.2\"]\nexport = [\"reject\"]\n{more}"
        );
        parse(&text).map_err(|problems| problems[0].message.clone())
    };
    let unsuppress = |config: crate::Config| {
        config.bgp.unwrap().neighbors.into_values().next().unwrap().settings.unsuppress
    };
    assert!(unsuppress(with("").unwrap()).is_none());
    let policy = unsuppress(with("unsuppress = [\"accept\"]").unwrap()).unwrap();
    assert_eq!(policy.constant(), Some(ribtide_policy::PolicyResult::Accept));
    let refused = |more: &str| with(&format!("unsuppress = {more}")).unwrap_err();
    assert!(refused("[\"when\"]").contains("work in export alone"));
    assert!(refused("[\"accept\"]\nadd-path = { send = \"all\" }").contains("several paths of a prefix"));
    assert!(refused("[\"none\"]").contains("none"));
}
