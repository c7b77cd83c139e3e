//! YAML as values with their lines. Plain words are typed as in YAML 1.1, which Go's yaml.v2 reads.

use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::Value;

use crate::error::{ImportError, Place};

/// Maps and lists within each other.
const DEPTH_MAX: usize = 32;

/// A value and its line.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) line: u64,
    pub(crate) content: Content,
}

/// The content of a value.
#[derive(Debug)]
pub(crate) enum Content {
    Scalar(Value),
    Map(Vec<(String, Node)>),
    List(Vec<Node>),
}

impl Node {
    pub(crate) fn is_scalar(&self) -> bool {
        matches!(self.content, Content::Scalar(_))
    }

    /// Returns the scalar; null for a map or list.
    pub(crate) fn into_scalar(self) -> Value {
        match self.content {
            Content::Scalar(value) => value,
            Content::Map(_) | Content::List(_) => Value::Null,
        }
    }
}

/// Checks a text, for the fuzzer.
///
/// # Errors
///
/// Returns what is wrong with it.
pub fn check(text: &str) -> Result<(), ImportError> {
    parse(&"yaml".into(), text).map(drop)
}

/// Parses the first document of `text`; an empty one is an empty map.
pub(crate) fn parse(file: &Arc<str>, text: &str) -> Result<Node, ImportError> {
    let mut reader = Reader { file, parser: Parser::new_from_str(text) };
    loop {
        match reader.next()? {
            None | Some((Event::StreamEnd, _)) => {
                return Ok(Node { line: 1, content: Content::Map(Vec::new()) });
            }
            Some((Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _)) => {}
            Some((event, line)) => return reader.node(event, line, 0),
        }
    }
}

struct Reader<'a> {
    file: &'a Arc<str>,
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, u64)>, ImportError> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, span))) => Ok(Some((event, span.start.line() as u64))),
            Some(Err(error)) => {
                let text = format!("invalid YAML: {}", error.info());
                Err(self.error(error.marker().line() as u64, &text))
            }
        }
    }

    fn error(&self, line: u64, text: &str) -> ImportError {
        Place { file: Arc::clone(self.file), line }.error(text)
    }

    fn node(&mut self, event: Event<'a>, line: u64, depth: usize) -> Result<Node, ImportError> {
        if depth > DEPTH_MAX {
            return Err(self.error(line, "expected at most 32 levels of lists and maps"));
        }
        let content = match event {
            Event::Scalar(text, style, ..) => Content::Scalar(scalar(&text, style)),
            Event::SequenceStart(..) => Content::List(self.list(depth)?),
            Event::MappingStart(..) => Content::Map(self.map(depth)?),
            // Aliases of aliases could stand for billions of values.
            Event::Alias(_) => {
                return Err(self.error(line, "expected a value, found a YAML alias: write it out"));
            }
            _ => return Err(self.error(line, "expected a value")),
        };
        Ok(Node { line, content })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, ImportError> {
        let mut items = Vec::new();
        while let Some((event, line)) = self.next()? {
            if event == Event::SequenceEnd {
                break;
            }
            items.push(self.node(event, line, depth + 1)?);
        }
        Ok(items)
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(String, Node)>, ImportError> {
        let mut members = Vec::new();
        while let Some((event, line)) = self.next()? {
            let name = match event {
                Event::MappingEnd => break,
                Event::Scalar(name, ..) => name.into_owned(),
                _ => return Err(self.error(line, "expected a word as the name of a key")),
            };
            let Some((event, at)) = self.next()? else {
                return Err(self.error(line, "expected a value, found the end of the file"));
            };
            // The line of the name: a value may begin on the next one.
            let mut node = self.node(event, at, depth + 1)?;
            node.line = line;
            members.push((name, node));
        }
        Ok(members)
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::String(text.into());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        _ => {
            let number = text.bytes().next().is_some_and(|it| it.is_ascii_digit() || it == b'-');
            let integer = text.parse::<i64>().ok().filter(|_| number).map(Value::from);
            let float = || text.parse::<f64>().ok().filter(|_| number).map(Value::from);
            integer.or_else(float).unwrap_or_else(|| Value::String(text.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(&"f".into(), text).unwrap_err().0
    }

    #[test]
    fn types_plain_words_only() {
        let node = parse(&"f".into(), "[30m, \"1\", 1, -2.5, on, ~, 1e, 'no']").unwrap();
        let Content::List(items) = node.content else { panic!("a list") };
        let values: Vec<String> =
            items.into_iter().map(|item| item.into_scalar().to_string()).collect();
        assert_eq!(values, ["\"30m\"", "\"1\"", "1", "-2.5", "true", "null", "\"1e\"", "\"no\""]);
    }

    #[test]
    fn refuses_what_could_grow() {
        assert_eq!(
            error("a: &x [1]\nb: *x\n"),
            "f:2: expected a value, found a YAML alias: write it out"
        );
        let deep = "[".repeat(40) + &"]".repeat(40);
        assert!(error(&deep).ends_with("at most 32 levels of lists and maps"));
        assert!(error("a: b: c").starts_with("f:1: invalid YAML"));
        assert!(error("? [a]\n: b").ends_with("expected a word as the name of a key"));
    }

    #[test]
    fn an_empty_file_is_an_empty_map() {
        for text in ["", "# note\n", "---\n...\n"] {
            let node = parse(&"f".into(), text).unwrap();
            let is_empty = match node.content {
                Content::Map(members) => members.is_empty(),
                Content::Scalar(value) => value.is_null(),
                Content::List(_) => false,
            };
            assert!(is_empty, "{text:?}");
        }
    }
}
