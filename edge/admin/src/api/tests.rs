mod sockets;

use std::fs;
use std::path::Path;

use super::*;

/// What the document was when somebody looked at it last. `TIDEGATE_WRITE_OPENAPI=1` writes it anew.
const GOLDEN: &str = "src/api/openapi.json";

#[test]
fn the_document_is_what_was_looked_at() {
    let document = document("0.0.0");
    let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN);
    if std::env::var_os("TIDEGATE_WRITE_OPENAPI").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let differs = text.lines().zip(golden.lines()).find(|(new, old)| new != old);
    assert!(
        text == golden,
        "the API differs from {GOLDEN} at {differs:?}: if that is meant, TIDEGATE_WRITE_OPENAPI=1 \
         cargo test -p tidegate-admin writes it"
    );
}

#[test]
fn no_place_is_taken_twice() {
    let mut places = std::collections::HashSet::new();
    for route in routes() {
        assert!(
            places.insert((route.method.clone(), route.path)),
            "{} {}",
            route.method,
            route.path
        );
    }
}

#[test]
fn every_operation_has_a_name_of_its_own_and_every_reference_leads_somewhere() {
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
        assert!(document["components"]["schemas"][name].is_object(), "{name} is nowhere");
    }
}

#[test]
fn the_document_names_every_area_of_the_log() {
    let areas: Vec<_> = crate::log_levels::AREAS.iter().map(|area| area.name).collect();
    let document = document("0.0.0");
    let pattern =
        document["components"]["schemas"]["LogLevel"]["properties"]["level"]["pattern"].as_str();
    let due = format!("(({})=)?(error|warn|info|debug|trace)", areas.join("|"));
    assert_eq!(pattern.unwrap(), format!("^{due}(,{due})*$"));
}
