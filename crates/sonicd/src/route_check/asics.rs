//! The check of every ASIC of a box: one [`DaemonsCheck`] for each namespace, and one result. In it
//! each stage and each difference has the name of its ASIC.

use super::{CheckScope, DaemonsCheck, Error, REPORTED_DIFFERENCES_MAX, Router};
use ribtide_model::{DefaultRoute, RouteCheck};
use ribtide_tables::Databases;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The checks of all ASICs, with their state between two runs.
pub struct AsicsCheck {
    all: Vec<(Option<String>, DaemonsCheck)>,
    /// What is not compared with several ASICs.
    not_compared: Vec<String>,
}

impl AsicsCheck {
    /// Opens the databases of `config`: those of every ASIC that it names, unless `NAMESPACE_ID`
    /// selects one. `syncds` are query sockets of syncds: `PATH` with one ASIC, `ASIC=PATH` with
    /// several. `router`: the one that feeds the databases; it is compared with one ASIC only.
    ///
    /// # Errors
    /// A sentence when a database cannot be reached, or a socket is of no ASIC.
    pub fn open(
        config: Option<&Path>,
        syncds: &[String],
        router: Box<dyn Router>,
    ) -> Result<AsicsCheck, Error> {
        let asics = Databases::of_asics(config)?;
        let (mut router, mut not_compared) = (Some(router), Vec::new());
        if asics.len() > 1 {
            router = None;
            not_compared.push(
                "the RIB manager with APPL_DB: there are several ASICs; NAMESPACE_ID=N selects the one that the router feeds"
                    .to_owned(),
            );
        }
        let mut sockets = sockets(&asics.iter().map(|(name, _)| name.as_deref()).collect::<Vec<_>>(), syncds)
            .map_err(Error::Configuration)?
            .into_iter();
        let open = |(name, databases): (Option<String>, Databases)| {
            let check = DaemonsCheck::open(&databases, sockets.next().flatten(), router.take());
            Ok::<_, Error>((name.clone(), check.map_err(|e| named(name.as_deref(), &e))?))
        };
        let all = asics.into_iter().map(open).collect::<Result<_, Error>>()?;
        Ok(AsicsCheck { all, not_compared })
    }

    /// Runs a check of each ASIC.
    ///
    /// # Errors
    /// A sentence when a database or syncd does not reply.
    pub fn check(&mut self, scope: CheckScope) -> Result<RouteCheck, Error> {
        let begin = Instant::now();
        let not_compared = self.not_compared.clone();
        let mut all = RouteCheck { full: true, not_compared, ..RouteCheck::default() };
        for (asic, check) in &mut self.all {
            let of_asic = |text: String| asic.iter().cloned().chain([text]).collect::<Vec<_>>().join(" ");
            let found = check.check(scope).map_err(|e| named(asic.as_deref(), &e))?;
            all.full &= found.full;
            all.checked += found.checked;
            all.not_compared.extend(found.not_compared);
            all.differing += found.differing;
            all.under_way += found.under_way;
            all.routes.extend(found.routes.into_iter().map(|(stage, count)| (of_asic(stage), count)));
            all.differences.extend(found.differences.into_iter().map(|mut difference| {
                difference.stage = of_asic(difference.stage);
                difference
            }));
            merge(&mut all.default_routes, asic.as_deref(), found.default_routes);
        }
        all.differences.truncate(REPORTED_DIFFERENCES_MAX);
        all.milliseconds = begin.elapsed().as_secs_f64() * 1e3;
        Ok(all)
    }

    /// Checks the default routes only. One forwards if it does on every ASIC.
    ///
    /// # Errors
    /// A sentence when a database does not reply.
    pub fn default_routes(&mut self) -> Result<Vec<DefaultRoute>, Error> {
        let mut all = Vec::new();
        for (asic, check) in &mut self.all {
            let found = check.default_routes().map_err(|e| named(asic.as_deref(), &e))?;
            merge(&mut all, asic.as_deref(), found);
        }
        Ok(all)
    }
}

/// The error with the name of its ASIC.
fn named(asic: Option<&str>, e: &Error) -> Error {
    Error::new(asic.map_or_else(|| e.to_string(), |asic| format!("{asic}: {e}")))
}

/// The query socket of each ASIC, if it has one.
///
/// # Errors
/// A sentence: a socket is of no ASIC, or an ASIC has two.
fn sockets(asics: &[Option<&str>], syncds: &[String]) -> Result<Vec<Option<PathBuf>>, String> {
    let mut all: Vec<Option<PathBuf>> = vec![None; asics.len()];
    for text in syncds {
        let (place, path) = match (asics, text.split_once('=')) {
            ([None], _) => (0, text.as_str()),
            (_, Some((name, path))) => {
                let place = asics.iter().position(|asic| *asic == Some(name));
                (place.ok_or_else(|| format!("--syncd {text}: there is no ASIC {name}"))?, path)
            }
            (_, None) => {
                return Err(format!(
                    "--syncd {text}: there are several ASICs; write ASIC=PATH, such as asic0={text}"
                ));
            }
        };
        if all[place].replace(path.into()).is_some() {
            return Err(format!("--syncd {text}: a socket for that ASIC was already given"));
        }
    }
    Ok(all)
}

/// Adds the default routes of another ASIC.
fn merge(all: &mut Vec<DefaultRoute>, asic: Option<&str>, found: Vec<DefaultRoute>) {
    for mut route in found {
        if let Some(asic) = asic {
            let target = route.next_hops.as_deref().unwrap_or("absent");
            route.next_hops = Some(format!("{asic} {target}"));
        }
        match all.iter_mut().find(|known| known.prefix == route.prefix) {
            None => all.push(route),
            Some(known) => {
                known.forwarded &= route.forwarded;
                let both = known.next_hops.take().into_iter().chain(route.next_hops);
                known.next_hops = Some(both.collect::<Vec<_>>().join(", "));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_with_several_asics_need_a_name() {
        let of = |asics: &[Option<&str>], syncds: &[&str]| {
            sockets(asics, &syncds.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        let two = [Some("asic0"), Some("asic1")];
        assert_eq!(of(&[None], &["/a=b"]), Ok(vec![Some("/a=b".into())]));
        assert_eq!(of(&two, &["asic1=/s"]), Ok(vec![None, Some("/s".into())]));
        for (asics, syncds, message) in [
            (&two[..], &["/s"][..], "write ASIC=PATH"),
            (&two, &["asic2=/s"], "no ASIC asic2"),
            (&two, &["asic0=/s", "asic0=/t"], "already given"),
            (&[None], &["/s", "/t"], "already given"),
        ] {
            let refused = of(asics, syncds).unwrap_err();
            assert!(refused.contains(message), "{refused}");
        }
    }

    #[test]
    fn default_route_forwards_if_it_does_on_every_asic() {
        let route = |forwarded, next_hops: Option<&str>| DefaultRoute {
            prefix: "0.0.0.0/0".into(),
            forwarded,
            next_hops: next_hops.map(str::to_owned),
        };
        let mut all = Vec::new();
        merge(&mut all, Some("asic0"), vec![route(true, Some("via 10.0.0.1"))]);
        merge(&mut all, Some("asic1"), vec![route(false, None)]);
        assert_eq!(all, [route(false, Some("asic0 via 10.0.0.1, asic1 absent"))]);
    }
}
