//! A page of a list as the router's text: its items are printed as they came, and never become structs.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// A page.
pub(super) struct PageText<'t> {
    /// The JSON of each item, in one line.
    pub(super) items: Vec<&'t RawValue>,
    /// The cursor of the next page.
    pub(super) next: Option<String>,
}

impl<'t> PageText<'t> {
    /// The page whose field `list` has the items.
    ///
    /// # Errors
    /// `text` is no JSON object, or another field is no JSON.
    pub(super) fn new(text: &'t [u8], list: &str) -> serde_json::Result<PageText<'t>> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let page = Fields { list }.deserialize(&mut json)?;
        json.end()?;
        Ok(page)
    }
}

struct Fields<'l> {
    list: &'l str,
}

impl<'t> DeserializeSeed<'t> for Fields<'_> {
    type Value = PageText<'t>;

    fn deserialize<D: Deserializer<'t>>(self, json: D) -> Result<PageText<'t>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'t> Visitor<'t> for Fields<'_> {
    type Value = PageText<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a page of {}", self.list)
    }

    fn visit_map<A: MapAccess<'t>>(self, mut fields: A) -> Result<PageText<'t>, A::Error> {
        let mut page = PageText { items: Vec::new(), next: None };
        while let Some(name) = fields.next_key::<Cow<'t, str>>()? {
            match &*name {
                name if name == self.list => page.items = fields.next_value()?,
                "next" => page.next = fields.next_value()?,
                _ => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_text_has_items_as_they_came_and_the_cursor() {
        let text = br#"{"waiting":[1,{"a":2}],"routes":[{"prefix":"10.0.0.0/8","new field":[1]},7],"next":"routes-\u0031"}"#;
        let page = PageText::new(text, "routes").unwrap();
        let items: Vec<&str> = page.items.iter().map(|item| item.get()).collect();
        assert_eq!(items, [r#"{"prefix":"10.0.0.0/8","new field":[1]}"#, "7"]);
        assert_eq!(page.next.as_deref(), Some("routes-1"));
        let last = PageText::new(br#"{"routes":[]}"#, "routes").unwrap();
        assert!(last.items.is_empty() && last.next.is_none());
        for broken in ["[]", "{\"routes\":[", "{\"routes\":[1 2]}", "{} x", ""] {
            assert!(PageText::new(broken.as_bytes(), "routes").is_err(), "{broken}");
        }
    }
}
