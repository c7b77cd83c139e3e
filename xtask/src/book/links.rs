//! Follows the links of a built book.

use super::html::{Attribute, attributes};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The folder of the book that files of the repository are copied to.
const FILES: &str = "files";

/// What following the links found.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Pages with other links than before, and copies of files that they lead to.
    pub(super) changed: BTreeMap<String, String>,
    /// One line for each mistake.
    pub(super) findings: Vec<String>,
    /// The number of links.
    pub(super) checked: usize,
}

/// Follows all links of the pages in `files`, which has the files of the book by their path.
pub(super) fn check(files: &BTreeMap<String, String>, tree: &Tree) -> Book {
    let anchors: BTreeMap<&str, BTreeSet<&str>> = files
        .iter()
        .filter(|(path, _)| path.ends_with(".html"))
        .map(|(path, text)| {
            let ids = attributes(text).into_iter().filter(|it| it.name == "id");
            (path.as_str(), ids.map(|it| it.value).collect())
        })
        .collect();
    let mut book = Book::default();
    for (path, text) in files {
        if path.ends_with(".html") {
            check_page(path, text, (&anchors, files, tree), &mut book);
        } else if path.ends_with(".css") {
            check_style(path, text, &mut book);
        }
    }
    book
}

/// What links may lead to: anchors of pages, files of the book, files of the repository.
type Targets<'a> =
    (&'a BTreeMap<&'a str, BTreeSet<&'a str>>, &'a BTreeMap<String, String>, &'a Tree);

fn check_page(path: &str, text: &str, targets: Targets<'_>, book: &mut Book) {
    let (anchors, files, tree) = targets;
    let mut page = String::new();
    let mut copied = 0;
    for Attribute { tag, name, value, at } in attributes(text) {
        // What links of the page of errors start from.
        if !matches!(name, "href" | "src") || tag == "base" {
            continue;
        }
        book.checked += 1;
        let is_external = value.starts_with("//") || value.contains("://");
        if is_external && !(tag == "a" && name == "href") {
            book.findings.push(format!("{path}: {tag} loads {value} from elsewhere"));
        }
        if is_external || value.starts_with("mailto:") || value.starts_with("data:") {
            continue;
        }
        let (target, anchor) = value.split_once('#').unwrap_or((value, ""));
        let target = target.split('?').next().unwrap_or_default();
        // The page of errors has links from the root of a site.
        let place = if path == "404.html" { resolve("", target) } else { resolve(path, target) };
        let place = if target.is_empty() { Some(path.to_owned()) } else { place };
        match place {
            Some(place) if files.contains_key(&place) => {
                let has_anchor = || anchors.get(&*place).is_some_and(|ids| ids.contains(anchor));
                if !anchor.is_empty() && !has_anchor() {
                    book.findings.push(format!("{path}: dead link: {value} has no such heading"));
                }
            }
            _ => match of_repository(path, target, tree) {
                Some((file, content)) => {
                    let copy = format!("{FILES}/{file}.txt");
                    page.push_str(&text[copied..at]);
                    page.push_str(&"../".repeat(path.matches('/').count()));
                    page.push_str(&copy);
                    copied = at + value.len();
                    book.changed.insert(copy, content);
                }
                None => book.findings.push(format!("{path}: dead link: {value}")),
            },
        }
    }
    if copied > 0 {
        page.push_str(&text[copied..]);
        book.changed.insert(path.to_owned(), page);
    }
}

/// Styles load fonts and pictures of the book only.
fn check_style(path: &str, text: &str, book: &mut Book) {
    let loads = text.split("url(").skip(1).filter_map(|rest| rest.split(')').next());
    let imports = text.split("@import").skip(1).filter_map(|rest| rest.split(';').next());
    let is_own = |from: &&str| from.starts_with("data:") || !from.contains("//");
    let quoted = loads.chain(imports).map(|it| it.trim().trim_matches(['"', '\'']));
    for from in quoted.filter(|from| !is_own(from)) {
        book.findings.push(format!("{path}: loads {from} from elsewhere"));
    }
}

/// Returns the path that a link from the file `from` leads to, or `None` if that is above the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut place: Vec<&str> =
        if target.starts_with('/') { Vec::new() } else { from.split('/').collect() };
    place.pop();
    for step in target.split('/') {
        match step {
            "" | "." => {}
            ".." => drop(place.pop()?),
            name => place.push(name),
        }
    }
    Some(place.join("/"))
}

/// Returns path and text of what a page links to in the repository: a file, or a folder, whose text lists
/// its files.
fn of_repository(page: &str, target: &str, tree: &Tree) -> Option<(String, String)> {
    // mdBook makes links to pages of links to Markdown, whether or not the file is in the book.
    let source = target.strip_suffix(".html").map(|stem| format!("{stem}.md"));
    for target in [Some(target), source.as_deref()].into_iter().flatten() {
        let place = resolve(&format!("docs/{page}"), target)?;
        if let Some(file) = tree.file(&place) {
            return Some((place, file.text.clone()));
        }
        let inside = format!("{place}/");
        let list: Vec<&str> =
            tree.files.iter().filter_map(|file| file.path.strip_prefix(&inside)).collect();
        if !list.is_empty() {
            return Some((place, list.join("\n") + "\n"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(pages: &[(&str, &str)]) -> Book {
        let files = pages.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        let tree = Tree::of(&[
            ("dist/a.service", "[Unit]\n"),
            ("SECURITY.md", "# S\n"),
            ("docs/x.md", ""),
        ]);
        check(&files.collect(), &tree)
    }

    const OTHER: (&str, &str) = ("run/b.html", "<h2 id=\"head\">x</h2><a href=\"../a.html\">x</a>");

    #[test]
    fn follows_links_to_pages_and_headings() {
        let page = "<a href=\"run/b.html#head\">x</a><a href=\"#here\" id=\"here\">x</a>\
                    <a href=\"https://example.org/\">x</a><img src=\"run/b.html\">";
        let book = checked(&[("a.html", page), OTHER]);
        assert_eq!((book.findings.len(), book.checked), (0, 5), "{:?}", book.findings);
        assert!(book.changed.is_empty());
    }

    #[test]
    fn finds_dead_links() {
        for dead in ["b.html", "run/b.html#no", "#no", "../../x", "x.png", "/run/c.html", "run"] {
            let book = checked(&[("a.html", &format!("<a href=\"{dead}\">x</a>")), OTHER]);
            assert_eq!(book.findings.len(), 1, "{dead}");
        }
        let book = checked(&[("a.html", "<img src=\"no.svg\">"), OTHER]);
        assert_eq!(book.findings, ["a.html: dead link: no.svg"]);
    }

    #[test]
    fn finds_what_is_loaded_from_elsewhere() {
        for page in [
            "<script src=\"https://example.org/x.js\"></script>",
            "<link rel=\"stylesheet\" href=\"//example.org/x.css\">",
            "<img src=\"http://example.org/x.png\">",
        ] {
            assert_eq!(checked(&[("a.html", page)]).findings.len(), 1, "{page}");
        }
        for style in
            ["@import 'https://example.org/x.css';", "@font-face { src: url(//example.org/x) }"]
        {
            assert_eq!(checked(&[("a.css", style)]).findings.len(), 1, "{style}");
        }
        assert!(
            checked(&[("a.css", "@font-face { src: url('fonts/x.woff2') }")]).findings.is_empty()
        );
    }

    #[test]
    fn copies_files_of_the_repository() {
        let page = "<a href=\"../../dist/a.service\">a</a> <a href=\"../../SECURITY.html\">s</a> \
                    <a href=\"../../dist/\">d</a>";
        let book = checked(&[("run/a.html", page)]);
        assert!(book.findings.is_empty(), "{:?}", book.findings);
        let expected = [
            ("files/SECURITY.md.txt", "# S\n"),
            ("files/dist.txt", "a.service\n"),
            ("files/dist/a.service.txt", "[Unit]\n"),
            (
                "run/a.html",
                "<a href=\"../files/dist/a.service.txt\">a</a> \
                 <a href=\"../files/SECURITY.md.txt\">s</a> <a href=\"../files/dist.txt\">d</a>",
            ),
        ];
        let found: Vec<_> = book.changed.iter().map(|(path, text)| (&**path, &**text)).collect();
        assert_eq!(found, expected);
    }
}
