//! TLS of the TCP listener (rustls). A reload changes what the next connections get.

use ribtide_config::TlsConfig;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// The present certificate and key of a listener.
#[derive(Clone)]
pub(super) struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

impl Tls {
    /// With the files of the configuration.
    pub(super) fn new(config: &TlsConfig) -> Tls {
        Tls(Arc::new(RwLock::new(config.server())))
    }

    /// The next connections get these.
    pub(super) fn set(&self, config: &TlsConfig) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config.server();
    }

    /// The handshake of a connection.
    ///
    /// # Errors
    /// The client speaks no TLS, or one side does not trust the other.
    pub(super) async fn accept<I: AsyncRead + AsyncWrite + Unpin>(&self, io: I) -> io::Result<TlsStream<I>> {
        let config = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        TlsAcceptor::from(config).accept(io).await
    }
}
