//! Checks for an operator before a node starts: it reaches the servers, these permit it what it needs, the streams
//! are as they should be, and other nodes are there.

use std::io;
use std::time::Duration;

use async_nats::{Event, Subscriber};
use futures_util::StreamExt;
use replication::block;
use subsystem::Findings;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::doors;
use super::driver::now;
use super::link::{Link, REFUSED, is_refusal};
use super::options::NatsOptions;
use super::streams;
use crate::heartbeat::Heartbeat;
use crate::node::DropReason;

/// Longest time of connecting to one server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// Longest time of all other checks together.
const TIMEOUT: Duration = Duration::from_secs(8);
/// Time of waiting for heartbeats: each node sends one a second.
const HEARTBEATS: Duration = Duration::from_millis(1500);
/// Earlier versions have lost whole streams after crashes.
const VERSION_MIN: (i64, i64, i64) = (2, 10, 23);
const VERSION_GOOD: (i64, i64, i64) = (2, 12, 0);
/// A message: the longest block, and its headers.
const PAYLOAD_MIN: usize = block::HEADER_LEN + block::BODY_MAX + 1024;
/// Clocks that differ by more are corrected, and an alarm says so.
const CLOCK_OFFSET_MAX_MS: i64 = 2000;

/// Checks what `options` lead to, and adds what it finds, with remedies. Takes some seconds. `is_running` tells that
/// this machine runs the node already.
///
/// # Errors
///
/// If the check itself cannot run.
pub fn check(options: &NatsOptions, is_running: bool, findings: &mut Findings) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let Some((link, events)) = check_servers(options, findings).await else { return };
        let rest = check_cluster(options, &link, events, is_running, findings);
        if timeout(TIMEOUT, rest).await.is_err() {
            let text = "the NATS servers answer too slowly: check that JetStream has a leader";
            findings.problems.push(text.into());
        }
    });
    runtime.shutdown_background();
    Ok(())
}

type Connection = (Link, mpsc::UnboundedReceiver<Event>);

async fn check_servers(options: &NatsOptions, findings: &mut Findings) -> Option<Connection> {
    let mut first = None;
    for server in &options.servers {
        let alone = NatsOptions { servers: vec![server.clone()], ..options.clone() };
        let (events, receiver) = mpsc::unbounded_channel();
        let failure = match timeout(CONNECT_TIMEOUT, Link::connect_once(&alone, events)).await {
            Ok(Ok(link)) => {
                check_server(server, &link, findings);
                first.get_or_insert((link, receiver));
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        let remedy = if is_refusal(&failure) {
            REFUSED
        } else {
            "check that it runs, and its address, port and certificate"
        };
        findings.problems.push(format!("cannot connect to {server}: {failure}: {remedy}"));
    }
    first
}

/// Adds what there is to say of a server.
fn check_server(server: &str, link: &Link, findings: &mut Findings) {
    let info = link.client.server_info();
    let is_at_least = |(major, minor, patch)| link.client.is_server_compatible(major, minor, patch);
    let version = &info.version;
    if !is_at_least(VERSION_MIN) {
        findings.warnings.push(format!(
            "{server} is nats-server {version}, which can lose streams in a crash: install 2.12 or later"
        ));
    } else if !is_at_least(VERSION_GOOD) {
        findings
            .notes
            .push(format!("{server} is nats-server {version}: 2.12 or later is recommended"));
    }
    if !info.jetstream {
        findings.problems.push(format!(
            "{server} does not have JetStream: add jetstream {{}} to its configuration"
        ));
    }
    if info.max_payload < PAYLOAD_MIN {
        findings.problems.push(format!(
            "{server} accepts messages of at most {} bytes: set max_payload to {PAYLOAD_MIN} or more",
            info.max_payload
        ));
    }
}

async fn check_cluster(
    options: &NatsOptions,
    link: &Link,
    mut events: mpsc::UnboundedReceiver<Event>,
    is_running: bool,
    findings: &mut Findings,
) {
    let Ok(heartbeats) = link.subscribe(link.subjects.all("h")).await else {
        return findings.problems.push("the connection to NATS has ended".into());
    };
    check_rights(options, link, &mut events, findings).await;
    let needs = streams::data_config(link, options);
    match streams::look_up(&link.jetstream, &needs.name, TIMEOUT).await {
        Err(text) => findings.problems.push(text),
        Ok(None) => findings.problems.push(streams::missing(&needs.name)),
        Ok(Some(found)) => {
            findings.warnings.extend(found.doubt(&needs));
            let ahead_ms = now().unix_ms.cast_signed() - found.server_ms.cast_signed();
            findings.warnings.extend(clock_warning("this machine", ahead_ms));
        }
    }
    check_nodes(link, heartbeats, is_running, findings).await;
}

/// Tries what a server with users must refuse, and what the node needs.
async fn check_rights(
    options: &NatsOptions,
    link: &Link,
    events: &mut mpsc::UnboundedReceiver<Event>,
    findings: &mut Findings,
) {
    if !doors::has_users(options, link) {
        return findings.warnings.push(
            "the NATS servers have no users: anyone who reaches them can speak as any node: run them with the \
             configuration that `tidegate cluster init` makes"
                .into(),
        );
    }
    let found = doors::try_all(link, events).await;
    if found.is_own_shut {
        return findings.problems.push(format!(
            "this node may not publish in its own name: its join file is not that of node {0}: make one by `tidegate \
             cluster invite {0}`",
            options.node
        ));
    }
    findings.problems.extend(found.open);
}

/// Returns a warning if the clock of `place` is more than 2 s apart from that of the NATS server.
fn clock_warning(place: &str, ahead_ms: i64) -> Option<String> {
    let seconds = ahead_ms.unsigned_abs() as f64 / 1000.0;
    let direction = if ahead_ms < 0 { "behind" } else { "ahead of" };
    (ahead_ms.abs() > CLOCK_OFFSET_MAX_MS).then(|| {
        format!(
            "the clock of {place} is {seconds:.1} s {direction} that of the NATS server: synchronize both by NTP"
        )
    })
}

/// Looks which nodes are there, and what their clocks say.
async fn check_nodes(
    link: &Link,
    mut messages: Subscriber,
    is_running: bool,
    findings: &mut Findings,
) {
    let deadline = Instant::now() + HEARTBEATS;
    let mut seen = Vec::new();
    let (mut is_foreign, mut is_refused) = (false, false);
    while let Ok(Some(message)) = timeout_at(deadline, messages.next()).await {
        let from = match link.origin("h", &message) {
            Ok(from) => from,
            Err(reason) => {
                is_refused |= reason == DropReason::Access;
                is_foreign |= reason != DropReason::Access;
                continue;
            }
        };
        let Some(heartbeat) = Heartbeat::read(&message.payload).filter(|it| it.node == from) else {
            continue;
        };
        if seen.contains(&from) || heartbeat.is_leaving {
            continue;
        }
        seen.push(from);
        if from == link.subjects.node() {
            if !is_running {
                findings.problems.push(format!(
                    "cluster.join: another tracker has the number {from} (tidegate {}): make a join file for each \
                     node",
                    heartbeat.version
                ));
            }
            continue;
        }
        findings.warnings.extend(clock_warning(&format!("node {from}"), heartbeat.clock_ahead_ms));
    }
    if is_foreign {
        findings.problems.push(
            "cluster.join: other nodes have another secret: make a new join file by `tidegate cluster invite`"
                .into(),
        );
    }
    if is_refused {
        findings.problems.push(
            "access.private: other nodes have listeners of other kinds, private or open, than this node: use a \
             cluster for each kind, or set access.private_and_open = true on all nodes"
                .into(),
        );
    }
    let nodes: Vec<_> = seen.iter().map(u8::to_string).collect();
    findings.notes.push(match nodes.is_empty() {
        true => "no node of the cluster runs".into(),
        false => format!("nodes of the cluster that run: {}", nodes.join(", ")),
    });
}
