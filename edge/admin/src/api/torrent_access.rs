//! The listeners that serve a torrent, and why the others refuse it.

use std::fs::File;
use std::io::BufReader;

use tracker::access::HashList;
use tracker::{Access, ListenerPolicy};
use types::{InfoHash, Refusal};

use super::handler::*;
use crate::records::tables::lists::List;

/// The outcome of announces of a torrent at some of the listeners.
#[derive(Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct TorrentAccess {
    state: AccessState,
    /// The text that clients show; absent: the tracker's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The list that denies it: `api`, or the path of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<String>,
    /// The line of that file; absent: it has changed since it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// The credentials that clients need to be served; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<Credentials>,
    /// The listeners, as protocol and address; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    listeners: Option<Vec<String>>,
}

/// The outcome of an announce.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AccessState {
    /// They are accepted.
    Served,
    /// Refused: the torrent is on a deny list.
    Denied,
    /// Refused: it is not on the allow list.
    NotAllowed,
    /// Refused: it is frozen.
    Frozen,
    /// Refused: it has a reason of its own.
    Refused,
}

/// The credentials that an announce URL must hold.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Credentials {
    Key,
    Token,
}

/// Returns how announces of a torrent end, once for each way, with the listeners if there are several ways.
pub(super) async fn of_torrent(
    api: &Shared,
    hash: InfoHash,
) -> Result<Vec<TorrentAccess>, Problem> {
    // A list file is read for the number of the line.
    api.blocking(move |api| ways(api, &hash)).await
}

fn ways(api: &Api, hash: &InfoHash) -> Vec<TorrentAccess> {
    let settings = api.tracker().settings();
    let mut ways: Vec<(TorrentAccess, Vec<String>)> = Vec::new();
    for (listener, _) in api.sources().registry.read() {
        let Some(policy) = settings.listener(listener.listener_policy) else { continue };
        let way = way(api, policy, hash);
        let name = format!("{} {}", listener.protocol.label(), listener.address);
        match ways.iter_mut().find(|(known, _)| *known == way) {
            Some((_, names)) => names.push(name),
            None => ways.push((way, vec![name])),
        }
    }
    let is_one = ways.len() == 1;
    for (way, names) in &mut ways {
        if let (Some(path), AccessState::Denied) = (&way.list, way.state) {
            way.line = line_in(path, hash);
        }
        way.listeners = (!is_one).then(|| std::mem::take(names));
    }
    ways.into_iter().map(|(way, _)| way).collect()
}

/// Returns how an announce ends at a listener, without the line of the list.
fn way(api: &Api, policy: &ListenerPolicy, hash: &InfoHash) -> TorrentAccess {
    let admitted = api.tracker().admit(policy, hash);
    let reason = match admitted {
        Err(refusal @ Refusal::Torrent { .. }) => Some(refusal.text()),
        _ => None,
    };
    let state = match admitted {
        Ok(()) => AccessState::Served,
        Err(Refusal::Torrent { .. }) => AccessState::Refused,
        Err(Refusal::Denied) => AccessState::Denied,
        Err(Refusal::NotAllowed) => AccessState::NotAllowed,
        Err(_) => AccessState::Frozen,
    };
    let is_live = List::Deny.live_list(api.tracker()).is_some_and(|live| live.contains(hash));
    let list = if is_live { "api" } else { policy.lists.deny.source() };
    let needs = match policy.access {
        Access::Private => Some(Credentials::Key),
        Access::Tokens => Some(Credentials::Token),
        Access::Open => None,
    };
    TorrentAccess {
        state,
        reason,
        list: (state == AccessState::Denied).then(|| list.to_owned()),
        line: None,
        needs,
        listeners: None,
    }
}

/// Returns the line of a list file that holds a torrent.
fn line_in(path: &str, hash: &InfoHash) -> Option<u64> {
    let file = File::open(path).ok()?;
    HashList::find_line(BufReader::new(file), hash).map(|line| line as u64)
}
