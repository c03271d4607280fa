//! The client of the running router's API, over its Unix socket or TCP.

use crate::remote::{Connection, Remote};
use crate::show::{Output, Place as Options};
use crate::text::not_understood;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use ribtide_model::ApiError;
use ribtide_runtime::thread::{self, Ended};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// After so long without a response the client tries whether the router answers anything, and waits as long for that.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// What it tries: the page, which waits for no stage.
const PROBE_PATH: &str = "/";

/// Where a router is.
#[derive(Clone, Debug)]
enum Place {
    /// On this host, at its Unix socket.
    Unix(PathBuf),
    /// At an address.
    Remote(Box<Remote>),
}

/// A client; it connects for each request.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    place: Place,
    /// How long it waits for an answer; by default for as long as the router answers other requests.
    within: Option<Duration>,
    /// [`SILENCE_TIMEOUT`].
    silence: Duration,
}

impl Client {
    /// A client of the router at `socket`.
    pub(crate) fn new(socket: impl Into<PathBuf>) -> Client {
        Client { place: Place::Unix(socket.into()), within: None, silence: SILENCE_TIMEOUT }
    }

    /// A client of the router that a command is about.
    ///
    /// # Errors
    /// What is wrong with its address.
    pub(crate) fn of(output: &Output) -> Result<Client, String> {
        Client::at_place(&output.place)
    }

    /// A client of the router at this place.
    ///
    /// # Errors
    /// What is wrong with its address.
    pub(crate) fn at_place(place: &Options) -> Result<Client, String> {
        let Some(api) = &place.api else { return Ok(Client::new(&place.socket)) };
        let remote = Remote::new(api, place.ca.as_deref(), place.token_file.as_deref())?;
        Ok(Client { place: Place::Remote(Box::new(remote)), within: None, silence: SILENCE_TIMEOUT })
    }

    /// The same client, which waits at most so long for an answer.
    pub(crate) fn within(self, within: Duration) -> Client {
        Client { within: Some(within), ..self }
    }

    /// Whether a router listens at the socket.
    pub(crate) fn is_there(&self) -> bool {
        match &self.place {
            Place::Unix(socket) => std::os::unix::net::UnixStream::connect(socket).is_ok(),
            Place::Remote(remote) => std::net::TcpStream::connect(&remote.authority).is_ok(),
        }
    }

    /// `GET path`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.call(Method::GET, path, Bytes::new())
    }

    /// `GET path`, whose response is text.
    pub(crate) fn text(&self, path: &str) -> Result<String, String> {
        let bytes = self.bytes_of(path)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// `GET path`, whose response is not decoded.
    pub(crate) fn bytes_of(&self, path: &str) -> Result<Bytes, String> {
        self.bytes(Method::GET, path, Bytes::new())
    }

    /// `POST path` with `body` as JSON.
    pub(crate) fn post<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, String> {
        let body = serde_json::to_vec(body).map_err(|e| e.to_string())?;
        self.call(Method::POST, path, body.into())
    }

    fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, String> {
        let bytes = self.bytes(method, path, body)?;
        serde_json::from_slice(&bytes).map_err(|e| not_understood(path, &e))
    }

    /// The body of a response of status 200; an error is the router's sentence.
    fn bytes(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, String> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let exchange = self.exchange(method, path, body);
        let (status, bytes) = runtime.block_on(async {
            match self.within {
                None => self.unless_silent(exchange).await,
                Some(within) => timeout(within, exchange)
                    .await
                    .unwrap_or_else(|_| Err(format!("the router does not answer {path} within {within:?}"))),
            }
        })?;
        if !status.is_success() {
            let error: Result<ApiError, _> = serde_json::from_slice(&bytes);
            return Err(error.map_or_else(|_| format!("the router replied {status}"), |e| e.error));
        }
        Ok(bytes)
    }

    /// `GET path`, whose response has no end: `take` gets its parts as they come, until it breaks off or the router does.
    pub(crate) fn follow(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), String> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(async {
            let response = self.unless_silent(self.request(Method::GET, path, Bytes::new())).await?;
            let status = response.status();
            let mut body = response.into_body();
            if !status.is_success() {
                let bytes = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
                let error: Result<ApiError, _> = serde_json::from_slice(&bytes);
                return Err(error.map_or_else(|_| format!("the router replied {status}"), |e| e.error));
            }
            while let Some(frame) = body.frame().await {
                let ended = |e| format!("the router closed the connection: {e}");
                if let Ok(data) = frame.map_err(ended)?.into_data()
                    && take(&data).is_break()
                {
                    return Ok(());
                }
            }
            Err("the router closed the connection; begin again".into())
        })
    }

    /// Waits for `response` for as long as the router answers anything: some requests take minutes.
    async fn unless_silent<T>(&self, response: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let mut response = std::pin::pin!(response);
        loop {
            if let Ok(response) = timeout(self.silence, response.as_mut()).await {
                return response;
            }
            let probe = timeout(self.silence, self.request(Method::GET, PROBE_PATH, Bytes::new()));
            tokio::select! {
                response = response.as_mut() => return response,
                answered = probe => {
                    let silent = |_| format!(
                        "the router at {} takes connections and has answered nothing for {:?}: it is stopped, or has no file \
                         descriptors left; look at its log and at /proc/PID/status",
                        self.at(), 2 * self.silence,
                    );
                    answered.map_err(silent)??;
                }
            }
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(hyper::StatusCode, Bytes), String> {
        let response = self.request(method, path, body).await?;
        let status = response.status();
        let lost = |e| format!("the router at {} closed the connection: {e}", self.at());
        let bytes = response.into_body().collect().await.map_err(lost)?.to_bytes();
        Ok((status, bytes))
    }

    /// The head of the response.
    async fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>, String> {
        let at = self.at();
        let stream = self.connect().await?;
        let lost = |e: hyper::Error| format!("the router at {at} closed the connection: {e}");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        let connection = async {
            // Its error is one of the request.
            let _ = connection.await;
            Ended::done()
        };
        tokio::spawn(thread::task("connection", connection));
        let (host, authorization) = match &self.place {
            Place::Unix(_) => ("ribtide", None),
            Place::Remote(remote) => (remote.authority.as_str(), remote.authorization.as_deref()),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", host)
            .header("content-type", "application/json");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.body(Full::new(body)).map_err(|e| e.to_string())?;
        sender.send_request(request).await.map_err(lost)
    }

    /// Where the router is, for messages.
    fn at(&self) -> String {
        match &self.place {
            Place::Unix(socket) => socket.display().to_string(),
            Place::Remote(remote) => remote.authority.clone(),
        }
    }

    async fn connect(&self) -> Result<Box<dyn Connection>, String> {
        let socket = match &self.place {
            Place::Unix(socket) => socket,
            Place::Remote(remote) => return remote.connect().await,
        };
        let at = socket.display();
        let stream = UnixStream::connect(socket).await.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                format!("no router answers at {at}; start one with `ribtide run -c FILE`, or give its socket with --socket")
            }
            _ => format!("cannot connect to the router at {at}: {e}"),
        })?;
        Ok(Box::new(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    /// A client of a socket in a folder of its own, that waits for a short time.
    fn client(name: &str) -> (UnixListener, Client) {
        let path = std::env::temp_dir().join(format!("ribtide-client-{name}-{}", std::process::id()));
        // A file of an earlier run.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        (listener, Client { silence: Duration::from_millis(300), ..Client::new(path) })
    }

    #[test]
    fn router_that_takes_connections_and_answers_nothing_is_an_error_in_time() {
        let (listener, client) = client("silent");
        let refused = client.text("/v1/threads").unwrap_err();
        assert!(refused.contains("has answered nothing for 600ms"), "{refused}");
        drop(listener);
    }

    #[test]
    fn response_that_takes_long_is_awaited_while_the_router_answers_others() {
        let (listener, client) = client("slow");
        let serve = move || {
            let mut slow = None;
            // The request, and three probes before its response.
            for n in 0..4 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let len = stream.read(&mut request).unwrap();
                if n == 0 {
                    assert!(request[..len].starts_with(b"GET /v1/route-check"));
                    slow = Some(stream);
                } else {
                    assert!(request[..len].starts_with(b"GET / "));
                    stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").unwrap();
                }
            }
            slow.unwrap().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").unwrap();
            Ended::done()
        };
        let server = thread::spawn("server", serve).unwrap();
        assert_eq!(client.text("/v1/route-check").as_deref(), Ok("done"));
        server.join().unwrap();
    }
}
