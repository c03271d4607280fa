//! ZeroMQ's wire protocol: ZMTP 3.0 without security (RFC 23), for the four socket types that SONiC
//! uses.
//!
//! It is our own, because libzmq and other clients have queues that drop or block at a count of
//! messages, and do not report the fate of a message. Here a message is written within the caller's
//! bound, and the greeting identifies a ribtide peer ([`Peer::ours`]). The protocol is a greeting,
//! one command, and frames with a length.

use ribtide_runtime::idle;
use ribtide_runtime::liveness::{self, Watched};
use ribtide_runtime::watchdog::PeerWait;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The timeout of a peer's greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which a peer may leave a message unread before it counts as gone.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one read, at most.
const READ_BYTES: usize = 256 << 10;
/// The same for a socket that receives only acknowledgements.
const ACK_READ_BYTES: usize = 4 << 10;
/// A message that is copied after its header: one write costs less than two.
const SHORT: usize = 16 << 10;
/// The property of READY that identifies a ribtide socket; ZeroMQ ignores it. Another value is
/// another version, which counts as SONiC's.
const ACKNOWLEDGES_PROPERTY: (&str, &[u8]) = ("X-Ribtide-Acknowledges", b"4");
/// The property with the process and the connecting socket, eight bytes each.
const PROCESS_PROPERTY: &str = "X-Ribtide-Process";

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The socket type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Sends messages.
    Push,
    /// Receives messages.
    Pull,
    /// Sends requests.
    Req,
    /// Sends replies.
    Rep,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Push => "PUSH",
            Kind::Pull => "PULL",
            Kind::Req => "REQ",
            Kind::Rep => "REP",
        }
    }

    fn partner(self) -> Kind {
        match self {
            Kind::Push => Kind::Pull,
            Kind::Pull => Kind::Push,
            Kind::Req => Kind::Rep,
            Kind::Rep => Kind::Req,
        }
    }

    /// Whether an empty delimiter frame precedes each message.
    fn has_envelope(self) -> bool {
        matches!(self, Kind::Req | Kind::Rep)
    }
}

/// A connection after the greeting.
#[derive(Debug)]
pub(super) struct Peer {
    /// Receives messages.
    pub(super) reader: Reader,
    /// Sends messages.
    pub(super) writer: Writer,
    /// The unique number of the other side's process, when it is ribtide's.
    pub(super) ours: Option<Process>,
    /// The number of its connecting socket, unique in that process.
    pub(super) socket: u64,
}

/// A process during its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u64);

impl Process {
    #[cfg(test)]
    pub(super) fn numbered(number: u64) -> Process {
        Process(number)
    }

    /// This process. Its number is drawn at the first call.
    fn this() -> Process {
        static THIS: OnceLock<u64> = OnceLock::new();
        // A hasher's key is random, and differs between processes.
        Process(*THIS.get_or_init(|| RandomState::new().hash_one(std::process::id())))
    }
}

/// A number that is unique among the connecting sockets of this process.
pub(super) fn next_socket() -> u64 {
    static SOCKETS: AtomicU64 = AtomicU64::new(1);
    SOCKETS.fetch_add(1, Relaxed)
}

/// Exchanges greetings, with this socket number where this side connects. Messages of `limit` bytes
/// and more are refused.
pub(super) fn handshake(stream: TcpStream, kind: Kind, limit: usize, socket: u64) -> io::Result<Peer> {
    handshake_as(stream, kind, limit, (Process::this(), socket))
}

/// The same for a given process.
pub(super) fn handshake_as(
    stream: TcpStream,
    kind: Kind,
    limit: usize,
    who: (Process, u64),
) -> io::Result<Peer> {
    stream.set_nodelay(true)?;
    liveness::probe(&stream)?;
    stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
    stream.set_write_timeout(Some(STALL_TIMEOUT))?;
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    (&stream).write_all(&greeting)?;
    (&stream).write_all(&ready(kind, who))?;
    let stream = Arc::new(stream);
    let at_once = if kind == Kind::Push { ACK_READ_BYTES } else { READ_BYTES };
    let mut input = BufReader::with_capacity(
        at_once,
        Input { from: idle::IdleReader::new(Watched(stream.clone())), waits: false },
    );
    let mut theirs = [0; 64];
    input.read_exact(&mut theirs)?;
    if (theirs[0], theirs[9] & 1) != (0xff, 1) || theirs[10] < 3 || theirs[12..32] != greeting[12..32] {
        return Err(io::Error::other("the other side does not speak ZeroMQ 3 without security"));
    }
    let peer = stream.peer_addr().map_or_else(|e| e.to_string(), |address| address.to_string());
    let full = PeerWait::new(format!("ZeroMQ peer {peer}"));
    let frames = Frames { stream: stream.clone(), turn: Arc::default(), full };
    let mut reader = Reader { input, pong: frames.clone(), limit };
    let mut body = Vec::new();
    let flags = reader.frame(&mut body)?;
    let properties = (flags & COMMAND != 0).then(|| properties(&body)).flatten();
    let properties = properties.ok_or_else(|| io::Error::other("the other side sent no greeting"))?;
    let get =
        |name: &str| properties.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| *value);
    let wanted = kind.partner().name();
    if get("Socket-Type") != Some(wanted.as_bytes()) {
        return Err(io::Error::other(format!("the other side is no {wanted} socket")));
    }
    let numbers = get(PROCESS_PROPERTY).and_then(|numbers| numbers.try_into().ok()).map(u128::from_be_bytes);
    let numbers = numbers.filter(|_| get(ACKNOWLEDGES_PROPERTY.0) == Some(ACKNOWLEDGES_PROPERTY.1));
    let ours = numbers.map(|numbers| Process((numbers >> 64) as u64));
    stream.set_read_timeout(Some(idle::IDLE_TIMEOUT))?;
    reader.input.get_mut().waits = true;
    let writer = Writer { frames, envelope: kind.has_envelope() };
    Ok(Peer { reader, writer, ours, socket: numbers.unwrap_or_default() as u64 })
}

fn ready(kind: Kind, (process, socket): (Process, u64)) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    let mut put = |name: &str, value: &[u8]| {
        body.push(name.len() as u8);
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&(value.len() as u32).to_be_bytes());
        body.extend_from_slice(value);
    };
    put("Socket-Type", kind.name().as_bytes());
    if kind.has_envelope() {
        put("Identity", b"");
    }
    put(ACKNOWLEDGES_PROPERTY.0, ACKNOWLEDGES_PROPERTY.1);
    put(PROCESS_PROPERTY, &(u128::from(process.0) << 64 | u128::from(socket)).to_be_bytes());
    let mut frame = vec![COMMAND, body.len() as u8];
    frame.append(&mut body);
    frame
}

/// The properties of a READY command.
fn properties(body: &[u8]) -> Option<Vec<(&str, &[u8])>> {
    let mut rest = body.strip_prefix(b"\x05READY")?;
    let mut all = Vec::new();
    while let Some((len, tail)) = rest.split_first() {
        let (name, tail) = tail.split_at_checked((*len).into())?;
        let (len, tail) = tail.split_first_chunk::<4>()?;
        let (value, tail) = tail.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        all.push((std::str::from_utf8(name).ok()?, value));
        rest = tail;
    }
    Some(all)
}

/// A connection. A read waits without a timeout, but not for the greeting.
#[derive(Debug)]
struct Input {
    from: idle::IdleReader<Watched<Arc<TcpStream>>>,
    waits: bool,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.waits { self.from.read(buffer) } else { self.from.connection.read(buffer) }
    }
}

/// Receives messages.
#[derive(Debug)]
pub(super) struct Reader {
    input: BufReader<Input>,
    pong: Frames,
    limit: usize,
}

impl Reader {
    /// Waits for a message; of several frames, the last counts. The buffer is overwritten. It is
    /// allocated again when no data waits, because a long message may be the last for long.
    pub(super) fn message(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        if self.input.buffer().is_empty() {
            *body = Vec::new();
        }
        loop {
            let flags = self.frame(body)?;
            if flags & COMMAND != 0 {
                self.command(body)?;
            } else if flags & MORE == 0 {
                return Ok(());
            }
        }
    }

    fn frame(&mut self, body: &mut Vec<u8>) -> io::Result<u8> {
        let mut head = [0; 2];
        self.input.read_exact(&mut head)?;
        let [flags, short] = head;
        let len = if flags & LONG == 0 {
            u64::from(short)
        } else {
            let mut rest = [0; 7];
            self.input.read_exact(&mut rest)?;
            rest.iter().fold(u64::from(short), |len, byte| len << 8 | u64::from(*byte))
        };
        if len >= self.limit as u64 {
            return Err(io::Error::other(format!("a message of {len} bytes is too long")));
        }
        body.clear();
        // Memory follows the received bytes and not the announced length, except for small frames.
        body.reserve(len.min(READ_BYTES as u64) as usize);
        let got = (&mut self.input).take(len).read_to_end(body)? as u64;
        if got < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(flags) }
    }

    /// Replies to a heartbeat (PING); other commands need no reply.
    fn command(&mut self, body: &[u8]) -> io::Result<()> {
        let Some(context) = body.strip_prefix(b"\x04PING").and_then(|rest| rest.get(2..)) else {
            return Ok(());
        };
        let mut frame = vec![COMMAND, 5 + context.len().min(16) as u8];
        frame.extend_from_slice(b"\x04PONG");
        frame.extend_from_slice(&context[..context.len().min(16)]);
        self.pong.write(&[&frame])
    }
}

/// Writes frames, those of one message in a row. The reading thread detects a lost peer.
#[derive(Clone, Debug)]
struct Frames {
    stream: Arc<TcpStream>,
    turn: Arc<Mutex<()>>,
    /// The wait for room in the connection.
    full: PeerWait,
}

impl Frames {
    /// Writes all parts; blocks while the connection is full.
    fn write(&self, parts: &[&[u8]]) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.full.begin();
        let written = parts.iter().try_for_each(|part| (&*self.stream).write_all(part));
        self.full.end();
        written
    }
}

/// Sends messages. Clones write to the same connection.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    frames: Frames,
    envelope: bool,
}

impl Writer {
    /// Writes one message; blocks while the connection is full.
    pub(super) fn message(&self, body: &[u8]) -> io::Result<()> {
        let mut head = Vec::with_capacity(11 + if body.len() <= SHORT { body.len() } else { 0 });
        if self.envelope {
            head.extend_from_slice(&[MORE, 0]);
        }
        match u8::try_from(body.len()) {
            Ok(len) => head.extend_from_slice(&[0, len]),
            Err(_) => {
                head.push(LONG);
                head.extend_from_slice(&(body.len() as u64).to_be_bytes());
            }
        }
        if body.len() <= SHORT {
            head.extend_from_slice(body);
            return self.frames.write(&[&head]);
        }
        self.frames.write(&[&head, body])
    }

    /// Ends the connection for both sides, and wakes threads that wait at it, also in the middle of
    /// a message.
    pub(super) fn end(&self) {
        let _ = self.frames.stream.shutdown(Shutdown::Both);
    }
}
