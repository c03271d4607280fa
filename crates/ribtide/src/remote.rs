//! A router on another host: its API over TCP, with TLS or without.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, rustls};

/// The CAs of a Debian-like system, where no others are named.
const SYSTEM_CAS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A connection of any kind.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// The API of a router over TCP.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    /// Host and port.
    pub(crate) authority: String,
    tls: Option<(ServerName<'static>, Arc<ClientConfig>)>,
    /// The header that shows the token.
    pub(crate) authorization: Option<String>,
}

impl Remote {
    /// The router at `url`: `https://HOST:PORT` or `http://HOST:PORT`.
    ///
    /// # Errors
    /// What is wrong with the URL or a file.
    pub(crate) fn new(url: &str, ca: Option<&Path>, token_file: Option<&Path>) -> Result<Remote, String> {
        let wrong = || {
            format!(
                "\"{url}\" is no address of an API; write https://HOST:PORT, or http://HOST:PORT without TLS"
            )
        };
        let (is_tls, rest) = match url.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(wrong()),
        };
        let authority = rest.trim_end_matches('/');
        let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
        if port.parse::<u16>().is_err() || authority.contains('/') {
            return Err(wrong());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if !is_tls && token_file.is_some() && !is_this_host(&host) {
            return Err(format!("\"{url}\" would carry the token without TLS; write https://HOST:PORT"));
        }
        let tls = match is_tls {
            false => None,
            true => {
                let name = ServerName::try_from(host).map_err(|_| wrong())?;
                Some((name, Arc::new(client_config(ca.unwrap_or(Path::new(SYSTEM_CAS)))?)))
            }
        };
        let read = |path: &Path| {
            let token = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok::<_, String>(format!("Bearer {}", token.trim()))
        };
        let authorization = token_file.map(read).transpose()?;
        Ok(Remote { authority: authority.into(), tls, authorization })
    }

    /// A connection to it.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Connection>, String> {
        let at = &self.authority;
        let stream = TcpStream::connect(at).await.map_err(|e| format!("cannot connect to {at}: {e}"))?;
        let Some((name, config)) = &self.tls else { return Ok(Box::new(stream)) };
        let connected = TlsConnector::from(config.clone()).connect(name.clone(), stream).await;
        let refused =
            |e| format!("no TLS connection with {at}: {e}; --ca FILE names the CA of its certificate");
        Ok(Box::new(connected.map_err(refused)?))
    }
}

fn client_config(ca: &Path) -> Result<ClientConfig, String> {
    let at = ca.display();
    let found = CertificateDer::pem_file_iter(ca).map_err(|e| format!("cannot read {at}: {e}"))?;
    let mut roots = RootCertStore::empty();
    for certificate in found {
        let certificate = certificate.map_err(|e| format!("{at} has no certificates in PEM form: {e}"))?;
        // Of the system's many, some may be of a form that is not known here. One that the user names must be right.
        if let Err(error) = roots.add(certificate)
            && ca != Path::new(SYSTEM_CAS)
        {
            return Err(format!("{at} has a certificate that is no CA's: {error}"));
        }
    }
    if roots.is_empty() {
        return Err(format!("{at} has no certificate of a CA in PEM form; name another file with --ca"));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Whether packets to this host leave the machine at no time.
fn is_this_host(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_a_host_and_a_port() {
        let of = |url: &str| Remote::new(url, None, None).map(|remote| remote.authority);
        assert_eq!(of("http://127.0.0.1:8080/"), Ok("127.0.0.1:8080".into()));
        assert_eq!(of("http://[::1]:8080"), Ok("[::1]:8080".into()));
        for wrong in
            ["127.0.0.1:8080", "ftp://h:1", "http://h", "http://h:x", "http://h:1/v1", "https://h:99999"]
        {
            assert!(of(wrong).unwrap_err().contains("write https://HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn the_token_goes_to_another_host_by_tls_alone() {
        let with_token = |url: &str| Remote::new(url, None, Some(Path::new("/nonexistent/token"))).map(drop);
        let refused = with_token("http://192.0.2.1:8080").unwrap_err();
        assert!(refused.contains("without TLS"), "{refused}");
        for own in ["http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost:8080"] {
            assert!(with_token(own).unwrap_err().contains("/nonexistent/token"), "{own}");
        }
    }
}
