//! Parses a page of a list item by item. Each item is given to a [`Collect`] as soon as it is parsed, so the page is
//! never in memory as a whole.

use super::types::ListMeta;
use crate::http::Parse;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::cell::RefCell;
use std::fmt;

/// Collects the items of a list while its pages are parsed.
pub(super) trait Collect {
    type Item: for<'de> Deserialize<'de>;
    /// The `kind` of the list, for example `ServiceList`.
    const KIND: &'static str;

    /// Forgets the items that earlier tries of the current page have added, so that only the items of the earlier pages
    /// remain. A page can be requested several times until its answer is complete.
    fn begin_page(&mut self);

    fn add(&mut self, item: Self::Item);

    fn end_page(&mut self);
}

/// Parses a page of a list and adds each item to the collected items. The parsed value is the `continue` token with
/// which the next page is requested, or the reason why the answer is not a page of this list. When the answer equals an
/// earlier answer, the parser gets the JSON value `null` in place of the answer, and the parsed value is `None`.
pub(super) struct StreamedPage<'a, C>(pub(super) &'a RefCell<C>);

/// Parses the field `items` of a page.
struct Items<'a, C>(&'a RefCell<C>);

impl<C> Clone for StreamedPage<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for StreamedPage<'_, C> {}

impl<C: Collect> Parse for StreamedPage<'_, C> {
    type Value = Option<Result<String, String>>;

    fn parse<'de, D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de, C: Collect> Visitor<'de> for StreamedPage<'_, C> {
    type Value = Option<Result<String, String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {}", C::KIND)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        self.0.borrow_mut().begin_page();
        let (mut kind, mut metadata, mut has_items) = (String::new(), ListMeta::default(), false);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "kind" => kind = map.next_value()?,
                "metadata" => metadata = map.next_value()?,
                "items" => {
                    map.next_value_seed(Items(self.0))?;
                    has_items = true;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !has_items {
            return Err(serde::de::Error::missing_field("items"));
        }
        self.0.borrow_mut().end_page();
        Ok(Some(if kind == C::KIND {
            Ok(metadata.continue_token)
        } else {
            Err(format!("answered a {kind} instead of a {}", C::KIND))
        }))
    }
}

impl<'de, C: Collect> DeserializeSeed<'de> for Items<'_, C> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de, C: Collect> Visitor<'de> for Items<'_, C> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the items of a {}", C::KIND)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            self.0.borrow_mut().add(item);
        }
        Ok(())
    }
}
