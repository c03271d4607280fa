//! The state of the API: the handles of a running router, and state between requests.

use super::answers::{Reads, RouteRead};
use super::route_check;
use ribtide_asic::InProcess;
use ribtide_bfdd::Bfd;
use ribtide_bgpd::Bgp;
use ribtide_bgpd::owners::Owners;
use ribtide_bmpd::Bmp;
use ribtide_config::Config;
use ribtide_dataplane::fpm::FpmHandle;
use ribtide_dataplane::kernel::KernelHandle;
use ribtide_model::Reloaded;
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
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// The handles of a running router: its configuration and every stage.
pub struct RouterState {
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
    pub bgp: Option<Bgp>,
    /// Origin validation; see [`RouterState::rpki`].
    pub rpki: RwLock<Option<StageHandle<Engine>>>,
    /// BMP, when configured.
    pub bmp: Option<Bmp>,
    /// MRT files, when configured.
    pub mrt: Option<Mrt>,
    /// BFD.
    pub bfd: Bfd,
    /// The RIB manager, when routes are installed.
    pub rib: Option<RibHandle>,
    /// The kernel, when routes are installed there.
    pub kernel: Option<KernelHandle>,
    /// Virtual ASICs, by name.
    pub asics: BTreeMap<String, InProcess>,
    /// FPM clients.
    pub fpm: Vec<FpmHandle>,
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

    /// Origin validation, when configured.
    pub fn rpki(&self) -> Option<StageHandle<Engine>> {
        self.rpki.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The shards, where BGP runs.
    pub fn owners(&self) -> Option<RwLockReadGuard<'_, Owners>> {
        self.bgp.as_ref().map(|bgp| bgp.owners.read())
    }
}

/// Reads the configuration file again and applies what changed; an error is a sentence.
pub type Reload = Box<dyn Fn() -> Result<Reloaded, String> + Send + Sync>;

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
            fib_reads: Reads::default(),
            failed_reads: Reads::default(),
            route_reads: Reads::default(),
            mrt_reads: Reads::default(),
        }
    }
}

impl Deref for ApiState {
    type Target = RouterState;

    fn deref(&self) -> &RouterState {
        &self.router
    }
}
