//! A VRF: a device of the kernel to which a routing table and interfaces belong.

use ribtide_config::{VrfConfig, VrfSetup};
use ribtide_netlink::Socket;
use ribtide_rib::{IfIndex, Vrf};
use ribtide_runtime::ring::Wake;
use ribtide_wire::netlink::{Content, Link, dump_links};
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};

/// The configured VRFs, shared by threads. Clones share the list.
#[derive(Clone, Default)]
pub(super) struct Listed(Arc<Shared>);

#[derive(Default)]
struct Shared {
    list: Mutex<Arc<[VrfSetup]>>,
    /// How many times the list was set.
    version: AtomicU32,
    /// Called after each change.
    wakes: Mutex<Vec<Wake>>,
}

impl Listed {
    /// Sets the list.
    pub(super) fn set(&self, vrfs: &[VrfSetup]) {
        *self.0.list.lock().unwrap_or_else(PoisonError::into_inner) = vrfs.into();
        self.0.version.fetch_add(1, Release);
        self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|wake| wake());
    }

    /// Calls `wake` after each later change.
    pub(super) fn wake(&self, wake: Wake) {
        self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    /// The list, if it changed since `seen`, which is updated.
    pub(super) fn news(&self, seen: &mut u32) -> Option<Arc<[VrfSetup]>> {
        let now = self.0.version.load(Acquire);
        (std::mem::replace(seen, now) != now).then(|| self.get())
    }

    /// The list.
    pub(super) fn get(&self) -> Arc<[VrfSetup]> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ids.
    pub(super) fn numbers(&self) -> Vec<Vrf> {
        self.get().iter().map(|setup| setup.vrf).collect()
    }
}

/// The device of a name.
#[derive(Default)]
enum Found {
    #[default]
    Nothing,
    OtherDevice(IfIndex),
    Vrf(IfIndex, u32),
}

fn look(name: &str) -> Result<Found, String> {
    let links = |found: &mut Found, content: Content<'_>| {
        if let Content::NewLink(link) = content
            && link.name == name
        {
            *found = what(&link);
        }
    };
    let found = Socket::open().and_then(|mut socket| socket.dump(dump_links, links));
    found.map_err(|e| format!("the kernel's interfaces cannot be read: {e}"))
}

/// The index and the table of the VRF device `name`.
///
/// # Errors
/// A sentence: there is none, or this kernel does not support VRFs.
pub(super) fn find(name: &str) -> Result<(IfIndex, u32), String> {
    match look(name)? {
        Found::Vrf(ifindex, table) => Ok((ifindex, table)),
        Found::OtherDevice(_) => Err(format!(
            "fib.kernel.vrf: {name} is an interface, but not a VRF; name a device of `ip link show type vrf`"
        )),
        Found::Nothing => Err(format!(
            "fib.kernel.vrf: there is no VRF device {name} in this network namespace; `ip link add {name} type vrf table 100` \
             makes one, if the kernel was built with VRFs (CONFIG_NET_VRF). Without them, fib.kernel.table = 100 installs \
             into that table all the same, and `ip rule` says which packets use it"
        )),
    }
}

/// The table of the VRF `name`, and the index of its device, or 0 without one. `by_number`: a
/// device is required.
///
/// # Errors
/// A sentence: the kernel lacks what the configuration needs.
pub fn numbers(name: &str, wanted: &VrfConfig, by_number: bool) -> Result<(u32, IfIndex), String> {
    const CURE: &str =
        "`ip link add NAME type vrf table 100` makes one, if the kernel was built with VRFs (CONFIG_NET_VRF)";
    let found = look(name)?;
    let table = match (&found, wanted.table) {
        (Found::Vrf(_, of_device), Some(table)) if *of_device != table => {
            return Err(format!(
                "vrf.{name}.table is {table}, and the kernel's VRF device {name} has table {of_device}; write that one, or \
                 remove it"
            ));
        }
        (Found::Vrf(_, table), _) => *table,
        (_, Some(table)) => table,
        _ => {
            return Err(format!(
                "VRF {name}: the kernel has no VRF device of that name in this network namespace; {CURE}. Without them, \
                 vrf.{name}.table and vrf.{name}.interfaces make a table of its own without a device"
            ));
        }
    };
    let device = match found {
        Found::Vrf(ifindex, _) | Found::OtherDevice(ifindex) => ifindex,
        Found::Nothing => 0,
    };
    if wanted.interfaces.is_none() && !matches!(found, Found::Vrf(..)) {
        return Err(format!(
            "VRF {name}: no interface can be in it, because the kernel has no VRF device of that name; {CURE}. Without them, \
             name the interfaces in vrf.{name}.interfaces"
        ));
    }
    if by_number && device == 0 {
        return Err(format!(
            "VRF {name}: over FPM a VRF goes by the number of its device, and the kernel has none of that name; {CURE}"
        ));
    }
    Ok((table, device))
}

fn what(link: &Link<'_>) -> Found {
    match link.vrf_table.filter(|_| link.kind == Some("vrf")) {
        Some(table) => Found::Vrf(link.index, table),
        None => Found::OtherDevice(link.index),
    }
}
