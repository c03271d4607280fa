//! `ribtide check`: whether a configuration is valid, and with `--diff` what a reload of it would change.

use crate::client::Client;
use crate::exit::Exit;
use crate::show::Output;
use crate::text::{self, Table, count, number};
use clap::Args;
use ribtide_config as config;
use ribtide_daemon::router::{check_cpus, check_kernel};
use ribtide_model::{
    Basis, ChangedNeighbor, CheckReload, NeighborRoutes, ReloadCheck, ReloadRoutes, SettingEffect,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The options of `ribtide check`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The configuration file
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = crate::CONFIG_FILE)]
    config: PathBuf,
    /// The configuration file, without -c
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// Also what a reload of this file would change in the running router: settings, sessions, routes of each neighbour
    ///
    /// Nothing changes. Exit status 0: a reload would change nothing; 2: it would; 1: the check failed.
    #[arg(long)]
    diff: bool,
    /// With --diff: name up to so many prefixes of each change
    #[arg(long, value_name = "N", default_value = "5", requires = "diff", value_parser = clap::value_parser!(u16).range(0..=1000))]
    examples: u16,
    #[command(flatten)]
    output: Output,
}

/// From when on progress is written, and how often.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// All of it, for `--json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Difference {
    #[serde(flatten)]
    check: ReloadCheck,
    routes: Vec<NeighborRoutes>,
}

/// Runs `ribtide check`.
pub(crate) fn run(options: &Options) -> Result<ExitCode, String> {
    let path = options.file.as_ref().unwrap_or(&options.config);
    if !options.diff {
        if options.output.json {
            return Err("--json is for --diff; `ribtide schema` prints the shape of the file".into());
        }
        valid(path)?;
        return Ok(Exit::Done.into());
    }
    let text = ribtide_config::read(path).map_err(|e| e.to_string())?;
    // The router has another working directory.
    let file = std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let client = Client::of(&options.output)?;
    let request = CheckReload { text: Some(text), file: Some(file), examples: Some(options.examples.into()) };
    let mut check: ReloadCheck = client.post("/v1/reload/check", &request)?;
    let began = Instant::now();
    let (mut next, mut routes, mut written) = (check.next.take(), Vec::new(), began);
    while let Some(cursor) = next {
        let page: ReloadRoutes = client.get(&format!("/v1/reload/check?cursor={cursor}"))?;
        if began.elapsed() >= PROGRESS_AFTER && written.elapsed() >= PROGRESS_INTERVAL {
            let (done, all) = (number(page.looked_at), number(page.total));
            text::write_stderr(&format!("{done} of {all} routes and prefixes evaluated"));
            written = Instant::now();
        }
        routes.extend(page.neighbors);
        next = page.next;
    }
    let difference = Difference { check, routes };
    options.output.print(&difference, in_words)?;
    Ok(match difference.is_empty() {
        true => Exit::Done.into(),
        false => Exit::Unusable.into(),
    })
}

/// Whether a configuration is valid, and this machine can obey it.
fn valid(path: &Path) -> Result<(), String> {
    let config = config::load(path).map_err(|e| e.to_string())?;
    if let Some(bgp) = &config.bgp {
        let of_this_machine = check_kernel(bgp).and_then(|()| check_cpus(&bgp.cpus));
        of_this_machine.map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let neighbors = config.bgp.as_ref().map_or(0, |b| b.neighbors.len() + b.interfaces.len());
    let (neighbors, statics) =
        (count(neighbors as u64, "neighbour"), count(config.statics.len() as u64, "static route"));
    for warning in config.warnings() {
        let place = warning.place.map_or(" ".into(), |(line, column)| format!("{line}:{column}: "));
        text::write_stderr(&format!("{}:{place}warning: {warning}", path.display()));
    }
    text::write_stdout(&format!("{}: valid; AS {}, {neighbors}, {statics}\n", path.display(), config.asn))
}

impl Difference {
    fn is_empty(&self) -> bool {
        let Difference { check, routes } = self;
        check.settings.is_empty()
            && check.effects.is_empty()
            && check.parts.is_empty()
            && check.neighbors.is_empty()
            && routes.is_empty()
    }
}

fn in_words(difference: &Difference) -> String {
    let Difference { check, routes } = difference;
    let file = check.file.display();
    if difference.is_empty() {
        return format!("{file}: a reload would change nothing\n");
    }
    let mut out = match check.restart.is_empty() {
        true => format!("{file}: a reload would change this\n"),
        false => format!(
            "{file}: a reload would be refused, because {} cannot change while the router runs\n",
            check.restart.join(", ")
        ),
    };
    let mut section = |table: Option<Table>| {
        if let Some(mut table) = table {
            out.push('\n');
            out.push_str(&table.render());
        }
    };
    let absent = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    section(table(&["Setting", "In force", "In the file"], &check.settings, |s| {
        let is_secret = s.from.as_deref() == Some(HIDDEN) && s.to.as_deref() == Some(HIDDEN);
        vec![s.name.clone(), absent(&s.from), if is_secret { "changed".into() } else { absent(&s.to) }]
    }));
    let effect = |e: &SettingEffect| vec![e.name.clone(), e.resets.clone(), e.note.clone()];
    section(table(&["Of the router", "Begins again", "What happens"], &check.effects, effect));
    section(table(&["Listener or dataplane", "Name", "Change"], &check.parts, |part| {
        vec![part.setting.clone(), part.name.clone(), part.change.clone()]
    }));
    section(table(&["Neighbor", "Group", "Session", "Change", "Why"], &check.neighbors, |n| {
        let session = if n.established { "up" } else { "-" };
        vec![n.neighbor.clone(), n.group.clone(), session.into(), n.change.clone(), why(n)]
    }));
    let received = routes.iter().filter_map(|n| Some((n, n.received.as_ref()?)));
    let header =
        ["Received from", ">Evaluated", ">Accepted then", ">Refused then", ">Changed", "Evaluated from"];
    section(table(&header, &received.clone().collect::<Vec<_>>(), |(n, r)| {
        let numbers = [r.routes, r.accepted, r.refused, r.changed].map(number);
        [vec![n.neighbor.clone()], numbers.to_vec(), vec![basis(r.basis).into()]].concat()
    }));
    let advertised = routes.iter().filter_map(|n| Some((n, n.advertised.as_ref()?)));
    section(table(
        &["Sent to", ">Appear", ">Vanish", ">Changed"],
        &advertised.clone().collect::<Vec<_>>(),
        |(n, a)| [vec![n.neighbor.clone()], [a.appear, a.vanish, a.changed].map(number).to_vec()].concat(),
    ));
    let mut examples = Vec::new();
    for (n, r) in received {
        examples.push((&n.neighbor, "accepted then", &r.accepted_examples, r.accepted));
        examples.push((&n.neighbor, "refused then", &r.refused_examples, r.refused));
        examples.push((&n.neighbor, "changed", &r.changed_examples, r.changed));
    }
    for (n, a) in advertised {
        examples.push((&n.neighbor, "sent then", &a.appear_examples, a.appear));
        examples.push((&n.neighbor, "withdrawn", &a.vanish_examples, a.vanish));
        examples.push((&n.neighbor, "sent otherwise", &a.changed_examples, a.changed));
    }
    examples.retain(|(_, _, names, _)| !names.is_empty());
    section(table(&["Neighbor", "Routes", "Examples"], &examples, |(neighbor, what, names, of)| {
        let more = of.saturating_sub(names.len() as u64);
        let more = if more > 0 { format!(" and {} more", number(more)) } else { String::new() };
        vec![neighbor.to_string(), (*what).into(), format!("{}{more}", names.join(", "))]
    }));
    out.push('\n');
    for (what, groups) in [("New groups", &check.groups_added), ("Groups that go", &check.groups_removed)] {
        if !groups.is_empty() {
            out.push_str(&format!("{what}: {}\n", groups.join(", ")));
        }
    }
    let (now, then) = (check.update_groups, check.update_groups_after);
    out.push_str(&format!("Update groups of the present sessions: {now} now, {then} then\n"));
    if !check.not_evaluated.is_empty() {
        out.push_str("Not computed:\n");
        check.not_evaluated.iter().for_each(|sentence| out.push_str(&format!("  {sentence}\n")));
    }
    out
}

/// In the place of a secret.
const HIDDEN: &str = "********";

/// Rows of these items; none without items.
fn table<T>(header: &[&str], items: &[T], row: impl Fn(&T) -> Vec<String>) -> Option<Table> {
    let mut table = Table::new(header);
    items.iter().for_each(|item| table.row(row(item)));
    (!items.is_empty()).then_some(table)
}

fn why(neighbor: &ChangedNeighbor) -> String {
    let settings = neighbor.settings.join(", ");
    match &neighbor.reason {
        Some(reason) if settings.is_empty() => reason.clone(),
        Some(reason) => format!("{reason} ({settings})"),
        None => settings,
    }
}

fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Received => "all routes as received",
        Basis::AcceptedUnchanged => "accepted routes: the policy in force accepts all",
        Basis::Accepted => "accepted routes alone, as the policy in force left them",
    }
}
