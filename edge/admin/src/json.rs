//! Serialization of types whose JSON form cannot fail: they have only text keys and finite numbers.

use serde::Serialize;
use serde_json::Value;

/// Returns the value as JSON text.
pub(crate) fn json_text(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value);
    debug_assert!(text.is_ok(), "a type of this crate has no JSON form: {text:?}");
    text.unwrap_or_else(|_| "null".into())
}

/// Returns the value as JSON.
pub(crate) fn json_value(value: impl Serialize) -> Value {
    let value = serde_json::to_value(value);
    debug_assert!(value.is_ok(), "a type of this crate has no JSON form: {value:?}");
    value.unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serializes() {
        assert_eq!((json_text(&[1]), json_value([1])), ("[1]".into(), serde_json::json!([1])));
    }
}
