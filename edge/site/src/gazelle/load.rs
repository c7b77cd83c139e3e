//! Reads Gazelle's users and torrents, and, at the first start, the peers that Ocelot wrote.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicU32;

use mysql::Conn;
use mysql::prelude::Queryable;
use types::{InfoHash, PeerId};

use crate::batch::{Counting, Session};
use crate::credit::Factors;
use crate::database::column;
use crate::model::{Group, Model, User};
use crate::torrents::{Moderation, Torrent};

/// The group of all users: Gazelle has none that a tracker knows.
pub(crate) const GROUP: i32 = 0;

pub(crate) fn load(conn: &mut Conn) -> Result<Model, mysql::Error> {
    let mut model = Model::default();
    let group =
        Group { slug: String::new(), slots: None, is_immune: false, factors: Factors::PLAIN };
    model.groups.insert(GROUP, group);
    load_users(conn, &mut model)?;
    load_torrents(conn, &mut model)?;
    let sql = "SELECT UserID, TorrentID FROM users_freeleeches WHERE Expired = 0";
    for row in conn.query_iter(sql)? {
        let mut row = row?;
        model.tokens.insert((column(&mut row, 0)?, column(&mut row, 1)?));
    }
    for row in
        conn.query_iter("SELECT peer_id FROM xbt_client_whitelist WHERE peer_id IS NOT NULL")?
    {
        let prefix: String = column(&mut row?, 0)?;
        Model::add_prefix(&mut model.allowed, &prefix);
    }
    model.reserve();
    Ok(model)
}

fn load_users(conn: &mut Conn, model: &mut Model) -> Result<(), mysql::Error> {
    let sql = "SELECT ID, torrent_pass, can_leech, (Visible = '0' OR IP = '127.0.0.1') FROM users_main WHERE Enabled = '1'";
    for row in conn.query_iter(sql)? {
        let mut row = row?;
        let passkey: Vec<u8> = column(&mut row, 1)?;
        let Ok(passkey) = passkey.try_into() else {
            model.bad_passkeys += 1;
            continue;
        };
        let user = User {
            group: GROUP,
            passkey,
            can_download: column(&mut row, 2)?,
            is_donor: false,
            is_lifetime: false,
            is_protected: column(&mut row, 3)?,
        };
        model.users.insert(column(&mut row, 0)?, user);
    }
    Ok(())
}

fn load_torrents(conn: &mut Conn, model: &mut Model) -> Result<(), mysql::Error> {
    let sql = "SELECT ID, info_hash, FreeTorrent, Snatched FROM torrents";
    for row in conn.query_iter(sql)? {
        let mut row = row?;
        let info_hash: Vec<u8> = column(&mut row, 1)?;
        let Ok(info_hash) = <[u8; 20]>::try_from(info_hash) else { continue };
        let free: String = column(&mut row, 2)?;
        let completed: u32 = column(&mut row, 3)?;
        model.put_torrent(column(&mut row, 0)?, torrent(InfoHash(info_hash), &free, completed));
    }
    Ok(())
}

/// Returns a torrent with Gazelle's `FreeTorrent`: 0 = normal, 1 = free, 2 = neutral.
pub(crate) fn torrent(info_hash: InfoHash, free: &str, completed: u32) -> Torrent {
    let factors = if free == "1" { Factors { upload: 100, download: 0 } } else { Factors::PLAIN };
    Torrent {
        info_hash,
        moderation: Moderation::Approved,
        is_deleted: false,
        is_neutral: free == "2",
        factors,
        completed: AtomicU32::new(completed),
    }
}

/// Calls `learn` with the user, torrent and state of each peer that Ocelot wrote.
pub(crate) fn load_peers(
    conn: &mut Conn,
    mut learn: impl FnMut(u32, u32, &Session),
) -> Result<(), mysql::Error> {
    let sql = "SELECT uid, fid, peer_id, ip, uploaded, downloaded, remaining, active, mtime, timespent \
               FROM xbt_files_users";
    for row in conn.query_iter(sql)? {
        let mut row = row?;
        let peer_id: Vec<u8> = column(&mut row, 2)?;
        let Ok(peer_id) = peer_id.try_into() else { continue };
        let ip: String = column(&mut row, 3)?;
        let ip = ip.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let left: u64 = column(&mut row, 6)?;
        let active: bool = column(&mut row, 7)?;
        let updated_s: u32 = column(&mut row, 8)?;
        let spent_s: u32 = column(&mut row, 9)?;
        let session = Session {
            peer_id: PeerId(peer_id),
            ip,
            // Not in the table: until the client announces, its user can get its own peer.
            port: 0,
            uploaded: column(&mut row, 4)?,
            downloaded: column(&mut row, 5)?,
            left,
            active,
            seeder: left == 0,
            visible: active,
            created_s: updated_s.saturating_sub(spent_s),
            updated_s,
            counting: Counting::Elsewhere,
        };
        learn(column(&mut row, 0)?, column(&mut row, 1)?, &session);
    }
    Ok(())
}
