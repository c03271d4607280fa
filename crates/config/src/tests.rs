mod originate;

use super::*;
use ribtide_bgp::peer::PeerKind;
use ribtide_runtime::log::{Format, LogSettings};
use std::net::{IpAddr, Ipv4Addr};

const BASE: &str = "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n";

fn error(text: &str) -> String {
    let text = format!("{BASE}{text}");
    ConfigError::new(Path::new("ribtide.toml"), &text, parse(&text).unwrap_err()).to_string()
}

#[test]
fn the_example_of_the_design_is_accepted() {
    let config = parse(
        r#"
        [router]
        asn = 65001
        router-id = "10.0.0.1"

        [bgp]
        listen = ["127.0.0.1:1179"]
        shards = "auto"
        update-threads = 2

        [bgp.group.clients]
        type = "internal"
        peer-asn = 65001
        route-reflector-client = true
        passive = true
        families = ["ipv4-unicast", "ipv6-unicast"]
        import = ["accept"]
        export = ["accept"]
        neighbors = ["127.0.0.2", "127.0.0.3"]
        dynamic-neighbors = ["127.1.0.0/16"]

        [[bgp.group.clients.neighbor]]
        address = "127.0.0.4"
        hold-time = 30

        [fib]
        kernel = false
        fpm = ["127.0.0.1:2620"]
        virtual-asic = { lab = true, chip = { rate = 20000, fail-rate = 0.01 } }

        [sonic]
        north = "memory"

        [api]
        socket = "/run/ribtide/ribtide.sock"
        http = "127.0.0.1:8080"

        [[interface]]
        name = "Ethernet0"
        addresses = ["10.1.0.1/24", "2001:db8::1/64"]
        neighbors = [{ address = "10.1.0.2", mac = "02:00:00:00:00:01" }]

        [[static]]
        prefix = "0.0.0.0/0"
        next-hop = ["10.1.0.2"]
        "#,
    )
    .unwrap();
    let bgp = config.bgp.unwrap();
    assert_eq!(bgp.update_threads, Threads::Number(2));
    assert_eq!(bgp.neighbors.len(), 3);
    let own: IpAddr = "127.0.0.4".parse().unwrap();
    assert_eq!(bgp.neighbors[&own].settings.hold_time, 30);
    assert!(bgp.neighbors[&own].settings.passive && bgp.neighbors[&own].settings.kind == PeerKind::Client);
    assert_eq!(bgp.dynamic[0].settings.peer_asn, AnyAsn::Exactly(65001));
    let asic = config.fib.unwrap().asics[VIRTUAL_ASIC];
    assert!(asic.lab);
    assert_eq!((asic.chip.latency.entry.as_micros(), asic.chip.failures.per_million), (50, 10_000));
    assert_eq!(config.interfaces[0].neighbors[0].1, [2, 0, 0, 0, 0, 1]);
}

#[test]
fn an_unknown_name_shows_its_line_and_the_nearest_name() {
    let message = error("[bgp.group.x]\ntype = \"internal\"\nneighbours = [\"10.0.0.2\"]\n");
    assert!(message.starts_with("ribtide.toml:6:1: unknown field `neighbours`"), "{message}");
    assert!(message.contains("did you mean `neighbors`?"), "{message}");
    assert!(message.contains("6 | neighbours = [\"10.0.0.2\"]\n    | ^^^^^^^^^^"), "{message}");
}

#[test]
fn unknown_name_in_a_table_that_may_be_a_plain_value_shows_its_place() {
    for (text, place, meant) in [
        ("[fib.kernel]\ntabel = 100\n", ":5:1: unknown field `tabel`", "table"),
        ("[fib]\nvirtual-asic = { labb = true }\n", ":5:18: unknown field `labb`", "lab"),
        (
            "[bgp.group.x]\ntype = \"internal\"\nbfd = { min-txx = 50 }\n",
            ":6:9: unknown field `min-txx`",
            "min-tx",
        ),
        (
            "[policy.definition.a]\nstatement = [{ conditions = { match-prefix-set = { sett = \"x\" } } }]\n",
            "unknown field `sett`",
            "set",
        ),
    ] {
        let message = error(text);
        assert!(
            message.contains(place) && message.contains(&format!("did you mean `{meant}`?")),
            "{message}"
        );
    }
}

#[test]
fn a_wrong_value_shows_where_and_what_to_write() {
    let message = error("[bgp]\nshards = 65\n");
    assert_eq!(
        message,
        "ribtide.toml:5:10: 65 threads cannot be; write \"auto\", \"off\" or 1 to 64\n  5 | shards = 65\n    |          ^^"
    );
    let message = error("[bgp.group.up]\ntype = \"external\"\nneighbors = [\"10.0.0.2\", \"10.0.0.3\"]\n");
    assert!(message.contains(":6:14: an external neighbour needs its AS"), "{message}");
    assert!(message.contains(":6:26: an external neighbour needs its AS"), "{message}");
}

#[test]
fn every_problem_is_told_at_once() {
    let message = error(
        "[bgp]\nlisten = [\"[::]:179\"]\n[bgp.group.a]\ntype = \"internal\"\nhold-time = 2\nneighbors = [\"10.0.0.2\"]\n\
         [[static]]\nprefix = \"10.0.0.1/8\"\nblackhole = true\n[sonic]\nnorth = \"redis\"\n",
    );
    for part in ["a hold time of 2 s", "write 10.0.0.0/8", "\"redis\" cannot be used inside `ribtide run`"] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
}

#[test]
fn what_cannot_be_combined_is_refused() {
    for (text, message) in [
        (
            "[fib]\nkernel = true\n[[interface]]\nname = \"Ethernet0\"\n",
            "[[interface]] tables describe interfaces that no kernel has",
        ),
        (
            "[bgp.group.a]\ntype = \"external\"\npeer-asn = 65001\nneighbors = [\"10.0.0.2\"]\n",
            "cannot have AS 65001",
        ),
        (
            "[bgp.group.a]\ntype = \"external\"\npeer-asn = 1\nroute-reflector-client = true\n",
            "only internal peers can be clients",
        ),
        ("[fib]\nkernel = { protocol = 4 }\n", "protocol 4 marks routes"),
        ("[fib]\nnexthop-cache = \"on\"\n", "\"on\" is no mode of the next-hop cache"),
        (
            "[fib]\n[[static]]\nprefix = \"::/0\"\nblackhole = true\nbackup = [\"10.0.0.2\"]\n",
            "a blackhole never fails",
        ),
        (
            "[fib]\n[[static]]\nprefix = \"::/0\"\nblackhole = true\ntrack = { interface = \"e\", prefix = \"::/0\" }\n",
            "a route tracks one thing",
        ),
        (
            "[fib]\n[[static]]\nprefix = \"::/0\"\nblackhole = true\ntrack = { interface = \"e9\" }\n[[interface]]\nname = \"e8\"\n",
            "there is no [[interface]] named \"e9\"",
        ),
        ("stall-exit = 29\n", "write at least 30, or 0 for never"),
        ("stall-timeout = 0\nstall-exit = 60\n", "so no stall can end the process"),
        ("[fib]\nmax-ecmp = 0\n", "write 1 to 1024"),
        (
            "[bgp.group.a]\ntype = \"internal\"\nneighbors = [\"10.0.0.2\"]\n[bgp.group.b]\ntype = \"internal\"\nneighbors = [\"10.0.0.2\"]\n",
            "already in group \"a\"",
        ),
        ("[bgp]\ncpus = \"0-3\"\nnuma-node = 0\n", ":6:13: bgp.cpus already says where the threads run"),
        (
            "[bgp]\nlisten = [\"10.0.0.1:179\", \"0.0.0.0:179\"]\n",
            "connections to 0.0.0.0:179 come to 10.0.0.1:179, too",
        ),
        ("[bgp]\nlisten = [\"10.0.0.1:179\", \"10.0.0.1:179\"]\n", "already listed; remove one of the two"),
        (
            "[bgp.group.a]\ntype = \"internal\"\nneighbors = [\"::ffff:10.0.0.2\"]\n",
            "is an IPv4 address in IPv6's form; write 10.0.0.2",
        ),
        (
            "[bgp.group.d]\ntype = \"internal\"\npassword = \"dyn\"\ndynamic-neighbors = [\"10.0.0.0/26\"]\n\
             [bgp.group.n]\ntype = \"internal\"\nneighbors = [\"10.0.0.3\"]\n",
            "10.0.0.3 is in the range 10.0.0.0/26 of group \"d\": the range has a password (TCP-MD5)",
        ),
        ("[fib.kernel]\nmetric = 0\n", "write 1 or more"),
        (
            "[fib]\n[[static]]\nprefix = \"10.0.0.0/8\"\nnext-hop = [\"0.0.0.0\"]\n",
            "0.0.0.0 is no address of a neighbour",
        ),
        (
            "[fib]\n[[static]]\nprefix = \"10.0.0.0/8\"\nnext-hop = [\"10.0.0.2\", \"10.0.0.2\"]\n",
            "10.0.0.2 is already in next-hop",
        ),
        (
            "[fib]\n[[static]]\nprefix = \"10.0.0.0/8\"\nnext-hop = [\"240.0.0.1\"]\n",
            "240.0.0.1 is no address of a neighbour",
        ),
        ("[fib.kernel]\nsource = [\"0.0.0.0\"]\n", ":5:11: 0.0.0.0 is no source of packets"),
        ("[fib.kernel]\nsource = [\"10.0.0.1\", \"::1\"]\n", "::1 is no source of packets"),
        ("[[static]]\nprefix = \"10.0.0.0/8\"\n", "a static route needs either"),
        (
            "[[static]]\nprefix = \"10.0.0.0/8\"\nblackhole = true\n",
            "without a [fib] table no route is installed",
        ),
        (
            "[fib]\n[[static]]\nprefix = \"10.0.0.0/8\"\nblackhole = true\n[[static]]\nprefix = \"10.0.0.0/8\"\nnext-hop = [\"10.0.0.2\"]\n",
            ":9:10: there is already a static route for 10.0.0.0/8 with distance 1",
        ),
        (
            "[fib]\n[[static]]\nprefix = \"::/0\"\nnext-hop = [\"fe80::1\"]\n",
            ":7:13: fe80::1 is on some link",
        ),
        (
            "[fib]\n[[static]]\nprefix = \"::/0\"\ninterface = \"e9\"\n[[interface]]\nname = \"e8\"\n",
            "there is no [[interface]] named \"e9\"",
        ),
        (
            "[fib]\nfpm = [\"127.0.0.1:2620\"]\n",
            ":5:7: next hops resolve over interfaces, and there are none",
        ),
        ("[fib]\nvirtual-asic = true\n", "the virtual ASIC has no ports"),
        (
            "[fib]\nvirtual-asic = { chip = { speed = 3 } }\n[[interface]]\nname = \"e9\"\n",
            ":5:35: the chip has no setting \"speed\"",
        ),
        ("[fib.virtual-asic.chip]\nfail-rate = 1.5\n[[interface]]\nname = \"e9\"\n", "is more than all"),
        ("[fib]\nvirtual-asic = true\nkernel = true\n", "which fib.kernel excludes"),
        ("[fib.asic.asic0]\n[fib.asic.asic1]\n", "the virtual ASIC has no ports"),
        (
            "[fib]\nvirtual-asic = true\n[fib.asic.asic1]\n[[interface]]\nname = \"e9\"\n",
            "name each virtual ASIC",
        ),
        ("[fib.asic.fpm-1]\n[[interface]]\nname = \"e9\"\n", "what another dataplane is called"),
        (
            "[fib.asic.asic1.chip]\nspeed = 3\n[[interface]]\nname = \"e9\"\n",
            "the chip has no setting \"speed\"",
        ),
        (
            "[bgp.group.a]\ntype = \"internal\"\nneighbors = [\"fe80::2\"]\n",
            "every link may have the address fe80::2; write interfaces",
        ),
        (
            "[bgp.group.a]\ntype = \"internal\"\nfast-external-fallover = true\nneighbors = [\"10.0.0.2\"]\n",
            ":6:26: fast-external-fallover is for external neighbours on one link",
        ),
        (
            "[bgp.group.a]\ntype = \"external\"\npeer-asn = 2\n[[bgp.group.a.neighbor]]\naddress = \"10.0.0.2\"\n\
             multihop = 2\nfast-external-fallover = true\n",
            ":10:26: fast-external-fallover is for external",
        ),
        (
            "[bgp.group.a]\ntype = \"external\"\ndynamic-neighbors = [\"10.0.0.0/8\"]\n[bgp.group.b]\ntype = \"external\"\ndynamic-neighbors = [\"10.0.0.0/8\"]\n",
            "already a range of group \"a\"",
        ),
    ] {
        assert!(error(text).contains(message), "{}", error(text));
    }
}

#[test]
fn fast_external_fallover_is_the_nearest_that_is_said() {
    let of = |all: &str, group: &str, own: &str| {
        let text = format!(
            "[bgp]\n{all}\n[bgp.group.g]\ntype = \"external\"\npeer-asn = 65002\n{group}\n\
             [[bgp.group.g.neighbor]]\naddress = \"192.0.2.1\"\n{own}\n"
        );
        let bgp = parse(&format!("{BASE}{}", &text)).unwrap().bgp.unwrap();
        bgp.neighbors.values().next().unwrap().settings.fast_external_fallover
    };
    let (on, off) = ("fast-external-fallover = true", "fast-external-fallover = false");
    assert!(of("", "", "") && !of(off, "", "") && of(off, on, "") && !of(off, on, off));
    assert!(of(off, off, on) && of("", off, on) && !of(on, "", off));
    // A group may have a neighbour for which it says nothing.
    assert!(of("", on, "multihop = 3"));
}

/// The warnings of a text.
fn messages(text: &str) -> Vec<String> {
    parse(text).unwrap().warnings().into_iter().map(|warning| warning.message).collect()
}

#[test]
fn warnings_fib_without_dataplane() {
    let warned = |text: &str| messages(&format!("{BASE}{text}"));
    assert!(warned("[fib]\n")[0].contains("nothing is installed"));
    assert!(warned("").is_empty() && warned("[fib]\nkernel = true\n").is_empty());
    let kernels = |text: &str| parse(&format!("{BASE}{}", text)).unwrap().uses_kernel_interfaces();
    let table = "[[interface]]\nname = \"e1\"\n";
    assert!(kernels("[fib]\n") && kernels("[fib]\nkernel = true\n"));
    assert!(!kernels("") && !kernels(&format!("[fib]\n{table}")));
    assert!(!kernels(&format!("[fib]\nvirtual-asic = true\n{table}")));
}

#[test]
fn warnings_socket_mode_that_keeps_its_group_out() {
    let warned = |mode: &str| {
        let api = format!("{BASE}[api]\nsocket-group = \"root\"\nsocket-mode = \"{mode}\"\n");
        messages(&api)
    };
    assert!(warned("0640")[0].contains("keeps the group \"root\" out"));
    assert!(warned("0660").is_empty() && warned("0620").is_empty());
}

/// The settings of the one neighbour of a group with these lines, and these of its own.
fn settings(group: &str, own: &str) -> NeighborSettings {
    let text =
        format!("{BASE}[bgp.group.g]\n{group}\n[[bgp.group.g.neighbor]]\naddress = \"192.0.2.1\"\n{own}\n");
    parse(&text).unwrap().bgp.unwrap().neighbors.pop_first().unwrap().1.settings
}

const EXTERNAL: &str = "type = \"external\"\npeer-asn = 65002";

#[test]
fn shutdown_of_a_neighbour_wins_over_its_groups() {
    let of = |group: &str, own: &str| settings(&format!("{EXTERNAL}\n{group}"), own).shutdown;
    let (text, off) = ("shutdown = \"back at ten\"", "shutdown = false");
    assert_eq!((of("", ""), of(text, off), of(off, "shutdown = true")), (None, None, Some(String::new())));
    assert_eq!(of(text, ""), Some("back at ten".into()));
    let long = error(&format!(
        "[bgp.group.a]\n{EXTERNAL}\nneighbors = [\"10.0.0.2\"]\nshutdown = \"{}\"",
        "x".repeat(256)
    ));
    assert!(long.starts_with("ribtide.toml:8:12: a shutdown text has at most 255 bytes"), "{long}");
    assert!(error("[bgp.group.a]\nshutdown = 3\n").contains("write true, false, or a text"));
}

#[test]
fn ttl_security_excludes_multihop_and_replaces_it() {
    let of = |group: &str, own: &str| settings(&format!("{EXTERNAL}\n{group}"), own);
    let near = of("ttl-security = 1", "");
    assert_eq!((near.least_ttl(), near.is_multihop()), (Some(255), false));
    let far = of("ttl-security = 1", "ttl-security = 254");
    assert_eq!((far.least_ttl(), far.is_multihop()), (Some(2), true));
    assert_eq!(settings("type = \"internal\"", "ttl-security = 3").least_ttl(), Some(253));
    assert_eq!((of("", "").least_ttl(), of("multihop = 2", "").is_multihop()), (None, true));
    let group = |settings: &str| {
        error(&format!("[bgp.group.a]\n{EXTERNAL}\nneighbors = [\"10.0.0.2\"]\n{settings}\n"))
    };
    let message = group("multihop = 2\nttl-security = 2");
    assert!(
        message.starts_with("ribtide.toml:9:16: ttl-security sends with TTL 255 and multihop with"),
        "{message}"
    );
    for wrong in [0, 255] {
        assert!(group(&format!("ttl-security = {wrong}")).contains("write 1 to 254"));
    }
}

#[test]
fn peer_asn_is_a_number_or_a_kind() {
    let of = |group: &str, own: &str| settings(group, own).peer_asn;
    let (external, internal) = ("type = \"external\"", "type = \"internal\"");
    let any = "peer-asn = \"external\"";
    assert_eq!(of(&format!("{external}\n{any}"), ""), AnyAsn::AnyExternal);
    assert_eq!(of(&format!("{external}\n{any}"), "peer-asn = 65002"), AnyAsn::Exactly(65002));
    assert_eq!(of(&format!("{internal}\npeer-asn = \"internal\""), ""), AnyAsn::Exactly(65001));
    let wrong = |text: &str| error(&format!("[bgp.group.a]\nneighbors = [\"10.0.0.2\"]\n{text}\n"));
    let message = wrong(&format!("{internal}\n{any}"));
    assert!(message.starts_with("ribtide.toml:7:12: peer-asn contradicts the type"), "{message}");
    assert!(wrong(&format!("{external}\npeer-asn = \"internal\"")).contains("contradicts the type"));
    assert!(wrong(external).contains("peer-asn = \"external\" for any AS but ours"));
}

#[test]
fn graceful_shutdown_is_in_the_policies_of_external_neighbours() {
    let of = |group: &str, own: &str| {
        settings(&format!("{EXTERNAL}\nimport = [\"accept\"]\nexport = [\"accept\"]\n{group}"), own)
    };
    let tagged = [0xc0, 8, 4, 0xff, 0xff, 0, 0];
    let accept = Some(ribtide_policy::PolicyResult::Accept);
    let honors = |settings: &NeighborSettings| settings.import.constant_for(&tagged) != accept;
    let plain = of("", "");
    assert!(honors(&plain) && plain.export.constant() == accept && !plain.graceful_shutdown);
    assert!(!honors(&of("graceful-shutdown-receiver = false", "")));
    let leaving = of("graceful-shutdown-receiver = false", "graceful-shutdown = true");
    assert!(honors(&leaving) && leaving.export.constant().is_none() && leaving.graceful_shutdown);
    assert_eq!(leaving.export.name(), "accept, then graceful-shutdown");
    assert!(!of("graceful-shutdown = true", "graceful-shutdown = false").graceful_shutdown);
    assert!(!honors(&settings("type = \"internal\"", "")));
    for setting in ["graceful-shutdown", "graceful-shutdown-receiver"] {
        let message = error(&format!(
            "[bgp.group.a]\ntype = \"internal\"\nneighbors = [\"10.0.0.2\"]\n{setting} = true\n"
        ));
        assert!(message.contains("graceful shutdown is for external sessions"), "{message}");
    }
}

#[test]
fn warnings_external_neighbours_without_policy() {
    let warned = |group: &str| {
        let rest = "[[bgp.group.g.neighbor]]\naddress = \"192.0.2.9\"\nimport = [\"accept\"]\nexport = [\"reject\"]\n";
        messages(&format!("{BASE}[bgp.group.g]\n{group}\n{rest}"))
    };
    let group = format!(
        "{EXTERNAL}\nneighbors = [\"192.0.2.1\", \"192.0.2.2\"]\ndynamic-neighbors = [\"10.0.0.0/8\"]\n"
    );
    let [import, export] = &warned(&group)[..] else { panic!("{:?}", warned(&group)) };
    let expected = "group \"g\": no route is accepted from 192.0.2.1, 192.0.2.2, 10.0.0.0/8, because an external neighbour \
                    without import policy has none (RFC 8212); write import = [\"accept\"] or a policy of yours, or import = \
                    [\"reject\"] where that is intended";
    assert_eq!(import, expected);
    assert!(export.starts_with("group \"g\": no route is sent to 192.0.2.1, "), "{export}");
    assert_eq!(warned(&format!("{group}import = [\"accept\"]")), std::slice::from_ref(export));
    assert!(warned(&format!("{group}import = [\"accept\"]\nexport = [\"reject\"]")).is_empty());
    assert!(warned("type = \"internal\"\nneighbors = [\"192.0.2.1\"]").is_empty());
    let many = warned(&group.replace("\"192.0.2.2\"", "\"192.0.2.2\", \"192.0.2.3\", \"192.0.2.4\""));
    assert!(many[0].contains("192.0.2.1, 192.0.2.2, 192.0.2.3 and 2 more,"), "{many:?}");
}

#[test]
fn role_is_ours_and_of_external_neighbours() {
    use ribtide_wire::bgp::role::Role;
    let of = |group: &str, own: &str| {
        let settings = settings(&format!("{EXTERNAL}\n{group}"), own);
        (settings.role, settings.role_strict)
    };
    assert_eq!(of("", ""), (None, false));
    assert_eq!(of("role = \"rs-client\"", ""), (Some(Role::RouteServerClient), false));
    assert_eq!(
        of("role = \"peer\"\nrole-strict = true", "role = \"customer\""),
        (Some(Role::Customer), true)
    );
    let group = |settings: &str| error(&format!("[bgp.group.a]\nneighbors = [\"10.0.0.2\"]\n{settings}\n"));
    assert!(group("type = \"internal\"\nrole = \"peer\"").contains("roles are for external sessions"));
    assert!(group(&format!("{EXTERNAL}\nrole = \"transit\"")).contains("\"transit\" is no BGP role"));
    assert!(group(&format!("{EXTERNAL}\nrole-strict = true")).contains("write role = "));
    for list in ["discard-attributes = [\"otc\"]", "treat-as-withdraw = [35]"] {
        assert!(group(&format!("{EXTERNAL}\nrole = \"peer\"\n{list}")).contains("shows route leaks"));
    }
}

#[test]
fn as_numbers_are_the_neighbours_before_its_groups() {
    let of = |group: &str, own: &str| settings(&format!("{EXTERNAL}\n{group}"), own).as_numbers;
    assert_eq!(of("", ""), AsNumbers::default());
    let plain = LocalAs { asn: 65010, prepend: true, replace: false, dual: false };
    assert_eq!(of("local-as = 65010", "").local_as, Some(plain));
    let table = "local-as = { asn = 4200000000, prepend = false, replace = true, dual = true }";
    let full = LocalAs { asn: 4_200_000_000, prepend: false, replace: true, dual: true };
    assert_eq!(of("local-as = 65010", table).local_as, Some(full));
    let all = RemovePrivateAs { all: true, replace: false };
    let rules =
        of("allowas-in = 3\nas-override = true\nremove-private-as = { all = true }", "allowas-in = 0");
    let expected =
        AsNumbers { local_as: None, allowas_in: 0, as_override: true, remove_private_as: Some(all) };
    assert_eq!(rules, expected);
    assert_eq!(of("remove-private-as = true", "").remove_private_as, Some(RemovePrivateAs::default()));
    assert_eq!(of("remove-private-as = true", "remove-private-as = false").remove_private_as, None);

    let group = |settings: &str| error(&format!("[bgp.group.a]\nneighbors = [\"10.0.0.2\"]\n{settings}\n"));
    for (settings, expected) in [
        ("local-as = 0", "local-as is another AS than the router's 65001"),
        ("local-as = 65001", "local-as is another AS than the router's 65001"),
        ("local-as = { asn = 65001 }", "local-as is another AS than the router's 65001"),
        ("local-as = 5000000000", "local-as is another AS than the router's 65001"),
        ("local-as = { prepend = true }", "`asn` is missing"),
        ("local-as = true", "an AS number, or a table of asn, prepend, replace and dual"),
        ("local-as = 65002", "an external peer cannot have AS 65002"),
        ("allowas-in = 11", "write 0 to 10"),
        ("remove-private-as = \"all\"", "a table of all and replace"),
    ] {
        let message = group(&format!("{EXTERNAL}\n{settings}"));
        assert!(message.contains(expected), "{settings}: {message}");
    }
    let internal = "type = \"internal\"";
    assert!(group(&format!("{internal}\nas-override = true")).contains("remove as-override"));
    assert!(group(&format!("{internal}\nremove-private-as = true")).contains("remove remove-private-as"));
    assert!(
        group(&format!("{internal}\nlocal-as = {{ asn = 7, dual = true }}"))
            .contains("write local-as = 7 alone")
    );
    let either = settings("type = \"internal\"\nlocal-as = 65010\npeer-asn = 65010", "");
    let local_as = LocalAs { asn: 65010, prepend: false, replace: false, dual: true };
    assert_eq!((either.as_numbers.local_as, either.peer_asn), (Some(local_as), AnyAsn::Exactly(65001)));
}

#[test]
fn confederation_members_are_a_kind_of_group() {
    let table = "[bgp.confederation]\nidentifier = 100\nmembers = [65002, 65003]\n";
    let of = |kind: &str, asn: u32, more: &str| {
        let group = format!(
            "[bgp.group.g]\ntype = \"{kind}\"\npeer-asn = {asn}\nneighbors = [\"192.0.2.1\"]\n{more}\n"
        );
        let text = format!("{BASE}{table}{group}");
        parse(&text).map_err(|e| ConfigError::new(Path::new("ribtide.toml"), &text, e).to_string())
    };
    let bgp = of("confederation", 65003, "next-hop-self = true").unwrap().bgp.unwrap();
    let settings = &bgp.neighbors.values().next().unwrap().settings;
    assert_eq!((settings.kind, settings.peer_asn), (PeerKind::Confederation, AnyAsn::Exactly(65003)));
    assert!(settings.next_hop_self && !settings.enforce_first_as && !settings.import.is_missing());
    let ours = ConfederationConfig { identifier: 100, members: [65002, 65003].into() };
    assert_eq!(bgp.confederation, Some(ours));
    assert!(of("external", 7, "").is_ok() && of("internal", 65001, "").is_ok());
    for (kind, asn, more, expected) in [
        ("confederation", 65004, "", "AS 65004 is no member of our confederation"),
        ("confederation", 65002, "local-as = 7", "know us by our member AS"),
        ("confederation", 65002, "role = \"peer\"", "roles are for external sessions"),
        ("confederation", 65002, "route-reflector-client = true", "only internal peers can be clients"),
        ("confederation", 65002, "as-override = true", "remove as-override"),
        ("external", 65002, "", "write type = \"confederation\""),
        ("external", 100, "", "an external peer cannot have AS 100"),
        ("external", 7, "local-as = 100", "know us by its identifier anyway"),
    ] {
        let message = of(kind, asn, more).unwrap_err();
        assert!(message.contains(expected), "{kind} {asn} {more}: {message}");
    }
    let confederation = |table: &str| error(&format!("[bgp.confederation]\n{table}\n"));
    assert!(confederation("identifier = 0").contains("AS 0 is reserved"));
    assert!(confederation("identifier = 65001").contains("65001 is router.asn, our member AS"));
    assert!(confederation("identifier = 100\nmembers = [65001]").contains("AS 65001 is no other member"));
    assert!(confederation("identifier = 100\nmembers = [100]").contains("AS 100 is no other member"));
    let without = "[bgp.group.g]\ntype = \"confederation\"\npeer-asn = 65002\nneighbors = [\"192.0.2.1\"]\n";
    assert!(error(without).contains("there is no confederation; write [bgp.confederation]"));
}

#[test]
fn route_server_client_is_external_and_transparent() {
    let of = |group: &str, own: &str| settings(&format!("{EXTERNAL}\n{group}"), own);
    let client = "route-server-client = true";
    assert_eq!(of(client, "").kind, PeerKind::RouteServerClient);
    assert_eq!(of(client, "route-server-client = false").kind, PeerKind::External);
    assert_eq!(of("role = \"rs\"", client).kind, PeerKind::RouteServerClient);
    assert!(of(client, "").enforce_first_as, "a client's path begins with its AS");
    assert!(!of("role = \"rs-client\"", "").enforce_first_as, "a route server's does not");
    assert!(of("role = \"rs-client\"", "enforce-first-as = true").enforce_first_as);
    let group = |settings: &str| error(&format!("[bgp.group.a]\nneighbors = [\"10.0.0.2\"]\n{settings}\n"));
    assert!(group(&format!("type = \"internal\"\n{client}")).contains("is of another AS"));
    for (setting, expected) in [
        ("role = \"provider\"", "our role is \"rs\""),
        ("as-override = true", "remove as-override"),
        ("remove-private-as = true", "remove remove-private-as"),
        ("next-hop-self = true", "remove next-hop-self"),
    ] {
        let message = group(&format!("{EXTERNAL}\n{client}\n{setting}"));
        assert!(message.contains(expected), "{setting}: {message}");
    }
}

#[test]
fn a_groups_mistake_is_told_once_and_in_the_group() {
    let message = error(
        "[bgp.group.a]\ntype = \"internal\"\nhold-time = 2\nneighbors = [\"10.0.0.2\", \"10.0.0.3\"]\n",
    );
    assert!(message.starts_with("ribtide.toml:6:13: a hold time of 2 s"), "{message}");
    assert_eq!(message.matches("hold time").count(), 1, "{message}");
}

#[test]
fn a_router_has_only_so_many_neighbours() {
    let group = |neighbors: u32| {
        let list: Vec<String> =
            (1..=neighbors).map(|n| format!("\"{}\"", Ipv4Addr::from(0x0a00_0000 + n))).collect();
        format!("[bgp.group.a]\ntype = \"internal\"\nneighbors = [{}]\n", list.join(", "))
    };
    assert!(error(&group(32_768)).contains("there are 32768 neighbours; a router has at most 32767"));
    assert!(parse(&format!("{BASE}{}", group(32_767))).is_ok());
}

#[test]
fn values_of_a_wrong_form_are_told_in_plain_words() {
    for (text, message) in [
        ("[bgp]\nlisten = [\"0.0.0.0\"]\n", "this is no address with a port; write one such as"),
        ("[bgp]\nlisten = \"[::]:179\"\n", "string \"[::]:179\" cannot stand here; write a list in brackets"),
        ("[bgp]\nprefer-oldest = 1\n", "integer `1` cannot stand here; write true or false"),
        ("[bgp]\ncpus = \"all\"\n", "write one such as \"0-3,8\", or \"auto\" for all"),
        ("[bgp]\nshards = -1\n", "write \"auto\", \"off\" or 1 to 64"),
        (
            "[bgp.group.a.neighbor]\naddress = \"10.0.0.1\"\n",
            "a table cannot stand here; write a list in brackets or, for a list of tables, a header with double",
        ),
        ("[bgp.group.a]\nneighbors = [\"10.0.0.0/8\"]\n", "this is no IP address; write one such as"),
        (
            "[bgp.group.a]\npeer-asn = 4294967296\n",
            "write an AS number from 1 to 4294967295, \"external\" for any AS but ours",
        ),
        ("[[interface]]\naddresses = []\n", "`name` is missing"),
        ("[fib]\nkernel = \"yes\"\n", "write true, false, or a table"),
    ] {
        assert!(error(text).contains(message), "{}", error(text));
    }
}

#[test]
fn broken_syntax_shows_its_place() {
    let message = error("[bgp\n");
    assert!(message.starts_with("ribtide.toml:4:5: "), "{message}");
}

#[test]
fn bfd_sessions_are_those_that_neighbours_and_routes_ask_for() {
    let config = parse(&format!(
        r#"{BASE}
        [bfd]
        min-tx = 100
        [bgp.group.a]
        type = "external"
        peer-asn = 65002
        neighbors = ["192.0.2.1", "192.0.2.2"]
        bfd = {{ min-rx = 50 }}
        [[bgp.group.a.neighbor]]
        address = "192.0.2.3"
        multihop = 5
        local-address = "192.0.2.9"
        bfd = {{ strict = true }}
        [[bgp.group.a.neighbor]]
        address = "192.0.2.4"
        bfd = false
        [fib]
        kernel = true
        [[static]]
        prefix = "0.0.0.0/0"
        next-hop = ["192.0.2.1", "192.0.2.8"]
        bfd = {{ min-rx = 50, strict = true }}
        [[static]]
        prefix = "::/0"
        next-hop = ["fe80::1"]
        interface = "eth0"
        bfd = true
        "#
    ))
    .unwrap();
    let sessions: Vec<_> = config.bfd.sessions.iter().map(|(peer, s)| (peer.to_string(), *s)).collect();
    let settings =
        |min_rx, min_ttl, strict| BfdSettings { min_tx: 100, min_rx, multiplier: 3, min_ttl, strict };
    let of = |peer: &str| sessions.iter().find(|(p, _)| p == peer).unwrap().1;
    assert_eq!(sessions.len(), 5);
    let shared = of("192.0.2.1");
    assert_eq!((shared.settings, shared.bgp), (settings(50, None, true), true));
    assert_eq!(of("192.0.2.2").settings, settings(50, None, false));
    let far = of("192.0.2.3");
    assert_eq!(far.settings, settings(300, Some(1), false), "it is the session of BGP that waits");
    assert_eq!(far.local, Some("192.0.2.9".parse().unwrap()));
    assert!(!of("192.0.2.8").bgp && of("fe80::1 on eth0").settings == settings(300, None, false));
}

#[test]
fn what_bfd_cannot_do_is_refused() {
    let group = "[bgp.group.a]\ntype = \"internal\"\nneighbors = [\"192.0.2.1\"]\n";
    let cases = [
        (format!("{group}bfd = {{ min-tx = 5 }}\n"), "write 10 to 60000 milliseconds"),
        (format!("{group}bfd = {{ multiplier = 0 }}\n"), "write 1 to 255"),
        (format!("{group}bfd = {{ multihop = false, min-ttl = 9 }}\n"), "several hops away"),
        (format!("{group}bfd = 3\n"), "write true, false, or a table"),
        (format!("[bfd]\nlisten = [\"::\"]\n{group}bfd = true\n"), "no address of its family"),
        ("[bfd]\nlisten = [\"fe80::1\"]\n".into(), "write a global address"),
        (
            format!("{group}bfd = true\ndynamic-neighbors = [\"10.0.0.0/8\"]\n"),
            "neighbours that come from dynamic-neighbors have no BFD",
        ),
        (
            "[fib]\nkernel = true\n[[static]]\nprefix = \"10.0.0.0/8\"\nblackhole = true\nbfd = true\n"
                .into(),
            "this route has none",
        ),
        (
            format!(
                "{group}bfd = true\n[fib]\nkernel = true\n[[static]]\nprefix = \"10.0.0.0/8\"\nnext-hop = \
                 [\"192.0.2.1\"]\nbfd = {{ min-tx = 50 }}\n"
            ),
            "asked for with other settings elsewhere",
        ),
    ];
    for (text, message) in cases {
        let error = error(&text);
        assert!(error.contains(message), "{text}\n{error}");
    }
}

/// Every key of an object in a schema, wherever it stands.
fn keys(schema: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
    match schema {
        serde_json::Value::Object(object) => {
            if let Some(serde_json::Value::Object(properties)) = object.get("properties") {
                found.extend(properties.keys().cloned());
                assert_eq!(object.get("additionalProperties"), Some(&false.into()), "{properties:?}");
                let described = properties.values().all(|p| p.get("description").is_some());
                assert!(described, "a key without a description in {properties:#?}");
            }
            object.values().for_each(|value| keys(value, found));
        }
        serde_json::Value::Array(array) => array.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

#[test]
fn the_schema_has_every_key_and_the_documentation_has_it_too() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["required"], serde_json::json!(["router"]));
    let mut found = Default::default();
    keys(&schema, &mut found);
    assert!(
        ["asn", "router-id", "suppress-fib-pending", "match-set-options"]
            .iter()
            .all(|key| found.contains(*key))
    );
    let documentation = include_str!("../../../docs/configuration.md");
    let words: std::collections::BTreeSet<&str> =
        documentation.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    let missing: Vec<&String> = found.iter().filter(|key| !words.contains(key.as_str())).collect();
    assert!(missing.is_empty(), "docs/configuration.md does not name {missing:?}");
}

#[test]
fn what_is_never_taken_is_listed_by_prefix_and_by_attribute() {
    let group = "[bgp.group.x]\ntype = \"external\"\npeer-asn = 65002\n";
    let of = |text: &str| {
        let text = format!("{BASE}{text}");
        parse(&text).map(|c| c.bgp.unwrap().neighbors.into_values().map(|n| n.settings).collect::<Vec<_>>())
    };
    let settings = of(&format!(
        "[bgp]\nmartians = []\n{group}discard-attributes = [\"otc\", 99]\nneighbors = [\"192.0.2.1\"]\n\
         neighbor = [{{ address = \"192.0.2.2\", enforce-first-as = false, treat-as-withdraw = [\"PREFIX_SID\"], \
         discard-attributes = [] }}]\n"
    ))
    .unwrap();
    let [first, second] = settings.as_slice() else { panic!("{settings:?}") };
    assert!(first.enforce_first_as && !second.enforce_first_as);
    assert!(first.attributes.discard.contains(35) && first.attributes.discard.contains(99));
    assert!(second.attributes.discard.is_empty() && second.attributes.withdraw.contains(40));
    assert_eq!(*first.martians, ribtide_bgp::ingest::Martians::none());
    let default = of(&format!("{group}neighbors = [\"192.0.2.1\"]\n")).unwrap();
    assert_eq!(*default[0].martians, ribtide_bgp::ingest::Martians::default_list());
    for (text, message) in [
        ("discard-attributes = [\"as-path\"]\n", "AS_PATH cannot be left out"),
        ("treat-as-withdraw = [14]\n", "MP_REACH_NLRI cannot be left out"),
        ("discard-attributes = [\"otcc\"]\n", "\"otcc\" is no path attribute"),
        ("discard-attributes = [35]\ntreat-as-withdraw = [\"otc\"]\n", "OTC is in discard-attributes too"),
        (
            "discard-attributes = [99]\ntreat-as-withdraw = [99]\n",
            "attribute 99 is in discard-attributes too",
        ),
        ("discard-attributes = [0]\n", "write 1 to 255"),
        ("discard-attributes = [256]\n", "write a code from 1 to 255"),
    ] {
        let found = error(&format!("{group}{text}neighbors = [\"192.0.2.1\"]\n"));
        assert!(found.contains(message), "{found}");
    }
    let internal =
        "[bgp.group.x]\ntype = \"internal\"\nenforce-first-as = true\nneighbors = [\"192.0.2.1\"]\n";
    assert!(error(internal).contains("internal neighbour"));
    let martians = error("[bgp]\nmartians = [\"127.0.0.0/8 4..32\"]\n");
    assert!(martians.contains("no lengths inside"), "{martians}");
}

#[test]
fn prefix_sid_is_the_neighbours_before_its_groups_and_of_external_ones_alone() {
    let of = |group: &str, own: &str| {
        let text = format!(
            "{BASE}[bgp.group.g]\ntype = \"external\"\npeer-asn = 65002\n{group}\n\
             [[bgp.group.g.neighbor]]\naddress = \"192.0.2.1\"\n{own}\n"
        );
        let bgp = parse(&text).unwrap().bgp.unwrap();
        bgp.neighbors.values().next().unwrap().settings.prefix_sid
    };
    let (on, off) = ("prefix-sid = true", "prefix-sid = false");
    assert!(!of("", "") && of(on, "") && of("", on) && !of(on, off) && of(off, on));
    for setting in [on, off] {
        let refused =
            error(&format!("[bgp.group.x]\ntype = \"internal\"\n{setting}\nneighbors = [\"192.0.2.1\"]\n"));
        assert!(refused.contains("always accepted from an internal neighbour"), "{refused}");
    }
    let dynamic =
        "[bgp.group.x]\ntype = \"external\"\nprefix-sid = true\ndynamic-neighbors = [\"10.0.0.0/8\"]\n";
    let ranges = parse(&format!("{BASE}{dynamic}")).unwrap().bgp.unwrap().dynamic;
    assert!(ranges.iter().all(|range| range.settings.prefix_sid), "{ranges:?}");
}

#[test]
fn aigp_is_on_inside_our_as_and_off_outside() {
    let of = |kind: &str, group: &str, own: &str| {
        let asn = if kind == "external" { "peer-asn = 65002\n" } else { "" };
        let text = format!(
            "{BASE}[bgp.group.g]\ntype = \"{kind}\"\n{asn}{group}\n[[bgp.group.g.neighbor]]\naddress = \"192.0.2.1\"\n{own}\n"
        );
        let bgp = parse(&text).unwrap().bgp.unwrap();
        bgp.neighbors.values().next().unwrap().settings.aigp
    };
    let (on, off) = ("aigp = true", "aigp = false");
    assert!(!of("external", "", "") && of("internal", "", ""));
    for kind in ["external", "internal"] {
        assert!(of(kind, on, "") && !of(kind, on, off) && of(kind, off, on) && !of(kind, "", off));
    }
}

#[test]
fn set_aigp_is_for_export() {
    let policy = |direction: &str| {
        format!(
            "[[policy.definition.m.statement]]\nactions.set-aigp = 9223372036854775807\n\
             [bgp.group.x]\ntype = \"internal\"\n{direction} = [\"m\"]\nneighbors = [\"192.0.2.1\"]\n"
        )
    };
    assert!(parse(&format!("{BASE}{}", policy("export"))).is_ok());
    let refused = error(&policy("import"));
    assert!(refused.contains("use it in export"), "{refused}");
}

#[test]
fn schema_default_written_into_a_file_changes_nothing() {
    let neighbor = "[[bgp.group.x.neighbor]]\naddress = \"192.0.2.1\"\n";
    let group = "[bgp.group.x]\ntype = \"external\"\npeer-asn = 65002\n";
    let route = "[fib]\n[[static]]\nprefix = \"192.0.2.0/24\"\nnext-hop = [\"10.0.0.1\"]\n";
    let port = "[[interface]]\nname = \"Ethernet0\"\naddresses = [\"10.0.0.1/24\"]\n";
    // A table's name in the schema, and a file that ends in it; what comes after it.
    let tables = [
        ("Bgp", "[bgp]\n", ""),
        ("Group", group, neighbor),
        ("Neighbor", &format!("{group}{neighbor}"), ""),
        ("BfdDefaults", "[bfd]\n", ""),
        ("Fib", "[fib]\n", ""),
        ("KernelTable", "[fib.kernel]\n", ""),
        ("VirtualAsicTable", &format!("{port}[fib.virtual-asic]\n"), ""),
        ("Static", route, ""),
        ("Sonic", "[sonic]\n", ""),
        ("Api", "[api]\n", ""),
        ("Process", "[process]\n", ""),
    ];
    let schema = schema();
    let mut compared = 0;
    for (table, before, after) in tables {
        let properties = schema["$defs"][table]["properties"].as_object().expect(table);
        let with = |key: &str| {
            let config = parse(&format!("{BASE}{before}{key}\n{after}"));
            config.unwrap_or_else(|problems| panic!("{table}, {key}: {problems:?}"))
        };
        let without = with("");
        for (key, value) in properties {
            let Some(default) = value.get("default").filter(|d| !d.is_null() && !d.is_object()) else {
                continue;
            };
            if !before.contains(&format!("\n{key} = ")) {
                assert!(with(&format!("{key} = {default}")) == without, "{table}, {key} = {default}");
                compared += 1;
            }
        }
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn log_settings_are_taken_and_unknown_values_refused() {
    let log = |text: &str| parse(&format!("{BASE}{text}")).unwrap().log;
    assert_eq!(log(""), LogSettings { levels: "info".parse().unwrap(), format: Format::Text });
    let json = log("[log]\nlevel = \"warn,bgp=debug\"\nformat = \"json\"\n");
    assert_eq!(json, LogSettings { levels: "warn,bgp=debug".parse().unwrap(), format: Format::Json });
    for (text, says) in [
        (
            "level = \"loud\"",
            "ribtide.toml:5:9: \"loud\" is neither a level (off, error, warn, info, debug, trace) nor a target (api, ",
        ),
        ("level = \"info,bpg=debug\"", "\"bpg\" is neither a level"),
        ("format = \"xml\"", "unknown variant `xml`, expected `text` or `json`"),
        ("file = \"/tmp/x\"", "unknown field `file`"),
    ] {
        let refused = error(&format!("[log]\n{text}\n"));
        assert!(refused.contains(says), "{text}: {refused}");
    }
}

#[test]
fn process_has_the_user_of_the_system_and_a_mode_of_seccomp() {
    let process = |text: &str| parse(&format!("{BASE}[process]\n{text}\n")).unwrap().process;
    assert_eq!(process("").seccomp, Seccomp::Deny);
    assert_eq!(process("seccomp = \"log\"").seccomp, Seccomp::Log);
    assert_eq!(process("seccomp = false").seccomp, Seccomp::Off);
    assert!(process("user = \"root\"").user.unwrap().uid.is_root());
    for (text, says) in [
        (
            "user = \"no-such-user\"",
            "ribtide.toml:5:8: this system has no user \"no-such-user\"; make it (useradd",
        ),
        ("seccomp = \"on\"", "write true, false or \"log\""),
        ("group = \"wheel\"", "unknown field `group`"),
    ] {
        let refused = error(&format!("[process]\n{text}\n"));
        assert!(refused.contains(says), "{text}: {refused}");
    }
}

#[test]
fn http_hosts_are_names_or_addresses_without_a_port() {
    let api = |text: &str| format!("[api]\nhttp = \"127.0.0.1:8080\"\nhttp-hosts = [{text}]\n");
    let named = parse(&format!("{BASE}{}", api("\"router1.example.net\", \"2001:db8::1\""))).unwrap();
    assert_eq!(named.api.http_hosts, ["router1.example.net", "2001:db8::1"]);
    for name in ["", "router1:8080", "http://router1", "[::1]", "a b", "router1."] {
        let refused = error(&api(&format!("\"{name}\"")));
        assert!(refused.contains("is no name of a host"), "{name}: {refused}");
    }
    assert!(error("[api]\nhttp-hosts = [\"a\"]\n").contains("set api.http"));
}

#[test]
fn http_on_an_address_of_other_hosts_takes_tls_and_known_clients() {
    let api = |http: &str, more: &str| format!("[api]\nhttp = \"{http}:8080\"\n{more}\n");
    for own in ["127.0.0.1", "127.1.2.3", "[::1]", "[::ffff:127.0.0.1]"] {
        assert!(parse(&format!("{BASE}{}", api(own, ""))).is_ok(), "{own}");
    }
    for (more, says) in [
        (
            "",
            "has no TLS and admits every client: write tls-certificate, tls-key, and token-file or read-token-file",
        ),
        ("token-file = \"/none\"", "has no TLS: write tls-certificate and tls-key"),
        ("read-token-file = \"/none\"", "has no TLS: write tls-certificate and tls-key"),
        (
            "tls-certificate = \"/none\"\ntls-key = \"/none\"",
            "admits every client: write token-file or read-token-file",
        ),
    ] {
        for other in ["192.0.2.1", "0.0.0.0", "[::]", "[2001:db8::1]"] {
            let refused = error(&api(other, more));
            assert!(refused.contains("ribtide.toml:5:8: "), "{refused}");
            assert!(refused.contains("is not a loopback address") && refused.contains(says), "{refused}");
            assert!(refused.contains("or listen on 127.0.0.1 or [::1]"), "{refused}");
        }
    }
    // Only the files are wrong then.
    let files = "tls-certificate = \"/none\"\ntls-key = \"/none\"\n";
    for clients in ["token-file", "read-token-file", "tls-client-ca"] {
        let refused = error(&api("192.0.2.1", &format!("{files}{clients} = \"/none\"")));
        assert!(refused.contains("cannot read") && !refused.contains("loopback"), "{refused}");
    }
}

#[test]
fn token_for_reads_is_another_than_that_for_changes() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let (one, same) = (file("one", "0123456789abcdef"), file("same", "0123456789abcdef\n"));
    let other = file("other", "fedcba9876543210");
    let api = |read| {
        format!("[api]\nhttp = \"127.0.0.1:8080\"\ntoken-file = {one:?}\nread-token-file = {read:?}\n")
    };
    assert!(error(&api(same)).contains("write another one for reads"));
    let api = parse(&format!("{BASE}{}", api(other))).unwrap().api;
    assert!(api.read_token.unwrap().is(b"fedcba9876543210") && api.token.unwrap().is(b"0123456789abcdef"));
}
