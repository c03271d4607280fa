//! The connections of a listener: how many there are, and when one is closed.
//!
//! Each listener has its own share of connections, so clients on TCP never keep `ribtide show` from
//! the Unix socket, and all shares together leave most descriptors to BGP. A connection on which no
//! request is under way makes room for a new one: an idle client cannot keep others out. Where the
//! process has no descriptors left, clients get those of a [`Reserve`], or status 503.

use super::access::Caller;
use super::reserve::{Accept, Reserve, is_shortage};
use super::task;
use super::tls::Tls;
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ribtide_runtime::log::target;
use ribtide_runtime::thread::Ended;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// The media type of a response that lasts.
const EVENT_STREAM: &str = "text/event-stream";
/// Connections of a listener at most.
const CONNECTIONS_MAX: usize = 64;
/// The part of the limit of open files that one listener may use.
const DESCRIPTOR_SHARE: u64 = 8;
/// Connections of a listener at least, however few files may be open.
const CONNECTIONS_MIN: usize = 4;
/// From the end of a response, or the connection, to the end of the head of the next request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to read a response after its last part was made.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a connection that the kernel did not give, for lack of memory or of descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// How long a client that is refused for lack of descriptors may take to send its request.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The response to such a client.
const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 159\r\nconnection: \
    close\r\n\r\n{\"error\":\"the router has no file descriptors left, and other clients have those that the API keeps for that case; \
    try again, or raise its limit of open files\"}";

/// Connections that one listener takes, of a process that may open so many files (`None`: any
/// number).
pub(super) fn share(descriptors: Option<u64>) -> usize {
    let share = descriptors
        .map_or(CONNECTIONS_MAX, |all| usize::try_from(all / DESCRIPTOR_SHARE).unwrap_or(CONNECTIONS_MAX));
    share.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)
}

/// Serves `router` on a listener for ever, on at most `max` connections, with TLS if there is any.
pub(super) async fn serve<L: Accept>(
    listener: L,
    max: usize,
    reserve: Arc<Reserve>,
    router: Router,
    caller: fn(&L::Io, &L::Address) -> Caller,
    tls: Option<Tls>,
) -> Infallible
where
    L::Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connections = Arc::new(Connections::new(max, reserve));
    loop {
        let (io, address, last) = connections.accept(&listener).await;
        if last {
            let (connections, has_tls) = (connections.clone(), tls.is_some());
            task::spawn("connection", async move {
                // An error is the client's, which left.
                let _ = timeout(REFUSAL_TIMEOUT, refuse(io, has_tls)).await;
                connections.returned();
                Ended::done()
            });
            continue;
        }
        let connection = connections.admit().await;
        let caller = caller(&io, &address);
        let place = Place { connection: connection.clone(), connections: connections.clone() };
        let (router, connections, tls) = (router.clone(), connections.clone(), tls.clone());
        task::spawn("connection", async move {
            let _place = place;
            match tls {
                None => exchange(io, caller, router, connection, connections).await,
                Some(tls) => {
                    let begun = tokio::select! {
                        begun = timeout(HEAD_TIMEOUT, tls.accept(io)) => begun,
                        () = connection.close.notified() => return Ended::done(),
                    };
                    match begun {
                        Ok(Ok(io)) => exchange(io, caller, router, connection, connections).await,
                        // It is the client's: it speaks no TLS, does not trust the certificate, or has none.
                        Ok(Err(error)) => {
                            tracing::debug!(target: target::API, %caller, %error, "a client gets no TLS connection");
                        }
                        Err(_) => {
                            tracing::debug!(target: target::API, %caller, "a client's TLS handshake takes too long");
                        }
                    }
                }
            }
            Ended::done()
        });
    }
}

/// Refuses a client for lack of descriptors. One that expects TLS gets the end of the connection.
async fn refuse(mut io: impl AsyncRead + AsyncWrite + Unpin, has_tls: bool) -> io::Result<()> {
    if has_tls {
        return Ok(());
    }
    // A response before the request could be lost with it.
    let _any = io.read(&mut [0; 4096]).await?;
    io.write_all(REFUSAL.as_bytes()).await?;
    io.shutdown().await
}

/// Serves the requests of one connection until it ends or has to make room.
async fn exchange<I>(
    io: I,
    caller: Caller,
    router: Router,
    connection: Arc<Connection>,
    connections: Arc<Connections>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(caller));
        let working = Working::new(connection.clone(), connections.clone());
        let response = service.call(request);
        async move {
            let response = response.await;
            // A client that follows events waits for them: the request is under way until one side ends it.
            let follows = |r: &Response| r.headers().get(CONTENT_TYPE).is_some_and(|t| t == EVENT_STREAM);
            response.map(|response| match follows(&response) {
                true => response.map(|body| Body::new(Held { body, working })),
                false => response,
            })
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(io), service);
    let mut served = std::pin::pin!(served);
    loop {
        // A client that waits for its next request is closed by `HEAD_TIMEOUT`; what idles longer
        // does not read its response, nor the events that it follows.
        let unread_since = connection.unread_since();
        let deadline = unread_since.unwrap_or_else(Instant::now) + RESPONSE_TIMEOUT;
        tokio::select! {
            // An error is the client's: it left, or sent no HTTP.
            _ = served.as_mut() => return,
            () = connection.close.notified() => return,
            () = sleep_until(deadline) => {
                if unread_since.is_some() && connection.unread_since() == unread_since {
                    return;
                }
            }
        }
    }
}

/// A connection, as its task and its listener see it.
#[derive(Debug)]
struct Connection {
    /// Since when no request is under way; `None`: one is.
    idle_since: Mutex<Option<Instant>>,
    /// When it last had room for events; `None`: its client follows none.
    had_room: Mutex<Option<Instant>>,
    /// The connection has to make room.
    close: Notify,
}

impl Connection {
    fn idle_since(&self) -> Option<Instant> {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when nothing happened that its client caused; `None`: a request is under way.
    fn unread_since(&self) -> Option<Instant> {
        self.idle_since().or(*self.had_room.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_had_room(&self, at: Option<Instant>) {
        *self.had_room.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn set_idle_since(&self, since: Option<Instant>) {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

/// The connections of one listener.
#[derive(Debug)]
struct Connections {
    max: usize,
    list: Mutex<Vec<Arc<Connection>>>,
    /// One has ended, or has become idle.
    changed: Notify,
    /// Where a descriptor comes from when the process has none left.
    reserve: Arc<Reserve>,
    /// A descriptor was closed.
    returned: Notify,
}

impl Connections {
    fn new(max: usize, reserve: Arc<Reserve>) -> Connections {
        Connections { max, list: Mutex::default(), changed: Notify::new(), reserve, returned: Notify::new() }
    }

    /// The next connection, and whether it has the last descriptor of the reserve.
    async fn accept<L: Accept>(&self, listener: &L) -> (L::Io, L::Address, bool) {
        let mut last = false;
        loop {
            match listener.accept_one().await {
                Ok((io, address)) => {
                    if !last {
                        self.reserve.refill();
                    }
                    return (io, address, last);
                }
                // The client left while it waited.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if is_shortage(&error) => match self.reserve.release() {
                    Some(left) => {
                        last = left == 0;
                        tracing::warn!(
                            target: target::API, %error, left,
                            "no file descriptors are left: a client gets one that the API keeps for that; raise the limit of open \
                             files (LimitNOFILE of systemd)",
                        );
                    }
                    None => {
                        self.close_idle();
                        // What other threads close is noticed by the time.
                        let _ = timeout(ACCEPT_RETRY_INTERVAL, self.returned.notified()).await;
                        self.reserve.refill();
                    }
                },
                Err(error) => {
                    tracing::warn!(target: target::API, %error, "a client gets no connection");
                    sleep(ACCEPT_RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// A connection was closed.
    fn returned(&self) {
        self.reserve.refill();
        self.returned.notify_one();
    }

    /// Asks the connection that has been idle for the longest to make room.
    fn close_idle(&self) {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = list.iter().filter_map(|connection| Some((connection.idle_since()?, connection)));
        if let Some((_, oldest)) = idle.min_by_key(|(since, _)| *since) {
            oldest.close.notify_one();
        }
    }

    /// A place for a new connection. Where there is none, the connection that has been idle for the
    /// longest is closed; while a request is under way on each, the new one waits.
    async fn admit(&self) -> Arc<Connection> {
        loop {
            if let Some(connection) = self.try_admit() {
                return connection;
            }
            self.changed.notified().await;
        }
    }

    fn try_admit(&self) -> Option<Arc<Connection>> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < self.max {
            let idle_since = Mutex::new(Some(Instant::now()));
            let connection =
                Arc::new(Connection { idle_since, had_room: Mutex::default(), close: Notify::new() });
            list.push(connection.clone());
            return Some(connection);
        }
        drop(list);
        self.close_idle();
        None
    }

    fn remove(&self, connection: &Arc<Connection>) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).retain(|c| !Arc::ptr_eq(c, connection));
        self.changed.notify_one();
        self.returned();
    }
}

/// A connection's place in the list of its listener.
struct Place {
    connection: Arc<Connection>,
    connections: Arc<Connections>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.remove(&self.connection);
    }
}

/// A body of events, whose request is under way until it is dropped. It is polled while the connection has room.
struct Held {
    body: Body,
    working: Working,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.working.connection.set_had_room(None);
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.working.connection.set_had_room(Some(Instant::now()));
        Pin::new(&mut self.body).poll_frame(context)
    }
}

/// A request is under way.
struct Working {
    connection: Arc<Connection>,
    connections: Arc<Connections>,
}

impl Working {
    fn new(connection: Arc<Connection>, connections: Arc<Connections>) -> Working {
        connection.set_idle_since(None);
        Working { connection, connections }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.connection.set_idle_since(Some(Instant::now()));
        self.connections.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use std::net::SocketAddr;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::advance;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

    /// A request that lasts.
    #[derive(Default)]
    struct Hold {
        begun: Notify,
        end: Notify,
    }

    /// A server of at most `max` connections; `hold` is notified to end the requests to `/hold`.
    async fn server(max: usize, hold: Arc<Hold>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let held = move || async move {
            hold.begun.notify_one();
            hold.end.notified().await;
        };
        let router = Router::new().route("/", get(|| async { "fine" })).route("/hold", get(held));
        let caller = |_: &TcpStream, peer: &SocketAddr| Caller::Tcp { peer: *peer, local: None };
        task::spawn("listener", serve(listener, max, Arc::default(), router, caller, None));
        address
    }

    /// Whether a new client gets a response.
    async fn answered(address: SocketAddr) -> bool {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        let mut head = [0; 15];
        client.read_exact(&mut head).await.is_ok() && &head == b"HTTP/1.1 200 OK"
    }

    /// Whether the server ends this connection.
    async fn ended(client: &mut TcpStream) -> bool {
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = client.read_to_end(&mut rest).await;
        rest.is_empty()
    }

    #[test]
    fn share_is_an_eighth_of_the_descriptors_within_its_bounds() {
        let shares = [Some(20), Some(120), Some(1024), Some(1 << 20), None].map(share);
        assert_eq!(shares, [4, 15, 64, 64, 64]);
    }

    /// Whether it was asked to make room.
    async fn is_closing(connection: &Connection) -> bool {
        timeout(Duration::ZERO, connection.close.notified()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_idles_longest_is_closed_when_all_places_are_taken() {
        let connections = Connections::new(2, Arc::default());
        let first = connections.try_admit().unwrap();
        advance(Duration::from_secs(1)).await;
        let second = connections.try_admit().unwrap();
        assert!(connections.try_admit().is_none());
        assert_eq!((is_closing(&first).await, is_closing(&second).await), (true, false));
        first.set_idle_since(None);
        assert!(connections.try_admit().is_none());
        assert_eq!((is_closing(&first).await, is_closing(&second).await), (false, true));
        second.set_idle_since(None);
        assert!(connections.try_admit().is_none());
        assert_eq!((is_closing(&first).await, is_closing(&second).await), (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_waits_for_a_place_gets_the_one_of_a_connection_that_ends() {
        let connections = Arc::new(Connections::new(1, Arc::default()));
        let connection = connections.try_admit().unwrap();
        let place = Place { connection, connections: connections.clone() };
        let mut waits = std::pin::pin!(connections.admit());
        assert!(timeout(Duration::ZERO, waits.as_mut()).await.is_err());
        drop(place);
        assert!(timeout(Duration::ZERO, waits.as_mut()).await.is_ok());
    }

    #[tokio::test]
    async fn idle_connection_makes_room_for_a_new_one_the_oldest_first() {
        let address = server(2, Arc::default()).await;
        let mut oldest = TcpStream::connect(address).await.unwrap();
        let mut idle = Vec::new();
        for _ in 0..20 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        assert!(answered(address).await);
        assert!(ended(&mut oldest).await);
    }

    #[tokio::test]
    async fn connection_with_a_request_is_not_closed_and_a_new_one_waits() {
        let hold = Arc::new(Hold::default());
        let address = server(1, hold.clone()).await;
        let mut busy = TcpStream::connect(address).await.unwrap();
        busy.write_all(b"GET /hold HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        // Before that it is idle.
        hold.begun.notified().await;
        let mut head = [0; 15];
        let ends = async {
            tokio::task::yield_now().await;
            hold.end.notify_one();
            busy.read_exact(&mut head).await.unwrap();
        };
        assert!(tokio::join!(answered(address), ends).0);
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }

    #[test]
    fn refusal_has_the_length_that_it_names() {
        let (head, body) = REFUSAL.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{}", body.len());
        assert!(serde_json::from_str::<ribtide_model::ApiError>(body).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_a_request_or_with_half_of_one_is_closed_in_time() {
        let address = server(8, Arc::default()).await;
        for sent in [b"".as_slice(), b"GET / HTTP/1.1\r\nhost: loc"] {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(sent).await.unwrap();
            let begin = Instant::now();
            assert!(ended(&mut client).await, "{sent:?}");
            assert!(begin.elapsed() <= 2 * HEAD_TIMEOUT, "{sent:?}: {:?}", begin.elapsed());
        }
    }

    /// Events without end.
    struct Flood;

    impl HttpBody for Flood {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b':'; 1 << 16])))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_whose_client_does_not_read_its_events_is_closed_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let events = || async { ([(CONTENT_TYPE, EVENT_STREAM)], Body::new(Flood)) };
        let router = Router::new().route("/", get(events));
        let connections = Arc::new(Connections::new(1, Arc::default()));
        let connection = connections.try_admit().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        let (io, peer) = listener.accept().await.unwrap();
        let begin = Instant::now();
        exchange(io, Caller::Tcp { peer, local: None }, router, connection, connections).await;
        assert!(begin.elapsed() >= RESPONSE_TIMEOUT && begin.elapsed() <= 2 * RESPONSE_TIMEOUT);
        drop(client);
    }
}
