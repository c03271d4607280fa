//! Options that several tools share.

use crate::Error;
use crate::session::{self, Opened, Session, Speaker};
use ribtide_prefix::Afi;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The default options. Each default is in the option's help.
pub(crate) fn defaults<A: clap::Args>() -> A {
    let matches = A::augment_args(clap::Command::new("")).get_matches_from([""]);
    A::from_arg_matches(&matches).expect("every option has a default or is optional")
}

/// The name of a value, as on the command line.
pub(crate) fn name_of(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The BGP identity of a tool. With several sessions, each has the BGP identifier after that of the one
/// before.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct SpeakerOptions {
    /// The tool's AS number [default: 65100 for a sender, 65200 for a receiver].
    #[arg(long, value_name = "ASN", value_parser = clap::value_parser!(u32).range(1..))]
    pub asn: Option<u32>,
    /// The tool's BGP identifier; with several sessions, that of the first [default: 198.18.0.1 for a
    /// sender, 198.19.0.1 for a receiver].
    #[arg(long, value_name = "ID")]
    pub router_id: Option<Ipv4Addr>,
    /// The proposed hold time: 0, or at least 3.
    #[arg(long, value_name = "SECONDS", default_value_t = 90, value_parser = hold_time)]
    pub hold_time: u16,
}

impl Default for SpeakerOptions {
    fn default() -> Self {
        defaults()
    }
}

/// The role of a session: it determines the speaker's defaults, so that a sender and a receiver
/// differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
}

impl SpeakerOptions {
    /// The speaker of session number `index`. `asn_each`: the AS number rises by one per session.
    pub fn speaker(&self, role: Role, index: u32, asn_each: bool) -> Speaker {
        // Identifiers from the addresses for benchmarks (RFC 2544), private AS numbers.
        let (asn, router_id) = match role {
            Role::Sender => (65_100, Ipv4Addr::new(198, 18, 0, 1)),
            Role::Receiver => (65_200, Ipv4Addr::new(198, 19, 0, 1)),
        };
        let router_id = u32::from(self.router_id.unwrap_or(router_id)).wrapping_add(index);
        let asn = self.asn.unwrap_or(asn).wrapping_add(if asn_each { index } else { 0 });
        Speaker { asn, router_id: router_id.into(), hold_time: self.hold_time }
    }
}

fn hold_time(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(n @ (0 | 3..=u16::MAX)) => Ok(n),
        _ => Err("write 0, or a number from 3 to 65535 (RFC 4271 section 4.2)".into()),
    }
}

/// The router that a tool connects to.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct ConnectOptions {
    /// The address of the router.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:179")]
    pub to: String,
    /// The local address; several sessions use consecutive addresses from this one on.
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<IpAddr>,
    /// The time for which a refused connection is retried.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
}

impl ConnectOptions {
    /// The same for session number `index` of `count`.
    ///
    /// # Errors
    /// Several sessions were requested from one address.
    pub fn nth(&self, index: u32, count: u32) -> Result<ConnectOptions, Error> {
        if count > 1 && self.from.is_none() {
            return Err(Error::Options(format!(
                "{count} sessions need an address each: give the first with --from, such as --from 127.0.0.2"
            )));
        }
        Ok(ConnectOptions { from: self.from.map(|a| nth(a, index)), ..self.clone() })
    }

    /// Brings a session up.
    ///
    /// # Errors
    /// The text is no address, or the session did not come up.
    pub fn connect(&self, speaker: &Speaker) -> Result<Opened, Error> {
        let deadline = Instant::now() + Duration::from_secs(self.wait);
        session::connect(self.resolve()?, self.from, speaker, deadline)
    }

    fn resolve(&self) -> Result<SocketAddr, Error> {
        let failed = |source| Error::Resolve { text: self.to.clone(), source };
        let found: Vec<SocketAddr> = self.to.to_socket_addrs().map_err(failed)?.collect();
        let fits = |to: &&SocketAddr| self.from.is_none_or(|from| from.is_ipv4() == to.is_ipv4());
        found
            .iter()
            .find(fits)
            .copied()
            .ok_or_else(|| failed(io::Error::other("it has no address of the family of --from")))
    }
}

/// The address `n` after `addr`.
pub(crate) fn nth(addr: IpAddr, n: u32) -> IpAddr {
    match addr {
        IpAddr::V4(a) => IpAddr::V4(u32::from(a).wrapping_add(n).into()),
        IpAddr::V6(a) => IpAddr::V6(u128::from(a).wrapping_add(n.into()).into()),
    }
}

/// The end of a tool's run, and its report.
#[derive(Clone, PartialEq, Debug, Default, clap::Args)]
pub struct StayOptions {
    /// Close the sessions when everything is sent, which withdraws it. Without this option they stay up
    /// until Ctrl-C.
    #[arg(long, conflicts_with = "hold")]
    pub once: bool,
    /// Close the sessions this long after everything is sent.
    #[arg(long, value_name = "SECONDS")]
    pub hold: Option<u64>,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(long, short)]
    pub quiet: bool,
}

impl StayOptions {
    /// Keeps the sessions up for as long as the options say. Calls `resend` with the session and
    /// family of each ROUTE-REFRESH.
    ///
    /// # Errors
    /// A session ended, or `resend` failed.
    pub(crate) fn stay(
        &self,
        sessions: &[Session],
        mut resend: impl FnMut(usize, Afi) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.once {
            return Ok(());
        }
        let interrupted = interrupted()?;
        let end = self.hold.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        while !interrupted.load(Relaxed) && end.is_none_or(|end| Instant::now() < end) {
            for (i, session) in sessions.iter().enumerate() {
                session.check()?;
                for afi in [Afi::Ipv4, Afi::Ipv6] {
                    if session.take_refresh(afi) {
                        resend(i, afi)?;
                    }
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// The interval between checks for events.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A flag that Ctrl-C or SIGTERM sets. The second signal ends the process.
///
/// # Errors
/// The system lets no signal be caught.
pub fn interrupted() -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(Error::System)?;
    }
    Ok(flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{blast, sink};

    #[test]
    fn options_have_the_defaults_that_their_help_names() {
        let blast = blast::Options::default();
        assert_eq!(
            (blast.connect.to.as_str(), blast.senders, blast.table.ipv4),
            ("127.0.0.1:179", 1, 1_000_000)
        );
        assert_eq!(blast.next_hops.next_hops4.to_string(), "10.0.0.0/16");
        let sink = sink::Options::default();
        assert_eq!((sink.receivers, sink.table, sink.until_idle), (1, false, None));
        assert_ne!(blast.speaker_of(0).router_id, sink.speaker_of(0).router_id);
        let second = blast::Options { asn_per_sender: true, ..blast }.speaker_of(1);
        assert_eq!((second.asn, second.router_id), (65_101, Ipv4Addr::new(198, 18, 0, 2)));
    }

    #[test]
    fn several_sessions_have_consecutive_addresses() {
        let connect = ConnectOptions { from: "127.0.0.255".parse().ok(), ..defaults() };
        assert_eq!(connect.nth(1, 2).unwrap().from, "127.0.1.0".parse().ok());
        assert!(defaults::<ConnectOptions>().nth(0, 2).is_err());
        assert!(defaults::<ConnectOptions>().nth(0, 1).is_ok());
    }
}
