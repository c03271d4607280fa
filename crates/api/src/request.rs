//! Requests: decoding and refusal. Every refusal is JSON with a sentence that says what is wrong,
//! where, and what to do.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ribtide_model::ApiError;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::timeout;

/// From the end of a request's head to the end of its body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request is refused.
#[derive(Debug)]
pub enum Refusal {
    /// The request is invalid; the sentence says what to send.
    Bad(String),
    /// Nothing has this name.
    Missing(String),
    /// The endpoint does not support this method.
    Method(String),
    /// A stage did not reply.
    Busy(String),
    /// The caller has no permission, with any token.
    Forbidden(String),
    /// The caller must send a token.
    Unauthorized(String),
    /// The request is for another server.
    Misdirected(String),
}

impl Refusal {
    /// The sentence of the refusal.
    pub fn sentence(&self) -> &str {
        match self {
            Refusal::Bad(e)
            | Refusal::Missing(e)
            | Refusal::Method(e)
            | Refusal::Busy(e)
            | Refusal::Forbidden(e)
            | Refusal::Unauthorized(e)
            | Refusal::Misdirected(e) => e,
        }
    }
}

impl From<ribtide_runtime::call::NoReply> for Refusal {
    fn from(e: ribtide_runtime::call::NoReply) -> Refusal {
        Refusal::Busy(e.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Refusal::Bad(_) => StatusCode::BAD_REQUEST,
            Refusal::Missing(_) => StatusCode::NOT_FOUND,
            Refusal::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
            Refusal::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Refusal::Misdirected(_) => StatusCode::MISDIRECTED_REQUEST,
        };
        let error = ApiError { error: self.sentence().into() };
        let mut response = (status, Json(error)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            // RFC 6750, section 3.
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<QueryRejection> for Refusal {
    fn from(e: QueryRejection) -> Refusal {
        Refusal::Bad(format!(
            "the query of the URL cannot be used: {}; see docs/operations.md",
            reason(&e.body_text())
        ))
    }
}

impl From<PathRejection> for Refusal {
    fn from(e: PathRejection) -> Refusal {
        Refusal::Bad(format!("the path of the URL cannot be used: {}", reason(&e.body_text())))
    }
}

impl From<JsonRejection> for Refusal {
    fn from(e: JsonRejection) -> Refusal {
        Refusal::Bad(format!(
            "the body of the request cannot be used: {}; send JSON with Content-Type: application/json, see docs/operations.md",
            reason(&e.body_text())
        ))
    }
}

/// The message of the library without its introduction.
fn reason(text: &str) -> &str {
    let known = [
        "Failed to deserialize query string: ",
        "Failed to deserialize the JSON body into the target type: ",
    ];
    known.iter().find_map(|intro| text.strip_prefix(intro)).unwrap_or(text)
}

/// The query of a URL.
pub(super) struct UrlQuery<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for UrlQuery<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Query(query) = Query::from_request_parts(parts, state).await?;
        Ok(UrlQuery(query))
    }
}

/// The variable part of a URL's path.
pub(super) struct Named(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let Path(name) = Path::from_request_parts(parts, state).await?;
        Ok(Named(name))
    }
}

/// A JSON body.
pub(super) struct Sent<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Sent<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        // An endpoint with a body takes no query.
        let Query(Nothing {}) = Query::try_from_uri(request.uri())?;
        let json = request.headers().get(CONTENT_TYPE).is_some_and(is_json);
        let body = match timeout(BODY_TIMEOUT, Bytes::from_request(request, state)).await {
            Ok(Ok(body)) => body,
            Ok(Err(e)) => {
                let message = format!("the body of the request cannot be read: {}", e.body_text());
                return Err(Refusal::Bad(message));
            }
            Err(_) => {
                let message = format!(
                    "the body of the request is not complete after {BODY_TIMEOUT:?}; send it at once"
                );
                return Err(Refusal::Bad(message));
            }
        };
        // An empty body has no field, like `{}`.
        if body.is_empty() {
            return Ok(Sent(Json::from_bytes(b"{}")?.0));
        }
        if !json {
            return Err(Refusal::Bad(
                "the body of the request cannot be used: its Content-Type is not application/json; send JSON with \
                 Content-Type: application/json, see docs/operations.md"
                    .into(),
            ));
        }
        // A list would be read as the fields in order, which is not documented.
        if body.trim_ascii_start().first() == Some(&b'[') {
            return Err(Refusal::Bad(
                "the body of the request cannot be used: it is a list, and fields go by name; send an object such as {}, see \
                 docs/operations.md"
                    .into(),
            ));
        }
        Ok(Sent(Json::from_bytes(&body)?.0))
    }
}

fn is_json(content_type: &HeaderValue) -> bool {
    let kind = content_type.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// No field.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// The next page of a read that another request began.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CursorOnlyQuery {
    /// `next` of the response before.
    pub(crate) cursor: String,
}

/// A page of routes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RouteQuery {
    /// Only this prefix, or the longest match of this address.
    pub(crate) prefix: Option<String>,
    /// How `prefix` selects.
    #[serde(default)]
    pub(crate) r#match: PrefixMatch,
    /// Community patterns, separated by commas: a path has one of each.
    pub(crate) community: Option<String>,
    /// A regular expression over the AS path.
    pub(crate) as_path: Option<String>,
    /// The origin AS, or a range.
    pub(crate) origin_as: Option<String>,
    /// The next hop.
    pub(crate) next_hop: Option<String>,
    /// Only paths that changed less than so long ago: seconds, or a number with `s`, `m`, `h` or `d`.
    pub(crate) age_under: Option<String>,
    /// Only paths that changed at least so long ago.
    pub(crate) age_over: Option<String>,
    /// The neighbour that sent the path.
    pub(crate) neighbor: Option<String>,
    /// The state of the path.
    pub(crate) state: Option<String>,
    /// Only routes of this shard thread.
    pub(crate) shard: Option<usize>,
    /// Also how the next hops resolve.
    #[serde(default)]
    pub(crate) detail: bool,
    /// `next` of the page before; absent: the first page.
    pub(crate) cursor: Option<String>,
    /// Items of the page at most.
    pub(crate) limit: Option<usize>,
}

/// Gives the queries of paged lists the text of what a cursor is of: all parameters but those of a page.
macro_rules! parameters {
    ($($query:ident),*) => {
        $(impl $query {
            pub(crate) fn parameters(&self) -> String {
                format!("{:?}", $query { cursor: None, limit: None, ..self.clone() })
            }
        })*
    };
}

parameters!(RouteQuery, AdvertisedQuery, FibQuery, FailedQuery);

/// How a prefix selects routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PrefixMatch {
    /// This prefix; of an address, its longest match.
    #[default]
    Exact,
    /// It, and prefixes inside it.
    Longer,
    /// It, and prefixes that contain it.
    Shorter,
}

/// A page of routes of API clients.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnedQuery {
    /// Only those of this owner.
    pub(super) owner: Option<String>,
    /// `next` of the page before; absent: the first page.
    pub(super) cursor: Option<String>,
    /// Items of the page at most.
    pub(super) limit: Option<usize>,
}

/// A page of the Adj-RIB-Out of a neighbour.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct AdvertisedQuery {
    /// Only this prefix, with the reasons.
    pub(crate) prefix: Option<String>,
    /// How `prefix` selects.
    #[serde(default)]
    pub(crate) r#match: PrefixMatch,
    /// Community patterns, separated by commas: a path has one of each.
    pub(crate) community: Option<String>,
    /// A regular expression over the AS path.
    pub(crate) as_path: Option<String>,
    /// The origin AS, or a range.
    pub(crate) origin_as: Option<String>,
    /// The next hop.
    pub(crate) next_hop: Option<String>,
    /// Only paths that changed less than so long ago: seconds, or a number with `s`, `m`, `h` or `d`.
    pub(crate) age_under: Option<String>,
    /// Only paths that changed at least so long ago.
    pub(crate) age_over: Option<String>,
    /// Also prefixes that are not sent, with the reasons.
    #[serde(default)]
    pub(crate) all: bool,
    /// `next` of the page before; absent: the first page.
    pub(crate) cursor: Option<String>,
    /// Items of the page at most.
    pub(crate) limit: Option<usize>,
}

/// A page of the routes of a neighbour before import policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ReceivedQuery {
    /// Only this prefix.
    pub(crate) prefix: Option<String>,
    /// How `prefix` selects.
    #[serde(default)]
    pub(crate) r#match: PrefixMatch,
    /// Community patterns, separated by commas: a path has one of each.
    pub(crate) community: Option<String>,
    /// A regular expression over the AS path.
    pub(crate) as_path: Option<String>,
    /// The origin AS, or a range.
    pub(crate) origin_as: Option<String>,
    /// The next hop.
    pub(crate) next_hop: Option<String>,
    /// Only paths that changed less than so long ago: seconds, or a number with `s`, `m`, `h` or `d`.
    pub(crate) age_under: Option<String>,
    /// Only paths that changed at least so long ago.
    pub(crate) age_over: Option<String>,
    /// `accepted` or `rejected` by import policy, or a validation state.
    pub(crate) state: Option<String>,
    /// `next` of the page before; absent: the first page.
    pub(crate) cursor: Option<String>,
    /// Items of the page at most.
    pub(crate) limit: Option<usize>,
}

/// A page of selected routes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FibQuery {
    /// The VRF; default: the default one.
    pub(crate) vrf: Option<String>,
    /// Only this prefix, or the longest match of this address.
    pub(crate) prefix: Option<String>,
    /// How `prefix` selects.
    #[serde(default)]
    pub(crate) r#match: PrefixMatch,
    /// A gateway of the route.
    pub(crate) next_hop: Option<String>,
    /// The protocol.
    pub(crate) protocol: Option<String>,
    /// The state in some dataplane.
    pub(crate) state: Option<String>,
    /// Only routes that changed less than so long ago: seconds, or a number with `s`, `m`, `h` or `d`.
    pub(crate) age_under: Option<String>,
    /// Only routes that changed at least so long ago.
    pub(crate) age_over: Option<String>,
    /// `next` of the page before; absent: the first page.
    pub(crate) cursor: Option<String>,
    /// Items of the page at most.
    pub(crate) limit: Option<usize>,
}

/// Next-hop groups.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NextHopGroupQuery {
    /// Only this one.
    pub(super) id: Option<u32>,
    /// Only those of this VRF.
    pub(super) vrf: Option<String>,
    /// `next` of the page before; absent: the first page.
    pub(super) cursor: Option<String>,
    /// Items of the page at most.
    pub(super) limit: Option<usize>,
}

/// A page of routes that a dataplane could not install.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FailedQuery {
    /// Only those of this VRF.
    pub(crate) vrf: Option<String>,
    /// Only this prefix.
    pub(crate) prefix: Option<String>,
    /// How `prefix` selects.
    #[serde(default)]
    pub(crate) r#match: PrefixMatch,
    /// Only those of this dataplane.
    pub(crate) dataplane: Option<String>,
    /// `next` of the page before; absent: the first page.
    pub(crate) cursor: Option<String>,
    /// Items of the page at most.
    pub(crate) limit: Option<usize>,
}

/// A page of payloads.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct PayloadQuery {
    /// Only payloads of this prefix.
    pub(crate) prefix: Option<String>,
    /// How `prefix` selects.
    #[serde(default)]
    pub(crate) r#match: PrefixMatch,
    /// Only those of this AS.
    pub(crate) asn: Option<u32>,
    /// `next` of the page before; absent: the first page.
    pub(crate) cursor: Option<String>,
    /// Items of the page at most.
    pub(crate) limit: Option<usize>,
}

/// A page of ASPA records.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct AspaQuery {
    /// Only the record of this customer AS.
    pub(crate) customer: Option<u32>,
    /// Only records with this provider AS.
    pub(crate) provider: Option<u32>,
    /// `next` of the page before; absent: the first page.
    pub(crate) cursor: Option<String>,
    /// Items of the page at most.
    pub(crate) limit: Option<usize>,
}

/// A page of a list with pages of its own size.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CursorQuery {
    /// `next` of the page before; absent: the first page.
    pub(super) cursor: Option<String>,
}

/// Events as they happen.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct EventsQuery {
    /// Kinds, with commas: `session`, `repair`, `configuration`, `log` (the rest of the log), `route`; by default all but `log`.
    pub(crate) kind: Option<String>,
    /// Only events about this prefix; routes as `match` says.
    pub(crate) prefix: Option<String>,
    /// `exact`, or of routes also `longer`, `shorter`.
    #[serde(default)]
    pub(crate) r#match: PrefixMatch,
    /// Only events about this neighbour: of routes, those whose former or new best path it sent.
    pub(crate) neighbor: Option<String>,
    /// Only routes of this family: `ipv4-unicast` or `ipv6-unicast`.
    pub(crate) family: Option<String>,
    /// Only events of the log of this level and worse: error, warn, info, debug.
    pub(crate) level: Option<String>,
    /// Only events of the log of this stage, such as `bgp::session`; `bgp` includes that.
    pub(crate) target: Option<String>,
    /// Where to go on, if the header Last-Event-ID cannot be sent.
    pub(crate) last_event_id: Option<String>,
}

/// The latest events of the log.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogQuery {
    /// Only events with a higher number.
    pub(crate) after: Option<u64>,
    /// Only events of this level, and of worse ones.
    pub(crate) level: Option<String>,
    /// Only events of this target, and of those within it.
    pub(crate) target: Option<String>,
    /// Only events with this value of the key `neighbor`.
    pub(crate) neighbor: Option<String>,
    /// Only events with this value of the key `prefix`.
    pub(crate) prefix: Option<String>,
    /// The latest so many.
    pub(crate) limit: Option<usize>,
}

/// A prefix with an origin AS; without one: NONE.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidationQuery {
    pub(super) prefix: String,
    pub(super) asn: Option<u32>,
}

/// A prefix, or an address.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PrefixQuery {
    /// The VRF; default: the default one.
    pub(super) vrf: Option<String>,
    pub(super) prefix: String,
    /// Also the state towards this neighbour.
    pub(super) to: Option<IpAddr>,
}

/// The scope of `route-check`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteCheckQuery {
    /// Everything instead of changes.
    #[serde(default)]
    pub(super) full: bool,
    /// Only the default routes.
    #[serde(default)]
    pub(super) defaults: bool,
}

/// A virtual ASIC.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AsicQuery {
    /// Its name; default: the only one.
    pub(super) asic: Option<String>,
}

/// Registered next hops.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TrackedQuery {
    /// Only this address.
    pub(super) address: Option<IpAddr>,
}

/// Interfaces.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InterfaceQuery {
    /// Only those of this name.
    pub(super) name: Option<String>,
}

/// Static routes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StaticQuery {
    /// Only those of this VRF.
    pub(super) vrf: Option<String>,
}

/// BFD sessions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BfdQuery {
    /// Only those with this neighbour.
    pub(super) peer: Option<IpAddr>,
    /// Only those in this state.
    pub(super) state: Option<String>,
}

/// A page of neighbours.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct NeighborQuery {
    /// Only neighbours of this group of the configuration.
    pub(crate) group: Option<String>,
    /// Only neighbours with an update group in this thread.
    pub(crate) update_thread: Option<usize>,
    /// Only neighbours whose session is in this state: `up`, `down`, or a state of RFC 4271 such as `active`.
    pub(crate) state: Option<String>,
    /// `next` of the page before; absent: the first page.
    pub(crate) cursor: Option<String>,
    /// Items of the page at most.
    pub(crate) limit: Option<usize>,
}

/// Update groups.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GroupQuery {
    /// Only update groups with members of this group of the configuration, or the update group of
    /// this name.
    pub(super) name: Option<String>,
    pub(super) update_thread: Option<usize>,
}

/// The number of items of a page: `requested` or 1,000, at most `most`.
pub(super) fn limit(requested: Option<usize>, most: usize) -> Result<usize, Refusal> {
    match requested.unwrap_or(most.min(1000)) {
        n if (1..=most).contains(&n) => Ok(n),
        n => Err(Refusal::Bad(format!("limit is {n}; a page holds 1 to {most}"))),
    }
}
