//! Ocelot: `key = value` lines, and the tables of Gazelle.

use std::sync::Arc;

use serde_json::json;

use crate::document::Document;
use crate::error::ImportError;
use crate::mapper::Mapper;

/// Tables of the database.
pub(crate) const TABLES: &[&str] = &["users_main", "torrents", "xbt_client_whitelist"];

pub(crate) fn parse(file: &Arc<str>, text: &str) -> Result<Document, ImportError> {
    // Lines without `=` are ignored there.
    let text: Vec<&str> =
        text.lines().map(|line| if line.contains('=') { line } else { "" }).collect();
    Document::lines(file, &text.join("\n"), Some('='))
}

pub(crate) fn configure(mapper: &mut Mapper<'_>) -> Result<(), ImportError> {
    mapper.set_numbers(&["max_middlemen", "announce_interval", "numwant_limit"])?;
    let (port, comment) = mapper.port("listen_port", 34000, "Ocelot's default.")?;
    mapper.draft.set("http.listen", json!([format!("0.0.0.0:{port}")]), comment);
    mapper.draft.set("udp.listen", json!([]), "Ocelot has no UDP.");
    mapper.draft.set_default("tracker.interval_s", json!(1800), "Ocelot's default.");
    let path = mapper.text("site_path")?.map(|(path, _)| path).unwrap_or_default();
    if let Some((host, found)) = mapper.text("site_host")? {
        let url = format!("http://{host}/{}", path.trim_matches('/'));
        mapper.draft.suggest("site.url", json!(url.trim_end_matches('/')), found.comment());
    }
    Ok(())
}
