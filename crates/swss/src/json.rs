//! The little JSON that SONiC's messages use: arrays of strings, and flat objects of strings.
//!
//! Written byte for byte as SONiC's own writer does (compact, UTF-8 as it is, control characters escaped), because
//! the text of an object is its identity in ASIC_DB.

use std::borrow::Cow;
use std::fmt::Write;

/// Appends one string, quoted.
pub fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[plain..at]);
        plain = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            // Writing to a String cannot fail.
            _ => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

/// Appends an array of strings.
pub fn write_strings<'a>(items: impl Iterator<Item = &'a str>, out: &mut String) {
    out.push('[');
    for (n, item) in items.enumerate() {
        if n > 0 {
            out.push(',');
        }
        write_string(item, out);
    }
    out.push(']');
}

/// The strings of an array; `None` when the text is not an array of strings and nothing else.
pub fn read_strings(text: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut reader = Reader { rest: text.trim_start().strip_prefix('[')? };
    let mut items = Vec::new();
    if reader.eat(']') {
        return reader.end().then_some(items);
    }
    loop {
        items.push(reader.string()?);
        if reader.eat(']') {
            return reader.end().then_some(items);
        }
        if !reader.eat(',') {
            return None;
        }
    }
}

/// The names and values of a flat object of strings; `None` when the text is not one and nothing else.
pub fn read_object(text: &str) -> Option<Fields<'_>> {
    let mut reader = Reader { rest: text.trim_start().strip_prefix('{')? };
    let items = reader.object()?;
    reader.end().then_some(items)
}

/// The names and values of a flat object.
pub type Fields<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// The flat objects of strings of an array; `None` when the text is not one and nothing else.
pub fn read_objects(text: &str) -> Option<Vec<Fields<'_>>> {
    let mut reader = Reader { rest: text.trim_start().strip_prefix('[')? };
    let mut objects = Vec::new();
    if reader.eat(']') {
        return reader.end().then_some(objects);
    }
    loop {
        if !reader.eat('{') {
            return None;
        }
        objects.push(reader.object()?);
        if reader.eat(']') {
            return reader.end().then_some(objects);
        }
        if !reader.eat(',') {
            return None;
        }
    }
}

/// Bytes that a string with escapes usually has at most: a route's key.
const ROOM: usize = 128;

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn eat(&mut self, token: char) -> bool {
        // SONiC's writers put nothing in between.
        match self.rest.strip_prefix(token).or_else(|| self.rest.trim_start().strip_prefix(token)) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn end(&self) -> bool {
        self.rest.trim_end().is_empty()
    }

    /// The rest of a flat object of strings, after its opening brace.
    fn object(&mut self) -> Option<Fields<'a>> {
        let mut items = Vec::new();
        if self.eat('}') {
            return Some(items);
        }
        loop {
            let name = self.string()?;
            if !self.eat(':') {
                return None;
            }
            items.push((name, self.string()?));
            if self.eat('}') {
                return Some(items);
            }
            if !self.eat(',') {
                return None;
            }
        }
    }

    /// The next string, which is where it stands when nothing in it is escaped.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        if !self.eat('"') {
            return None;
        }
        let mut out = String::new();
        loop {
            let stop = self.rest.bytes().position(|byte| matches!(byte, b'"' | b'\\'))?;
            let (plain, rest) = self.rest.split_at(stop);
            if let Some(rest) = rest.strip_prefix('"') {
                self.rest = rest;
                if out.is_empty() {
                    return Some(plain.into());
                }
                out.push_str(plain);
                return Some(out.into());
            }
            if out.is_empty() {
                out.reserve(ROOM);
            }
            out.push_str(plain);
            let mut chars = rest[1..].chars();
            match chars.next()? {
                c @ ('"' | '\\' | '/') => out.push(c),
                'b' => out.push('\u{8}'),
                'f' => out.push('\u{c}'),
                'n' => out.push('\n'),
                'r' => out.push('\r'),
                't' => out.push('\t'),
                'u' => {
                    let high = hex4(&mut chars)?;
                    let code = if (0xd800..0xdc00).contains(&high) {
                        let low =
                            (chars.next()? == '\\' && chars.next()? == 'u').then(|| hex4(&mut chars))??;
                        0x1_0000 + ((high - 0xd800) << 10) + low.checked_sub(0xdc00)?
                    } else {
                        high
                    };
                    out.push(char::from_u32(code)?);
                }
                _ => return None,
            }
            self.rest = chars.as_str();
        }
    }
}

fn hex4(chars: &mut std::str::Chars<'_>) -> Option<u32> {
    let mut code = 0;
    for _ in 0..4 {
        code = code * 16 + chars.next()?.to_digit(16)?;
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_that_is_not_an_array_of_strings_is_refused() {
        for text in ["", "[", "[\"a\"", "[\"a\",]", "[1]", "[\"a\"] x", "{}", "[\"\\q\"]", "[\"\\ud800\"]"] {
            assert_eq!(read_strings(text), None, "{text}");
        }
        assert_eq!(read_strings(" [ \"a\" , \"\\u0041\\ud83d\\ude00\" ] ").unwrap(), ["a", "A😀"]);
        assert_eq!(read_strings("[]").unwrap(), Vec::<&str>::new());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(items in proptest::collection::vec(any::<String>(), 0..5)) {
            let mut text = String::new();
            write_strings(items.iter().map(String::as_str), &mut text);
            prop_assert_eq!(read_strings(&text).unwrap(), items);
        }

        #[test]
        fn no_text_panics(text in "[\\[\\]{}\",:a\\\\u0-9d ]*") {
            let _ = read_strings(&text);
            let _ = read_object(&text);
            let _ = read_objects(&text);
        }
    }
}
