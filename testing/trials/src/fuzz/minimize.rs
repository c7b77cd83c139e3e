//! Committed corpora: named inputs, and one input for each further edge.

use super::{Program, found, pack, targets, unpack};
use crate::archive;
use crate::command::run;
use crate::workspace::root;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// Digits of the hash in a committed input's file name.
const DIGITS: usize = 12;
/// Longer inputs are not committed.
const MAX_LEN: &str = "-max_len=1500";

/// Replaces the committed inputs of targets, all if none is named, that have no names by those found: as few as
/// reach the same edges. Not while a target searches.
///
/// # Errors
///
/// Fails without a nightly toolchain and cargo-fuzz, and if an input breaks a target.
pub fn minimize(names: &[&str]) -> Result<()> {
    let program = Program::build()?;
    let named: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    for name in if named.is_empty() { targets()? } else { named } {
        let committed = unpack(&name)?;
        let kept = format!("fuzz/target/minimized/{name}");
        let folder = root().join(&kept);
        archive::recreate(&folder)?;
        fs::create_dir_all(root().join(found(&name)))?;
        for file in files(&root().join(&committed))?.filter(|path| is_named(path)) {
            fs::copy(&file, folder.join(file_name(&file)))?;
        }
        // Inputs that were committed without a name compete with those found.
        let mut merge = program.command(&name)?;
        merge.args(["-set_cover_merge=1", "-use_counters=0", MAX_LEN]);
        merge.args([&kept, &committed, &found(&name)]);
        run(merge)?;
        for file in files(&folder)?.filter(|path| !is_named(path)) {
            fs::rename(&file, folder.join(&file_name(&file)[..DIGITS]))?;
        }
        pack(&name, &kept)?;
    }
    Ok(())
}

/// Returns whether a person named this input: libFuzzer takes the SHA-1 of the content.
fn is_named(path: &Path) -> bool {
    let name = file_name(path);
    ![DIGITS, 40].contains(&name.len()) || !name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn files(folder: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    Ok(entries.into_iter().map(|entry| entry.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_no_names() {
        assert!(is_named(Path::new("corpus/udp/announce")));
        assert!(is_named(Path::new("corpus/udp/crash-049be155382df7a38ef062c544fdf9b16675d2b9")));
        assert!(!is_named(Path::new("corpus/udp/049be155382df7a38ef062c544fdf9b16675d2b9")));
        assert!(!is_named(Path::new("corpus/udp/049be155382d")));
    }
}
