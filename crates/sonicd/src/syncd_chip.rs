//! What syncd needs of a chip beside the calls of SAI: the virtual switch, a vendor's library, or the kernel
//! (`kernel_chip.rs`).

use super::packets::PacketPath;
use super::reconcile::ChipRounds;
use super::{Error, events, explain, route_stages, warm_file};
use ribtide_model::{ExplainStage, StageState};
use ribtide_prefix::AnyPrefix;
use ribtide_runtime::log::target;
use ribtide_runtime::wake_up::{self, WakeUp};
use ribtide_sai_library::{Library, LibraryChip};
use ribtide_swss::sai::{Attr, ObjectId, ObjectType, Oid, RouteEntry, SWITCH, Sai, Status};
use ribtide_swss::syncd::{Syncd, SyncdOut};
use ribtide_vswitch::VirtualSwitch;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A chip of syncd's thread.
pub trait SyncdChip: Sai + Sized + Send + 'static {
    /// Whether it is stalled `now`, with the end of the stall, if known.
    fn stalled(&mut self, _now: Instant) -> Option<Option<Instant>> {
        None
    }

    /// When the calls since the last time will be done; `None`: they are done.
    fn done_at(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    /// Shrinks its tables to their contents.
    fn shrink_to_fit(&mut self) {}

    /// Takes in what the chip reported by itself, and logs what it could not do. Returns when to call it again, if it has
    /// to try something again.
    fn serve(&mut self, _now: Instant) -> Option<Instant> {
        None
    }

    /// Everything that orchagent wants was requested: what an earlier syncd left beside that can go.
    fn settle(&mut self) {}

    /// Forwards packets, where the chip is in this process.
    fn forward(&mut self, _packets: &mut PacketPath) {}

    /// Compares the next page of the chip with what was requested, if it is due.
    fn reconcile(_rounds: &mut ChipRounds, _syncd: &mut Syncd<Self>, _now: Instant, _out: &mut SyncdOut) {}

    /// Leaves the switch to the next syncd.
    ///
    /// # Errors
    /// A sentence when that is not possible.
    fn save(syncd: &Syncd<Self>, file: &Path) -> Result<(), Error>;

    /// The state of a route in the chip.
    fn explain(syncd: &mut Syncd<Self>, prefix: AnyPrefix, router: Option<Oid>) -> explain::ExplainReply;
}

impl SyncdChip for VirtualSwitch {
    fn stalled(&mut self, now: Instant) -> Option<Option<Instant>> {
        VirtualSwitch::stalled(self, now)
    }

    fn done_at(&mut self, now: Instant) -> Option<Instant> {
        VirtualSwitch::done_at(self, now)
    }

    fn shrink_to_fit(&mut self) {
        VirtualSwitch::shrink_to_fit(self);
    }

    fn forward(&mut self, packets: &mut PacketPath) {
        packets.step(self);
    }

    fn reconcile(rounds: &mut ChipRounds, syncd: &mut Syncd<Self>, now: Instant, out: &mut SyncdOut) {
        rounds.step(syncd, now, out);
    }

    fn save(syncd: &Syncd<Self>, file: &Path) -> Result<(), Error> {
        warm_file::save(file, syncd)
    }

    fn explain(syncd: &mut Syncd<Self>, prefix: AnyPrefix, router: Option<Oid>) -> explain::ExplainReply {
        explain::syncd(syncd, prefix, router)
    }
}

impl SyncdChip for LibraryChip {
    fn serve(&mut self, _: Instant) -> Option<Instant> {
        events::log_syncd(&mut self.take_events());
        let heard = self.hear();
        if let Some(state) = heard.switch_state {
            tracing::warn!(target: target::SYNCD, state, "the SAI library reports another state of the switch");
        }
        if heard.shutdown {
            tracing::error!(target: target::SYNCD, "the SAI library asks for a restart of the switch");
        }
        None
    }

    fn save(_: &Syncd<Self>, _: &Path) -> Result<(), Error> {
        Err(Error::new(
            "a warm restart with a SAI library is not supported, so the switch is not kept; start syncd cold",
        ))
    }

    fn explain(syncd: &mut Syncd<Self>, prefix: AnyPrefix, router: Option<Oid>) -> explain::ExplainReply {
        let stage = |state, message: String| ExplainStage::new("SAI library", state, vec![message]);
        let switch = syncd.rid(SWITCH);
        let entry = switch.zip(router.and_then(|vid| syncd.rid(vid)));
        let Some((switch, vr)) = entry else {
            return stage(StageState::Absent, "no such entry".into()).into();
        };
        let id = ObjectId::Route(RouteEntry { switch, vr, dest: prefix });
        let mut attrs = [Attr::RouteNextHop(Oid::NULL)];
        let found = match syncd.chip_mut().get(ObjectType::RouteEntry, &id, &mut attrs) {
            Ok(()) => stage(StageState::Passed, format!("sends to {}", next_hop(syncd, &attrs))),
            Err(Status::ItemNotFound) => stage(StageState::Absent, "no such entry".into()),
            // A route that drops has no next hop in every library.
            Err(status) => {
                stage(StageState::Passed, format!("its next hop cannot be read: {}", status.name()))
            }
        };
        found.into()
    }
}

/// The next hop by orchagent's number.
fn next_hop(syncd: &Syncd<LibraryChip>, attrs: &[Attr]) -> String {
    match attrs {
        [Attr::RouteNextHop(rid)] => syncd.vid(*rid).unwrap_or(*rid).to_string(),
        _ => route_stages::UNKNOWN.into(),
    }
}

/// The library at `path` as a chip, with the wake-up of its notifications.
///
/// # Errors
/// A sentence: it cannot be loaded, is of another version, or refuses to initialize.
pub(super) fn library(path: &Path, profile: &[(String, String)]) -> Result<(LibraryChip, WakeUp), Error> {
    let library = Library::open(path, profile).map_err(|e| Error::Configuration(e.to_string()))?;
    let (name, version) = (library.name(), library.version());
    tracing::info!(target: target::SYNCD, library = name, version, "the SAI library is initialized");
    let missing: Vec<_> = library.missing_apis().collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        tracing::info!(target: target::SYNCD, missing, "the SAI library does not have every API");
    }
    let (waker, wake_up) = wake_up::pair();
    Ok((LibraryChip::new(library, Some(Arc::new(move || waker.wake()))), wake_up))
}
