//! The files `spec/bepNN.toml` and `spec/exceptions/bepNN.toml`.

use crate::tree::{File, Tree};
use anyhow::{Context, Result, bail, ensure};

/// A requirement on a tracker.
#[derive(Debug)]
pub(super) struct Requirement {
    /// `bep15#connect-magic`.
    pub(super) id: String,
    /// The reason why tidegate does not meet it.
    pub(super) exception: Option<String>,
}

/// All requirements in the order of the files, and errors about exceptions.
#[derive(Debug)]
pub(super) struct Requirements {
    pub(super) list: Vec<Requirement>,
    pub(super) faults: Vec<String>,
}

/// Reads both folders.
pub(super) fn read(tree: &Tree) -> Result<Requirements> {
    let mut list: Vec<Requirement> = Vec::new();
    for (bep, file) in specifications(tree, "spec/") {
        for entry in entries(file, "requirement", &["section", "level", "text"])? {
            let id = format!("{bep}#{entry}");
            ensure!(list.iter().all(|other| other.id != id), "{}: {id} twice", file.path);
            list.push(Requirement { id, exception: None });
        }
    }
    let mut faults = Vec::new();
    for (bep, file) in specifications(tree, "spec/exceptions/") {
        for (id, why) in entries(file, "exception", &["why"])?.into_iter().zip(reasons(file)?) {
            let id = format!("{bep}#{id}");
            match list.iter_mut().find(|requirement| requirement.id == id) {
                Some(requirement) => requirement.exception = Some(why),
                None => faults.push(format!("{}: {id}: unknown requirement", file.path)),
            }
        }
    }
    // bep3 comes before bep15; within a BEP, keep the order of the file.
    list.sort_by_key(|requirement| number(&requirement.id));
    Ok(Requirements { list, faults })
}

/// Returns the number in `bep15#id`.
fn number(id: &str) -> u32 {
    let digits = id.split('#').next().and_then(|bep| bep.strip_prefix("bep"));
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(u32::MAX)
}

/// Returns the files directly in `folder`, each with the name of its BEP.
fn specifications<'a>(
    tree: &'a Tree,
    folder: &'a str,
) -> impl Iterator<Item = (&'a str, &'a File)> + 'a {
    tree.files.iter().filter_map(move |file| {
        let bep = file.path.strip_prefix(folder)?.strip_suffix(".toml")?;
        (!bep.contains('/')).then_some((bep, file))
    })
}

/// Returns the ids of the tables named `kind`. Fails if one lacks any of `keys`.
fn entries(file: &File, kind: &str, keys: &[&str]) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for entry in tables(file, kind)? {
        let id = entry.get("id").and_then(toml::Value::as_str).unwrap_or_default();
        let kebab = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        ensure!(
            !id.is_empty() && id.bytes().all(kebab),
            "{}: id {id:?}: expected kebab-case",
            file.path
        );
        for key in keys {
            let text = entry.get(*key).and_then(toml::Value::as_str).unwrap_or_default();
            ensure!(!text.is_empty(), "{}: {id}: `{key}` is missing", file.path);
        }
        match entry.get("level").and_then(toml::Value::as_str) {
            None | Some("must" | "should" | "may") => ids.push(id.to_owned()),
            Some(level) => {
                bail!("{}: {id}: level: expected must, should or may, found {level:?}", file.path)
            }
        }
    }
    Ok(ids)
}

fn reasons(file: &File) -> Result<Vec<String>> {
    let why =
        |entry: toml::Table| entry.get("why").and_then(toml::Value::as_str).map(str::to_owned);
    Ok(tables(file, "exception")?.into_iter().filter_map(why).collect())
}

fn tables(file: &File, kind: &str) -> Result<Vec<toml::Table>> {
    let document: toml::Table = file.text.parse().with_context(|| file.path.clone())?;
    let list = document.get(kind).and_then(toml::Value::as_array);
    Ok(list.into_iter().flatten().filter_map(|entry| entry.as_table().cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        read(&Tree::of(&[("spec/bep99.toml", text)])).unwrap_err().to_string()
    }

    #[test]
    fn rejects_incomplete_requirements() {
        let good = "[[requirement]]\nid = 'a-1'\nsection = 's'\nlevel = 'must'\ntext = 't'\n";
        let read = read(&Tree::of(&[("spec/bep99.toml", good)])).unwrap();
        assert_eq!(read.list[0].id, "bep99#a-1");
        assert!(error(&good.replace("a-1", "A_1")).contains("kebab"));
        assert!(error(&good.replace("text = 't'", "")).contains("`text` is missing"));
        assert!(error(&good.replace("must", "will")).contains("level"));
        assert!(error(&good.repeat(2)).contains("twice"));
    }
}
