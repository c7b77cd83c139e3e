//! The columns of UNIT3D, and how a batch gets into its tables.

use std::net::IpAddr;
use std::sync::Arc;

use crate::batch::{Batch, Record, SessionChange};
use crate::changes::{self, TorrentChange};
use crate::database::{Rows, Tables};
use crate::probes::Probes;
use crate::sql::{RowText, keep_later, latest};

pub(crate) struct Unit3dTables {
    /// True if other nodes of a cluster write them, too.
    pub(crate) is_node: bool,
    /// The results of probes, which the column `connectable` gets.
    pub(crate) probes: Option<Arc<Probes>>,
}

/// The columns that are read or written.
const COLUMNS: &[&str] = &[
    "groups: id int, slug text, download_slots int, is_immune bool, is_freeleech bool, is_double_upload bool",
    "users: id int, group_id int, passkey text, can_download bool, is_donor bool, is_lifetime bool, uploaded int, \
     downloaded int, deleted_at time",
    "torrents: id int, info_hash binary, status int, free int, doubleup bool, seeders int, leechers int, \
     times_completed int, balance int, updated_at time, deleted_at time",
    "blacklist_clients: peer_id_prefix text",
    "freeleech_tokens: user_id int, torrent_id int",
    "personal_freeleeches: user_id int",
    "featured_torrents: torrent_id int",
    "history: user_id int, torrent_id int, agent text, uploaded int, actual_uploaded int, client_uploaded int, \
     downloaded int, actual_downloaded int, client_downloaded int, seeder bool, active bool, seedtime int, immune \
     bool, created_at time, updated_at time, completed_at time",
    "peers: user_id int, torrent_id int, peer_id binary, ip binary, port int, agent text, uploaded int, downloaded \
     int, left int, active bool, seeder bool, visible bool, connectable bool, created_at time, updated_at time",
    "unregistered_info_hashes: user_id int, info_hash binary, created_at time, updated_at time",
];

const HISTORY: &str = "history (user_id, torrent_id, agent, uploaded, actual_uploaded, client_uploaded, downloaded, \
    actual_downloaded, client_downloaded, seeder, active, seedtime, immune, created_at, updated_at, completed_at)";
const HISTORY_TAIL: &str = " ON DUPLICATE KEY UPDATE agent = VALUES(agent), uploaded = uploaded + VALUES(uploaded), \
    actual_uploaded = actual_uploaded + VALUES(actual_uploaded), client_uploaded = VALUES(client_uploaded), \
    downloaded = downloaded + VALUES(downloaded), actual_downloaded = actual_downloaded + VALUES(actual_downloaded), \
    client_downloaded = VALUES(client_downloaded), seeder = VALUES(seeder), active = VALUES(active), \
    seedtime = seedtime + VALUES(seedtime), immune = immune AND VALUES(immune), updated_at = VALUES(updated_at), \
    completed_at = COALESCE(completed_at, VALUES(completed_at))";

const PEERS: &str = "peers (user_id, torrent_id, peer_id, ip, port, agent, uploaded, downloaded, `left`, active, seeder, \
    visible, created_at, updated_at)";
const PEERS_TAIL: &str = " ON DUPLICATE KEY UPDATE ip = VALUES(ip), port = VALUES(port), agent = VALUES(agent), \
    uploaded = VALUES(uploaded), downloaded = VALUES(downloaded), `left` = VALUES(`left`), active = VALUES(active), \
    seeder = VALUES(seeder), visible = VALUES(visible), updated_at = VALUES(updated_at)";

const UNREGISTERED: &str = "unregistered_info_hashes (user_id, info_hash, created_at, updated_at)";
const UNREGISTERED_TAIL: &str = " ON DUPLICATE KEY UPDATE updated_at = VALUES(updated_at)";

/// The rows come first, so that each is looked up by its primary key.
const USERS_UPDATE: &str = "UPDATE JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', \
    up BIGINT UNSIGNED PATH '$[1]', down BIGINT UNSIGNED PATH '$[2]')) AS d STRAIGHT_JOIN users ON users.id = d.id \
    SET users.uploaded = users.uploaded + d.up, users.downloaded = users.downloaded + d.down";
const TORRENTS_UPDATE: &str = "UPDATE JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', \
    seeders BIGINT PATH '$[1]', leechers BIGINT PATH '$[2]', completed BIGINT PATH '$[3]', balance BIGINT PATH '$[4]', \
    time_s BIGINT PATH '$[5]')) AS d STRAIGHT_JOIN torrents ON torrents.id = d.id \
    SET torrents.seeders = torrents.seeders + d.seeders, torrents.leechers = torrents.leechers + d.leechers, \
    torrents.times_completed = torrents.times_completed + d.completed, \
    torrents.balance = torrents.balance + d.balance, torrents.updated_at = FROM_UNIXTIME(d.time_s)";

/// The same if other nodes write, too. The numbers of seeders and leechers are counted: two nodes may have seen the same
/// client come or go. Peers that were silent for too long are left out: their rows are the site's to end.
const NODE_TORRENTS_UPDATE: &str = "UPDATE JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', \
    seeders BIGINT PATH '$[1]', leechers BIGINT PATH '$[2]', completed BIGINT PATH '$[3]', balance BIGINT PATH '$[4]', \
    time_s BIGINT PATH '$[5]', counts INT PATH '$[6]')) AS d STRAIGHT_JOIN torrents ON torrents.id = d.id \
    SET torrents.seeders = IF(d.counts, (SELECT COUNT(*) FROM peers WHERE peers.torrent_id = d.id AND peers.seeder \
    AND peers.active AND peers.visible AND peers.updated_at > FROM_UNIXTIME(d.time_s - 9000)), torrents.seeders), \
    torrents.leechers = IF(d.counts, (SELECT COUNT(*) FROM peers WHERE peers.torrent_id = d.id AND NOT peers.seeder \
    AND peers.active AND peers.visible AND peers.updated_at > FROM_UNIXTIME(d.time_s - 9000)), torrents.leechers), \
    torrents.times_completed = torrents.times_completed + d.completed, \
    torrents.balance = torrents.balance + d.balance, torrents.updated_at = FROM_UNIXTIME(d.time_s)";

impl Unit3dTables {
    /// Writes rows of `peers` with the results of probes. Without one, the column stays as it is. `tail` is that of all
    /// rows.
    fn write_probed<'a>(
        &self,
        rows: &mut Rows<'_, '_>,
        probes: &Probes,
        tail: &str,
        peers: impl Iterator<Item = (&'a Record, &'a SessionChange)>,
    ) -> Result<(), mysql::Error> {
        let is_open =
            |change: &SessionChange| probes.is_open(change.session.ip, change.session.port);
        let all = peers.map(|(record, change)| (record, change, is_open(change)));
        let (known, unknown): (Vec<_>, Vec<_>) = all.partition(|(_, _, is_open)| is_open.is_some());
        let unknown = unknown.into_iter().map(|(record, change, _)| (record, change));
        rows.insert(PEERS, tail, unknown, write_peer)?;
        let head = PEERS.replace(')', ", connectable)");
        let assignment = match self.is_node {
            true => keep_later("updated_at", &["connectable"]),
            false => "connectable = VALUES(connectable)".to_owned(),
        };
        let tail = format!("{tail}, {assignment}");
        rows.insert(&head, &tail, known.into_iter(), |row, (record, change, is_open)| {
            write_peer(row, (record, change));
            row.flag(is_open == Some(true));
        })
    }
}

impl Tables for Unit3dTables {
    fn columns(&self) -> &'static [&'static str] {
        COLUMNS
    }

    fn write(&self, rows: &mut Rows<'_, '_>, records: &[Record]) -> Result<(), mysql::Error> {
        let [history_tail, peers_tail, torrents_update] = match self.is_node {
            true => [node_history_tail(), node_peers_tail(), NODE_TORRENTS_UPDATE.to_owned()],
            false => [HISTORY_TAIL, PEERS_TAIL, TORRENTS_UPDATE].map(String::from),
        };
        let announced = || records.iter().filter_map(|record| Some((record, record.last()?)));
        rows.insert(HISTORY, &history_tail, announced(), write_history)?;
        let peers =
            records.iter().flat_map(|record| record.announced().map(move |it| (record, it)));
        match &self.probes {
            None => rows.insert(PEERS, &peers_tail, peers, write_peer)?,
            Some(probes) => self.write_probed(rows, probes, &peers_tail, peers)?,
        }
        rows.update(USERS_UPDATE, &changes::of_users(records))?;
        let mut torrents = changes::of_torrents(records);
        torrents.retain(|_, change| *change != TorrentChange::default());
        rows.update(&torrents_update, &changes::torrents_json(&torrents, rows.unix_s))
    }

    fn write_rest(&self, rows: &mut Rows<'_, '_>, batch: &Batch) -> Result<(), mysql::Error> {
        rows.insert(UNREGISTERED, UNREGISTERED_TAIL, batch.unregistered.iter(), |row, one| {
            row.number(one.user).bytes(&one.info_hash.0).time(batch.unix_s).time(batch.unix_s);
        })
    }
}

/// Returns the end of the statement for `history` if other nodes write, too: of two announces of a client, the later one
/// stays.
fn node_history_tail() -> String {
    let later = ["agent", "client_uploaded", "client_downloaded", "seeder", "active"];
    format!(
        " ON DUPLICATE KEY UPDATE {}, uploaded = uploaded + VALUES(uploaded), \
         actual_uploaded = actual_uploaded + VALUES(actual_uploaded), downloaded = downloaded + VALUES(downloaded), \
         actual_downloaded = actual_downloaded + VALUES(actual_downloaded), seedtime = seedtime + VALUES(seedtime), \
         immune = immune AND VALUES(immune), completed_at = COALESCE(completed_at, VALUES(completed_at)), \
         created_at = LEAST(created_at, VALUES(created_at)), {}",
        keep_later("updated_at", &later),
        latest("updated_at")
    )
}

/// The same for `peers`.
fn node_peers_tail() -> String {
    let later =
        ["ip", "port", "agent", "uploaded", "downloaded", "`left`", "active", "seeder", "visible"];
    format!(
        " ON DUPLICATE KEY UPDATE {}, created_at = LEAST(created_at, VALUES(created_at)), {}",
        keep_later("updated_at", &later),
        latest("updated_at")
    )
}

/// Appends a row of `history`. `last` is the session that announced last.
fn write_history(row: &mut RowText<'_>, (record, last): (&Record, &SessionChange)) {
    let session = &last.session;
    row.number(record.user).number(record.torrent).text(&last.agent);
    row.number(record.credited_uploaded).number(record.uploaded).number(session.uploaded);
    row.number(record.credited_downloaded).number(record.downloaded).number(session.downloaded);
    row.flag(session.seeder).flag(record.active).number(record.seeded_s).flag(record.immune);
    row.time(record.created_s).time(session.updated_s);
    match record.completed_s {
        0 => row.null(),
        completed_s => row.time(completed_s),
    };
}

fn write_peer(row: &mut RowText<'_>, (record, change): (&Record, &SessionChange)) {
    let session = &change.session;
    row.number(record.user).number(record.torrent).bytes(&session.peer_id.0);
    match session.ip {
        IpAddr::V4(ip) => row.bytes(&ip.octets()),
        IpAddr::V6(ip) => row.bytes(&ip.octets()),
    };
    row.number(session.port).text(&change.agent);
    row.number(session.uploaded).number(session.downloaded).number(session.left);
    row.flag(session.active).flag(session.seeder).flag(session.visible);
    row.time(session.created_s).time(session.updated_s);
}
