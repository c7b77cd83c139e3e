//! A configuration of tidegate in the making: each key with its value and where that comes from.

use serde_json::{Value, json};

use crate::error::Place;

/// A configuration in the making.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The keys of the sections.
    pub keys: Vec<DraftKey>,
    /// The `[[listener]]` tables.
    pub listeners: Vec<DraftListener>,
    /// Keys and settings without a counterpart here.
    pub without: Vec<Without>,
}

/// A key, its value and why it has that.
#[derive(Clone, Debug)]
pub struct DraftKey {
    /// `section.key`.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
    /// Comments in the lines above it.
    pub comments: Vec<String>,
    /// True if it holds. Otherwise it is written as a comment.
    pub is_active: bool,
}

/// A `[[listener]]` table.
#[derive(Clone, Debug)]
pub struct DraftListener {
    /// `udp`, `http` or `tls`.
    pub protocol: &'static str,
    /// Its addresses.
    pub listen: Vec<String>,
    /// The keys that it overrides.
    pub keys: Vec<DraftKey>,
    /// Comments in the lines above it.
    pub comments: Vec<String>,
}

/// A key of the other tracker that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Without {
    /// Its name there.
    pub theirs: String,
    /// Where it is.
    pub place: Place,
    /// Why.
    pub reason: String,
}

impl Draft {
    /// Sets a key. If it has another value already, that stays, and a comment says so.
    pub(crate) fn set(&mut self, name: &'static str, value: Value, comment: impl Into<String>) {
        let comment = comment.into();
        let Some(key) = self.find(name) else {
            return self.keys.push(DraftKey::new(name, value, comment));
        };
        key.comments.push(if key.value == value {
            comment
        } else {
            format!(
                "{comment} That is {value}: tidegate has one value for all, and keeps the first."
            )
        });
    }

    /// Adds an item to a key that is a list, once.
    pub(crate) fn push(&mut self, name: &'static str, item: &str, comment: impl Into<String>) {
        let comment = comment.into();
        let Some(key) = self.find(name) else {
            return self.set(name, json!([item]), comment);
        };
        if let Value::Array(items) = &mut key.value
            && !items.iter().any(|other| other == item)
        {
            items.push(json!(item));
        }
        if !key.comments.contains(&comment) {
            key.comments.push(comment);
        }
    }

    /// Writes a key as a comment, for the reader to decide.
    pub(crate) fn suggest(&mut self, name: &'static str, value: Value, comment: impl Into<String>) {
        let comments = vec![comment.into()];
        self.keys.push(DraftKey { name, value, comments, is_active: false });
    }

    /// Notes a key that was not taken.
    pub(crate) fn without(&mut self, theirs: &str, place: &Place, reason: impl Into<String>) {
        let (theirs, reason) = (theirs.to_owned(), reason.into());
        self.without.push(Without { theirs, place: place.clone(), reason });
    }

    /// Sets a key unless it has a value.
    pub(crate) fn set_default(&mut self, name: &'static str, value: Value, comment: &str) {
        if self.find(name).is_none() {
            self.set(name, value, comment);
        }
    }

    /// Returns the key of this name that holds.
    pub(crate) fn find(&mut self, name: &str) -> Option<&mut DraftKey> {
        self.keys.iter_mut().find(|key| key.is_active && key.name == name)
    }
}

impl DraftKey {
    /// Returns a key that holds.
    pub(crate) fn new(name: &'static str, value: Value, comment: impl Into<String>) -> Self {
        Self { name, value, comments: vec![comment.into()], is_active: true }
    }
}
