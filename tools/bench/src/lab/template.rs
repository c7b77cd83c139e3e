//! `{variables}` in commands and configurations.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

/// Template variables and their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct TemplateVars(BTreeMap<String, String>);

impl TemplateVars {
    /// Adds a variable.
    #[must_use]
    pub(crate) fn with(mut self, word: &str, text: impl ToString) -> Self {
        self.0.insert(word.to_owned(), text.to_string());
        self
    }

    /// Returns whether a variable is set.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.0.contains_key(word)
    }

    /// Replaces all variables in a text. A variable is in lower case and in braces without spaces,
    /// so that the braces of TOML and JSON are left alone.
    pub(crate) fn fill(&self, text: &str) -> Result<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            filled.push_str(before);
            let word = behind.split_once('}').filter(|(word, _)| is_word(word));
            let Some((word, behind)) = word else {
                filled.push('{');
                rest = behind;
                continue;
            };
            let Some(text) = self.0.get(word) else {
                let known: Vec<_> = self.0.keys().map(String::as_str).collect();
                bail!("unknown variable {{{word}}}: expected one of {}", known.join(", "));
            };
            filled.push_str(text);
            rest = behind;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Replaces all variables in each text.
    pub(crate) fn fill_all(&self, texts: &[String]) -> Result<Vec<String>> {
        texts.iter().map(|text| self.fill(text)).collect()
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_variables_and_keeps_other_braces() {
        let words = TemplateVars::default().with("port", 80).with("key", "/k");
        let fill = |text: &str| words.fill(text).unwrap();
        assert_eq!(fill("{port}:{key}{port}"), "80:/k80");
        assert_eq!(
            fill("[{ key = \"{key}\" }] {} {\"a\": {port}}"),
            "[{ key = \"/k\" }] {} {\"a\": 80}"
        );
        assert_eq!(fill("${Version} {"), "${Version} {");
        let error = words.fill("{prot}").unwrap_err().to_string();
        assert!(error.contains("{prot}") && error.contains("key, port"), "{error}");
    }
}
