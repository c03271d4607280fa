//! Callers of the API, their permissions, and the log of changes and refusals. The file permissions
//! of the Unix socket are its access control. A client on TCP may read; from another host only with a
//! token (RFC 6750) or a certificate. A change needs the token of `api.token-file`. [`guard`] refuses
//! requests of web pages.

use super::page;
use super::request::Refusal;
use super::state::ApiState;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, ORIGIN, TRANSFER_ENCODING};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use nix::unistd::{Uid, User};
use ribtide_config::{ApiConfig, Token};
use ribtide_runtime::log::target;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, UnixStream};

/// Refused changes logged in each [`REFUSED_PERIOD`], because any host that reaches the listener
/// can cause them.
const REFUSED_MAX: u32 = 20;
/// Reads that take the token over TCP: they name files, users and the operator's own texts.
const PRIVATE: [&str; 4] = ["/v1/configuration", "/v1/events", "/v1/log", "/v1/reload/check"];
/// Which site a browser's request comes from (W3C, Fetch Metadata Request Headers, 2.4).
const SEC_FETCH_SITE: &str = "sec-fetch-site";
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

impl Caller {
    /// The process at the other end of the Unix socket.
    pub(super) fn unix(stream: &UnixStream, _: &tokio::net::unix::SocketAddr) -> Caller {
        let credentials = stream.peer_cred().ok().map(|peer| (peer.uid(), peer.pid()));
        Caller::Unix { credentials }
    }

    /// The client of a TCP connection.
    pub(super) fn tcp(stream: &TcpStream, peer: &SocketAddr) -> Caller {
        Caller::Tcp { peer: *peer, local: stream.local_addr().ok() }
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
    no_page(headers, "change")?;
    has_token(caller, headers, api, Access::Change)
}

/// What a caller wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// A read that needs a token from another host.
    Read,
    /// A read of [`PRIVATE`].
    Private,
    /// A change.
    Change,
}

/// Checks that a caller on TCP has sent a token for this.
///
/// # Errors
/// What it must send, or what the operator must configure.
fn has_token(caller: Caller, headers: &HeaderMap, api: &ApiConfig, access: Access) -> Result<(), Refusal> {
    if let Caller::Unix { .. } = caller {
        return Ok(());
    }
    let (without, files) = match access {
        Access::Read => ("nothing can be read", "api.read-token-file or api.token-file"),
        Access::Private => {
            ("configuration, log and events cannot be read", "api.read-token-file or api.token-file")
        }
        Access::Change => ("nothing can be changed", "api.token-file"),
    };
    let reading = api.read_token.as_ref();
    let tokens: Vec<&Token> = match access {
        Access::Change => api.token.iter().collect(),
        Access::Read | Access::Private => api.token.iter().chain(reading).collect(),
    };
    if tokens.is_empty() {
        return Err(Refusal::Forbidden(format!(
            "{without} over TCP without a token; set {files} and send the token, or use the Unix socket {}",
            api.socket.display()
        )));
    }
    let sent = headers.get(AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    match sent.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer ")) {
        // Each is compared, so that the time does not tell which is equal.
        Some((_, sent)) if tokens.iter().fold(false, |any, token| token.is(sent.trim_ascii()) | any) => {
            Ok(())
        }
        Some((_, sent)) if reading.is_some_and(|token| token.is(sent.trim_ascii())) => {
            Err(Refusal::Forbidden(
                "the token of api.read-token-file only reads; send that of api.token-file".into(),
            ))
        }
        Some(_) => {
            Err(Refusal::Unauthorized(format!("the token is not that of {files}; send the one in the file")))
        }
        None => Err(Refusal::Unauthorized(format!(
            "this takes the token of {files} over TCP; send it as `Authorization: Bearer TOKEN`"
        ))),
    }
}

/// Whether a caller may be on another host: its connection is not to a loopback address.
fn is_elsewhere(caller: Caller) -> bool {
    match caller {
        Caller::Unix { .. } => false,
        Caller::Tcp { local, .. } => local.is_none_or(|local| !local.ip().to_canonical().is_loopback()),
    }
}

/// Refuses requests of a browser's page, but reads by the API's own page: a page of another site must
/// neither read nor change the router in the name of its visitor.
fn no_page(headers: &HeaderMap, may: &str) -> Result<(), Refusal> {
    // A browser adds Origin to every cross-site request that is not a plain read, and
    // Sec-Fetch-Site to those too (Fetch Metadata).
    let origin = headers.get(ORIGIN).map(|origin| String::from_utf8_lossy(origin.as_bytes()).into_owned());
    let foreign = headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "cross-site" || site == "same-site");
    match origin.or_else(|| foreign.then(|| "another site".into())) {
        None => Ok(()),
        Some(origin) => Err(Refusal::Forbidden(format!(
            "a page of {origin} may not {may} this router; send the request from a program, without an Origin or \
             Sec-Fetch-Site header"
        ))),
    }
}

/// Refuses requests from other hosts without a token or a certificate, requests of pages, requests on TCP under a foreign name, which a name server could have
/// redirected here (DNS rebinding), and reads with a body, which would be ignored. Runs before any
/// endpoint.
///
/// # Errors
/// What is wrong with the request.
pub(super) async fn guard(
    State(router): State<Arc<ApiState>>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if let Caller::Tcp { local, .. } = caller
        && let Some(host) = foreign_host(&request, local, &router.config().api.http_hosts)
    {
        let local = local.map(|local| format!(", which listens on {local}")).unwrap_or_default();
        return Err(Refusal::Misdirected(format!(
            "{host} is no name of this API{local}; address it by that IP address, or write the name into api.http-hosts"
        )));
    }
    let headers = request.headers();
    let is_private = PRIVATE.contains(&request.uri().path());
    // The endpoint of a change refuses pages itself, and logs it. Another site may link to the page.
    if (request.method() != Method::POST || is_private) && !page::is_file(request.uri().path()) {
        no_page(headers, "read")?;
    }
    let config = router.config();
    if is_private {
        has_token(caller, headers, &config.api, Access::Private)?;
    } else if is_elsewhere(caller)
        && !config.api.has_client_certificates()
        && !page::is_file(request.uri().path())
    {
        has_token(caller, headers, &config.api, Access::Read)?;
    }
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    if request.method() == Method::GET && has_body {
        return Err(Refusal::Bad(format!(
            "GET {} takes no body; write its parameters into the query of the URL, see docs/operations.md",
            request.uri().path()
        )));
    }
    Ok(next.run(request).await)
}

/// The name in the Host header or URL, unless it is one of this API. A page of another site sends
/// the name of that site, whatever address its name server gives.
fn foreign_host(request: &Request, local: Option<SocketAddr>, names: &[String]) -> Option<String> {
    let header = request.headers().get_all(HOST).iter().map(|host| String::from_utf8_lossy(host.as_bytes()));
    let authority = request.uri().authority().map(|authority| authority.as_str().into());
    let local = local.map(|local| local.ip().to_canonical());
    header.chain(authority).find(|host| !is_own(host, local, names)).map(|host| format!("\"{host}\""))
}

/// Whether `host`, with or without a port, is the address of the connection, `localhost` on a
/// loopback address, or one of `names`.
fn is_own(host: &str, local: Option<IpAddr>, names: &[String]) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.');
    let address = name.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    (address.is_some() && address == local)
        || (name.eq_ignore_ascii_case("localhost") && local.is_some_and(|local| local.is_loopback()))
        || names.iter().any(|own| own.eq_ignore_ascii_case(name))
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
    /// `what` was requested; `effect` is what it did.
    pub(super) fn applied(&self, caller: Caller, what: &str, effect: &str, is_change: bool) {
        let line =
            if is_change { "a client changed the router" } else { "a client's request changed nothing" };
        tracing::info!(target: target::API, %caller, request = what, "{line}: {}", effect.trim());
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
    use axum::http::HeaderValue;

    #[test]
    fn host_is_own_only_as_the_listeners_address_localhost_or_a_configured_name() {
        let names = ["router1.example.net".to_owned()];
        let own = |host: &str, local: &str| is_own(host, Some(local.parse().unwrap()), &names);
        for host in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "localhost",
            "LOCALHOST:80",
            "localhost.",
            "Router1.example.net:80",
        ] {
            assert!(own(host, "127.0.0.1"), "{host}");
        }
        assert!(own("[::1]:8080", "::1") && own("[::1]", "::1") && own("[2001:db8::1]:80", "2001:db8::1"));
        for host in [
            "10.0.0.1:1",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1]",
            "",
            ":80",
        ] {
            assert!(!own(host, "127.0.0.1"), "{host}");
        }
        // A page can make localhost of another host its own; only a loopback address is this host.
        assert!(!own("localhost", "192.0.2.1") && own("192.0.2.1", "192.0.2.1"));
    }

    #[test]
    fn request_of_a_page_is_refused_by_origin_or_fetch_metadata() {
        let refused = |name: &'static str, value: &'static str| {
            let headers = HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))]);
            no_page(&headers, "read").map_err(|e| e.sentence().to_owned())
        };
        assert!(refused("origin", "https://evil.example").unwrap_err().contains("https://evil.example"));
        assert!(refused("sec-fetch-site", "cross-site").unwrap_err().contains("another site"));
        assert!(refused("sec-fetch-site", "same-site").is_err());
        assert!(refused("sec-fetch-site", "none").is_ok() && refused("accept", "*/*").is_ok());
    }

    #[test]
    fn caller_is_elsewhere_unless_it_connects_to_a_loopback_address() {
        let tcp = |local: &str| {
            let peer = "192.0.2.9:1".parse().unwrap();
            is_elsewhere(Caller::Tcp { peer, local: local.parse().ok() })
        };
        assert!(tcp("192.0.2.1:80") && tcp("[2001:db8::1]:80") && tcp("unknown"));
        assert!(!tcp("127.0.0.1:80") && !tcp("[::1]:80") && !tcp("[::ffff:127.0.0.1]:80"));
        assert!(!is_elsewhere(Caller::Unix { credentials: None }));
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
