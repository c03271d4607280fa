//! The `[fib]` table: its dataplanes and their defaults.

use super::FibPolicy;
use super::check::Checker;
use super::diagnosis::{Step, key};
use super::file::{self, OnStop};
use super::statics::is_unicast;
use ribtide_rib::{CacheMode, RibConfig};
use ribtide_vswitch::Behavior;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The most next hops that a route may have: what one netlink message of 64 KiB has room for in every form.
const MAX_ECMP: u16 = 1024;

/// The default of `fpm-reconcile-interval`.
const FPM_RECONCILE_INTERVAL: u64 = 60;

/// The `[fib]` table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FibConfig {
    /// Install into the Linux kernel.
    pub kernel: Option<KernelConfig>,
    /// FPM servers to send routes to.
    pub fpm: Vec<SocketAddr>,
    /// Send next-hop group objects over FPM, not inline next hops.
    pub fpm_next_hop_groups: bool,
    /// The seconds in which what FPM servers have is compared with what was sent to them; 0: never.
    pub fpm_reconcile_interval: u64,
    /// In-process SONiC paths down to a virtual switch each, by name; one alone without a name of its own is
    /// [`VIRTUAL_ASIC`].
    pub asics: BTreeMap<String, VirtualAsicConfig>,
    /// Whether a next hop may resolve through the default route.
    pub resolve_via_default: bool,
    /// How the resolution cache works.
    pub nexthop_cache: CacheMode,
    /// Whether BGP advertises only what every dataplane has confirmed.
    pub suppress_fib_pending: bool,
    /// The most next hops that a route has in the FIB.
    pub max_ecmp: u16,
    /// Whether a next hop that resolves through another route has that route's weight.
    pub underlay_weights: bool,
    /// The effect of a stop on installed routes.
    pub on_stop: OnStop,
    /// The FIB policy.
    pub policy: FibPolicy,
}

/// The kernel dataplane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelConfig {
    /// The routing table; that of [`vrf`](Self::vrf), once the kernel has reported it.
    pub table: u32,
    /// The VRF device whose table it is.
    pub vrf: Option<String>,
    /// The protocol number of own routes.
    pub protocol: u8,
    /// Route metric (priority).
    pub metric: u32,
    /// Leave the kernel's `nexthop_compat_mode` as it is.
    pub compat_mode: bool,
    /// The source address that packets of this machine take over our IPv4 routes.
    pub source4: Option<Ipv4Addr>,
    /// The same over our IPv6 routes.
    pub source6: Option<Ipv6Addr>,
    /// Import routes of other programs.
    pub import: bool,
    /// The receive buffer for route notifications, in bytes.
    pub receive_buffer: u32,
}

impl FibConfig {
    /// Whether routes are installed nowhere: there is a RIB, and no dataplane.
    pub fn is_bare(&self) -> bool {
        self.kernel.is_none() && self.fpm.is_empty() && self.asics.is_empty()
    }
}

impl Default for KernelConfig {
    fn default() -> Self {
        KernelConfig {
            table: 254,
            vrf: None,
            protocol: 186,
            metric: 20,
            compat_mode: false,
            source4: None,
            source6: None,
            import: true,
            receive_buffer: 8 << 20,
        }
    }
}

/// The name of a virtual ASIC without one.
pub const VIRTUAL_ASIC: &str = "virtual-asic";

/// A virtual ASIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualAsicConfig {
    /// Create the neighbours that next hops need.
    pub lab: bool,
    /// The behaviour of the chip: table sizes, failures and delays.
    pub chip: Behavior,
    /// The seconds in which the chip is compared with what was requested; 0: never.
    pub reconcile_interval: u64,
}

impl Default for VirtualAsicConfig {
    fn default() -> Self {
        VirtualAsicConfig { lab: false, chip: Behavior::default(), reconcile_interval: 60 }
    }
}

/// Why a virtual ASIC cannot be called so, if that is so.
fn not_a_name(name: &str) -> Option<String> {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 15 || !name.chars().all(letters) {
        return Some(format!(
            "\"{name}\" is no name of an ASIC; write 1 to 15 letters, digits and dashes, such as asic0"
        ));
    }
    let taken = name == VIRTUAL_ASIC || name == "kernel" || name == "fpm" || name.starts_with("fpm-");
    taken.then(|| format!("\"{name}\" is what another dataplane is called; write a name such as asic0"))
}

impl Checker {
    pub(super) fn fib(&mut self, file: &file::Fib) -> FibConfig {
        let kernel = match &file.kernel {
            file::Kernel::Switch(false) => None,
            file::Kernel::Switch(true) => Some(file::KernelTable::default()),
            file::Kernel::Table(t) => Some(t.clone()),
        };
        let kernel = kernel.map(|t| self.kernel(&t));
        let mut asics: BTreeMap<String, VirtualAsicConfig> = BTreeMap::new();
        for (name, table) in &file.asic {
            if let Some(message) = not_a_name(name) {
                self.problem(key!["fib", "asic", name.as_str()], message);
            }
            asics.insert(name.clone(), self.asic(key!["fib", "asic", name.as_str()], table));
        }
        let unnamed = match &file.virtual_asic {
            file::VirtualAsic::Switch(false) => None,
            file::VirtualAsic::Switch(true) => Some(VirtualAsicConfig::default()),
            file::VirtualAsic::Table(table) => Some(self.asic(key!["fib", "virtual-asic"], table)),
        };
        if unnamed.is_some() && !asics.is_empty() {
            self.problem(
                key!["fib", "virtual-asic"],
                "there are [fib.asic] tables, which name each virtual ASIC; give this one a name there too",
            );
        }
        asics.extend(unnamed.map(|asic| (VIRTUAL_ASIC.to_owned(), asic)));
        let nexthop_cache = file.nexthop_cache.as_ref().map_or(Ok(CacheMode::default()), |mode| mode.parse());
        let nexthop_cache = nexthop_cache.unwrap_or_else(|message| {
            self.problem(key!["fib", "nexthop-cache"], message);
            CacheMode::default()
        });
        let max_ecmp = file.max_ecmp.unwrap_or(RibConfig::default().max_ecmp);
        if !(1..=MAX_ECMP).contains(&max_ecmp) {
            self.problem(
                key!["fib", "max-ecmp"],
                format!("a route cannot have up to {max_ecmp} next hops; write 1 to {MAX_ECMP}"),
            );
        }
        FibConfig {
            nexthop_cache,
            suppress_fib_pending: file.suppress_fib_pending,
            max_ecmp,
            underlay_weights: file.underlay_weights,
            kernel,
            fpm: file.fpm.clone(),
            fpm_next_hop_groups: file.fpm_next_hop_groups,
            fpm_reconcile_interval: file.fpm_reconcile_interval.unwrap_or(FPM_RECONCILE_INTERVAL),
            asics,
            resolve_via_default: file.resolve_via_default.unwrap_or(true),
            on_stop: file.on_stop,
            policy: FibPolicy::default(),
        }
    }

    fn asic(&mut self, key: &[Step], file: &file::VirtualAsicTable) -> VirtualAsicConfig {
        let mut chip = Behavior::default();
        // A profile comes first, and single sizes change it.
        let (profile, others): (Vec<_>, Vec<_>) = file.chip.iter().partition(|(name, _)| *name == "profile");
        for (name, value) in profile.into_iter().chain(others) {
            if let Err(message) = chip.set(name, &value.to_string()) {
                self.problem(&[key, &key!["chip", name.as_str()][..]].concat(), message);
            }
        }
        let default = VirtualAsicConfig::default().reconcile_interval;
        let reconcile_interval = file.reconcile_interval.unwrap_or(default);
        VirtualAsicConfig { lab: file.lab, chip, reconcile_interval }
    }

    fn kernel(&mut self, file: &file::KernelTable) -> KernelConfig {
        let default = KernelConfig::default();
        let table = file.table.unwrap_or(default.table);
        if table == 0 || table == 255 {
            self.problem(
                key!["fib", "kernel", "table"],
                format!(
                    "table {table} belongs to the kernel itself; write 254 (main) or a table of your own"
                ),
            );
        }
        if file.table.is_some() && file.vrf.is_some() {
            self.problem(
                key!["fib", "kernel", "table"],
                "a VRF device has a table, which is taken; write table or vrf, not both",
            );
        }
        let protocol = file.protocol.unwrap_or(default.protocol);
        if protocol <= 4 {
            self.problem(
                key!["fib", "kernel", "protocol"],
                format!(
                    "protocol {protocol} marks routes of the kernel or of an administrator, which ribtide would remove \
                     as its own; write 5 to 255 (186 is bgp)"
                ),
            );
        }
        let receive_buffer = file.receive_buffer.unwrap_or(default.receive_buffer);
        if receive_buffer > 1 << 30 {
            self.problem(
                key!["fib", "kernel", "receive-buffer"],
                format!(
                    "{receive_buffer} bytes are more than a socket's buffer can be; write at most 1073741824"
                ),
            );
        }
        if file.metric == Some(0) {
            self.problem(
                key!["fib", "kernel", "metric"],
                "the kernel makes 1024 of a metric of 0 in IPv6, and deletes routes of any metric for 0; write 1 or more",
            );
        }
        let mut config = KernelConfig {
            table,
            vrf: file.vrf.clone(),
            protocol,
            metric: file.metric.unwrap_or(default.metric),
            compat_mode: file.compat_mode,
            import: file.import.unwrap_or(default.import),
            receive_buffer,
            ..default
        };
        (config.source4, config.source6) = self.sources(key!["fib", "kernel", "source"], &file.source);
        config
    }

    /// The source addresses of a VRF's routes, one of each family, which are at `at`.
    pub(super) fn sources(
        &mut self,
        at: &[Step],
        addresses: &[IpAddr],
    ) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
        let (mut source4, mut source6) = (None, None);
        for (i, address) in addresses.iter().enumerate() {
            if !is_unicast(*address) || address.is_loopback() {
                let message = format!(
                    "{address} is no source of packets; write an address of this router that others reach"
                );
                self.problem(&[at, key![i]].concat(), message);
            }
            let taken = match address {
                IpAddr::V4(a) => source4.replace(*a).is_some(),
                IpAddr::V6(a) => source6.replace(*a).is_some(),
            };
            if taken {
                self.problem(
                    &[at, key![i]].concat(),
                    "a route has one source address; write at most one of each family",
                );
            }
        }
        (source4, source6)
    }
}
