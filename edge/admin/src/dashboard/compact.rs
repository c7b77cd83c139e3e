//! Makes scripts smaller: removes comments, and the spaces and line ends that JavaScript does not need.
//!
//! Knows as much of the language as the dashboard's own scripts use. The browser test compares the syntax trees of
//! what is served with those of the files.

/// After these, a line cannot end a statement.
const BEFORE_MORE: &str = "{([,;=>?:&|<!~*.";
/// A line that begins with one of these continues the one before, or ends a block as a line end would.
const AFTER_MORE: &str = "}]),.?:&|=*";
/// After these, and after [`BEFORE_REGEX_WORDS`], a slash begins a regular expression.
const BEFORE_REGEX: &str = "(,=:[!&|?{};+-*%~^<>\n";
const BEFORE_REGEX_WORDS: [&str; 3] = ["return", "typeof", "case"];

/// What separates two tokens in the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    None,
    Space,
    Line,
}

/// Returns a script with the same syntax tree, in fewer bytes.
pub(super) fn compact(script: &str) -> String {
    let mut compact = String::with_capacity(script.len());
    let (mut rest, mut gap) = (script, Gap::None);
    while let Some(first) = rest.chars().next() {
        let len = if let Some((kind, len)) = separator(rest, first) {
            gap = gap.max(kind);
            len
        } else {
            compact.extend(needed(gap, compact.chars().next_back(), first));
            gap = Gap::None;
            let len = token_len(rest, first, &compact);
            compact.push_str(rest.get(..len).unwrap_or(rest));
            len
        };
        rest = rest.get(len..).unwrap_or_default();
    }
    compact.push('\n');
    compact
}

/// Returns kind and length of a space, line end or comment.
fn separator(rest: &str, first: char) -> Option<(Gap, usize)> {
    match first {
        '\n' => Some((Gap::Line, 1)),
        ' ' | '\t' | '\r' => Some((Gap::Space, 1)),
        _ if rest.starts_with("//") => Some((Gap::None, rest.find('\n').unwrap_or(rest.len()))),
        _ if rest.starts_with("/*") => {
            Some((Gap::Space, rest.find("*/").map_or(rest.len(), |at| at + 2)))
        }
        _ => None,
    }
}

/// Returns what must stay of a gap between two characters.
fn needed(gap: Gap, before: Option<char>, after: char) -> Option<char> {
    let before = before?;
    let is_repeated = before == after && "+-/".contains(after);
    match gap {
        Gap::Line if BEFORE_MORE.contains(before) || AFTER_MORE.contains(after) => None,
        Gap::Line => Some('\n'),
        Gap::Space if is_repeated || (is_of_word(before) && is_of_word(after)) => Some(' '),
        Gap::Space | Gap::None => None,
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || "_$#".contains(letter)
}

/// Returns the length of the token that `rest` begins with; `before` is what comes before it.
fn token_len(rest: &str, first: char, before: &str) -> usize {
    match first {
        '\'' | '"' => delimited_len(rest, first),
        '`' => template_len(rest),
        '/' if is_regex_next(before) => delimited_len(rest, first),
        _ if is_of_word(first) => rest.find(|letter| !is_of_word(letter)).unwrap_or(rest.len()),
        _ => first.len_utf8(),
    }
}

/// Returns the length of a string or regular expression with its delimiters. A slash within brackets does not end
/// a regular expression.
fn delimited_len(rest: &str, delimiter: char) -> usize {
    let mut letters = rest.char_indices().skip(1);
    let mut is_in_class = false;
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '[' if delimiter == '/' => is_in_class = true,
            ']' => is_in_class = false,
            _ if letter == delimiter && !is_in_class => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the length of a template literal. Its expressions may have strings and templates.
fn template_len(rest: &str) -> usize {
    let (mut at, mut depth) = (1, 0);
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        let first = tail.chars().next().unwrap_or_default();
        let len = match first {
            '\\' if depth == 0 => 1 + tail.chars().nth(1).map_or(0, char::len_utf8),
            '`' if depth == 0 => return at + 1,
            '`' => template_len(tail),
            '\'' | '"' if depth > 0 => delimited_len(tail, first),
            _ => first.len_utf8(),
        };
        match first {
            '{' if depth > 0 || rest.get(..at).is_some_and(|text| text.ends_with('$')) => {
                depth += 1
            }
            '}' if depth > 0 => depth -= 1,
            _ => {}
        }
        at += len;
    }
    rest.len()
}

/// Returns whether a slash after `before` begins a regular expression: else it divides.
fn is_regex_next(before: &str) -> bool {
    let word = before.rsplit(|letter| !is_of_word(letter)).next().unwrap_or_default();
    match before.chars().next_back() {
        Some(last) => BEFORE_REGEX.contains(last) || BEFORE_REGEX_WORDS.contains(&word),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::compact;

    #[test]
    fn only_what_the_language_needs_stays() {
        for (script, expected) in [
            ("// One.\nlet a = 1 // two\n  /**\n   * Three.\n   */\n  f()\n", "let a=1\nf()\n"),
            ("if (a) {\n  b()\n}\nc()\n", "if(a){b()}\nc()\n"),
            ("const { a, b } = c\n  .d ?? e\n", "const{a,b}=c.d??e\n"),
            ("x = a ? .5 : -1\n", "x=a?.5:-1\n"),
            ("a = b + +c - -d + e++ + f\n", "a=b+ +c- -d+e++ +f\n"),
            ("a = b / c / d // e\n", "a=b/c/d\n"),
            ("return async () => {}\n", "return async()=>{}\n"),
            ("class A { #b = 1 }\n", "class A{#b=1}\n"),
            ("const é = 'ß' in x\n", "const é='ß'in x\n"),
        ] {
            assert_eq!(compact(script), expected);
        }
    }

    #[test]
    fn texts_and_regular_expressions_stay() {
        for (script, expected) in [
            (r"a = ' // \' ' + b", r"a=' // \' '+b"),
            (
                "a = `b  // ${c ? `  ${d}` : '}  `'}  {`\nb",
                "a=`b  // ${c ? `  ${d}` : '}  `'}  {`\nb",
            ),
            ("a = `\\`  ${'  '}\n  `", "a=`\\`  ${'  '}\n  `"),
            (r"a = b.replace(/[/ '] \/  `/g, c)", r"a=b.replace(/[/ '] \/  `/g,c)"),
            (r"return /  /.test(a)", r"return/  /.test(a)"),
        ] {
            assert_eq!(compact(script), format!("{expected}\n"));
        }
    }

    #[test]
    fn what_is_cut_off_ends_with_the_script() {
        for script in ["'a", "`a ${", "`\\", "/* a", "// a", "/a[/", "'\\", "é"] {
            assert!(compact(script).len() <= script.len() + 1, "{script}");
        }
        assert_eq!(compact(""), "\n");
    }
}
