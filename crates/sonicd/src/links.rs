//! Interfaces of the kernel: their names for fpmsyncd, since FPM carries indices and APPL_DB names, and
//! their carriers for the ports of the virtual switch.

use super::Error;
use super::events::log;
use ribtide_netlink::{Socket, overran};
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::{self, Stop};
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_wire::netlink::numbers::RTNLGRP_LINK;
use ribtide_wire::netlink::{Content, dump_links};
use std::convert::Infallible;
use std::io;
use std::time::Duration;

/// The receive buffer for notifications, in bytes.
const BUFFER: u32 = 8 << 20;
/// Pause before the kernel's socket is opened again after it failed.
const REOPEN: Duration = Duration::from_secs(1);
/// Events in the queue at most.
const EVENTS: usize = 1024;

/// An event of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LinkEvent {
    /// It exists, under this name.
    Named(u32, String, Carrier),
    /// It is gone.
    Gone(u32),
}

/// Whether an interface is switched on and has a carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Carrier {
    Up,
    Down,
}

/// The present interfaces, and a queue of later events.
///
/// # Errors
/// The kernel does not reply.
pub(super) fn watch(
    daemon: &'static str,
    rings: &Rings,
    stop: &Stop,
) -> Result<(Vec<LinkEvent>, ring::Receiver<LinkEvent>), Error> {
    let failed =
        |e: io::Error| Error::System(format!("cannot learn the names of interfaces from the kernel: {e}"));
    // The subscription precedes the dump, so nothing is missed.
    let mut socket = Socket::monitor(&[RTNLGRP_LINK], BUFFER).map_err(failed)?;
    let wait = WaitFd::new(stop).map_err(failed)?;
    let now = list().map_err(failed)?;
    let (tx, rx) = rings.bounded(format!("interfaces to {daemon}"), EVENTS);
    let stop = stop.clone();
    let body = move || -> Result<Infallible, Closed> {
        loop {
            stop.running()?;
            let mut events = Vec::new();
            match socket.notified(&wait, Duration::MAX, |_, content| events.extend(event(&content))) {
                Ok(()) => {}
                // Notifications were lost, so all interfaces are sent again. A removed one stays
                // known, which does no harm.
                Err(e) if overran(&e) => match list() {
                    Ok(all) => events = all,
                    Err(e) => log!(daemon, warn, error = %e, "names of interfaces may be old"),
                },
                Err(e) => {
                    log!(
                        daemon,
                        warn,
                        error = %e,
                        "the kernel's interfaces cannot be watched; reading all of them again"
                    );
                    stop.sleep(REOPEN);
                    match Socket::monitor(&[RTNLGRP_LINK], BUFFER).and_then(|s| Ok((s, list()?))) {
                        Ok((again, all)) => (socket, events) = (again, all),
                        Err(e) => log!(daemon, warn, error = %e, "names of interfaces may be old"),
                    }
                }
            }
            for event in events {
                tx.send(event)?;
            }
        }
    };
    thread::spawn("links", body).map_err(failed)?;
    Ok((now, rx))
}

fn list() -> io::Result<Vec<LinkEvent>> {
    Socket::open()?.dump(dump_links, |all: &mut Vec<LinkEvent>, content| all.extend(event(&content)))
}

fn event(content: &Content<'_>) -> Option<LinkEvent> {
    match content {
        Content::NewLink(link) => {
            let carrier = if link.operative() { Carrier::Up } else { Carrier::Down };
            Some(LinkEvent::Named(link.index, link.name.to_owned(), carrier))
        }
        Content::DelLink(link) => Some(LinkEvent::Gone(link.index)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_number_one() {
        let (now, _) = watch("test", &Rings::default(), &Stop::default()).unwrap();
        let is_lo = |event: &LinkEvent| matches!(event, LinkEvent::Named(1, name, _) if name == "lo");
        assert!(now.iter().any(is_lo), "{now:?}");
    }
}
