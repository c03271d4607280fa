//! syncd with the Linux kernel as its chip (`--kernel-chip`).

use super::settings::Settings as DaemonSettings;
use super::syncd_chip::SyncdChip;
use super::{Daemon, Error, events, explain};
use clap::Args;
use ribtide_kernel_chip::{KernelChip, RouteState, Settings};
use ribtide_model::{ExplainStage, StageState};
use ribtide_prefix::AnyPrefix;
use ribtide_runtime::log::target;
use ribtide_runtime::wake_up::WakeUp;
use ribtide_swss::sai::Oid;
use ribtide_swss::syncd::Syncd;
use ribtide_vswitch::{Behavior, PortSetup};
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval of attempts to use the kernel's socket again, and to compare the kernel with the requests.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The kernel as the chip, and where its entries are.
#[derive(Args, Clone, Copy, Debug)]
pub struct KernelOptions {
    /// The Linux kernel of this network namespace in the place of the virtual switch: each port is the netdev of
    /// its name in the lane map of the profile, and routes, next hops and neighbours are the kernel's.
    /// Of --chip it has the sizes of tables
    #[arg(long, conflicts_with_all = ["sai_library", "query_socket"])]
    pub kernel_chip: bool,
    /// The kernel's routing table
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().table, requires = "kernel_chip", value_parser = clap::value_parser!(u32).range(1..))]
    pub kernel_table: u32,
    /// The protocol number of its routes, next-hop objects and neighbours, which no other program may use
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().protocol, requires = "kernel_chip", value_parser = clap::value_parser!(u8).range(5..))]
    pub kernel_protocol: u8,
    /// The metric of its routes; of IPv6 routes of a connected prefix 256 more, so that they go behind the connected one
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().metric, requires = "kernel_chip", value_parser = clap::value_parser!(u32).range(1..))]
    pub kernel_metric: u32,
}

impl KernelOptions {
    fn settings(&self) -> Settings {
        Settings { table: self.kernel_table, protocol: self.kernel_protocol, metric: self.kernel_metric }
    }

    /// Notes them for `show pipeline --sonic`.
    pub(super) fn note(&self, reconcile_interval: u64, settings: &mut DaemonSettings) {
        let Settings { table, protocol, metric } = self.settings();
        let text = format!("table {table}, protocol {protocol}, metric {metric}");
        settings.note("--kernel-chip", &text, &text, "");
        let why = "the kernel reports what other programs change, and that is corrected at once";
        settings.note("--reconcile-interval", reconcile_interval, 0, why);
    }

    /// The kernel with these ports. `sizes` are settings of --chip.
    ///
    /// # Errors
    /// A sentence: a setting that is no size, no permission, or an older kernel.
    pub(super) fn open(
        &self,
        ports: Vec<PortSetup>,
        sizes: &[(String, String)],
    ) -> Result<KernelChip, Error> {
        let mut behavior = Behavior::default();
        let settings: Vec<(&str, &str)> = sizes.iter().map(|(name, value)| (&**name, &**value)).collect();
        behavior.set_all(&settings).map_err(Error::Configuration)?;
        if (behavior.latency, behavior.failures) != Default::default() {
            return Err(Error::Configuration(
                "--chip with delays and failures belongs to the virtual switch; with --kernel-chip write sizes of tables \
                 only, such as ipv4-routes=1000000"
                    .into(),
            ));
        }
        let failed = |e: std::io::Error| Error::Configuration(format!("--kernel-chip: {e}"));
        let chip = KernelChip::open(ports, self.settings(), behavior.limits).map_err(failed)?;
        for name in chip.ports_without_netdev() {
            tracing::debug!(target: target::SYNCD, port = name, "the port has no netdev of its name; it has a link once there is one");
        }
        let found = chip.found_routes();
        if found > 0 {
            tracing::info!(target: target::SYNCD, routes = found, "the kernel has routes of an earlier syncd, which are adopted");
        }
        for (family, path) in
            [("IPv4", "/proc/sys/net/ipv4/ip_forward"), ("IPv6", "/proc/sys/net/ipv6/conf/all/forwarding")]
        {
            if std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0") {
                tracing::warn!(target: target::SYNCD, path, cure = "set it to 1", "the kernel does not forward packets of {family}");
            }
        }
        match ribtide_netlink::leave_compat_mode() {
            Ok(_) => {}
            Err(e) => tracing::warn!(
                target: target::SYNCD,
                error = %e,
                cure = "set net.ipv4.nexthop_compat_mode to 0 before the start",
                "every change of a next-hop group costs the kernel time for each of its routes"
            ),
        }
        Ok(chip)
    }
}

/// Starts to read the kernel's notifications.
///
/// # Errors
/// A sentence: the system gives no socket or thread.
pub(super) fn watch(chip: &mut KernelChip, daemon: &Daemon) -> Result<WakeUp, Error> {
    chip.watch(&daemon.rings, &daemon.stop)
        .map_err(|e| Error::System(format!("the kernel's changes cannot be watched: {e}")))
}

impl SyncdChip for KernelChip {
    fn shrink_to_fit(&mut self) {
        KernelChip::shrink_to_fit(self);
    }

    fn serve(&mut self, now: Instant) -> Option<Instant> {
        let differs = KernelChip::serve(self);
        events::log_syncd(&mut self.take_events());
        differs.then(|| now + RETRY_INTERVAL)
    }

    fn settle(&mut self) {
        KernelChip::settle(self);
    }

    /// Nothing is to be kept: the kernel forwards without syncd, and the next one finds its entries.
    fn save(_: &Syncd<Self>, _: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn explain(syncd: &mut Syncd<Self>, prefix: AnyPrefix, router: Option<Oid>) -> explain::ExplainReply {
        let stage = |state, message: String| ExplainStage::new("kernel", state, vec![message]);
        let is_default = router.is_some_and(|vid| syncd.rid(vid) == syncd.chip().model().default_router());
        let state = match is_default {
            true => syncd.chip().route_state(prefix),
            false => RouteState::Absent,
        };
        let said = match state {
            RouteState::Absent => stage(StageState::Absent, "no such route".into()),
            RouteState::NotNeeded => {
                stage(StageState::Passed, "it drops, as the kernel does without a default route".into())
            }
            RouteState::Drops => stage(StageState::Passed, "it drops packets".into()),
            RouteState::Local => stage(StageState::Passed, "it delivers packets to this host".into()),
            RouteState::Via(id) if syncd.chip().drops(id) => stage(
                StageState::Stopped,
                format!("no next hop of group {id} has a link, so it drops packets"),
            ),
            RouteState::Via(id) => stage(StageState::Passed, format!("next-hop object {id}")),
            RouteState::Missing => {
                stage(StageState::Stopped, "the kernel has no next-hop object for it".into())
            }
        };
        said.into()
    }
}
