//! Reload of the configuration file: applies all changes, or none if one of them needs a restart.

use crate::vrf_numbers::VrfNumbers;
use ribtide_api::{Reload, RouterState, resized};
use ribtide_bgpd::Bgp;
use ribtide_bgpd::resize::{NotResized, Resized};
use ribtide_bgpd::session::Neighbors;
use ribtide_config::{
    self as config, ApiConfig, BgpConfig, Config, ConfigError, FibConfig, InterfaceConfig, ProcessConfig,
    Threads, VIRTUAL_ASIC, VrfSetup,
};
use ribtide_dataplane::kernel::InterfaceWatch;
use ribtide_model::{NextHopCacheSet, Reloaded, SuppressionSet};
use ribtide_ribd::{RibHandle, VrfsChanged, VrfsSetup};
use ribtide_runtime::call::NoReply;
use ribtide_runtime::log::{self, target};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Why a reload changed nothing. Displays as a sentence, or as `ribtide check` would.
#[derive(Debug)]
pub enum NotReloaded {
    /// The router was not started from a file.
    NoFile,
    /// The file cannot be used.
    Invalid(ConfigError),
    /// These keys cannot change while the router runs.
    Fixed(Vec<String>),
    /// Another reload is under way.
    Busy,
    /// The number of shards.
    Shards(NotResized),
    /// BFD.
    Bfd(io::Error),
    /// The BFD thread does not reply.
    NoBfd(NoReply),
    /// The RPKI thread does not reply.
    NoRpki(NoReply),
    /// The BMP or the MRT thread does not reply.
    NoMonitor(NoReply),
    /// The neighbours.
    Neighbors(String),
    /// The session thread does not reply.
    NoReply(NoReply),
    /// The RIB manager, or a later stage, does not reply.
    NoRib(NoReply),
    /// A VRF is not as required.
    Vrf(String),
}

impl fmt::Display for NotReloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReloaded::NoFile => {
                write!(
                    f,
                    "this router was not started from a file; `ribtide run -c FILE` starts one that can reload it"
                )
            }
            NotReloaded::Invalid(e) => e.fmt(f),
            NotReloaded::Fixed(keys) => write!(
                f,
                "nothing is reloaded, because {} cannot change while the router runs; restart it, or change {} back",
                keys.join(", "),
                if keys.len() == 1 { "it" } else { "them" }
            ),
            NotReloaded::Vrf(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::Busy => write!(f, "a reload is under way; try again when it is done"),
            NotReloaded::Shards(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::Bfd(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::NoBfd(e) | NotReloaded::NoRpki(e) | NotReloaded::NoMonitor(e) => {
                write!(f, "nothing is reloaded: {e}")
            }
            NotReloaded::Neighbors(e) => write!(f, "no neighbour is reloaded: {e}"),
            NotReloaded::NoReply(e) => write!(f, "no neighbour is reloaded: {e}"),
            NotReloaded::NoRib(e) => {
                write!(f, "neighbours are reloaded, and routes, VRFs and the [fib] table may not be: {e}")
            }
        }
    }
}

impl std::error::Error for NotReloaded {}

/// The state for reloads: the router, and more.
pub(crate) struct Reloader {
    router: Arc<RouterState>,
    /// The file.
    file: Option<PathBuf>,
    /// Locked during a reload; the numbers of VRFs.
    numbers: Mutex<VrfNumbers>,
    /// The watch of the interfaces of the kernel, without a kernel dataplane.
    links: Option<InterfaceWatch>,
}

impl Reloader {
    /// For a router started from `file`, with these numbers of VRFs.
    pub(crate) fn new(
        router: Arc<RouterState>,
        file: Option<PathBuf>,
        numbers: VrfNumbers,
        links: Option<InterfaceWatch>,
    ) -> Reloader {
        Reloader { router, file, numbers: Mutex::new(numbers), links }
    }

    /// The reload function of the API.
    pub(crate) fn for_api(self: Arc<Self>) -> Reload {
        Box::new(move || self.reload().map_err(|e| e.to_string()))
    }

    /// Reads the file again and applies its changes, those that may fail first.
    ///
    /// # Errors
    /// Why nothing changed. After [`NotReloaded::Shards`] BFD sessions and RPKI caches may have changed; after
    /// [`NotReloaded::Neighbors`] and [`NotReloaded::NoReply`] also the number of shards; after
    /// [`NotReloaded::NoRib`] everything except static routes, VRFs and the `[fib]` table.
    pub(crate) fn reload(&self) -> Result<Reloaded, NotReloaded> {
        let router = &*self.router;
        let Some(file) = &self.file else { return Err(NotReloaded::NoFile) };
        let Ok(mut numbers) = self.numbers.try_lock() else { return Err(NotReloaded::Busy) };
        let mut new = config::load(file).map_err(NotReloaded::Invalid)?;
        let fixed = fixed(&router.config(), &new);
        if !fixed.is_empty() {
            return Err(NotReloaded::Fixed(fixed));
        }
        // With the numbers of the start.
        new.interfaces.clone_from(&router.config().interfaces);
        let leaving = match &router.rib {
            Some(rib) => rib.handle.call(|stage| stage.rib.leaving().collect()),
            None => Ok(Vec::new()),
        };
        let leaving = leaving.map_err(|e| NotReloaded::Vrf(e.to_string()))?;
        let vrfs = numbers.number(&new, leaving).map_err(NotReloaded::Vrf)?;
        let requested = new.bfd.clone();
        let bfd = router.bfd.handle.wait(move |bfd| bfd.configure(&requested));
        let bfd = bfd.map_err(NotReloaded::NoBfd)?.map_err(NotReloaded::Bfd)?;
        let rpki = match (&router.rpki, &new.rpki) {
            (Some(running), Some(rpki)) => {
                let rpki = rpki.clone();
                running.wait(move |engine| engine.configure(&rpki)).map_err(NotReloaded::NoRpki)?
            }
            _ => ribtide_rpkid::Changes::default(),
        };
        let (bmp, mrt) = reconfigure_monitors(router, &new)?;
        let (shards, neighbors) = match (&router.bgp, &new.bgp) {
            (Some(running), Some(bgp)) => (resize(router, running, bgp)?, reconfigure(running, bgp)?),
            _ => (None, Neighbors::default()),
        };
        let former = router.config();
        let (nexthop_cache, suppression, fib_policy) = match (&router.rib, &new.fib) {
            (Some(rib), Some(fib)) => {
                let (mode, suppress) = (fib.nexthop_cache, fib.suppress_fib_pending);
                let before = rib.set_cache_mode(mode).map_err(NotReloaded::NoRib)?;
                let suppressed = rib.suppress(suppress).map_err(NotReloaded::NoRib)?;
                let other = former.fib.as_ref().is_none_or(|former| former.policy != fib.policy);
                if other {
                    rib.set_policy(fib.policy.clone()).map_err(NotReloaded::NoRib)?;
                }
                let redistribution = |config: &Config| Some(config.bgp.as_ref()?.originate.redistribution());
                let wanted = redistribution(&new);
                if wanted != redistribution(&former) {
                    rib.set_redistribution(wanted.unwrap_or_default()).map_err(NotReloaded::NoRib)?;
                }
                let cache = NextHopCacheSet { from: before.name().into(), to: mode.name().into() };
                (
                    (before != mode).then_some(cache),
                    (suppressed != suppress).then_some(SuppressionSet { from: suppressed, to: suppress }),
                    other,
                )
            }
            _ => (None, None, false),
        };
        if let Some(links) = &self.links {
            links.set_vrfs(&vrfs);
        }
        let changed = match &router.rib {
            Some(rib) => set_vrfs(router, rib, &new, &vrfs).map_err(NotReloaded::NoRib)?,
            None => VrfsChanged::default(),
        };
        numbers.vrfs = vrfs;
        let api_token = former.api.token != new.api.token;
        let other_log = former.log != new.log;
        let originated = |config: &Config| config.bgp.as_ref().map(|bgp| bgp.originate.clone());
        let originate = originated(&former) != originated(&new);
        log::reconfigure(&new.log);
        let known = former.warnings();
        for warning in new.warnings().iter().filter(|warning| !known.contains(warning)) {
            tracing::warn!(target: target::ROUTER, file = %file.display(), "{warning}");
        }
        router.configure(new);
        Ok(Reloaded {
            file: file.clone(),
            shards: shards.map(resized),
            nexthop_cache,
            suppression,
            api_token,
            fib_policy,
            originate,
            rpki: rpki != ribtide_rpkid::Changes::default(),
            bmp,
            mrt,
            log: other_log,
            vrfs_added: changed.added,
            vrfs_removed: changed.removed,
            static_routes: changed.statics,
            vrf_policies: changed.policies,
            added: neighbors.added,
            removed: neighbors.removed,
            reset: neighbors.reset,
            refreshed: neighbors.refreshed,
            shut_down: neighbors.shut_down,
            started: neighbors.started,
            bfd_added: bfd.added,
            bfd_removed: bfd.removed,
            bfd_changed: bfd.changed,
        })
    }
}

/// A dataplane knows a VRF before its first route, and until after its last.
fn set_vrfs(
    router: &RouterState,
    rib: &RibHandle,
    new: &Config,
    vrfs: &[VrfSetup],
) -> Result<VrfsChanged, NoReply> {
    for asic in router.asics.values() {
        asic.set_vrfs(vrfs)?;
    }
    let changed = rib.set_vrfs(VrfsSetup::new(new, vrfs.to_vec()))?;
    for asic in router.asics.values() {
        asic.drop_other_vrfs(vrfs)?;
    }
    if let Some(kernel) = &router.kernel {
        kernel.set_vrfs(vrfs);
    }
    Ok(changed)
}

fn resize(router: &RouterState, running: &Bgp, bgp: &BgpConfig) -> Result<Option<Resized>, NotReloaded> {
    if bgp.shards == Threads::Off {
        return Ok(None);
    }
    let rib = router.rib.as_ref().map(|rib| &rib.handle);
    let resized = running.resize(bgp.shards, rib).map_err(NotReloaded::Shards)?;
    Ok(Some(resized).filter(|resized| resized.from != resized.to))
}

fn reconfigure(running: &Bgp, bgp: &BgpConfig) -> Result<Neighbors, NotReloaded> {
    let bgp = Arc::new(bgp.clone());
    let changed = running.sessions.wait(move |sessions| sessions.reconfigure(&bgp));
    changed.map_err(NotReloaded::NoReply)?.map_err(NotReloaded::Neighbors)
}

/// Applies the `[bmp]` and `[mrt]` tables. Returns whether they changed something.
fn reconfigure_monitors(router: &RouterState, new: &Config) -> Result<(bool, bool), NotReloaded> {
    let (mut stations, mut files) = (ribtide_bmpd::Changes::default(), ribtide_mrtd::Changes::default());
    if let (Some(running), Some(bmp)) = (&router.bmp, new.bmp.clone()) {
        let changed = running.handle.wait(move |engine| engine.configure(&bmp));
        stations = changed.map_err(NotReloaded::NoMonitor)?;
    }
    if let (Some(running), Some(mrt)) = (&router.mrt, new.mrt.clone()) {
        // It may wait for the disk, and then is busy; it is not to wait for that.
        let changed = running.handle.call(move |engine| engine.configure(&mrt));
        files = changed.map_err(NotReloaded::NoMonitor)?;
    }
    Ok((stations != ribtide_bmpd::Changes::default(), files != ribtide_mrtd::Changes::default()))
}

/// The changed keys that need a restart. Every setting is listed, so that a new one does not
/// compile without a decision.
fn fixed(old: &Config, new: &Config) -> Vec<String> {
    let mut keys = Vec::new();
    let mut key = |name: &str, same: bool| {
        if !same {
            keys.push(name.to_owned());
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
    } = new;
    key("router.asn", *asn == old.asn);
    key("router.router-id", *router_id == old.router_id);
    key("router.stall-timeout", *stall_timeout == old.stall_timeout);
    key("router.stall-exit", *stall_exit == old.stall_exit);
    match (fib, &old.fib) {
        (Some(new), Some(old)) => {
            let FibConfig {
                kernel,
                fpm,
                fpm_next_hop_groups,
                asics,
                resolve_via_default,
                nexthop_cache: _,
                suppress_fib_pending: _,
                max_ecmp,
                underlay_weights,
                // The value at the time of the stop counts.
                on_stop: _,
                policy: _,
            } = new;
            key("fib.kernel", *kernel == old.kernel);
            key("fib.fpm", *fpm == old.fpm);
            key("fib.fpm-next-hop-groups", *fpm_next_hop_groups == old.fpm_next_hop_groups);
            let unnamed = |asics: &BTreeMap<String, _>| asics.contains_key(VIRTUAL_ASIC);
            let named = !unnamed(asics) && !unnamed(&old.asics);
            key(if named { "fib.asic" } else { "fib.virtual-asic" }, *asics == old.asics);
            key("fib.resolve-via-default", *resolve_via_default == old.resolve_via_default);
            key("fib.max-ecmp", *max_ecmp == old.max_ecmp);
            key("fib.underlay-weights", *underlay_weights == old.underlay_weights);
        }
        (None, None) => {}
        _ => key("fib", false),
    }
    let ApiConfig { socket, socket_mode, socket_group, http, http_hosts: _, token_file: _, token: _ } = api;
    key("api.socket", *socket == old.api.socket);
    key("api.socket-mode", *socket_mode == old.api.socket_mode);
    key("api.socket-group", *socket_group == old.api.socket_group);
    key("api.http", *http == old.api.http);
    let ProcessConfig { user, seccomp } = process;
    key("process.user", *user == old.process.user);
    key("process.seccomp", *seccomp == old.process.seccomp);
    key("interface", interfaces.iter().map(described).eq(old.interfaces.iter().map(described)));
    key("bfd.listen", bfd.listen == old.bfd.listen);
    key("rpki (the table as a whole)", rpki.is_some() == old.rpki.is_some());
    key("bmp (the table as a whole)", bmp.is_some() == old.bmp.is_some());
    key("mrt (the table as a whole)", mrt.is_some() == old.mrt.is_some());
    match (bgp, &old.bgp) {
        (Some(new), Some(old)) => {
            let BgpConfig {
                confederation,
                listen,
                shards,
                update_threads,
                cpus,
                cluster_id,
                always_compare_med,
                deterministic_med,
                med_missing_as_worst,
                prefer_oldest,
                multipath,
                multipath_relax,
                link_bandwidth,
                backup_path,
                originate: _,
                neighbors: _,
                dynamic: _,
            } = new;
            key("bgp.confederation", *confederation == old.confederation);
            key("bgp.listen", *listen == old.listen);
            let off = |threads: Threads| threads == Threads::Off;
            key("bgp.shards (from or to \"off\")", off(*shards) == off(old.shards));
            key("bgp.update-threads", *update_threads == old.update_threads);
            key("bgp.cpus and bgp.numa-node", *cpus == old.cpus);
            key("bgp.cluster-id", *cluster_id == old.cluster_id);
            key("bgp.always-compare-med", *always_compare_med == old.always_compare_med);
            key("bgp.deterministic-med", *deterministic_med == old.deterministic_med);
            key("bgp.med-missing-as-worst", *med_missing_as_worst == old.med_missing_as_worst);
            key("bgp.prefer-oldest", *prefer_oldest == old.prefer_oldest);
            key("bgp.multipath", *multipath == old.multipath);
            key("bgp.multipath-relax", *multipath_relax == old.multipath_relax);
            key("bgp.link-bandwidth-ext-community", *link_bandwidth == old.link_bandwidth);
            key("bgp.backup-path", *backup_path == old.backup_path);
        }
        (None, None) => {}
        _ => key("bgp", false),
    }
    keys
}

/// An interface without its number, which may come from the system.
fn described(interface: &InterfaceConfig) -> impl PartialEq + '_ {
    let InterfaceConfig { index: _, name, addresses, neighbors } = interface;
    (name, addresses, neighbors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        config::parse(&format!("[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n{text}")).unwrap()
    }

    #[test]
    fn what_cannot_change_is_named_and_the_rest_is_not() {
        let old = config("[bgp]\nshards = 2\n[fib]\n");
        let soft = config(
            "[fib]\nnexthop-cache = \"epoch\"\n[bgp]\nshards = 7\n[bgp.group.g]\ntype = \"external\"\npeer-asn = 65002\nneighbors = [\"192.0.2.1\"]\n",
        );
        assert_eq!(fixed(&old, &soft), [""; 0]);
        let hard = config(
            "[bgp]\nshards = \"off\"\nlisten = [\"127.0.0.1:179\"]\nprefer-oldest = true\n[api]\nsocket = \"/tmp/x\"\n\
             [fib]\nmax-ecmp = 16\n",
        );
        let keys = [
            "fib.max-ecmp",
            "api.socket",
            "bgp.listen",
            "bgp.shards (from or to \"off\")",
            "bgp.prefer-oldest",
        ];
        assert_eq!(fixed(&old, &hard), keys);
        assert_eq!(fixed(&old, &config("")), ["fib", "bgp"]);
        let message =
            NotReloaded::Fixed(fixed(&old, &config("[bgp]\nupdate-threads = 64\n[fib]\n"))).to_string();
        assert_eq!(
            message,
            "nothing is reloaded, because bgp.update-threads cannot change while the router runs; restart it, or change it \
             back"
        );
    }
}
