//! The side of SONiC's orchagent: syncd's end of its transport.

use super::Client;
use crate::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_runtime::ring;
use ribtide_swss::beside::from_zmq;
use ribtide_tables::queue::{self, QueueWriter};
use ribtide_tables::zmq::{self, Push, ReplySender};
use ribtide_tables::{Connection, Message, ReaderThread, TableError};
use std::collections::{BTreeMap, VecDeque};

/// The queue of its requests.
const QUEUE: &str = "SONiC's orchagent to ribtide's";
const VIDCOUNTER: &str = "VIDCOUNTER";
/// The first object id of SONiC's orchagent in a database of its own. syncd counts its ids in
/// ASIC_DB and never comes so far; an id has 39 bits.
const FIRST_VID: u64 = 1 << 36;
/// Notifications that wait for a connected orchagent at most. It has room for more, as SONiC's
/// sockets have.
const NOTIFICATIONS_MAX: usize = 10_000;

/// The carrier.
enum Carrier {
    Zmq {
        requests: ring::Receiver<(Option<Message>, ReplySender)>,
        /// The channel of each reply.
        senders: BTreeMap<u64, ReplySender>,
        push: Push,
        notifications: VecDeque<Vec<u8>>,
    },
    Redis(Box<RedisQueues>),
}

/// The queues in its database.
struct RedisQueues {
    requests: ring::Receiver<Result<queue::Request, TableError>>,
    writer: QueueWriter,
    publisher: Connection,
    channel: String,
    _reader: ReaderThread,
}

/// Its requests, and the replies.
pub(super) struct Front {
    carrier: Carrier,
    count: u64,
}

impl Front {
    /// Listens.
    ///
    /// # Errors
    /// An endpoint that is in use, or a database that is not there.
    pub(super) fn open(client: Client, daemon: &Daemon) -> Result<Front, Error> {
        let Daemon { rings, stop, .. } = daemon;
        let carrier = match client {
            Client::Zmq { requests, notifications } => {
                let read = |message: &[u8], _| from_zmq(&String::from_utf8_lossy(message));
                Carrier::Zmq {
                    requests: zmq::serve(&requests, QUEUE, rings, stop, read)?,
                    senders: BTreeMap::new(),
                    push: zmq::connect_notifications(notifications, rings, stop)?,
                    notifications: VecDeque::new(),
                }
            }
            Client::Redis { database, notifications } => {
                let mut publisher = Connection::open(&database, stop)?;
                let counted = publisher.query(&["GET", VIDCOUNTER])?.into_text();
                let counted = counted.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
                if counted < FIRST_VID {
                    publisher.query(&["SET", VIDCOUNTER, &FIRST_VID.to_string()])?;
                }
                let writer = QueueWriter::open(&database, "GETRESPONSE", stop)?;
                let (requests, reader) =
                    queue::serve(&database, "ASIC_STATE", QUEUE, rings, stop, |request| request)?;
                Carrier::Redis(Box::new(RedisQueues {
                    requests,
                    writer,
                    publisher,
                    channel: notifications,
                    _reader: reader,
                }))
            }
        };
        Ok(Front { carrier, count: 0 })
    }

    /// The next request with its number. A message that is no request is answered here.
    pub(super) fn take(&mut self) -> Result<Option<(u64, Message)>, Error> {
        match &mut self.carrier {
            Carrier::Zmq { requests, senders, .. } => {
                while let Some((message, sender)) = requests.try_recv() {
                    let Some(message) = message else {
                        tracing::warn!(
                            target: ribtide_runtime::log::target::ZMQ,
                            "a message of SONiC's orchagent is not an array of a key, an operation and pairs"
                        );
                        sender.send(br#"["SAI_STATUS_INVALID_PARAMETER","getresponse"]"#);
                        continue;
                    };
                    self.count += 1;
                    senders.insert(self.count, sender);
                    return Ok(Some((self.count, message)));
                }
                Ok(None)
            }
            Carrier::Redis(queues) => {
                let Some(request) = queues.requests.try_recv().transpose()? else { return Ok(None) };
                self.count += 1;
                Ok(Some((self.count, request.message)))
            }
        }
    }

    /// Sends replies, in the order of their requests.
    pub(super) fn reply(&mut self, replies: &mut Vec<(u64, Message)>) -> Result<(), Error> {
        match &mut self.carrier {
            Carrier::Zmq { senders, .. } => {
                for (number, reply) in replies.drain(..) {
                    if let Some(sender) = senders.remove(&number) {
                        sender.send(reply.to_zmq().as_bytes());
                    }
                }
            }
            Carrier::Redis(queues) => {
                replies.iter().for_each(|(_, reply)| queues.writer.reply(Some(reply)));
                if !replies.is_empty() {
                    queues.writer.flush()?;
                }
                replies.clear();
            }
        }
        Ok(())
    }

    /// Passes on a notification of syncd.
    pub(super) fn notify(&mut self, text: &[u8]) -> Result<(), Error> {
        match &mut self.carrier {
            Carrier::Zmq { push, notifications, .. } => {
                push.renewed();
                // SONiC's orchagent that is not connected waits for none.
                if push.is_connected() && notifications.len() < NOTIFICATIONS_MAX {
                    notifications.push_back(text.to_vec());
                }
                self.resume();
            }
            Carrier::Redis(queues) => {
                let text = String::from_utf8_lossy(text);
                queues.publisher.query(&["PUBLISH", &queues.channel, &text])?;
            }
        }
        Ok(())
    }

    /// Sends notifications that wait.
    pub(super) fn resume(&mut self) {
        if let Carrier::Zmq { push, notifications, .. } = &mut self.carrier {
            if push.renewed() {
                notifications.clear();
            }
            while push.has_room() {
                let Some(text) = notifications.pop_front() else { return };
                if !push.send(text) {
                    notifications.clear();
                }
            }
        }
    }

    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        match &self.carrier {
            Carrier::Zmq { requests, push, .. } => {
                requests.watch(select);
                push.wake_up().watch(select);
            }
            Carrier::Redis(queues) => queues.requests.watch(select),
        }
    }
}
