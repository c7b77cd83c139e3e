//! The parts of the program, as a software bill of materials in CycloneDX's form.
//!
//! cargo-cyclonedx would write it, too, after minutes of compilation, beside every manifest of the workspace.

use super::dependencies::{Dependency, linked};
use super::{PROGRAMS, Release};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use trials::archive;
use trials::workspace::root;

/// Writes `tidegate-VERSION.cdx.json`.
pub(super) fn write(release: &Release) -> Result<()> {
    let linked = linked()?;
    let sums = checksums()?;
    let (mut program, mut components, mut arrows) = (None, Vec::new(), Vec::new());
    for dependency in linked.values() {
        let needs = dependency.needs.iter().filter_map(|id| linked.get(id)).map(reference);
        let needs: Vec<String> = needs.collect();
        arrows.push(json!({ "ref": reference(dependency), "dependsOn": needs }));
        let component = component(dependency, &sums);
        if dependency.name == "tidegate" {
            program = Some(component);
        } else {
            components.push(component);
        }
    }
    let mut program = program.context("the program is not among its crates")?;
    program["type"] = "application".into();
    let mut hashes = Vec::new();
    for architecture in &release.architectures {
        for name in PROGRAMS {
            let hash = archive::sha256(&release.program(*architecture, name))?;
            let name = format!("{name}:sha256:{}", architecture.target);
            hashes.push(json!({ "name": name, "value": hash }));
        }
    }
    program["properties"] = hashes.into();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.commit.date,
            "component": program,
            "properties": [{ "name": "tidegate:commit", "value": release.commit.id }],
        },
        "components": components,
        "dependencies": arrows,
    });
    let file = release.out.join(format!("tidegate-{}.cdx.json", release.version));
    Ok(fs::write(file, format!("{document:#}\n"))?)
}

fn component(dependency: &Dependency, sums: &BTreeMap<(String, String), String>) -> Value {
    let Dependency { name, version, license, repository, .. } = dependency;
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(dependency),
        "name": name,
        "version": version,
        "purl": reference(dependency),
        "licenses": [{ "expression": license }],
    });
    if let Some(sum) = sums.get(&(name.clone(), version.clone())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if let Some(url) = repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": url }]);
    }
    component
}

fn reference(dependency: &Dependency) -> String {
    format!("pkg:cargo/{}@{}", dependency.name, dependency.version)
}

/// Returns the checksums of Cargo.lock by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = fs::read_to_string(root().join("Cargo.lock"))?.parse()?;
    let packages = lock.get("package").and_then(toml::Value::as_array).context("no packages")?;
    let row = |package: &toml::Value| {
        let text = |key: &str| Some(package.get(key)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    };
    Ok(packages.iter().filter_map(row).collect())
}
