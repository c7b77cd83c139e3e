//! Opens files, finds out what each one is, and reads them in the right order: configurations first.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use crate::draft::Draft;
use crate::error::{ImportError, Place};
use crate::full_scrape;
use crate::hash_file;
use crate::mapper::Mapper;
use crate::options::{ListKind, Options};
use crate::records::Records;
use crate::report::Report;
use crate::rival::Rival;
use crate::rivals::{Data, Plan};
use crate::row::Row;
use crate::{sql, sqlite, table_file};

/// Bytes of a configuration. Those of Chihaya may hold lists.
const CONFIG_MAX: u64 = 16 << 20;
/// Bytes that tell what a file is.
const HEAD: usize = 64 * 1024;

pub(crate) struct ConfigText {
    pub(crate) file: Arc<str>,
    pub(crate) text: String,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Config,
    Hashes,
    FullScrape,
    Sql,
    Table,
    Sqlite,
}

/// A file, of which the first bytes have been read.
struct Source {
    file: Arc<str>,
    path: PathBuf,
    kind: Kind,
    head: Vec<u8>,
    rest: File,
}

/// Reads the files of a tracker. Returns the configuration, and what was taken and skipped; records go to `records`.
///
/// # Errors
///
/// Fails at the first file that cannot be understood. What that got until then is to be undone.
pub fn import(
    rival: Rival,
    files: &[PathBuf],
    options: &Options,
    records: &mut Records,
) -> Result<(Draft, Report), ImportError> {
    let sources: Vec<Source> =
        files.iter().map(|path| Source::open(path)).collect::<Result<_, _>>()?;
    let mut draft = Draft::default();
    let mut plan = Plan::default();
    let (configs, others): (Vec<_>, Vec<_>) =
        sources.into_iter().partition(|source| source.kind == Kind::Config);
    for source in configs {
        let text = source.text()?;
        let document = rival.parse(&text)?;
        let mut mapper = Mapper::new(rival, document, &mut draft, options);
        rival.configure(&mut mapper, &mut plan)?;
        mapper.finish();
    }
    let mut data = Data::new(rival, options, plan, records);
    let here = Place::file(&"the configuration".into());
    for (list, hash) in std::mem::take(&mut data.plan.entries) {
        data.entry(&here, list, hash)?;
    }
    for source in others {
        source.read(&mut data)?;
    }
    let (report, clients) = (data.report, data.clients);
    conclude(rival, &report, &clients, &mut draft, options)?;
    Ok((draft, report))
}

/// Sets what follows from the data.
fn conclude(
    rival: Rival,
    report: &Report,
    clients: &[(ListKind, String)],
    draft: &mut Draft,
    options: &Options,
) -> Result<(), ImportError> {
    let is_site = matches!(rival, Rival::Unit3d | Rival::Ocelot);
    if is_site {
        draft.set("access.private", json!(true), format!("As {} is.", rival.title()));
        draft.set(
            "access.mode",
            json!("allow"),
            "Only registered torrents are served. They are in the records.",
        );
    }
    for (list, prefix) in clients {
        let (ours, comment) = match list {
            ListKind::Allow => ("access.clients_allow", "From the table of allowed clients."),
            ListKind::Deny => ("access.clients_deny", "From the table of refused clients."),
        };
        draft.push(ours, prefix, comment);
    }
    let has_entries = |words: &str| report.taken.keys().any(|what| what.contains(words));
    for (words, mode) in [("allow list", "allow"), ("deny list", "deny")] {
        if has_entries(words) {
            draft.set_default("access.mode", json!(mode), "The records have such a list.");
        }
    }
    if let Some(state) = &options.state {
        draft.set("state.dir", json!(state), "The imported records are here.");
        return Ok(());
    }
    let lists = ["access.allow", "access.deny", "access.allow_torrents"];
    let needs_records = draft.find("access.mode").is_some_and(|key| key.value != "open")
        && lists.iter().all(|list| draft.find(list).is_none());
    if needs_records {
        return Err(ImportError(
            "the list of torrents goes to the records: expected --state DIR, the directory for state.dir (add --dry-run \
             to look first)"
                .into(),
        ));
    }
    draft.suggest(
        "state.dir",
        json!("/var/lib/tidegate"),
        "For swarms, counts and changes made through the API. Without the key, in the user's state folder.",
    );
    Ok(())
}

impl Source {
    fn open(path: &Path) -> Result<Self, ImportError> {
        let file: Arc<str> = path.display().to_string().into();
        let place = Place::file(&file);
        let fail = |error: std::io::Error| place.error(format_args!("cannot read: {error}"));
        let mut rest = File::open(path).map_err(fail)?;
        let mut head = Vec::new();
        rest.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(fail)?;
        if head.starts_with(b"\xef\xbb\xbf") {
            head.drain(..3);
        }
        let kind = kind(path, &head).map_err(|text| place.error(text))?;
        Ok(Self { file, path: path.to_owned(), kind, head, rest })
    }

    fn text(self) -> Result<ConfigText, ImportError> {
        let place = Place::file(&self.file);
        let mut bytes = self.head;
        let rest = self.rest.take(CONFIG_MAX + 1 - bytes.len() as u64).read_to_end(&mut bytes);
        rest.map_err(|error| place.error(format_args!("cannot read: {error}")))?;
        if bytes.len() as u64 > CONFIG_MAX {
            return Err(place.error("expected a configuration of at most 16 MiB"));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let line =
                1 + memchr::memchr_iter(b'\n', error.as_bytes().get(..valid).unwrap_or_default())
                    .count() as u64;
            Place { file: Arc::clone(&self.file), line }
                .error("expected UTF-8, found another encoding")
        })?;
        Ok(ConfigText { file: self.file, text })
    }

    /// Reads data.
    fn read(self, data: &mut Data<'_>) -> Result<(), ImportError> {
        let rival = data.rival;
        let is_wanted = |table: &str| rival.wants(table);
        let reads_tables = matches!(rival, Rival::Torrust | Rival::Unit3d | Rival::Ocelot);
        let is_for_all = matches!(self.kind, Kind::Hashes | Kind::FullScrape);
        if !is_for_all && !reads_tables {
            return Err(Place::file(&self.file).error(format_args!(
                "expected a configuration, a list of info hashes or a full scrape of {}, found a table",
                rival.title()
            )));
        }
        let mut rows = 0_u64;
        let mut take = |row: &Row<'_>| {
            rows += 1;
            data.row(row)
        };
        let input = self.head.as_slice().chain(self.rest);
        match self.kind {
            Kind::Sqlite => sqlite::read(&self.path, &self.file, &is_wanted, &mut take)?,
            Kind::Sql => sql::read(input, &self.file, &is_wanted, &mut take)?,
            Kind::Table => table_file::read(BufReader::new(input), &self.file, &mut take)?,
            Kind::FullScrape => {
                full_scrape::read(input, &self.file, &mut |place, entry| data.line(place, entry))?;
            }
            Kind::Hashes | Kind::Config => {
                hash_file::read(input, &self.file, &mut |place, entry| data.line(place, entry))?;
            }
        }
        if !is_for_all && rows == 0 {
            data.report.note(format!("{}: no rows of {}", self.file, rival.title()));
        }
        Ok(())
    }
}

/// Finds out what a file is: by its first bytes, then by its name.
fn kind(path: &Path, head: &[u8]) -> Result<Kind, String> {
    if head.starts_with(b"SQLite format 3\0") {
        return Ok(Kind::Sqlite);
    }
    if full_scrape::is_one(head) {
        return Ok(Kind::FullScrape);
    }
    if head.starts_with(b"\x1f\x8b")
        || head.starts_with(b"\x28\xb5\x2f\xfd")
        || head.starts_with(b"PK\x03\x04")
    {
        return Err("expected a text, found a compressed file: unpack it (curl does by --compressed), or pass /dev/stdin and pipe it, as in \
                    `zcat dump.sql.gz | tidegate-import … /dev/stdin`"
            .into());
    }
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return Err("expected UTF-8, found UTF-16: convert it by `iconv -f UTF-16 -t UTF-8`".into());
    }
    let extension = path.extension().map(|it| it.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("sql" | "dump") => return Ok(Kind::Sql),
        Some("csv" | "tsv") => return Ok(Kind::Table),
        Some("toml" | "yaml" | "yml" | "json" | "conf" | "env" | "dist") => {
            return Ok(Kind::Config);
        }
        _ => {}
    }
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'));
    let first = lines.next().unwrap_or_default();
    let is_hash =
        |text: &str| text.len() >= 40 && text.bytes().take(40).all(|it| it.is_ascii_hexdigit());
    if is_hash(first) {
        return Ok(Kind::Hashes);
    }
    let upper = first.to_ascii_uppercase();
    let sql =
        ["-- ", "/*", "CREATE TABLE", "INSERT INTO", "DROP TABLE", "SET ", "BEGIN", "PRAGMA "];
    if upper == "--" || sql.iter().any(|word| upper.starts_with(word)) {
        return Ok(Kind::Sql);
    }
    let columns = ["info_hash", "passkey", "torrent_pass", "valid_until", "peer_id"];
    let is_table = first.contains([',', '\t']) && columns.iter().any(|name| first.contains(name));
    Ok(if is_table { Kind::Table } else { Kind::Config })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_files_apart() {
        let hash = "ab".repeat(20);
        for (name, head, expected) in [
            ("x.db", "SQLite format 3\0…", Kind::Sqlite),
            ("x", "-- MySQL dump 10.13", Kind::Sql),
            ("x.sql", "", Kind::Sql),
            ("x", "\nINSERT INTO x", Kind::Sql),
            ("x.csv", "a,b", Kind::Table),
            ("x.txt", "d5:filesd20:", Kind::FullScrape),
            ("x", "d8:intervali9e5:filesde", Kind::FullScrape),
            ("x", "id\tpasskey\n", Kind::Table),
            ("x", &hash, Kind::Hashes),
            ("x.txt", &format!("# list\n{hash} name\n"), Kind::Hashes),
            ("x", &format!("{hash}:1:2\n"), Kind::Hashes),
            ("x.toml", "a = 1", Kind::Config),
            (".env", "A=1", Kind::Config),
            ("x", "listen.tcp 0.0.0.0\n", Kind::Config),
            ("x", "bittorrent-tracker --port 1\n", Kind::Config),
            ("x", "--port 1\n", Kind::Config),
        ] {
            assert_eq!(kind(name.as_ref(), head.as_bytes()), Ok(expected), "{name} {head}");
        }
        for (head, expected) in [(b"\x1f\x8b\x08\0", "compressed"), (b"\xff\xfea\0", "UTF-16")] {
            assert!(kind("x.sql".as_ref(), head).unwrap_err().contains(expected));
        }
    }
}
