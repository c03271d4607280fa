//! The listeners of the API: the Unix socket, whose permissions control access, and the TCP
//! listener.

use super::access::Caller;
use super::connections::{serve, share};
use super::endpoints::routes;
use super::state::{ApiState, Reload, RouterState};
use ribtide_config::ApiConfig;
use ribtide_runtime::thread::{self, Ends};
use ribtide_runtime::unix_socket::{self, BindError};
use rustix::process::Resource;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

/// Concurrent requests; a further one waits.
const CONCURRENT_REQUESTS_MAX: usize = 16;

/// Bound listeners.
#[derive(Debug)]
pub struct Api {
    unix: UnixListener,
    tcp: Option<TcpListener>,
    file: SocketFile,
}

/// The file of the Unix socket. It is deleted on drop, so a missing file means that no daemon
/// listens.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl SocketFile {
    /// The path of the file.
    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Why the API cannot listen. Displays as a sentence.
#[derive(Debug)]
pub enum ListenError {
    /// Another router listens there.
    InUse(PathBuf),
    /// The path exists and is no socket.
    Occupied(PathBuf),
    /// The Unix socket cannot be created.
    Unix(PathBuf, io::Error),
    /// The group of the Unix socket cannot be set.
    Group(PathBuf, String, io::Error),
    /// The TCP listener cannot be created.
    Tcp(SocketAddr, io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::InUse(p) => write!(
                f,
                "another router already listens on {}; stop it, or set api.socket to another path",
                p.display()
            ),
            ListenError::Occupied(p) => write!(
                f,
                "{} is there and is no socket; set api.socket to another path, or remove it",
                p.display()
            ),
            ListenError::Unix(p, e) => write!(
                f,
                "cannot make the API socket {}: {e}; set api.socket to a path that can be written",
                p.display()
            ),
            ListenError::Group(p, group, e) => write!(
                f,
                "the API socket {} cannot belong to the group \"{group}\" (api.socket-group): {e}; run ribtide as a \
                 member of it or as root, or remove the setting",
                p.display()
            ),
            ListenError::Tcp(a, e) => write!(
                f,
                "cannot listen on {a} for the API: {e}; set api.http to a free address or remove it"
            ),
        }
    }
}

impl std::error::Error for ListenError {}

impl Api {
    /// Binds the listeners. Replaces a socket file without a listener.
    ///
    /// # Errors
    /// Another router listens there, or the kernel refuses.
    pub fn bind(config: &ApiConfig) -> Result<Api, ListenError> {
        let path = &config.socket;
        let refused = |e| ListenError::Unix(path.clone(), e);
        if UnixStream::connect(path).is_ok() {
            return Err(ListenError::InUse(path.clone()));
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(ListenError::Occupied(path.clone())),
            Ok(_) => std::fs::remove_file(path).map_err(refused)?,
            // The following bind fails for the same reason and reports it.
            Err(_) => {}
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(refused)?;
        }
        let group = config.socket_group.as_ref();
        let bound = unix_socket::bind(path, config.socket_mode, group.map(|group| group.id.as_raw()));
        let (unix, file) = match (bound, group) {
            (Ok(unix), _) => (unix, SocketFile(path.clone())),
            (Err(BindError::Group(e)), Some(group)) => {
                return Err(ListenError::Group(path.clone(), group.name.clone(), e));
            }
            (Err(BindError::Group(e) | BindError::Socket(e)), _) => return Err(refused(e)),
        };
        unix.set_nonblocking(true).map_err(refused)?;
        let tcp = match config.http {
            None => None,
            Some(address) => {
                let listener = TcpListener::bind(address).and_then(|l| l.set_nonblocking(true).map(|()| l));
                Some(listener.map_err(|e| ListenError::Tcp(address, e))?)
            }
        };
        Ok(Api { unix, tcp, file })
    }

    /// Serves on a thread of its own until the process ends. The file lives as long as its owner.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn serve(self, router: Arc<RouterState>, reload: Reload) -> io::Result<SocketFile> {
        let Api { unix, tcp, file } = self;
        let state = Arc::new(ApiState::new(router, reload));
        thread::spawn("api", Ends::WithOwner, move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .thread_name("api-query")
                .max_blocking_threads(CONCURRENT_REQUESTS_MAX)
                .build();
            let runtime = runtime.expect("an event loop for the API");
            runtime.block_on(async {
                let router = routes(state);
                let max = share(rustix::process::getrlimit(Resource::Nofile).current);
                let unix =
                    tokio::net::UnixListener::from_std(unix).expect("a listener router its event loop");
                if let Some(tcp) = tcp {
                    let tcp =
                        tokio::net::TcpListener::from_std(tcp).expect("a listener router its event loop");
                    tokio::spawn(serve(tcp, max, router.clone(), Caller::tcp));
                }
                serve(unix, max, router, Caller::unix).await;
            });
        })?;
        Ok(file)
    }
}
