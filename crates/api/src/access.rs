//! Callers of the API, their permissions, and the log of changes and refusals. The file permissions
//! of the Unix socket are its access control. A client on TCP may read; a change needs the token of
//! `api.token-file` (RFC 6750). [`guard`] refuses requests of web pages.

use super::request::Refusal;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, ORIGIN, TRANSFER_ENCODING};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::IncomingStream;
use nix::unistd::{Uid, User};
use ribtide_config::ApiConfig;
use ribtide_runtime::log::target;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Refused changes logged in each [`REFUSED_PERIOD`], because any host that reaches the listener
/// can cause them.
const REFUSED_MAX: u32 = 20;
/// The period of [`REFUSED_MAX`].
const REFUSED_PERIOD: Duration = Duration::from_secs(10);
/// Logged characters of a refusal, because its sentence may quote the request.
const REFUSED_LENGTH: usize = 400;

/// The other end of a connection. Displays as in the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caller {
    /// A local process.
    Unix {
        /// Its user and process id when it connected.
        credentials: Option<(u32, Option<i32>)>,
    },
    /// A client on TCP.
    Tcp {
        /// Its address.
        peer: SocketAddr,
        /// The local address.
        local: Option<SocketAddr>,
    },
}

impl Connected<IncomingStream<'_, tokio::net::UnixListener>> for Caller {
    fn connect_info(stream: IncomingStream<'_, tokio::net::UnixListener>) -> Caller {
        let credentials = stream.io().peer_cred().ok().map(|peer| (peer.uid(), peer.pid()));
        Caller::Unix { credentials }
    }
}

impl Connected<IncomingStream<'_, tokio::net::TcpListener>> for Caller {
    fn connect_info(stream: IncomingStream<'_, tokio::net::TcpListener>) -> Caller {
        Caller::Tcp { peer: *stream.remote_addr(), local: stream.io().local_addr().ok() }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Tcp { peer, .. } => write!(f, "{peer}"),
            Caller::Unix { credentials: None } => f.write_str("a process that the system does not name"),
            Caller::Unix { credentials: Some((uid, pid)) } => {
                match User::from_uid(Uid::from_raw(*uid)) {
                    Ok(Some(user)) => write!(f, "user {} (uid {uid})", user.name)?,
                    Ok(None) | Err(_) => write!(f, "uid {uid}")?,
                }
                pid.map_or(Ok(()), |pid| write!(f, ", pid {pid}"))
            }
        }
    }
}

/// Checks that the caller may change the router.
///
/// # Errors
/// What it must send, or what the operator must configure.
pub(super) fn may_change(caller: Caller, headers: &HeaderMap, api: &ApiConfig) -> Result<(), Refusal> {
    // A browser adds Origin to every cross-site request that is not a plain read, and no page uses
    // this API.
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        return Err(Refusal::Forbidden(format!(
            "a page of {origin} may not change this router; send the request without an Origin header, from a program"
        )));
    }
    if let Caller::Unix { .. } = caller {
        return Ok(());
    }
    let Some(token) = &api.token else {
        return Err(Refusal::Forbidden(format!(
            "nothing can be changed over TCP without a token; set api.token-file and send the token, or use the Unix \
             socket {}",
            api.socket.display()
        )));
    };
    let sent = headers.get(AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    match sent.split_at_checked(7) {
        Some((scheme, sent)) if scheme.eq_ignore_ascii_case(b"bearer ") && token.is(sent.trim_ascii()) => {
            Ok(())
        }
        Some((scheme, _)) if scheme.eq_ignore_ascii_case(b"bearer ") => Err(Refusal::Unauthorized(
            "the token is not that of api.token-file; send the one in the file".into(),
        )),
        _ => Err(Refusal::Unauthorized(
            "a change over TCP takes the token of api.token-file; send it as `Authorization: Bearer TOKEN`"
                .into(),
        )),
    }
}

/// Refuses requests that a name server could redirect here (DNS rebinding), and reads with a body,
/// which would be ignored. Runs before any endpoint.
///
/// # Errors
/// What is wrong with the request.
pub(super) async fn guard(
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if let Caller::Tcp { local: Some(local), .. } = caller
        && local.ip().to_canonical().is_loopback()
        && let Some(host) = foreign_host(&request)
    {
        return Err(Refusal::Misdirected(format!(
            "{host} is no name of this API, which listens on {local}; address it as localhost or by its IP address"
        )));
    }
    let headers = request.headers();
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    if request.method() == Method::GET && has_body {
        return Err(Refusal::Bad(format!(
            "GET {} takes no body; write what it is to answer into the query of the URL, see docs/operations.md",
            request.uri().path()
        )));
    }
    Ok(next.run(request).await)
}

/// The name in the Host header or URL, unless it is an IP address or `localhost`. A page of another
/// site sends the name of that site, whatever address its name server gives.
fn foreign_host(request: &Request) -> Option<String> {
    let header = request.headers().get_all(HOST).iter().map(|host| String::from_utf8_lossy(host.as_bytes()));
    let authority = request.uri().authority().map(|authority| authority.as_str().into());
    header.chain(authority).find(|host| !is_local(host)).map(|host| format!("\"{host}\""))
}

/// Whether `host`, with or without a port, is an IP address or `localhost`.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.parse::<IpAddr>().is_ok() || name.trim_end_matches('.').eq_ignore_ascii_case("localhost")
}

/// Logs changes and refused changes. Blocks, because users are looked up.
#[derive(Debug, Default)]
pub(super) struct ChangeLog(Mutex<Refused>);

#[derive(Debug, Default)]
struct Refused {
    since: Option<Instant>,
    /// Logged in this period.
    logged: u32,
    /// Not logged since the last line.
    lines_left_out: u64,
}

impl ChangeLog {
    /// `what` was asked for, and `says` is what it did.
    pub(super) fn changed(&self, caller: Caller, what: &str, says: &str) {
        tracing::info!(target: target::API, %caller, request = what, "a client changed the router: {}", says.trim());
    }

    /// `what` was asked for, and refused for this reason. Most lines of a flood are counted and left out.
    pub(super) fn refused(&self, caller: Caller, what: &str, why: &str) {
        let Some(lines_left_out) = self.room(Instant::now()) else { return };
        let why: String = why.trim().chars().take(REFUSED_LENGTH).collect();
        let lines_left_out = NonZeroU64::new(lines_left_out);
        tracing::warn!(
            target: target::API,
            %caller,
            request = what,
            reason = why,
            lines_left_out,
            "a request that would change the router is refused"
        );
    }

    /// Whether a refusal is to be logged at `now`, and how many before it were not.
    fn room(&self, now: Instant) -> Option<u64> {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.since.is_none_or(|since| now.duration_since(since) >= REFUSED_PERIOD) {
            refused.since = Some(now);
            refused.logged = 0;
        }
        if refused.logged == REFUSED_MAX {
            refused.lines_left_out += 1;
            return None;
        }
        refused.logged += 1;
        Some(std::mem::take(&mut refused.lines_left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_local_only_as_an_address_or_localhost() {
        for host in
            ["127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "[::1]", "localhost", "LOCALHOST:80", "10.0.0.1:1"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            ":80",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn flood_of_refusals_is_counted_and_left_out() {
        let (log, begin) = (ChangeLog::default(), Instant::now());
        let logged = (0..1000).filter(|_| log.room(begin).is_some()).count();
        assert_eq!(logged, REFUSED_MAX as usize);
        assert_eq!(log.room(begin + REFUSED_PERIOD), Some(1000 - u64::from(REFUSED_MAX)));
        assert_eq!(log.room(begin + REFUSED_PERIOD), Some(0));
    }
}
