//! The dataplanes: how each starts, and how a reload adds, changes and removes them while routes flow
//! ([ADR 40](../../../docs/adr/0040-dataplanes-at-run-time.md)).
//!
//! The RIB manager sends a new dataplane every route, and with FIB suppression nothing is confirmed before it has them. A removed
//! one gets nothing more and holds up no confirmation; then its threads end, and its routes are removed from where it wrote them.

use crate::router::StartError;
use ribtide_api::Dataplanes;
use ribtide_asic::InProcess;
use ribtide_config::{
    Config, FibConfig, InterfaceConfig, KernelConfig, VIRTUAL_ASIC, VirtualAsicConfig, VrfSetup,
};
use ribtide_dataplane::fpm::{self, FpmHandle};
use ribtide_dataplane::kernel::{self, InterfaceWatch, KernelHandle, Scope, flush};
use ribtide_dataplane::{InterfaceNews, RibChannel};
use ribtide_rib::{DataplaneId, RibIn, Source};
use ribtide_ribd::{NotPlugged, RibHandle};
use ribtide_runtime::log::target;
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Rings, Sender};
use ribtide_runtime::thread::Stop;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the removal of routes from the kernel may take. systemd kills a process that stops after 90 s.
pub(crate) const REMOVAL: Duration = Duration::from_secs(30);
/// How long a new kernel dataplane may take to report all interfaces before the reload goes on without.
const KERNEL_START: Duration = Duration::from_secs(5);
/// Poll interval for that, and for the ends of threads.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Adds a dataplane to the RIB manager: its name, its meter, and the flag that stops it.
pub(crate) type Plug<'a> = &'a dyn Fn(&str, Meter, &Stop) -> Result<RibChannel, NotPlugged>;

/// What dataplanes are started with.
pub(crate) struct Environment<'a> {
    pub(crate) plug: Plug<'a>,
    pub(crate) rings: &'a Rings,
    pub(crate) meters: &'a Meters,
    pub(crate) stop: &'a Stop,
    pub(crate) interfaces: &'a [InterfaceConfig],
    pub(crate) vrfs: &'a [VrfSetup],
    /// BGP's session thread, if BGP runs.
    pub(crate) sessions: Option<ToSessions>,
}

/// The queue of BGP's session thread for interfaces.
#[derive(Clone)]
pub(crate) struct ToSessions {
    /// The number of the run of BGP.
    pub(crate) run: u32,
    pub(crate) queue: Sender<InterfaceNews>,
}

/// The dataplanes that run, with their threads.
#[derive(Default)]
pub(crate) struct RunningDataplanes {
    kernel: Option<KernelPlane>,
    fpm: Vec<FpmPlane>,
    asics: BTreeMap<String, AsicPlane>,
    /// Removed FPM clients, which delete their routes from their servers.
    ending: Vec<FpmHandle>,
    /// What a removed kernel dataplane has left in the kernel.
    left: Option<Scope>,
    /// The watch of the kernel's interfaces without a kernel dataplane.
    watch: Option<Watch>,
}

struct KernelPlane {
    id: DataplaneId,
    /// As configured: without the table of its VRF.
    config: KernelConfig,
    handle: KernelHandle,
    threads: [JoinHandle<()>; 3],
    /// The run of BGP that it tells of interfaces.
    told: Option<u32>,
    stop: Stop,
}

struct FpmPlane {
    id: DataplaneId,
    handle: FpmHandle,
    /// [`fpm_settings`].
    settings: (bool, u64),
    stop: Stop,
}

/// What FPM clients follow while they run: whether they send next-hop objects, and the seconds of a
/// round of the comparison.
fn fpm_settings(fib: &FibConfig) -> (bool, u64) {
    (fib.fpm_next_hop_groups, fib.fpm_reconcile_interval)
}

struct AsicPlane {
    id: DataplaneId,
    config: VirtualAsicConfig,
    path: InProcess,
    stop: Stop,
}

struct Watch {
    watch: InterfaceWatch,
    /// Whether the RIB manager gets the interfaces.
    of_rib: bool,
    /// The run of BGP whose session thread gets them.
    told: Option<u32>,
}

impl Environment<'_> {
    fn queue(&self) -> Option<Sender<InterfaceNews>> {
        self.sessions.as_ref().map(|sessions| sessions.queue.clone())
    }

    fn kernel(&self, config: &KernelConfig) -> Result<KernelPlane, StartError> {
        let stop = self.stop.part();
        let channel = (self.plug)("kernel", self.meters.meter("kernel"), &stop)?;
        let id = channel.id;
        let started = kernel::start(config.clone(), self.vrfs, channel, self.queue(), self.rings);
        let (handle, threads) = started.map_err(|e| {
            // For the threads that run already.
            stop.stop();
            StartError::Kernel(e)
        })?;
        let told = self.sessions.as_ref().map(|sessions| sessions.run);
        Ok(KernelPlane { id, config: config.clone(), handle, threads, told, stop })
    }

    fn fpm(&self, name: String, server: SocketAddr, fib: &FibConfig) -> Result<FpmPlane, StartError> {
        let stop = self.stop.part();
        let channel = (self.plug)(&name, self.meters.meter(&name), &stop)?;
        let id = channel.id;
        let settings = fpm_settings(fib);
        let handle = fpm::start(name, server, settings.0, settings.1, channel)?;
        Ok(FpmPlane { id, handle, settings, stop })
    }

    fn asic(&self, name: &str, config: VirtualAsicConfig) -> Result<AsicPlane, StartError> {
        // One that was given no name is the only one.
        let named = name != VIRTUAL_ASIC;
        let (meters, rings) = match named {
            true => (self.meters.of(name), self.rings.of(name)),
            false => (self.meters.clone(), self.rings.clone()),
        };
        let stop = self.stop.part();
        // What comes first behind it.
        let channel = (self.plug)(name, meters.meter("fpmsyncd"), &stop)?;
        let id = channel.id;
        let threads = if named { name } else { "sonic" };
        let path = ribtide_asic::start(threads, channel, self.interfaces, self.vrfs, config, &rings, &meters);
        let path = path.map_err(|e| {
            stop.stop();
            StartError::Asic(e)
        })?;
        Ok(AsicPlane { id, config, path, stop })
    }
}

impl RunningDataplanes {
    /// Starts the dataplanes of `fib`.
    ///
    /// # Errors
    /// Why the first that cannot start does not.
    pub(crate) fn start(fib: &FibConfig, with: &Environment<'_>) -> Result<RunningDataplanes, StartError> {
        let mut all = RunningDataplanes::default();
        if let Some(kernel) = &fib.kernel {
            all.kernel = Some(with.kernel(kernel)?);
        }
        for server in &fib.fpm {
            all.fpm.push(with.fpm(all.fpm_name(fib), *server, fib)?);
        }
        for (name, asic) in &fib.asics {
            all.asics.insert(name.clone(), with.asic(name, *asic)?);
        }
        Ok(all)
    }

    /// The name of the next FPM client: without a number where there is one only.
    fn fpm_name(&self, fib: &FibConfig) -> String {
        let taken = |name: &str| self.fpm.iter().any(|plane| plane.handle.name == name);
        if fib.fpm.len() == 1 && !taken("fpm") {
            return "fpm".to_owned();
        }
        (0..).map(|n| format!("fpm-{n}")).find(|name| !taken(name)).unwrap_or_default()
    }

    /// The handles, for the API.
    pub(crate) fn handles(&self) -> Dataplanes {
        let of_kernel = self.kernel.as_ref().map(|kernel| &kernel.handle.interfaces);
        let interfaces = of_kernel.or(self.watch.as_ref().map(|watch| &watch.watch.interfaces));
        Dataplanes {
            interfaces: interfaces.cloned(),
            kernel: self.kernel.as_ref().map(|kernel| kernel.handle.clone()),
            asics: self.asics.iter().map(|(name, asic)| (name.clone(), asic.path.clone())).collect(),
            fpm: self.fpm.iter().map(|fpm| fpm.handle.clone()).collect(),
        }
    }

    /// Starts the dataplanes that `fib` has and that do not run, and those with other settings again. If one cannot start,
    /// those that this call has started are removed.
    ///
    /// # Errors
    /// Why a dataplane cannot start, as a sentence.
    pub(crate) fn add(
        &mut self,
        fib: &FibConfig,
        rib: &RibHandle,
        with: &Environment<'_>,
    ) -> Result<(), StartError> {
        self.ending.retain(|client| !client.has_ended());
        if let Some(busy) = self.ending.iter().find(|client| fib.fpm.contains(&client.server)) {
            return Err(StartError::Busy(busy.server));
        }
        let (had_kernel, servers) = (self.kernel.is_some(), self.servers());
        let asics: Vec<String> = self.asics.keys().cloned().collect();
        let added = self.add_all(fib, rib, with);
        if added.is_err() {
            if !had_kernel {
                self.detach_kernel(rib);
            }
            self.remove_fpm(rib, |plane| servers.contains(&plane.handle.server));
            self.remove_asics(rib, |name, _| asics.contains(name));
        }
        added
    }

    fn servers(&self) -> Vec<SocketAddr> {
        self.fpm.iter().map(|plane| plane.handle.server).collect()
    }

    fn add_all(
        &mut self,
        fib: &FibConfig,
        rib: &RibHandle,
        with: &Environment<'_>,
    ) -> Result<(), StartError> {
        match (&self.kernel, &fib.kernel) {
            (None, Some(kernel)) => self.kernel = Some(started_kernel(kernel, rib, with)?),
            (Some(running), Some(kernel)) if running.config != *kernel => {
                self.replace_kernel(kernel, rib, with)?;
            }
            _ => {}
        }
        for server in &fib.fpm {
            if !self.servers().contains(server) {
                let plane = started(with, rib, |with| with.fpm(self.fpm_name(fib), *server, fib))?;
                self.fpm.push(plane);
            }
        }
        // Another chip takes the place of the present one, of which nothing is left.
        self.remove_asics(rib, |name, plane| fib.asics.get(name).is_none_or(|asic| *asic == plane.config));
        for (name, asic) in &fib.asics {
            if !self.asics.contains_key(name) {
                let plane = started(with, rib, |with| with.asic(name, *asic))?;
                self.asics.insert(name.clone(), plane);
            }
        }
        Ok(())
    }

    /// Starts the kernel dataplane again, with other settings. Routes that the new one takes over stay in the kernel meanwhile;
    /// others are removed before.
    fn replace_kernel(
        &mut self,
        new: &KernelConfig,
        rib: &RibHandle,
        with: &Environment<'_>,
    ) -> Result<(), StartError> {
        let Some(running) = &self.kernel else { return Ok(()) };
        let takes_over = kernel::takes_over(&running.handle.config, new).map_err(StartError::Kernel)?;
        let former = running.config.clone();
        self.detach_kernel(rib);
        if takes_over {
            self.left = None;
        } else {
            self.flush();
        }
        let started = started_kernel(new, rib, with);
        if started.is_err() {
            // It ran before, so it most likely runs again. The reload reports the first error.
            match started_kernel(&former, rib, with) {
                Ok(again) => self.kernel = Some(again),
                Err(e) => tracing::error!(
                    target: target::KERNEL,
                    error = %e,
                    "the kernel dataplane has ended, and no route goes to the kernel before a reload or a restart starts it again"
                ),
            }
        }
        self.kernel = Some(started?);
        Ok(())
    }

    /// Applies `fib.fpm-next-hop-groups` and `fib.fpm-reconcile-interval`, and removes the dataplanes that `fib` does not have.
    /// [`RunningDataplanes::flush`] removes the routes of a removed kernel dataplane.
    pub(crate) fn remove_others(&mut self, fib: Option<&FibConfig>, rib: &RibHandle) {
        let mut changed = false;
        for (plane, fib) in self.fpm.iter_mut().zip(fib.into_iter().cycle()) {
            let settings = fpm_settings(fib);
            if std::mem::replace(&mut plane.settings, settings) != settings {
                plane.handle.set_next_hop_groups(settings.0);
                plane.handle.set_reconcile_interval(settings.1);
                changed = true;
            }
        }
        if changed {
            // Without a reply it takes effect with the next batch.
            let _ = rib.wake_dataplanes();
        }
        self.remove_fpm(rib, |plane| fib.is_some_and(|fib| fib.fpm.contains(&plane.handle.server)));
        self.remove_asics(rib, |name, _| fib.is_some_and(|fib| fib.asics.contains_key(name)));
        if fib.is_none_or(|fib| fib.kernel.is_none()) {
            self.detach_kernel(rib);
        }
    }

    fn remove_fpm(&mut self, rib: &RibHandle, stays: impl Fn(&FpmPlane) -> bool) {
        let (stay, gone): (Vec<FpmPlane>, _) = std::mem::take(&mut self.fpm).into_iter().partition(stays);
        self.fpm = stay;
        for plane in gone {
            plane.stop.stop_and_remove();
            unplug(rib, plane.id);
            self.ending.push(plane.handle);
        }
    }

    fn remove_asics(&mut self, rib: &RibHandle, stays: impl Fn(&String, &AsicPlane) -> bool) {
        self.asics.retain(|name, plane| {
            let stays = stays(name, plane);
            if !stays {
                plane.stop.stop();
                unplug(rib, plane.id);
            }
            stays
        });
    }

    /// Ends the kernel dataplane, and notes what it leaves in the kernel.
    fn detach_kernel(&mut self, rib: &RibHandle) {
        let Some(KernelPlane { id, handle, threads, stop, .. }) = self.kernel.take() else { return };
        self.left = Some(handle.scope());
        stop.stop();
        unplug(rib, id);
        // A thread that panicked has ended the process.
        threads.into_iter().for_each(|thread| drop(thread.join()));
        // The routes that it imported are in the queue before this call.
        let _ = rib.forget_source(Source::Kernel);
    }

    /// Removes from the kernel what a removed kernel dataplane has left there.
    pub(crate) fn flush(&mut self) {
        let Some(scope) = self.left.take() else { return };
        remove_from_kernel(&scope, Instant::now() + REMOVAL);
    }

    /// Watches the kernel's interfaces where no kernel dataplane does, for the RIB manager if next hops resolve over them and for
    /// the session thread. A kernel dataplane that `config` does not have may run yet.
    ///
    /// # Errors
    /// Next hops resolve over the kernel's interfaces, and they cannot be watched.
    pub(crate) fn watch(
        &mut self,
        config: &Config,
        vrfs: &[VrfSetup],
        rib: Option<Sender<RibIn>>,
        sessions: Option<ToSessions>,
        stop: &Stop,
    ) -> Result<(), StartError> {
        let by_kernel = config.fib.as_ref().is_some_and(|fib| fib.kernel.is_some());
        let rib = rib.filter(|_| !by_kernel && config.uses_kernel_interfaces());
        // The kernel dataplane tells the run of BGP that it was started with.
        let told = self.kernel.as_ref().filter(|_| by_kernel).and_then(|kernel| kernel.told);
        let sessions = sessions.filter(|sessions| told != Some(sessions.run));
        let (of_rib, told) = (rib.is_some(), sessions.as_ref().map(|sessions| sessions.run));
        let is_same = |watch: &Watch| (watch.of_rib, watch.told) == (of_rib, told);
        if self.watch.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        let new = match of_rib || told.is_some() {
            true => watch_interfaces(vrfs, rib, sessions.map(|sessions| sessions.queue), stop)?
                .map(|watch| Watch { watch, of_rib, told }),
            false => None,
        };
        if let Some(former) = std::mem::replace(&mut self.watch, new) {
            former.watch.end();
        }
        Ok(())
    }

    /// Sets the VRFs whose interfaces are watched, and whose routes are in the kernel.
    pub(crate) fn set_vrfs(&self, vrfs: &[VrfSetup]) {
        if let Some(watch) = &self.watch {
            watch.watch.set_vrfs(vrfs);
        }
        if let Some(kernel) = &self.kernel {
            kernel.handle.set_vrfs(vrfs);
        }
    }

    /// At the stop of the process, after its flag: waits until FPM clients have taken back what
    /// they sent, and removes what is in the kernel. Virtual ASICs end with this process.
    pub(crate) fn remove_all(&self, deadline: Instant) {
        let wait = |over: &dyn Fn() -> bool| {
            while !over() && Instant::now() < deadline {
                std::thread::sleep(POLL_INTERVAL);
            }
        };
        if let Some(kernel) = &self.kernel {
            // Its writer would put back what it misses.
            let [_, _, writer] = &kernel.threads;
            wait(&|| writer.is_finished());
            remove_from_kernel(&kernel.handle.scope(), deadline);
        }
        let clients = self.fpm.iter().map(|plane| &plane.handle);
        let clients: Vec<&FpmHandle> = clients.chain(&self.ending).collect();
        wait(&|| clients.iter().all(|client| client.has_ended()));
    }
}

/// The RIB manager forgets a dataplane, whose stop flag is set: its threads take a closed queue for a failure. Where the RIB
/// manager does not reply, the process is stopping.
fn unplug(rib: &RibHandle, id: DataplaneId) {
    let _ = rib.unplug(id);
}

/// Starts a dataplane while the RIB manager runs. If it cannot start, the RIB manager forgets its number.
fn started<T>(
    with: &Environment<'_>,
    rib: &RibHandle,
    start: impl FnOnce(&Environment<'_>) -> Result<T, StartError>,
) -> Result<T, StartError> {
    let given = std::cell::Cell::new(None);
    let plug = |name: &str, meter: Meter, stop: &Stop| {
        let channel = (with.plug)(name, meter, stop)?;
        given.set(Some(channel.id));
        Ok(channel)
    };
    let started = start(&Environment { plug: &plug, sessions: with.sessions.clone(), ..*with });
    if started.is_err()
        && let Some(id) = given.get()
    {
        unplug(rib, id);
    }
    started
}

/// Starts the kernel dataplane while the RIB manager runs, and waits until that has its interfaces.
fn started_kernel(
    config: &KernelConfig,
    rib: &RibHandle,
    with: &Environment<'_>,
) -> Result<KernelPlane, StartError> {
    let plane = started(with, rib, |with| with.kernel(config))?;
    let begin = Instant::now();
    while begin.elapsed() < KERNEL_START && rib.is_up(plane.id) == Ok(false) {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(plane)
}

fn remove_from_kernel(scope: &Scope, deadline: Instant) {
    match flush::flush(scope, false, Some(deadline)) {
        Ok(flushed) => tracing::info!(target: target::KERNEL, "{flushed}"),
        Err(e) => tracing::error!(
            target: target::KERNEL,
            error = %e,
            "the installed routes could not be removed from the kernel; `ribtide flush` removes them"
        ),
    }
}

/// Watches the kernel's interfaces for those who are not told by a kernel dataplane, if there are any.
fn watch_interfaces(
    vrfs: &[VrfSetup],
    rib: Option<Sender<RibIn>>,
    sessions: Option<Sender<InterfaceNews>>,
    stop: &Stop,
) -> Result<Option<InterfaceWatch>, StartError> {
    let resolves = rib.is_some();
    match InterfaceWatch::start(vrfs, rib, sessions, stop) {
        Ok(watch) => Ok(Some(watch)),
        Err(e) if resolves => {
            let sentence = format!(
                "the kernel's interfaces, over which next hops resolve, cannot be watched: {e}; write [[interface]] tables"
            );
            Err(StartError::Kernel(io::Error::new(e.kind(), sentence)))
        }
        Err(e) => {
            tracing::warn!(
                target: target::KERNEL,
                error = %e,
                "the kernel's interfaces cannot be watched: sessions do not end with them (bgp.fast-external-fallover), but by \
                 their hold time"
            );
            Ok(None)
        }
    }
}
