//! The files `spec/bepNN.toml` and `spec/exceptions/bepNN.toml`.

use crate::tree::{File, Tree};
use anyhow::{Context, Result, ensure};

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
    let (mut list, mut faults) = (Vec::<Requirement>::new(), Vec::new());
    for (bep, file) in specifications(tree, "spec/") {
        for [id, _, level, _] in entries(file, "requirement", ["id", "section", "level", "text"])? {
            let path = &file.path;
            let is_kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            ensure!(id.chars().all(is_kebab), "{path}: id {id:?}: expected kebab-case");
            let is_known = ["must", "should", "may"].contains(&&*level);
            ensure!(is_known, "{path}: {id}: level: expected must, should or may, found {level:?}");
            let id = format!("{bep}#{id}");
            ensure!(list.iter().all(|other| other.id != id), "{path}: {id} twice");
            list.push(Requirement { id, exception: None });
        }
    }
    for (bep, file) in specifications(tree, "spec/exceptions/") {
        for [id, why] in entries(file, "exception", ["id", "why"])? {
            let id = format!("{bep}#{id}");
            match list.iter_mut().find(|requirement| requirement.id == id) {
                Some(requirement) => requirement.exception = Some(why),
                None => faults.push(format!("{}: {id}: unknown requirement", file.path)),
            }
        }
    }
    // bep3 comes before bep15; within a BEP, keep the order of the file.
    let number = |id: &str| id.strip_prefix("bep")?.split('#').next()?.parse::<u32>().ok();
    list.sort_by_key(|requirement| number(&requirement.id));
    Ok(Requirements { list, faults })
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

/// Returns the values of `keys` in every table named `kind`. Fails if one is missing or empty.
fn entries<const N: usize>(file: &File, kind: &str, keys: [&str; N]) -> Result<Vec<[String; N]>> {
    let document: toml::Table = file.text.parse().with_context(|| file.path.clone())?;
    let tables = document.get(kind).and_then(toml::Value::as_array).into_iter().flatten();
    let mut list = Vec::new();
    for table in tables {
        let value = |key| table.get(key).and_then(toml::Value::as_str).unwrap_or_default();
        for key in keys {
            ensure!(!value(key).is_empty(), "{}: {}: `{key}` is missing", file.path, value("id"));
        }
        list.push(keys.map(|key| value(key).to_owned()));
    }
    Ok(list)
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
