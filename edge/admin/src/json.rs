//! Serialization of types whose JSON form cannot fail: they have only text keys and finite numbers.

use serde::Serialize;

pub(crate) fn json_text(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value);
    debug_assert!(text.is_ok(), "a type of this crate has no JSON form: {text:?}");
    text.unwrap_or_else(|_| "null".into())
}

/// Deserializes null as `Some(None)`, to tell it from an absent field.
pub(crate) fn nullable<'de, T: serde::Deserialize<'de>, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}
