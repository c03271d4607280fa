//! Results of installing routes: which routes a dataplane reported as failed, and which of those were installed later.
//!
//! While no route fails, nothing is kept, and a success costs a look-up in two empty tables.

use ribtide_prefix::{Map, shrink_if_sparse};
use ribtide_rib::{DataplaneId, FibAck, VrfPrefix};

/// The results of one dataplane that are not acknowledged yet, and its failures.
#[derive(Default, Debug)]
pub struct InstallResults {
    /// Prefixes reported as failed and not as installed since. A map, since [`shrink_if_sparse`] takes no
    /// set.
    failed: Map<VrfPrefix, ()>,
    /// The last result of each prefix since the last report: the reason of a failure, or `None` if
    /// installed.
    news: Map<VrfPrefix, Option<String>>,
}

impl InstallResults {
    /// Notes a failed route with the reason, as a sentence.
    pub fn refused(&mut self, route: VrfPrefix, why: String) {
        self.news.insert(route, Some(why));
    }

    /// Notes that a route is as the RIB manager requested.
    pub fn installed(&mut self, route: VrfPrefix) {
        if self.failed.contains_key(&route) || self.news.contains_key(&route) {
            self.news.insert(route, None);
        }
    }

    /// Whether the last result of a route is a failure.
    pub fn has_failed(&self, route: VrfPrefix) -> bool {
        self.news.get(&route).map_or_else(|| self.failed.contains_key(&route), Option::is_some)
    }

    /// The acknowledgement of every batch up to `seq`, with all results since the last one.
    pub fn ack(&mut self, dataplane: DataplaneId, seq: u64) -> FibAck {
        let mut ack = FibAck { dataplane, seq, failed: Vec::new(), installed: Vec::new() };
        // A drained map would keep the room of a failure of the whole table.
        for (route, result) in std::mem::take(&mut self.news) {
            match result {
                Some(why) => {
                    self.failed.insert(route, ());
                    ack.failed.push((route, why));
                }
                None if self.failed.remove(&route).is_some() => ack.installed.push(route),
                // It failed and was installed before an acknowledgement.
                None => {}
            }
        }
        shrink_if_sparse(&mut self.failed);
        ack
    }

    /// The results since the last acknowledgement, without a finished batch; `None` without
    /// results.
    pub fn news(&mut self, dataplane: DataplaneId) -> Option<FibAck> {
        let ack = self.ack(dataplane, 0);
        (!ack.failed.is_empty() || !ack.installed.is_empty()).then_some(ack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_prefix::AnyPrefix;

    #[test]
    fn failure_of_a_whole_table_leaves_no_capacity() {
        let routes: Vec<VrfPrefix> =
            (0..20_000_u32).map(|n| AnyPrefix::host(std::net::Ipv4Addr::from(n).into()).into()).collect();
        let mut results = InstallResults::default();
        routes.iter().for_each(|route| results.refused(*route, "no room".into()));
        assert_eq!(results.ack(4, 1).failed.len(), routes.len());
        routes.iter().for_each(|route| results.installed(*route));
        assert_eq!(results.ack(4, 2).installed.len(), routes.len());
        assert!(results.news.capacity() == 0 && results.failed.capacity() < 100);
    }

    #[test]
    fn a_failure_is_taken_back_once_and_only_if_it_was_told() {
        let [a, b, c] =
            ["10.0.0.0/8", "11.0.0.0/8", "2001:db8::/32"].map(|p| p.parse::<AnyPrefix>().unwrap().into());
        let mut results = InstallResults::default();
        let ack = |seq, failed: &[(VrfPrefix, &str)], installed: &[VrfPrefix]| FibAck {
            dataplane: 4,
            seq,
            failed: failed.iter().map(|(p, why)| (*p, why.to_string())).collect(),
            installed: installed.to_vec(),
        };
        results.refused(a, "no room".into());
        results.refused(b, "no room".into());
        results.installed(b);
        results.installed(c);
        assert_eq!(results.ack(4, 9), ack(9, &[(a, "no room")], &[]));
        assert_eq!(results.news(4), None);
        // The last result of each prefix since the last report: the reason of a failure, or `None`
        // if installed.
        results.installed(a);
        results.refused(a, "no neighbour".into());
        assert_eq!(results.news(4), Some(ack(0, &[(a, "no neighbour")], &[])));
        results.refused(a, "no room".into());
        results.installed(a);
        assert_eq!(results.news(4), Some(ack(0, &[], &[a])));
        results.installed(a);
        assert_eq!(results.news(4), None);
    }
}
