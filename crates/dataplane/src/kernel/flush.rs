//! Flush: removes everything that ribtide installed in the kernel, at a stop with `fib.on-stop =
//! "remove"`, and by `ribtide flush`.
//!
//! That is the same as in the running dataplane: routes of its tables with its protocol number, and
//! next-hop objects with that number. Objects that a route or group of another program uses stay,
//! because the kernel would delete that route or group along with them.

use super::{find_vrf, vrf_numbers};
use ribtide_config::{Config, DEFAULT_VRF, KernelConfig};
use ribtide_netlink::Socket;
use ribtide_prefix::{Afi, AnyPrefix, Set};
use ribtide_wire::netlink::numbers::RTM_F_CLONED;
use ribtide_wire::netlink::{
    Content, Forward, NextHops, Route, dump_next_hops, dump_routes, write_next_hop_delete,
};
use serde::Serialize;
use std::fmt;
use std::io;
use std::time::Instant;

/// Deletions between two checks of the clock: some milliseconds.
const DELETE_BATCH_MAX: usize = 4096;
/// Repetitions, because other programs may add routes again.
const ROUNDS: usize = 3;

/// The scope of a flush.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// The protocol number of routes and next-hop objects.
    pub protocol: u8,
    /// The tables with their VRFs.
    pub tables: Vec<(u32, String)>,
}

/// The removed routes of a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, schemars::JsonSchema)]
pub struct Table {
    /// The number of the table.
    pub table: u32,
    /// Its VRF.
    pub vrf: String,
    /// IPv4 routes.
    pub ipv4_routes: u64,
    /// IPv6 routes.
    pub ipv6_routes: u64,
}

/// The result of a flush, or of a dry run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, schemars::JsonSchema)]
pub struct Flushed {
    /// Whether it was a dry run.
    pub dry_run: bool,
    /// The protocol number.
    pub protocol: u8,
    /// The tables.
    pub tables: Vec<Table>,
    /// Next-hop groups.
    pub next_hop_groups: u64,
    /// Single next-hop objects.
    pub next_hops: u64,
    /// Next-hop objects that stay, because other groups, other tables or remaining routes use them.
    pub in_use: u64,
    /// Routes and objects that could not be removed, or not in time.
    pub left: u64,
}

impl Flushed {
    /// All routes.
    pub fn routes(&self) -> u64 {
        self.tables.iter().map(|table| table.ipv4_routes + table.ipv6_routes).sum()
    }
}

impl fmt::Display for Flushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.dry_run { "would be removed" } else { "removed" };
        let (objects, tables) = (self.next_hop_groups + self.next_hops, self.tables.len());
        write!(
            f,
            "{} routes of {tables} tables and {objects} next-hop objects of protocol {} {verb} from the kernel",
            self.routes(),
            self.protocol
        )?;
        if self.in_use > 0 {
            write!(f, "; {} next-hop objects stay, which other routes use", self.in_use)?;
        }
        if self.left > 0 {
            write!(f, "; {} could not be removed, or not in time", self.left)?;
        }
        Ok(())
    }
}

impl Scope {
    /// The scope of a configuration in the network namespace of the calling thread, and a sentence
    /// for each VRF that the kernel does not have.
    ///
    /// # Errors
    /// A sentence: there is no kernel dataplane, or the VRF device of the default VRF is missing.
    pub fn of(config: &Config) -> Result<(Scope, Vec<String>), String> {
        let kernel = config.fib.as_ref().and_then(|fib| fib.kernel.as_ref());
        let kernel = kernel.ok_or(
            "this configuration does not install into the kernel (fib.kernel); name what a former one did with --protocol and \
             --table, such as --protocol 186 --table 254",
        )?;
        let (mut tables, mut missing) = (vec![(Scope::table(kernel)?, DEFAULT_VRF.to_owned())], Vec::new());
        for (name, wanted) in &config.vrfs {
            match wanted.table.map_or_else(|| vrf_numbers(name, wanted, false).map(|(table, _)| table), Ok) {
                Ok(table) => tables.push((table, name.clone())),
                Err(why) => missing.push(why),
            }
        }
        Ok((Scope { protocol: kernel.protocol, tables }, missing))
    }

    /// The table of the default VRF.
    fn table(kernel: &KernelConfig) -> Result<u32, String> {
        kernel.vrf.as_deref().map_or(Ok(kernel.table), |name| find_vrf(name).map(|(_, table)| table))
    }
}

/// A route with the fields for its deletion.
type Found = (AnyPrefix, Option<u32>);

/// The next-hop objects with the protocol number.
#[derive(Default)]
struct Objects {
    groups: Vec<u32>,
    singles: Vec<u32>,
    /// Members of groups of other programs.
    of_others: Set<u32>,
    /// The members of own groups, by id.
    members: Vec<(u32, Vec<u32>)>,
}

/// Removes the objects of `scope` in the network namespace of the calling thread, until `deadline`.
/// `dry_run`: only counts.
///
/// # Errors
/// The error of the kernel when it refuses the socket or a dump.
pub fn flush(scope: &Scope, dry_run: bool, deadline: Option<Instant>) -> io::Result<Flushed> {
    let mut flush = Flush { socket: Socket::open()?, protocol: scope.protocol, dry_run, deadline };
    let mut out = Flushed { dry_run, protocol: scope.protocol, ..Flushed::default() };
    for (number, vrf) in &scope.tables {
        let mut table = Table { table: *number, vrf: vrf.clone(), ipv4_routes: 0, ipv6_routes: 0 };
        for afi in [Afi::Ipv4, Afi::Ipv6] {
            let (removed, left) = flush.routes(*number, afi)?;
            match afi {
                Afi::Ipv4 => table.ipv4_routes = removed,
                Afi::Ipv6 => table.ipv6_routes = removed,
            }
            out.left += left;
        }
        out.tables.push(table);
    }
    flush.objects(scope, &mut out)?;
    Ok(out)
}

struct Flush {
    socket: Socket,
    protocol: u8,
    dry_run: bool,
    deadline: Option<Instant>,
}

impl Flush {
    /// Removes the routes of one table and family. Returns the number of removed and remaining
    /// ones.
    fn routes(&mut self, table: u32, afi: Afi) -> io::Result<(u64, u64)> {
        let protocol = self.protocol;
        let (mut removed, mut left) = (0, 0);
        for _ in 0..ROUNDS {
            let found: Vec<Found> = self.dump(afi, table, protocol, |all: &mut Vec<Found>, route| {
                if route.table == table && route.protocol == protocol {
                    all.push((route.prefix, route.metric));
                }
            })?;
            if self.dry_run {
                return Ok((found.len() as u64, 0));
            }
            left = self.delete(&found, |(prefix, metric), out, seq| {
                let mut route = Route::deletion(*prefix, table, protocol);
                route.metric = *metric;
                let written = route.write_delete(out, 0, seq);
                debug_assert!(written.is_ok(), "a deletion has a fixed size");
            })?;
            removed += found.len() as u64 - left;
            if found.is_empty() || self.is_late() {
                break;
            }
        }
        Ok((removed, left))
    }

    /// Removes next-hop objects, groups first, because the deletion of a single object deletes
    /// groups that have no other member.
    fn objects(&mut self, scope: &Scope, out: &mut Flushed) -> io::Result<()> {
        let protocol = self.protocol;
        let mut objects: Objects = self.socket.dump(dump_next_hops, |all: &mut Objects, content| {
            let Content::NewNextHop(object) = content else { return };
            let ours = object.protocol == protocol;
            match object.forward {
                Forward::Group(members) => {
                    let members = members.map(|member| member.id);
                    if ours {
                        all.groups.push(object.id);
                        all.members.push((object.id, members.collect()));
                    } else {
                        all.of_others.extend(members);
                    }
                }
                _ if ours => all.singles.push(object.id),
                _ => {}
            }
        })?;
        if objects.groups.is_empty() && objects.singles.is_empty() {
            return Ok(());
        }
        let mut used = std::mem::take(&mut objects.of_others);
        // All tables count. A dry run counts as if own routes were gone.
        let dry_run = self.dry_run;
        let would_go = |route: &Route<'_>| {
            let ours = route.protocol == protocol;
            dry_run && ours && scope.tables.iter().any(|(table, _)| *table == route.table)
        };
        for afi in [Afi::Ipv4, Afi::Ipv6] {
            let by: Set<u32> = self.dump(afi, 0, 0, |all: &mut Set<u32>, route| {
                if let (NextHops::Id(id), false) = (route.next_hops, would_go(&route)) {
                    all.insert(id);
                }
            })?;
            used.extend(by);
        }
        for (group, members) in &objects.members {
            if used.contains(group) {
                used.extend(members);
            }
        }
        let free = |ids: &[u32]| ids.iter().copied().filter(|id| !used.contains(id)).collect::<Vec<u32>>();
        let (groups, singles) = (free(&objects.groups), free(&objects.singles));
        out.in_use = (objects.groups.len() + objects.singles.len() - groups.len() - singles.len()) as u64;
        let mut delete = |ids: &[u32]| {
            let write = |id: &u32, out: &mut Vec<u8>, seq| write_next_hop_delete(out, *id, 0, seq);
            if self.dry_run { Ok(0) } else { self.delete(ids, write) }
        };
        let refused = (delete(&groups)?, delete(&singles)?);
        out.next_hop_groups = groups.len() as u64 - refused.0;
        out.next_hops = singles.len() as u64 - refused.1;
        out.left += refused.0 + refused.1;
        Ok(())
    }

    /// The routes of a family in one table and of one protocol; 0 means all.
    fn dump<T: Default>(
        &mut self,
        afi: Afi,
        table: u32,
        protocol: u8,
        mut each: impl FnMut(&mut T, Route<'_>),
    ) -> io::Result<T> {
        let found = self.socket.dump(
            |out, seq| dump_routes(out, seq, afi, table, protocol),
            |all: &mut T, content| {
                if let Content::NewRoute(route) = content
                    && route.flags & RTM_F_CLONED == 0
                {
                    each(all, route);
                }
            },
        );
        match found {
            // The kernel has no table without routes.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(T::default()),
            other => other,
        }
    }

    /// Deletes until the deadline. Returns the number that it did not delete, because the kernel
    /// refused or time was over. A missing one counts as deleted.
    fn delete<T>(&mut self, items: &[T], mut write: impl FnMut(&T, &mut Vec<u8>, u32)) -> io::Result<u64> {
        let (mut refused, mut done) = (0, 0);
        for part in items.chunks(DELETE_BATCH_MAX) {
            if self.is_late() {
                return Ok(refused + (items.len() - done) as u64);
            }
            self.socket.request(part, &mut write, |_, refusal| {
                refused += u64::from(!matches!(refusal.errno, libc::ESRCH | libc::ENOENT));
            })?;
            done += part.len();
        }
        Ok(refused)
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}
