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
