//! The state of the API: the handles of a running router, and state between requests.

use super::answers::{Reads, RouteRead, RouteTrial};
use super::events::RouteEvents;
use super::route_check;
use ribtide_asic::InProcess;
use ribtide_bfdd::Bfd;
use ribtide_bgpd::Bgp;
use ribtide_bgpd::owners::Directory;
use ribtide_bmpd::Bmp;
use ribtide_config::Config;
use ribtide_dataplane::fpm::FpmHandle;
use ribtide_dataplane::kernel::{InterfaceList, KernelHandle};
use ribtide_model::{Reloaded, SettingEffect};
use ribtide_mrtd::{Mrt, TableDump};
use ribtide_rib::{Cursor, FailedCursor, VrfId};
use ribtide_ribd::RibHandle;
use ribtide_rpkid::Engine;
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::clock::Clock;
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::Rings;
use ribtide_runtime::watchdog::Watchdog;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// The handle of a part of the router that a reload begins and ends.
pub struct Slot<T>(RwLock<Option<T>>);

impl<T: Clone> Slot<T> {
    /// With a part that runs, or none.
    pub fn new(part: Option<T>) -> Slot<T> {
        Slot(RwLock::new(part))
    }

    /// The part that runs. It may end at any time, and then does not reply.
    pub fn get(&self) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces it. Returns the former one.
    pub fn set(&self, part: Option<T>) -> Option<T> {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), part)
    }
}

/// The handles of a running router: its configuration and every stage.
pub struct RouterState {
    /// The commit that the program was built from, if it is known.
    pub commit: Option<&'static str>,
    /// The configuration in force; see [`RouterState::config`].
    pub config: RwLock<Arc<Config>>,
    /// Time since the start.
    pub clock: Clock,
    /// Every queue.
    pub rings: Rings,
    /// What waits without progress.
    pub watchdog: Watchdog,
    /// Every stage's meter.
    pub meters: Meters,
    /// BGP, when configured.
    pub bgp: Slot<Arc<Bgp>>,
    /// Origin validation, when configured.
    pub rpki: Slot<StageHandle<Engine>>,
    /// BMP, when configured.
    pub bmp: Slot<Arc<Bmp>>,
    /// MRT files, when configured.
    pub mrt: Slot<Arc<Mrt>>,
    /// BFD.
    pub bfd: Bfd,
    /// The RIB manager, when routes are installed.
    pub rib: Slot<RibHandle>,
    /// The dataplanes; see [`RouterState::dataplanes`].
    pub dataplanes: RwLock<Arc<Dataplanes>>,
}

/// The handles of the dataplanes.
#[derive(Clone, Default)]
pub struct Dataplanes {
    /// The kernel, when routes are installed there.
    pub kernel: Option<KernelHandle>,
    /// Virtual ASICs, by name.
    pub asics: BTreeMap<String, InProcess>,
    /// FPM clients.
    pub fpm: Vec<FpmHandle>,
    /// The interfaces of the kernel, where a part of the router watches them.
    pub interfaces: Option<InterfaceList>,
}

impl RouterState {
    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the configuration in force.
    pub fn configure(&self, config: Config) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// The dataplanes that run. One that a reload removes does not reply any more.
    pub fn dataplanes(&self) -> Arc<Dataplanes> {
        self.dataplanes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the dataplanes that run.
    pub fn set_dataplanes(&self, dataplanes: Dataplanes) {
        *self.dataplanes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(dataplanes);
    }

    /// The shards, where BGP runs.
    pub fn owners(&self) -> Option<Arc<Directory>> {
        Some(self.bgp.get()?.owners.clone())
    }
}

/// Reload of the configuration, by the router that the API is part of.
pub struct Reload {
    /// Reads the configuration file again and applies what changed; an error is a sentence.
    pub apply: Box<dyn Fn() -> Result<Reloaded, String> + Send + Sync>,
    /// What a reload of the second configuration does for each setting of the whole router that is another in the first.
    pub effects: fn(&Config, &Config) -> Vec<SettingEffect>,
}

/// The router, and the state of the API itself.
pub(crate) struct ApiState {
    router: Arc<RouterState>,
    pub(crate) reload: Reload,
    /// The state of `route-check` between checks.
    pub(crate) route_check: Mutex<route_check::State>,
    /// Paged reads of the FIB.
    pub(crate) fib_reads: Reads<(VrfId, Cursor)>,
    /// Paged reads of failed routes.
    pub(crate) failed_reads: Reads<VecDeque<(VrfId, FailedCursor)>>,
    /// Paged reads of BGP routes.
    pub(crate) route_reads: Reads<RouteRead>,
    /// Checks of a reload, which evaluate routes.
    pub(crate) reload_checks: Reads<RouteTrial>,
    /// Changes of routes for clients that follow them.
    pub(crate) route_events: RouteEvents,
    /// When the process started, in nanoseconds since 1970: two starts in one second differ.
    pub(crate) start: u64,
    /// Paged reads of advertised routes.
    pub(crate) advertised_reads: Reads<RouteRead>,
    /// Dumps of the table.
    pub(crate) mrt_reads: Reads<TableDump>,
}

impl ApiState {
    /// The state before the first request.
    pub(crate) fn new(router: Arc<RouterState>, reload: Reload) -> ApiState {
        ApiState {
            router,
            reload,
            route_check: Mutex::default(),
            fib_reads: Reads::new("fib"),
            failed_reads: Reads::new("failed"),
            route_reads: Reads::new("routes"),
            advertised_reads: Reads::new("advertised"),
            reload_checks: Reads::single("check"),
            route_events: RouteEvents::default(),
            start: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
            mrt_reads: Reads::new("mrt"),
        }
    }
}

impl Deref for ApiState {
    type Target = RouterState;

    fn deref(&self) -> &RouterState {
        &self.router
    }
}
