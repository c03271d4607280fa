use super::super::{Config, ConfigError, load, parse};
use ribtide_policy::{Changes, Policy, Route, RouteType, Source};
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix};
use ribtide_wire::bgp::attribute::{AsPath, code};
use ribtide_wire::bgp::{NextHop, build};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

const BASE: &str = "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n";
const GROUP: &str = "[bgp.group.up]\ntype = \"external\"\npeer-asn = 65002\nneighbors = [\"192.0.2.2\"]\n";

/// The import policy of the one neighbour.
fn import(config: &Config) -> Arc<Policy> {
    let neighbor: IpAddr = "192.0.2.2".parse().unwrap();
    config.bgp.as_ref().unwrap().neighbors[&neighbor].settings.import.clone()
}

fn policy(tables: &str) -> Arc<Policy> {
    let text = format!("{BASE}{GROUP}import = [\"it\"]\n{tables}");
    import(&parse(&text).unwrap_or_else(|e| panic!("{e:?}")))
}

/// A policy of one statement with these lines.
fn one(lines: &str, sets: &str) -> Arc<Policy> {
    policy(&format!("[[policy.definition.it.statement]]\n{lines}\n{sets}"))
}

fn error(tables: &str) -> String {
    let text = format!("{BASE}{tables}");
    ConfigError::new(Path::new("ribtide.toml"), &text, parse(&text).unwrap_err()).to_string()
}

/// A route of 192.0.2.2 with AS path 65002 65003, MED 10 and communities 65002:1 and 65002:2:3.
fn attributes() -> Vec<u8> {
    let mut out = Vec::new();
    build::as_path(&mut out, AsPath::new(&[2, 2, 0, 0, 0xfd, 0xea, 0, 0, 0xfd, 0xeb]));
    build::med(&mut out, 10);
    build::list(&mut out, 0, code::COMMUNITIES, &[0xfd, 0xea, 0, 1]);
    build::list(&mut out, 0, code::LARGE_COMMUNITIES, &[0, 0, 0xfd, 0xea, 0, 0, 0, 2, 0, 0, 0, 3]);
    out
}

fn evaluate(policy: &Policy, prefix: &str) -> Option<Changes> {
    let attributes = attributes();
    let prefix: AnyPrefix = prefix.parse().unwrap();
    let next_hop = match prefix.afi() {
        Afi::Ipv4 => NextHop::V4("192.0.2.2".parse().unwrap()),
        Afi::Ipv6 => NextHop::from_v6("2001:db8::2".parse().unwrap(), None),
    };
    let source = Source { neighbor: "192.0.2.2".parse().unwrap(), kind: RouteType::External };
    let route = Route {
        attributes: &attributes,
        next_hop,
        family: AfiSafi::unicast(prefix.afi()),
        source,
        validation: None,
    };
    policy.explain(&route, prefix).0
}

#[test]
fn the_example_of_the_documentation_works() {
    let page = include_str!("../../../../docs/configuration.md");
    let example =
        page.split("```toml").find(|part| part.contains("[[policy.definition.customer-in.")).unwrap();
    let example = example.split("```").next().unwrap();
    let config = parse(&format!("{BASE}{example}")).unwrap_or_else(|e| panic!("{e:?}"));
    let peer: IpAddr = "192.0.2.2".parse().unwrap();
    let settings = &config.bgp.as_ref().unwrap().neighbors[&peer].settings;
    assert_eq!(settings.import.name(), "bogons, customer-in");
    assert_eq!(settings.export.name(), "customer-out");
    assert_eq!(evaluate(&settings.import, "10.1.2.0/24"), None, "a bogon");
    assert_eq!(evaluate(&settings.import, "198.51.100.0/25"), None, "longer than the customer may announce");
    assert!(evaluate(&settings.import, "198.51.100.0/24").is_some_and(|changes| !changes.is_empty()));
    assert!(evaluate(&settings.import, "2001:db8:7::/48").is_some());
}

#[test]
fn each_condition_is_obeyed() {
    let sets = "[policy.prefix-set.s]\nprefixes = [\"10.0.0.0/8 8..24\"]\n[policy.neighbor-set.s]\naddresses = [\"192.0.2.0/24\"]\n\
                [policy.neighbor-set.t]\naddresses = [\"192.0.3.1\"]\n\
                [policy.community-set.s]\nmembers = [\"65002:1\", \"65002:*:3\"]\n[policy.community-set.t]\nmembers = [\"65002:1\", \"1:1\"]\n\
                [policy.as-path-set.s]\nregex = [\"^65002 65003$\"]\n[policy.as-path-set.t]\norigin = [65002, \"65004-65009\"]\n";
    for (condition, holds) in [
        ("match-prefix-set = \"s\"", true),
        ("match-prefix-set = { set = \"s\", match-set-options = \"invert\" }", false),
        ("match-neighbor-set = \"s\"", true),
        ("match-neighbor-set = \"t\"", false),
        ("match-neighbor-set = { set = \"t\", match-set-options = \"invert\" }", true),
        ("match-community-set = \"t\"", true),
        ("match-community-set = { set = \"t\", match-set-options = \"all\" }", false),
        ("match-community-set = { set = \"s\", match-set-options = \"all\" }", true),
        ("match-community-set = { set = \"s\", match-set-options = \"invert\" }", false),
        ("match-as-path-set = \"s\"", true),
        ("match-as-path-set = \"t\"", false),
        ("next-hop-in = [\"192.0.2.2\"]", true),
        ("next-hop-in = [\"192.0.2.3\", \"10.0.0.0/8\"]", false),
        ("afi-safi-in = [\"ipv4-unicast\"]", true),
        ("afi-safi-in = [\"ipv6-unicast\"]", false),
        ("origin-eq = \"incomplete\"", true),
        ("origin-eq = \"igp\"", false),
        ("route-type = \"external\"", true),
        ("route-type = \"internal\"", false),
        ("as-path-length = 2", true),
        ("as-path-length = \"3-\"", false),
        ("med = \"5-15\"", true),
        ("med = 0", false),
        ("local-pref = 100", true),
        ("local-pref = \"101-\"", false),
    ] {
        let policy = one(&format!("conditions.{condition}\nactions.policy-result = \"accept\""), sets);
        assert_eq!(evaluate(&policy, "10.1.2.0/24").is_some(), holds, "{condition}");
    }
}

#[test]
fn each_action_is_obeyed() {
    let sets = "[policy.community-set.theirs]\nmembers = [\"65002:*\", \"65002:*:*\"]\n";
    for (action, message) in [
        ("set-local-pref = 200", "set-local-pref 200"),
        ("set-med = 5", "set-med 5"),
        ("set-med = \"+7\"", "set-med +7"),
        ("set-med = \"-7\"", "set-med -7"),
        ("set-route-origin = \"igp\"", "set-route-origin igp"),
        ("set-next-hop = \"peer-address\"", "set-next-hop peer-address"),
        ("set-next-hop = \"192.0.2.9\"", "set-next-hop 192.0.2.9"),
        ("set-as-path-prepend.repeat-n = 3", "set-as-path-prepend 3 times 65001"),
        ("set-as-path-prepend = { asn = 65009 }", "set-as-path-prepend 1 times 65009"),
        ("set-community.add = [\"1:2\", \"1:2:3\", \"rt:1:2\"]", "add communities 1:2 1:2:3 rt:1:2"),
        ("set-community.remove = [\"65002:*\"]", "remove communities 65002:*"),
        ("set-community.remove-set = \"theirs\"", "remove communities theirs"),
        ("set-community.replace = [\"no-export\"]", "remove all communities, add communities no-export"),
    ] {
        let policy = one(&format!("actions.{action}\nactions.policy-result = \"accept\""), sets);
        let attributes = attributes();
        let next_hop = NextHop::V4("192.0.2.3".parse().unwrap());
        let source = Source { neighbor: "192.0.2.2".parse().unwrap(), kind: RouteType::External };
        let route = Route {
            attributes: &attributes,
            next_hop,
            family: AfiSafi::Ipv4Unicast,
            source,
            validation: None,
        };
        let (changes, problems) = policy.explain(&route, "10.0.0.0/8".parse().unwrap());
        assert!(!changes.unwrap().is_empty(), "{action}");
        assert_eq!(problems, [format!("it, statement 1: holds for every route; {message}; accepted")]);
    }
}

#[test]
fn the_end_of_a_list_depends_on_the_peer() {
    let statement = "[[policy.definition.it.statement]]\nactions.set-local-pref = 200\n";
    assert_eq!(evaluate(&policy(statement), "10.0.0.0/8"), None);
    let internal = format!(
        "{BASE}[bgp.group.in]\ntype = \"internal\"\nneighbors = [\"192.0.2.2\"]\nimport = [\"it\"]\n{statement}"
    );
    assert!(evaluate(&import(&parse(&internal).unwrap()), "10.0.0.0/8").is_some());
    let accept = format!("{BASE}{GROUP}import = [\"it\", \"accept\"]\n{statement}");
    assert!(
        evaluate(&import(&parse(&accept).unwrap()), "10.0.0.0/8").is_some_and(|changes| !changes.is_empty())
    );
}

#[test]
fn peers_with_the_same_list_share_a_policy() {
    let text =
        format!("{BASE}{GROUP}import = [\"accept\"]\n[[bgp.group.up.neighbor]]\naddress = \"192.0.2.3\"\n");
    let config = parse(&text).unwrap();
    let policies: Vec<_> =
        config.bgp.as_ref().unwrap().neighbors.values().map(|n| &n.settings.import).collect();
    assert!(Arc::ptr_eq(policies[0], policies[1]));
}

#[test]
fn mistakes_show_their_place_and_a_cure() {
    let sets = "[policy.prefix-set.customers]\nprefixes = []\n";
    for (tables, message) in [
        (
            "[[policy.definition.a.statement]]\nconditions.match-prefix-set = \"custmers\"\n",
            ":7:31: there is no prefix-set \"custmers\"; did you mean \"customers\"?",
        ),
        (
            "[[policy.definition.a.statement]]\nconditions.match-as-path-set = \"x\"\n",
            "there is no as-path-set \"x\"; define it with [policy.as-path-set.x]",
        ),
        (
            "[[policy.definition.a.statement]]\nactions.set-community.remove-set = \"x\"\n",
            ":7:36: there is no community-set \"x\"",
        ),
        (
            "[[policy.definition.a.statement]]\nconditions.match-prefix-set = { set = \"customers\", match-set-options = \"all\" }\n",
            ":7:72: a route has one of these only",
        ),
        (
            "[policy.prefix-set.b]\nprefixes = [\"10.0.0.0/8\", \"10.0.0.1/8\", \"10.0.0.0/8 24..16\"]\n",
            ":7:27: \"10.0.0.1/8\" has bits set beyond its length; write 10.0.0.0/8",
        ),
        (
            "[policy.prefix-set.b]\nprefixes = [\"10.0.0.0/8 24..16\"]\n",
            ":7:13: \"24..16\" are no lengths inside 10.0.0.0/8; write exact, or the shortest and the longest",
        ),
        ("[policy.prefix-set.b]\n", "this set is not given; write prefixes"),
        ("[policy.prefix-set.b]\nfile = \"/does/not/exist\"\n", ":7:8: /does/not/exist cannot be read"),
        ("[policy.neighbor-set.b]\naddresses = [\"here\"]\n", ":7:14: \"here\" is no address"),
        ("[policy.community-set.b]\nmembers = [\"1:2\", \"1\"]\n", ":7:19: \"1\" is no community"),
        (
            "[policy.as-path-set.b]\nregex = [\"(174\"]\n",
            ":7:10: \"(174\" is no AS path expression: a ) is missing",
        ),
        ("[policy.as-path-set.b]\n", "this set holds no path"),
        ("[policy.as-path-set.b]\norigin = [1, \"2-1\"]\n", ":7:14: \"2-1\" is no number"),
        ("[policy.as-path-set.b]\norigin = [-1]\n", "this is no number or range"),
        ("[policy.definition.accept]\n", "\"accept\" is a built-in policy; write another name"),
        (
            "[policy.definition.a]\n",
            "this policy has no statement; write at least one [[policy.definition.a.statement]]",
        ),
        ("[[policy.definition.a.statement]]\nactions.set-med = \"7\"\n", ":7:19: \"7\" is no MED"),
        (
            "[[policy.definition.a.statement]]\nactions.set-next-hop = \"me\"\n",
            "\"me\" is no next hop; write an address",
        ),
        (
            "[[policy.definition.a.statement]]\nactions.set-as-path-prepend.repeat-n = 0\n",
            ":7:40: repeat-n is how often",
        ),
        (
            "[[policy.definition.a.statement]]\nactions.set-community = { replace = [], add = [\"1:1\"] }\n",
            "replace takes all communities away",
        ),
        ("[[policy.definition.a.statement]]\nactions.result = \"accept\"\n", "unknown field `result`"),
        ("[[policy.definition.a.statement]]\nactions.policy-result = \"acept\"\n", "did you mean `accept`?"),
    ] {
        let says_now = error(&format!("{sets}{tables}"));
        assert!(says_now.contains(message), "{message}\n{says_now}");
    }
}

#[test]
fn lists_of_peers_are_checked_too() {
    let list = |key: &str, next_hop: &str| {
        error(&format!(
            "{GROUP}{key} = [\"accept\", \"acccept\", \"a\"]\n[[policy.definition.a.statement]]\nactions.set-next-hop = \"{next_hop}\"\n"
        ))
    };
    assert!(
        list("import", "self").contains(":8:21: there is no policy \"acccept\"; did you mean \"accept\"?")
    );
    assert!(
        list("import", "self")
            .contains("sets the next hop to \"self\", which means something only where routes are sent")
    );
    assert!(list("export", "peer-address").contains("which means something only where routes come from"));
    assert!(
        !list("export", "self").contains("next hop") && !list("import", "peer-address").contains("next hop")
    );
    assert!(error(&format!("{GROUP}import = []\n")).contains("the list of policies is empty"));
}

#[test]
fn prefixes_come_from_files_beside_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ribtide.toml");
    let text = format!(
        "{BASE}{GROUP}import = [\"it\"]\n[policy.prefix-set.s]\nfile = \"s.txt\"\nprefixes = [\"11.0.0.0/8\"]\n\
         [[policy.definition.it.statement]]\nconditions.match-prefix-set = \"s\"\nactions.policy-result = \"accept\"\n"
    );
    std::fs::write(&path, text).unwrap();
    let list = folder.path().join("s.txt");
    std::fs::write(&list, "# of the customer\n10.0.0.0/8 16..24\n\n2001:db8::/32 # their own\n").unwrap();
    let policy = import(&load(&path).unwrap());
    for (prefix, inside) in
        [("10.1.0.0/16", true), ("10.0.0.0/8", false), ("11.0.0.0/8", true), ("2001:db8::/32", true)]
    {
        assert_eq!(evaluate(&policy, prefix).is_some(), inside, "{prefix}");
    }
    std::fs::write(&list, "10.0.0.0/8\n10.0.0.1/8\nx\ny\nz\n").unwrap();
    let message = load(&path).unwrap_err().to_string();
    for part in [
        ":10:8: ",
        "s.txt:2:1: this has bits set",
        "s.txt:3:1: this is not a prefix",
        "and 1 more wrong entries",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn ases_of_an_as_set_come_from_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ribtide.toml");
    let text = format!(
        "{BASE}{GROUP}import = [\"it\"]\n[policy.as-path-set.s]\norigin-file = \"as.json\"\norigin = [65009]\n\
         [[policy.definition.it.statement]]\nconditions.match-as-path-set = \"s\"\nactions.policy-result = \"accept\"\n"
    );
    std::fs::write(&path, text).unwrap();
    let list = folder.path().join("as.json");
    for (ases, inside) in [("{\"NN\": [\n  65001,65003\n]}", true), ("AS65001\nAS65002\n", false)] {
        std::fs::write(&list, ases).unwrap();
        let config = load(&path).unwrap();
        assert_eq!(config.files, std::slice::from_ref(&list));
        assert_eq!(evaluate(&import(&config), "10.0.0.0/8").is_some(), inside, "{ases}");
    }
    std::fs::write(&list, "65001\n AS-FOO\n").unwrap();
    let message = load(&path).unwrap_err().to_string();
    assert!(message.contains(":10:15: ") && message.contains("as.json:2:2: this is no AS"), "{message}");
}
