//! The `[api]` table: the listeners of the API, and who may change the router.

use super::check::Checker;
use super::diagnosis::key;
use super::tls::TlsConfig;
use super::{file, private_file};
use nix::unistd::{Gid, Group};
use ribtide_runtime::unix_socket;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The default path of the Unix socket.
const SOCKET: &str = "/run/ribtide/ribtide.sock";
/// The mode of the Unix socket without `socket-group`: owner only.
const OWNER_MODE: u32 = 0o600;
/// The mode of the Unix socket with `socket-group`.
const GROUP_MODE: u32 = 0o660;
/// A shorter token could be guessed over the network: 16 hexadecimal digits are 64 bits.
const MIN_TOKEN: usize = 16;
/// The longest token: it must fit into a header.
const MAX_TOKEN: usize = 1024;

/// The `[api]` table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiConfig {
    /// The Unix socket.
    pub socket: PathBuf,
    /// Permission bits of the Unix socket. A process that may write to it may use the whole API.
    pub socket_mode: u32,
    /// The group of the Unix socket; `None`: that of the process.
    pub socket_group: Option<SocketGroup>,
    /// The TCP listener, if configured.
    pub http: Option<SocketAddr>,
    /// Names and addresses in the `Host` header that are this router's, beside the address of the
    /// TCP listener itself.
    pub http_hosts: Vec<String>,
    /// The file of the token.
    pub token_file: Option<PathBuf>,
    /// The token for changes and reads over TCP; `None`: no change is possible over TCP.
    pub token: Option<Token>,
    /// The file of the token for reads.
    pub read_token_file: Option<PathBuf>,
    /// The token for reads alone over TCP.
    pub read_token: Option<Token>,
    /// TLS of the TCP listener; `None`: it has none.
    pub tls: Option<TlsConfig>,
}

/// A group of the system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketGroup {
    /// Its name.
    pub name: String,
    /// Its group id.
    pub id: Gid,
}

impl ApiConfig {
    /// Whether clients on TCP have shown a certificate of `tls-client-ca`.
    pub fn has_client_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }

    /// Warnings, as sentences: valid settings that may admit more hosts or users than expected.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.socket_mode & 0o002 != 0 {
            warnings.push(format!(
                "api.socket-mode = \"{:04o}\" lets every user of this system change routing; write \"0660\" and \
                 api.socket-group to let a group in",
                self.socket_mode
            ));
        }
        if let Some(group) = &self.socket_group
            && self.socket_mode & 0o020 == 0
        {
            warnings.push(format!(
                "api.socket-mode = \"{:04o}\" keeps the group \"{}\" out: only who may write to a socket can connect \
                 to it; write \"0660\", or remove api.socket-group",
                self.socket_mode, group.name
            ));
        }
        warnings
    }
}

/// A bearer token (RFC 6750). Its text appears in no log and no output.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<[u8]>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Compares with a received token. The time depends on the length of the received token only.
    pub fn is(&self, sent: &[u8]) -> bool {
        let mut differ = u8::from(sent.len() != self.0.len());
        for (i, byte) in sent.iter().enumerate() {
            // The token has at least 16 bytes, so `i % len` is valid.
            differ |= std::hint::black_box(byte ^ self.0[i % self.0.len()]);
        }
        std::hint::black_box(differ) == 0
    }

    /// Reads the file at `path`: one token, with white space around it or none.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do.
    fn read(path: &Path) -> Result<Token, String> {
        let at = path.display();
        let text = private_file::read(path, "token", 2 * MAX_TOKEN)?;
        let token = text.trim().as_bytes();
        // RFC 6750, section 2.1: b64token.
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
        if !token.iter().all(allowed) {
            return Err(format!(
                "the token in {at} may have letters, digits and -._~+/= only (RFC 6750); write one line of them"
            ));
        }
        if !(MIN_TOKEN..=MAX_TOKEN).contains(&token.len()) {
            return Err(format!(
                "the token in {at} has {} characters; write {MIN_TOKEN} to {MAX_TOKEN}, such as 32 random bytes in \
                 hexadecimal",
                token.len()
            ));
        }
        Ok(Token(token.into()))
    }
}

impl Checker {
    /// Checks the `[api]` table. A relative path of a file is relative to `folder`.
    pub(super) fn api(&mut self, file: &file::Api, folder: &Path) -> ApiConfig {
        let socket_group = file.socket_group.as_ref().and_then(|name| match Group::from_name(name) {
            Ok(Some(group)) => Some(SocketGroup { name: name.clone(), id: group.gid }),
            Ok(None) => {
                self.problem(
                    key!["api", "socket-group"],
                    format!("this system has no group \"{name}\"; make it (groupadd), or write one that `getent group` lists"),
                );
                None
            }
            Err(e) => {
                self.problem(
                    key!["api", "socket-group"],
                    format!("the system does not say whether there is a group \"{name}\": {e}"),
                );
                None
            }
        });
        let default = if file.socket_group.is_some() { GROUP_MODE } else { OWNER_MODE };
        let socket_mode = file.socket_mode.as_deref().map_or(default, |text| {
            match unix_socket::mode(text) {
                Some(mode) => mode,
                None => {
                    self.problem(
                        key!["api", "socket-mode"],
                        format!(
                            "\"{text}\" is no mode of a socket that its owner can use; write octal digits in quotes, \
                             from \"0600\" to \"0777\""
                        ),
                    );
                    default
                }
            }
        });
        let (token_file, token) = self.token("token-file", &file.token_file, file, folder);
        let (read_token_file, read_token) =
            self.token("read-token-file", &file.read_token_file, file, folder);
        if read_token.is_some() && read_token == token {
            self.problem(
                key!["api", "read-token-file"],
                "this is also the token of token-file, which may change everything; write another one for reads",
            );
        }
        self.protected(file);
        for (i, host) in file.http_hosts.iter().enumerate() {
            let known = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            let name = !host.is_empty() && host.chars().all(known) && !host.ends_with('.');
            if !name && host.parse::<IpAddr>().is_err() {
                let message =
                    format!("\"{host}\" is no name of a host; write a name or an address, without a port");
                self.problem(key!["api", "http-hosts", i], message);
            }
        }
        if !file.http_hosts.is_empty() && file.http.is_none() {
            self.problem(
                key!["api", "http-hosts"],
                "the names are those of the API on TCP, and it does not listen there; set api.http, or remove this",
            );
        }
        ApiConfig {
            socket: file.socket.clone().unwrap_or_else(|| SOCKET.into()),
            socket_mode,
            socket_group,
            http: file.http,
            http_hosts: file.http_hosts.clone(),
            token_file,
            token,
            read_token_file,
            read_token,
            tls: self.api_tls(file, folder),
        }
    }

    /// The token of the file that `setting` names.
    fn token(
        &mut self,
        setting: &'static str,
        path: &Option<PathBuf>,
        file: &file::Api,
        folder: &Path,
    ) -> (Option<PathBuf>, Option<Token>) {
        let Some(path) = path.as_ref().map(|path| folder.join(path)) else { return (None, None) };
        self.files.extend([path.clone()]);
        if file.http.is_none() {
            self.problem(
                key!["api", setting],
                "the token is for clients on TCP, and the API does not listen there; set api.http, or remove this",
            );
        }
        let token = Token::read(&path).map_err(|message| self.problem(key!["api", setting], message));
        (Some(path), token.ok())
    }

    /// Refuses an address that other hosts reach, unless clients are known and no host on the way reads or changes what they
    /// exchange.
    fn protected(&mut self, file: &file::Api) {
        let Some(http) = file.http.filter(|http| !http.ip().to_canonical().is_loopback()) else { return };
        let has_tls = file.tls_certificate.is_some() || file.tls_key.is_some();
        let knows_clients =
            file.token_file.is_some() || file.read_token_file.is_some() || file.tls_client_ca.is_some();
        let why = match (has_tls, knows_clients) {
            (true, true) => return,
            (false, true) => "has no TLS: write tls-certificate and tls-key",
            (true, false) => {
                "admits every client: write token-file or read-token-file, whose token clients send, or tls-client-ca"
            }
            (false, false) => {
                "has no TLS and admits every client: write tls-certificate, tls-key, and token-file or read-token-file"
            }
        };
        self.problem(
            key!["api", "http"],
            format!(
                "\"{http}\" is not a loopback address, and {why}; or listen on 127.0.0.1 or [::1], which needs neither"
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn token_is_equal_only_to_itself() {
        let token = Token(b"0123456789abcdef".as_slice().into());
        assert!(token.is(b"0123456789abcdef"));
        for other in [
            "",
            "0123456789abcde",
            "0123456789abcdeg",
            "0123456789abcdef0123456789abcdef",
            "1123456789abcdef",
        ] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn token_file_is_refused_where_it_is_no_secret_or_no_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&path)
        };
        let good = read("0123456789abcdef-._~+/=\n", 0o640).unwrap();
        assert!(good.is(b"0123456789abcdef-._~+/="));
        for (text, mode, message) in [
            ("0123456789abcdef", 0o604, "its mode is 0604"),
            ("0123456789abcdef", 0o602, "its mode is 0602"),
            ("0123456789abcde", 0o600, "has 15 characters"),
            ("", 0o600, "has 0 characters"),
            ("0123456789abcdef 0123456789abcdef", 0o600, "RFC 6750"),
        ] {
            let refused = read(text, mode).unwrap_err();
            assert!(refused.contains(message), "{text:?} {mode:o}: {refused}");
        }
        assert!(Token::read(folder.path()).unwrap_err().contains("no regular file"));
        assert!(Token::read(&folder.path().join("none")).unwrap_err().contains("cannot read"));
    }
}
