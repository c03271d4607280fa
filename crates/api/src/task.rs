//! Tasks of the API's event loop. Only this file starts them (lint `threads`), so none ends silently: as a
//! thread, a task says why it ended, and a failure of one ends the process.

use ribtide_runtime::thread::{self, Ended};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Starts a task on the event loop of `on`.
pub(super) fn spawn_on<R: Into<Ended> + 'static>(
    on: &Handle,
    name: &'static str,
    body: impl Future<Output = R> + Send + 'static,
) -> JoinHandle<()> {
    on.spawn(thread::task(name, body))
}

/// Starts a task on the event loop of the calling task.
pub(super) fn spawn<R: Into<Ended> + 'static>(
    name: &'static str,
    body: impl Future<Output = R> + Send + 'static,
) -> JoinHandle<()> {
    spawn_on(&Handle::current(), name, body)
}

/// Runs what blocks on a thread beside the event loop. A failure of it is one of the calling task. `None`:
/// the API has ended.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Some(result),
        Err(e) => {
            let failure = e.try_into_panic().ok()?;
            std::panic::resume_unwind(failure)
        }
    }
}
