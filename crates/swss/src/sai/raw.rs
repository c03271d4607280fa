//! Attributes, values and keys outside of the route path: text in which only object ids are
//! understood, because syncd translates them.

use super::{Oid, model};
use crate::row::Name;
use std::fmt;

/// Stands for an object id in [`RawText`]. SAI's texts are printable.
const PLACE: char = '\u{1}';
/// How the text of an object id begins.
const OID: &str = "oid:0x";

/// A text with object ids in it, as sairedis formats values and keys: `oid:0x1000000000002`,
/// `2:oid:0x1,oid:0x0`, `{"bvid":"oid:0x26…","mac":"…","switch_id":"oid:0x21…"}`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RawText {
    /// The text with [`PLACE`] for each object id.
    text: Name,
    oids: Box<[Oid]>,
}

impl RawText {
    /// Finds the object ids of a text. One that [`Oid::format`] would write differently stays text.
    pub fn read(text: &str) -> RawText {
        let verbatim = |text: &str| RawText { text: text.into(), oids: Box::default() };
        if !text.contains(OID) || text.contains(PLACE) {
            return verbatim(text);
        }
        let (mut out, mut oids, mut rest) = (String::with_capacity(text.len()), Vec::new(), text);
        while let Some(at) = rest.find(OID) {
            let (before, from) = rest.split_at(at);
            let digits = &from[OID.len()..];
            let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
            let (oid, after) = from.split_at(OID.len() + end);
            out.push_str(before);
            match canonical(oid) {
                Some(known) => {
                    oids.push(known);
                    out.push(PLACE);
                }
                None => out.push_str(oid),
            }
            rest = after;
        }
        out.push_str(rest);
        RawText { text: out.into(), oids: oids.into() }
    }

    /// A text without object ids.
    pub fn plain(text: &str) -> RawText {
        RawText { text: text.into(), oids: Box::default() }
    }

    /// The object ids, in the order of the text.
    pub fn oids(&self) -> &[Oid] {
        &self.oids
    }

    /// The object ids, for translation.
    pub fn oids_mut(&mut self) -> &mut [Oid] {
        &mut self.oids
    }

    /// Whether the text is one object id and nothing else.
    pub fn is_single(&self) -> bool {
        self.oids.len() == 1 && self.text.chars().eq([PLACE])
    }

    /// Appends the text.
    pub fn write(&self, out: &mut String) {
        if self.oids.is_empty() {
            return out.push_str(&self.text);
        }
        let mut oids = self.oids.iter();
        for (n, part) in self.text.split(PLACE).enumerate() {
            if n > 0
                && let Some(oid) = oids.next()
            {
                oid.format(out);
            }
            out.push_str(part);
        }
    }
}

impl fmt::Display for RawText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(&out)
    }
}

/// The object id of a text that is formatted as [`Oid::format`] does.
fn canonical(text: &str) -> Option<Oid> {
    let oid = super::text::read_oid(text)?;
    let mut again = String::new();
    oid.format(&mut again);
    (again == text).then_some(oid)
}

/// An attribute with a value as text.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RawAttr {
    name: Name,
    value: RawText,
}

impl RawAttr {
    /// An attribute of this name; an alias of SAI's headers becomes the name. Text of a user, such as
    /// the name of a host interface, never names an object.
    pub fn new(name: &str, value: &str) -> RawAttr {
        let name = model::canonical_name(name);
        let value = if model::is_free_text(name) { RawText::plain(value) } else { RawText::read(value) };
        RawAttr { name: name.into(), value }
    }

    /// SAI's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    pub fn value(&self) -> &RawText {
        &self.value
    }

    /// The object ids in the value, for translation.
    pub fn oids_mut(&mut self) -> &mut [Oid] {
        self.value.oids_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_ids_are_found_and_the_text_is_kept() {
        for (text, count) in [
            ("oid:0x1000000000002", 1),
            ("3:oid:0x1000000000002,oid:0x0,oid:0xffffffffffffffff", 3),
            (
                r#"{"bvid":"oid:0x26000000000567","mac":"02:00:00:00:00:01","switch_id":"oid:0x21000000000000"}"#,
                2,
            ),
            ("Ethernet0", 0),
            ("oid:0x", 0),
            ("oid:0x00ab oid:0xAB oid:0xab", 1),
            ("oid:0x11111111111111111", 0),
            ("\u{1}oid:0x1", 0),
            ("oid:0xoid:0x1oid:0x", 1),
            ("", 0),
        ] {
            let mut raw = RawText::read(text);
            assert_eq!((raw.oids().len(), raw.to_string()), (count, text.into()), "{text}");
            raw.oids_mut().fill(Oid(7));
            assert_eq!(raw.to_string().matches("oid:0x7").count(), count, "{text}");
        }
    }
}
