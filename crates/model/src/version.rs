//! The program and the kernel that it runs on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/version`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// The version of the program.
    pub version: String,
    /// The commit that it was built from; absent if the build did not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// `release`, or `debug` for a build with checks that cost time.
    pub build: String,
    /// Architecture and operating system, such as `x86_64-linux`.
    pub target: String,
    /// The number of the process.
    pub pid: u32,
    /// Seconds since the start of the router.
    pub uptime_seconds: u64,
    /// The release of the kernel.
    pub kernel: String,
    /// Features of the kernel.
    pub kernel_features: KernelFeatures,
}

/// Features of the kernel that settings need. Absent: the kernel does not say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct KernelFeatures {
    /// Next-hop objects (Linux 5.3), for `fib.kernel`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_hop_objects: Option<bool>,
    /// Devices of VRFs (CONFIG_NET_VRF), for `fib.kernel.vrf` and VRFs without `interfaces`. `true` where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<bool>,
    /// TCP-MD5 (RFC 2385), for `password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_md5: Option<bool>,
    /// TCP-AO (RFC 5925; Linux 6.7), for `tcp-ao`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_ao: Option<bool>,
}
