//! Stages come to the session thread, and leave it ([`crate::stage_moves`]).

use super::{Sessions, WAKE};
use crate::stage::{Home, NamedStage};
use mio::Interest;
use mio::unix::SourceFd;

impl Sessions {
    /// Takes the stages that are to run on this thread.
    pub(super) fn adopt_stages(&mut self) {
        for descriptor in self.hosted.adopt() {
            let watched = self.poll.registry().register(&mut SourceFd(&descriptor), WAKE, Interest::READABLE);
            // Only without kernel memory.
            watched.unwrap_or_else(|error| {
                panic!("the session thread cannot watch a reader's sockets: {error}")
            });
        }
    }

    /// Gives the stages of a home away, which are to run on threads of their own.
    pub(crate) fn give_stages(&mut self, home: &Home) -> Vec<NamedStage> {
        self.adopt_stages();
        let stages = self.hosted.take(home);
        for descriptor in stages.iter().filter_map(|of| of.stage.descriptor()) {
            // It was watched.
            let _ = self.poll.registry().deregister(&mut SourceFd(&descriptor));
        }
        stages
    }
}
