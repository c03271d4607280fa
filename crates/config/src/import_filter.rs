//! Prefixes and attributes that are refused from neighbours before any policy: martians, discarded
//! attributes.

use super::check::{Checker, SettingKey};
use super::diagnosis::{Step, key};
use super::file;
use ribtide_bgp::ingest::Martians;
use ribtide_wire::bgp::attribute::{code_of, name};
use ribtide_wire::bgp::update::{AttributeFilter, CodeSet};

impl Checker {
    /// The list of martians at `at`.
    pub(super) fn martians(&mut self, at: &[Step], texts: &[String]) -> Martians {
        let mut ranges = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            match text.parse() {
                Ok(range) => ranges.push(range),
                Err(message) => self.problem(&[at, key![i]].concat(), message),
            }
        }
        Martians::new(ranges)
    }

    /// The lists of attributes of a neighbour, with where each is.
    pub(super) fn attribute_filter(
        &mut self,
        (discard, discard_at): (Option<&Vec<file::AttributeName>>, SettingKey<'_>),
        (withdraw, withdraw_at): (Option<&Vec<file::AttributeName>>, SettingKey<'_>),
    ) -> AttributeFilter {
        let filter = AttributeFilter {
            discard: self.attributes(&discard_at, discard),
            withdraw: self.attributes(&withdraw_at, withdraw),
        };
        for (i, attribute) in withdraw.into_iter().flatten().enumerate() {
            if let Some(code) = code(attribute).filter(|code| filter.discard.contains(*code)) {
                let named = name(code).map_or_else(|| format!("attribute {code}"), Into::into);
                let message = format!(
                    "{named} is in discard-attributes too: it cannot be left out and take its routes along; remove it \
                     from one of the two"
                );
                self.problem(&[&withdraw_at.key(), &key![i][..]].concat(), message);
            }
        }
        filter
    }

    /// The list of attributes at `at`, if there is one.
    fn attributes(&mut self, at: &SettingKey<'_>, list: Option<&Vec<file::AttributeName>>) -> CodeSet {
        let mut codes = CodeSet::default();
        for (i, attribute) in list.into_iter().flatten().enumerate() {
            let code = code(attribute);
            let message = match (code, attribute) {
                (Some(code), _) if AttributeFilter::NEVER.contains(&code) => format!(
                    "{} cannot be left out: without it a route cannot be used, or a loop not be found; refuse the \
                     routes with an import policy instead",
                    name(code).unwrap_or_default()
                ),
                (Some(code), _) => {
                    codes.insert(code);
                    continue;
                }
                (None, file::AttributeName::Name(name)) => format!(
                    "\"{name}\" is no path attribute; write its code, 1 to 255, or a name such as \"otc\" or \
                     \"large-communities\""
                ),
                (None, file::AttributeName::Code(_)) => "0 is no path attribute; write 1 to 255".into(),
            };
            self.problem(&[&at.key(), &key![i][..]].concat(), message);
        }
        codes
    }
}

fn code(attribute: &file::AttributeName) -> Option<u8> {
    match attribute {
        file::AttributeName::Code(code) => Some(*code).filter(|code| *code != 0),
        file::AttributeName::Name(name) => code_of(name),
    }
}
