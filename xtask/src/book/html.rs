//! Reads tags and their attributes in HTML as mdBook writes it: no more than links need.

/// An attribute of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attribute<'a> {
    pub(super) tag: &'a str,
    pub(super) name: &'a str,
    /// As it is written, with entities.
    pub(super) value: &'a str,
    /// Where the value begins, in bytes.
    pub(super) at: usize,
}

/// Returns all attributes with a value, outside of scripts, styles and comments.
pub(super) fn attributes(page: &str) -> Vec<Attribute<'_>> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let end = rest.find(|c: char| c.is_whitespace() || c == '>').unwrap_or(rest.len());
        let tag = &rest[..end];
        rest = read_tag(page, tag, &rest[end..], &mut found);
        if matches!(tag, "script" | "style") {
            let close = format!("</{tag}");
            rest = rest.find(&close).map_or("", |at| &rest[at..]);
        }
    }
    found
}

/// Reads up to the end of a tag. Returns what follows.
fn read_tag<'a>(
    page: &'a str,
    tag: &'a str,
    mut rest: &'a str,
    found: &mut Vec<Attribute<'a>>,
) -> &'a str {
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        if rest.is_empty() || rest.starts_with('>') {
            return rest;
        }
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '=' | '>' | '/'));
        let name = &rest[..end.unwrap_or(rest.len()).max(1)];
        rest = &rest[name.len()..];
        let Some(value) = rest.strip_prefix('=') else { continue };
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let value = &value[quote.map_or(0, char::len_utf8)..];
        let end = match quote {
            Some(quote) => value.find(quote),
            None => value.find(|c: char| c.is_whitespace() || c == '>'),
        };
        let end = end.unwrap_or(value.len());
        // The byte offset of the value: it is a slice of the page.
        let at = value.as_ptr().addr() - page.as_ptr().addr();
        found.push(Attribute { tag, name, value: &value[..end], at });
        rest = &value[(end + quote.map_or(0, char::len_utf8)).min(value.len())..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_attributes_of_tags_only() {
        let page = "<!-- <a href=\"no\"> --><a class=x href=\"one#a\" hidden>a=\"no\"</a>\
                    <script src='two'>let a = '<a href=\"no\">';</script><img src=three/><br>";
        let found: Vec<_> = attributes(page).iter().map(|it| (it.tag, it.name, it.value)).collect();
        let expected = [
            ("a", "class", "x"),
            ("a", "href", "one#a"),
            ("script", "src", "two"),
            ("img", "src", "three/"),
        ];
        assert_eq!(found, expected);
        for Attribute { value, at, .. } in attributes(page) {
            assert!(page[at..].starts_with(value));
        }
    }

    #[test]
    fn ends_with_what_ends_early() {
        for page in [
            "<",
            "<a",
            "<a href",
            "<a href=",
            "<a href=\"x",
            "<!--",
            "<script",
            "<script>x",
            "<a =>",
        ] {
            assert!(attributes(page).len() <= 1, "{page}");
        }
    }
}
