//! Every metric: its name, type, labels and help text. The table of docs/operations.md is printed from this list.

/// The type of a metric (OpenMetrics).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows; its name gets the suffix `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts durations by bucket.
    Histogram,
}

/// A metric. A name that ends in `_seconds` or `_bytes` has that unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its place in [`METRICS`].
    pub(super) at: usize,
    /// The name of the family, with the prefix `ribtide_`.
    pub(super) family: &'static str,
    /// The name of its samples: that of the family, with the suffix `_total` where it is a counter.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The names of its labels in order.
    pub labels: &'static [&'static str],
    /// The help text: a sentence.
    pub help: &'static str,
}

macro_rules! sample_name {
    (Counter $name:literal) => {
        concat!("ribtide_", $name, "_total")
    };
    ($kind:ident $name:literal) => {
        concat!("ribtide_", $name)
    };
}

macro_rules! metrics {
    ($($metric:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        /// The metrics by number.
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of the constants")]
        enum Order { $($metric),* }
        $(pub(super) const $metric: Metric = Metric {
            at: Order::$metric as usize,
            family: concat!("ribtide_", $name),
            name: sample_name!($kind $name),
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)*
        /// All metrics, in the order of a scrape.
        pub const METRICS: &[Metric] = &[$($metric),*];
    };
}

metrics! {
    INFO = Gauge "info" ["version"] "The version of the program; always 1.";
    UPTIME = Gauge "uptime_seconds" [] "Time since the start.";
    LOG_DROPPED = Counter "log_lines_dropped" [] "Log lines that were dropped, because the reader of the log stood still.";

    QUEUE_BATCHES = Counter "queue_batches" ["queue"] "Batches that went into the queue; of rings only.";
    QUEUE_DEPTH = Gauge "queue_depth" ["queue"] "Batches in the queue now, or what its name says.";
    QUEUE_BOUND = Gauge "queue_bound" ["queue"] "Its bound, where it has one.";
    QUEUE_PEAK = Gauge "queue_peak" ["queue"] "The most it ever held.";
    QUEUE_FULL = Counter "queue_full" ["queue"] "How often a producer found it full and had to wait.";
    QUEUE_WAIT = Histogram "queue_wait_seconds" ["queue"] "How long each batch was in the queue; of rings only.";
    DEGRADED = Gauge "degraded" []
        "Whether anything waits without progress, or RPKI data is missing (`ribtide show health`).";
    STALLED = Gauge "stalled_seconds" ["queue"] "How long its consumer, or the thread that waits for this peer, has made no \
        progress; only of what is stalled.";
    STAGE_ROUTES = Counter "stage_routes" ["stage"] "Route changes that the stage handled.";
    STAGE_BATCHES = Counter "stage_batches" ["stage"] "Batches that had them.";
    STAGE_WORK = Histogram "stage_batch_seconds" ["stage"] "How long the stage worked on each batch.";
    STAGE_BUSY = Counter "stage_busy_seconds" ["stage"] "Wall time at work.";
    THREAD_CPU = Counter "thread_cpu_seconds" ["thread"]
        "CPU time of all threads of this name; a rate of 1 is a whole CPU.";
    THREAD_RUNNABLE = Counter "thread_runnable_seconds" ["thread"]
        "Time in which the thread was runnable but had no CPU.";
    MEMORY_PEAK = Gauge "memory_peak_bytes" [] "Peak resident memory of the process.";

    SHARD_PREFIXES = Gauge "bgp_shard_prefixes" ["shard", "family"] "Prefixes of the shard thread.";
    SHARD_PATHS = Gauge "bgp_shard_paths" ["shard", "family"] "Paths of the shard thread.";
    SHARD_ACTIVE = Gauge "bgp_shard_active" ["shard", "family"] "Prefixes with a best path in force.";
    SHARD_HIDDEN = Gauge "bgp_shard_hidden" ["shard", "family"]
        "Paths that cannot be used: their next hop cannot be reached.";
    SHARD_FIB_WAITING = Gauge "bgp_shard_fib_waiting" ["shard"]
        "Best paths that are not advertised until dataplanes confirm them.";
    SHARD_FIB_BLOCKED = Gauge "bgp_shard_fib_blocked" ["shard"]
        "Best paths that are not advertised because the FIB lacks them.";
    SHARD_ATTRIBUTE_SETS = Gauge "bgp_shard_attribute_sets" ["shard"] "Attribute sets in use.";
    SHARD_NEXT_HOPS = Gauge "bgp_shard_next_hops" ["shard"] "Next hops in use.";
    SHARD_SURPLUS_PATHS = Counter "bgp_shard_surplus_paths" ["shard"]
        "Announced paths that were dropped because their prefix had too many: 4,096 of one session, or 65,535.";
    SHARD_MEMORY = Gauge "bgp_shard_memory_bytes" ["shard"] "Tables, paths and attribute sets.";

    REFUSED_CONNECTIONS = Counter "bgp_refused_connections" ["reason"]
        "Incoming connections that got no session, by reason.";
    RESTARTING = Gauge "bgp_restarting" []
        "Whether nothing is advertised, because the router has restarted and waits for the routes of its neighbors.";
    NEIGHBOR_UP = Gauge "bgp_neighbor_up" ["neighbor", "group"] "Whether its session is established.";
    NEIGHBOR_STATE = Gauge "bgp_neighbor_state_seconds" ["neighbor", "group"]
        "How long it has been up, or in its state.";
    NEIGHBOR_FLAPS = Counter "bgp_neighbor_flaps" ["neighbor", "group"] "Established sessions lost.";
    NEIGHBOR_ACCEPTED = Gauge "bgp_neighbor_accepted" ["neighbor", "group", "family"]
        "Its paths in the table.";
    NEIGHBOR_ACTIVE = Gauge "bgp_neighbor_active" ["neighbor", "group", "family"]
        "Of these, best paths in force.";
    NEIGHBOR_ADVERTISED = Gauge "bgp_neighbor_advertised" ["neighbor", "group", "family"]
        "Prefixes advertised to it.";
    NEIGHBOR_STALE = Gauge "bgp_neighbor_stale" ["neighbor", "group", "family"]
        "Stale paths in use while it restarts.";
    NEIGHBOR_STALE_EXPIRED = Counter "bgp_neighbor_stale_expired" ["neighbor", "group"]
        "How often its stale paths were removed because it did not come back in time.";
    NEIGHBOR_MAX = Gauge "bgp_neighbor_max_prefixes" ["neighbor", "group", "direction", "family"]
        "Its maximum of prefixes, where it has one.";
    NEIGHBOR_MAX_COUNT = Gauge "bgp_neighbor_max_prefixes_used" ["neighbor", "group", "direction", "family"]
        "Prefixes of the session that count against its maximum.";
    NEIGHBOR_MAX_EXCEEDED = Counter "bgp_neighbor_max_prefixes_exceeded"
        ["neighbor", "group", "direction", "family"] "How often the maximum was exceeded, in all sessions.";
    NEIGHBOR_MAX_DISCARDED = Counter "bgp_neighbor_max_prefixes_discarded" ["neighbor", "group"]
        "Announced prefixes of this session that were refused because of its maximum.";
    NEIGHBOR_MESSAGES = Counter "bgp_neighbor_messages" ["neighbor", "group", "direction", "type"]
        "Messages of this session.";
    NEIGHBOR_PREFIXES = Counter "bgp_neighbor_prefixes" ["neighbor", "group", "direction", "what"]
        "Prefixes in UPDATEs of this session: announced, withdrawn, refused.";
    NEIGHBOR_EVALUATED_AGAIN = Counter "bgp_neighbor_routes_evaluated_again" ["neighbor", "group"]
        "Kept routes whose import policy ran again, after a change of the policy or of RPKI data.";
    NEIGHBOR_TREATED_AS_WITHDRAW = Counter "bgp_neighbor_treated_as_withdraw" ["neighbor", "group"]
        "UPDATEs whose routes count as withdrawn: malformed (RFC 7606), or by treat-as-withdraw.";
    NEIGHBOR_WRITE_QUEUE = Gauge "bgp_neighbor_write_queue_bytes" ["neighbor", "group"]
        "Bytes that wait to be written.";
    NEIGHBOR_WRITE_BLOCKS = Counter "bgp_neighbor_write_queue_blocks" ["neighbor", "group"]
        "How often its TCP took less than the pending bytes.";
    NEIGHBOR_WRITE_STOPS = Counter "bgp_neighbor_write_queue_stops" ["neighbor", "group"]
        "How often its write queue was full, so that its update group went on without it.";
    NEIGHBOR_WAITING = Gauge "bgp_neighbor_waiting" ["neighbor", "group"]
        "Prefixes that wait to be packed for it.";
    NEIGHBOR_SLOW = Gauge "bgp_neighbor_slow" ["neighbor", "group"] "Whether it is a slow writer.";

    GROUP_MEMBERS = Gauge "bgp_update_group_members" ["update_group", "update_thread"] "Members.";
    GROUP_FULL = Gauge "bgp_update_group_full_members" ["update_group", "update_thread"]
        "Members whose write queue is full.";
    GROUP_DETACHED = Gauge "bgp_update_group_detached_members" ["update_group", "update_thread"]
        "Members that the group has gone on without, and that have not caught up.";
    GROUP_POSITIONS = Gauge "bgp_update_group_positions" ["update_group", "update_thread"]
        "Positions of its members; 1: all are in sync.";
    GROUP_WAITING = Gauge "bgp_update_group_waiting" ["update_group", "update_thread"]
        "Prefixes that wait to be packed.";
    GROUP_UPDATES = Counter "bgp_update_group_updates" ["update_group", "update_thread"]
        "UPDATEs packed, each once however many members got it.";
    GROUP_PREFIXES = Counter "bgp_update_group_prefixes" ["update_group", "update_thread"]
        "Prefixes in them, announced and withdrawn; prefixes for each UPDATE show how well it is packed.";

    RPKI_CACHE_UP = Gauge "rpki_cache_up" ["cache"] "Whether there is a connection, and the cache has answered on it.";
    RPKI_CACHE_IN_USE = Gauge "rpki_cache_in_use" ["cache"] "Whether its records are used.";
    RPKI_CACHE_RECORDS = Gauge "rpki_cache_records" ["cache", "family"] "Its records.";
    RPKI_CACHE_SERIAL = Gauge "rpki_cache_serial" ["cache"] "The serial number of its records.";
    RPKI_CACHE_AGE = Gauge "rpki_cache_age_seconds" ["cache"]
        "Time since its last complete answer, while its records are kept.";
    RPKI_CACHE_CONNECTS = Counter "rpki_cache_connects" ["cache"] "Connections made.";
    RPKI_CACHE_FAILURES = Counter "rpki_cache_failures" ["cache"] "Connections and attempts that failed.";
    RPKI_CACHE_ASPAS = Gauge "rpki_cache_aspas" ["cache"] "Its ASPA records.";
    RPKI_ASPAS = Gauge "rpki_aspas" [] "ASPA records in use: customers.";
    RPKI_PAYLOADS = Gauge "rpki_payloads" ["family"] "Validated ROA payloads in use.";
    RPKI_TABLES = Counter "rpki_tables" [] "Tables of payloads since the start.";
    RPKI_DEGRADED = Gauge "rpki_degraded" [] "Whether no cache has records, so that routes are not-found.";

    BMP_STATION_UP = Gauge "bmp_station_up" ["station"] "Whether there is a session with it.";
    BMP_STATION_DUMPING = Gauge "bmp_station_dumping" ["station"] "Whether it is getting whole tables.";
    BMP_STATION_QUEUE = Gauge "bmp_station_queue_bytes" ["station"] "Bytes that wait for it.";
    BMP_STATION_QUEUE_BOUND = Gauge "bmp_station_queue_bound_bytes" ["station"] "Bytes that may wait for it.";
    BMP_STATION_CONNECTS = Counter "bmp_station_connects" ["station"] "Sessions with it.";
    BMP_STATION_FAILURES = Counter "bmp_station_failures" ["station"]
        "Sessions that were lost, and attempts that failed.";
    BMP_STATION_OVERFLOWS = Counter "bmp_station_overflows" ["station"]
        "Sessions that ended because more would have waited than may; each next one begins with whole tables.";
    BMP_STATION_SENT = Counter "bmp_station_sent_bytes" ["station"] "Bytes sent to it.";
    MRT_FAILING = Gauge "mrt_failing" ["series"] "Whether its last file could not be written.";
    MRT_FILES = Counter "mrt_files" ["series"] "Complete files.";
    MRT_FAILURES = Counter "mrt_failures" ["series"] "Files that could not be written.";
    MRT_RECORDS = Counter "mrt_records" ["series"] "Records: paths of dumps, or messages and states of sessions.";
    MRT_DROPPED = Counter "mrt_dropped" ["series"]
        "Records, or reads of several messages, that are missing because of an error or a slow disk.";

    SUPPRESS_FIB_PENDING = Gauge "suppress_fib_pending" []
        "Whether BGP advertises only what dataplanes confirmed.";
    ASIC_RECONCILE_COMPARED = Counter "asic_reconcile_compared" ["asic", "table"]
        "Entries of the virtual ASIC that were compared with what was requested.";
    ASIC_RECONCILE_REPAIRED = Counter "asic_reconcile_repaired" ["asic", "table"]
        "Of these, entries that another program had changed, and that were repaired.";
    ASIC_RECONCILE_FAILED = Counter "asic_reconcile_failed" ["asic", "table"]
        "Of these, entries that differ and whose repair the switch refused.";
    RIB_ROUTES = Gauge "rib_routes" ["vrf", "family", "protocol"] "Routes of the RIB manager.";
    RIB_ACTIVE = Gauge "rib_active" ["vrf", "family", "protocol"]
        "Of these, selected and sent to the dataplanes.";
    RIB_DENIED = Gauge "rib_denied" ["vrf", "family", "protocol"]
        "Of these, selected and kept from the dataplanes by fib.policy, or vrf.NAME.policy.";
    RIB_GROUPS = Gauge "rib_next_hop_groups" [] "Next-hop groups.";
    RIB_MEMORY = Gauge "rib_memory_bytes" [] "The routing tables, without groups.";
    CACHE_INFO = Gauge "rib_next_hop_cache_info" ["mode"] "The mode of the resolution cache; always 1.";
    CACHE_GENERATION = Gauge "rib_next_hop_cache_generation" []
        "Events that invalidate it in mode epoch, and 1.";
    CACHE_HITS = Counter "rib_next_hop_cache_hits" []
        "Routes that took the cached result of their next-hop group.";
    CACHE_MISSES = Counter "rib_next_hop_cache_misses" []
        "Routes for which a set of next hops had to be resolved first.";
    RESOLUTIONS = Counter "rib_next_hop_resolutions" [] "Sets of next hops resolved.";
    LOOKUPS = Counter "rib_next_hop_lookups" [] "Next hops looked up.";
    CACHE_INVALIDATIONS = Counter "rib_next_hop_cache_invalidations" []
        "Next-hop groups whose cached result an event invalidated.";
    RESOLUTION_TIME = Counter "rib_resolution_seconds" [] "Wall time of resolution.";
    OUTSTANDING = Gauge "dataplane_outstanding_batches" ["dataplane"] "Batches sent and not yet confirmed.";
    FAILED = Gauge "dataplane_failed" ["dataplane"] "Prefixes that it could not install.";
    LAG = Gauge "dataplane_lag" ["dataplane"]
        "Changed prefixes that wait for a dataplane that lags behind the others.";

    KERNEL_REPAIRS = Counter "kernel_repairs" ["difference"]
        "Routes and next-hop objects of the kernel that were not as written, and were repaired.";
    KERNEL_COMPARED = Counter "kernel_compared_routes" []
        "Routes of the kernel compared with the desired state.";
    KERNEL_ROUNDS = Counter "kernel_compare_rounds" [] "Complete comparisons of the kernel's table.";
    KERNEL_ROUND_TIME = Gauge "kernel_compare_round_seconds" [] "Duration of the last complete comparison.";

    FPM_CONNECTED = Gauge "fpm_connected" ["client"] "Whether there is a connection.";
    FPM_DISAGREES = Gauge "fpm_disagrees" ["client"]
        "Whether the server's replies do not fit fib.suppress-fib-pending; show fpm has the reason.";
    FPM_CONNECTS = Counter "fpm_connects" ["client"] "Connections made.";
    FPM_CONNECTS_FAILED = Counter "fpm_connects_failed" ["client"] "Attempts to connect that failed.";
    FPM_CLOSES = Counter "fpm_closes" ["client"] "Connections that ended.";
    FPM_ERRORS = Counter "fpm_errors" ["client"] "Connections ended because of bytes that are no FPM.";
    FPM_BATCHES = Counter "fpm_batches" ["client"] "Batches of the RIB manager written.";
    FPM_QUEUE_FULL = Counter "fpm_queue_full" ["client"] "Batches that found the queue full.";
    FPM_SENT = Counter "fpm_sent_bytes" ["client"] "Bytes written.";
    FPM_READ = Counter "fpm_read_bytes" ["client"] "Bytes read.";
    FPM_REPLIES = Counter "fpm_replies" ["client", "result"] "Replies about routes, by their result.";
    FPM_SENT_AGAIN = Counter "fpm_resent" ["client"]
        "Routes sent once more, because it was unsure which change a reply was about.";
    FPM_ROUTES = Counter "fpm_routes" ["client"] "Routes sent, replacements included.";
    FPM_DELETES = Counter "fpm_deletes" ["client"] "Deletions sent.";
    FPM_STALLED = Counter "fpm_stalled_seconds" ["client"] "Time in which the server did not read.";
    FPM_REPAIRS = Counter "fpm_repairs" ["client", "difference"]
        "Routes and next-hop objects of the server that were not as sent, and were repaired.";
    FPM_REPAIRS_FAILED = Counter "fpm_repairs_failed" ["client"]
        "Differences that were there again in the round after their repair.";
    FPM_IS_COMPARED = Gauge "fpm_is_compared" ["client"]
        "Whether the server's table is compared with what was sent: only ribtide's server offers that.";
    FPM_COMPARED = Counter "fpm_compared_routes" ["client"] "Routes of the server compared with what was sent.";
    FPM_ROUNDS = Counter "fpm_compare_rounds" ["client"] "Complete comparisons of the server's table.";
    FPM_ROUND_TIME = Gauge "fpm_compare_round_seconds" ["client"] "Duration of the last complete comparison.";

    BFD_UP = Gauge "bfd_session_up" ["peer", "interface"] "Whether the BFD session is up.";
    BFD_USABLE = Gauge "bfd_session_usable" ["peer", "interface"]
        "Whether next hops may use the neighbour.";
    BFD_STATE = Gauge "bfd_session_state_seconds" ["peer", "interface"] "How long it has been in its state.";
    BFD_DETECTION = Gauge "bfd_session_detection_seconds" ["peer", "interface"]
        "The detection time: after so long without a packet it is down.";
    BFD_FLAPS = Counter "bfd_session_flaps" ["peer", "interface"] "How often it went down from up.";
    BFD_SENT = Counter "bfd_session_sent" ["peer", "interface"] "BFD packets sent.";
    BFD_RECEIVED = Counter "bfd_session_received" ["peer", "interface"] "BFD packets received.";
    BFD_DISCARDED = Counter "bfd_discarded" ["reason"] "BFD packets discarded.";

    UNANSWERED = Gauge "unanswered_queries" []
        "Stages that did not answer this scrape; their metrics are missing.";
}
