//! ZeroMQ's wire protocol: ZMTP 3.0 without security (RFC 23), for the four kinds of socket that SONiC uses.
//!
//! Our own, and not libzmq or another client, because of what stands behind a socket there: queues of the library's
//! that drop or block at a count of messages, and no word about what became of one. Here a message is written where the
//! caller's bound is, and a peer of our own kind is recognised in the greeting ([`Peer::ours`]). What is left of the
//! protocol is a greeting, one command and frames with a length.

use ribtide_runtime::idle;
use ribtide_runtime::liveness::{self, Watched};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a peer may take to introduce itself.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);
/// How long a peer may leave a message untaken before it counts as gone.
const STALL: Duration = Duration::from_secs(60);
/// What one read takes at most.
const READ_BYTES: usize = 256 << 10;
/// The same where nothing comes but word of what was taken.
const ACK_READ_BYTES: usize = 4 << 10;
/// A message that is copied behind its head: to send both at once costs less than to send the head alone.
const SHORT: usize = 16 << 10;
/// The property by which ribtide's sockets know each other. ZeroMQ's own pass it over. Another value is of a version that says
/// other things, and so as good as SONiC's.
const OURS: (&str, &[u8]) = ("X-Ribtide-Acknowledges", b"4");
/// The property by which they tell one process from the next, and one connecting socket of it from the others, eight bytes each.
const PROCESS: &str = "X-Ribtide-Process";

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// What kind of socket one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Sends.
    Push,
    /// Receives.
    Pull,
    /// Asks.
    Req,
    /// Answers.
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

    /// Whether an empty frame stands before each message.
    fn has_envelope(self) -> bool {
        matches!(self, Kind::Req | Kind::Rep)
    }
}

/// A connection that has introduced itself.
#[derive(Debug)]
pub(super) struct Peer {
    /// Where messages come out.
    pub(super) reader: Reader,
    /// Where messages go in.
    pub(super) writer: Writer,
    /// The other side is one of ribtide's: in which process it is, by a number that no other has.
    pub(super) ours: Option<Process>,
    /// Which of that process's connecting sockets it is, by a number that none of the others has.
    pub(super) socket: u64,
}

/// A process, as long as it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u64);

impl Process {
    #[cfg(test)]
    pub(super) fn numbered(number: u64) -> Process {
        Process(number)
    }

    /// This one. Its number is drawn as it is first asked for.
    fn this() -> Process {
        static THIS: OnceLock<u64> = OnceLock::new();
        // A hasher's key is random, and another one in each process.
        Process(*THIS.get_or_init(|| RandomState::new().hash_one(std::process::id())))
    }
}

/// A number that no other connecting socket of this process has.
pub(super) fn next_socket() -> u64 {
    static SOCKETS: AtomicU64 = AtomicU64::new(1);
    SOCKETS.fetch_add(1, Relaxed)
}

/// Introduces this side, of that number where it connects, and waits for the other. Messages of `limit` bytes and more are
/// refused.
pub(super) fn introduce(stream: TcpStream, kind: Kind, limit: usize, socket: u64) -> io::Result<Peer> {
    introduce_as(stream, kind, limit, (Process::this(), socket))
}

/// The same, as one process or another.
pub(super) fn introduce_as(
    stream: TcpStream,
    kind: Kind,
    limit: usize,
    who: (Process, u64),
) -> io::Result<Peer> {
    stream.set_nodelay(true)?;
    liveness::probe(&stream)?;
    stream.set_read_timeout(Some(GREETING_PATIENCE))?;
    stream.set_write_timeout(Some(STALL))?;
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    (&stream).write_all(&greeting)?;
    (&stream).write_all(&ready(kind, who))?;
    let stream = Arc::new(stream);
    let at_once = if kind == Kind::Push { ACK_READ_BYTES } else { READ_BYTES };
    let mut input = BufReader::with_capacity(
        at_once,
        Input { from: idle::IdleReader(Watched(stream.clone())), waits: false },
    );
    let mut theirs = [0; 64];
    input.read_exact(&mut theirs)?;
    if (theirs[0], theirs[9] & 1) != (0xff, 1) || theirs[10] < 3 || theirs[12..32] != greeting[12..32] {
        return Err(io::Error::other("the other side does not speak ZeroMQ 3 without security"));
    }
    let frames = Frames { stream: stream.clone(), turn: Arc::default() };
    let mut reader = Reader { input, pong: frames.clone(), limit };
    let mut body = Vec::new();
    let flags = reader.frame(&mut body)?;
    let properties = (flags & COMMAND != 0).then(|| properties(&body)).flatten();
    let properties = properties.ok_or_else(|| io::Error::other("the other side did not introduce itself"))?;
    let get =
        |name: &str| properties.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| *value);
    let wanted = kind.partner().name();
    if get("Socket-Type") != Some(wanted.as_bytes()) {
        return Err(io::Error::other(format!("the other side is no {wanted} socket")));
    }
    let numbers = get(PROCESS).and_then(|numbers| numbers.try_into().ok()).map(u128::from_be_bytes);
    let numbers = numbers.filter(|_| get(OURS.0) == Some(OURS.1));
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
    put(OURS.0, OURS.1);
    put(PROCESS, &(u128::from(process.0) << 64 | u128::from(socket)).to_be_bytes());
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

/// A connection. Who reads it waits however long nothing comes, but not for a greeting.
#[derive(Debug)]
struct Input {
    from: idle::IdleReader<Watched<Arc<TcpStream>>>,
    waits: bool,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.waits { self.from.read(buffer) } else { self.from.0.read(buffer) }
    }
}

/// Where messages come out.
#[derive(Debug)]
pub(super) struct Reader {
    input: BufReader<Input>,
    pong: Frames,
    limit: usize,
}

impl Reader {
    /// Waits for a message; of one with several frames, the last counts. The buffer is overwritten, and made again where nothing
    /// waits to be read: a long message may be the last for long.
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
        // Memory follows what came, not what was promised, but for little.
        body.reserve(len.min(READ_BYTES as u64) as usize);
        let got = (&mut self.input).take(len).read_to_end(body)? as u64;
        if got < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(flags) }
    }

    /// A heartbeat is answered; other commands need no answer.
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

/// Where frames go in, those of one message in a row. The other side is watched by who reads.
#[derive(Clone, Debug)]
struct Frames {
    stream: Arc<TcpStream>,
    turn: Arc<Mutex<()>>,
}

impl Frames {
    /// Writes all parts, and waits while the connection is full.
    fn write(&self, parts: &[&[u8]]) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().try_for_each(|part| (&*self.stream).write_all(part))
    }
}

/// Where messages go in. Clones write to the same connection.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    frames: Frames,
    envelope: bool,
}

impl Writer {
    /// Writes one message; waits while the connection is full.
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

    /// Ends the connection for both sides, and who waits at it, be it in the middle of a message.
    pub(super) fn end(&self) {
        let _ = self.frames.stream.shutdown(Shutdown::Both);
    }
}
