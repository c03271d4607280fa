//! What a reload does for each changed setting of the whole router. [`SETTINGS`] is also the table of the documentation.
//!
//! The settings of single neighbours, static routes, VRFs, policies and the log are compared where they are applied.

use ribtide_config::{
    ApiConfig, BgpConfig, Config, FibConfig, InterfaceConfig, OriginateConfig, ProcessConfig, VIRTUAL_ASIC,
};
use ribtide_model::SettingEffect;
use std::collections::BTreeMap;

/// What a reload does for a changed setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It is applied, and every session and dataplane goes on.
    Live,
    /// It is applied, and sessions begin again, as the note says.
    Sessions,
    /// Nothing is reloaded: it takes a restart, for the reason of the note.
    Restart,
}

impl Effect {
    /// Its name in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Effect::Live => "nothing",
            Effect::Sessions => "sessions",
            Effect::Restart => "the router: takes a restart",
        }
    }
}

/// A setting of the whole router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Its name in the configuration. A table as a whole stands for its presence.
    pub name: &'static str,
    /// What its change resets.
    pub effect: Effect,
    /// What happens, or why it takes a restart.
    pub note: &'static str,
}

const fn live(name: &'static str, note: &'static str) -> Setting {
    Setting { name, effect: Effect::Live, note }
}

const fn sessions(name: &'static str, note: &'static str) -> Setting {
    Setting { name, effect: Effect::Sessions, note }
}

const fn restart(name: &'static str, note: &'static str) -> Setting {
    Setting { name, effect: Effect::Restart, note }
}

/// What becomes of TLS.
const CERTIFICATE: &str =
    "the next connections get what the files have now; where TLS comes or goes, the listener is bound again";
/// Every best path is selected again.
const SELECTED_AGAIN: &str = "shards select every route again, some thousand at a time; only another best path is advertised, and only other next hops go to the FIB";
/// Every group is resolved again.
const RESOLVED_AGAIN: &str =
    "every next-hop group is resolved again; only groups with another content change in dataplanes";
/// What becomes of threads on other CPUs.
const CPUS: &str = "each thread moves between two of its turns; memory that it has used stays on its NUMA node, so a restart is faster after a change of the node";
/// What becomes of virtual ASICs.
const ASICS: &str = "a new chip gets every route; one with other settings is another chip, in its place";

/// Every setting of the whole router.
pub const SETTINGS: &[Setting] = &[
    restart("router.asn", "another AS is another router, for every neighbour"),
    restart("router.router-id", "another BGP identifier is another router, for every neighbour"),
    live("router.stall-timeout", "the next look for stalled work obeys it"),
    live("router.stall-exit", "the next look for stalled work obeys it"),
    sessions(
        "bgp",
        "the table as a whole: every session begins, or ends with Cease, Peer De-configured, and its routes leave the FIB; static and \
         connected routes last",
    ),
    live(
        "bgp.listen",
        "an address that stays keeps its socket, a new one is bound, and one that goes takes no further connection; established sessions last",
    ),
    sessions(
        "bgp.confederation",
        "every session, if the identifier changes; else those whose neighbours become members or cease to be",
    ),
    live(
        "bgp.cluster-id",
        "internal peers get reflected routes again, with the new id, and their own are checked again (with a route refresh, unless they \
         are kept); only one without route refresh begins a new session",
    ),
    live(
        "bgp.shards",
        "the routes move to the new number of threads, as by `ribtide config bgp shards`; from or to `\"off\"` the readers and one shard \
         move between their threads and the session thread",
    ),
    live(
        "bgp.update-threads",
        "new sessions get the new threads; a session stays with its thread, and a thread in excess ends with its last session; from or \
         to `\"off\"` all of them move between their threads and the session thread",
    ),
    live("bgp.cpus", CPUS),
    live("bgp.numa-node", CPUS),
    live("bgp.recorder-bytes", "the next message is kept with it, and what exceeds it is dropped"),
    live("bgp.always-compare-med", SELECTED_AGAIN),
    live("bgp.deterministic-med", SELECTED_AGAIN),
    live("bgp.med-missing-as-worst", SELECTED_AGAIN),
    live("bgp.prefer-oldest", SELECTED_AGAIN),
    live("bgp.multipath", SELECTED_AGAIN),
    live("bgp.multipath-relax", SELECTED_AGAIN),
    live("bgp.link-bandwidth-ext-community", SELECTED_AGAIN),
    live("bgp.backup-path", SELECTED_AGAIN),
    live("bgp.originate", "other routes are originated"),
    live("bgp.aggregate", "aggregates come, go and change with what they suppress"),
    live("bgp.graceful-restart with another selection-deferral-time", "the next start obeys it"),
    live("rpki", "the table as a whole: the thread starts or ends; without it every route is not-found"),
    live(
        "rpki.cache",
        "new caches are connected, removed ones closed; another preference or other intervals keep connection and records",
    ),
    live("rpki.slurm", "local exceptions are applied to the present records"),
    live(
        "bmp",
        "the table as a whole: the thread starts, and stations get whole tables; or it ends, and they get a Termination",
    ),
    live("bmp.system-name", "each station gets it in a new session"),
    live("bmp.system-description", "each station gets it in a new session"),
    live(
        "bmp.station",
        "new stations are connected, removed ones get a Termination; another address or other views begin a new session of the station",
    ),
    live("mrt", "the table as a whole: the thread starts; or it ends, and completes the file of updates"),
    live("mrt.table", "a dump under way is dropped, and the next one obeys it"),
    live("mrt.updates", "the present file is completed, and another one begun"),
    live(
        "fib",
        "the table as a whole: dataplanes get every route, and routes whose next hops do not resolve leave neighbours; or dataplanes lose \
         all, and every next hop counts as reachable",
    ),
    live(
        "fib.kernel",
        "a new kernel dataplane gets every route; a removed one's routes are removed from the kernel. With other settings it starts again \
         and takes its routes over, unless table, protocol or metric are others: then they are removed first",
    ),
    live("fib.fpm", "a new server gets every route; our routes are deleted from one that is removed"),
    live(
        "fib.fpm-next-hop-groups",
        "each server gets every route in a new connection, and keeps the former ones meanwhile",
    ),
    live("fib.fpm-reconcile-interval", "the round under way ends, and the next one takes so long"),
    live("fib.virtual-asic", ASICS),
    live("fib.asic", ASICS),
    live("fib.resolve-via-default", RESOLVED_AGAIN),
    live("fib.max-ecmp", RESOLVED_AGAIN),
    live("fib.underlay-weights", RESOLVED_AGAIN),
    live("fib.nexthop-cache", "the cache changes its mode, and no route changes"),
    live("fib.suppress-fib-pending", "best paths wait for dataplanes, or waiting ones are advertised"),
    live("fib.on-stop", "the next stop obeys it"),
    live("fib.policy", "only routes with another policy result change in the FIB"),
    live("api.socket", "the new socket is bound, and the old one removed; requests under way are answered"),
    live("api.socket-mode", "a socket with this mode takes the place of the present one"),
    live("api.socket-group", "a socket of this group takes the place of the present one"),
    live("api.http", "the new address is bound, and the old one closed; requests under way are answered"),
    live("api.http-hosts", "the next requests over TCP are checked with it"),
    live(
        "api.token-file",
        "changes over TCP take the new token, or are refused where there is none any more",
    ),
    live("api.read-token-file", "reads over TCP that need a token take the new one"),
    live("api.tls-certificate", CERTIFICATE),
    live("api.tls-key", CERTIFICATE),
    live("api.tls-client-ca", CERTIFICATE),
    live(
        "bfd.listen",
        "BFD sessions begin again from the new addresses, after AdminDown, which is no failure; BGP sessions last",
    ),
    live(
        "interface",
        "ports, addresses and neighbours of virtual ASICs come, go and change; only next hops over them are resolved again. A neighbour \
         by interface whose interface gets its first table, or loses it, begins a new session",
    ),
    restart("process.user", "a privilege that was given up does not come back"),
    live("process.seccomp", "a stricter filter of system calls is added to every thread"),
    restart(
        "process.seccomp to a weaker filter",
        "the kernel removes no filter of system calls that is in force",
    ),
];

/// The changed settings of the whole router, in the order of [`SETTINGS`]. Every setting is listed, so that a new one does not
/// compile without a decision.
pub(crate) fn changed(old: &Config, new: &Config) -> Vec<&'static Setting> {
    let mut names: Vec<&'static str> = Vec::new();
    let mut key = |name: &'static str, same: bool| {
        if !same {
            names.push(name);
        }
    };
    let Config {
        asn,
        router_id,
        stall_timeout,
        stall_exit,
        bgp,
        rpki,
        bmp,
        mrt,
        fib,
        api,
        log: _,
        process,
        interfaces,
        statics: _,
        vrfs: _,
        bfd,
        files: _,
        shown: _,
        // Warnings.
        without_effect: _,
    } = new;
    key("router.asn", *asn == old.asn);
    key("router.router-id", *router_id == old.router_id);
    key("router.stall-timeout", *stall_timeout == old.stall_timeout);
    key("router.stall-exit", *stall_exit == old.stall_exit);
    match (fib, &old.fib) {
        (Some(new), Some(old)) => of_fib(old, new, &mut key),
        (None, None) => {}
        _ => key("fib", false),
    }
    let ApiConfig {
        socket,
        socket_mode,
        socket_group,
        http,
        http_hosts,
        token_file,
        token,
        read_token_file,
        read_token,
        tls,
    } = api;
    key("api.socket", *socket == old.api.socket);
    key("api.socket-mode", *socket_mode == old.api.socket_mode);
    key("api.socket-group", *socket_group == old.api.socket_group);
    key("api.http", *http == old.api.http);
    key("api.http-hosts", *http_hosts == old.api.http_hosts);
    key("api.token-file", *token_file == old.api.token_file && *token == old.api.token);
    key(
        "api.read-token-file",
        *read_token_file == old.api.read_token_file && *read_token == old.api.read_token,
    );
    // A certificate and its key change together.
    key("api.tls-certificate", *tls == old.api.tls);
    key("api.tls-key", *tls == old.api.tls);
    let client_ca = |api: &ApiConfig| Some(api.tls.as_ref()?.client_ca.clone());
    key("api.tls-client-ca", client_ca(api) == client_ca(&old.api));
    let ProcessConfig { user, seccomp } = process;
    key("process.user", *user == old.process.user);
    let is_stricter = old.process.seccomp.can_become(*seccomp);
    key("process.seccomp", *seccomp == old.process.seccomp || !is_stricter);
    key("process.seccomp to a weaker filter", is_stricter);
    key("interface", interfaces.iter().map(described).eq(old.interfaces.iter().map(described)));
    key("bfd.listen", bfd.listen == old.bfd.listen);
    match (rpki, &old.rpki) {
        (Some(new), Some(old)) => {
            key("rpki.cache", new.caches == old.caches);
            key("rpki.slurm", new.exceptions == old.exceptions);
        }
        (None, None) => {}
        _ => key("rpki", false),
    }
    match (bmp, &old.bmp) {
        (Some(new), Some(old)) => {
            key("bmp.system-name", new.system_name == old.system_name);
            key("bmp.system-description", new.system_description == old.system_description);
            key("bmp.station", new.stations == old.stations);
        }
        (None, None) => {}
        _ => key("bmp", false),
    }
    match (mrt, &old.mrt) {
        (Some(new), Some(old)) => {
            key("mrt.table", new.table == old.table);
            key("mrt.updates", new.updates == old.updates);
        }
        (None, None) => {}
        _ => key("mrt", false),
    }
    match (bgp, &old.bgp) {
        (Some(new), Some(old)) => of_bgp(old, new, &mut key),
        (None, None) => {}
        _ => key("bgp", false),
    }
    SETTINGS.iter().filter(|setting| names.contains(&setting.name)).collect()
}

/// The same for the API.
pub(crate) fn for_api(old: &Config, new: &Config) -> Vec<SettingEffect> {
    let of = |setting: &&Setting| SettingEffect {
        name: setting.name.into(),
        resets: setting.effect.name().into(),
        note: setting.note.into(),
    };
    changed(old, new).iter().map(of).collect()
}

fn of_fib(old: &FibConfig, new: &FibConfig, key: &mut impl FnMut(&'static str, bool)) {
    let FibConfig {
        kernel,
        fpm,
        fpm_next_hop_groups,
        fpm_reconcile_interval,
        asics,
        resolve_via_default,
        nexthop_cache,
        suppress_fib_pending,
        max_ecmp,
        underlay_weights,
        on_stop,
        policy,
    } = new;
    key("fib.kernel", *kernel == old.kernel);
    key("fib.fpm", *fpm == old.fpm);
    key("fib.fpm-next-hop-groups", *fpm_next_hop_groups == old.fpm_next_hop_groups);
    key("fib.fpm-reconcile-interval", *fpm_reconcile_interval == old.fpm_reconcile_interval);
    let unnamed = |asics: &BTreeMap<String, _>| asics.contains_key(VIRTUAL_ASIC);
    let named = !unnamed(asics) && !unnamed(&old.asics);
    key(if named { "fib.asic" } else { "fib.virtual-asic" }, *asics == old.asics);
    key("fib.resolve-via-default", *resolve_via_default == old.resolve_via_default);
    key("fib.max-ecmp", *max_ecmp == old.max_ecmp);
    key("fib.underlay-weights", *underlay_weights == old.underlay_weights);
    key("fib.nexthop-cache", *nexthop_cache == old.nexthop_cache);
    key("fib.suppress-fib-pending", *suppress_fib_pending == old.suppress_fib_pending);
    key("fib.on-stop", *on_stop == old.on_stop);
    key("fib.policy", *policy == old.policy);
}

fn of_bgp(old: &BgpConfig, new: &BgpConfig, key: &mut impl FnMut(&'static str, bool)) {
    let BgpConfig {
        confederation,
        listen,
        shards,
        update_threads,
        cpus,
        cluster_id,
        recorder_bytes,
        always_compare_med,
        deterministic_med,
        med_missing_as_worst,
        prefer_oldest,
        multipath,
        multipath_relax,
        link_bandwidth,
        backup_path,
        originate,
        selection_deferral_time,
        neighbors: _,
        dynamic: _,
        interfaces: _,
    } = new;
    key("bgp.confederation", *confederation == old.confederation);
    key("bgp.listen", *listen == old.listen);
    key("bgp.shards", *shards == old.shards);
    key("bgp.update-threads", *update_threads == old.update_threads);
    key("bgp.cpus", *cpus == old.cpus);
    key("bgp.cluster-id", *cluster_id == old.cluster_id);
    key("bgp.recorder-bytes", *recorder_bytes == old.recorder_bytes);
    key("bgp.always-compare-med", *always_compare_med == old.always_compare_med);
    key("bgp.deterministic-med", *deterministic_med == old.deterministic_med);
    key("bgp.med-missing-as-worst", *med_missing_as_worst == old.med_missing_as_worst);
    key("bgp.prefer-oldest", *prefer_oldest == old.prefer_oldest);
    key("bgp.multipath", *multipath == old.multipath);
    key("bgp.multipath-relax", *multipath_relax == old.multipath_relax);
    key("bgp.link-bandwidth-ext-community", *link_bandwidth == old.link_bandwidth);
    key("bgp.backup-path", *backup_path == old.backup_path);
    let OriginateConfig { networks, require_route, policies, aggregates } = originate;
    let former = &old.originate;
    key(
        "bgp.originate",
        (networks, require_route, policies) == (&former.networks, &former.require_route, &former.policies),
    );
    key("bgp.aggregate", *aggregates == former.aggregates);
    key(
        "bgp.graceful-restart with another selection-deferral-time",
        *selection_deferral_time == old.selection_deferral_time,
    );
}

/// An interface without its number, which may come from the system.
fn described(interface: &InterfaceConfig) -> impl PartialEq + '_ {
    let InterfaceConfig { index: _, name, addresses, neighbors } = interface;
    (name, addresses, neighbors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_config as config;

    fn config(text: &str) -> Config {
        config::parse(&format!("[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n{text}")).unwrap()
    }

    fn names(old: &str, new: &str, effect: impl Fn(Effect) -> bool) -> Vec<&'static str> {
        let changed = changed(&config(old), &config(new));
        changed.iter().filter(|setting| effect(setting.effect)).map(|setting| setting.name).collect()
    }

    #[test]
    fn what_takes_a_restart_is_named_and_the_rest_is_not() {
        let restarts = |old: &str, new: &str| names(old, new, |effect| effect == Effect::Restart);
        let old = "[bgp]\nshards = 2\n[fib]\n";
        let soft = "[fib]\nnexthop-cache = \"epoch\"\nmax-ecmp = 16\n[bgp]\nshards = 7\nprefer-oldest = true\n\
                    cluster-id = \"10.0.0.9\"\nlisten = [\"127.0.0.1:179\"]\n[api]\nsocket = \"/tmp/x\"\n[[rpki.cache]]\naddress = \"192.0.2.9\"\n[bgp.group.g]\ntype = \"external\"\n\
                    peer-asn = 65002\nneighbors = [\"192.0.2.1\"]\n";
        assert_eq!(restarts(old, soft), [""; 0]);
        assert_eq!(
            names(old, soft, |_| true),
            [
                "bgp.listen",
                "bgp.cluster-id",
                "bgp.shards",
                "bgp.prefer-oldest",
                "rpki",
                "fib.max-ecmp",
                "fib.nexthop-cache",
                "api.socket"
            ]
        );
        let hosted = "[bgp]\nshards = \"off\"\nupdate-threads = \"off\"\n[fib]\nfpm-next-hop-groups = true\n";
        assert_eq!(restarts(old, hosted), [""; 0]);
        let hard = "[bgp]\nshards = 2\n[fib]\n[process]\nseccomp = false\n";
        assert_eq!(restarts(old, hard), ["process.seccomp to a weaker filter"]);
        assert_eq!(names(hard, old, |effect| effect == Effect::Live), ["process.seccomp"]);
        assert_eq!(names("[bgp]\n", "[bgp]\nupdate-threads = 2\n", |_| true), ["bgp.update-threads"]);
        assert_eq!(restarts(old, ""), [""; 0]);
        assert_eq!(names(old, "", |effect| effect == Effect::Sessions), ["bgp"]);
    }

    #[test]
    fn every_setting_has_one_row_and_a_note() {
        for (at, setting) in SETTINGS.iter().enumerate() {
            assert!(SETTINGS[..at].iter().all(|other| other.name != setting.name), "{}", setting.name);
            assert!(!setting.note.is_empty() && !setting.note.ends_with('.'), "{}", setting.name);
        }
    }
}
