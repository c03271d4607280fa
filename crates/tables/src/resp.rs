//! Redis's wire format (RESP 2): commands out, replies in. Bytes only, no socket.
//!
//! Our own, and not a client library, because the hot path wants commands written straight into one buffer and the
//! rest of what such a library does (pools, clusters, typed commands) is not wanted here at all.

/// One command under construction, so that its argument count need not be known beforehand.
#[derive(Default, Debug)]
pub struct Command {
    body: Vec<u8>,
    args: usize,
}

impl Command {
    /// A command of these arguments.
    pub fn of(args: &[&str]) -> Command {
        let mut command = Command::default();
        for arg in args {
            command.arg(arg);
        }
        command
    }

    /// Adds one argument.
    pub fn arg(&mut self, text: &str) {
        header(&mut self.body, b'$', text.len());
        self.body.extend_from_slice(text.as_bytes());
        self.body.extend_from_slice(b"\r\n");
        self.args += 1;
    }

    /// How many arguments it has so far.
    pub(crate) fn len(&self) -> usize {
        self.args
    }

    /// Moves the arguments of `other` behind those of this one.
    pub(crate) fn append(&mut self, other: &mut Command) {
        self.body.append(&mut other.body);
        self.args += other.args;
        other.args = 0;
    }

    /// Appends the command to `out` and empties this one for the next.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        header(out, b'*', self.args);
        out.append(&mut self.body);
        self.args = 0;
    }
}

fn header(out: &mut Vec<u8>, kind: u8, mut n: usize) {
    // By hand: a route has a dozen of these, and formatting costs more than the rest of the argument.
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// What the server answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// No such thing.
    Nil,
    /// A number.
    Integer(i64),
    /// A status or a string; bytes that are not UTF-8 are replaced.
    Text(String),
    /// The server refused the command; its own words.
    Error(String),
    /// Several replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// The text of a string or status, a number as decimal text, otherwise nothing.
    pub fn into_text(self) -> Option<String> {
        match self {
            Reply::Text(text) => Some(text),
            Reply::Integer(n) => Some(n.to_string()),
            Reply::Nil | Reply::Error(_) | Reply::Array(_) => None,
        }
    }

    /// The number of an integer reply, or of a string that is one.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Reply::Integer(n) => Some(*n),
            Reply::Text(text) => text.parse().ok(),
            Reply::Nil | Reply::Error(_) | Reply::Array(_) => None,
        }
    }

    /// The elements of an array; empty for any other reply.
    pub fn into_array(self) -> Vec<Reply> {
        match self {
            Reply::Array(items) => items,
            Reply::Nil | Reply::Integer(_) | Reply::Text(_) | Reply::Error(_) => Vec::new(),
        }
    }

    /// The strings of an array; elements that are not strings are left out.
    pub fn into_texts(self) -> Vec<String> {
        self.into_array().into_iter().filter_map(Reply::into_text).collect()
    }

    /// The field and value pairs of an array that alternates them.
    pub fn into_pairs(self) -> Vec<(String, String)> {
        let mut texts = self.into_texts().into_iter();
        let mut pairs = Vec::new();
        while let (Some(field), Some(value)) = (texts.next(), texts.next()) {
            pairs.push((field, value));
        }
        pairs
    }
}

/// The stream is not RESP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotResp;

/// Cuts a byte stream into replies.
#[derive(Default, Debug)]
pub(crate) struct Decoder {
    buf: Vec<u8>,
    /// Bytes of the first reply that are known to be whole tokens.
    scanned: usize,
    /// Tokens of the first reply beyond `scanned`; zero before the first byte of a reply was looked at.
    left: usize,
}

/// The longest string that a server may send: Redis's own limit.
const MAX_TEXT: usize = 512 << 20;

enum Token<'a> {
    Nil,
    Integer(i64),
    Text(&'a [u8]),
    Error(&'a [u8]),
    Array(usize),
}

impl Decoder {
    /// Takes bytes from the stream.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// The next whole reply.
    pub(crate) fn next(&mut self) -> Result<Option<Reply>, NotResp> {
        if self.left == 0 {
            self.left = 1;
        }
        // A long reply comes in many reads: each byte is scanned once, then the whole is parsed once.
        while self.left > 0 {
            let Some((token, len)) = token(self.buf.get(self.scanned..).unwrap_or_default())? else {
                return Ok(None);
            };
            self.left -= 1;
            if let Token::Array(n) = token {
                self.left += n;
            }
            self.scanned += len;
        }
        let mut rest = self.buf.get(..self.scanned).unwrap_or_default();
        let reply = parse(&mut rest, 0)?;
        self.buf.drain(..self.scanned);
        self.scanned = 0;
        Ok(Some(reply))
    }
}

fn parse(rest: &mut &[u8], depth: usize) -> Result<Reply, NotResp> {
    let (token, len) = token(rest)?.ok_or(NotResp)?;
    *rest = rest.get(len..).unwrap_or_default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match token {
        Token::Nil => Reply::Nil,
        Token::Integer(n) => Reply::Integer(n),
        Token::Text(bytes) => Reply::Text(text(bytes)),
        Token::Error(bytes) => Reply::Error(text(bytes)),
        Token::Array(_) if depth > 8 => return Err(NotResp),
        Token::Array(n) => {
            let mut items = Vec::with_capacity(n.min(rest.len()));
            for _ in 0..n {
                items.push(parse(rest, depth + 1)?);
            }
            Reply::Array(items)
        }
    })
}

/// The first token and its length in bytes, or `None` while it is not whole.
fn token(buf: &[u8]) -> Result<Option<(Token<'_>, usize)>, NotResp> {
    let Some(end) = buf.windows(2).position(|w| w == b"\r\n") else { return Ok(None) };
    let (Some(kind), Some(line)) = (buf.first(), buf.get(1..end)) else { return Err(NotResp) };
    let number = || std::str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok()).ok_or(NotResp);
    let after = end + 2;
    let token = match kind {
        b'+' => Token::Text(line),
        b'-' => Token::Error(line),
        b':' => Token::Integer(number()?),
        b'*' | b'$' if number()? == -1 => Token::Nil,
        b'*' => Token::Array(usize::try_from(number()?).map_err(|_| NotResp)?),
        b'$' => {
            let len = usize::try_from(number()?).ok().filter(|len| *len <= MAX_TEXT).ok_or(NotResp)?;
            return match (buf.get(after..after + len), buf.get(after + len..after + len + 2)) {
                (Some(text), Some(b"\r\n")) => Ok(Some((Token::Text(text), after + len + 2))),
                (_, Some(_)) => Err(NotResp),
                (_, None) => Ok(None),
            };
        }
        _ => return Err(NotResp),
    };
    Ok(Some((token, after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_strings() {
        let mut out = Vec::new();
        Command::of(&["SET", "a key", ""]).finish(&mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$5\r\na key\r\n$0\r\n\r\n");
    }

    #[test]
    fn replies_come_out_whole_however_the_stream_is_cut() {
        let stream = b"+OK\r\n:-3\r\n$-1\r\n*3\r\n$2\r\na\n\r\n*0\r\n*2\r\n:1\r\n$0\r\n\r\n-ERR no\r\n";
        let text = |t: &str| Reply::Text(t.into());
        let expected = vec![
            text("OK"),
            Reply::Integer(-3),
            Reply::Nil,
            Reply::Array(vec![
                text("a\n"),
                Reply::Array(vec![]),
                Reply::Array(vec![Reply::Integer(1), text("")]),
            ]),
            Reply::Error("ERR no".into()),
        ];
        for step in 1..stream.len() {
            let (mut decoder, mut replies) = (Decoder::default(), Vec::new());
            for piece in stream.chunks(step) {
                decoder.feed(piece);
                while let Some(reply) = decoder.next().unwrap() {
                    replies.push(reply);
                }
            }
            assert_eq!(replies, expected, "cut each {step} bytes");
        }
    }

    #[test]
    fn other_protocols_are_refused() {
        for stream in ["HTTP/1.1 400 Bad Request\r\n", "$5\r\nabcdefg\r\n", "*x\r\n", "$99999999999\r\n"] {
            let mut decoder = Decoder::default();
            decoder.feed(stream.as_bytes());
            assert_eq!(decoder.next(), Err(NotResp), "{stream:?}");
        }
    }
}
