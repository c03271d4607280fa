//! The shape of the `[fib]` table.

use crate::or_table::or_table;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Fib {
    /// Install into the Linux kernel: `true`, or a table of settings.
    #[serde(default)]
    #[schemars(extend("default" = false), extend("x-see" = "#fibkernel"))]
    pub(crate) kernel: Kernel,
    /// FPM servers (SONiC's fpmsyncd) to send routes to, on this host or others, such as `["127.0.0.1:2620"]`.
    /// Several are called `fpm-0`, `fpm-1` and so on. Interfaces go by number: the kernel's; where it has not all
    /// that `[[interface]]` tables name, from 1 in their order.
    #[serde(default)]
    #[schemars(extend("x-see" = "#several-dataplanes"))]
    pub(crate) fpm: Vec<SocketAddr>,
    /// Send next-hop group objects over FPM instead of inline next hops.
    #[serde(default)]
    pub(crate) fpm_next_hop_groups: bool,
    /// Compare what an FPM server has with what was sent to it, all of it in so many seconds, and repair what differs;
    /// 0: never. Only ribtide's fpmsyncd can be compared.
    #[schemars(extend("default" = 60), extend("x-see" = "adr/0074-comparison-with-the-fpm-server.md"))]
    pub(crate) fpm_reconcile_interval: Option<u64>,
    /// `true`, or a table of settings: SONiC's path in this process, down to the virtual switch, whose ports are the
    /// `[[interface]]` tables. Not together with `kernel`.
    #[serde(default)]
    #[schemars(extend("default" = false), extend("x-see" = "#fibvirtual-asic"))]
    pub(crate) virtual_asic: VirtualAsic,
    /// Several virtual switches, by name, each with the settings of `virtual-asic`.
    #[serde(default)]
    #[schemars(extend("x-see" = "#several-dataplanes"))]
    pub(crate) asic: BTreeMap<String, VirtualAsicTable>,
    /// Whether a next hop may resolve through the default route.
    #[schemars(extend("default" = true))]
    pub(crate) resolve_via_default: Option<bool>,
    /// How often next hops are resolved. `"dependency"`: an event resolves only the groups that depend on it;
    /// `"epoch"`: groups keep their result until any event, and the first route then resolves it again; `"off"`: each
    /// route resolves its own. The results are the same; `ribtide bench run nexthop-cache` measures the modes.
    #[schemars(extend("default" = "dependency"), extend("x-see" = "adr/0009-next-hop-resolution-cache.md"))]
    pub(crate) nexthop_cache: Option<String>,
    /// BGP advertises a best path only when every dataplane that is configured has confirmed it.
    #[serde(default)]
    #[schemars(extend("x-see" = "#fibsuppress-fib-pending"))]
    pub(crate) suppress_fib_pending: bool,
    /// The most next hops that a route has in the FIB, 1 to 1024. Those kept are spread over the interfaces: one of
    /// each, then a second of each, and so on.
    #[schemars(extend("default" = 512))]
    pub(crate) max_ecmp: Option<u16>,
    /// A next hop that resolves through another route has that route's weight, not its own.
    #[serde(default)]
    pub(crate) underlay_weights: bool,
    /// What a stop (SIGTERM, SIGINT) does with installed routes: `"keep"` or `"remove"` them.
    #[serde(default)]
    #[schemars(extend("default" = "keep"), extend("x-see" = "#fibon-stop"))]
    pub(crate) on_stop: OnStop,
    /// Which routes are installed, and with which source address.
    #[serde(default)]
    #[schemars(extend("x-see" = "#fibpolicy"))]
    pub(crate) policy: FibPolicy,
}

/// What a clean stop does to what dataplanes installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnStop {
    /// It stays, and packets are forwarded until the next start, which adopts it.
    #[default]
    Keep,
    /// It is removed.
    Remove,
}

/// Lists of policies by who announced the routes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FibPolicy {
    /// Policies for connected routes.
    pub(crate) connected: Option<Vec<String>>,
    /// Policies for static routes.
    #[serde(rename = "static")]
    pub(crate) statics: Option<Vec<String>>,
    /// Policies for routes of other programs in the kernel.
    pub(crate) kernel: Option<Vec<String>>,
    /// Policies for BGP's routes; of the default VRF only.
    pub(crate) bgp: Option<Vec<String>>,
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum Kernel {
    Switch(bool),
    Table(KernelTable),
}

or_table!(Kernel, visit_bool, bool, Switch, "true, false, or a table of settings, such as { table = 254 }");

impl Default for Kernel {
    fn default() -> Self {
        Kernel::Switch(false)
    }
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct KernelTable {
    /// The routing table (254 is main).
    #[schemars(extend("default" = 254))]
    pub(crate) table: Option<u32>,
    /// The number that marks our routes and next-hop objects: routes of this number in this table are ours, and at
    /// start they are adopted or removed. 186 is bgp; beside another BGP daemon take a number of your own.
    #[schemars(extend("default" = 186))]
    pub(crate) protocol: Option<u8>,
    /// The metric of our routes, 1 or more. The kernel keeps routes of one prefix apart by it and prefers the lowest.
    #[schemars(extend("default" = 20))]
    pub(crate) metric: Option<u32>,
    /// `true` leaves `net.ipv4.nexthop_compat_mode` alone. Otherwise ribtide sets it to 0 in its network namespace at
    /// start, for in mode 1, the kernel's default, each change of a next-hop group makes the kernel compose a message
    /// for every route of the group (12 seconds for a million routes with 512 next hops, under the lock of all
    /// routing). In mode 0 `ip route` shows these routes by the id of their next-hop object (`nhid`), and `ip
    /// nexthop` what that is.
    #[serde(default)]
    pub(crate) compat_mode: bool,
    /// A VRF device, whose table is taken instead; only its interfaces' addresses are connected then. It must be
    /// there at the start, and the kernel must have VRFs.
    pub(crate) vrf: Option<String>,
    /// The address that packets of this machine itself have as their source over our routes ("set src"), at most one
    /// of each family: `["10.0.0.1", "2001:db8::1"]`. Until an interface has it, the kernel refuses the routes, and
    /// they are tried again when it does.
    #[serde(default)]
    pub(crate) source: Vec<IpAddr>,
    /// Import the routes of other programs from the main table (with `vrf`: from its table): an administrator's,
    /// DHCP's, another routing daemon's. They are candidates of protocol `kernel` and distance 0, as in FRR, so that
    /// next hops resolve through them. Of several with one prefix the lowest metric counts, and the next one while
    /// the first does not resolve; a prefix that they have is not installed a second time. `false` ignores them, as
    /// BIRD does without `learn`.
    #[schemars(extend("default" = true))]
    pub(crate) import: Option<bool>,
    /// The bytes of the kernel's route messages that may wait to be read. When more come, ribtide compares the whole
    /// table and corrects it.
    #[schemars(extend("default" = 8388608))]
    pub(crate) receive_buffer: Option<u32>,
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(crate) enum VirtualAsic {
    Switch(bool),
    Table(VirtualAsicTable),
}

or_table!(VirtualAsic, visit_bool, bool, Switch, "true, false, or { lab = true }");

impl Default for VirtualAsic {
    fn default() -> Self {
        VirtualAsic::Switch(false)
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct VirtualAsicTable {
    /// Make the neighbours that next hops need.
    #[serde(default)]
    pub(crate) lab: bool,
    /// How the switch behaves, such as `{ rate = 20000 }` or `{ profile = "tomahawk" }`.
    #[serde(default)]
    #[schemars(extend("x-see" = "#fibvirtual-asicchip"))]
    pub(crate) chip: BTreeMap<String, ChipValue>,
    /// Compare the switch with what was requested of it, all of it in so many seconds, and repair what differs; 0: never.
    #[schemars(extend("default" = 60), extend("x-see" = "adr/0024-reconciliation-of-sonics-copies.md"))]
    pub(crate) reconcile_interval: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "this is no number, flag or name; write 1000, 0.01, true or \"tomahawk\"")]
pub(crate) enum ChipValue {
    Whole(i64),
    Part(f64),
    Flag(bool),
    Name(String),
}

impl fmt::Display for ChipValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChipValue::Whole(number) => number.fmt(f),
            ChipValue::Part(number) => number.fmt(f),
            ChipValue::Flag(flag) => flag.fmt(f),
            ChipValue::Name(name) => name.fmt(f),
        }
    }
}
