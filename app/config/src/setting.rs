//! The value of a key, with its type, and where it comes from.
//!
//! Values from a file, a variable and the API all arrive as JSON: each type is read, checked and
//! shown in one place.

use net::tls::CertificateFiles;
use serde_json::{Value as Json, json};
use std::fmt::Display;
use tracker::Networks;

use super::choices::Choice;
use super::features;
use super::key::{Key, Kind, Origin, Problem};

#[derive(Clone, Debug)]
pub(crate) struct Setting<T> {
    pub(crate) key: &'static Key,
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Setting<T> {
    pub(super) fn by_default(key: &'static Key, value: T) -> Self {
        Self { key, value, origin: Origin::Default }
    }

    pub(super) fn problem(&self, text: impl AsRef<str>) -> Problem {
        Problem::new(&self.origin, format!("{}: {}", self.key.name, text.as_ref()))
    }

    pub(super) fn item_problem(&self, item: &str, text: &str) -> Problem {
        self.problem(format!("`{item}`: {text}"))
    }

    pub(super) fn is_default(&self) -> bool {
        self.origin == Origin::Default
    }
}

impl Setting<u32> {
    pub(super) fn size(&self) -> usize {
        self.value as usize
    }
}

pub(crate) trait AnySetting {
    fn key(&self) -> &'static Key;
    fn origin(&self) -> &Origin;
    fn json(&self) -> Json;
    /// Replaces the value if the key accepts the new one. The error says what is wrong, and begins
    /// with the key's name.
    fn set(&mut self, value: &Json, origin: Origin) -> Result<(), String>;
}

impl<T: SettingValue> AnySetting for Setting<T> {
    fn key(&self) -> &'static Key {
        self.key
    }

    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn json(&self) -> Json {
        self.value.to_json()
    }

    fn set(&mut self, value: &Json, origin: Origin) -> Result<(), String> {
        let Some(accepted) = T::from_json(value, self.key.kind) else {
            let text = refusal(self.key.kind, value);
            return Err(format!("{}: {text}", self.key.name));
        };
        if accepted.to_json() != self.json() {
            features::check(self.key.name, value)?;
        }
        (self.value, self.origin) = (accepted, origin);
        Ok(())
    }
}

pub(super) trait SettingValue: Sized {
    /// Returns the value if it has the right type and is within the bounds of `kind`.
    fn from_json(value: &Json, kind: Kind) -> Option<Self>;
    fn to_json(&self) -> Json;
}

impl SettingValue for u32 {
    fn from_json(value: &Json, kind: Kind) -> Option<Self> {
        let value = Self::try_from(value.as_u64()?).ok()?;
        match kind {
            Kind::Int(low, high) if !(low..=high).contains(&value) => None,
            _ => Some(value),
        }
    }

    fn to_json(&self) -> Json {
        json!(self)
    }
}

/// `None` is "auto".
impl SettingValue for Option<u32> {
    fn from_json(value: &Json, kind: Kind) -> Option<Self> {
        if value == "auto" {
            return Some(None);
        }
        let Kind::AutoInt(low, high) = kind else { return None };
        u32::from_json(value, Kind::Int(low, high)).map(Some)
    }

    fn to_json(&self) -> Json {
        self.map_or_else(|| json!("auto"), |value| json!(value))
    }
}

impl SettingValue for bool {
    fn from_json(value: &Json, _: Kind) -> Option<Self> {
        value.as_bool()
    }

    fn to_json(&self) -> Json {
        json!(self)
    }
}

impl SettingValue for String {
    fn from_json(value: &Json, _: Kind) -> Option<Self> {
        value.as_str().map(Self::from)
    }

    fn to_json(&self) -> Json {
        json!(self)
    }
}

impl SettingValue for Vec<String> {
    fn from_json(value: &Json, _: Kind) -> Option<Self> {
        value.as_array()?.iter().map(|item| item.as_str().map(String::from)).collect()
    }

    fn to_json(&self) -> Json {
        json!(self)
    }
}

impl SettingValue for Vec<CertificateFiles> {
    fn from_json(value: &Json, _: Kind) -> Option<Self> {
        let files = |item: &Json| {
            let table = item.as_object().filter(|table| table.len() == 2)?;
            let path = |name| table.get(name)?.as_str();
            Some(CertificateFiles { chain: path("chain")?.into(), key: path("key")?.into() })
        };
        value.as_array()?.iter().map(files).collect()
    }

    fn to_json(&self) -> Json {
        // Both paths were read from text.
        let table = |files: &CertificateFiles| json!({ "chain": files.chain.to_string_lossy(), "key": files.key.to_string_lossy() });
        self.iter().map(table).collect()
    }
}

impl<T: Choice> SettingValue for T {
    fn from_json(value: &Json, _: Kind) -> Option<Self> {
        Self::from_word(value.as_str()?)
    }

    fn to_json(&self) -> Json {
        json!(self.word())
    }
}

impl Setting<Vec<String>> {
    /// Converts each item. The error of `parse` says what was expected.
    pub(super) fn items<T, E: Display>(
        &self,
        problems: &mut Vec<Problem>,
        mut parse: impl FnMut(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let mut items = Vec::new();
        for text in &self.value {
            match parse(text) {
                Ok(item) => items.push(item),
                Err(expected) => problems.push(self.item_problem(text, &expected.to_string())),
            }
        }
        items
    }
}

pub(super) fn networks(list: &Setting<Vec<String>>, problems: &mut Vec<Problem>) -> Networks {
    let networks = Networks::parse(list.value.iter().map(String::as_str));
    networks.unwrap_or_else(|error| {
        problems.push(list.problem(error.to_string()));
        Networks::default()
    })
}

pub(super) fn refusal(kind: Kind, found: &Json) -> String {
    let expected = match kind {
        Kind::Int(low, high) | Kind::AutoInt(low, high) if found.is_number() => {
            return format!("must be between {low} and {high}, found {found}");
        }
        Kind::Int(low, high) => format!("an integer from {low} to {high}"),
        Kind::AutoInt(low, high) => format!("\"auto\" or an integer from {low} to {high}"),
        Kind::Flag => "true or false".into(),
        Kind::Text => "a string".into(),
        Kind::Choice(words) => format!("one of {}", words.join(", ")),
        Kind::List => "a list of strings".into(),
        Kind::Certificates => r#"a list of tables { chain = "FILE", key = "FILE" }"#.into(),
    };
    // Dates and infinities, which no key accepts.
    let found = if found.is_null() { "a value of another type".into() } else { toml(found) };
    format!("expected {expected}, found {found}")
}

pub(crate) fn toml(value: &Json) -> String {
    toml::Value::try_from(value).map_or_else(|_| value.to_string(), |value| value.to_string())
}
