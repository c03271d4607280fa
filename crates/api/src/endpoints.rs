//! Every endpoint of the API: path, input and handler.

use super::access::{Caller, ChangeLog, guard, may_change};
use super::answers::{Changed, ReceivedWhich};
use super::body::JsonText;
use super::events::{self, Streams};
use super::request::{
    AdvertisedQuery, AsicQuery, AspaQuery, BfdQuery, CursorOnlyQuery, CursorQuery, EventsQuery, FailedQuery,
    FibQuery, GroupQuery, InterfaceQuery, LogQuery, Named, NeighborQuery, NextHopGroupQuery, Nothing,
    OwnedQuery, PayloadQuery, PrefixQuery, ReceivedQuery, Refusal, RouteCheckQuery, RouteQuery, Sent,
    StaticQuery, TrackedQuery, UrlQuery, ValidationQuery, limit,
};
use super::state::ApiState;
use super::{answers, metrics, openapi, page, task};
use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequest, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use ribtide_model::{
    AddRoutes, AsicAddresses, AsicFaults, CheckReload, Clear, FibPrefixes, LogEvent, LostEvents,
    ReceivedPage, Resize, RouteEvent, SetAsic, SetNextHopCache, SetSuppression, WithdrawRoutes,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Bytes of a list to look up, at most.
const LOOK_UP_MAX: usize = 2 * 1024 * 1024;
/// Bytes of a configuration at most. Only clients with the token, and those on this host, send one.
const CONFIGURATION_MAX: usize = 64 * 1024 * 1024;
/// Routes of a page at most. While one is built, the router holds its routes and its text: about 2 MB.
const MAX_PAGE: usize = 2000;
/// Prefixes of a request to look up at most.
const MAX_PREFIXES: usize = 10_000;
/// Neighbours of a page at most. Each costs every shard, its reader and its update thread a moment.
const MAX_NEIGHBORS: usize = 256;
/// Next-hop groups of a page at most. With 512 hops each they take the RIB manager about 10 ms.
const MAX_GROUPS: usize = 64;
/// Prefixes of a page of advertised routes at most: the export policy runs for each, on the update thread.
const MAX_ADVERTISED: usize = 1000;
/// Events of the log at most: those that are kept.
const MAX_EVENTS: usize = 2000;
/// Addresses of a lookup at most.
const MAX_LOOKUP: usize = 65_536;

/// The endpoints, for axum and as a list. All endpoints are added by these methods, which enforce
/// the common rules: unknown fields are refused, changes need permission and are logged.
#[derive(Default)]
pub(super) struct Endpoints {
    router: Router<Arc<ApiState>>,
    log: Arc<ChangeLog>,
    /// Each of them.
    pub(super) list: Vec<Endpoint>,
}

/// Writes the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// An endpoint, for the list and for the OpenAPI document.
pub(super) struct Endpoint {
    pub(super) method: Method,
    /// As axum and OpenAPI write it: `{address}` is a variable part.
    pub(super) path: &'static str,
    /// What it does with the router.
    pub(super) effect: Effect,
    /// The query of a GET or the body of a POST; its schema in place, without a reference.
    pub(super) input: SchemaOf,
    /// The response.
    pub(super) output: Output,
}

/// The response of an endpoint.
pub(super) enum Output {
    /// JSON of a type of the model.
    Json(SchemaOf),
    /// Text of one of these media types.
    Text(&'static [&'static str]),
    /// Server-sent events of these kinds, whose data is JSON of a type of the model.
    Events(&'static [(&'static str, SchemaOf)]),
}

/// What an endpoint does with the router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// It changes nothing.
    Read,
    /// It changes the router: over TCP it takes the token.
    Change,
}

impl Endpoint {
    fn new<I: JsonSchema, T: JsonSchema>(method: Method, path: &'static str, effect: Effect) -> Endpoint {
        Endpoint {
            method,
            path,
            effect,
            input: I::json_schema,
            output: Output::Json(SchemaGenerator::subschema_for::<T>),
        }
    }
}

impl Endpoints {
    fn with(mut self, endpoint: Endpoint, route: MethodRouter<Arc<ApiState>>) -> Self {
        self.router = self.router.route(endpoint.path, route);
        self.list.push(endpoint);
        self
    }

    /// `GET path`, with a query of type `Q`.
    fn read<Q, T>(self, path: &'static str, answer: fn(&ApiState, Q) -> Result<T, Refusal>) -> Self
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        let handler = move |s, UrlQuery(q): UrlQuery<Q>| blocking(s, move |i| answer(i, q));
        self.with(Endpoint::new::<Q, T>(Method::GET, path, Effect::Read), get(handler))
    }

    /// `GET path` with a variable last part.
    fn read_one<T>(self, path: &'static str, answer: fn(&ApiState, &str) -> Result<T, Refusal>) -> Self
    where
        T: Serialize + JsonSchema + Send + 'static,
    {
        let handler = move |s, Named(name), UrlQuery(Nothing {})| blocking(s, move |i| answer(i, &name));
        self.with(Endpoint::new::<Nothing, T>(Method::GET, path, Effect::Read), get(handler))
    }

    /// `GET path` with a variable part and a query of type `Q`.
    fn read_part<Q, T>(self, path: &'static str, answer: fn(&ApiState, &str, Q) -> Result<T, Refusal>) -> Self
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        let handler =
            move |s, Named(name), UrlQuery(q): UrlQuery<Q>| blocking(s, move |i| answer(i, &name, q));
        self.with(Endpoint::new::<Q, T>(Method::GET, path, Effect::Read), get(handler))
    }

    /// `POST path` with a body of type `B`, at most so long, and without effect: the query is too long for a URL.
    fn look_up<B, T>(
        self,
        path: &'static str,
        max: usize,
        answer: fn(&ApiState, B) -> Result<T, Refusal>,
    ) -> Self
    where
        B: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        let handler = move |s, Sent(body): Sent<B>| blocking(s, move |i| answer(i, body));
        let route = post(handler).layer(DefaultBodyLimit::max(max));
        self.with(Endpoint::new::<B, T>(Method::POST, path, Effect::Read), route)
    }

    /// `POST path` with a body of type `B`, which changes the router.
    fn change<B, T>(self, path: &'static str, apply: fn(&ApiState, B) -> Result<Changed<T>, Refusal>) -> Self
    where
        B: DeserializeOwned + JsonSchema + Send + 'static,
        T: Serialize + JsonSchema + Send + 'static,
    {
        let log = self.log.clone();
        let handler = move |State(router): State<Arc<ApiState>>,
                            ConnectInfo(caller): ConnectInfo<Caller>,
                            request: Request| {
            let log = log.clone();
            async move {
                let body = match may_change(caller, request.headers(), &router.config().api) {
                    Ok(()) => Sent::<B>::from_request(request, &()).await,
                    Err(refusal) => Err(refusal),
                };
                let logged = move |router: &ApiState| {
                    let what = format!("POST {path}");
                    match body.and_then(|Sent(body)| apply(router, body)) {
                        Ok(Changed { answer, message, is_change }) => {
                            log.applied(caller, &what, &message, is_change);
                            Ok(answer)
                        }
                        Err(refusal) => {
                            log.refused(caller, &what, refusal.sentence());
                            Err(refusal)
                        }
                    }
                };
                blocking(State(router), logged).await
            }
        };
        self.with(Endpoint::new::<B, T>(Method::POST, path, Effect::Change), post(handler))
    }

    /// An endpoint without input whose response is no type of the model, with its media types.
    fn plain(
        self,
        path: &'static str,
        media: &'static [&'static str],
        route: MethodRouter<Arc<ApiState>>,
    ) -> Self {
        let (method, effect, output) = (Method::GET, Effect::Read, Output::Text(media));
        self.with(Endpoint { method, path, effect, input: Nothing::json_schema, output }, route)
    }

    /// The metrics for Prometheus, in the format that the client accepts.
    fn metrics(self, path: &'static str) -> Self {
        let scrape = async |s, headers: HeaderMap, UrlQuery(Nothing {})| {
            let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
            let format = metrics::Format::accepted(accept);
            let body = elsewhere(s, move |i| Ok(metrics::scrape(i, format))).await?;
            Ok::<_, Refusal>(([(CONTENT_TYPE, format.content_type())], Body::new(body)))
        };
        self.plain(path, &["text/plain", "application/openmetrics-text"], get(scrape))
    }

    /// Events as they happen, as server-sent events.
    fn events(self, path: &'static str) -> Self {
        // Clients on TCP keep no place from those of the Unix socket.
        let (unix, tcp) = (Streams::default(), Streams::default());
        let follow = move |State(router): State<Arc<ApiState>>,
                           ConnectInfo(caller): ConnectInfo<Caller>,
                           headers: HeaderMap,
                           UrlQuery(query): UrlQuery<EventsQuery>| {
            let streams = match caller {
                Caller::Unix { .. } => unix.clone(),
                Caller::Tcp { .. } => tcp.clone(),
            };
            async move {
                let last = headers.get("last-event-id").map(|id| String::from_utf8_lossy(id.as_bytes()));
                events::response(router, &streams, &query, last.as_deref())
            }
        };
        let (method, effect) = (Method::GET, Effect::Read);
        let output = Output::Events(&[
            ("session", SchemaGenerator::subschema_for::<LogEvent>),
            ("repair", SchemaGenerator::subschema_for::<LogEvent>),
            ("configuration", SchemaGenerator::subschema_for::<LogEvent>),
            ("log", SchemaGenerator::subschema_for::<LogEvent>),
            ("route", SchemaGenerator::subschema_for::<RouteEvent>),
            ("lost", SchemaGenerator::subschema_for::<LostEvents>),
        ]);
        self.with(Endpoint { method, path, effect, input: EventsQuery::json_schema, output }, get(follow))
    }

    /// The OpenAPI document of all endpoints.
    fn openapi(self, path: &'static str) -> Self {
        let document = async |UrlQuery(Nothing {})| Json(openapi::document());
        self.plain(path, &["application/json"], get(document))
    }

    /// The files of the page.
    fn page(self) -> Self {
        page::FILES.into_iter().fold(self, |endpoints, (path, content_type, content)| {
            endpoints.plain(
                path,
                &["text/html", "text/css", "text/javascript"],
                get(async move |UrlQuery(Nothing {})| page::reply(content_type, content)),
            )
        })
    }
}

/// All endpoints.
pub(super) fn endpoints() -> Endpoints {
    Endpoints::default()
        .read("/v1/bgp/group-totals", |i, Nothing {}| answers::group_totals(i))
        .read("/v1/bgp/summary", |i, Nothing {}| answers::bgp_summary(i))
        .read("/v1/bgp/neighbors", |i, q: NeighborQuery| {
            answers::bgp_neighbors(i, &q, limit(q.limit, MAX_NEIGHBORS)?)
        })
        .read_one("/v1/bgp/neighbors/{address}", |i, address| answers::bgp_neighbor(i, address))
        .read_part("/v1/bgp/neighbors/{address}/received", |i, address, q: ReceivedQuery| {
            received(i, address, ReceivedWhich::All, &q)
        })
        .read_part("/v1/bgp/neighbors/{address}/filtered", |i, address, q: ReceivedQuery| {
            received(i, address, ReceivedWhich::Filtered, &q)
        })
        .read_part("/v1/bgp/neighbors/{address}/advertised", |i, address, q: AdvertisedQuery| {
            answers::advertised(i, address, &q, limit(q.limit, MAX_ADVERTISED)?)
        })
        .read_one("/v1/bgp/neighbors/{address}/messages", |i, address| answers::messages(i, address))
        .read_one("/v1/bgp/neighbors/{address}/messages/mrt", |i, address| answers::mrt_messages(i, address))
        .read("/v1/bgp/groups", |i, q: GroupQuery| answers::bgp_groups(i, q.name.as_deref(), q.update_thread))
        .read("/v1/bgp/nexthops", |i, q: TrackedQuery| answers::tracked_next_hops(i, q.address))
        .read("/v1/bgp/aggregates", |i, Nothing {}| answers::aggregates(i))
        .read("/v1/bgp/originated", |i, q: OwnedQuery| {
            answers::owned_routes(i, q.owner, q.cursor.as_deref(), limit(q.limit, MAX_PAGE)?)
        })
        .change("/v1/bgp/originated", |i, add: AddRoutes| Ok(Changed::from(answers::add_routes(i, add)?)))
        .change("/v1/bgp/originated/withdraw", |i, withdraw: WithdrawRoutes| {
            Ok(Changed::from(answers::withdraw_routes(i, withdraw)?))
        })
        .change("/v1/bgp/clear", |i, clear: Clear| answers::bgp_clear(i, clear))
        .change("/v1/bgp/shards", |i, resize: Resize| Ok(Changed::from(answers::resize(i, resize)?)))
        .change("/v1/reload", |i, Nothing {}| answers::reload(i))
        .look_up("/v1/reload/check", CONFIGURATION_MAX, |i, check: CheckReload| {
            answers::reload_check(i, check)
        })
        .read("/v1/reload/check", |i, q: CursorOnlyQuery| answers::reload_routes(i, &q.cursor))
        .read("/v1/routes", |i, q: RouteQuery| answers::routes(i, &q, limit(q.limit, MAX_PAGE)?))
        .read("/v1/routes/summary", |i, Nothing {}| answers::route_summary(i))
        .read("/v1/routes/sharding", |i, Nothing {}| answers::sharding(i))
        .read("/v1/fib", |i, q: FibQuery| answers::fib(i, &q, limit(q.limit, MAX_PAGE)?))
        .look_up("/v1/fib/lookup", LOOK_UP_MAX, |i, q: FibPrefixes| {
            match q.prefixes.len() {
                0 => return Err(Refusal::Bad("prefixes is empty; write at least one".into())),
                1..=MAX_PREFIXES => {}
                n => return Err(Refusal::Bad(format!("at most {MAX_PREFIXES} prefixes at a time, not {n}"))),
            }
            answers::fib_lookup(i, q.vrf.as_deref(), &q.prefixes)
        })
        .read("/v1/fib/failed", |i, q: FailedQuery| answers::failed(i, &q, limit(q.limit, MAX_PAGE)?))
        .change("/v1/fib/suppression", |i, set: SetSuppression| {
            Ok(Changed::from(answers::set_suppression(i, set)?))
        })
        .read("/v1/nexthop-groups", |i, q: NextHopGroupQuery| {
            let limit = limit(q.limit, MAX_GROUPS)?;
            answers::nexthop_groups(i, q.id, q.vrf.as_deref(), q.cursor.as_deref(), limit)
        })
        .read("/v1/interfaces", |i, q: InterfaceQuery| answers::interfaces(i, q.name.as_deref()))
        .read("/v1/vrfs", |i, Nothing {}| answers::vrf_list(i))
        .read("/v1/static-routes", |i, q: StaticQuery| answers::static_routes(i, q.vrf.as_deref()))
        .change("/v1/nexthop-cache", |i, set: SetNextHopCache| {
            Ok(Changed::from(answers::set_nexthop_cache(i, &set)?))
        })
        .read("/v1/route-check", |i, q: RouteCheckQuery| answers::route_check(i, q.full, q.defaults))
        .read("/v1/explain", |i, q: PrefixQuery| answers::explain(i, q.vrf.as_deref(), &q.prefix, q.to))
        .read("/v1/pipeline", |i, Nothing {}| answers::pipeline(i))
        .read("/v1/configuration", |i, Nothing {}| answers::configuration(i))
        .read("/v1/log", |_, q: LogQuery| answers::events(&q, limit(q.limit, MAX_EVENTS)?))
        .read("/v1/version", |i, Nothing {}| answers::version(i))
        .read("/v1/health", |i, Nothing {}| Ok(answers::health(i)))
        .read("/v1/threads", |i, Nothing {}| answers::threads(i))
        .read("/v1/performance", |i, Nothing {}| answers::performance(i))
        .read("/v1/bfd", |i, q: BfdQuery| answers::bfd(i, q.peer, q.state.as_deref()))
        .read("/v1/rpki", |i, Nothing {}| answers::rpki(i))
        .read("/v1/rpki/table", |i, q: PayloadQuery| answers::rpki_table(i, &q, limit(q.limit, MAX_PAGE)?))
        .read("/v1/rpki/aspas", |i, q: AspaQuery| answers::rpki_aspas(i, &q, limit(q.limit, MAX_PAGE)?))
        .read("/v1/rpki/validation", |i, q: ValidationQuery| answers::rpki_validation(i, &q.prefix, q.asn))
        .read("/v1/bmp", |i, Nothing {}| answers::bmp(i))
        .read("/v1/mrt", |i, Nothing {}| answers::mrt(i))
        .read("/v1/mrt/table", |i, q: CursorQuery| answers::mrt_table(i, q.cursor.as_deref()))
        .read("/v1/fpm", |i, Nothing {}| answers::fpm(i))
        .read("/v1/asic", |i, q: AsicQuery| answers::asic_state(i, q.asic.as_deref()))
        .change("/v1/asic", |i, change: SetAsic| answers::set_asic(i, change))
        .look_up("/v1/asic/lookup", LOOK_UP_MAX, |i, q: AsicAddresses| {
            match q.addresses.len() {
                0 => return Err(Refusal::Bad("addresses is empty; write at least one".into())),
                1..=MAX_LOOKUP => {}
                n => {
                    let message = format!("at most {MAX_LOOKUP} addresses at a time, not {n}");
                    return Err(Refusal::Bad(message));
                }
            }
            answers::asic_lookup(i, q.asic.as_deref(), q.vrf.as_deref(), &q.addresses)
        })
        .change("/v1/asic/faults", |i, faults: AsicFaults| {
            Ok(Changed::from(answers::asic_faults(i, faults)?))
        })
        .events("/v1/events")
        .openapi("/v1/openapi.json")
        .metrics("/metrics")
        .page()
}

fn received(
    router: &ApiState,
    address: &str,
    which: ReceivedWhich,
    query: &ReceivedQuery,
) -> Result<ReceivedPage, Refusal> {
    answers::received(router, address, which, query, limit(query.limit, MAX_PAGE)?)
}

/// The endpoints, and replies to all other requests.
pub(super) fn routes(router: Arc<ApiState>) -> Router {
    endpoints()
        .router
        .fallback(|uri: Uri| async move {
            let message =
                format!("there is no endpoint {}; docs/operations.md lists what there is", uri.path());
            Refusal::Missing(message)
        })
        .method_not_allowed_fallback(|method: Method, uri: Uri| async move {
            let message =
                format!("{} does not take {method}; docs/operations.md says what it takes", uri.path());
            Refusal::Method(message)
        })
        .layer(from_fn_with_state(router.clone(), guard))
        .with_state(router)
}

/// Calls of stages block, so they run outside of the event loop. There the answer becomes text, too: the thread that
/// built it also frees it, and a long one delays no other request.
async fn blocking<T: Serialize + JsonSchema + Send + 'static>(
    router: State<Arc<ApiState>>,
    answer: impl FnOnce(&ApiState) -> Result<T, Refusal> + Send + 'static,
) -> Result<JsonText, Refusal> {
    let text = move |router: &ApiState| {
        let unwritten = |e| Refusal::Busy(format!("the answer is no JSON: {e}"));
        JsonText::new(&answer(router)?).map_err(unwritten)
    };
    elsewhere(router, text).await
}

async fn elsewhere<T: Send + 'static>(
    State(router): State<Arc<ApiState>>,
    answer: impl FnOnce(&ApiState) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let answer = task::blocking(move || answer(&router)).await;
    answer.unwrap_or_else(|| Err(Refusal::Busy("the router is stopping".into())))
}
