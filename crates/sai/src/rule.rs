//! The rules at the end of a line of the table.

use crate::{Attribute, ObjectType};
use std::fmt;

/// The text behind `NAME=` in the rest of a line.
pub(crate) fn field(line: &'static str, name: &str) -> Option<&'static str> {
    line.split('\t').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

/// The object types that the rest of a line allows.
pub(crate) fn objects(line: &'static str) -> impl Iterator<Item = ObjectType> {
    let names = field(line, "objects").into_iter().flat_map(|names| names.split(','));
    names.filter_map(ObjectType::from_short_name)
}

/// A rule over the attributes of the same object: comparisons with `==`, joined by `and` and `or`, with parentheses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rule(pub(crate) &'static str);

impl Rule {
    /// Whether it holds. `is` says whether the object has this value of an attribute, which is written as the headers
    /// write it: `true`, `1000`, `SAI_NEXT_HOP_TYPE_IP`. An attribute that the object was not given has its default.
    pub fn holds(self, mut is: impl FnMut(Attribute, &'static str) -> bool) -> bool {
        let mut rest = self.0;
        any(&mut rest, &mut is)
    }

    /// The text of the headers.
    pub fn text(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

type Is<'a> = &'a mut dyn FnMut(Attribute, &'static str) -> bool;

/// `ALL or ALL …`
fn any(rest: &mut &'static str, is: Is<'_>) -> bool {
    let mut holds = all(rest, is);
    while skip(rest, "or") {
        holds |= all(rest, is);
    }
    holds
}

/// `ONE and ONE …`
fn all(rest: &mut &'static str, is: Is<'_>) -> bool {
    let mut holds = one(rest, is);
    while skip(rest, "and") {
        holds &= one(rest, is);
    }
    holds
}

/// `( ANY )` or `ATTRIBUTE == VALUE`.
fn one(rest: &mut &'static str, is: Is<'_>) -> bool {
    if skip(rest, "(") {
        let holds = any(rest, is);
        skip(rest, ")");
        return holds;
    }
    let name = word(rest);
    let compared = skip(rest, "==");
    let value = word(rest);
    Attribute::from_name(name).is_some_and(|attribute| compared && is(attribute, value))
}

fn skip(rest: &mut &'static str, token: &str) -> bool {
    match rest.trim_start().strip_prefix(token) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

fn word(rest: &mut &'static str) -> &'static str {
    let text = rest.trim_start();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    *rest = after;
    word
}
