//! The shape of `[bmp]` and `[mrt]`.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Bmp {
    /// sysName in the Initiation, 1 to 255 bytes.
    #[schemars(extend("x-default" = "the name of the host"))]
    pub(crate) system_name: Option<String>,
    /// sysDescr in the Initiation, 1 to 255 bytes.
    #[schemars(extend("x-default" = "ribtide and its version"))]
    pub(crate) system_description: Option<String>,
    /// `[bmp.station.NAME]` tables: the stations.
    #[serde(default)]
    #[schemars(extend("x-see" = "#bmp"))]
    pub(crate) station: BTreeMap<String, BmpStation>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct BmpStation {
    /// Its address. The connection is TCP without transport security.
    pub(crate) address: IpAddr,
    /// Its TCP port.
    pub(crate) port: u16,
    /// Our address of the connection.
    #[schemars(extend("x-default" = "the system's choice"))]
    pub(crate) local_address: Option<IpAddr>,
    /// What it gets: `"adj-rib-in-pre-policy"`, of neighbours with `keep-received`; `"adj-rib-in-post-policy"`;
    /// `"adj-rib-out-post-policy"`; `"loc-rib"`.
    pub(crate) views: Vec<BmpView>,
    /// Seconds between two reports of statistics, 0 to 86400. With 0 there are none.
    #[schemars(extend("default" = 60))]
    pub(crate) statistics_interval: Option<u32>,
    /// The longest time between two attempts to connect in seconds, 1 to 3600. The first ones are closer together.
    #[schemars(extend("default" = 60))]
    pub(crate) retry_interval: Option<u32>,
    /// Mebibytes that may wait for the station, 1 to 4096. When more would, its session ends, and the next one begins
    /// with the whole tables.
    #[schemars(extend("default" = 64))]
    pub(crate) queue_mib: Option<u32>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BmpView {
    AdjRibInPrePolicy,
    AdjRibInPostPolicy,
    AdjRibOutPostPolicy,
    LocRib,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Mrt {
    /// `[mrt.table]`: dumps of all paths after import policy (TABLE_DUMP_V2).
    #[schemars(extend("x-see" = "#mrt"))]
    pub(crate) table: Option<MrtFiles>,
    /// `[mrt.updates]`: received UPDATEs, and starts and ends of sessions (BGP4MP_ET).
    #[schemars(extend("x-see" = "#mrt"))]
    pub(crate) updates: Option<MrtFiles>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct MrtFiles {
    /// The name of a file, from the configuration's folder, with conversions of strftime(3) for the time at which it
    /// begins, in UTC: `%Y`, `%m`, `%d`, `%H`, `%M`, `%S`, `%s`, `%%`.
    pub(crate) file: PathBuf,
    /// Seconds of a file of updates, or between two dumps, 1 to 604800. Files begin at multiples of it since 1970.
    #[schemars(extend("x-default" = "7200 for `table`, 900 for `updates`"))]
    pub(crate) interval: Option<u32>,
    /// `"none"` or `"gzip"`.
    #[schemars(extend("default" = "none"))]
    pub(crate) compression: Option<Compression>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Compression {
    None,
    Gzip,
}
