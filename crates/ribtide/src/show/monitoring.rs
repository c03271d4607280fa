//! BMP stations and MRT files.

use crate::text::{Table, bytes, duration, number};
use ribtide_model::{Bmp, Mrt};

pub(super) fn stations(bmp: &Bmp) -> String {
    if bmp.stations.is_empty() {
        return "No BMP station is configured.\n".into();
    }
    let mut table = Table::new(&[
        "Station",
        "Address",
        "State",
        ">For or in",
        ">Queued",
        ">Sent",
        ">Sessions",
        ">Failures",
        ">Overflows",
        "Views",
    ]);
    for s in &bmp.stations {
        table.row([
            s.name.clone(),
            s.address.to_string(),
            s.state.clone(),
            duration(s.state_seconds),
            bytes(s.queued_bytes),
            bytes(s.sent_bytes),
            number(s.connects),
            number(s.failures),
            number(s.overflows),
            s.views.join(", "),
        ]);
    }
    let mut out = table.render();
    for s in &bmp.stations {
        if let Some(error) = &s.last_error {
            out.push_str(&format!("{}: {error}\n", s.name));
        }
    }
    out
}

pub(super) fn files(mrt: &Mrt) -> String {
    if mrt.series.is_empty() {
        return "No MRT file is configured.\n".into();
    }
    let mut table = Table::new(&[
        "Series",
        "State",
        ">Files",
        ">Records",
        ">Bytes",
        ">Dropped",
        ">Failures",
        "Last file",
    ]);
    for s in &mrt.series {
        let state = match (&s.error, s.writing) {
            (Some(_), _) => "failing",
            (None, true) => "writing",
            (None, false) => "waiting",
        };
        table.row([
            s.name.clone(),
            state.into(),
            number(s.files),
            number(s.records),
            bytes(s.bytes),
            number(s.dropped),
            number(s.failures),
            s.last.as_ref().map_or_else(|| "-".into(), |path| path.display().to_string()),
        ]);
    }
    let mut out = table.render();
    for s in &mrt.series {
        if let Some(error) = &s.error {
            out.push_str(&format!("{}: {error}\n", s.name));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_model::{BmpStation, MrtSeries};

    #[test]
    fn stations_have_their_state_and_their_last_error() {
        let up = BmpStation {
            name: "a".into(),
            address: "192.0.2.1:5000".parse().unwrap(),
            local: None,
            views: vec!["adj-rib-in-post-policy".into(), "loc-rib".into()],
            state: "up".into(),
            state_seconds: 61,
            queued_bytes: 0,
            queue_bytes: 64 << 20,
            connects: 1,
            failures: 0,
            overflows: 0,
            dumps: 1,
            sent_bytes: 2048,
            last_error: None,
        };
        let down = BmpStation {
            name: "b".into(),
            state: "waiting".into(),
            failures: 2,
            last_error: Some("Connection refused (os error 111)".into()),
            ..up.clone()
        };
        let text = stations(&Bmp { stations: vec![up, down] });
        assert!(text.contains("adj-rib-in-post-policy, loc-rib"), "{text}");
        assert!(text.ends_with("b: Connection refused (os error 111)\n"), "{text}");
        assert_eq!(stations(&Bmp { stations: vec![] }), "No BMP station is configured.\n");
    }

    #[test]
    fn files_that_fail_have_their_error() {
        let series = MrtSeries {
            name: "updates".into(),
            file: "/var/updates.%s".into(),
            interval_seconds: 900,
            gzip: false,
            writing: true,
            next: 900,
            files: 3,
            bytes: 4096,
            records: 1000,
            dropped: 0,
            failures: 0,
            last: Some("/var/updates.0".into()),
            last_time: Some(1),
            error: None,
        };
        let failing = MrtSeries { error: Some("no space".into()), last: None, ..series.clone() };
        let text = files(&Mrt { series: vec![series, failing] });
        assert!(text.contains("writing") && text.contains("/var/updates.0"), "{text}");
        assert!(text.contains("failing") && text.ends_with("updates: no space\n"), "{text}");
        assert_eq!(files(&Mrt { series: vec![] }), "No MRT file is configured.\n");
    }
}
