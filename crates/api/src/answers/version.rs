//! `/v1/version`: the program and the kernel.

use super::{Refusal, RouterState};
use ribtide_bgpd::session::{has_tcp_md5, tcp_ao};
use ribtide_dataplane::kernel::{InterfaceList, has_next_hop_objects};
use ribtide_model::{KernelFeatures, Version};
use std::path::Path;

/// Without it the kernel has no devices of VRFs. With it, their driver may still be missing.
const L3MDEV: &str = "/proc/sys/net/ipv4/tcp_l3mdev_accept";

pub(crate) fn version(router: &RouterState) -> Result<Version, Refusal> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // The kernel dataplane does not start without.
    let uses_objects = router.dataplanes().kernel.is_some();
    Ok(Version {
        version: env!("CARGO_PKG_VERSION").into(),
        commit: router.commit.map(str::to_owned),
        build: if cfg!(debug_assertions) { "debug" } else { "release" }.into(),
        target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        pid: std::process::id(),
        uptime_seconds: router.clock.now() / 1000,
        kernel: kernel.trim().into(),
        kernel_features: KernelFeatures {
            next_hop_objects: if uses_objects { Some(true) } else { has_next_hop_objects().ok() },
            vrf: has_vrfs(router),
            tcp_md5: has_tcp_md5().ok(),
            tcp_ao: tcp_ao::is_supported().ok(),
        },
    })
}

/// `None`: nothing can be read that says it.
fn has_vrfs(router: &RouterState) -> Option<bool> {
    let is_vrf = |list: &InterfaceList| list.get().values().any(|one| one.kind.as_deref() == Some("vrf"));
    if router.dataplanes().interfaces.as_ref().is_some_and(is_vrf) {
        return Some(true);
    }
    Path::new(L3MDEV).try_exists().ok().filter(|exists| !exists)
}
