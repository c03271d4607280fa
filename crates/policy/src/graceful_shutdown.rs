//! Graceful shutdown of a session (RFC 8326), as a last statement for accepted routes.

use crate::community::{AnyCommunity, CommunityPattern};
use crate::statement::{Actions, ChangeCommunities, Condition, Match, Named, Statement, Then};
use ribtide_wire::bgp::attribute::{Attributes, Communities, Community, code};

/// The name of the last statement's policy, for explanations.
pub(crate) const NAME: &str = "graceful-shutdown";

/// What a list of policies does for graceful shutdown after it has accepted a route, so that it sees the communities
/// that the list has left or set, and no policy of the list raises LOCAL_PREF again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum GracefulShutdown {
    /// Nothing.
    #[default]
    Off,
    /// A route with the community GRACEFUL_SHUTDOWN gets LOCAL_PREF 0: the receiver (RFC 8326 section 4.1).
    Receiver,
    /// Every route gets LOCAL_PREF 0 and the community: import of the initiator (section 4.2).
    InitiatorImport,
    /// Every route gets the community: export of the initiator (section 4.2).
    InitiatorExport,
}

impl GracefulShutdown {
    /// The last statement.
    pub(crate) fn statement(self) -> Option<Statement> {
        let community = AnyCommunity::Standard(Community::GRACEFUL_SHUTDOWN);
        let local_pref = Some(0);
        let communities = ChangeCommunities { add: vec![community], ..ChangeCommunities::default() };
        let (name, actions) = match self {
            GracefulShutdown::Off => return None,
            GracefulShutdown::Receiver => ("receiver", Actions { local_pref, ..Actions::default() }),
            GracefulShutdown::InitiatorImport => {
                ("initiator, import", Actions { local_pref, communities, ..Actions::default() })
            }
            GracefulShutdown::InitiatorExport => {
                ("initiator, export", Actions { communities, ..Actions::default() })
            }
        };
        let tagged = || {
            let set = [CommunityPattern::One(community)].into_iter().collect();
            Condition::CommunitySet(Named::new(community.to_string(), set), Match::Any)
        };
        Some(Statement {
            name: name.into(),
            conditions: (self == GracefulShutdown::Receiver).then(tagged).into_iter().collect(),
            prefix_conditions: Vec::new(),
            validity: None,
            path: None,
            actions,
            then: Then::Accept,
        })
    }

    /// Whether it leaves a route with these attributes as it is.
    #[inline]
    pub(crate) fn spares(self, attributes: &[u8]) -> bool {
        match self {
            GracefulShutdown::Off => true,
            GracefulShutdown::Receiver => !is_tagged(attributes),
            GracefulShutdown::InitiatorImport | GracefulShutdown::InitiatorExport => false,
        }
    }
}

/// Whether a route has the community GRACEFUL_SHUTDOWN.
fn is_tagged(attributes: &[u8]) -> bool {
    let communities = Attributes::new(attributes).find(|a| a.code == code::COMMUNITIES);
    communities.is_some_and(|a| Communities::new(a.value).contains(Community::GRACEFUL_SHUTDOWN))
}
