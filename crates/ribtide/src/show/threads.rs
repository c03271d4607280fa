//! Stages, the queues between them, and threads.

use crate::text::{Table, bytes, number};
use ribtide_model::{Gauge, Health, HealthState, Pipeline, Ring, Threads};
use ribtide_sonicd::pipeline::DaemonPipeline;

pub(super) fn pipeline(p: &Pipeline) -> String {
    let mut stages =
        Table::new(&["Stage", ">Routes", ">Batches", ">Busy s", ">Routes/s busy", ">First s", ">Last s"]);
    for s in &p.stages {
        let rate =
            if s.busy_seconds > 0.0 { number((s.routes as f64 / s.busy_seconds) as u64) } else { "-".into() };
        let time = |t: Option<f64>| t.map_or("-".into(), |t| format!("{t:.2}"));
        stages.row([
            s.name.clone(),
            number(s.routes),
            number(s.batches),
            format!("{:.3}", s.busy_seconds),
            rate,
            time(s.first_seconds),
            time(s.last_seconds),
        ]);
    }
    let mut threads = Table::new(&["Thread", ">CPU s"]);
    for t in &p.threads {
        threads.row([t.name.clone(), format!("{:.2}", t.cpu_seconds)]);
    }
    format!(
        "{}\n{}\n{}\nPeak memory {}\n",
        stages.render(),
        queues(&p.rings, &p.gauges).render(),
        threads.render(),
        bytes(p.peak_memory_bytes)
    )
}

/// The health of processes by name.
pub(super) fn health(all: &[(String, Health)]) -> String {
    let mut table = Table::new(&["Process", "State", "What waits", "Thread", ">Depth", ">Seconds", "Behind"]);
    for (process, health) in all {
        let state = match health.state {
            HealthState::Ok => "ok",
            HealthState::Degraded => "degraded",
        };
        if health.stalls.is_empty() {
            table.row([process, state, "", "", "", "", ""].map(Into::<String>::into));
        }
        for s in &health.stalls {
            let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
            table.row([
                process.clone(),
                state.into(),
                s.what.clone(),
                or_none(&s.thread),
                number(s.depth),
                number(s.seconds),
                or_none(&s.behind),
            ]);
        }
    }
    let faults = all.iter().flat_map(|(process, health)| health.faults.iter().map(move |f| (process, f)));
    faults.fold(table.render(), |text, (process, f)| format!("{text}{process}: {}: {}\n", f.what, f.why))
}

/// Settings, queues and repairs of SONiC's daemons.
pub(super) fn daemons(daemons: &[DaemonPipeline]) -> String {
    let several = daemons.iter().any(|d| d.asic.is_some());
    let table = |columns: &[&str]| {
        let asic: &[&str] = if several { &["ASIC", "Daemon"] } else { &["Daemon"] };
        Table::new(&[asic, columns].concat())
    };
    let mut settings = table(&["Setting", "Requested", "Active", "Why"]);
    let mut queues = table(&["Queue", ">Bound", ">Depth", ">Peak", ">Full"]);
    let mut reconciled = table(&["Compared table", ">Compared", ">Repaired", ">Failed"]);
    let mut unhandled = table(&["Table that is not programmed", ">Rows", "One of them", "Why"]);
    for daemon in daemons {
        let whose = || daemon.asic.iter().cloned().chain([daemon.daemon.into()]);
        for s in &daemon.settings {
            settings.row(whose().chain([
                s.name.clone(),
                s.requested.clone(),
                s.active.clone(),
                s.why.clone(),
            ]));
        }
        for queue in &daemon.queues {
            let level = &queue.level;
            let bound = level.bound.map_or_else(|| "-".into(), number);
            let counts = [bound, number(level.depth), number(level.peak), number(level.full)];
            queues.row(whose().chain([queue.name.clone()]).chain(counts));
        }
        for (table, count) in &daemon.reconciled {
            let counts = [count.compared, count.repaired, count.failed].map(number);
            reconciled.row(whose().chain([table.clone()]).chain(counts));
        }
        for (table, rows) in &daemon.unhandled {
            let columns = [table.clone(), number(rows.rows), rows.example.clone(), rows.why.clone()];
            unhandled.row(whose().chain(columns));
        }
    }
    let mut text = format!("{}\n{}\n{}", settings.render(), queues.render(), reconciled.render());
    if daemons.iter().any(|daemon| !daemon.unhandled.is_empty()) {
        text.push_str(&format!("\n{}", unhandled.render()));
    }
    text
}

pub(super) fn queues(rings: &[Ring], gauges: &[Gauge]) -> Table {
    let mut table = Table::new(&["Queue", ">Bound", ">Depth", ">Peak", ">Batches", ">Full"]);
    for r in rings {
        table.row([
            r.name.clone(),
            number(r.capacity as u64),
            number(r.depth),
            number(r.peak),
            number(r.sent),
            number(r.full),
        ]);
    }
    for g in gauges {
        let bound = g.bound.map_or_else(|| "-".into(), number);
        table.row([g.name.clone(), bound, number(g.depth), number(g.peak), "-".into(), number(g.full)]);
    }
    table
}

pub(super) fn threads(t: &Threads) -> String {
    let mut table =
        Table::new(&["Thread", ">CPU %", ">CPU s", ">User s", ">System s", ">Waited s", "CPUs", "Does"]);
    for thread in &t.threads {
        let name = if thread.count > 1 {
            format!("{} (x{})", thread.name, thread.count)
        } else {
            thread.name.clone()
        };
        table.row([
            name,
            thread.cpu_percent.map_or("-".into(), |p| format!("{p:.1}")),
            format!("{:.2}", thread.cpu_seconds),
            format!("{:.2}", thread.user_seconds),
            format!("{:.2}", thread.system_seconds),
            thread.waited_seconds.map_or("-".into(), |s| format!("{s:.2}")),
            format!("{}{}", thread.cpus, if thread.pinned { " (pinned)" } else { "" }),
            thread.role.clone(),
        ]);
    }
    let all: f64 = t.threads.iter().filter_map(|thread| thread.cpu_percent).sum();
    format!(
        "{} CPUs, {all:.0}% of one in use; measured for {:.1} s\n\n{}\n{}",
        t.cpus,
        t.window_seconds,
        table.render(),
        queues(&t.rings, &[]).render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_model::Thread;
    use ribtide_sonicd::queues::{Level, Queue};
    use ribtide_sonicd::reconcile::ReconcileCount;
    use ribtide_sonicd::settings::Setting;
    use ribtide_sonicd::unhandled_tables::{UnhandledTable, UnhandledTables};

    #[test]
    fn daemons_text_has_settings_queues_and_repairs() {
        let count = ReconcileCount { compared: 120_000, repaired: 3, failed: 0 };
        let of = |asic: Option<&str>| DaemonPipeline {
            asic: asic.map(str::to_owned),
            daemon: "orchagent",
            settings: vec![Setting {
                name: "-b".into(),
                requested: "9000".into(),
                active: "1024".into(),
                why: "too many".into(),
            }],
            queues: vec![
                Queue {
                    name: "routes in the retry cache".into(),
                    level: Level { bound: None, depth: 2, peak: 7, full: 0 },
                },
                Queue {
                    name: "rows in m_toSync".into(),
                    level: Level { bound: Some(50_000), depth: 49_120, peak: 50_000, full: 1 },
                },
            ],
            reconciled: [("ASIC_DB ASIC_STATE".to_owned(), count)].into(),
            unhandled: UnhandledTables::default(),
        };
        let (rows, example, why) = (3, "Vnet1".into(), "it stays".into());
        let vnets = [("APPL_DB VNET_TABLE".to_owned(), UnhandledTable { rows, example, why })].into();
        let text = daemons(&[DaemonPipeline { unhandled: vnets, ..of(None) }]);
        assert!(
            text.ends_with(
                "\n\nDaemon     Table that is not programmed  Rows  One of them  Why\n\
                 orchagent  APPL_DB VNET_TABLE               3  Vnet1        it stays\n"
            ),
            "{text}"
        );
        assert_eq!(
            daemons(&[of(None)]),
            "\
Daemon     Setting  Requested  Active  Why
orchagent  -b       9000       1024    too many

Daemon     Queue                       Bound   Depth    Peak  Full
orchagent  routes in the retry cache       -       2       7     0
orchagent  rows in m_toSync           50,000  49,120  50,000     1

Daemon     Compared table      Compared  Repaired  Failed
orchagent  ASIC_DB ASIC_STATE   120,000         3       0
"
        );
        let text = daemons(&[of(Some("asic0")), of(Some("asic1"))]);
        let of_it = text.lines().filter(|line| line.starts_with("asic1  orchagent  "));
        assert!(text.starts_with("ASIC   Daemon     Setting") && of_it.count() == 4, "{text}");
    }

    #[test]
    fn threads_text_has_tasks_and_cpus() {
        let thread = |name: &str, count, cpu_percent, pinned: bool| Thread {
            name: name.into(),
            role: "a shard".into(),
            count,
            cpu_seconds: 12.5,
            user_seconds: 12.0,
            system_seconds: 0.5,
            waited_seconds: (!pinned).then_some(0.25),
            cpu_percent: Some(cpu_percent),
            cpus: if pinned { "1" } else { "0-1" }.into(),
            pinned,
        };
        let ring = Ring {
            name: "readers to shard 0".into(),
            capacity: 128,
            depth: 3,
            peak: 128,
            sent: 1_000_000,
            full: 17,
        };
        let all = Threads {
            window_seconds: 0.5,
            cpus: 2,
            threads: vec![thread("shard-0", 1, 99.6, true), thread("api-query", 3, 0.4, false)],
            rings: vec![ring],
        };
        assert_eq!(
            threads(&all),
            "\
2 CPUs, 100% of one in use; measured for 0.5 s

Thread          CPU %  CPU s  User s  System s  Waited s  CPUs        Does
shard-0          99.6  12.50   12.00      0.50         -  1 (pinned)  a shard
api-query (x3)    0.4  12.50   12.00      0.50      0.25  0-1         a shard

Queue               Bound  Depth  Peak    Batches  Full
readers to shard 0    128      3   128  1,000,000    17
"
        );
    }

    #[test]
    fn what_stages_keep_stands_under_what_lies_between_them() {
        let ring =
            Ring { name: "RIB to asic".into(), capacity: 64, depth: 64, peak: 64, sent: 1_000, full: 3 };
        let gauge =
            |name: &str, bound| Gauge { name: name.into(), bound, depth: 8_192, peak: 9_000, full: 1 };
        let gauges = [gauge("rows in m_toSync", Some(8_192)), gauge("routes in the retry cache", None)];
        assert_eq!(
            queues(&[ring], &gauges).render(),
            "\
Queue                      Bound  Depth   Peak  Batches  Full
RIB to asic                   64     64     64    1,000     3
rows in m_toSync           8,192  8,192  9,000        -     1
routes in the retry cache      -  8,192  9,000        -     1
"
        );
    }
}
