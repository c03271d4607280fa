//! The thread that reads the kernel's notifications: netdevs, and what other programs change in the tables of this
//! chip. The kernel leaves out the chip's own changes.

use crate::Settings;
use crate::netdevs::LinkState;
use crate::routes::{CONNECTED_IPV6, is_connected_ipv6};
use ribtide_netlink::{CHIP_IDS, Socket, overran};
use ribtide_prefix::{Afi, AnyPrefix};
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::{self, Stop};
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_runtime::wake_up::{self, WakeUp, Waker};
use ribtide_wire::netlink::numbers::{
    RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_NEXTHOP,
};
use ribtide_wire::netlink::{Content, Route};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Notifications that may wait at the chip; the rest waits in the socket.
const NOTES: usize = 4096;
/// The receive buffer of the socket, in bytes.
const BUFFER: u32 = 8 << 20;
/// Pause after changes of another program, so that a program that writes the same routes without end
/// does not take the chip's time.
const PAUSE: Duration = Duration::from_millis(10);
/// Pause before a socket that failed is opened again.
const REOPEN: Duration = Duration::from_secs(1);

/// What happened in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// A netdev exists, or changed.
    Link(LinkState),
    /// A netdev is gone.
    LinkGone(u32),
    /// Another program changed next-hop objects with numbers of this chip.
    NextHops,
    /// Another program wrote or deleted the route of a prefix at a metric, where this chip's is or would be.
    Route(AnyPrefix, u32),
    /// The kernel itself made or deleted a connected IPv6 route.
    Connected,
    /// A neighbour of a netdev changed; `marked`: it has the protocol number of this chip.
    Neighbor { index: u32, ip: IpAddr, marked: bool },
    /// Notifications were lost.
    Lost,
}

/// The notes, and what wakes the thread of the chip for them.
pub(crate) struct Notes {
    pub(crate) notes: ring::Receiver<Note>,
    pub(crate) wake_up: WakeUp,
    /// The port of the chip's socket, whose changes are left out.
    pub(crate) port: Arc<AtomicU32>,
}

/// Starts the thread.
///
/// # Errors
/// The system's.
pub(crate) fn start(settings: Settings, port: u32, rings: &Rings, stop: &Stop) -> io::Result<Notes> {
    let port = Arc::new(AtomicU32::new(port));
    let mut monitor = monitor(port.load(Ordering::Relaxed))?;
    let wait = WaitFd::new(stop)?;
    let (tx, notes) = rings.bounded("kernel to syncd", NOTES);
    let (waker, wake_up) = wake_up::pair();
    let (own, stop) = (port.clone(), stop.clone());
    let body = move || -> Result<Infallible, Closed> {
        loop {
            stop.running()?;
            let mut foreign = false;
            let mut sent = Ok(());
            let own_port = own.load(Ordering::Relaxed);
            let heard = monitor.notified(&wait, Duration::MAX, |from, content| {
                if from == own_port && own_port != 0 {
                    return;
                }
                if let Some(note) = note(&settings, &content) {
                    foreign |= matches!(note, Note::Route(..) | Note::NextHops);
                    sent = sent.and_then(|()| send(&tx, note, &waker));
                }
            });
            sent?;
            if let Err(e) = heard {
                if !overran(&e) {
                    stop.sleep(REOPEN);
                    match self::monitor(own_port) {
                        Ok(again) => monitor = again,
                        Err(_) => continue,
                    }
                }
                send(&tx, Note::Lost, &waker)?;
                continue;
            }
            waker.wake();
            if foreign {
                stop.sleep(PAUSE);
            }
        }
    };
    thread::spawn("kernel-watch", body)?;
    Ok(Notes { notes, wake_up, port })
}

/// Sends a note. The thread waits for room, and the chip is awake meanwhile.
fn send(tx: &ring::Sender<Note>, note: Note, waker: &Waker) -> Result<(), Closed> {
    if tx.is_half_full() {
        waker.wake();
    }
    tx.send(note)
}

fn monitor(port: u32) -> io::Result<Socket> {
    let groups = [RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_NEXTHOP, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE];
    let mut socket = Socket::monitor(&groups, BUFFER)?;
    if port != 0 {
        socket.leave_out(port)?;
    }
    Ok(socket)
}

fn note(settings: &Settings, content: &Content<'_>) -> Option<Note> {
    let of_route = |route: &Route<'_>| {
        if is_connected_ipv6(route, settings.table) {
            return Some(Note::Connected);
        }
        let metric = route.metric.unwrap_or(0);
        // Behind a connected route, an IPv6 route of this chip has the second.
        let second = settings.metric.saturating_add(CONNECTED_IPV6);
        let at = metric == settings.metric || (metric == second && route.prefix.afi() == Afi::Ipv6);
        let here = route.table == settings.table && route.tos == 0 && at;
        here.then_some(Note::Route(route.prefix, metric))
    };
    match content {
        Content::NewLink(link) => Some(Note::Link(LinkState::of(link))),
        Content::DelLink(link) => Some(Note::LinkGone(link.index)),
        Content::NewRoute(route) | Content::DelRoute(route) => of_route(route),
        Content::NewNextHop(object) => CHIP_IDS.contain(object.id).then_some(Note::NextHops),
        Content::DelNextHop(id) => CHIP_IDS.contain(*id).then_some(Note::NextHops),
        Content::NewNeighbor(neighbor) | Content::DelNeighbor(neighbor) => {
            let marked = neighbor.protocol == settings.protocol;
            Some(Note::Neighbor { index: neighbor.ifindex, ip: neighbor.ip, marked })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::netlink::numbers::RTPROT_KERNEL;
    use ribtide_wire::netlink::{Forward, Members, NextHop, NextHops};

    #[test]
    fn notifications_about_other_tables_metrics_and_objects_are_left_out() {
        let settings = Settings::default();
        let prefix: AnyPrefix = "20.0.0.0/24".parse().unwrap();
        let route = |table, protocol, metric| Route {
            metric: Some(metric),
            ..Route::new(prefix, table, protocol, NextHops::None)
        };
        let of = |route| note(&settings, &Content::NewRoute(route));
        let Settings { table, protocol, metric } = settings;
        let there = Some(Note::Route(prefix, metric));
        assert_eq!(of(route(table, protocol, metric)), there);
        assert_eq!(of(route(table, 4, metric)), there, "it took the place of the chip's");
        assert_eq!(of(route(table, 4, metric + 1)), None);
        assert_eq!(of(route(table + 1, protocol, metric)), None);
        let ipv6: AnyPrefix = "2001:db8::/64".parse().unwrap();
        let of_ipv6 = |protocol, metric| of(Route { prefix: ipv6, ..route(table, protocol, metric) });
        let second = metric + CONNECTED_IPV6;
        assert_eq!(of_ipv6(protocol, second), Some(Note::Route(ipv6, second)), "behind a connected route");
        assert_eq!(of(route(table, protocol, second)), None);
        assert_eq!(of_ipv6(RTPROT_KERNEL, CONNECTED_IPV6), Some(Note::Connected));
        let object = |id| {
            let forward = Forward::Group(Members::from(&[][..]));
            note(&settings, &Content::NewNextHop(NextHop { id, protocol, forward }))
        };
        assert_eq!((object(CHIP_IDS.first), object(7)), (Some(Note::NextHops), None));
    }
}
