//! Tries whether the servers let a node do what no node may: speak as another one, change streams, or read what is
//! for others. NATS proves the origin of each message by these rights alone (decision 52), so a node whose user has
//! more of them is a problem of the whole cluster.
//!
//! Nothing is done where a door is open: other nodes drop what has no header, and JetStream refuses a request that it
//! cannot read.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Event, ServerError};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::error;

use super::link::Link;
use super::options::NatsOptions;
use super::status::Status;

/// The time that refusals may take after the server has answered a ping.
const REFUSALS: Duration = Duration::from_millis(300);
/// The time that connecting and trying may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a node tries again whether it reaches a server.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// The pause before doors that are open are tried again: the operator may have shut them meanwhile.
const OPEN_PAUSE: Duration = Duration::from_secs(60);
/// No request of JetStream's API: it is refused before anything changes.
const UNREADABLE: &[u8] = b"x";
/// The calls of JetStream's API that change or read a stream past the subjects of the nodes.
const STREAM_CALLS: [&str; 14] = [
    "STREAM.CREATE.S",
    "STREAM.UPDATE.S",
    "STREAM.DELETE.S",
    "STREAM.PURGE.S",
    "STREAM.RESTORE.S",
    "STREAM.SNAPSHOT.S",
    "STREAM.MSG.DELETE.S",
    "STREAM.MSG.GET.S",
    "STREAM.PEER.REMOVE.S",
    "CONSUMER.CREATE.S",
    "CONSUMER.DURABLE.CREATE.S.x",
    "CONSUMER.DELETE.S.x",
    "CONSUMER.NAMES.S",
    "DIRECT.GET.S",
];

/// A group of subjects that a node has no right to.
struct Door {
    /// With `this node may` before it.
    name: &'static str,
    subjects: Vec<String>,
    is_subscription: bool,
}

/// The result of trying all doors.
pub(super) struct Doors {
    /// True if the node may not publish in its own name.
    pub(super) is_own_shut: bool,
    /// A sentence for each door that is open, with the remedy.
    pub(super) open: Vec<String>,
}

/// Returns whether the servers tell users apart.
pub(super) fn has_users(options: &NatsOptions, link: &Link) -> bool {
    options.user.is_some() || link.client.server_info().auth_required
}

/// Returns the doors that a node must find shut.
fn doors(link: &Link) -> [Door; 3] {
    let subjects = &link.subjects;
    let other = if subjects.node() == 1 { 2 } else { 1 };
    let other = super::options::Subjects::new(subjects.name(), other);
    let own = [other.data(), other.live(), other.rows(), other.heartbeat()];
    let addressed = [other.letters(0), other.question(0)];
    let speak = own.into_iter().chain(addressed).map(|subject| subject.to_string());
    let stream = format!(".{}", subjects.stream());
    let of_stream = STREAM_CALLS.map(|call| format!("$JS.API.{}", call.replace(".S", &stream)));
    let read = [other.to_this("w"), other.to_this("q"), format!("{}.>", other.inbox())];
    let logs = [subjects.all("d"), "$JS.API.>".into()];
    [
        Door {
            name: "publish in the name of others",
            subjects: speak.collect(),
            is_subscription: false,
        },
        Door {
            name: "change the stream, or read it past its own consumers",
            subjects: of_stream.into(),
            is_subscription: false,
        },
        Door {
            name: "subscribe to what is not for it",
            subjects: read.into_iter().chain(logs).collect(),
            is_subscription: true,
        },
    ]
}

/// Tries all doors, and whether the node may publish in its own name. `events` are those of `link`.
pub(super) async fn try_all(link: &Link, events: &mut mpsc::UnboundedReceiver<Event>) -> Doors {
    // No node has the number 0, so this question reaches none.
    let own = link.subjects.question(0).to_string();
    let doors = doors(link);
    let mut subscribers = Vec::new();
    let publish = |subject: String, body: &'static [u8]| {
        link.client.publish(subject, Bytes::from_static(body))
    };
    // If the connection ends, all doors seem to be open; the next try is with another connection.
    let _ = publish(own.clone(), b"").await;
    for door in &doors {
        for subject in &door.subjects {
            if door.is_subscription {
                subscribers.extend(link.client.subscribe(subject.clone()).await);
            } else {
                let body = if subject.starts_with('$') { UNREADABLE } else { b"" };
                let _ = publish(subject.clone(), body).await;
            }
        }
    }
    let refused = refusals(link, events).await;
    let is_refused = |subject: &String| {
        let quoted = format!("\"{subject}\"").to_lowercase();
        refused.iter().any(|text| text.contains(&quoted))
    };
    let open = doors.into_iter().filter_map(|door| {
        let Door { name, mut subjects, .. } = door;
        subjects.retain(|subject| !is_refused(subject));
        (!subjects.is_empty()).then(|| {
            format!(
                "this node may {name} ({}): run the NATS servers with the configuration that `tidegate cluster \
                 init` made, and the node with a join file of `tidegate cluster invite`",
                subjects.join(" ")
            )
        })
    });
    Doors { is_own_shut: is_refused(&own), open: open.collect() }
}

/// Returns the errors that the server sends.
async fn refusals(link: &Link, events: &mut mpsc::UnboundedReceiver<Event>) -> Vec<String> {
    // Refusals come after the answer to a ping, or before it.
    let _ = link.client.flush().await;
    let deadline = Instant::now() + REFUSALS;
    let mut refused = Vec::new();
    while let Ok(Some(event)) = timeout_at(deadline, events.recv()).await {
        if let Event::ServerError(ServerError::Other(text)) = event {
            refused.push(text.to_lowercase());
        }
    }
    refused
}

/// Tries the doors by a connection of its own, as soon as a server is reached, and again until all are shut. The status
/// and the log say which ones are open.
pub(super) async fn watch(options: NatsOptions, status: Arc<Status>) {
    let mut known = Vec::new();
    loop {
        let (sender, mut events) = mpsc::unbounded_channel();
        let trying = async {
            let link = Link::connect_once(&options, sender).await.ok()?;
            let doors = if has_users(&options, &link) {
                try_all(&link, &mut events).await.open
            } else {
                Vec::new()
            };
            link.is_connected().then_some(doors)
        };
        let Ok(Some(open)) = timeout(TIMEOUT, trying).await else {
            sleep(RETRY_PAUSE).await;
            continue;
        };
        open.iter().filter(|text| !known.contains(*text)).for_each(|text| error!("{text}"));
        status.change(|overview| overview.status.open_doors.clone_from(&open));
        if open.is_empty() {
            return;
        }
        known = open;
        sleep(OPEN_PAUSE).await;
    }
}
