//! Subscriptions: one thread per database, which turns messages into wake-ups or passes them on.
//!
//! A publication without a subscriber is lost. So every new subscription, the first and each after
//! a lost server, wakes all consumers, which then check their tables once.

use crate::TableError;
use crate::connection::{REPLY_TIMEOUT, Stream, lost, not_redis, receive};
use crate::database::Database;
use crate::resp::{Command, Decoder, Raw};
use ribtide_runtime::idle;
use ribtide_runtime::log::target;
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_runtime::wake_up::{self, WakeUp};
use std::io::{self, Read, Write};
use std::time::Duration;

const CONNECT_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));

/// An event of a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PubSubEvent<'a> {
    /// Messages arrive from now on; earlier ones were lost. `again` is false only the first time.
    Subscribed {
        /// Whether an earlier subscription broke.
        again: bool,
    },
    /// A message.
    Message {
        /// The channel.
        channel: &'a str,
        /// The message.
        payload: &'a str,
    },
}

/// Subscribes to `channels` on the server of `database`, and calls `on_event` on a thread of its
/// own. A blocked `on_event` stops the reading; the server disconnects subscribers that lag for too
/// long.
///
/// # Errors
/// [`TableError::Unreachable`] when there is no server now; later losses are waited out until `stop`.
pub fn listen(
    database: &Database,
    channels: Vec<String>,
    stop: &Stop,
    mut on_event: impl FnMut(PubSubEvent<'_>) + Send + 'static,
) -> Result<(), TableError> {
    let (database, stop) = (database.clone(), stop.clone());
    let mut ears = subscribe(&database, &channels)?;
    let wait = WaitFd::new(&stop).map_err(|e| lost(&database, &e))?;
    let name = format!("{}-listen", database.db.name().to_lowercase().replace('_', "-"));
    let address = database.address.to_string();
    let body = move || {
        on_event(PubSubEvent::Subscribed { again: false });
        while !stop.stopped() {
            match read_message(&mut ears, &wait, &mut on_event) {
                Ok(read) => {
                    // The buffer may have grown in a burst.
                    if idle::on_wait(!read) {
                        ears.1.shrink_to_fit();
                        idle::purge();
                    }
                }
                Err(e) => {
                    tracing::warn!(
                        target: target::REDIS,
                        database = database.db.name(),
                        "{}; listening again when it is back",
                        lost(&database, &e)
                    );
                    let mut pause = CONNECT_BACKOFF.0;
                    loop {
                        if stop.stopped() {
                            return Ended::at_stop(&stop);
                        }
                        stop.sleep(pause);
                        pause = CONNECT_BACKOFF.1.min(pause * 2);
                        if let Ok(again) = subscribe(&database, &channels) {
                            ears = again;
                            break;
                        }
                    }
                    on_event(PubSubEvent::Subscribed { again: true });
                }
            }
        }
        Ended::at_stop(&stop)
    };
    thread::spawn(name, body).map(drop).map_err(|e| TableError::Unreachable {
        database: "a listener".into(),
        address,
        cause: e.to_string(),
    })
}

/// Subscribes to several channels, each with its own wake-up.
///
/// # Errors
/// As [`listen`].
pub fn wake_ups(database: &Database, channels: Vec<String>, stop: &Stop) -> Result<Vec<WakeUp>, TableError> {
    let (wakers, wake_ups): (Vec<_>, Vec<_>) = channels.iter().map(|_| wake_up::pair()).unzip();
    let names = channels.clone();
    listen(database, channels, stop, move |event| {
        for (name, waker) in names.iter().zip(&wakers) {
            if !matches!(event, PubSubEvent::Message { channel, .. } if channel != name) {
                waker.wake();
            }
        }
    })?;
    Ok(wake_ups)
}

/// Subscribes to a channel on which nothing is published, so a wake-up means that the server was lost
/// and is back, perhaps without its data. The first wake-up means nothing.
///
/// # Errors
/// As [`listen`].
pub fn server_returns(database: &Database, stop: &Stop) -> Result<WakeUp, TableError> {
    Ok(wake_ups(database, vec!["RIBTIDE_RETURNS".into()], stop)?.remove(0))
}

type Ears = (Stream, Decoder);

fn subscribe(database: &Database, channels: &[String]) -> Result<Ears, TableError> {
    let mut stream = Stream::connect(database)?;
    let mut decoder = Decoder::default();
    let mut command = Command::of(&["SUBSCRIBE"]);
    channels.iter().for_each(|channel| command.arg(channel));
    let mut bytes = Vec::new();
    command.finish(&mut bytes);
    let mut confirm = || {
        stream.write_all(&bytes)?;
        for _ in channels {
            // A message may come between two confirmations; the wake-up that follows covers it.
            while receive(&mut stream, &mut decoder, REPLY_TIMEOUT)?
                .items()
                .next()
                .is_some_and(|first| first.text() != Some("subscribe"))
            {}
        }
        Ok(())
    };
    confirm().map_err(|e: io::Error| lost(database, &e))?;
    Ok((stream, decoder))
}

/// Waits for a message and passes it on; `false` without one, at the stop or when the thread is idle.
fn read_message(
    (stream, decoder): &mut Ears,
    wait: &WaitFd,
    on_event: &mut impl FnMut(PubSubEvent<'_>),
) -> io::Result<bool> {
    while !decoder.advance().map_err(|_| not_redis())? {
        if !wait.wait(&*stream, idle::until_idle())? {
            return Ok(false);
        }
        match decoder.fill(|room| stream.read(room)) {
            Ok(0) => return Err(io::Error::other("the server closed it")),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(e) => return Err(e),
        }
    }
    let mut parts = decoder.current().items().filter_map(Raw::text);
    if let (Some("message"), Some(channel), Some(payload)) = (parts.next(), parts.next(), parts.next()) {
        on_event(PubSubEvent::Message { channel, payload });
    }
    Ok(true)
}
