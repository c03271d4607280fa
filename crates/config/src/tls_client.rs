//! TLS of connections to others: the CAs that the peer's certificate is checked with, and a certificate of ours.

use super::check::Checker;
use super::diagnosis::{Step, key};
use super::private_file;
use super::tls::{FILE_MAX, certificates, read_pem};
use rustls::client::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConnection, RootCertStore};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// TLS of a connection that ribtide opens. Two are equal if their files have the same contents, and the peer the same name.
#[derive(Clone)]
pub struct TlsClientConfig {
    /// The file of the CAs of which one must have issued the peer's certificate.
    pub ca: PathBuf,
    /// The name or address that the peer's certificate must have in its subjectAltName.
    pub name: ServerName<'static>,
    /// The files of our certificate and of its key, if the peer gets one.
    pub identity: Option<(PathBuf, PathBuf)>,
    contents: [String; 3],
    client: Arc<ClientConfig>,
}

impl TlsClientConfig {
    /// The state of a new connection.
    ///
    /// # Errors
    /// Rustls refuses the settings; the check of the configuration has found them good.
    pub fn connection(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(self.client.clone(), self.name.clone())
    }

    fn read(
        ca: PathBuf,
        name: ServerName<'static>,
        identity: Option<(PathBuf, PathBuf)>,
    ) -> Result<TlsClientConfig, (&'static str, String)> {
        let wrong = |setting: &'static str| move |message: String| (setting, message);
        let roots_text = read_pem(&ca).map_err(wrong("tls-ca"))?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&ca, &roots_text).map_err(wrong("tls-ca"))? {
            let no_ca = |e| ("tls-ca", format!("a certificate of {} is no CA's: {e}", ca.display()));
            roots.add(certificate).map_err(no_ca)?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| ("tls-ca", e.to_string()))?
            .with_root_certificates(roots);
        let (client, chain, secret) = match &identity {
            None => (builder.with_no_client_auth(), String::new(), String::new()),
            Some((certificate, key)) => {
                let chain = read_pem(certificate).map_err(wrong("tls-certificate"))?;
                let secret = private_file::read(key, "private key", FILE_MAX).map_err(wrong("tls-key"))?;
                let ours = certificates(certificate, &chain).map_err(wrong("tls-certificate"))?;
                let private = PrivateKeyDer::from_pem_slice(secret.as_bytes()).map_err(|_| {
                    let at = key.display();
                    let message = format!(
                        "{at} has no private key in PEM form; write the path of one without a password"
                    );
                    ("tls-key", message)
                })?;
                let client = builder.with_client_auth_cert(ours, private).map_err(|e| {
                    let (of, at) = (key.display(), certificate.display());
                    let message =
                        format!("the key of {of} and the certificate of {at} cannot be used together: {e}");
                    ("tls-key", message)
                })?;
                (client, chain, secret)
            }
        };
        let contents = [roots_text, chain, secret];
        Ok(TlsClientConfig { ca, name, identity, contents, client: Arc::new(client) })
    }
}

impl PartialEq for TlsClientConfig {
    fn eq(&self, other: &TlsClientConfig) -> bool {
        let TlsClientConfig { ca: _, name, identity, contents, client: _ } = self;
        (name, contents, identity.is_some()) == (&other.name, &other.contents, other.identity.is_some())
    }
}

impl Eq for TlsClientConfig {}

impl fmt::Debug for TlsClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TlsClientConfig { ca, name, identity, .. } = self;
        f.debug_struct("TlsClientConfig")
            .field("ca", ca)
            .field("name", name)
            .field("identity", identity)
            .finish_non_exhaustive()
    }
}

/// The TLS settings of a table.
pub(super) struct TlsClientFile<'a> {
    pub(super) ca: &'a Option<PathBuf>,
    pub(super) name: &'a Option<String>,
    pub(super) certificate: &'a Option<PathBuf>,
    pub(super) key: &'a Option<PathBuf>,
}

impl Checker {
    /// TLS of a connection to `address`, whose table is at `at`. Relative paths are relative to `folder`.
    pub(super) fn tls_client(
        &mut self,
        file: &TlsClientFile<'_>,
        address: IpAddr,
        at: &[Step],
        folder: &Path,
    ) -> Option<TlsClientConfig> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| folder.join(path));
        let [ca, certificate, secret] = [file.ca, file.certificate, file.key].map(path);
        self.files.extend([&ca, &certificate, &secret].into_iter().flatten().cloned());
        let of = |name: &str| [at, key![name]].concat();
        let Some(ca) = ca else {
            let present = [
                ("tls-name", file.name.is_some()),
                ("tls-certificate", certificate.is_some()),
                ("tls-key", secret.is_some()),
            ];
            if let Some((setting, _)) = present.into_iter().find(|(_, present)| *present) {
                let message = "TLS takes tls-ca, the CAs that the other side's certificate is checked with; write it, too, or \
                               remove this";
                self.problem(&of(setting), message);
            }
            return None;
        };
        let identity = match (certificate, secret) {
            (Some(certificate), Some(secret)) => Some((certificate, secret)),
            (None, None) => None,
            (certificate, _) => {
                let setting = if certificate.is_some() { "tls-certificate" } else { "tls-key" };
                let message = "a certificate of ours takes both tls-certificate and tls-key; write the other, too, or remove this";
                self.problem(&of(setting), message);
                return None;
            }
        };
        let name = match file.name {
            None => ServerName::from(address),
            Some(name) => match ServerName::try_from(name.clone()) {
                Ok(name) => name,
                Err(_) => {
                    let message = format!(
                        "\"{name}\" is neither a DNS name nor an address; write what the certificate has"
                    );
                    self.problem(&of("tls-name"), message);
                    return None;
                }
            },
        };
        match TlsClientConfig::read(ca, name, identity) {
            Ok(tls) => Some(tls),
            Err((setting, message)) => {
                self.problem(&of(setting), message);
                None
            }
        }
    }
}
