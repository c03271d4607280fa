//! The client of the running router's API over its Unix socket.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use ribtide_model::ApiError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;

/// A client; it connects for each request.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    /// How long it waits for an answer; without a bound by default.
    within: Option<Duration>,
}

impl Client {
    /// A client of the router at `socket`.
    pub(crate) fn new(socket: impl Into<PathBuf>) -> Client {
        Client { socket: socket.into(), within: None }
    }

    /// The same client, which waits at most so long for an answer.
    pub(crate) fn within(self, within: Duration) -> Client {
        Client { within: Some(within), ..self }
    }

    /// Whether a router listens at the socket.
    pub(crate) fn is_there(&self) -> bool {
        std::os::unix::net::UnixStream::connect(&self.socket).is_ok()
    }

    /// `GET path`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.call(Method::GET, path, Bytes::new())
    }

    /// `GET path`, whose response is text.
    pub(crate) fn text(&self, path: &str) -> Result<String, String> {
        let bytes = self.bytes(Method::GET, path, Bytes::new())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// `POST path` with `body` as JSON.
    pub(crate) fn post<B: Serialize, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, String> {
        let body = serde_json::to_vec(body).map_err(|e| e.to_string())?;
        self.call(Method::POST, path, body.into())
    }

    fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, String> {
        let bytes = self.bytes(method, path, body)?;
        serde_json::from_slice(&bytes)
            .map_err(|e| format!("the router's reply to {path} cannot be read ({e}); is it another version?"))
    }

    /// The body of a response of status 200; an error is the router's sentence.
    fn bytes(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, String> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let exchange = self.exchange(method, path, body);
        let (status, bytes) = runtime.block_on(async {
            match self.within {
                None => exchange.await,
                Some(within) => tokio::time::timeout(within, exchange)
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

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(hyper::StatusCode, Bytes), String> {
        let at = self.socket.display();
        let stream = UnixStream::connect(&self.socket).await.map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                format!("no router answers at {at}; start one with `ribtide run -c FILE`, or give its socket with --socket")
            }
            _ => format!("cannot connect to the router at {at}: {e}"),
        })?;
        let lost = |e: hyper::Error| format!("the router at {at} closed the connection: {e}");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "ribtide")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|e| e.to_string())?;
        let response = sender.send_request(request).await.map_err(lost)?;
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(lost)?.to_bytes();
        Ok((status, bytes))
    }
}
