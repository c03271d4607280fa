//! TLS of the API on TCP: certificate, key and the CA of clients, from PEM files.

use super::check::Checker;
use super::diagnosis::key;
use super::regular_file::{self, Unread};
use super::{file, private_file};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a file at most: a chain of some certificates, or a bundle of CAs.
pub(super) const FILE_MAX: usize = 1 << 20;

/// TLS of a listener. Two are equal if their files have the same contents.
#[derive(Clone)]
pub struct TlsConfig {
    /// The file of the certificate and those of its issuers.
    pub certificate: PathBuf,
    /// The file of its private key.
    pub key: PathBuf,
    /// The file of the CAs of which one must have issued a client's certificate; `None`: clients need none.
    pub client_ca: Option<PathBuf>,
    contents: [String; 3],
    server: Arc<ServerConfig>,
}

impl TlsConfig {
    /// What rustls serves by.
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }

    /// Reads the files.
    fn read(certificate: PathBuf, key: PathBuf, client_ca: Option<PathBuf>) -> Result<TlsConfig, Wrong> {
        let wrong = |setting: &'static str| move |message: String| Wrong { setting, message };
        let chain = read_pem(&certificate).map_err(wrong("tls-certificate"))?;
        let secret = private_file::read(&key, "private key", FILE_MAX).map_err(wrong("tls-key"))?;
        let ca = client_ca.as_ref().map(|path| read_pem(path)).transpose().map_err(wrong("tls-client-ca"))?;
        let certificates = certificates(&certificate, &chain).map_err(wrong("tls-certificate"))?;
        let private = PrivateKeyDer::from_pem_slice(secret.as_bytes()).map_err(|_| {
            let at = key.display();
            wrong("tls-key")(format!(
                "{at} has no private key in PEM form; write the path of one without a password"
            ))
        })?;
        let provider = Arc::new(ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|e| wrong("tls-certificate")(e.to_string()))?;
        let builder = match client_ca.as_ref().zip(ca.as_ref()) {
            None => builder.with_no_client_auth(),
            Some((path, text)) => {
                let verifier = client_verifier(path, text, provider).map_err(wrong("tls-client-ca"))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut server = builder.with_single_cert(certificates, private).map_err(|e| {
            let (of, at) = (key.display(), certificate.display());
            wrong("tls-key")(format!(
                "the key of {of} and the certificate of {at} cannot be used together: {e}"
            ))
        })?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        let contents = [chain, secret, ca.unwrap_or_default()];
        Ok(TlsConfig { certificate, key, client_ca, contents, server: Arc::new(server) })
    }
}

impl PartialEq for TlsConfig {
    fn eq(&self, other: &TlsConfig) -> bool {
        self.contents == other.contents && self.client_ca.is_some() == other.client_ca.is_some()
    }
}

impl Eq for TlsConfig {}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TlsConfig { certificate, key, client_ca, .. } = self;
        f.debug_struct("TlsConfig")
            .field("certificate", certificate)
            .field("key", key)
            .field("client_ca", client_ca)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a setting.
struct Wrong {
    setting: &'static str,
    message: String,
}

pub(super) fn read_pem(path: &Path) -> Result<String, String> {
    let at = path.display();
    regular_file::read(path, FILE_MAX as u64).map_err(|error| match error {
        Unread::TooLong => {
            format!("{at} has more than {FILE_MAX} bytes, which a file of certificates has at most")
        }
        Unread::Failed(why) => format!("cannot read {at}: {why}"),
    })
}

pub(super) fn certificates(path: &Path, text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(format!("{} has no certificate in PEM form", path.display())),
    }
}

fn client_verifier(
    path: &Path,
    text: &str,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, text)? {
        roots.add(certificate).map_err(|e| format!("a certificate of {} is no CA's: {e}", path.display()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|e| format!("the certificates of {} cannot be used: {e}", path.display()))
}

impl Checker {
    /// TLS of the `[api]` table. Relative paths are relative to `folder`.
    pub(super) fn api_tls(&mut self, file: &file::Api, folder: &Path) -> Option<TlsConfig> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| folder.join(path));
        let paths = [&file.tls_certificate, &file.tls_key, &file.tls_client_ca].map(path);
        self.files.extend(paths.iter().flatten().cloned());
        let first = ["tls-certificate", "tls-key", "tls-client-ca"]
            .into_iter()
            .zip(&paths)
            .find(|(_, p)| p.is_some());
        let (first, _) = first?;
        if file.http.is_none() {
            self.problem(
                key!["api", first],
                "TLS is for clients on TCP, and the API does not listen there; set api.http, or remove this",
            );
        }
        let [certificate, secret, client_ca] = paths;
        let (Some(certificate), Some(secret)) = (certificate, secret) else {
            let message = "TLS takes both tls-certificate and tls-key; write the other, too, or remove this";
            self.problem(key!["api", first], message);
            return None;
        };
        match TlsConfig::read(certificate, secret, client_ca) {
            Ok(tls) => Some(tls),
            Err(Wrong { setting, message }) => {
                self.problem(key!["api", setting], message);
                None
            }
        }
    }
}
