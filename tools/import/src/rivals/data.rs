//! Rows of databases, and lines of lists, as records.

use std::collections::BTreeMap;

use admin::records::OfflineKey;
use types::{InfoHash, UserKey};

use super::Plan;
use crate::error::{ImportError, Place};
use crate::hash_file::Entry;
use crate::options::{ListKind, Options};
use crate::records::Records;
use crate::report::Report;
use crate::rival::Rival;
use crate::row::Row;

/// Characters of a key's name.
const NAME_MAX: usize = 100;
/// Groups of users, and client rules, that are remembered.
const RULES_MAX: usize = 1000;
/// The end of the year 9999.
const TIME_MAX: u64 = 253_402_300_799;

/// Turns rows into records.
pub(crate) struct Data<'a> {
    pub(crate) rival: Rival,
    pub(crate) options: &'a Options,
    pub(crate) plan: Plan,
    pub(crate) report: Report,
    pub(crate) records: &'a mut Records,
    /// Prefixes of peer ids that a table of clients has.
    pub(crate) clients: Vec<(ListKind, String)>,
    /// The names of UNIT3D's groups.
    groups: BTreeMap<u64, String>,
}

impl<'a> Data<'a> {
    pub(crate) fn new(
        rival: Rival,
        options: &'a Options,
        plan: Plan,
        records: &'a mut Records,
    ) -> Self {
        let report = Report::default();
        Self { rival, options, plan, report, records, clients: Vec::new(), groups: BTreeMap::new() }
    }

    /// Takes a line of a list.
    pub(crate) fn line(&mut self, place: &Place, entry: Entry) -> Result<(), ImportError> {
        match entry {
            Entry::Downloads(hash, count) => self.downloads(place, hash, count),
            Entry::Invalid(text) => {
                self.report.skip(place, text);
                Ok(())
            }
            Entry::Hash(hash) => {
                let Some(list) = self.options.list.or(self.plan.list) else {
                    return Err(place.error(
                        "an info hash for which list? Give the configuration as one more FILE, or --list allow or \
                         --list deny",
                    ));
                };
                self.entry(place, list, hash)
            }
        }
    }

    /// Takes a row of a table. Tables without a name are known by their columns.
    pub(crate) fn row(&mut self, row: &Row<'_>) -> Result<(), ImportError> {
        let has = |column| row.field(column).is_some();
        let table = match (row.table.to_ascii_lowercase(), self.rival) {
            (table, _) if !table.is_empty() => table,
            (_, Rival::Torrust) if has("key") => "keys".into(),
            (_, Rival::Unit3d) if has("passkey") => "users".into(),
            (_, Rival::Unit3d) if has("slug") => "groups".into(),
            (_, Rival::Ocelot) if has("torrent_pass") => "users_main".into(),
            (_, Rival::Ocelot) if has("peer_id") => "xbt_client_whitelist".into(),
            (_, Rival::Torrust | Rival::Unit3d | Rival::Ocelot) if has("info_hash") => {
                let has_counts =
                    ["completed", "count", "times_completed", "snatched", "status", "id"];
                let is_list = self.rival == Rival::Torrust && !has_counts.iter().any(|it| has(it));
                if is_list { "whitelist".into() } else { "torrents".into() }
            }
            _ => {
                return Err(row.place.error(format_args!(
                    "expected columns of {}, found {}: the first line must name the columns",
                    self.rival.title(),
                    row.columns.join(", ")
                )));
            }
        };
        match (self.rival, table.as_str()) {
            (Rival::Torrust, "keys") => self.torrust_key(row),
            (Rival::Torrust, "whitelist" | "whitelist_v1") => match row.info_hash("info_hash") {
                Ok(hash) => self.entry(row.place, ListKind::Allow, hash),
                Err(error) => self.skip(row, error),
            },
            (Rival::Torrust, _) => self.torrust_downloads(row),
            (Rival::Unit3d, "groups") => self.unit3d_group(row),
            (Rival::Unit3d, "users") => self.unit3d_user(row),
            (Rival::Unit3d, "blacklist_clients") => {
                let missing = "no peer_id_prefix: a rule by name or User-Agent";
                self.client(row, ListKind::Deny, "peer_id_prefix", missing)
            }
            (Rival::Unit3d, _) => self.unit3d_torrent(row),
            (Rival::Ocelot, "users_main") => self.ocelot_user(row),
            (Rival::Ocelot, "xbt_client_whitelist") => {
                self.client(row, ListKind::Allow, "peer_id", "no peer_id")
            }
            (Rival::Ocelot, _) => self.registered_torrent(row, "Snatched"),
            _ => Ok(()),
        }
    }

    fn skip(&mut self, row: &Row<'_>, reason: impl Into<String>) -> Result<(), ImportError> {
        self.report.skip(row.place, format!("{}: {}", title(row), reason.into()));
        Ok(())
    }

    /// Takes an entry of a list.
    pub(crate) fn entry(
        &mut self,
        place: &Place,
        list: ListKind,
        hash: InfoHash,
    ) -> Result<(), ImportError> {
        self.report.take(match list {
            ListKind::Allow => "torrents for the allow list",
            ListKind::Deny => "torrents for the deny list",
        });
        self.records.put_entry(list, hash).map_err(|error| place.error(error))
    }

    fn downloads(&mut self, place: &Place, hash: InfoHash, count: u64) -> Result<(), ImportError> {
        if count == 0 {
            return Ok(());
        }
        self.report.take("download counts");
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.records.put_downloads(hash, count).map_err(|error| place.error(error))
    }

    /// Takes a key, unless it is none here.
    fn key(
        &mut self,
        row: &Row<'_>,
        column: &str,
        make: impl FnOnce(UserKey) -> OfflineKey,
    ) -> Result<(), ImportError> {
        let Some(text) = row.text(column).filter(|text| !text.is_empty()) else {
            return self.skip(row, format!("no {column}"));
        };
        let key = match UserKey::parse(text.as_bytes()) {
            Ok(key) => make(key),
            Err(error) => return self.skip(row, format!("{column}: {error}")),
        };
        self.report.take(match key.expires {
            Some(0) => "keys of users who are locked out (imported as expired)",
            _ => "keys",
        });
        self.records.put_key(&key).map_err(|error| row.place.error(error))
    }

    fn torrust_key(&mut self, row: &Row<'_>) -> Result<(), ImportError> {
        let until = row.number("valid_until").map(|time| time.min(TIME_MAX) as i64);
        let expires = until.filter(|_| !self.plan.ignores_expiry);
        let name = format!("torrust {}", row.text("id").unwrap_or_default());
        self.key(row, "key", |key| OfflineKey { expires, ..blank(key, name.trim()) })
    }

    fn torrust_downloads(&mut self, row: &Row<'_>) -> Result<(), ImportError> {
        let count = row.number("completed").or_else(|| row.number("count")).unwrap_or(0);
        match row.info_hash("info_hash") {
            Ok(hash) => self.downloads(row.place, hash, count),
            Err(error) => self.skip(row, error),
        }
    }

    fn unit3d_group(&mut self, row: &Row<'_>) -> Result<(), ImportError> {
        if let (Some(id), Some(slug)) = (row.number("id"), row.text("slug"))
            && self.groups.len() < RULES_MAX
        {
            self.groups.insert(id, slug.into_owned());
        }
        Ok(())
    }

    fn unit3d_user(&mut self, row: &Row<'_>) -> Result<(), ImportError> {
        if row.field("deleted_at").is_some_and(|field| !field.is_null) {
            return self.skip(row, "deleted");
        }
        let group = row.number("group_id").and_then(|id| self.groups.get(&id).cloned());
        let group = row.text("group_slug").map(|slug| slug.into_owned()).or(group);
        let is_out = matches!(group.as_deref(), Some("banned" | "validating" | "disabled"));
        let is_seed_only = row.number("can_download") == Some(0);
        let rights = (is_out, is_seed_only, self.plan.peers_per_torrent);
        self.user(row, "passkey", "username", rights)
    }

    fn ocelot_user(&mut self, row: &Row<'_>) -> Result<(), ImportError> {
        let is_out = row.text("Enabled").is_some_and(|enabled| enabled != "1");
        let is_seed_only = row.number("can_leech") == Some(0);
        self.user(row, "torrent_pass", "Username", (is_out, is_seed_only, 0))
    }

    /// Takes a user who may be locked out, or may only seed.
    fn user(
        &mut self,
        row: &Row<'_>,
        column: &str,
        name: &str,
        (is_out, seed_only, peers_per_torrent): (bool, bool, u16),
    ) -> Result<(), ImportError> {
        let name = row.text(name);
        let by_id = || row.text("id").map(|id| format!("user {id}")).unwrap_or_default();
        let name = name.map_or_else(by_id, |name| name.into_owned());
        let uploaded = row.number("uploaded").unwrap_or(0);
        let downloaded = row.number("downloaded").unwrap_or(0);
        self.key(row, column, |key| OfflineKey {
            expires: is_out.then_some(0),
            seed_only,
            peers_per_torrent,
            uploaded,
            downloaded,
            ..blank(key, &name)
        })
    }

    fn unit3d_torrent(&mut self, row: &Row<'_>) -> Result<(), ImportError> {
        if row.field("deleted_at").is_some_and(|field| !field.is_null) {
            return self.skip(row, "deleted");
        }
        match row.number("status") {
            None | Some(1) => self.registered_torrent(row, "times_completed"),
            Some(_) => self.skip(row, "not approved (status is not 1)"),
        }
    }

    /// Takes a torrent that may be served, with its downloads.
    fn registered_torrent(&mut self, row: &Row<'_>, count: &str) -> Result<(), ImportError> {
        let hash = match row.info_hash("info_hash") {
            Ok(hash) => hash,
            Err(error) => return self.skip(row, error),
        };
        self.entry(row.place, ListKind::Allow, hash)?;
        self.downloads(row.place, hash, row.number(count).unwrap_or(0))
    }

    /// Takes the prefix of the peer ids of a client.
    fn client(
        &mut self,
        row: &Row<'_>,
        list: ListKind,
        column: &str,
        missing: &str,
    ) -> Result<(), ImportError> {
        let Some(prefix) = row.text(column) else { return self.skip(row, missing) };
        if prefix.is_empty() || prefix.len() > 20 {
            return self.skip(row, "expected a prefix of 1 to 20 characters");
        }
        if self.clients.len() == RULES_MAX {
            return Err(row.place.error(format_args!("expected at most {RULES_MAX} prefixes")));
        }
        self.report.take("prefixes of peer ids");
        self.clients.push((list, prefix.into_owned()));
        Ok(())
    }
}

fn title<'a>(row: &Row<'a>) -> &'a str {
    if row.table.is_empty() { "row" } else { row.table }
}

/// Returns a key without totals and end. Control characters of its name are replaced.
fn blank(key: UserKey, name: &str) -> OfflineKey {
    let plain = |it: char| if it.is_control() { '\u{fffd}' } else { it };
    OfflineKey {
        key,
        name: name.chars().take(NAME_MAX).map(plain).collect(),
        expires: None,
        peers_per_torrent: 0,
        seed_only: false,
        uploaded: 0,
        downloaded: 0,
    }
}
