//! A configuration file as keys with their values and lines, whatever its format.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use crate::error::{ImportError, Place};
use crate::yaml::{self, Content, Node};

/// Keys in a file. The largest configuration has some two hundred.
const KEYS_MAX: usize = 10_000;

/// The keys of a file. Those of tables are paths with dots; items of lists of tables have a number, as in
/// `servers[0].port`.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) file: Arc<str>,
    /// A key may be there more than once in formats that permit it.
    entries: BTreeMap<String, Vec<(Value, u64)>>,
    count: usize,
}

/// A key with its value and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) path: String,
    pub(crate) value: Value,
    pub(crate) place: Place,
}

impl Document {
    fn new(file: &Arc<str>) -> Self {
        Self { file: Arc::clone(file), entries: BTreeMap::new(), count: 0 }
    }

    /// Parses TOML.
    pub(crate) fn toml(file: &Arc<str>, text: &str) -> Result<Self, ImportError> {
        let lines = Lines::new(text);
        let root = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(0, |span| lines.of(span.start));
            Place { file: Arc::clone(file), line }.error(error.message())
        })?;
        let content = toml_table(root.get_ref(), &lines);
        Self::of_tree(file, Node { line: 1, content })
    }

    /// Parses YAML.
    pub(crate) fn yaml(file: &Arc<str>, text: &str) -> Result<Self, ImportError> {
        Self::of_tree(file, yaml::parse(file, text)?)
    }

    /// Parses JSON. Its keys have no lines: their paths say where they are.
    pub(crate) fn json(file: &Arc<str>, text: &str) -> Result<Self, ImportError> {
        let root: Value = serde_json::from_str(text).map_err(|error| {
            let line = error.line() as u64;
            let text = error.to_string();
            let text = text.split(" at line ").next().unwrap_or_default();
            Place { file: Arc::clone(file), line }.error(format_args!("invalid JSON: {text}"))
        })?;
        Self::of_tree(file, Node { line: 0, content: json_content(root) })
    }

    /// Returns the keys of a tree.
    fn of_tree(file: &Arc<str>, root: Node) -> Result<Self, ImportError> {
        let mut document = Self::new(file);
        document.add_tree("", root)?;
        Ok(document)
    }

    fn add_tree(&mut self, path: &str, node: Node) -> Result<(), ImportError> {
        match node.content {
            Content::Scalar(value) => self.add(path, value, node.line),
            Content::Map(members) => members
                .into_iter()
                .try_for_each(|(name, value)| self.add_tree(&join(path, &name), value)),
            Content::List(items) if items.iter().all(Node::is_scalar) => {
                let values = items.into_iter().map(Node::into_scalar).collect();
                self.add(path, Value::Array(values), node.line)
            }
            Content::List(items) => (0..).zip(items).try_for_each(|(number, item): (usize, _)| {
                self.add_tree(&format!("{path}[{number}]"), item)
            }),
        }
    }

    /// Parses lines of a key, `separator` and a value; without a separator, of a key, blanks and a value. `#`
    /// starts a comment line. Quotes around a value are removed, and so is `export` before a key.
    pub(crate) fn lines(
        file: &Arc<str>,
        text: &str,
        separator: Option<char>,
    ) -> Result<Self, ImportError> {
        let mut document = Self::new(file);
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let parts = match separator {
                Some(separator) => text.split_once(separator),
                None => Some(text.split_once(char::is_whitespace).unwrap_or((text, ""))),
            };
            let Some((key, value)) = parts else {
                let place = Place { file: Arc::clone(file), line };
                let separator = separator.unwrap_or(' ');
                return Err(place.error(format_args!("expected a key, `{separator}` and a value")));
            };
            let key = key.trim();
            let key = key.strip_prefix("export ").unwrap_or(key).trim();
            document.add(key, Value::String(unquoted(value.trim()).into()), line)?;
        }
        Ok(document)
    }

    /// Parses the options of a command line, which begin with one or two hyphens. `switches` have no value, and
    /// are false with `no-` before their name. Everything before the first option is ignored.
    pub(crate) fn command_line(
        file: &Arc<str>,
        text: &str,
        switches: &[&str],
    ) -> Result<Self, ImportError> {
        let mut words = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split(" #").next().unwrap_or(text).trim().trim_end_matches('\\');
            if !text.starts_with('#') {
                let plain = |word: &str| word.trim_matches(['"', '\'']).to_owned();
                words.extend(text.split_whitespace().map(|word| (plain(word), line)));
            }
        }
        let mut words = words.into_iter().skip_while(|(word, _)| !word.starts_with('-')).peekable();
        let mut document = Self::new(file);
        while let Some((word, line)) = words.next() {
            let Some(name) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                continue;
            };
            let negated = name.strip_prefix("no-").filter(|name| switches.contains(name));
            let (name, value) = match (name.split_once('='), negated) {
                (Some((name, value)), _) => (name, Value::String(value.into())),
                (None, Some(name)) => (name, Value::Bool(false)),
                (None, None) if switches.contains(&name) => (name, Value::Bool(true)),
                (None, None) => match words.next_if(|(next, _)| !next.starts_with('-')) {
                    Some((value, _)) => (name, Value::String(value)),
                    None => (name, Value::Bool(true)),
                },
            };
            document.add(name, value, line)?;
        }
        Ok(document)
    }

    /// Moves the values of a key to those of another one.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if let Some(values) = self.entries.remove(from) {
            self.entries.entry(to.into()).or_default().extend(values);
        }
    }

    fn add(&mut self, path: &str, value: Value, line: u64) -> Result<(), ImportError> {
        self.count += 1;
        if self.count > KEYS_MAX {
            let place = Place { file: Arc::clone(&self.file), line };
            return Err(place.error(format_args!("expected at most {KEYS_MAX} keys")));
        }
        self.entries.entry(path.into()).or_default().push((value, line));
        Ok(())
    }

    /// Removes a key and returns it; the last one, if there are several.
    pub(crate) fn take(&mut self, path: &str) -> Option<Found> {
        self.take_all(path).pop()
    }

    /// Removes all keys of this path.
    pub(crate) fn take_all(&mut self, path: &str) -> Vec<Found> {
        let values = self.entries.remove(path).unwrap_or_default();
        values.into_iter().map(|(value, line)| self.found(path, value, line)).collect()
    }

    fn found(&self, path: &str, value: Value, line: u64) -> Found {
        Found { path: path.into(), value, place: Place { file: Arc::clone(&self.file), line } }
    }

    /// Returns whether a key is there.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.entries.contains_key(path)
    }

    pub(crate) fn has_below(&self, path: &str) -> bool {
        self.entries
            .keys()
            .any(|key| key.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
    }

    /// Returns the paths of the items of a list of tables.
    pub(crate) fn items(&self, path: &str) -> Vec<String> {
        let mut numbers: Vec<usize> = self
            .entries
            .keys()
            .filter_map(|key| {
                key.strip_prefix(path)?.strip_prefix('[')?.split_once(']')?.0.parse().ok()
            })
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| format!("{path}[{number}]")).collect()
    }

    /// Returns the keys that are left.
    pub(crate) fn rest(&self) -> Vec<Found> {
        let all = self.entries.iter();
        all.flat_map(|(path, values)| {
            values.iter().map(move |(value, line)| self.found(path, value.clone(), *line))
        })
        .collect()
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Removes a pair of quotes around a value, or a comment behind it.
fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some((inside, rest)) = value.strip_prefix(quote).and_then(|it| it.split_once(quote))
            && (rest.trim().is_empty() || rest.trim_start().starts_with('#'))
        {
            return inside;
        }
    }
    value.split_once(" #").map_or(value, |(value, _)| value.trim_end())
}

/// Returns the keys of a table of TOML, with the lines of their names.
fn toml_table(table: &DeTable<'_>, lines: &Lines) -> Content {
    let members = table.iter().map(|(name, value)| {
        let line = lines.of(name.span().start);
        (name.get_ref().to_string(), Node { line, content: toml_content(value.get_ref(), lines) })
    });
    Content::Map(members.collect())
}

fn toml_content(value: &DeValue<'_>, lines: &Lines) -> Content {
    match value {
        DeValue::Table(table) => toml_table(table, lines),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| {
                let line = lines.of(item.span().start);
                Node { line, content: toml_content(item.get_ref(), lines) }
            });
            Content::List(items.collect())
        }
        DeValue::Integer(value) => {
            let number = i64::from_str_radix(value.as_str(), value.radix());
            Content::Scalar(number.map_or(Value::Null, Value::from))
        }
        DeValue::Float(value) => {
            let number = value.as_str().parse::<f64>();
            Content::Scalar(number.map_or(Value::Null, Value::from))
        }
        DeValue::Boolean(value) => Content::Scalar(Value::Bool(*value)),
        DeValue::String(text) => Content::Scalar(Value::String(text.to_string())),
        DeValue::Datetime(_) => Content::Scalar(Value::Null),
    }
}

fn json_content(value: Value) -> Content {
    let node = |value| Node { line: 0, content: json_content(value) };
    match value {
        Value::Object(members) => {
            Content::Map(members.into_iter().map(|(name, value)| (name, node(value))).collect())
        }
        Value::Array(items) => Content::List(items.into_iter().map(node).collect()),
        scalar => Content::Scalar(scalar),
    }
}

/// Where the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Self(memchr::memchr_iter(b'\n', text.as_bytes()).collect())
    }

    /// Returns the line of the byte `at`.
    fn of(&self, at: usize) -> u64 {
        1 + self.0.partition_point(|end| *end < at) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(document: &Document) -> Vec<String> {
        let rest = document.rest();
        rest.iter().map(|it| format!("{} {} {}", it.place.line, it.path, it.value)).collect()
    }

    #[test]
    fn reads_every_format_alike() {
        let file: Arc<str> = "f".into();
        let toml =
            Document::toml(&file, "a = 1\n[b]\nc = \"x\"\n[[d]]\ne = [1, 2]\n[[d]]\nf = true\n");
        let yaml = Document::yaml(&file, "a: 1\nb:\n  c: \"x\"\nd:\n- e: [1, 2]\n- f: yes\n");
        let json = r#"{"a": 1, "b": {"c": "x"}, "d": [{"e": [1, 2]}, {"f": true}]}"#;
        let json = Document::json(&file, json);
        let plain = ["a 1", "b.c \"x\"", "d[0].e [1,2]", "d[1].f true"];
        let lines = |lines: [u64; 4]| -> Vec<String> {
            lines.iter().zip(plain).map(|(line, text)| format!("{line} {text}")).collect()
        };
        let toml = toml.unwrap();
        assert_eq!(keys(&toml), lines([1, 3, 5, 7]));
        assert_eq!(toml.items("d"), ["d[0]", "d[1]"]);
        assert!(toml.has_below("b") && !toml.has_below("a") && toml.has("b.c"));
        assert_eq!(keys(&yaml.unwrap()), lines([1, 3, 5, 6]));
        assert_eq!(keys(&json.unwrap()), lines([0; 4]));
    }

    #[test]
    fn reads_lines() {
        let file: Arc<str> = "f".into();
        let text = "# note\nA=1\n export B = \"x # y\" # note\nB='z'\nC=plain # note\nD=\n";
        let mut document = Document::lines(&file, text, Some('=')).unwrap();
        assert_eq!(
            keys(&document),
            ["2 A \"1\"", "3 B \"x # y\"", "4 B \"z\"", "5 C \"plain\"", "6 D \"\""]
        );
        assert_eq!(document.take("B").unwrap().value, "z");
        assert!(document.take("B").is_none());
        let document = Document::lines(&file, "listen.udp  1.2.3.4:5\nx\n", None).unwrap();
        assert_eq!(keys(&document), ["1 listen.udp \"1.2.3.4:5\"", "2 x \"\""]);
        let error = Document::lines(&file, "a\n", Some('=')).unwrap_err();
        assert_eq!(error.0, "f:1: expected a key, `=` and a value");
    }

    #[test]
    fn reads_command_lines() {
        let file: Arc<str> = "f".into();
        let text = "[Service]\n# -no 1\nExecStart=/usr/bin/x -a 1 --b=2 \\\n  --no-c -d \"e\" -c # -x\nUser=x\n";
        let document = Document::command_line(&file, text, &["c", "d"]).unwrap();
        let expected = ["3 a \"1\"", "3 b \"2\"", "4 c false", "4 c true", "4 d true"];
        assert_eq!(keys(&document), expected);
    }

    #[test]
    fn reports_the_line_of_a_mistake() {
        let file: Arc<str> = "f".into();
        let line = |error: ImportError| error.0.split(": ").next().unwrap().to_owned();
        assert_eq!(line(Document::toml(&file, "a = 1\nb = \n").unwrap_err()), "f:2");
        assert_eq!(line(Document::json(&file, "{\n\"a\": }").unwrap_err()), "f:2");
        assert_eq!(line(Document::yaml(&file, "a: 1\nb: [\n").unwrap_err()), "f:3");
        let many: String = (0..=KEYS_MAX).map(|number| format!("k{number} = 1\n")).collect();
        let error = Document::toml(&file, &many).unwrap_err();
        assert!(error.0.ends_with("expected at most 10000 keys"), "{error}");
    }
}
