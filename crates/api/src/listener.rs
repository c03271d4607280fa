//! The listeners of the API: the Unix socket, whose permissions control access, and the TCP
//! listener.

use super::access::Caller;
use super::endpoints::routes;
use super::state::{ApiState, Reload, RouterState};
use ribtide_config::ApiConfig;
use ribtide_runtime::thread;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Concurrent requests; a further one waits.
const CONCURRENT_REQUESTS_MAX: usize = 16;
/// Connections that wait for the thread of the API; the kernel refuses further ones.
const BACKLOG: i32 = 128;

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
        let (unix, file) = bind_unix(config)?;
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
        thread::spawn("api", move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .thread_name("api-question")
                .max_blocking_threads(CONCURRENT_REQUESTS_MAX)
                .build();
            let runtime = runtime.expect("an event loop for the API");
            runtime.block_on(async {
                let router = routes(state).into_make_service_with_connect_info::<Caller>();
                let unix =
                    tokio::net::UnixListener::from_std(unix).expect("a listener router its event loop");
                let served = axum::serve(unix, router.clone());
                if let Some(tcp) = tcp {
                    let tcp =
                        tokio::net::TcpListener::from_std(tcp).expect("a listener router its event loop");
                    tokio::spawn(async move { axum::serve(tcp, router).await });
                }
                // `axum::serve` ends with the process.
                let _ = served.await;
            });
        })?;
        Ok(file)
    }
}

/// Creates the Unix socket with its group and mode. No client can connect before: the file is
/// created without permissions for others, and listens last.
fn bind_unix(config: &ApiConfig) -> Result<(UnixListener, SocketFile), ListenError> {
    let path = &config.socket;
    let refused = |e| ListenError::Unix(path.clone(), e);
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(refused)?;
    // On Linux the file takes the mode of the socket at bind. Unlike umask, this affects no other
    // thread.
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
    nix::sys::stat::fchmod(&socket, mode).map_err(|e| refused(e.into()))?;
    socket.bind(&SockAddr::unix(path).map_err(refused)?).map_err(refused)?;
    let file = SocketFile(path.clone());
    if let Some(group) = &config.socket_group {
        chown(path, None, Some(group.id.as_raw()))
            .map_err(|e| ListenError::Group(path.clone(), group.name.clone(), e))?;
    }
    set_mode(path, config.socket_mode).map_err(refused)?;
    socket.listen(BACKLOG).map_err(refused)?;
    let unix = UnixListener::from(OwnedFd::from(socket));
    unix.set_nonblocking(true).map_err(refused)?;
    Ok((unix, file))
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
