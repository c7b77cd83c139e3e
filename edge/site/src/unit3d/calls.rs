//! The calls of UNIT3D: `/announce/{TRACKER_KEY}/…` with JSON bodies.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{MethodRouter, get, post, put};
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use types::{InfoHash, from_hex, to_hex};

use super::load::group_factors;
use crate::answers::Answers;
use crate::credit::Factors;
use crate::model::{Group, Model, Passkey, User};
use crate::server::{Caller, Calls};
use crate::torrents::{Moderation, Torrent};

#[derive(Debug, Deserialize)]
pub(crate) struct TorrentBody {
    id: u32,
    status: i64,
    info_hash: String,
    is_deleted: bool,
    times_completed: u32,
    download_factor: u16,
    upload_factor: u16,
}

#[derive(Debug, Deserialize)]
pub(crate) struct UserBody {
    id: u32,
    group_id: i32,
    passkey: String,
    #[serde(default)]
    new_passkey: Option<String>,
    can_download: bool,
    is_donor: bool,
    is_lifetime: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct GroupBody {
    id: i32,
    slug: String,
    download_slots: Option<i64>,
    is_immune: bool,
    is_freeleech: bool,
    is_double_upload: bool,
}

#[derive(Debug, Deserialize)]
struct IdBody<T> {
    id: T,
}

#[derive(Debug, Deserialize)]
struct AgentBody {
    peer_id_prefix: String,
}

#[derive(Debug, Deserialize)]
struct TokenBody {
    user_id: u32,
    torrent_id: u32,
}

#[derive(Debug, Deserialize)]
struct UserIdBody {
    user_id: u32,
}

#[derive(Debug, Deserialize)]
struct TorrentIdBody {
    torrent_id: u32,
}

type Body<T> = Result<Json<T>, axum::extract::rejection::JsonRejection>;
type Site = State<Arc<Calls>>;

/// Returns the routes below `/announce/{key}`.
pub(crate) fn router() -> Router<Arc<Calls>> {
    let sets: [(&str, MethodRouter<Arc<Calls>>); 7] = [
        ("/torrents", put(by(put_torrent)).delete(by(delete_torrent))),
        ("/users", put(by(put_user)).delete(by(delete_user))),
        ("/groups", put(by(put_group)).delete(by(delete_group))),
        ("/blacklisted-agents", put(by(put_agent)).delete(by(delete_agent))),
        ("/freeleech-tokens", put(by(put_token)).delete(by(delete_token))),
        ("/personal-freeleech", put(by(put_personal)).delete(by(delete_personal))),
        ("/featured-torrents", put(by(put_featured)).delete(by(delete_featured))),
    ];
    let mut router = Router::new();
    for (path, methods) in sets {
        router = router.route(&format!("/announce/{{key}}{path}"), methods);
    }
    router
        .route("/announce/{key}/torrents/{id}", get(show_torrent))
        .route("/announce/{key}/users/{id}", get(show_user))
        .route("/announce/{key}/stats", get(stats))
        .route("/announce/{key}/config/reload", post(reload))
}

/// Returns 200 if `done`, and 400 otherwise: UNIT3D repeats a call that is not answered by 200.
fn answer(done: bool) -> StatusCode {
    if done { StatusCode::OK } else { StatusCode::BAD_REQUEST }
}

/// Returns the handler of a call that changes something by its body. `change` returns false if a value is not valid.
fn by<T: DeserializeOwned + Send + 'static>(
    change: fn(&Answers, T) -> bool,
) -> impl Fn(Caller, Site, Body<T>) -> Ready<StatusCode> + Clone + Send + Sync + 'static {
    move |_: Caller, State(calls): Site, body: Body<T>| {
        ready(match body {
            Ok(Json(body)) => answer(change(&calls.shared.answers, body)),
            Err(rejection) => {
                calls.note_bad(&rejection.body_text());
                StatusCode::BAD_REQUEST
            }
        })
    }
}

fn put_torrent(answers: &Answers, body: TorrentBody) -> bool {
    let Some(torrent) = torrent_of(&body) else { return false };
    answers.model.write().put_torrent(body.id, torrent);
    true
}

/// Reads the body of a torrent. Returns `None` if a value is not valid.
fn torrent_of(body: &TorrentBody) -> Option<Torrent> {
    Some(Torrent {
        info_hash: InfoHash(from_hex(&body.info_hash)?),
        moderation: Moderation::of(body.status)?,
        is_deleted: body.is_deleted,
        is_neutral: false,
        factors: Factors { upload: body.upload_factor, download: body.download_factor },
        completed: AtomicU32::new(body.times_completed),
    })
}

fn delete_torrent(answers: &Answers, body: IdBody<u32>) -> bool {
    let mut model = answers.model.write();
    let torrent = model.torrents.get_mut(body.id);
    torrent.map(|torrent| torrent.is_deleted = true).is_some()
}

fn put_user(answers: &Answers, body: UserBody) -> bool {
    user_of(&body).is_some_and(|user| answers.put_user(body.id, user))
}

/// Reads the body of a user. Returns `None` if a value is not valid.
fn user_of(body: &UserBody) -> Option<User> {
    let passkey = body.new_passkey.as_ref().unwrap_or(&body.passkey);
    let passkey: Passkey = passkey.as_bytes().try_into().ok()?;
    Some(User {
        group: body.group_id,
        passkey,
        can_download: body.can_download,
        is_donor: body.is_donor,
        is_lifetime: body.is_lifetime,
        is_protected: false,
    })
}

fn delete_user(answers: &Answers, body: IdBody<u32>) -> bool {
    answers.remove_user(body.id);
    true
}

fn put_group(answers: &Answers, body: GroupBody) -> bool {
    let group = Group {
        slug: body.slug,
        slots: body.download_slots.map(|slots| u32::try_from(slots).unwrap_or(0)),
        is_immune: body.is_immune,
        factors: group_factors(body.is_freeleech, body.is_double_upload),
    };
    answers.model.write().groups.insert(body.id, group);
    true
}

fn delete_group(answers: &Answers, body: IdBody<i32>) -> bool {
    answers.model.write().groups.remove(&body.id);
    true
}

fn put_agent(answers: &Answers, body: AgentBody) -> bool {
    Model::add_prefix(&mut answers.model.write().refused, &body.peer_id_prefix)
}

fn delete_agent(answers: &Answers, body: AgentBody) -> bool {
    answers.model.write().refused.retain(|prefix| *prefix != body.peer_id_prefix);
    true
}

fn put_token(answers: &Answers, body: TokenBody) -> bool {
    answers.model.write().tokens.insert((body.user_id, body.torrent_id));
    true
}

fn delete_token(answers: &Answers, body: TokenBody) -> bool {
    answers.model.write().tokens.remove(&(body.user_id, body.torrent_id));
    true
}

fn put_personal(answers: &Answers, body: UserIdBody) -> bool {
    answers.model.write().personal.insert(body.user_id);
    true
}

fn delete_personal(answers: &Answers, body: UserIdBody) -> bool {
    answers.model.write().personal.remove(&body.user_id);
    true
}

fn put_featured(answers: &Answers, body: TorrentIdBody) -> bool {
    answers.model.write().featured.insert(body.torrent_id);
    true
}

fn delete_featured(answers: &Answers, body: TorrentIdBody) -> bool {
    answers.model.write().featured.remove(&body.torrent_id);
    true
}

async fn show_torrent(
    _: Caller,
    State(calls): Site,
    Path((_, id)): Path<(String, u32)>,
) -> Result<Json<Value>, StatusCode> {
    // Visits all sessions: not on the thread that serves the calls.
    let view = tokio::task::spawn_blocking(move || torrent_view(&calls, id));
    let view = view.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    view.map(Json).ok_or(StatusCode::NOT_FOUND)
}

/// Returns a torrent with its peers, as UNIT3D reads it.
fn torrent_view(calls: &Calls, id: u32) -> Option<Value> {
    let sessions = calls.shared.answers.ledger.sessions_of(id);
    let model = calls.shared.answers.model.read();
    let torrent = model.torrents.get(id)?;
    let peers = sessions.iter().map(|(user_id, session)| {
        let peer_id = to_hex(&session.peer_id.0);
        let view = json!({
            "ip_address": session.ip.to_string(),
            "user_id": user_id,
            "peer_id": peer_id,
            "port": session.port,
            "is_seeder": session.seeder,
            "is_active": session.active,
            "is_visible": session.visible,
            "is_connectable": false,
            "updated_at": session.updated_s,
            "uploaded": session.uploaded,
            "downloaded": session.downloaded,
        });
        (format!("{user_id}-{peer_id}"), view)
    });
    Some(json!({
        "id": id,
        "status": torrent.moderation.name(),
        "is_deleted": torrent.is_deleted,
        "peers": peers.collect::<Map<_, _>>(),
        "seeders": sessions.iter().map(|(_, session)| session.seeders()).sum::<i32>(),
        "leechers": sessions.iter().map(|(_, session)| session.leechers()).sum::<i32>(),
        "times_completed": torrent.completed.load(Ordering::Relaxed),
        "download_factor": torrent.factors.download,
        "upload_factor": torrent.factors.upload,
    }))
}

async fn show_user(
    _: Caller,
    State(calls): Site,
    Path((_, id)): Path<(String, u32)>,
) -> Result<Json<Value>, StatusCode> {
    let user = calls.shared.answers.model.read().users.get(id).copied();
    let user = user.ok_or(StatusCode::NOT_FOUND)?;
    let presence = calls.shared.answers.ledger.presence(id);
    // UNIT3D expects the rates of peer lists; these are not limited by user.
    Ok(Json(json!({
        "id": id,
        "group_id": user.group,
        "passkey": String::from_utf8_lossy(&user.passkey),
        "can_download": user.can_download,
        "num_seeding": presence.seeding,
        "num_leeching": presence.leeching,
        "is_donor": user.is_donor,
        "is_lifetime": user.is_lifetime,
        "receive_seed_list_rates": {"rates": []},
        "receive_leech_list_rates": {"rates": []},
    })))
}

async fn stats(_: Caller, State(calls): Site) -> Json<Value> {
    let answers = &calls.shared.answers;
    let last_s = f64::from(answers.last_announce_s.load(Ordering::Relaxed));
    let per_s = answers.rates.lock().per_s();
    let mut stats = Map::new();
    stats.insert("created_at".to_owned(), json!(f64::from(calls.shared.started_s)));
    stats.insert("last_request_at".to_owned(), json!(last_s));
    stats.insert("last_announce_response_at".to_owned(), json!(last_s));
    for kind in ["requests", "announce_responses"] {
        for (window_s, rate) in crate::rates::WINDOWS_S.iter().zip(per_s) {
            stats.insert(format!("{kind}_per_{window_s}s"), json!(rate));
        }
    }
    Json(Value::Object(stats))
}

async fn reload(_: Caller, State(calls): Site) -> StatusCode {
    calls.shared.reload();
    StatusCode::OK
}

/// Reads a body of the call named `path` as the server does. For fuzzing.
#[doc(hidden)]
pub fn read_body(path: &str, body: &[u8]) -> bool {
    match path {
        "torrents" => serde_json::from_slice(body).is_ok_and(|it| torrent_of(&it).is_some()),
        "users" => serde_json::from_slice(body).is_ok_and(|it| user_of(&it).is_some()),
        _ => serde_json::from_slice::<GroupBody>(body).is_ok(),
    }
}
