//! What happened that a person may want to know.

use ribtide_prefix::AnyPrefix;
use std::fmt;
use std::net::Ipv6Addr;

/// What happened. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FpmEvent {
    /// A route is not carried, or not yet: the first one, and why. Others for the same reason are
    /// only counted.
    Route(AnyPrefix, Cause),
    /// A label's route is not carried; as before.
    Label(u32, Cause),
    /// A local SID is not carried: it, and why.
    LocalSid(Ipv6Addr, Cause),
    /// A next-hop object is not usable, or not yet: its id, and why.
    Object(u32, Cause),
    /// A message could not be read; what follows it still was.
    Malformed(String),
    /// Routes and groups that were known from before, and that no client announced again, were
    /// deleted.
    Swept {
        /// How many routes.
        routes: usize,
        /// How many next-hop groups.
        groups: usize,
        /// How many rows of tables of VPNs, beside those of VNETs' routes.
        vpn_rows: usize,
    },
}

/// Why a route or a next-hop object is not carried.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The table number is not the index of a VRF's interface yet.
    UnknownVrf(u32),
    /// The table belongs to a VNET, and the caller has no tables for these.
    Vnet(u32),
    /// Addresses of the link and of groups are not routed in VNETs.
    VnetLocal,
    /// A VNET's route drops packets.
    VnetBlackhole,
    /// A VNET's route names this next-hop object.
    VnetObject(u32),
    /// The next hops are of EVPN, and something is missing.
    Overlay(&'static str),
    /// The encapsulation is SRv6's, and something is missing.
    Srv6(&'static str),
    /// A local SID has this behaviour.
    SidAction(u32),
    /// A local SID of this behaviour names no VRF.
    SidVrf(&'static str),
    /// A local SID of this behaviour names no next hop.
    SidAdjacency(&'static str),
    /// A next hop's interface has no name yet.
    WaitsForInterface(u32),
    /// The next hops have an encapsulation of this type.
    Encapsulated(u16),
    /// The route is of a type that is not forwarded.
    Kind(&'static str),
    /// A label's route is in this table, which is not the default one.
    LabelTable(u32),
    /// A label's route names this next-hop object.
    LabelById(u32),
    /// The route has no next hop.
    NoNextHops,
    /// The next-hop object of this id was not announced.
    Waits(u32),
    /// The object is neither a next hop nor a group.
    Unknown,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::UnknownVrf(table) => {
                write!(
                    f,
                    "table {table} is not the interface index of a VRF, and until it is, the route waits; see whether its Vrf device exists"
                )
            }
            Cause::Vnet(table) => {
                write!(f, "table {table} is a VNET's, and VNETs are carried by the fpmsyncd process only")
            }
            Cause::VnetLocal => f.write_str("link-local and multicast addresses are not routed in VNETs"),
            Cause::VnetBlackhole => f.write_str("routes of VNETs that drop packets are not carried"),
            Cause::VnetObject(id) => write!(
                f,
                "it names next-hop object {id}, and rows of VNETs have their next hops; announce them in the route"
            ),
            Cause::Overlay(what) => write!(f, "its next hops are of EVPN, and {what}"),
            Cause::Srv6(what) => write!(f, "its encapsulation is SRv6, and {what}"),
            Cause::SidAction(action) => {
                write!(f, "its behaviour has number {action}, and SRV6_MY_SID_TABLE has no name for that")
            }
            Cause::SidVrf(action) => write!(f, "its behaviour is {action}, and it names no VRF"),
            Cause::SidAdjacency(action) => write!(f, "its behaviour is {action}, and it names no next hop"),
            Cause::WaitsForInterface(ifindex) => {
                write!(
                    f,
                    "interface {ifindex} of its next hop has no name yet, and until it has, the route waits"
                )
            }
            Cause::Encapsulated(kind) => {
                write!(f, "its next hops have encapsulation {kind}, and encapsulations are not carried")
            }
            Cause::Kind(kind) => write!(f, "routes of type {kind} are not forwarded by the chip"),
            Cause::LabelTable(table) => {
                write!(f, "it is in table {table}, and labels are the switch's, not a VRF's")
            }
            Cause::LabelById(id) => write!(
                f,
                "it names next-hop object {id}, and objects have no labels; announce its next hops in the route"
            ),
            Cause::NoNextHops => f.write_str("it has no next hop"),
            Cause::Waits(id) => write!(f, "it waits for next-hop object {id}, which was not announced yet"),
            Cause::Unknown => f.write_str("it is neither a next hop nor a group"),
        }
    }
}

impl fmt::Display for FpmEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FpmEvent::Route(prefix, why) => write!(f, "{prefix} is not in APPL_DB: {why}"),
            FpmEvent::Label(label, why) => write!(f, "label {label} is not in APPL_DB: {why}"),
            FpmEvent::LocalSid(sid, why) => write!(f, "local SID {sid} is not in APPL_DB: {why}"),
            FpmEvent::Object(id, why) => write!(f, "next-hop object {id} is not in APPL_DB: {why}"),
            FpmEvent::Malformed(what) => f.write_str(what),
            FpmEvent::Swept { routes, groups, vpn_rows } => {
                write!(
                    f,
                    "deleted {routes} routes and {groups} next-hop groups that were not announced again"
                )?;
                if *vpn_rows > 0 {
                    write!(f, ", and {vpn_rows} rows of VPNs")?;
                }
                Ok(())
            }
        }
    }
}

/// What was counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FpmCounters {
    /// Routes that were announced.
    pub announced: u64,
    /// Routes that were withdrawn.
    pub withdrawn: u64,
    /// Next-hop objects that were announced or deleted.
    pub objects: u64,
    /// Messages that could not be read.
    pub malformed: u64,
    /// Messages of a type that is not carried.
    pub ignored: u64,
    /// Routes that were announced and are not carried.
    pub refused: u64,
    /// Rows that were set or deleted.
    pub written: u64,
    /// Announcements and withdrawals that changed no row.
    pub unchanged: u64,
    /// Confirmations that were passed on.
    pub confirmed: u64,
    /// Refusals that were passed on.
    pub failed: u64,
}
