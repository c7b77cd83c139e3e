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
fn the_document_lists_every_log_area() {
    let areas: Vec<_> = crate::log_levels::AREAS.iter().map(|area| area.name).collect();
    let document = document("0.0.0");
    let pattern =
        document["components"]["schemas"]["LogLevel"]["properties"]["level"]["pattern"].as_str();
    let one = format!("(({})=)?(error|warn|info|debug|trace)", areas.join("|"));
    assert_eq!(pattern.unwrap(), format!("^{one}(,{one})*$"));
}
