//! `/v1/bfd`: BFD sessions.

use super::{Refusal, RouterState};
use ribtide_bfdd::SessionView;
use ribtide_model::{Bfd, BfdSession};
use std::net::IpAddr;

/// All sessions, or those with `peer`.
pub(crate) fn bfd(router: &RouterState, peer: Option<IpAddr>) -> Result<Bfd, Refusal> {
    let (sessions, discarded) = router.bfd.handle.call(move |bfd| (bfd.view(peer), bfd.discarded()))?;
    if let Some(peer) = peer.filter(|_| sessions.is_empty()) {
        let message = format!("there is no BFD session with {peer}; `ribtide show bfd` lists them");
        return Err(Refusal::Missing(message));
    }
    Ok(Bfd {
        sessions: sessions.iter().map(session).collect(),
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
