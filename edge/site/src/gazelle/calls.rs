//! The calls of Gazelle, as Ocelot takes them: `GET /{password}/update?action=…` and `/{password}/report?get=…`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::routing::get;
use types::{InfoHash, from_hex, is_secret};

use super::load::{GROUP, torrent};
use crate::answers::Answers;
use crate::model::{Model, PASSKEY_LEN, Passkey, User};
use crate::server::Calls;

type Site = State<Arc<Calls>>;
type Answer = (StatusCode, String);

pub(crate) fn router() -> Router<Arc<Calls>> {
    Router::new().route("/{password}/update", get(update)).route("/{password}/report", get(report))
}

/// The parameters of a call. Values are bytes: info hashes are not hexadecimal.
pub(crate) struct Parameters(HashMap<String, Vec<u8>>);

impl Parameters {
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(name, value)| (name.to_owned(), decode(value))).collect())
    }

    fn bytes(&self, name: &str) -> &[u8] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    fn text(&self, name: &str) -> &str {
        std::str::from_utf8(self.bytes(name)).unwrap_or_default()
    }

    fn number(&self, name: &str) -> Result<u32, &'static str> {
        self.text(name).parse().map_err(|_| "expected the number of a torrent or user")
    }

    fn info_hash(&self) -> Result<InfoHash, &'static str> {
        let hash = self.bytes("info_hash").try_into();
        hash.map(InfoHash).map_err(|_| "expected an info_hash of 20 bytes")
    }

    fn passkey(&self, name: &str) -> Result<Passkey, &'static str> {
        self.bytes(name).try_into().map_err(|_| "expected a passkey of 32 characters")
    }
}

/// Decodes percent signs. A malformed one stays as it is.
fn decode(value: &str) -> Vec<u8> {
    let mut parts = value.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let decoded = part.get(..2).and_then(from_hex::<1>);
        bytes.extend(decoded.unwrap_or([b'%']));
        let rest = if decoded.is_some() { part.get(2..) } else { Some(part) };
        bytes.extend(rest.unwrap_or_default().as_bytes());
    }
    bytes
}

async fn update(
    Path(password): Path<String>,
    State(calls): Site,
    RawQuery(query): RawQuery,
) -> Answer {
    if !is_secret(calls.shared.config.update_secret().as_bytes(), password.as_bytes()) {
        return (StatusCode::NOT_FOUND, "Authentication failure\n".to_owned());
    }
    let parameters = Parameters::parse(query.as_deref().unwrap_or_default());
    match apply(&calls.shared.answers, &parameters) {
        Ok(()) => (StatusCode::OK, "success".to_owned()),
        Err(reason) => {
            calls.note_bad(&format!("action={}: {reason}", parameters.text("action")));
            (StatusCode::BAD_REQUEST, format!("{reason}\n"))
        }
    }
}

fn apply(answers: &Answers, it: &Parameters) -> Result<(), &'static str> {
    match it.text("action") {
        "add_torrent" | "update_torrent" | "update_torrents" | "delete_torrent" | "add_token"
        | "remove_token" | "info_torrent" => apply_to_torrents(answers, it),
        "add_user" | "update_user" | "change_passkey" | "remove_user" | "remove_users" => {
            apply_to_users(answers, it)
        }
        "add_whitelist" | "edit_whitelist" | "remove_whitelist" => apply_to_whitelist(answers, it),
        "update_announce_interval" => Err(
            "the interval of announces is tracker.interval_s of the configuration: set it there",
        ),
        _ => Err("unknown action"),
    }
}

fn apply_to_torrents(answers: &Answers, it: &Parameters) -> Result<(), &'static str> {
    let free = it.text("freetorrent");
    let mut model = answers.model.write();
    match it.text("action") {
        "update_torrents" => {
            for hash in it.bytes("info_hashes").as_chunks::<20>().0 {
                if let Some(id) = model.torrents.id_of(&InfoHash(*hash)) {
                    set_free(&mut model, id, free);
                }
            }
        }
        "add_torrent" => {
            let (hash, id) = (it.info_hash()?, it.number("id")?);
            match model.torrents.id_of(&hash) {
                Some(known) => set_free(&mut model, known, free),
                None => model.put_torrent(id, torrent(hash, free, 0)),
            }
            answers.set_reason(hash, None);
        }
        "delete_torrent" => {
            let hash = it.info_hash()?;
            model.torrents.remove(&hash);
            let reason = it.number("reason").ok().and_then(|code| REASONS.get(code as usize));
            answers.set_reason(hash, reason.copied());
        }
        action => {
            let known = model.torrents.id_of(&it.info_hash()?);
            let id = known.ok_or("expected the info_hash of a known torrent")?;
            match action {
                "update_torrent" => set_free(&mut model, id, free),
                "add_token" => _ = model.tokens.insert((it.number("userid")?, id)),
                "remove_token" => _ = model.tokens.remove(&(it.number("userid")?, id)),
                // `info_torrent` asks only whether it is known.
                _ => {}
            }
        }
    }
    Ok(())
}

fn set_free(model: &mut Model, id: u32, free: &str) {
    if let Some(old) = model.torrents.get_mut(id) {
        let completed = old.completed.load(Ordering::Relaxed);
        *old = torrent(old.info_hash, free, completed);
    }
}

/// Returns the user with a passkey. Visits all users: such calls are rare.
fn find_user(model: &Model, passkey: &Passkey) -> Option<(u32, User)> {
    let found = model.users.iter().find(|(_, user)| user.passkey == *passkey);
    found.map(|(id, user)| (id, *user))
}

fn apply_to_users(answers: &Answers, it: &Parameters) -> Result<(), &'static str> {
    let find = |passkey: &Passkey| find_user(&answers.model.read(), passkey);
    let known = |name: &str| find(&it.passkey(name)?).ok_or("expected the passkey of a known user");
    let is_protected = it.text("visible") == "0";
    let (id, user) = match it.text("action") {
        "remove_users" => {
            for passkey in it.bytes("passkeys").as_chunks::<PASSKEY_LEN>().0 {
                find(passkey).inspect(|(id, _)| answers.remove_user(*id));
            }
            return Ok(());
        }
        "remove_user" => {
            find(&it.passkey("passkey")?).inspect(|(id, _)| answers.remove_user(*id));
            return Ok(());
        }
        "add_user" => {
            let user = User {
                group: GROUP,
                passkey: it.passkey("passkey")?,
                can_download: true,
                is_donor: false,
                is_lifetime: false,
                is_protected,
            };
            (it.number("id")?, user)
        }
        "change_passkey" => {
            let (id, user) = known("oldpasskey")?;
            (id, User { passkey: it.passkey("newpasskey")?, ..user })
        }
        _ => {
            let (id, user) = known("passkey")?;
            (id, User { can_download: it.text("can_leech") != "0", is_protected, ..user })
        }
    };
    let is_put = answers.put_user(id, user);
    if is_put { Ok(()) } else { Err("expected a passkey of 32 letters and digits") }
}

fn apply_to_whitelist(answers: &Answers, it: &Parameters) -> Result<(), &'static str> {
    let mut model = answers.model.write();
    let (added, removed) = match it.text("action") {
        "add_whitelist" => (Some("peer_id"), None),
        "remove_whitelist" => (None, Some("peer_id")),
        _ => (Some("new_peer_id"), Some("old_peer_id")),
    };
    if let Some(removed) = removed {
        let removed = it.text(removed);
        model.allowed.retain(|prefix| prefix != removed);
    }
    let is_added = added.is_none_or(|name| Model::add_prefix(&mut model.allowed, it.text(name)));
    if is_added { Ok(()) } else { Err("expected the beginning of a peer id") }
}

async fn report(
    Path(password): Path<String>,
    State(calls): Site,
    RawQuery(query): RawQuery,
) -> Answer {
    let secret = calls.shared.config.report_password.as_deref().unwrap_or_default();
    if !is_secret(secret.as_bytes(), password.as_bytes()) {
        return (StatusCode::NOT_FOUND, "Authentication failure\n".to_owned());
    }
    let it = Parameters::parse(query.as_deref().unwrap_or_default());
    let answers = &calls.shared.answers;
    let text = match it.text("get") {
        "stats" => {
            let totals = answers.ledger.totals();
            format!(
                "{} requests handled\n{} successful announcements\n{} leechers tracked\n{} seeders tracked\n",
                calls.count.load(Ordering::Relaxed) + answers.announces.load(Ordering::Relaxed),
                answers.announces.load(Ordering::Relaxed),
                totals.leeching,
                totals.seeding
            )
        }
        "user" => {
            let passkey = it.passkey("key").ok();
            let found = passkey.and_then(|key| find_user(&answers.model.read(), &key));
            found.map_or_else(String::new, |(id, _)| {
                let presence = answers.ledger.presence(id);
                format!("{} leeching\n{} seeding\n", presence.leeching, presence.seeding)
            })
        }
        _ => return (StatusCode::BAD_REQUEST, "Invalid action\n".to_owned()),
    };
    (StatusCode::OK, format!("{text}success"))
}

/// Reasons of deleted torrents, by Gazelle's number.
const REASONS: [&str; 23] = [
    "Dupe",
    "Trump",
    "Bad File Names",
    "Bad Folder Names",
    "Bad Tags",
    "Disallowed Format",
    "Discs Missing",
    "Discography",
    "Edited Log",
    "Inaccurate Bitrate",
    "Low Bitrate",
    "Mutt Rip",
    "Disallowed Source",
    "Encode Errors",
    "Specifically Banned",
    "Tracks Missing",
    "Transcode",
    "Unapproved Cassette",
    "Unsplit Album",
    "User Compilation",
    "Wrong Format",
    "Wrong Media",
    "Audience Recording",
];

/// Reads a query as the server does. For fuzzing.
#[doc(hidden)]
pub fn read_query(query: &str) -> usize {
    Parameters::parse(query).0.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bytes_and_malformed_percent_signs_stay() {
        let it = Parameters::parse("action=add_torrent&info_hash=%00%ffA%2&x&id=7");
        assert_eq!(it.bytes("info_hash"), b"\x00\xffA%2");
        assert_eq!(
            (it.text("action"), it.number("id"), it.number("x").is_err()),
            ("add_torrent", Ok(7), true)
        );
    }
}
