pub(super) mod partition;
mod sockets;
mod status;

use std::fs;
use std::path::Path;

use super::*;

/// The file of [`DOCUMENT`]. `TIDEGATE_WRITE_OPENAPI=1` writes it anew.
const GOLDEN: &str = "src/api/openapi.json";

#[test]
fn the_document_equals_the_reviewed_one() {
    let document = openapi::document(routes(), PREFIX);
    let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    if std::env::var_os("TIDEGATE_WRITE_OPENAPI").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let differs = text.lines().zip(DOCUMENT.lines()).find(|(new, old)| new != old);
    assert!(
        text == DOCUMENT,
        "the API differs from {GOLDEN} at {differs:?}: if that is intended, run TIDEGATE_WRITE_OPENAPI=1 \
         cargo test -p tidegate-admin"
    );
}

#[test]
fn operation_ids_are_unique_and_references_resolve() {
    let document = document("0.0.0");
    let mut names = std::collections::HashSet::new();
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.values().flat_map(|path| path.as_object().unwrap().values());
    for operation in operations {
        assert!(names.insert(operation["operationId"].as_str().unwrap()), "{operation}");
        assert!(!operation["summary"].as_str().unwrap().is_empty());
    }
    assert!(names.len() >= 39, "{names:?}");
    let text = document.to_string();
    let references = text.split("#/components/schemas/").skip(1);
    for name in references.filter_map(|rest| rest.split('"').next()) {
        assert!(document["components"]["schemas"][name].is_object(), "{name} is not defined");
    }
}

/// One example must hold a slash: see `openapi::network_schema`.
#[test]
fn the_examples_of_a_network_are_networks() {
    let document = document("0.0.0");
    let parameter = &document["paths"]["/bans/{network}"]["delete"]["parameters"][0];
    let examples = parameter["schema"]["examples"].as_array().unwrap();
    assert!(examples.iter().any(|example| example.as_str().unwrap().contains('/')));
    for example in examples {
        assert!(example.as_str().unwrap().parse::<tracker::IpPrefix>().is_ok(), "{example}");
    }
}

#[test]
fn the_document_lists_every_log_area() {
    let areas: Vec<_> = crate::log_levels::AREAS.iter().map(|area| area.name).collect();
    let document = document("0.0.0");
    let pattern =
        document["components"]["schemas"]["LogLevel"]["properties"]["level"]["pattern"].as_str();
    let one = format!("(({})=)?(error|warn|info|debug|trace)", areas.join("|"));
    assert_eq!(pattern.unwrap(), format!("^{one}(,{one})*$"));
}
