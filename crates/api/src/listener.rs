//! The listeners of the API: the Unix socket, whose permissions control access, and the TCP
//! listener.

use super::access::Caller;
use super::connections::{serve, share};
use super::endpoints::routes;
use super::reserve::Reserve;
use super::socket_watch::keep_socket;
use super::state::{ApiState, Reload, RouterState};
use super::task;
use super::tls::Tls;
use ribtide_config::ApiConfig;
use ribtide_runtime::thread;
use ribtide_runtime::unix_socket::{self, BindError};
use rustix::process::Resource;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Concurrent requests; a further one waits.
const CONCURRENT_REQUESTS_MAX: usize = 16;
/// How long a check of a reload waits for the request of its next page: `ribtide check --diff` sends it at once.
const CHECK_IDLE: Duration = Duration::from_secs(60);

/// Bound listeners.
#[derive(Debug)]
pub struct Api {
    unix: UnixListener,
    tcp: Option<TcpListener>,
    reserves: [Arc<Reserve>; 2],
    file: SocketFile,
    config: ApiConfig,
}

/// The file of the Unix socket. It is deleted on drop, so a missing file means that no daemon
/// listens.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl SocketFile {
    /// Leaves the file there, because another socket has taken its place.
    fn forget(self) {
        std::mem::forget(self);
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

/// Binds the Unix socket. Replaces a socket file without a listener, or the one that is `ours`.
fn bind_unix(config: &ApiConfig, ours: bool) -> Result<(UnixListener, SocketFile), ListenError> {
    let path = &config.socket;
    let refused = |e| ListenError::Unix(path.clone(), e);
    if !ours && UnixStream::connect(path).is_ok() {
        return Err(ListenError::InUse(path.clone()));
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(ListenError::Occupied(path.clone())),
        _ if ours => {}
        Ok(_) => std::fs::remove_file(path).map_err(refused)?,
        // The following bind fails for the same reason and reports it.
        Err(_) => {}
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(refused)?;
    }
    // A file that takes the place of another is there at each moment.
    let mut place = path.clone().into_os_string();
    if ours {
        place.push(".new");
    }
    let place = PathBuf::from(place);
    let group = config.socket_group.as_ref();
    let unix =
        match (unix_socket::bind(&place, config.socket_mode, group.map(|group| group.id.as_raw())), group) {
            (Ok(unix), _) => unix,
            (Err(BindError::Group(e)), Some(group)) => {
                return Err(ListenError::Group(path.clone(), group.name.clone(), e));
            }
            (Err(BindError::Group(e) | BindError::Socket(e)), _) => return Err(refused(e)),
        };
    if ours {
        std::fs::rename(&place, path).map_err(refused)?;
    }
    unix.set_nonblocking(true).map_err(refused)?;
    Ok((unix, SocketFile(path.clone())))
}

fn bind_tcp(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let listener = TcpListener::bind(address).and_then(|l| l.set_nonblocking(true).map(|()| l));
    listener.map_err(|e| ListenError::Tcp(address, e))
}

impl Api {
    /// Binds the listeners. Replaces a socket file without a listener.
    ///
    /// # Errors
    /// Another router listens there, or the kernel refuses.
    pub fn bind(config: &ApiConfig) -> Result<Api, ListenError> {
        // First of all: a limit that falls later refuses high numbers of descriptors, so the reserve has low ones.
        let reserves = [Reserve::new(), Reserve::new()].map(Arc::new);
        let (unix, file) = bind_unix(config, false)?;
        let tcp = config.http.map(bind_tcp).transpose()?;
        Ok(Api { unix, tcp, reserves, file, config: config.clone() })
    }

    /// Serves on a thread of its own until the process ends. The file of the Unix socket lives as long as the server.
    ///
    /// # Errors
    /// The thread, or its event loop, cannot be created.
    pub fn serve(self, router: Arc<RouterState>, reload: Reload) -> io::Result<ApiServer> {
        let Api { unix, tcp, reserves, file, config } = self;
        let state = Arc::new(ApiState::new(router, reload));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("api-query")
            .max_blocking_threads(CONCURRENT_REQUESTS_MAX)
            .build()?;
        let max = share(rustix::process::getrlimit(Resource::Nofile).current);
        task::spawn_on(runtime.handle(), "checks", end_checks(state.clone()));
        let service = Service { handle: runtime.handle().clone(), router: routes(state), max, reserves };
        let tls = config.tls.as_ref().map(Tls::new);
        let tcp = tcp.map(|tcp| service.tcp(tcp, tls.clone())).transpose()?;
        let unix = service.unix(unix)?;
        let listening = Mutex::new(Listening { config, unix, tcp, tls, file });
        let moved = Arc::new(Notify::new());
        let server = Arc::new(Server { service, listening, socket_moved: moved.clone() });
        task::spawn_on(runtime.handle(), "socket", keep_socket(Arc::downgrade(&server), moved));
        thread::spawn("api", move || runtime.block_on(std::future::pending::<Infallible>()))?;
        Ok(ApiServer(server))
    }
}

/// Frees the memory of checks whose clients were interrupted.
async fn end_checks(state: Arc<ApiState>) -> Infallible {
    loop {
        tokio::time::sleep(CHECK_IDLE / 4).await;
        let ended = state.reload_checks.end_waiting(CHECK_IDLE, Instant::now());
        if !ended.is_empty() {
            let _ = task::blocking(move || drop(ended)).await;
        }
    }
}

/// The event loop of the API, and what its listeners serve.
struct Service {
    handle: Handle,
    router: axum::Router,
    /// Connections of a listener.
    max: usize,
    /// The descriptors that the Unix and the TCP listener keep.
    reserves: [Arc<Reserve>; 2],
}

impl Service {
    fn unix(&self, listener: UnixListener) -> io::Result<JoinHandle<()>> {
        let _inside = self.handle.enter();
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let reserve = self.reserves[0].clone();
        let listener = serve(listener, self.max, reserve, self.router.clone(), Caller::unix, None);
        Ok(task::spawn_on(&self.handle, "listener", listener))
    }

    fn tcp(&self, listener: TcpListener, tls: Option<Tls>) -> io::Result<JoinHandle<()>> {
        let _inside = self.handle.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let reserve = self.reserves[1].clone();
        let listener = serve(listener, self.max, reserve, self.router.clone(), Caller::tcp, tls);
        Ok(task::spawn_on(&self.handle, "listener", listener))
    }

    /// Closes a listener. Its connections go on.
    fn close(&self, listener: JoinHandle<()>) {
        listener.abort();
        // An aborted task ends with an error.
        let _ = self.handle.block_on(listener);
    }
}

/// The running API.
pub struct ApiServer(Arc<Server>);

/// The listeners and what they serve.
pub(super) struct Server {
    service: Service,
    listening: Mutex<Listening>,
    /// The Unix socket has another path.
    socket_moved: Arc<Notify>,
}

/// The listeners, by the settings that they were bound by.
struct Listening {
    config: ApiConfig,
    unix: JoinHandle<()>,
    tcp: Option<JoinHandle<()>>,
    /// TLS of `tcp`.
    tls: Option<Tls>,
    file: SocketFile,
}

impl Server {
    /// The path of the Unix socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.listening().file.0.clone()
    }

    /// Binds the Unix socket again if its file is gone. Returns whether it was. Not to be called on the event loop of the API.
    ///
    /// # Errors
    /// It cannot be bound. The former socket is still served, but no client can find it.
    pub(super) fn restore_socket(&self) -> Result<bool, ListenError> {
        let mut listening = self.listening();
        let Listening { config, unix, file, .. } = &mut *listening;
        match std::fs::symlink_metadata(&config.socket) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            // Another file in its place is another program's.
            Ok(_) | Err(_) => return Ok(false),
        }
        let (listener, its_file) = bind_unix(config, false)?;
        let task = self.service.unix(listener).map_err(|e| ListenError::Unix(config.socket.clone(), e))?;
        std::mem::replace(unix, task).abort();
        std::mem::replace(file, its_file).forget();
        Ok(true)
    }

    fn listening(&self) -> MutexGuard<'_, Listening> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reconfigure(&self, config: &ApiConfig) -> Result<bool, ListenError> {
        let mut listening = self.listening();
        let Listening { config: present, unix, tcp, tls, file } = &mut *listening;
        let of_unix = |c: &ApiConfig| (c.socket.clone(), c.socket_mode, c.socket_group.clone());
        let refused = |e| ListenError::Unix(config.socket.clone(), e);
        let mut changed = false;
        if of_unix(present) != of_unix(config) {
            let same_path = present.socket == config.socket;
            let (listener, its_file) = bind_unix(config, same_path)?;
            let task = self.service.unix(listener).map_err(refused)?;
            self.service.close(std::mem::replace(unix, task));
            let former = std::mem::replace(file, its_file);
            if same_path {
                former.forget();
            }
            present.socket.clone_from(&config.socket);
            self.socket_moved.notify_one();
            present.socket_mode = config.socket_mode;
            present.socket_group.clone_from(&config.socket_group);
            changed = true;
        }
        if let (Some(present), Some(new)) = (&*tls, &config.tls) {
            present.set(new);
        }
        present.tls.clone_from(&config.tls);
        if present.http != config.http || tls.is_some() != config.tls.is_some() {
            let new_tls = config.tls.as_ref().map(Tls::new);
            // All addresses of a port are in the way of one of them, so the former listener goes first.
            if let Some(former) = tcp.take() {
                self.service.close(former);
            }
            let listen = |address: SocketAddr, tls: &Option<Tls>| {
                let listener = bind_tcp(address)?;
                self.service.tcp(listener, tls.clone()).map_err(|e| ListenError::Tcp(address, e))
            };
            match config.http.map(|address| listen(address, &new_tls)).transpose() {
                Ok(listener) => {
                    (*tcp, present.http, changed) = (listener, config.http, true);
                    *tls = new_tls;
                }
                Err(e) => {
                    *tcp = present.http.and_then(|former| listen(former, tls).ok());
                    return Err(e);
                }
            }
        }
        Ok(changed)
    }
}

impl ApiServer {
    /// The path of the Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.0.socket()
    }

    /// Listens as `config` says. Requests under way are answered. Returns whether a listener changed. Not to be called on the
    /// event loop of the API.
    ///
    /// # Errors
    /// A listener cannot be bound. The Unix socket may have changed, the TCP listener has not.
    pub fn reconfigure(&self, config: &ApiConfig) -> Result<bool, ListenError> {
        self.0.reconfigure(config)
    }
}
