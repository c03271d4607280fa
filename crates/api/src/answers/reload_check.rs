//! `/v1/reload/check`: what a reload of a file would change. Nothing changes, and no stage waits.

use super::reload_routes::RouteTrial;
use super::zones::Zones;
use super::{ApiState, Refusal};
use ribtide_bgpd::session::prediction::{NeighborChange, NeighborPrediction, Prediction};
use ribtide_config::{self as config, BgpConfig, Config, FibConfig, NeighborSettings};
use ribtide_model::{
    ChangedNeighbor, ChangedPart, ChangedSetting, CheckReload, ReloadCheck, ReloadRoutes, SettingEffect,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// Prefixes named of each kind of change, unless the request says otherwise, and at most.
const EXAMPLES: usize = 5;
const EXAMPLES_MAX: usize = 1000;

/// What a reload of this file would change, but for routes.
pub(crate) fn reload_check(api: &ApiState, check: CheckReload) -> Result<ReloadCheck, Refusal> {
    let examples = check.examples.unwrap_or(EXAMPLES);
    if examples > EXAMPLES_MAX {
        return Err(Refusal::Bad(format!("examples: at most {EXAMPLES_MAX}, not {examples}")));
    }
    let former = api.config();
    let invalid = |e: config::ConfigError| Refusal::Bad(e.to_string());
    let (new, file) = match (check.text, check.file) {
        (Some(text), file) => {
            let file = file.ok_or_else(|| {
                Refusal::Bad("file is absent; send the path of the file that has this text".into())
            })?;
            (config::load_text(&text, &file).map_err(invalid)?, file)
        }
        (None, Some(_)) => {
            let why =
                "text is absent; send the text of the file, or neither text nor file for that of the router";
            return Err(Refusal::Bad(why.into()));
        }
        (None, None) => {
            let file = former.shown.file.clone().ok_or_else(|| {
                Refusal::Bad(
                    "this router was not started from a file; send the text and the path of one".into(),
                )
            })?;
            (config::load(&file).map_err(invalid)?, file)
        }
    };
    let effects = (api.reload.effects)(&former, &new);
    let restart: Vec<String> =
        effects.iter().filter(|e| e.resets.contains("restart")).map(|e| e.name.clone()).collect();
    let settings = config::differences(&former, &new).into_iter();
    let settings = settings.map(|d| ChangedSetting { name: d.name, from: d.from, to: d.to }).collect();
    let prediction = match api.bgp.get() {
        Some(bgp) => {
            let wanted = new.bgp.clone();
            bgp.sessions.call(move |sessions| sessions.predict(wanted.as_ref()))?
        }
        None => Prediction::default(),
    };
    let zones = Zones::new(api)?;
    let neighbors = prediction.neighbors.iter().filter_map(|n| neighbor(n, &zones)).collect();
    let (old_groups, new_groups) = (groups(&former), groups(&new));
    let not_evaluated = not_evaluated(&former, &new, &effects, &prediction, &zones);
    let (update_groups, update_groups_after) = (prediction.update_groups, prediction.new_update_groups);
    let trial = match (restart.is_empty(), &new.bgp) {
        (true, Some(bgp)) => RouteTrial::new(api, prediction, bgp, &zones, examples)?,
        _ => None,
    };
    Ok(ReloadCheck {
        file,
        restart,
        settings,
        effects,
        parts: parts(&former, &new),
        groups_added: new_groups.difference(&old_groups).map(ToString::to_string).collect(),
        groups_removed: old_groups.difference(&new_groups).map(ToString::to_string).collect(),
        update_groups,
        update_groups_after,
        neighbors,
        not_evaluated,
        next: trial.map(|trial| api.reload_checks.put("", trial)),
    })
}

/// The next page of its routes.
pub(crate) fn reload_routes(api: &ApiState, cursor: &str) -> Result<ReloadRoutes, Refusal> {
    let mut trial = api.reload_checks.take(cursor, "")?;
    let is_done = trial.go_on(api)?;
    let (looked_at, total) = trial.progress();
    Ok(match is_done {
        true => ReloadRoutes { looked_at, total, neighbors: trial.result(), next: None },
        false => {
            let next = Some(api.reload_checks.put("", trial));
            ReloadRoutes { looked_at, total, neighbors: Vec::new(), next }
        }
    })
}

fn neighbor(prediction: &NeighborPrediction, zones: &Zones) -> Option<ChangedNeighbor> {
    let change = match prediction.change {
        NeighborChange::None => return None,
        NeighborChange::Added => "added",
        NeighborChange::Removed => "removed",
        NeighborChange::Reset => "reset",
        NeighborChange::Refreshed => "refreshed",
        NeighborChange::ShutDown => "shut-down",
        NeighborChange::Started => "started",
    };
    let settings = match prediction.change {
        NeighborChange::Reset if !prediction.settings.session.is_empty() => {
            prediction.settings.session.clone()
        }
        _ => prediction.settings.names(),
    };
    Some(ChangedNeighbor {
        neighbor: zones.named(prediction.address).to_string(),
        group: prediction.group.clone(),
        change: change.into(),
        established: prediction.session.is_some(),
        settings: settings.into_iter().map(str::to_owned).collect(),
        reason: prediction.why.map(str::to_owned),
    })
}

fn every_settings(bgp: &BgpConfig) -> impl Iterator<Item = &NeighborSettings> {
    let neighbors = bgp.neighbors.values().map(|neighbor| &neighbor.settings);
    let ranges = bgp.dynamic.iter().map(|range| &range.settings);
    neighbors.chain(ranges).chain(bgp.interfaces.iter().map(|neighbor| &neighbor.settings))
}

/// The groups of a configuration that have neighbours.
fn groups(config: &Config) -> BTreeSet<&str> {
    config.bgp.iter().flat_map(every_settings).map(|settings| settings.group.as_str()).collect()
}

/// Listeners and dataplanes that are others.
fn parts(old: &Config, new: &Config) -> Vec<ChangedPart> {
    let mut changed = Vec::new();
    for (setting, of) in PARTS {
        let (before, after) = (of(old), of(new));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            let change = match (before.get(name), after.get(name)) {
                (None, _) => "added",
                (_, None) => "removed",
                (before, after) if before != after => "changed",
                _ => continue,
            };
            let (setting, change) = (setting.into(), change.into());
            changed.push(ChangedPart { setting, name: name.clone(), change });
        }
    }
    changed
}

/// A part's name and, as text, its settings.
type Parts = fn(&Config) -> BTreeMap<String, String>;

/// The settings of listeners and dataplanes.
const PARTS: [(&str, Parts); 7] = [
    ("bgp.listen", |c| of_names(c.bgp.iter().flat_map(|bgp| &bgp.listen))),
    ("bfd.listen", |c| of_names(&c.bfd.listen)),
    ("api.socket", |c| {
        let settings = format!("{:?} {:?}", c.api.socket_mode, c.api.socket_group);
        BTreeMap::from([(c.api.socket.display().to_string(), settings)])
    }),
    ("api.http", |c| of_names(c.api.http)),
    ("fib.kernel", |c| {
        let kernel = c.fib.iter().filter_map(|fib| fib.kernel.as_ref());
        kernel.map(|kernel| (format!("table {}", kernel.table), text(kernel))).collect()
    }),
    ("fib.fpm", |c| {
        let of = |fib: &FibConfig| -> Vec<_> {
            fib.fpm.iter().map(|server| (server.to_string(), text(&fib.fpm_next_hop_groups))).collect()
        };
        c.fib.iter().flat_map(of).collect()
    }),
    ("fib.asic", |c| {
        let asics = c.fib.iter().flat_map(|fib| &fib.asics);
        asics.map(|(name, asic)| (name.clone(), text(asic))).collect()
    }),
];

fn text(settings: &impl Debug) -> String {
    format!("{settings:?}")
}

fn of_names<T: ToString>(names: impl IntoIterator<Item = T>) -> BTreeMap<String, String> {
    names.into_iter().map(|name| (name.to_string(), String::new())).collect()
}

/// What of the change is not computed.
fn not_evaluated(
    old: &Config,
    new: &Config,
    effects: &[SettingEffect],
    prediction: &Prediction,
    zones: &Zones,
) -> Vec<String> {
    let mut sentences: Vec<String> = Vec::new();
    let changed = |name: &str| effects.iter().any(|effect| effect.name == name);
    for (name, what) in [
        ("bgp.originate", "routes that are originated by other settings"),
        ("bgp.aggregate", "aggregates, and what they suppress"),
        ("rpki", "the validation state of routes"),
        ("rpki.cache", "the validation state of routes"),
        ("rpki.slurm", "the validation state of routes"),
        ("fib", "which next hops resolve, and so which paths are used"),
        ("fib.policy", "which routes go to the FIB"),
        ("fib.resolve-via-default", "which next hops resolve"),
    ] {
        if changed(name) {
            sentences.push(format!("{name}: {what}"));
        }
    }
    if old.statics != new.statics || old.vrfs != new.vrfs {
        sentences
            .push("static routes and VRFs: their routes, and next hops that resolve through them".into());
    }
    for neighbor in &prediction.neighbors {
        let name = zones.named(neighbor.address);
        match (neighbor.change, &neighbor.session) {
            (NeighborChange::Added | NeighborChange::Started, _) => {
                sentences.push(format!("{name}: its routes, since it has no session yet"));
            }
            (NeighborChange::Reset, Some(_)) => {
                sentences
                    .push(format!("{name}: what its new session negotiates otherwise than the present one"));
            }
            _ => {}
        }
        let Some(session) = &neighbor.session else { continue };
        let before_policy: Vec<&str> = (neighbor.settings.import.iter().copied())
            .filter(|setting| !["import", "keep-received", "martians"].contains(setting))
            .collect();
        if session.new_import.is_some() && !before_policy.is_empty() {
            sentences.push(format!(
                "{name}: routes that {} decides about before import policy, and that are refused now",
                before_policy.join(", ")
            ));
        }
        if neighbor.settings.export.contains(&"default-originate") {
            sentences.push(format!("{name}: its own default route (default-originate)"));
        }
    }
    sentences
}
