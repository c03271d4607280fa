//! `ribtide flush`: removes ribtide's routes from the kernel without a running router.

use crate::client::Client;
use crate::text;
use clap::Args;
use ribtide_config as config;
use ribtide_dataplane::kernel::flush::{self, Flushed, Scope};
use std::path::PathBuf;

/// Options of the command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The configuration, which has ribtide's protocol number, tables and VRFs
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = "/etc/ribtide/ribtide.toml")]
    config: PathBuf,
    /// Without a configuration: the protocol number of the routes and next-hop objects
    /// (fib.kernel.protocol)
    #[arg(long, value_name = "NUMBER", requires = "table", conflicts_with = "config", value_parser = clap::value_parser!(u8).range(5..))]
    protocol: Option<u8>,
    /// Without a configuration: the tables
    #[arg(long, value_name = "NUMBER", requires = "protocol", value_delimiter = ',')]
    table: Vec<u32>,
    /// Only count what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Flush also while a router is running, which then installs its routes again
    #[arg(long)]
    force: bool,
    /// The Unix socket of the router that may be running [default: that of the configuration]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Removes them.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let (scope, configured) = match options.protocol {
        Some(protocol) => {
            let named = |table: &u32| (*table, "default".to_owned());
            (Scope { protocol, tables: options.table.iter().map(named).collect() }, None)
        }
        None => {
            let config = config::load(&options.config).map_err(|e| e.to_string())?;
            let (scope, missing) = Scope::of(&config)?;
            missing.iter().for_each(|why| text::write_stderr(why));
            (scope, Some(config.api.socket))
        }
    };
    let socket = options.socket.clone().or(configured).unwrap_or_else(|| "/run/ribtide/ribtide.sock".into());
    if !options.force && !options.dry_run && Client::new(&socket).is_there() {
        return Err(format!(
            "a router is running at {}, and would install again what it misses; stop it first (fib.on-stop = \"remove\" \
             removes everything then), or write --force",
            socket.display()
        ));
    }
    let flushed = flush::flush(&scope, options.dry_run, None).map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!("removing routes from the kernel needs the capability CAP_NET_ADMIN ({e}); run as root")
        }
        _ => format!("the kernel's routes cannot be read or removed: {e}"),
    })?;
    if options.json {
        let json = serde_json::to_string_pretty(&flushed).map_err(|e| e.to_string())?;
        text::write_stdout(&format!("{json}\n"))?;
    } else {
        text::write_stdout(&table(&flushed))?;
    }
    if flushed.left > 0 {
        return Err(format!(
            "{} routes and next-hop objects could not be removed; run as root (CAP_NET_ADMIN), with no router running",
            flushed.left
        ));
    }
    Ok(())
}

fn table(flushed: &Flushed) -> String {
    let mut table = text::Table::new(&["VRF", ">Table", ">IPv4 routes", ">IPv6 routes"]);
    for t in &flushed.tables {
        let counts = [u64::from(t.table), t.ipv4_routes, t.ipv6_routes].map(text::number);
        table.row(std::iter::once(t.vrf.clone()).chain(counts));
    }
    format!("{}{flushed}\n", table.render())
}
