//! Reads UNIT3D's users and torrents, and, at the first start, the peers that another tracker wrote.

use std::net::IpAddr;
use std::sync::atomic::AtomicU32;

use mysql::Conn;
use mysql::prelude::Queryable;
use types::{InfoHash, PeerId};

use crate::batch::{Counting, Session};
use crate::credit::Factors;
use crate::database::column;
use crate::model::{Group, Model, User};
use crate::torrents::{Moderation, Torrent};

pub(crate) fn load(conn: &mut Conn) -> Result<Model, mysql::Error> {
    let mut model = Model::default();
    load_groups(conn, &mut model)?;
    load_users(conn, &mut model)?;
    load_torrents(conn, &mut model)?;
    load_sets(conn, &mut model)?;
    model.reserve();
    Ok(model)
}

fn load_groups(conn: &mut Conn, model: &mut Model) -> Result<(), mysql::Error> {
    let sql =
        "SELECT id, slug, download_slots, is_immune, is_freeleech, is_double_upload FROM `groups`";
    for row in conn.query_iter(sql)? {
        let mut row = row?;
        let slots: Option<i64> = column(&mut row, 2)?;
        let group = Group {
            slug: column(&mut row, 1)?,
            slots: slots.map(|slots| u32::try_from(slots).unwrap_or(0)),
            is_immune: column(&mut row, 3)?,
            factors: group_factors(column(&mut row, 4)?, column(&mut row, 5)?),
        };
        model.groups.insert(column(&mut row, 0)?, group);
    }
    Ok(())
}

/// Returns how the bytes of a group's users are credited.
pub(crate) fn group_factors(is_freeleech: bool, is_double_upload: bool) -> Factors {
    Factors {
        upload: if is_double_upload { 200 } else { 100 },
        download: if is_freeleech { 0 } else { 100 },
    }
}

fn load_users(conn: &mut Conn, model: &mut Model) -> Result<(), mysql::Error> {
    let sql = "SELECT id, group_id, passkey, can_download, is_donor, is_lifetime FROM users WHERE deleted_at IS NULL";
    for row in conn.query_iter(sql)? {
        let mut row = row?;
        let passkey: Vec<u8> = column(&mut row, 2)?;
        let Ok(passkey) = passkey.try_into() else {
            model.bad_passkeys += 1;
            continue;
        };
        let user = User {
            group: column(&mut row, 1)?,
            passkey,
            can_download: column(&mut row, 3)?,
            is_donor: column(&mut row, 4)?,
            is_lifetime: column(&mut row, 5)?,
            is_protected: false,
        };
        model.users.insert(column(&mut row, 0)?, user);
    }
    Ok(())
}

fn load_torrents(conn: &mut Conn, model: &mut Model) -> Result<(), mysql::Error> {
    let sql = "SELECT id, info_hash, status, free, doubleup, times_completed, deleted_at IS NOT NULL FROM torrents";
    for row in conn.query_iter(sql)? {
        let mut row = row?;
        let info_hash: Vec<u8> = column(&mut row, 1)?;
        let Ok(info_hash) = <[u8; 20]>::try_from(info_hash) else { continue };
        let free: i64 = column(&mut row, 3)?;
        let doubleup: bool = column(&mut row, 4)?;
        let completed: i64 = column(&mut row, 5)?;
        let torrent = Torrent {
            info_hash: InfoHash(info_hash),
            moderation: Moderation::of(column(&mut row, 2)?).unwrap_or(Moderation::Pending),
            is_deleted: column(&mut row, 6)?,
            is_neutral: false,
            factors: Factors {
                upload: if doubleup { 200 } else { 100 },
                download: 100 - free.clamp(0, 100) as u16,
            },
            completed: AtomicU32::new(u32::try_from(completed).unwrap_or(0)),
        };
        model.put_torrent(column(&mut row, 0)?, torrent);
    }
    Ok(())
}

fn load_sets(conn: &mut Conn, model: &mut Model) -> Result<(), mysql::Error> {
    for row in conn.query_iter("SELECT user_id, torrent_id FROM freeleech_tokens")? {
        let mut row = row?;
        model.tokens.insert((column(&mut row, 0)?, column(&mut row, 1)?));
    }
    for row in conn.query_iter("SELECT user_id FROM personal_freeleeches")? {
        model.personal.insert(column(&mut row?, 0)?);
    }
    for row in conn.query_iter("SELECT torrent_id FROM featured_torrents")? {
        model.featured.insert(column(&mut row?, 0)?);
    }
    for row in conn.query_iter("SELECT peer_id_prefix FROM blacklist_clients")? {
        let prefix: String = column(&mut row?, 0)?;
        Model::add_prefix(&mut model.refused, &prefix);
    }
    Ok(())
}

/// Calls `learn` with the user, torrent and state of each peer. The tracker before this one wrote them: without their
/// counters the first announces would be worth nothing, and each peer would be counted twice in its torrent.
pub(crate) fn load_peers(
    conn: &mut Conn,
    mut learn: impl FnMut(u32, u32, &Session),
) -> Result<(), mysql::Error> {
    let sql = "SELECT user_id, torrent_id, peer_id, ip, port, uploaded, downloaded, `left`, active, seeder, visible, \
               COALESCE(UNIX_TIMESTAMP(created_at), 0), COALESCE(UNIX_TIMESTAMP(updated_at), 0) FROM peers";
    for row in conn.query_iter(sql)? {
        let mut row = row?;
        let peer_id: Vec<u8> = column(&mut row, 2)?;
        let ip: Vec<u8> = column(&mut row, 3)?;
        let (Ok(peer_id), Some(ip)) = (peer_id.try_into(), ip_of(&ip)) else { continue };
        let session = Session {
            peer_id: PeerId(peer_id),
            ip,
            port: column(&mut row, 4)?,
            uploaded: column(&mut row, 5)?,
            downloaded: column(&mut row, 6)?,
            left: column(&mut row, 7)?,
            active: column(&mut row, 8)?,
            seeder: column(&mut row, 9)?,
            visible: column(&mut row, 10)?,
            created_s: column(&mut row, 11)?,
            updated_s: column(&mut row, 12)?,
            counting: Counting::Elsewhere,
        };
        learn(column(&mut row, 0)?, column(&mut row, 1)?, &session);
    }
    Ok(())
}

/// Returns the address of 4 or 16 bytes.
fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}
