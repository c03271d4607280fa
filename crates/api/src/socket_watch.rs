//! The file of the Unix socket: bound again when another program removes it.
//!
//! The kernel reports files that leave the folder of the socket (inotify), so nothing is polled.
//! Without the file no client finds the router, although the router still listens.

use super::listener::Server;
use super::task;
use ribtide_runtime::log::target;
use ribtide_runtime::thread::Ended;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::sleep;

/// The time until a socket that could not be bound, or a folder that could not be watched, is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Keeps the file of the Unix socket there while the API is served. `moved`: its path is another.
pub(super) async fn keep_socket(server: Weak<Server>, moved: Arc<Notify>) -> Ended {
    let mut failed_before = false;
    loop {
        let Some(path) = on_thread(&server, Server::socket).await else { return Ended::done() };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The file is looked for only after the watch has begun, so no removal is missed.
        let watch = FolderWatch::new(folder);
        let Some(restored) = on_thread(&server, Server::restore_socket).await else { return Ended::done() };
        match &restored {
            Ok(true) => tracing::warn!(
                target: target::API, path = %path.display(),
                "another program removed the API socket; it is there again",
            ),
            Ok(false) => {}
            // One line for each time.
            Err(error) if !failed_before => tracing::error!(
                target: target::API, %error,
                "another program removed the API socket, and it cannot be made again yet",
            ),
            Err(_) => {}
        }
        failed_before = restored.is_err();
        match (watch, restored) {
            // A folder that was made again is another one.
            (_, Ok(true)) => {}
            (Ok(watch), Ok(false)) => {
                tokio::select! {
                    () = moved.notified() => {}
                    () = watch.gone(&path) => {}
                }
            }
            (Err(_), Ok(false)) | (_, Err(_)) => sleep(RETRY_INTERVAL).await,
        }
    }
}

/// Calls the server on a thread that may wait: a reload holds its listeners while it waits for the event loop to close one.
/// `None`: the API has ended.
async fn on_thread<T: Send + 'static>(server: &Weak<Server>, call: fn(&Server) -> T) -> Option<T> {
    let server = server.upgrade()?;
    task::blocking(move || call(&server)).await
}

/// Notifications of files that leave a folder.
struct FolderWatch(AsyncFd<OwnedFd>);

impl FolderWatch {
    fn new(folder: &Path) -> io::Result<FolderWatch> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let left = WatchFlags::DELETE | WatchFlags::MOVED_FROM;
        let folder_left = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&watch, folder, left | folder_left | WatchFlags::ONLYDIR)?;
        #[expect(
            deprecated,
            reason = "its replacement is unsafe, and an `OwnedFd` has one descriptor as long as it lives"
        )]
        let watch = AsyncFd::new(watch)?;
        Ok(FolderWatch(watch))
    }

    /// Returns when there is no file at `path`, or no notification can be read.
    async fn gone(&self, path: &Path) {
        let mut events = [0; 4096];
        while let Ok(mut ready) = self.0.readable().await {
            match rustix::io::read(self.0.get_ref(), &mut events) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(_) => return,
            }
            // Which file left does not matter: this one is there or not.
            if std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
                return;
            }
        }
    }
}
