//! The columns of Gazelle, and how a batch gets into its tables.

use std::net::IpAddr;

use crate::batch::{Batch, Record, SessionChange};
use crate::changes::{self, signed};
use crate::database::{Rows, Tables};
use crate::sql::{RowText, keep_later, latest};

pub(crate) struct GazelleTables {
    /// True if other nodes of a cluster write them, too.
    pub(crate) is_node: bool,
}

/// The columns that are read or written.
const COLUMNS: &[&str] = &[
    "users_main: ID int, IP text, Uploaded int, Downloaded int, Enabled flag, Visible flag, can_leech flag, \
     torrent_pass text",
    "torrents: ID int, info_hash blob, FreeTorrent flag, Seeders int, Leechers int, Snatched int, balance int, \
     last_action time",
    "users_freeleeches: UserID int, TorrentID int, Expired int, Downloaded int",
    "xbt_client_whitelist: peer_id text",
    "xbt_files_users: uid int, fid int, active int, uploaded int, downloaded int, upspeed int, downspeed int, \
     remaining int, timespent int, announced int, ip text, peer_id blob, useragent text, mtime int",
    "xbt_snatched: uid int, fid int, tstamp int, IP text",
];

/// Characters of an agent.
const AGENT_LEN: usize = 51;

const PEERS: &str = "xbt_files_users (uid, fid, active, uploaded, downloaded, upspeed, downspeed, remaining, timespent, \
    announced, ip, peer_id, useragent, mtime)";
const PEERS_TAIL: &str = " ON DUPLICATE KEY UPDATE active = VALUES(active), uploaded = VALUES(uploaded), \
    downloaded = VALUES(downloaded), upspeed = VALUES(upspeed), downspeed = VALUES(downspeed), \
    remaining = VALUES(remaining), timespent = VALUES(timespent), announced = announced + VALUES(announced), \
    ip = VALUES(ip), useragent = VALUES(useragent), mtime = VALUES(mtime)";

const SNATCHED: &str = "xbt_snatched (uid, fid, tstamp, IP)";

/// The rows come first, so that each is looked up by its primary key.
const USERS_UPDATE: &str = "UPDATE JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', \
    up BIGINT UNSIGNED PATH '$[1]', down BIGINT UNSIGNED PATH '$[2]')) AS d STRAIGHT_JOIN users_main AS u ON u.ID = d.id \
    SET u.Uploaded = u.Uploaded + d.up, u.Downloaded = u.Downloaded + d.down";
const TORRENTS_UPDATE: &str = "UPDATE JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', \
    seeders BIGINT PATH '$[1]', leechers BIGINT PATH '$[2]', snatched BIGINT PATH '$[3]', balance BIGINT PATH '$[4]', \
    time_s BIGINT PATH '$[5]')) AS d STRAIGHT_JOIN torrents AS t ON t.ID = d.id \
    SET t.last_action = IF(CAST(t.Seeders AS SIGNED) + d.seeders > 0, FROM_UNIXTIME(d.time_s), t.last_action), \
    t.Seeders = GREATEST(CAST(t.Seeders AS SIGNED) + d.seeders, 0), \
    t.Leechers = GREATEST(CAST(t.Leechers AS SIGNED) + d.leechers, 0), t.Snatched = t.Snatched + d.snatched, \
    t.balance = t.balance + d.balance";
/// The same if other nodes write, too. The numbers of seeders and leechers are counted: two nodes may have seen the same
/// client come or go. Peers that were silent for too long are left out, and so are leechers who may not download.
const NODE_TORRENTS_UPDATE: &str = "UPDATE JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (id BIGINT UNSIGNED PATH '$[0]', \
    seeders BIGINT PATH '$[1]', leechers BIGINT PATH '$[2]', snatched BIGINT PATH '$[3]', balance BIGINT PATH '$[4]', \
    time_s BIGINT PATH '$[5]', counts INT PATH '$[6]')) AS d STRAIGHT_JOIN torrents AS t ON t.ID = d.id \
    SET t.last_action = IF(t.Seeders > 0 OR d.seeders > 0, FROM_UNIXTIME(d.time_s), t.last_action), \
    t.Seeders = IF(d.counts, (SELECT COUNT(*) FROM xbt_files_users AS x WHERE x.fid = d.id AND x.active = 1 \
    AND x.remaining = 0 AND x.mtime > d.time_s - 9000), t.Seeders), \
    t.Leechers = IF(d.counts, (SELECT COUNT(*) FROM xbt_files_users AS x JOIN users_main AS u ON u.ID = x.uid \
    WHERE x.fid = d.id AND x.active = 1 AND x.remaining > 0 AND x.mtime > d.time_s - 9000 AND u.can_leech = 1), \
    t.Leechers), t.Snatched = t.Snatched + d.snatched, \
    t.balance = t.balance + d.balance";
const TOKENS_UPDATE: &str = "UPDATE JSON_TABLE(CONVERT(? USING utf8mb4), '$[*]' COLUMNS (user BIGINT UNSIGNED PATH '$[0]', \
    torrent BIGINT UNSIGNED PATH '$[1]', down BIGINT PATH '$[2]', ends INT PATH '$[3]')) AS d \
    STRAIGHT_JOIN users_freeleeches AS f ON f.UserID = d.user AND f.TorrentID = d.torrent \
    SET f.Downloaded = f.Downloaded + d.down, f.Expired = IF(d.ends, 1, f.Expired)";

impl Tables for GazelleTables {
    fn columns(&self) -> &'static [&'static str] {
        COLUMNS
    }

    fn write(&self, rows: &mut Rows<'_, '_>, records: &[Record]) -> Result<(), mysql::Error> {
        let [peers_tail, torrents_update] = match self.is_node {
            true => [node_peers_tail(), NODE_TORRENTS_UPDATE.to_owned()],
            false => [PEERS_TAIL, TORRENTS_UPDATE].map(String::from),
        };
        let peers =
            records.iter().flat_map(|record| record.announced().map(move |it| (record, it)));
        rows.insert(PEERS, &peers_tail, peers, write_peer)?;
        let snatched = records.iter().filter(|record| record.completions > 0);
        let snatched = snatched.filter_map(|record| Some((record, record.last()?)));
        rows.insert(SNATCHED, "", snatched, write_snatched)?;
        rows.update(USERS_UPDATE, &changes::of_users(records))?;
        let torrents = changes::torrents_json(&changes::of_torrents(records), rows.unix_s);
        rows.update(&torrents_update, &torrents)?;
        rows.update(TOKENS_UPDATE, &token_changes(records))
    }

    fn write_rest(&self, _: &mut Rows<'_, '_>, _: &Batch) -> Result<(), mysql::Error> {
        // Gazelle has no table of unregistered torrents.
        Ok(())
    }
}

/// Returns the end of the statement for peers if other nodes write, too: of two announces of a client, the later one
/// stays.
fn node_peers_tail() -> String {
    let later = [
        "active",
        "uploaded",
        "downloaded",
        "upspeed",
        "downspeed",
        "remaining",
        "ip",
        "useragent",
    ];
    format!(
        " ON DUPLICATE KEY UPDATE {}, timespent = GREATEST(timespent, VALUES(timespent)), \
         announced = announced + VALUES(announced), {}",
        keep_later("mtime", &later),
        latest("mtime")
    )
}

/// Returns the address of a session as the site may know it.
fn address(record: &Record, ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) if !record.hides_address => ip.to_string(),
        // The column has room for IPv4 only.
        _ => String::new(),
    }
}

/// Appends a row of `xbt_files_users`.
fn write_peer(row: &mut RowText<'_>, (record, change): (&Record, &SessionChange)) {
    let session = &change.session;
    let is_last = record.last().is_some_and(|last| last.session.peer_id == session.peer_id);
    let others = record.announced().count().saturating_sub(1);
    let announces = if is_last { record.announces.saturating_sub(others as u32) } else { 1 };
    let per_s = |bytes: u64| {
        let speed = if is_last { bytes / u64::from(record.elapsed_s.max(1)) } else { 0 };
        u32::try_from(speed).unwrap_or(u32::MAX)
    };
    row.number(record.user).number(record.torrent).flag(session.active);
    row.number(signed(session.uploaded)).number(signed(session.downloaded));
    row.number(per_s(record.uploaded)).number(per_s(record.downloaded));
    row.number(signed(session.left));
    row.number(session.updated_s.saturating_sub(session.created_s)).number(announces);
    row.text(&address(record, session.ip)).bytes(&session.peer_id.0);
    row.text(change.agent.get(..AGENT_LEN).unwrap_or(&change.agent)).number(session.updated_s);
}

/// Appends a row of `xbt_snatched`. `last` is the session that announced last.
fn write_snatched(row: &mut RowText<'_>, (record, last): (&Record, &SessionChange)) {
    row.number(record.user).number(record.torrent).number(last.session.updated_s);
    row.text(&address(record, last.session.ip));
}

/// Returns what was downloaded with each token, and true if that ends it, as JSON. A completed download ends a token even
/// if its last bytes were reported before. Users without a token have no row.
fn token_changes(records: &[Record]) -> Vec<String> {
    let used = records.iter().filter(|it| it.token_downloaded > 0 || it.completions > 0);
    let json = |record: &Record| {
        let Record { user, torrent, token_downloaded, completions, .. } = record;
        format!("[{user},{torrent},{token_downloaded},{}]", u8::from(*completions > 0))
    };
    used.map(json).collect()
}
