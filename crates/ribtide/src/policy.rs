//! `ribtide policy test`: what the policies of a configuration do with a route, before any router has them.

use crate::exit::Exit;
use crate::text;
use clap::{Args, Subcommand, ValueEnum};
use ribtide_config::{self as config, AnyCommunity, Direction, PolicyTest, RouteType, TestRoute};
use ribtide_prefix::AnyPrefix;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// What to do with policies.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Policy {
    /// Evaluate the import and export policies of a configuration for a route of these prefixes
    ///
    /// The output has the statements that were tried, the one that decided, and the route as it leaves the policy.
    /// No router is asked. Without RPKI data the validation state of each route is not-found.
    Test(Test),
}

/// The route, and the policies that it is tested with.
#[derive(Clone, Debug, Args)]
pub(crate) struct Test {
    /// The configuration file
    file: PathBuf,
    /// The prefixes of the route
    #[arg(required = true)]
    prefixes: Vec<AnyPrefix>,
    /// Only the policies of this group of the configuration
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Only those of this neighbour, range or interface, as the configuration has it
    #[arg(long, value_name = "NEIGHBOR")]
    neighbor: Option<String>,
    /// Only import policies
    #[arg(long, conflicts_with = "export")]
    import: bool,
    /// Only export policies
    #[arg(long)]
    export: bool,
    /// The AS path, such as "65010 65020"; without it, at import the neighbour's AS, at export none
    #[arg(long, value_name = "ASNS", value_parser = as_path)]
    as_path: Option<AsPath>,
    /// A community, standard, extended or large; several times for several
    #[arg(long, value_name = "COMMUNITY")]
    community: Vec<AnyCommunity>,
    /// The next hop
    #[arg(long, value_name = "ADDRESS")]
    next_hop: Option<IpAddr>,
    /// LOCAL_PREF
    #[arg(long, value_name = "N")]
    local_pref: Option<u32>,
    /// MULTI_EXIT_DISC
    #[arg(long, value_name = "N")]
    med: Option<u32>,
    /// At export: where the route comes from
    #[arg(long, value_enum, default_value_t = Source::External)]
    source: Source,
    /// Exit with status 1 unless every tested policy accepts, or rejects, every prefix
    #[arg(long, value_enum, value_name = "RESULT")]
    expect: Option<Expected>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// An AS path of one sequence.
#[derive(Clone, Debug)]
struct AsPath(Vec<u32>);

fn as_path(text: &str) -> Result<AsPath, String> {
    let asn = |word: &str| word.parse().map_err(|_| format!("\"{word}\" is no AS number"));
    text.split_whitespace().map(asn).collect::<Result<_, _>>().map(AsPath)
}

/// The source of a route.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Source {
    /// A neighbour of another AS
    External,
    /// A neighbour of our own AS
    Internal,
    /// This router
    Local,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Expected {
    /// Accepted
    Accept,
    /// Rejected
    Reject,
}

/// Runs `ribtide policy`.
pub(crate) fn run(what: &Policy) -> Result<ExitCode, String> {
    let Policy::Test(test) = what;
    let config = config::load(&test.file).map_err(|e| e.to_string())?;
    let route = TestRoute {
        as_path: test.as_path.as_ref().map(|AsPath(asns)| asns.clone()),
        communities: test.community.clone(),
        next_hop: test.next_hop,
        local_pref: test.local_pref,
        med: test.med,
        source: match test.source {
            Source::External => RouteType::External,
            Source::Internal => RouteType::Internal,
            Source::Local => RouteType::Local,
        },
        ..TestRoute::default()
    };
    let direction = match (test.import, test.export) {
        (true, _) => Some(Direction::Import),
        (_, true) => Some(Direction::Export),
        (false, false) => None,
    };
    let (group, neighbor) = (test.group.as_deref(), test.neighbor.as_deref());
    let results = config::test_policies(&config, &test.prefixes, &route, group, neighbor, direction)?;
    if results.is_empty() {
        return Err("no neighbour of the file is of this group and address, so no policy was tested".into());
    }
    match test.json {
        true => {
            let json = serde_json::to_string_pretty(&results).map_err(|e| e.to_string())?;
            text::write_stdout(&format!("{json}\n"))?;
        }
        false => text::write_stdout(&results.iter().map(paragraph).collect::<Vec<_>>().join("\n"))?,
    }
    let is_expected = |result: &PolicyTest| {
        test.expect.is_none_or(|expected| result.accepted == (expected == Expected::Accept))
    };
    Ok(match results.iter().all(is_expected) {
        true => Exit::Done.into(),
        false => Exit::Failed.into(),
    })
}

/// A result as text.
fn paragraph(result: &PolicyTest) -> String {
    let (way, whom) = match result.direction {
        Direction::Import => ("import", "from"),
        Direction::Export => ("export", "to"),
    };
    let accepted = if result.accepted { "accepted" } else { "rejected" };
    let (most, few) = (3, result.neighbors.len().saturating_sub(3));
    let mut neighbors = result.neighbors[..result.neighbors.len().min(most)].join(", ");
    if few > 0 {
        neighbors.push_str(&format!(" and {few} more"));
    }
    let mut out =
        format!("{}: {accepted} by {way} {whom} group {} ({neighbors})\n", result.prefix, result.group);
    result.reasons.iter().for_each(|reason| out.push_str(&format!("  {reason}\n")));
    if result.without_validation {
        out.push_str("  The policy tests the validation state, which counts as not-found here.\n");
    }
    if let Some(route) = &result.route {
        let mut parts = vec![format!("AS path \"{}\"", route.as_path), format!("origin {}", route.origin)];
        parts.extend(route.next_hop.iter().map(|hop| format!("next hop {hop}")));
        parts.extend(route.local_pref.map(|n| format!("LOCAL_PREF {n}")));
        parts.extend(route.med.map(|n| format!("MED {n}")));
        if !route.communities.is_empty() {
            parts.push(format!("communities {}", route.communities.join(" ")));
        }
        let how = if route.unchanged { "Unchanged" } else { "Then" };
        out.push_str(&format!("  {how}: {}\n", parts.join(", ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_the_deciding_statement_last() {
        let result = PolicyTest {
            prefix: "10.0.0.0/8".into(),
            group: "upstream".into(),
            neighbors: (1..=5).map(|n| format!("192.0.2.{n}")).collect(),
            direction: Direction::Import,
            accepted: false,
            before_policy: false,
            reasons: vec!["in, statement 1: it holds; rejected".into()],
            without_validation: true,
            route: None,
        };
        assert_eq!(
            paragraph(&result),
            "10.0.0.0/8: rejected by import from group upstream (192.0.2.1, 192.0.2.2, 192.0.2.3 and 2 more)\n  \
             in, statement 1: it holds; rejected\n  \
             The policy tests the validation state, which counts as not-found here.\n"
        );
        assert!(as_path("65001 x").is_err() && as_path("65001  65002").unwrap().0 == [65001, 65002]);
    }
}
