//! `/names`: what the names in the API's responses mean, so that no user interface has its own list of them.

use tracker::BanReason;
use tracker::counters::{DropReason, Protocol};
use types::Refusal;

use super::handler::*;
use crate::events::EventKind;
use crate::log_levels::{AREAS, LEVELS};
use crate::recorder::HistorySpan;

pub(super) fn routes() -> Vec<Route> {
    vec![route("GET /names", None, "List names in responses with what they mean", names)]
}

/// Names in responses of the API, by where they appear.
#[derive(Serialize, ToSchema)]
struct Names {
    protocols: Vec<Name>,
    refusals: Vec<Name>,
    drops: Vec<Name>,
    /// Reasons of automatic bans.
    bans: Vec<Name>,
    events: Vec<Name>,
    scopes: Vec<Name>,
    node_states: Vec<Name>,
    /// Spans of `/stats/history`.
    spans: Vec<Name>,
    log_areas: Vec<Name>,
    /// Most severe first.
    log_levels: Vec<Name>,
}

/// A name.
#[derive(Serialize, ToSchema)]
struct Name {
    /// As it is in responses.
    name: &'static str,
    /// The same in words, to be shown instead.
    title: String,
    /// Meaning of the name; may be empty.
    text: String,
}

/// Words that titles write otherwise than names.
const SPELLINGS: [(&str, &str); 7] = [
    ("http", "HTTP"),
    ("tls", "TLS"),
    ("id", "ID"),
    ("json", "JSON"),
    ("udp", "UDP"),
    ("acme", "ACME"),
    ("api", "API"),
];

/// States of a cluster's nodes. A test compares them with the cluster's own.
const NODE_STATES: [&str; 4] = ["alive", "suspect", "gone", "left"];

/// Returns the name in words: `bad_connection_id` becomes "Bad connection ID".
fn title(name: &str) -> String {
    let spell = |word| {
        let known = SPELLINGS.iter().find(|(name, _)| *name == word);
        known.map_or(word, |(_, spelling)| *spelling)
    };
    let words: Vec<&str> = name.split('_').map(spell).collect();
    let words = words.join(" ");
    let first = words.chars().next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + words.get(1..).unwrap_or_default()
}

fn name(name: &'static str, text: &str) -> Name {
    Name { name, title: title(name), text: text.replace('`', "") }
}

async fn names() -> Result<Json<Names>, Problem> {
    let protocol = |protocol: Protocol| {
        let title = match protocol {
            Protocol::Udp => "UDP",
            Protocol::Http => "HTTP",
            Protocol::Https => "HTTPS",
            Protocol::Ws => "WebTorrent",
            Protocol::Wss => "WebTorrent over TLS",
        };
        Name { title: title.into(), ..name(protocol.label(), protocol.meaning()) }
    };
    let span = |span: HistorySpan| Name { title: span.meaning().into(), ..name(span.label(), "") };
    Ok(Json(Names {
        protocols: Protocol::ALL.map(protocol).into(),
        refusals: Refusal::ALL.iter().map(|one| name(one.label(), one.meaning())).collect(),
        drops: DropReason::ALL.iter().map(|one| name(one.label(), one.meaning())).collect(),
        bans: BanReason::ALL.iter().map(|one| name(one.label(), one.meaning())).collect(),
        events: EventKind::all().map(|one| name(one.label(), one.meaning())).collect(),
        scopes: Scope::all().map(|one| name(one.label(), one.meaning())).collect(),
        node_states: NODE_STATES.map(|state| name(state, "")).into(),
        spans: HistorySpan::all().map(span).collect(),
        log_areas: AREAS.iter().map(|area| name(area.name, "")).collect(),
        log_levels: LEVELS.map(|(level, _)| name(level, "")).into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_nodes_are_those_of_the_cluster() {
        use ::cluster::NodeState::{Alive, Gone, Left, Suspect};
        let states = [Alive, Suspect, Gone, Left].map(|state| subsystem::json(&state));
        assert_eq!(states, NODE_STATES);
    }
}
