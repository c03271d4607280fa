//! The targets of log lines: one for each stage.

macro_rules! targets {
    ($($name:ident = $text:literal $of:literal;)*) => {
        $(#[doc = $of] pub const $name: &str = $text;)*

        /// All targets, each with whose lines it has.
        pub const ALL: &[(&str, &str)] = &[$(($name, $of)),*];
    };
}

targets! {
    API = "api" "The management API: requests that change the router, done or refused.";
    BFD = "bfd" "BFD sessions.";
    BGP = "bgp" "BGP's threads.";
    BGP_SESSION = "bgp::session" "BGP sessions, and the interfaces that end them.";
    BMP = "bmp" "BMP stations: connections, and sessions that ended.";
    FPM = "fpm" "The connections to FPM servers.";
    FPMSYNCD = "fpmsyncd" "SONiC's fpmsyncd.";
    KERNEL = "kernel" "The kernel dataplane, and the kernel's interfaces.";
    LOG = "log" "The log: lines that were dropped, and numbers of those that repeated.";
    MRT = "mrt" "MRT files: those that were written, and errors.";
    ORCHAGENT = "orchagent" "SONiC's orchagent.";
    PROCESS = "process" "Threads that failed, and so how the process ends; the privileges that it keeps.";
    REDIS = "redis" "Connections to Redis, and its servers.";
    RIB = "rib" "The RIB manager.";
    RPKI = "rpki" "RPKI caches: connections, and the table of payloads.";
    ROUTER = "router" "The router: its start, reloads and stop.";
    SYNCD = "syncd" "SONiC's syncd.";
    ZMQ = "zmq" "ZeroMQ between SONiC's daemons.";
}
