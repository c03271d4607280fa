//! Listeners and routes of the API.

use super::model::{AsicFaults, AsicQuestion, Clear, Resize, SetAsic, SetNextHopCache, SetSuppression};
use super::request::{
    AsicQuery, Asked, BfdQuery, FibQuery, GroupQuery, Named, NeighborQuery, NextHopGroupQuery, PageQuery,
    PrefixQuery, Refusal, RouteCheckQuery, RouteQuery, Sent, TrackedQuery, limit,
};
use super::{answers, metrics};
use crate::config::ApiConfig;
use crate::router::Inside;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Uri};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use ribtide_runtime::thread;
use serde::Serialize;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

/// The most routes a page may hold.
const MAX_PAGE: usize = 10_000;
/// The most neighbours a page may hold: each costs every shard, its reader and its update thread a moment.
const MAX_NEIGHBORS: usize = 256;
/// Next-hop groups in one page: of 512 hops each, they take the RIB manager some 10 ms.
const MAX_GROUPS: usize = 64;
/// Questions that may be under way at once; a further one waits for its turn.
const AT_ONCE: usize = 16;
/// The most addresses one lookup may hold.
const MAX_LOOKUP: usize = 65_536;

/// The API's listeners, bound and not yet served.
#[derive(Debug)]
pub struct Api {
    unix: UnixListener,
    tcp: Option<TcpListener>,
    file: SocketFile,
}

/// The Unix socket's file. Goes with its owner: a file that is gone says that nobody listens.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl SocketFile {
    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Someone else has removed it: as good.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Why the API cannot listen. Displays as a sentence.
#[derive(Debug)]
pub enum ListenError {
    /// Another router answers there.
    InUse(PathBuf),
    /// Something that is no socket has this name.
    Occupied(PathBuf),
    /// The Unix socket cannot be made.
    Unix(PathBuf, io::Error),
    /// The TCP listener cannot be made.
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
            ListenError::Tcp(a, e) => write!(
                f,
                "cannot listen on {a} for the API: {e}; set api.http to a free address or remove it"
            ),
        }
    }
}

impl std::error::Error for ListenError {}

impl Api {
    /// Binds. A socket file that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// When another router listens there, or the system refuses.
    pub fn bind(config: &ApiConfig) -> Result<Api, ListenError> {
        let path = &config.socket;
        let refused = |e| ListenError::Unix(path.clone(), e);
        if UnixStream::connect(path).is_ok() {
            return Err(ListenError::InUse(path.clone()));
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(ListenError::Occupied(path.clone())),
            Ok(_) => std::fs::remove_file(path).map_err(refused)?,
            // What keeps us from looking keeps us from listening too, and is told there.
            Err(_) => {}
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(refused)?;
        }
        let unix = UnixListener::bind(path).map_err(refused)?;
        let file = SocketFile(path.clone());
        // Whoever may use it changes routing: the owner and the group only.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(refused)?;
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

    /// Serves on a thread of its own until the process ends. Whoever keeps the file decides when it goes.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn serve(self, inside: Arc<Inside>) -> io::Result<SocketFile> {
        let Api { unix, tcp, file } = self;
        thread::spawn("api", move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .thread_name("api-question")
                .max_blocking_threads(AT_ONCE)
                .build();
            let runtime = runtime.expect("an event loop for the API");
            runtime.block_on(async {
                let router = routes(inside);
                let unix =
                    tokio::net::UnixListener::from_std(unix).expect("a listener inside its event loop");
                let served = axum::serve(unix, router.clone());
                if let Some(tcp) = tcp {
                    let tcp =
                        tokio::net::TcpListener::from_std(tcp).expect("a listener inside its event loop");
                    tokio::spawn(async move { axum::serve(tcp, router).await });
                }
                // axum's serve ends only with the process.
                let _ = served.await;
            });
        })?;
        Ok(file)
    }
}

fn routes(inside: Arc<Inside>) -> Router {
    Router::new()
        .route("/v1/bgp/summary", get(|s| blocking(s, answers::bgp_summary)))
        .route(
            "/v1/bgp/neighbors",
            get(|s, Asked(q): Asked<NeighborQuery>| {
                blocking(s, move |i| answers::bgp_neighbors(i, &q, limit(q.limit, MAX_NEIGHBORS)?))
            }),
        )
        .route(
            "/v1/bgp/neighbors/{address}",
            get(|s, Named(address)| blocking(s, move |i| answers::bgp_neighbor(i, &address))),
        )
        .route(
            "/v1/bgp/groups",
            get(|s, Asked(q): Asked<GroupQuery>| {
                blocking(s, move |i| answers::bgp_groups(i, q.name.as_deref(), q.update_thread))
            }),
        )
        .route(
            "/v1/bgp/clear",
            post(|s, Sent(c): Sent<Clear>| blocking(s, move |i| answers::bgp_clear(i, c))),
        )
        .route("/v1/bgp/shards", post(|s, Sent(r): Sent<Resize>| blocking(s, move |i| answers::resize(i, r))))
        .route("/v1/reload", post(|s| blocking(s, answers::reload)))
        .route(
            "/v1/routes",
            get(|s, Asked(q): Asked<RouteQuery>| {
                blocking(s, move |i| answers::routes(i, &q, limit(q.limit, MAX_PAGE)?))
            }),
        )
        .route("/v1/routes/summary", get(|s| blocking(s, answers::route_summary)))
        .route("/v1/routes/sharding", get(|s| blocking(s, answers::sharding)))
        .route(
            "/v1/fib",
            get(|s, Asked(q): Asked<FibQuery>| {
                blocking(s, move |i| {
                    let limit = limit(q.limit, MAX_PAGE)?;
                    answers::fib(i, q.vrf.as_deref(), q.prefix.as_deref(), q.cursor.as_deref(), limit)
                })
            }),
        )
        .route(
            "/v1/bgp/nexthops",
            get(|s, Asked(q): Asked<TrackedQuery>| {
                blocking(s, move |i| answers::tracked_next_hops(i, q.address))
            }),
        )
        .route(
            "/v1/nexthop-groups",
            get(|s, Asked(q): Asked<NextHopGroupQuery>| {
                blocking(s, move |i| {
                    let limit = limit(q.limit, MAX_GROUPS)?;
                    answers::nexthop_groups(i, q.id, q.vrf.as_deref(), q.cursor.as_deref(), limit)
                })
            }),
        )
        .route(
            "/v1/nexthop-cache",
            post(|s, Sent(set): Sent<SetNextHopCache>| {
                blocking(s, move |i| answers::set_nexthop_cache(i, &set))
            }),
        )
        .route(
            "/v1/fib/failed",
            get(|s, Asked(q): Asked<PageQuery>| {
                blocking(s, move |i| answers::failed(i, q.cursor.as_deref(), limit(q.limit, MAX_PAGE)?))
            }),
        )
        .route(
            "/v1/fib/suppression",
            post(|s, Sent(set): Sent<SetSuppression>| blocking(s, move |i| answers::set_suppression(i, set))),
        )
        .route(
            "/v1/route-check",
            get(|s, Asked(q): Asked<RouteCheckQuery>| {
                blocking(s, move |i| answers::route_check(i, q.full, q.defaults))
            }),
        )
        .route(
            "/v1/explain",
            get(|s, Asked(q): Asked<PrefixQuery>| {
                blocking(s, move |i| answers::explain(i, q.vrf.as_deref(), &q.prefix))
            }),
        )
        .route("/v1/pipeline", get(|s| blocking(s, answers::pipeline)))
        .route("/v1/threads", get(|s| blocking(s, answers::threads)))
        .route("/v1/performance", get(|s| blocking(s, answers::performance)))
        .route("/v1/bfd", get(|s, Asked(q): Asked<BfdQuery>| blocking(s, move |i| answers::bfd(i, q.peer))))
        .route("/v1/fpm", get(|s| blocking(s, answers::fpm)))
        .route(
            "/v1/asic",
            get(|s, Asked(q): Asked<AsicQuery>| {
                blocking(s, move |i| answers::asic_state(i, q.asic.as_deref()))
            })
            .post(|s, Sent(c): Sent<SetAsic>| blocking(s, move |i| answers::set_asic(i, c))),
        )
        .route(
            "/v1/asic/lookup",
            post(|s, Sent(q): Sent<AsicQuestion>| {
                blocking(s, move |i| {
                    if q.addresses.len() > MAX_LOOKUP {
                        return Err(Refusal::Bad(format!(
                            "at most {MAX_LOOKUP} addresses at a time, not {}",
                            q.addresses.len()
                        )));
                    }
                    answers::asic_lookup(i, q.asic.as_deref(), q.vrf.as_deref(), &q.addresses)
                })
            }),
        )
        .route(
            "/v1/asic/faults",
            post(|s, Sent(f): Sent<AsicFaults>| blocking(s, move |i| answers::asic_faults(i, f))),
        )
        .route("/metrics", get(scrape))
        .fallback(|uri: Uri| async move {
            let says = format!("there is no endpoint {}; docs/operations.md lists what there is", uri.path());
            Refusal::Missing(says)
        })
        .method_not_allowed_fallback(|method: Method, uri: Uri| async move {
            let says =
                format!("{} does not take {method}; docs/operations.md says what it takes", uri.path());
            Refusal::Method(says)
        })
        .with_state(inside)
}

/// Questions to stages block, so they leave the event loop's thread.
async fn blocking<T: Serialize + Send + 'static>(
    inside: State<Arc<Inside>>,
    answer: impl FnOnce(&Inside) -> Result<T, Refusal> + Send + 'static,
) -> Result<Json<T>, Refusal> {
    elsewhere(inside, answer).await.map(Json)
}

/// The metrics, as Prometheus reads them.
async fn scrape(inside: State<Arc<Inside>>) -> Result<impl IntoResponse, Refusal> {
    let text = elsewhere(inside, metrics::text).await?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text))
}

async fn elsewhere<T: Send + 'static>(
    State(inside): State<Arc<Inside>>,
    answer: impl FnOnce(&Inside) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(move || answer(&inside)).await {
        Ok(answer) => answer,
        Err(e) => Err(Refusal::Busy(format!("the question failed: {e}"))),
    }
}
