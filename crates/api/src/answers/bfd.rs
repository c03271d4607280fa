//! `/v1/bfd`: BFD sessions.

use super::{Refusal, RouterState, filter};
use ribtide_bfdd::SessionView;
use ribtide_model::{Bfd, BfdSession};
use std::net::IpAddr;

/// The states by the names that a query has for them.
const STATES: [(&str, &str); 4] =
    [("up", "Up"), ("down", "Down"), ("init", "Init"), ("admin-down", "AdminDown")];

/// All sessions, or those with `peer`; only those in `state`.
pub(crate) fn bfd(router: &RouterState, peer: Option<IpAddr>, state: Option<&str>) -> Result<Bfd, Refusal> {
    let state = state.map(|text| filter::named(text, STATES)).transpose()?;
    let (sessions, discarded) = router.bfd.handle.call(move |bfd| (bfd.view(peer), bfd.discarded()))?;
    if let Some(peer) = peer.filter(|_| sessions.is_empty()) {
        let message = format!("there is no BFD session with {peer}; `ribtide show bfd` lists them");
        return Err(Refusal::Missing(message));
    }
    Ok(Bfd {
        sessions: sessions
            .iter()
            .map(session)
            .filter(|session| state.is_none_or(|state| session.state == state))
            .collect(),
        discarded: discarded.into_iter().map(|(why, count)| (why.into(), count)).collect(),
    })
}

fn session(view: &SessionView) -> BfdSession {
    let session = &view.entry.session;
    let ms = |us: u32| f64::from(us) / 1e3;
    BfdSession {
        peer: view.peer.address,
        interface: view.peer.interface.clone(),
        local: view.requested.local,
        multihop: view.requested.settings.min_ttl.is_some(),
        state: session.state().name().into(),
        diagnostic: session.diagnostic().to_string(),
        remote_state: session.remote_state().name().into(),
        remote_diagnostic: session.remote_diagnostic().to_string(),
        usable: session.standing().usable(view.requested.settings.strict),
        bgp: view.requested.bgp,
        discriminator: view.discriminator.0,
        remote_discriminator: session.remote_discriminator(),
        tx_ms: session.tx_interval().map(ms),
        rx_ms: ms(session.rx_interval()),
        detection_ms: session.detection_time() as f64 / 1e3,
        state_seconds: view.state_age as f64 / 1e3,
        sent: view.entry.sent,
        received: view.entry.received,
        flaps: view.entry.flaps,
        error: view.error.clone(),
    }
}
