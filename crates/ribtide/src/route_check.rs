//! `ribtide route-check`: compares the routes of all stages from the RIB to the chip.
//!
//! With `--sonic` the daemons' databases are compared, and a running router with them.
//!
//! Exit status: 0 equal, 1 different, 2 not determined.

use crate::client::Client;
use crate::exit::Exit;
use crate::show::{self, Output};
use crate::text::{self, Table, number};
use clap::Args;
use ribtide_model::{FibLookups, FibPage, FibPrefixes, FibRoute, Fpm, FpmClient, RouteCheck, RouteSummary};
use ribtide_sonicd::route_check::{AsicsCheck, CheckScope, Router};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The interval between checks of a difference that may still be in progress.
const DIFFERENCE_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What to compare.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Compare everything, not only changes since the last check; with --sonic and --every: not only a part
    #[arg(long)]
    full: bool,
    /// The time for which a difference may last before it counts
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    wait: f64,
    /// Repeat the check at this interval, until Ctrl-C
    #[arg(long, value_name = "SECONDS")]
    every: Option<f64>,
    /// Check only that a default route forwards
    #[arg(long, conflicts_with = "full")]
    default_route: bool,
    /// Compare the databases of SONiC's daemons, and with them the router at --socket if it runs; of every ASIC,
    /// unless NAMESPACE_ID names one
    #[arg(long)]
    sonic: bool,
    /// With --sonic: SONiC's database_config.json, if not in its usual place
    #[arg(long, value_name = "FILE", requires = "sonic")]
    database_config: Option<PathBuf>,
    /// With --sonic: compare also the switch of the syncd with this --query-socket; with several ASICs ASIC=PATH for each
    #[arg(long, value_name = "PATH", requires = "sonic")]
    syncd: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// The target of the check.
enum CheckTarget {
    Router(Client),
    Daemons(Box<AsicsCheck>),
}

/// The router at a socket, for the comparison with APPL_DB.
struct RunningRouter(Client);

impl Router for RunningRouter {
    fn clients(&mut self) -> Result<Result<Vec<FpmClient>, String>, String> {
        if !cfg!(feature = "router") {
            return Ok(Err("this ribtide is built without the router, and cannot query one".to_owned()));
        }
        let found = self.0.get::<Fpm>("/v1/fpm").map(|fpm| fpm.clients);
        // One that is there must reply.
        if found.is_err() && !self.0.is_there() { Ok(found) } else { found.map(Ok) }
    }

    fn vrfs(&mut self) -> Result<Vec<String>, String> {
        let RouteSummary { vrfs, .. } = self.0.get("/v1/routes/summary")?;
        Ok(std::iter::once("default".to_owned()).chain(vrfs.into_iter().map(|table| table.vrf)).collect())
    }

    fn page(&mut self, vrf: &str, cursor: Option<&str>, limit: usize) -> Result<FibPage, String> {
        let parts = [
            ("vrf", Some(vrf.to_owned())),
            ("limit", Some(limit.to_string())),
            ("cursor", cursor.map(str::to_owned)),
        ];
        self.0.get(&format!("/v1/fib?{}", show::query(&parts)))
    }

    fn lookup(&mut self, vrf: &str, prefixes: Vec<String>) -> Result<Vec<Option<FibRoute>>, String> {
        let body = FibPrefixes { vrf: Some(vrf.to_owned()), prefixes };
        let FibLookups { routes } = self.0.post("/v1/fib/lookup", &body)?;
        Ok(routes)
    }
}

impl CheckTarget {
    fn check(&mut self, check: CheckScope) -> Result<RouteCheck, String> {
        match self {
            CheckTarget::Router(client) => {
                client.get(&format!("/v1/route-check?full={}", check == CheckScope::Full))
            }
            CheckTarget::Daemons(daemons) => daemons.check(check).map_err(|e| e.to_string()),
        }
    }

    fn defaults(&mut self) -> Result<RouteCheck, String> {
        match self {
            CheckTarget::Router(client) => client.get("/v1/route-check?defaults=true"),
            CheckTarget::Daemons(daemons) => {
                let default_routes = daemons.default_routes().map_err(|e| e.to_string())?;
                Ok(RouteCheck { default_routes, ..RouteCheck::default() })
            }
        }
    }
}

/// Compares, prints, and returns the exit status.
pub(crate) fn run(options: &Options) -> ExitCode {
    match compare(options) {
        Ok(true) => Exit::Done.into(),
        Ok(false) => Exit::Failed.into(),
        Err(sentence) => {
            text::write_stderr(&sentence);
            Exit::Unusable.into()
        }
    }
}

fn compare(options: &Options) -> Result<bool, String> {
    let wait = Duration::try_from_secs_f64(options.wait).map_err(|e| format!("--wait: {e}"))?;
    let every =
        options.every.map(Duration::try_from_secs_f64).transpose().map_err(|e| format!("--every: {e}"))?;
    let mut target = match options.sonic {
        false => CheckTarget::Router(Client::of(&options.output)?),
        true => {
            let router = Box::new(RunningRouter(Client::of(&options.output)?));
            let daemons = AsicsCheck::open(options.database_config.as_deref(), &options.syncd, router);
            CheckTarget::Daemons(Box::new(daemons.map_err(|e| e.to_string())?))
        }
    };
    loop {
        let begin = Instant::now();
        let well = if options.default_route {
            let found = target.defaults()?;
            print(options, &found, defaults)?;
            found.default_routes.iter().any(|route| route.forwarded)
        } else {
            // A single check compares everything.
            let less = if options.every.is_some() { CheckScope::Part } else { CheckScope::Changed };
            let mut found = target.check(if options.full { CheckScope::Full } else { less })?;
            while found.differing > 0 && found.under_way > 0 && begin.elapsed() < wait {
                std::thread::sleep(DIFFERENCE_POLL_INTERVAL);
                // Known differences are compared again in any case.
                found = target.check(less)?;
            }
            print(
                options,
                &found,
                if options.sonic { |found| all(found, "a part") } else { |found| all(found, "what changed") },
            )?;
            found.differing == 0
        };
        let Some(every) = every else { return Ok(well) };
        std::thread::sleep(every.saturating_sub(begin.elapsed()));
    }
}

fn print(options: &Options, found: &RouteCheck, text: fn(&RouteCheck) -> String) -> Result<(), String> {
    if options.output.json {
        // One line per check.
        let json = serde_json::to_string(found).map_err(|e| e.to_string())?;
        return text::write_stdout(&format!("{json}\n"));
    }
    text::write_stdout(&text(found))
}

/// The numbers of a check; `less` names the part that it compared.
fn all(found: &RouteCheck, less: &str) -> String {
    let mut parts: Vec<String> =
        found.routes.iter().map(|(stage, n)| format!("{stage} {}", number(*n))).collect();
    if parts.is_empty() {
        parts.push("not counted".to_owned());
    }
    let what = if found.full { "everything" } else { less };
    let mut out = format!(
        "{} ({}; compared {what}: {} routes in {:.1} ms)\n",
        match found.differing {
            0 => "All agree".to_owned(),
            1 => "1 route differs".to_owned(),
            n => format!("{} differ", text::count(n, "route")),
        },
        parts.join(", "),
        number(found.checked),
        found.milliseconds
    );
    if !found.differences.is_empty() {
        let mut table = Table::new(&["VRF", "Prefix", "Stage", "Wanted", "Found", "Why"]);
        for d in &found.differences {
            table.row([&d.vrf, &d.prefix, &d.stage, &d.rib, &d.found, &d.message].map(String::clone));
        }
        out += &table.render();
    }
    if found.differing > found.differences.len() as u64 {
        out += &format!("and {} more\n", found.differing - found.differences.len() as u64);
    }
    for what in &found.not_compared {
        out += &format!("Not compared: {what}\n");
    }
    out
}

fn defaults(found: &RouteCheck) -> String {
    let line = |route: &ribtide_model::DefaultRoute| {
        let target = route.next_hops.as_deref().unwrap_or("absent");
        let forwards = if route.forwarded { "forwards" } else { "does not forward" };
        format!("{} {target}: {forwards}\n", route.prefix)
    };
    found.default_routes.iter().map(line).collect()
}
