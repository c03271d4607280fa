//! Redis's wire format (RESP 2): commands out, replies in. Bytes only, no socket.
//!
//! It is our own, because the hot path writes commands straight into one buffer. A client library's
//! pools, clusters and typed commands are not needed.

/// A command under construction, whose number of arguments need not be known in advance.
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

    /// The number of its arguments.
    pub(crate) fn len(&self) -> usize {
        self.args
    }

    /// The encoded arguments.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.body
    }

    /// Drops all arguments.
    pub(crate) fn clear(&mut self) {
        self.body.clear();
        self.args = 0;
    }

    /// Moves the arguments of `other` to the end of this command.
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

/// Appends the command HGETALL of a key.
pub(crate) fn write_hgetall(key: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"*2\r\n$7\r\nHGETALL\r\n");
    header(out, b'$', key.len());
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn header(out: &mut Vec<u8>, kind: u8, n: usize) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A reply of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Nil.
    Nil,
    /// A number.
    Integer(i64),
    /// A status or a string; bytes that are not UTF-8 are replaced.
    Text(String),
    /// An error, with the server's message.
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
    /// What was read, and room behind it.
    buf: Vec<u8>,
    /// The beginning of the current reply in `buf`.
    begin: usize,
    /// The end of its scanned tokens.
    scanned: usize,
    /// The end of what was read.
    end: usize,
    /// Its tokens beyond `scanned`.
    left: usize,
    /// Bytes of the last read; the next one has room for twice as many or more.
    lately: usize,
}

/// Room of a read, at least and at most.
const READ_BYTES_MIN: usize = 4 << 10;
const READ_BYTES_MAX: usize = 64 << 10;
/// The longest string of a server: Redis's own limit.
const MAX_TEXT: usize = 512 << 20;
/// Digits of a number that is read without a search for its end, at most.
const SHORT_DIGITS: usize = 7;
/// Nesting of arrays, at most.
const MAX_DEPTH: usize = 8;

#[derive(PartialEq, Eq, Debug)]
enum Token<'a> {
    Nil,
    Integer(i64),
    Text(&'a [u8]),
    Error(&'a [u8]),
    Array(usize),
}

impl Decoder {
    /// Calls `read` with a buffer and returns the number of bytes that it read.
    pub(crate) fn fill<E>(&mut self, read: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<usize, E> {
        // Decoded bytes are removed once per read and not per reply: a read has thousands of short
        // replies.
        self.buf.copy_within(self.begin..self.end, 0);
        self.scanned -= self.begin;
        self.end -= self.begin;
        self.begin = 0;
        // Room that is there already is not filled with zeros again.
        let room = self.lately.saturating_mul(2).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        self.buf.resize(self.buf.len().max(self.end + room), 0);
        let until = self.buf.len().min(self.end + READ_BYTES_MAX);
        let came = read(&mut self.buf[self.end..until]);
        self.lately = came.as_ref().map_or(0, |n| *n);
        self.end += self.lately;
        came
    }

    /// Frees the buffer, when it holds no reply.
    pub(crate) fn shrink_to_fit(&mut self) {
        if self.scanned == self.end && (self.left == 0 || self.begin == self.scanned) {
            *self = Decoder::default();
        }
    }

    /// Advances to the next reply; false when it is incomplete.
    pub(crate) fn advance(&mut self) -> Result<bool, NotResp> {
        if self.left == 0 {
            (self.begin, self.left) = (self.scanned, 1);
        }
        // A long reply needs many reads; each byte is scanned once.
        while self.left > 0 {
            let Some((token, len)) = token(self.buf.get(self.scanned..self.end).unwrap_or_default())? else {
                return Ok(false);
            };
            self.left -= 1;
            if let Token::Array(n) = token {
                self.left += n;
            }
            self.scanned += len;
        }
        Ok(true)
    }

    /// The complete reply that [`Decoder::advance`] found.
    pub(crate) fn current(&self) -> Raw<'_> {
        Raw(self.buf.get(self.begin..self.scanned).unwrap_or_default())
    }
}

/// One complete encoded reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Raw<'a>(&'a [u8]);

impl<'a> Raw<'a> {
    /// The first reply of some bytes; an empty one if they are no whole reply.
    pub(crate) fn of(bytes: &'a [u8]) -> Raw<'a> {
        Items { rest: bytes, left: 1 }.next().unwrap_or(Raw(&[]))
    }

    /// The server's message, if the reply is an error.
    pub(crate) fn refusal(self) -> Option<String> {
        match token(self.0) {
            Ok(Some((Token::Error(text), _))) => Some(String::from_utf8_lossy(text).into_owned()),
            _ => None,
        }
    }

    /// Whether the reply is an error.
    pub(crate) fn is_refusal(self) -> bool {
        self.0.first() == Some(&b'-')
    }

    /// The text of a string or status. Text that is not UTF-8 becomes `\u{fffd}`, which equals no
    /// expected value.
    pub(crate) fn text(self) -> Option<&'a str> {
        match token(self.0) {
            Ok(Some((Token::Text(text), _))) => Some(utf8(text)),
            _ => None,
        }
    }

    /// Its bytes, which are equal for equal replies.
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The elements of an array; none for any other reply.
    pub(crate) fn items(self) -> Items<'a> {
        match token(self.0) {
            Ok(Some((Token::Array(left), len))) => {
                Items { rest: self.0.get(len..).unwrap_or_default(), left }
            }
            _ => Items::default(),
        }
    }

    /// A decoded copy.
    pub(crate) fn reply(self) -> Result<Reply, NotResp> {
        parse(&mut { self.0 }, 0)
    }
}

/// Text that is not UTF-8 becomes `\u{fffd}`, which equals no expected value.
fn utf8(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap_or("\u{fffd}")
}

/// The remaining elements of an array.
#[derive(Clone, Default, Debug)]
pub(crate) struct Items<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Items<'a> {
    /// Whether none is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Their bytes, which are equal for equal elements.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.rest
    }

    /// What [`Raw::text`] says of each.
    pub(crate) fn texts(mut self) -> impl Iterator<Item = Option<&'a str>> {
        std::iter::from_fn(move || match token(self.rest) {
            // Nearly all are texts, so each is decoded once.
            Ok(Some((Token::Text(text), len))) if self.left > 0 => {
                self.left -= 1;
                self.rest = self.rest.get(len..)?;
                Some(Some(utf8(text)))
            }
            _ => self.next().map(Raw::text),
        })
    }

    /// Alternating fields and values. An element that is no text counts as empty.
    pub(crate) fn pairs(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut texts = self.texts().map(Option::unwrap_or_default);
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Raw<'a>;

    fn next(&mut self) -> Option<Raw<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (mut len, mut tokens) = (0, 1);
        while tokens > 0 {
            let (token, more) = token(self.rest.get(len..)?).ok()??;
            len += more;
            tokens -= 1;
            if let Token::Array(n) = token {
                tokens += n;
            }
        }
        let (item, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(Raw(item))
    }
}

/// Encoded replies in order.
#[derive(Default, Debug)]
pub(crate) struct Replies {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Replies {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(crate) fn push(&mut self, reply: Raw<'_>) {
        self.bytes.extend_from_slice(reply.0);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Keeps the first `len` replies.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// All replies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Raw<'_>> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| Raw(&self.bytes[begin..*end]))
    }

    /// The last reply.
    pub(crate) fn last(&self) -> Option<Raw<'_>> {
        let begin = self.ends.iter().rev().nth(1).copied().unwrap_or(0);
        self.ends.last().map(|end| Raw(&self.bytes[begin..*end]))
    }
}

/// An encoded command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EncodedCommand<'a> {
    /// Its place.
    pub(crate) at: usize,
    pub(crate) name: &'a [u8],
    /// Its first argument, which is the key of most commands.
    pub(crate) key: &'a [u8],
}

/// The encoded commands in `buf`.
pub(crate) fn commands(buf: &[u8]) -> Vec<EncodedCommand<'_>> {
    let (mut all, mut at) = (Vec::new(), 0);
    let next = |at: &mut usize| {
        let (token, len) = token(buf.get(*at..)?).ok()??;
        *at += len;
        Some(token)
    };
    loop {
        let begin = at;
        let Some(Token::Array(words)) = next(&mut at) else { return all };
        let Some(Token::Text(name)) = next(&mut at) else { return all };
        let mut key: &[u8] = &[];
        for n in 1..words {
            match next(&mut at) {
                Some(Token::Text(text)) if n == 1 => key = text,
                _ => {}
            }
        }
        all.push(EncodedCommand { at: begin, name, key });
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
        Token::Array(_) if depth > MAX_DEPTH => return Err(NotResp),
        Token::Array(n) => {
            let mut items = Vec::with_capacity(n.min(rest.len()));
            for _ in 0..n {
                items.push(parse(rest, depth + 1)?);
            }
            Reply::Array(items)
        }
    })
}

/// The number of a short line of digits, such as `$12`, and the place after it; `None` for any other
/// line. Nearly all lines of a page of rows are such lines.
fn short_number(buf: &[u8]) -> Option<(usize, usize)> {
    let (mut number, mut at) = (0, 1);
    loop {
        match *buf.get(at)? {
            digit @ b'0'..=b'9' if at <= SHORT_DIGITS => number = number * 10 + usize::from(digit - b'0'),
            b'\r' if at > 1 && buf.get(at + 1) == Some(&b'\n') => return Some((number, at + 2)),
            _ => return None,
        }
        at += 1;
    }
}

/// The first token and its length in bytes, or `None` while it is incomplete.
fn token(buf: &[u8]) -> Result<Option<(Token<'_>, usize)>, NotResp> {
    match (buf.first(), short_number(buf)) {
        (Some(b'$'), Some((len, after))) => {
            if let (Some(text), Some(b"\r\n")) =
                (buf.get(after..after + len), buf.get(after + len..after + len + 2))
            {
                return Ok(Some((Token::Text(text), after + len + 2)));
            }
        }
        (Some(b'*'), Some((items, after))) => return Ok(Some((Token::Array(items), after))),
        _ => {}
    }
    any_token(buf)
}

/// The same of any token.
fn any_token(buf: &[u8]) -> Result<Option<(Token<'_>, usize)>, NotResp> {
    // Numbers and statuses contain no carriage return.
    let Some(end) = buf.iter().position(|byte| *byte == b'\r') else { return Ok(None) };
    let (Some(kind), Some(line)) = (buf.first(), buf.get(1..end)) else { return Err(NotResp) };
    match buf.get(end + 1) {
        Some(b'\n') => {}
        Some(_) => return Err(NotResp),
        None => return Ok(None),
    }
    let number = || std::str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok()).ok_or(NotResp);
    let after = end + 2;
    let token = match kind {
        b'+' => Token::Text(line),
        b'-' => Token::Error(line),
        b':' => Token::Integer(number()?),
        b'*' | b'$' => match (kind, number()?) {
            (_, -1) => Token::Nil,
            (b'*', n) => Token::Array(usize::try_from(n).map_err(|_| NotResp)?),
            (_, n) => {
                let len = usize::try_from(n).ok().filter(|len| *len <= MAX_TEXT).ok_or(NotResp)?;
                return match (buf.get(after..after + len), buf.get(after + len..after + len + 2)) {
                    (Some(text), Some(b"\r\n")) => Ok(Some((Token::Text(text), after + len + 2))),
                    (_, Some(_)) => Err(NotResp),
                    (_, None) => Ok(None),
                };
            }
        },
        _ => return Err(NotResp),
    };
    Ok(Some((token, after)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(decoder: &mut Decoder, bytes: &[u8]) {
        let read = |room: &mut [u8]| {
            room[..bytes.len()].copy_from_slice(bytes);
            Ok::<_, NotResp>(bytes.len())
        };
        decoder.fill(read).unwrap();
    }

    #[test]
    fn a_command_is_an_array_of_strings() {
        let mut out = Vec::new();
        Command::of(&["SET", "a key", ""]).finish(&mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$5\r\na key\r\n$0\r\n\r\n");
        let (mut direct, mut hgetall) = (Vec::new(), Vec::new());
        write_hgetall("a key", &mut direct);
        Command::of(&["HGETALL", "a key"]).finish(&mut hgetall);
        assert_eq!(direct, hgetall);
    }

    #[test]
    fn room_follows_what_comes_and_is_let_go_of_between_replies() {
        let text = "x".repeat(4 * READ_BYTES_MAX);
        let stream = format!("${}\r\n{text}\r\n", text.len());
        let (mut decoder, mut rest, mut rooms) = (Decoder::default(), stream.as_bytes(), Vec::new());
        while !decoder.advance().unwrap() {
            let read = |room: &mut [u8]| {
                rooms.push(room.len());
                let (now, later) = rest.split_at(room.len().min(rest.len()));
                room[..now.len()].copy_from_slice(now);
                rest = later;
                Ok::<_, NotResp>(now.len())
            };
            decoder.fill(read).unwrap();
            decoder.shrink_to_fit();
        }
        assert_eq!(decoder.current().text(), Some(&*text));
        assert_eq!((rooms.first(), rooms.iter().max()), (Some(&READ_BYTES_MIN), Some(&READ_BYTES_MAX)));
        decoder.shrink_to_fit();
        assert_eq!(decoder.buf.capacity(), 0);
        feed(&mut decoder, b":1\r\n");
        assert!(decoder.advance().unwrap() && !decoder.advance().unwrap());
        decoder.shrink_to_fit();
        assert_eq!(decoder.buf.capacity(), 0);
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
                feed(&mut decoder, piece);
                while decoder.advance().unwrap() {
                    replies.push(decoder.current().reply().unwrap());
                }
            }
            assert_eq!(replies, expected, "cut each {step} bytes");
        }
    }

    #[test]
    fn replies_are_looked_into_where_they_are() {
        let stream = b"*3\r\n$1\r\na\r\n*2\r\n$1\r\nf\r\n$2\r\nv\xff\r\n:7\r\n-ERR no\r\n";
        let (mut decoder, mut replies) = (Decoder::default(), Replies::default());
        feed(&mut decoder, stream);
        while decoder.advance().unwrap() {
            replies.push(decoder.current());
        }
        assert_eq!(replies.last().unwrap().refusal().unwrap(), "ERR no");
        let first = replies.iter().next().unwrap();
        assert_eq!((first.refusal(), first.text()), (None, None));
        let items: Vec<_> = first.items().collect();
        assert_eq!(items.len(), 3);
        assert_eq!(items[0].text(), Some("a"));
        assert_eq!(items[0].items().count(), 0);
        assert_eq!(items[1].items().pairs().collect::<Vec<_>>(), [("f", "\u{fffd}")]);
        assert_eq!(first.items().texts().collect::<Vec<_>>(), [Some("a"), None, None]);
        assert_eq!(items[2].reply(), Ok(Reply::Integer(7)));
    }

    proptest! {
        /// Lines that are nearly tokens, cut anywhere.
        #[test]
        fn short_token_is_as_any_token(
            line in "[$*:+-]{0,2}-?[0-9]{0,9}x?\r?\n?",
            text in "[a-z\r\n]{0,12}",
            end in prop_oneof![Just("\r\n"), Just("\r"), Just("")],
        ) {
            let counted = format!("${}\r\n{text}{end}", text.len());
            for stream in [format!("{line}{text}{end}"), counted] {
                for cut in 0..=stream.len() {
                    let stream = &stream.as_bytes()[..cut];
                    prop_assert_eq!(token(stream), any_token(stream), "{:?}", stream);
                }
            }
        }
    }

    #[test]
    fn other_protocols_are_refused() {
        for stream in ["HTTP/1.1 400 Bad Request\r\n", "$5\r\nabcdefg\r\n", "*x\r\n", "$99999999999\r\n"] {
            let mut decoder = Decoder::default();
            feed(&mut decoder, stream.as_bytes());
            assert_eq!(decoder.advance(), Err(NotResp), "{stream:?}");
        }
    }
}
