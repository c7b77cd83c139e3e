//! Proof of where a release comes from: a provenance statement, checksums of all files, and their signature.

use super::Release;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use trials::archive;
use trials::artifacts::SUMS;
use trials::command::{command, output, run};

/// Writes `tidegate-VERSION.intoto.json`: a statement in the form of in-toto with a predicate of SLSA's provenance. It
/// names each file, the commit, and the versions of the tools.
pub(super) fn write_provenance(release: &Release) -> Result<()> {
    let mut subjects = Vec::new();
    for name in file_names(&release.out)? {
        let digest = archive::sha256(&release.out.join(&name))?;
        subjects.push(json!({ "name": name, "digest": { "sha256": digest } }));
    }
    let mut tools = Vec::new();
    for words in TOOLS {
        let printed = output(command(words))?;
        let version = printed.lines().next().context("a tool prints no version")?;
        tools.push(json!({ "name": words[0], "annotations": { "version": version } }));
    }
    let commit = &release.commit;
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:tidegate:cargo-xtask-release:v1",
                "externalParameters": { "version": release.version, "targets": targets(release) },
                "resolvedDependencies": [
                    { "name": "tidegate", "digest": { "gitCommit": commit.id } },
                    { "name": "Cargo.lock", "digest": { "sha256": archive::sha256(&super::root().join("Cargo.lock"))? } },
                ],
                "internalParameters": { "tools": tools },
            },
            // A builder that signs for itself would be named here. The time is the commit's, so that two builds agree.
            "runDetails": {
                "builder": { "id": "urn:tidegate:self-built" },
                "metadata": { "startedOn": commit.date },
            },
        },
    });
    let file = release.out.join(format!("tidegate-{}.intoto.json", release.version));
    Ok(fs::write(file, format!("{statement:#}\n"))?)
}

/// Commands that print the versions of the tools that decide about bytes.
const TOOLS: [&[&str]; 5] = [
    &["rustc", "--version"],
    &["tar", "--version"],
    &["gzip", "--version"],
    &["dpkg-deb", "--version"],
    &["rpmbuild", "--version"],
];

fn targets(release: &Release) -> Vec<Value> {
    release.architectures.iter().map(|architecture| architecture.target.into()).collect()
}

/// Writes the checksums of all files in a folder.
pub(super) fn write_sums(folder: &Path) -> Result<()> {
    let mut sums = command(&["sha256sum"]);
    sums.args(file_names(folder)?).current_dir(folder);
    Ok(fs::write(folder.join(SUMS), output(sums)?)?)
}

/// Signs the checksums in a folder by minisign with a secret key, and writes `SHA256SUMS.minisig`. minisign asks for the
/// key's password, if it has one. The signature has `comment`, which it protects, too.
pub(super) fn sign(folder: &Path, key: &Path, comment: &str) -> Result<()> {
    let mut minisign = command(&["minisign", "-S", "-m", SUMS, "-t", comment, "-s"]);
    minisign.arg(key).current_dir(folder);
    run(minisign).context("cannot sign the checksums (Debian's package is minisign)")
}

fn file_names(folder: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checks of docs/install/verify.md.
    fn verify(folder: &Path) -> bool {
        let checks = "minisign -V -q -p key.pub -m SHA256SUMS && sha256sum --check --quiet --ignore-missing SHA256SUMS";
        let mut shell = command(&["sh", "-c", checks]);
        shell.current_dir(folder);
        output(shell).is_ok()
    }

    #[test]
    fn changed_files_and_sums_of_others_are_found() {
        let (directory, keys) =
            (harness::Directory::new().unwrap(), harness::Directory::new().unwrap());
        let (folder, secret) = (directory.root(), keys.path("secret"));
        directory.write("tidegate.deb", "a package").unwrap();
        write_sums(folder).unwrap();
        let mut generate = command(&["minisign", "-G", "-W", "-p", "key.pub", "-s"]);
        generate.arg(&secret).current_dir(folder);
        output(generate).unwrap();
        assert!(!verify(folder), "not signed yet");
        sign(folder, &secret, "tidegate 1.0.0").unwrap();
        assert!(verify(folder));
        directory.write("tidegate.deb", "another package").unwrap();
        assert!(!verify(folder), "a changed file");
        write_sums(folder).unwrap();
        assert!(!verify(folder), "checksums without a signature");
    }
}
