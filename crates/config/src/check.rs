//! Checks of the configuration file: defaults, ranges, and combinations that are refused.

use super::add_path::AddPathConfig;
use super::api::ApiConfig;
use super::as_numbers::AsNumbers;
use super::bfd::{BfdConfig, BfdPeer, BfdSession, BfdSettings};
use super::confederation::ConfederationConfig;
use super::default_originate::DefaultOriginateConfig;
use super::diagnosis::{Problem, Step, Warning, key};
use super::fib::FibConfig;
use super::file;
use super::graceful_restart::{GracefulRestartConfig, GracefulRestartTable};
use super::interfaces::InterfaceNeighbor;
use super::max_prefixes::MaxPrefixesConfig;
use super::monitoring::{BmpConfig, MrtConfig};
use super::originate::OriginateConfig;
use super::policy::{Direction, Policies};
use super::process::ProcessConfig;
use super::rpki::RpkiConfig;
use super::session::{is_multihop, missing_policies};
use super::shown::ShownConfig;
use super::statics::{Place, StaticRoute};
use super::tcp_ao::{Secret, TcpAoConfig};
use super::threads::{CpuChoice, Threads};
use super::vrf::VrfConfig;
use ribtide_bgp::ingest::Martians;
use ribtide_bgp::peer::{FamilySet, MOST_PEERS, PeerKind};
use ribtide_policy::Policy;
use ribtide_prefix::AnyPrefix;
use ribtide_runtime::log::{Format, Levels, LogSettings};
use ribtide_runtime::watchdog::{self, STALL_TIMEOUT};
use ribtide_settings::RequestedSettings;
use ribtide_wire::bgp::role::Role;
use ribtide_wire::bgp::update::AttributeFilter;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A checked configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Our AS.
    pub asn: u32,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// The time without progress after which work counts as stalled; zero: never.
    pub stall_timeout: Duration,
    /// The time after which a stall of this process's own ends it, at least `stall_timeout`; zero:
    /// never.
    pub stall_exit: Duration,
    /// BGP, when configured.
    pub bgp: Option<BgpConfig>,
    /// Origin validation, when configured.
    pub rpki: Option<RpkiConfig>,
    /// BMP, when configured.
    pub bmp: Option<BmpConfig>,
    /// MRT files, when configured.
    pub mrt: Option<MrtConfig>,
    /// The dataplanes; `None`: no routes are installed (a route reflector).
    pub fib: Option<FibConfig>,
    /// The management interface.
    pub api: ApiConfig,
    /// The log.
    pub log: LogSettings,
    /// The privileges of the process.
    pub process: ProcessConfig,
    /// Configured interfaces, which no kernel has.
    pub interfaces: Vec<InterfaceConfig>,
    /// Static routes of the default VRF.
    pub statics: Vec<StaticRoute>,
    /// BFD, with the sessions of neighbours and static routes.
    pub bfd: BfdConfig,
    /// The other VRFs.
    pub vrfs: BTreeMap<String, VrfConfig>,
    /// The files that the configuration names: prefix sets, local exceptions and the token.
    pub files: Vec<PathBuf>,
    /// What it was read from.
    pub shown: ShownConfig,
    /// Policies, statements and sets without effect.
    pub without_effect: WithoutEffect,
}

/// `bgp.recorder-bytes` unless set: two UPDATEs of the longest kind, or some 70 usual ones.
const RECORDER_BYTES: usize = 8 * 1024;
/// The most that it can be.
const RECORDER_BYTES_MAX: usize = 1 << 20;

/// The `[bgp]` table.
#[derive(Clone, PartialEq, Debug)]
pub struct BgpConfig {
    /// Addresses to accept sessions on.
    pub listen: Vec<SocketAddr>,
    /// Shard threads.
    pub shards: Threads,
    /// Egress worker threads.
    pub update_threads: Threads,
    /// The CPUs of BGP's threads.
    pub cpus: CpuChoice,
    /// Our cluster id (RFC 4456); the router id unless set.
    pub cluster_id: Ipv4Addr,
    /// Bytes of the last messages that are kept of each neighbour, in each of its rings; 0: none.
    pub recorder_bytes: usize,
    /// Compare MED between routes of different neighbouring ASes.
    pub always_compare_med: bool,
    /// Compare MED per neighbouring AS before anything else of lower rank, whatever the order of arrival.
    pub deterministic_med: bool,
    /// A route without MED ranks last, not first.
    pub med_missing_as_worst: bool,
    /// Prefer the oldest external path before the router id decides.
    pub prefer_oldest: bool,
    /// The most equal paths that a prefix is forwarded by.
    pub multipath: u16,
    /// Equal paths may be from different neighbouring ASes.
    pub multipath_relax: bool,
    /// Equal paths share traffic by their link bandwidths (RFC 10005).
    pub link_bandwidth: bool,
    /// Install the best of the other paths as a backup.
    pub backup_path: bool,
    /// The routes that this router originates.
    pub originate: OriginateConfig,
    /// The confederation that we are a member of.
    pub confederation: Option<ConfederationConfig>,
    /// The most time for which the selection of routes is deferred after a restart (RFC 4724 section 4.1).
    pub selection_deferral_time: Duration,
    /// Configured neighbours, by address.
    pub neighbors: BTreeMap<IpAddr, NeighborConfig>,
    /// Ranges of dynamic neighbours; the most specific one that contains an address counts.
    pub dynamic: Vec<DynamicRange>,
    /// Neighbours by interface; see [`BgpConfig::interface_neighbor`].
    pub interfaces: Vec<InterfaceNeighbor>,
}

/// A configured neighbour.
#[derive(Clone, PartialEq, Debug)]
pub struct NeighborConfig {
    /// Its address.
    pub address: IpAddr,
    /// The description.
    pub description: Option<String>,
    /// The settings that a group has, too.
    pub settings: NeighborSettings,
}

/// A range of dynamic neighbours.
#[derive(Clone, PartialEq, Debug)]
pub struct DynamicRange {
    /// The range.
    pub range: AnyPrefix,
    /// The settings of these neighbours.
    pub settings: NeighborSettings,
}

/// The accepted AS of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnyAsn {
    /// This one.
    Exactly(u32),
    /// Any but ours: `"external"`, or a dynamic neighbour of an external group without `peer-asn`.
    AnyExternal,
}

/// The settings of a neighbour, its group's and its own.
#[derive(Clone, PartialEq, Debug)]
pub struct NeighborSettings {
    /// The group's name.
    pub group: String,
    /// Its AS.
    pub peer_asn: AnyAsn,
    /// External or a client of our route server, of our confederation, internal or a client of our route reflector.
    pub kind: PeerKind,
    /// AS numbers of its sessions and paths.
    pub as_numbers: AsNumbers,
    /// The text for its operator with which it is shut down, empty for none; `None`: it is not shut down.
    pub shutdown: Option<String>,
    /// Move traffic away from it before a shutdown (RFC 8326); the policies contain what that changes.
    pub graceful_shutdown: bool,
    /// Wait for it to connect.
    pub passive: bool,
    /// Families to offer.
    pub families: FamilySet,
    /// Import policy.
    pub import: Arc<Policy>,
    /// Export policy.
    pub export: Arc<Policy>,
    /// The same for contributors that an aggregate suppresses; `None`: none is sent.
    pub unsuppress: Option<Arc<Policy>>,
    /// Hold time to offer, in seconds: 0 (none) or 3 and more.
    pub hold_time: u16,
    /// Seconds between attempts to connect.
    pub connect_retry: u16,
    /// Our address of the session; the system's choice unless set.
    pub local_address: Option<IpAddr>,
    /// The peer's TCP port.
    pub port: u16,
    /// Put our own address in NEXT_HOP also where the rule is to keep it.
    pub next_hop_self: bool,
    /// IP TTL of an external session; more than 1 also lets its next hops resolve recursively.
    pub multihop: Option<u8>,
    /// The most hops to it, 1 to 254, which the TTL of its packets must show (GTSM, RFC 5082); `None`: any.
    pub ttl_security: Option<u8>,
    /// Our role towards it (RFC 9234).
    pub role: Option<Role>,
    /// Refuse it if it sends no role.
    pub role_strict: bool,
    /// TCP-MD5 key (RFC 2385).
    pub password: Option<Secret>,
    /// TCP-AO keys (RFC 5925); never together with `password`.
    pub tcp_ao: Option<Arc<TcpAoConfig>>,
    /// Watch the neighbour with BFD.
    pub bfd: Option<BfdSettings>,
    /// The session ends with the interface to the neighbour, where it is external and single-hop.
    pub fast_external_fallover: bool,
    /// Refuse its paths that do not begin with its AS (RFC 4271 section 6.3).
    pub enforce_first_as: bool,
    /// Accept Prefix-SIDs from this external neighbour, and send them to it (RFC 8669 sections 4 and 5); `false` for
    /// internal ones, which always have them.
    pub prefix_sid: bool,
    /// Accept AIGP from it, and send it to it (RFC 7311 section 3.3).
    pub aigp: bool,
    /// Keep its routes before import policy.
    pub keep_received: bool,
    /// Prefixes that are refused: `bgp.martians`.
    pub martians: Arc<Martians>,
    /// Attributes that are ignored from it.
    pub attributes: AttributeFilter,
    /// Maximum prefixes.
    pub max_prefixes: MaxPrefixesConfig,
    /// What a restart of it means for its routes.
    pub graceful_restart: GracefulRestartConfig,
    /// The families in which we receive or send several paths of a prefix (RFC 7911).
    pub add_path: AddPathConfig,
    /// Whether it gets the best of the paths that its export policy accepts (RFC 7947 section 2.3.2).
    pub best_path_per_client: bool,
    /// Whether IPv4 routes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// A default route of its own.
    pub default_originate: Option<DefaultOriginateConfig>,
}

impl Config {
    /// Whether next hops resolve over the kernel's interfaces, rather than over those of `[[interface]]` tables.
    pub fn uses_kernel_interfaces(&self) -> bool {
        let of_fib = |fib: &FibConfig| fib.kernel.is_some() || (fib.is_bare() && self.interfaces.is_empty());
        self.fib.as_ref().is_some_and(of_fib)
    }

    /// Warnings: valid settings that are probably not intended.
    pub fn warnings(&self) -> Vec<Warning> {
        let bare = self.fib.as_ref().is_some_and(FibConfig::is_bare);
        let nothing = "[fib] names no dataplane, so nothing is installed: there is a RIB, and next hops resolve, for \
                       `ribtide show` alone; set fib.kernel, fib.fpm or fib.virtual-asic, or remove [fib] for a route \
                       reflector without a RIB";
        let mut sentences: Vec<String> = bare.then(|| nothing.to_owned()).into_iter().collect();
        sentences.extend(self.bgp.iter().flat_map(missing_policies));
        sentences.extend(self.api.warnings());
        let of_places = self.without_effect.located.iter().cloned();
        sentences.into_iter().map(|message| Warning { place: None, message }).chain(of_places).collect()
    }
}

/// Policies, statements and sets without effect; [`Config::warnings`] has them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WithoutEffect {
    /// By their keys, until they are located.
    pub(super) found: Vec<Problem>,
    /// By their places in the file.
    pub(super) located: Vec<Warning>,
}

/// An `[[interface]]` table.
#[derive(Clone, PartialEq, Debug)]
pub struct InterfaceConfig {
    /// Its number: its place among the tables, from 1.
    pub index: u32,
    /// Its name, such as `Ethernet0`.
    pub name: String,
    /// Interface addresses with their subnets' lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Known neighbours.
    pub neighbors: Vec<(IpAddr, [u8; 6])>,
}

/// Checks a file and collects all problems. Paths of other files are relative to `folder`.
pub(super) fn check(file: &file::File, folder: &Path) -> Result<Config, Vec<Problem>> {
    let mut c = Checker {
        problems: Vec::new(),
        warnings: Vec::new(),
        policies: Policies::default(),
        bfd_defaults: (None, None, None),
        bfd_listens_to_all: true,
        fast_external_fallover: file.bgp.as_ref().and_then(|bgp| bgp.fast_external_fallover).unwrap_or(true),
        graceful_restart: file.bgp.as_ref().and_then(|bgp| bgp.graceful_restart),
        martians: Arc::new(Martians::default_list()),
        our_confederation: None,
        validates: file.rpki.is_some(),
        folder: folder.into(),
        files: Vec::new(),
    };
    let config = c.config(file, folder);
    if c.problems.is_empty() { Ok(config) } else { Err(c.problems) }
}

pub(super) struct Checker {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    pub(super) policies: Policies,
    /// Intervals and multiplier of BFD sessions that say nothing else.
    pub(super) bfd_defaults: (Option<u32>, Option<u32>, Option<u8>),
    /// Whether `bfd.listen` has `::`.
    pub(super) bfd_listens_to_all: bool,
    /// `bgp.fast-external-fallover`, for neighbours that say nothing else.
    fast_external_fallover: bool,
    /// What `bgp` sets for all neighbours.
    pub(super) graceful_restart: Option<GracefulRestartTable>,
    martians: Arc<Martians>,
    /// `bgp.confederation`.
    pub(super) our_confederation: Option<ConfederationConfig>,
    /// Whether there is an `[rpki]` table.
    pub(super) validates: bool,
    /// The folder from which paths of other files begin.
    pub(super) folder: PathBuf,
    /// Files that the configuration names.
    pub(super) files: Vec<PathBuf>,
}

impl Checker {
    pub(super) fn problem(&mut self, key: &[Step], message: impl Into<String>) {
        let problem = Problem::new(key, message);
        // A group's mistake is found again at each of its neighbours.
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// A valid setting that is probably not intended.
    pub(super) fn warn(&mut self, key: &[Step], message: impl Into<String>) {
        let warning = Problem::new(key, message);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn config(&mut self, file: &file::File, folder: &Path) -> Config {
        if file.router.asn == 0 {
            self.problem(key!["router", "asn"], "AS 0 is reserved (RFC 7607); write your AS number");
        }
        if file.router.router_id.is_unspecified() {
            self.problem(
                key!["router", "router-id"],
                "0.0.0.0 is no BGP identifier; write an address that is unique in your AS",
            );
        }
        for (name, value) in [("north", &file.sonic.north), ("south", &file.sonic.south)] {
            if let Some(other) = value.as_deref().filter(|v| *v != "memory") {
                self.problem(
                    key!["sonic", name],
                    format!(
                        "\"{other}\" cannot be used inside `ribtide run`, whose SONiC path is in memory; write \"memory\", \
                         or run `ribtide fpmsyncd`, `ribtide orchagent` and `ribtide syncd` over Redis and set fib.fpm"
                    ),
                );
            }
        }
        let mut fib = file.fib.as_ref().map(|f| self.fib(f));
        let mut bfd = self.bfd(&file.bfd);
        let interfaces: Vec<InterfaceConfig> =
            file.interface.iter().enumerate().map(|(i, f)| self.interface(i, f)).collect();
        let requested = RequestedSettings {
            kernel: fib.as_ref().is_some_and(|f| f.kernel.is_some()),
            virtual_asic: fib.as_ref().is_some_and(|f| !f.asics.is_empty()),
            interfaces: !interfaces.is_empty(),
            ..RequestedSettings::default()
        };
        for rule in ribtide_settings::broken(&requested) {
            let name = rule.settings.last().copied().unwrap_or_default();
            let key: Vec<Step> = name.split('.').map(Step::from).collect();
            self.problem(&key, rule.message);
        }
        for (i, a) in interfaces.iter().enumerate() {
            if interfaces[..i].iter().any(|b| a.name == b.name) {
                self.problem(
                    key!["interface", i, "name"],
                    format!("there is already an interface \"{}\"", a.name),
                );
            }
        }
        if requested.virtual_asic && !requested.kernel && interfaces.is_empty() {
            self.problem(
                key!["fib", "virtual-asic"],
                "the virtual ASIC has no ports; write an [[interface]] table with name and addresses for each",
            );
        }
        if fib.as_ref().is_some_and(|f| f.kernel.is_none() && !f.fpm.is_empty()) && interfaces.is_empty() {
            self.problem(
                key!["fib", "fpm"],
                "next hops resolve over interfaces, and there are none; set fib.kernel (`{ table = 100 }` leaves the main \
                 table alone), or write [[interface]] tables",
            );
        }
        let on_kernel =
            requested.kernel || (interfaces.is_empty() && fib.as_ref().is_some_and(FibConfig::is_bare));
        self.policies(&file.policy, file.router.asn, folder);
        let vrfs = self.vrfs(&file.vrf, fib.as_ref(), &interfaces);
        // Where interfaces are the kernel's, it is the kernel that knows which there are.
        let known = || interfaces.iter().map(|known| known.name.clone()).collect();
        let place = Place {
            known: (!on_kernel).then(known),
            outside: vrfs.values().flat_map(|vrf| vrf.interfaces.iter().flatten()).cloned().collect(),
        };
        let statics = self.statics(key!["static"], &file.statics, &place);
        for (i, route) in statics.iter().enumerate() {
            self.bfd_of_static(&mut bfd, i, route);
        }
        if fib.is_none() && !statics.is_empty() {
            self.problem(
                key!["static"],
                "without a [fib] table no route is installed, and static routes do nothing; add [fib] or remove them",
            );
        }
        if let (Some(fib), Some(file)) = (&mut fib, &file.fib) {
            fib.policy = self.fib_policy(key!["fib", "policy"], &file.policy);
        }
        self.restart_times(self.graceful_restart, key!["bgp"]);
        let rpki = file.rpki.as_ref().map(|rpki| self.rpki(rpki, folder));
        if rpki.is_some() && file.bgp.is_none() {
            let message = "without a [bgp] table there are no routes to validate; add one, or remove this";
            self.problem(key!["rpki"], message);
        }
        let bgp = file.bgp.as_ref().map(|b| self.bgp(b, &file.router, fib.as_ref(), &mut bfd));
        if let Some(bgp) = &bgp {
            self.interface_neighbors(bgp, (!on_kernel && fib.is_some()).then_some(&interfaces));
        }
        let bmp = file.bmp.as_ref().map(|bmp| self.bmp(bmp, bgp.as_ref()));
        let mrt = file.mrt.as_ref().map(|mrt| self.mrt(mrt, folder, bgp.is_some()));
        let api = self.api(&file.api, folder);
        let log = self.log(&file.log);
        let process = self.process(&file.process);
        let [stall_timeout, stall_exit] = self.stalls(&file.router);
        self.policies_without_effect(file);
        Config {
            asn: file.router.asn,
            router_id: file.router.router_id,
            stall_timeout,
            stall_exit,
            bgp,
            rpki,
            bmp,
            mrt,
            fib,
            api,
            log,
            process,
            interfaces,
            statics,
            bfd,
            vrfs,
            files: std::mem::take(&mut self.files),
            shown: ShownConfig::default(),
            without_effect: WithoutEffect { found: std::mem::take(&mut self.warnings), located: Vec::new() },
        }
    }

    /// The times of `stall-timeout` and `stall-exit`.
    fn stalls(&mut self, file: &file::Router) -> [Duration; 2] {
        let timeout = file.stall_timeout.map_or(STALL_TIMEOUT, |s| Duration::from_secs(s.into()));
        let exit = Duration::from_secs(file.stall_exit.unwrap_or(0).into());
        if let Some(problem) = watchdog::exit_problem(timeout, exit) {
            self.problem(key!["router", "stall-exit"], problem);
        }
        [timeout, exit]
    }

    fn log(&mut self, file: &file::Log) -> LogSettings {
        let format = match file.format {
            Some(file::LogFormat::Json) => Format::Json,
            Some(file::LogFormat::Text) | None => Format::Text,
        };
        let levels = file.level.as_deref().map_or(Ok(Levels::default()), str::parse);
        let levels = levels.unwrap_or_else(|e: String| {
            self.problem(key!["log", "level"], e);
            Levels::default()
        });
        LogSettings { levels, format }
    }

    fn interface(&mut self, i: usize, file: &file::Interface) -> InterfaceConfig {
        if file.name.is_empty()
            || file.name.len() > 15
            || file.name.contains(|c: char| c == '/' || c.is_whitespace())
        {
            self.problem(
                key!["interface", i, "name"],
                format!(
                    "\"{}\" is no interface name; write 1 to 15 characters without spaces or slashes",
                    file.name
                ),
            );
        }
        let mut addresses = Vec::new();
        for (j, text) in file.addresses.iter().enumerate() {
            let parsed = text.split_once('/').and_then(|(a, l)| {
                let address: IpAddr = a.parse().ok()?;
                let len: u8 = l.parse().ok()?;
                AnyPrefix::from_addr(address, len)?;
                Some((address, len))
            });
            match parsed {
                Some(address) => addresses.push(address),
                None => self.problem(
                    key!["interface", i, "addresses", j],
                    format!("\"{text}\" is no interface address; write an address and its subnet's length, such as 10.0.0.1/24"),
                ),
            }
        }
        let mut neighbors = Vec::new();
        for (j, n) in file.neighbors.iter().enumerate() {
            match parse_mac(&n.mac) {
                Some(mac) => neighbors.push((n.address, mac)),
                None => self.problem(
                    key!["interface", i, "neighbors", j, "mac"],
                    format!(
                        "\"{}\" is no MAC address; write six hexadecimal bytes, such as 02:00:00:00:00:01",
                        n.mac
                    ),
                ),
            }
        }
        InterfaceConfig { index: i as u32 + 1, name: file.name.clone(), addresses, neighbors }
    }

    fn bgp(
        &mut self,
        file: &file::Bgp,
        router: &file::Router,
        fib: Option<&FibConfig>,
        bfd: &mut BfdConfig,
    ) -> BgpConfig {
        let imports = fib.and_then(|fib| fib.kernel.as_ref()).is_some_and(|kernel| kernel.import);
        let mut bgp = BgpConfig {
            listen: self.listen(file.listen.as_ref()),
            shards: self.threads("shards", &file.shards),
            update_threads: self.threads("update-threads", &file.update_threads),
            cpus: self.cpus(file),
            cluster_id: file.cluster_id.unwrap_or(router.router_id),
            recorder_bytes: file.recorder_bytes.unwrap_or(RECORDER_BYTES),
            always_compare_med: file.always_compare_med,
            deterministic_med: file.deterministic_med.unwrap_or(true),
            med_missing_as_worst: file.med_missing_as_worst,
            prefer_oldest: file.prefer_oldest,
            multipath: file.multipath.unwrap_or(1),
            multipath_relax: file.multipath_relax,
            link_bandwidth: file.link_bandwidth_ext_community,
            backup_path: file.backup_path,
            originate: self.originate(&file.originate, &file.aggregate, fib.is_some(), imports),
            confederation: file.confederation.as_ref().map(|table| self.confederation(table, router.asn)),
            selection_deferral_time: self.selection_deferral_time(),
            neighbors: BTreeMap::new(),
            dynamic: Vec::new(),
            interfaces: Vec::new(),
        };
        if bgp.recorder_bytes > RECORDER_BYTES_MAX {
            let message =
                format!("{} bytes are too many; write 0 to {RECORDER_BYTES_MAX}", bgp.recorder_bytes);
            self.problem(key!["bgp", "recorder-bytes"], message);
        }
        if !(1..=256).contains(&bgp.multipath) {
            let message = format!("{} equal paths cannot be; write 1 to 256", bgp.multipath);
            self.problem(key!["bgp", "multipath"], message);
        }
        self.our_confederation.clone_from(&bgp.confederation);
        if let Some(texts) = &file.martians {
            self.martians = Arc::new(self.martians(key!["bgp", "martians"], texts));
        }
        for (name, group) in &file.group {
            self.group(&mut bgp, name, group, router, bfd);
        }
        self.overlapping_keys(&bgp);
        bgp
    }

    fn group(
        &mut self,
        bgp: &mut BgpConfig,
        name: &str,
        file: &file::Group,
        router: &file::Router,
        bfd: &mut BfdConfig,
    ) {
        let at = |rest: &[Step]| {
            let mut key = key!["bgp", "group", name].to_vec();
            key.extend_from_slice(rest);
            key
        };
        let Some(kind) = file.kind else {
            self.problem(
                &at(&[]),
                format!("group \"{name}\" has no type; write type = \"internal\" or type = \"external\""),
            );
            return;
        };
        if file.route_reflector_client && kind != file::GroupKind::Internal {
            self.problem(
                &at(key!["route-reflector-client"]),
                "only internal peers can be clients of a route reflector (RFC 4456); write type = \"internal\" or remove this",
            );
        }
        if !file.dynamic_neighbors.is_empty() && matches!(&file.bfd, Some(bfd) if !bfd.is_off()) {
            self.problem(
                &at(key!["bfd"]),
                "neighbours that come from dynamic-neighbors have no BFD; write them as neighbors, or bfd at those that are",
            );
        }
        for (j, text) in file.dynamic_neighbors.iter().enumerate() {
            let place = at(key!["dynamic-neighbors", j]);
            match text.parse::<AnyPrefix>() {
                Err(e) => self.problem(&place, e.to_string()),
                Ok(range) => {
                    if let Some(first) = bgp.dynamic.iter().find(|d| d.range == range) {
                        let message = format!(
                            "{range} is already a range of group \"{}\"; it can be in one group only",
                            first.settings.group
                        );
                        self.problem(&place, message);
                    }
                    let settings = self.settings(name, kind, file, Whose::Dynamic, router, &at(&[]));
                    bgp.dynamic.push(DynamicRange { range, settings });
                }
            }
        }
        for (j, interface) in file.interfaces.iter().enumerate() {
            let place = at(key!["interfaces", j]);
            let settings = self.settings(name, kind, file, Whose::Interface(None), router, &place);
            self.interface_neighbor(bgp, interface, None, settings, &place);
        }
        let plain = file.neighbors.iter().enumerate().map(|(j, a)| (*a, None, at(key!["neighbors", j])));
        let mut full = Vec::new();
        for (j, own) in file.neighbor.iter().enumerate() {
            let place = at(key!["neighbor", j]);
            match (own.address, &own.interface) {
                (Some(address), None) => full.push((address, Some(own), place)),
                (None, Some(interface)) => {
                    let settings =
                        self.settings(name, kind, file, Whose::Interface(Some(own)), router, &place);
                    self.interface_neighbor(bgp, interface, Some(own), settings, &place);
                }
                _ => self.problem(&place, "a neighbour has one of the two: write address or interface"),
            }
        }
        for (address, neighbor, place) in plain.chain(full) {
            let settings = self.settings(name, kind, file, Whose::Neighbor(neighbor), router, &place);
            if address.is_unspecified() || address.is_multicast() {
                self.problem(&place, format!("{address} is no address of a neighbour"));
            }
            if address.is_ipv6() && address.to_canonical().is_ipv4() {
                let ipv4 = address.to_canonical();
                self.problem(&place, format!("{address} is an IPv4 address in IPv6's form; write {ipv4}"));
            }
            if matches!(address, IpAddr::V6(a) if a.is_unicast_link_local()) {
                self.problem(
                    &place,
                    format!("every link may have the address {address}; write interfaces = [\"NAME\"] with the name of its interface"),
                );
            }
            if settings.local_address.is_some_and(|l| l.is_ipv4() != address.is_ipv4()) {
                self.problem(
                    &place,
                    format!("local-address must be of the same family as the neighbour {address}"),
                );
            }
            if let (Some(bfd_settings), our_address) = (settings.bfd, settings.local_address) {
                // Without a session of BGP there are no next hops either, so that nothing but it need be strict.
                let settings = BfdSettings { strict: false, ..bfd_settings };
                let session = BfdSession { settings, local: our_address, bgp: true };
                self.bfd_session(bfd, BfdPeer { address, interface: None }, session, &place);
            }
            let description = neighbor.and_then(|n| n.description.clone());
            let config = NeighborConfig { address, description, settings };
            if let Some(first) = bgp.neighbors.insert(address, config) {
                let message = format!(
                    "neighbour {address} is already in group \"{}\"; it can be in one group only",
                    first.settings.group
                );
                self.problem(&place, message);
            }
        }
        if bgp.neighbors.len() > MOST_PEERS {
            let message =
                format!("there are {} neighbours; a router has at most {MOST_PEERS}", bgp.neighbors.len());
            self.problem(key!["bgp", "group", name], message);
        }
    }

    fn settings(
        &mut self,
        name: &str,
        kind: file::GroupKind,
        group: &file::Group,
        whose: Whose<'_>,
        router: &file::Router,
        place: &[Step],
    ) -> NeighborSettings {
        let (own, dynamic) = match whose {
            Whose::Neighbor(own) | Whose::Interface(own) => (own, false),
            Whose::Dynamic => (None, true),
        };
        // A fault in a setting that a neighbour takes over is shown in its group.
        let in_group = key!["bgp", "group", name];
        let both = Both { own, group, place, in_group };
        let external = kind == file::GroupKind::External;
        if kind == file::GroupKind::Confederation && self.our_confederation.is_none() {
            self.problem(
                &[in_group, &key!["type"][..]].concat(),
                "there is no confederation; write [bgp.confederation] with identifier and members, or another type",
            );
        }
        let as_numbers = self.as_numbers(&both, kind, router.asn);
        let peer_asn = self.peer_asn(&both, kind, dynamic, router.asn, as_numbers.local_as);
        let (hold_time, at) = both.pick("hold-time", |n| &n.hold_time, |g| &g.hold_time);
        let hold_time = hold_time.copied().unwrap_or(90);
        if (1..3).contains(&hold_time) {
            self.problem(
                &at.key(),
                format!(
                    "a hold time of {hold_time} s is not allowed (RFC 4271); write 0 for none, or 3 and more"
                ),
            );
        }
        let (connect_retry, at) = both.pick("connect-retry", |n| &n.connect_retry, |g| &g.connect_retry);
        let connect_retry = connect_retry.copied().unwrap_or(5);
        if connect_retry == 0 {
            self.problem(&at.key(), "connect-retry is in seconds, 1 and more");
        }
        let (multihop, at) = both.pick("multihop", |n| &n.multihop, |g| &g.multihop);
        let multihop = multihop.copied();
        if multihop == Some(0) || (multihop.is_some() && !external) {
            self.problem(
                &at.key(),
                "multihop is the TTL of an external session, 1 to 255; internal sessions need none",
            );
        }
        let (password, tcp_ao) = self.session_keys(&both);
        let (families, at) = both.pick("families", |n| &n.families, |g| &g.families);
        let families = match families.map(Vec::as_slice) {
            None => FamilySet::UNICAST,
            Some([]) => {
                self.problem(
                    &at.key(),
                    "the list is empty; write [\"ipv4-unicast\", \"ipv6-unicast\"] or leave it out",
                );
                FamilySet::NONE
            }
            Some(list) => list.iter().copied().map(crate::policy::afi_safi).collect(),
        };
        let graceful_shutdown = self.graceful_shutdown(&both, external);
        let (import, at) = both.pick("import", |n| &n.import, |g| &g.import);
        let import = import.map(Vec::as_slice);
        let import_key = at.key();
        let import = self.policy(Direction::Import, import, external, graceful_shutdown.import, &import_key);
        if import.sets_aigp() {
            let message = "a policy of this list has set-aigp, which is for the next hop of a route alone (RFC 7311 section 3.4.1); \
                           use it in export, or where routes are originated";
            self.problem(&import_key, message);
        }
        let (export, at) = both.pick("export", |n| &n.export, |g| &g.export);
        let export = export.map(Vec::as_slice);
        let export = self.policy(Direction::Export, export, external, graceful_shutdown.export, &at.key());
        let ttl_security = self.ttl_security(&both, multihop);
        let (role, role_strict) = self.role(&both, external);
        if import.tests_path() && external && role.is_none() {
            let message = "a policy of this list tests aspa, which needs to know whether the neighbour is a provider, a customer \
                           or a peer; write role, our own role towards it";
            self.problem(&import_key, message);
        }
        let route_server_client = self.route_server_client(&both, external, role, as_numbers);
        let far = is_multihop(multihop, ttl_security);
        let (bfd, at) = both.pick("bfd", |n| &n.bfd, |g| &g.bfd);
        let bfd = bfd.and_then(|bfd| self.bfd_settings(bfd, far, &at.key()));
        let (fallover, at) =
            both.pick("fast-external-fallover", |n| &n.fast_external_fallover, |g| &g.fast_external_fallover);
        let of_own = own.and_then(|own| own.fast_external_fallover);
        let group_far = is_multihop(group.multihop, group.ttl_security);
        // A group may have a multihop neighbour among others, for which this then says nothing.
        if (of_own == Some(true) && (!external || far))
            || (of_own.is_none() && fallover == Some(&true) && (!external || group_far))
        {
            let message = "fast-external-fallover is for external neighbours on one link: their interface says nothing about the \
                        way to an internal or multihop one, which BFD watches (bfd = true); remove it";
            self.problem(&at.key(), message);
        }
        let fast_external_fallover = fallover.copied().unwrap_or(self.fast_external_fallover);
        let attributes = self.attribute_filter(
            both.pick("discard-attributes", |n| &n.discard_attributes, |g| &g.discard_attributes),
            both.pick("treat-as-withdraw", |n| &n.treat_as_withdraw, |g| &g.treat_as_withdraw),
        );
        if role.is_some() {
            self.otc_is_kept(&both, attributes);
        }
        let (enforce_first_as, at) =
            both.pick("enforce-first-as", |n| &n.enforce_first_as, |g| &g.enforce_first_as);
        if enforce_first_as.is_some() && !external {
            self.problem(
                &at.key(),
                "paths of an internal neighbour need not begin with our AS; remove this, or write type = \"external\"",
            );
        }
        let (prefix_sid, at) = both.pick("prefix-sid", |n| &n.prefix_sid, |g| &g.prefix_sid);
        if prefix_sid.is_some() && !external {
            self.problem(
                &at.key(),
                "Prefix-SIDs are always accepted from an internal neighbour, and sent to it; remove this, or write \
                 discard-attributes = [\"prefix-sid\"] to accept none",
            );
        }
        let add_path = self.add_path(&both, families);
        let best_path_per_client = self.best_path_per_client(&both, route_server_client);
        let (unsuppress, at) = both.pick("unsuppress", |n| &n.unsuppress, |g| &g.unsuppress);
        let unsuppress = unsuppress.map(|list| {
            let key = at.key();
            if best_path_per_client || add_path.send.families() != FamilySet::NONE {
                let message = "a neighbour that gets several paths of a prefix, or the best path of its own, gets no suppressed \
                               contributor; remove this, or add-path.send and best-path-per-client";
                self.problem(&key, message);
            }
            let policy =
                self.policy(Direction::Export, Some(list.as_slice()), true, graceful_shutdown.export, &key);
            if !policy.presence_sets().is_empty() {
                let message = "a policy of this list has routes-exist or routes-absent, which work in export alone; remove it here";
                self.problem(&key, message);
            }
            policy
        });
        let default_originate = self.default_originate(&both);
        NeighborSettings {
            enforce_first_as: enforce_first_as
                .copied()
                .unwrap_or(external && role != Some(Role::RouteServerClient)),
            prefix_sid: prefix_sid.copied().unwrap_or(false),
            aigp: both.value(|n| &n.aigp, |g| &g.aigp).unwrap_or(kind != file::GroupKind::External),
            keep_received: both.value(|n| &n.keep_received, |g| &g.keep_received).unwrap_or(false),
            martians: self.martians.clone(),
            attributes,
            max_prefixes: self.max_prefixes(&both),
            graceful_restart: self.graceful_restart(&both),
            add_path,
            best_path_per_client,
            default_originate,
            extended_next_hop: self.extended_next_hop(&both, matches!(whose, Whose::Interface(_))),
            group: name.into(),
            kind: match kind {
                file::GroupKind::External if route_server_client => PeerKind::RouteServerClient,
                file::GroupKind::External => PeerKind::External,
                file::GroupKind::Confederation => PeerKind::Confederation,
                file::GroupKind::Internal if group.route_reflector_client => PeerKind::Client,
                file::GroupKind::Internal => PeerKind::Internal,
            },
            as_numbers,
            peer_asn,
            shutdown: self.shutdown(&both),
            graceful_shutdown: graceful_shutdown.initiator,
            passive: dynamic || both.value(|n| &n.passive, |g| &g.passive).unwrap_or(false),
            families,
            import,
            export,
            unsuppress,
            hold_time,
            connect_retry,
            local_address: both.value(|n| &n.local_address, |g| &g.local_address),
            port: both.value(|n| &n.port, |g| &g.port).unwrap_or(179),
            next_hop_self: both.value(|n| &n.next_hop_self, |g| &g.next_hop_self).unwrap_or(false),
            multihop,
            ttl_security,
            role,
            role_strict,
            password,
            tcp_ao,
            bfd,
            fast_external_fallover,
        }
    }
}

/// Whose settings are checked.
#[derive(Clone, Copy)]
enum Whose<'a> {
    /// A configured neighbour's; `None` when it sets nothing itself.
    Neighbor(Option<&'a file::Neighbor>),
    /// The same of the neighbour of an interface.
    Interface(Option<&'a file::Neighbor>),
    /// Those of peers from a range.
    Dynamic,
}

/// Where a setting stands. Its key is made only where it is wrong: there are many neighbours.
pub(super) struct SettingKey<'a> {
    table: &'a [Step],
    name: &'static str,
}

impl SettingKey<'_> {
    pub(super) fn key(&self) -> Vec<Step> {
        [self.table, key![self.name]].concat()
    }
}

/// What a neighbour and its group set, each with its place.
pub(super) struct Both<'a> {
    own: Option<&'a file::Neighbor>,
    group: &'a file::Group,
    pub(super) place: &'a [Step],
    pub(super) in_group: &'a [Step],
}

impl<'a> Both<'a> {
    /// What each sets, the neighbour first.
    pub(super) fn each<T>(
        &self,
        of_own: fn(&file::Neighbor) -> Option<T>,
        of_group: fn(&file::Group) -> Option<T>,
    ) -> (Option<T>, Option<T>) {
        (self.own.and_then(of_own), of_group(self.group))
    }

    /// The setting that counts, the neighbour's before the group's, and where it stands.
    pub(super) fn pick<T>(
        &self,
        name: &'static str,
        of_own: fn(&file::Neighbor) -> &Option<T>,
        of_group: fn(&file::Group) -> &Option<T>,
    ) -> (Option<&'a T>, SettingKey<'a>) {
        let own = self.own.and_then(|own| of_own(own).as_ref());
        let table = if own.is_some() { self.place } else { self.in_group };
        (own.or(of_group(self.group).as_ref()), SettingKey { table, name })
    }

    /// The same of a setting that cannot be wrong by itself.
    pub(super) fn value<T: Copy>(
        &self,
        of_own: fn(&file::Neighbor) -> &Option<T>,
        of_group: fn(&file::Group) -> &Option<T>,
    ) -> Option<T> {
        self.pick("", of_own, of_group).0.copied()
    }
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|p| p.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}
