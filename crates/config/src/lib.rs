//! The configuration file: TOML text → [`Config`], every value checked, every error with its place and its cure.
//!
//! Two layers. [`file`] is the shape of the file, read by serde with unknown names refused. [`check`] turns it into
//! [`Config`], which the router runs from and which cannot hold a combination that does not work. An error names the
//! key it is about; [`diagnosis`] finds the key's line and column in the text. [`policy`], [`statics`], [`vrf`], [`fib`],
//! [`list_file`], [`session`], [`as_numbers`], [`confederation`], [`originate`], [`aggregate`],
//! [`default_originate`], [`import_filter`], [`add_path`], [`max_prefixes`],
//! [`graceful_restart`], [`interfaces`], [`tcp_ao`], [`rpki`] and [`monitoring`] are the parts of the check that make policies, static routes,
//! VRFs, dataplanes, what guards a session, AS numbers in paths, the confederation, originated routes, lists of what is never taken,
//! path identifiers, limits, what a restart means, neighbours by interface, keys of sessions, origin validation, and what stations and
//! files get.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod add_path;
mod aggregate;
mod api;
mod as_numbers;
mod bfd;
mod check;
mod confederation;
mod default_originate;
mod diagnosis;
mod difference;
mod fib;
mod fib_policy;
mod file;
mod graceful_restart;
mod import_filter;
mod interfaces;
mod list_file;
mod listen;
mod max_prefixes;
mod monitoring;
mod or_table;
mod originate;
mod policy;
mod policy_test;
mod private_file;
mod process;
mod regular_file;
mod rpki;
mod session;
mod shown;
mod statics;
mod tcp_ao;
mod threads;
mod tls;
mod tls_client;
mod vrf;

pub use add_path::AddPathConfig;
pub use aggregate::{AggregateConfig, SuppressConfig};
pub use api::{ApiConfig, SocketGroup, Token};
pub use as_numbers::{AsNumbers, LocalAs, RemovePrivateAs};
pub use bfd::{BfdConfig, BfdPeer, BfdSession, BfdSettings};
pub use check::{
    AnyAsn, BgpConfig, Config, DynamicRange, InterfaceConfig, NeighborConfig, NeighborSettings, WithoutEffect,
};
pub use confederation::ConfederationConfig;
pub use default_originate::DefaultOriginateConfig;
pub use diagnosis::{ConfigError, Problem, Warning};
pub use difference::{SettingDifference, differences};
pub use fib::{FibConfig, KernelConfig, VIRTUAL_ASIC, VirtualAsicConfig};
pub use fib_policy::FibPolicy;
pub use file::OnStop;
pub use graceful_restart::GracefulRestartConfig;
pub use interfaces::{InterfaceNeighbor, InterfacePattern, LINK_LOCAL, most_specific};
pub use max_prefixes::MaxPrefixesConfig;
pub use monitoring::{BmpConfig, BmpStation, BmpViews, MRT_CONVERSIONS, MrtConfig, MrtFiles};
pub use originate::OriginateConfig;
pub use policy_test::{AcceptedRoute, Direction, PolicyTest, TestRoute, test_policies};
pub use process::ProcessConfig;
pub use ribtide_policy::{AnyCommunity, RouteType};
pub use ribtide_privileges::Seccomp;

pub use ribtide_settings::DEFAULT_VRF;
pub use rpki::{RpkiCache, RpkiConfig};
pub use shown::{SECRET_KEYS, ShownConfig, without_secrets};
pub use statics::{StaticHop, StaticRoute, StaticTrack};
pub use tcp_ao::{Secret, TcpAoAlgorithm, TcpAoConfig, TcpAoKey};
pub use threads::{CpuChoice, Threads};
pub use tls::TlsConfig;
pub use tls_client::TlsClientConfig;
pub use vrf::{VrfConfig, VrfSetup};

use regular_file::Unread;
use std::path::Path;

/// The largest configuration file, in bytes: 100,000 neighbours with a table each have some 10 MB.
const FILE_MAX: u64 = 64 * 1024 * 1024;

/// Reads and checks the file at `path`.
///
/// # Errors
/// Every problem found, each with line, column and what to write instead.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    load_text(&read(path)?, path)
}

/// Reads the file at `path`, and does not check it.
///
/// # Errors
/// It cannot be read, is no regular file, or has more than 64 MiB.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    regular_file::read(path, FILE_MAX).map_err(|error| match error {
        Unread::TooLong => ConfigError::too_long(path, FILE_MAX),
        Unread::Failed(e) => ConfigError::unreadable(path, &e),
    })
}

/// Checks `text` as that of the file at `path`, which is not read. Other files that it names are read.
///
/// # Errors
/// As [`load`].
pub fn load_text(text: &str, path: &Path) -> Result<Config, ConfigError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut config = parse_in(text, folder).map_err(|problems| ConfigError::new(path, text, problems))?;
    config.shown.file = Some(path.to_owned());
    Ok(config)
}

/// Opens the file at `path` and the files that its configuration names, and reads nothing.
///
/// # Errors
/// The first that cannot be read, and why.
pub fn check_readable(path: &Path, config: &Config) -> Result<(), ConfigError> {
    let open = |path: &Path| regular_file::open(path).map_err(|e| ConfigError::unreadable(path, &e));
    open(path)?;
    config.files.iter().try_for_each(|path| open(path).map(drop))
}

/// Checks configuration text. Other files that it names are sought from the working directory.
///
/// # Errors
/// As [`load`], without the file's name.
pub fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    parse_in(text, Path::new(""))
}

/// The shape of the file as JSON Schema (draft 2020-12), for editors and for programs that write configurations. It
/// says less than [`load`]: what values mean, and which go together, only that looks at.
pub fn schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12();
    settings.into_generator().into_root_schema_for::<file::File>().to_value()
}

fn parse_in(text: &str, folder: &Path) -> Result<Config, Vec<Problem>> {
    let file: file::File = toml::from_str(text).map_err(|e| vec![Problem::syntax(&e, text)])?;
    let checked = check::check(&file, folder);
    let mut config =
        checked.map_err(|problems| -> Vec<_> { problems.into_iter().map(|p| p.locate(text)).collect() })?;
    let found = std::mem::take(&mut config.without_effect.found);
    config.without_effect.located = Warning::located(found, text);
    config.shown.text = shown::without_secrets(text).unwrap_or_default().into();
    config.shown.whole = shown::Whole(text.into());
    Ok(config)
}

#[cfg(test)]
mod tests;
