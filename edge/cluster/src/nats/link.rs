//! The connection to NATS: how it is made, what is published, and which messages are accepted.

use std::sync::Arc;
use std::time::Duration;

use async_nats::client::PublishError;
use async_nats::connection::State;
use async_nats::header::{HeaderMap, HeaderName, HeaderValue};
use async_nats::jetstream::Context;
use async_nats::{Client, ConnectOptions, Event, Message, Subject, Subscriber};
use bytes::Bytes;
use tokio::sync::mpsc;

use super::options::{NatsOptions, Subjects};
use crate::node::DropReason;

/// The header of every message: it names the secret that its writer has, and the kinds of its listeners.
const HEADER: HeaderName = HeaderName::from_static("Tidegate");
/// The headers of NATS itself begin with this.
const SERVERS_PREFIX: &str = "Nats-";
/// The only one that nodes write: a stream stores no second message with the same value. So a node may publish a message
/// until it is stored. And a consumer can deliver a message of another node into the stream again, under its subject;
/// this keeps old ones from coming back.
const MESSAGE_ID: HeaderName = HeaderName::from_static("Nats-Msg-Id");
/// A server that answers no ping for two or three of these is given up.
const PING_PERIOD: Duration = Duration::from_secs(1);
/// How long a connection may take until it is usable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a request to JetStream may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long publishing waits for room in the client's queue. The connection is about to fail then.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(200);
/// Messages of a subscription that wait to be handled. More are dropped. A reader asks for up to 6,144 at once.
const SUBSCRIPTION_CAPACITY: usize = 8192;
/// Commands to the connection that wait to be sent.
const CLIENT_CAPACITY: usize = 256;
/// The longest pause between two attempts to connect.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// A connection, which comes and goes.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) jetstream: Context,
    pub(super) subjects: Arc<Subjects>,
    headers: HeaderMap,
    identity: Arc<Identity>,
}

/// What messages say of their writers.
#[derive(Debug)]
struct Identity {
    /// In hexadecimal digits; that of the secret of this node's messages is the first.
    secret_ids: Vec<String>,
    access: String,
    accepts_any_access: bool,
}

impl Identity {
    fn new(options: &NatsOptions) -> Self {
        let NatsOptions { secret_ids, access, accepts_any_access, .. } = options;
        let hex = |id: &[u8; 4]| format!("{:08x}", u32::from_be_bytes(*id));
        Self {
            secret_ids: secret_ids.iter().map(hex).collect(),
            access: access.clone(),
            accepts_any_access: *accepts_any_access,
        }
    }

    /// Returns the header of this node's messages, if there is a secret.
    fn header(&self) -> Option<HeaderValue> {
        let id = self.secret_ids.first()?;
        Some(format!("{id} {}", self.access).as_str().into())
    }

    /// Returns why a message with this header is to be dropped, if it is.
    fn check(&self, header: &HeaderValue) -> Result<(), DropReason> {
        let text = header.as_str();
        let (id, access) = text.split_once(' ').unwrap_or((text, ""));
        if !self.secret_ids.iter().any(|known| known == id) {
            return Err(DropReason::Secret);
        }
        if access != self.access && !self.accepts_any_access {
            return Err(DropReason::Access);
        }
        Ok(())
    }
}

/// A message that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotSent;

impl From<PublishError> for NotSent {
    fn from(_: PublishError) -> Self {
        Self
    }
}

impl Link {
    /// Begins to connect, and continues until that succeeds. Events of the connection go to `events`.
    ///
    /// # Errors
    ///
    /// If a URL or the nkey is none.
    pub(super) async fn start(
        options: &NatsOptions,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, async_nats::ConnectError> {
        let subjects = Subjects::new(&options.name, options.node);
        let connect = connect_options(options, &subjects)
            .retry_on_initial_connect()
            .event_callback(move |event| {
                // Fails only while the thread ends.
                let _ = events.send(event);
                async {}
            });
        Self::connect(connect, options, subjects).await
    }

    /// Connects once. Events of the connection go to `events`.
    pub(super) async fn connect_once(
        options: &NatsOptions,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, async_nats::ConnectError> {
        let subjects = Subjects::new(&options.name, options.node);
        let connect = connect_options(options, &subjects).max_reconnects(options.servers.len());
        let connect = connect.event_callback(move |event| {
            // Fails only when the caller is done.
            let _ = events.send(event);
            async {}
        });
        Self::connect(connect, options, subjects).await
    }

    async fn connect(
        connect: ConnectOptions,
        options: &NatsOptions,
        subjects: Subjects,
    ) -> Result<Self, async_nats::ConnectError> {
        let client = connect.connect(options.servers_in_turn().as_slice()).await?;
        let mut jetstream = async_nats::jetstream::new(client.clone());
        jetstream.set_timeout(REQUEST_TIMEOUT);
        let identity = Arc::new(Identity::new(options));
        let mut headers = HeaderMap::new();
        if let Some(header) = identity.header() {
            headers.insert(HEADER, header);
        }
        Ok(Self { client, jetstream, subjects: Arc::new(subjects), headers, identity })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Publishes a message, unless the connection is away or stuck. `reply` is where its answer goes.
    pub(super) async fn publish(
        &self,
        subject: Subject,
        reply: Option<Subject>,
        body: Bytes,
    ) -> Result<(), NotSent> {
        self.publish_with(self.headers.clone(), subject, reply, body).await
    }

    /// Publishes a message to the log, which stores one message with this `id` only. Its acknowledgement goes to `reply`.
    pub(super) async fn publish_stored(
        &self,
        id: &str,
        reply: Subject,
        body: Bytes,
    ) -> Result<(), NotSent> {
        let mut headers = self.headers.clone();
        headers.insert(MESSAGE_ID, id);
        self.publish_with(headers, self.subjects.data(), Some(reply), body).await
    }

    async fn publish_with(
        &self,
        headers: HeaderMap,
        subject: Subject,
        reply: Option<Subject>,
        body: Bytes,
    ) -> Result<(), NotSent> {
        if !self.is_connected() {
            return Err(NotSent);
        }
        let publishing = async {
            match reply {
                Some(reply) => {
                    let client = &self.client;
                    client.publish_with_reply_and_headers(subject, reply, headers, body).await
                }
                None => self.client.publish_with_headers(subject, headers, body).await,
            }
        };
        match tokio::time::timeout(PUBLISH_TIMEOUT, publishing).await {
            Ok(published) => Ok(published?),
            Err(_) => Err(NotSent),
        }
    }

    /// Subscribes for as long as the returned value lives, over all connections.
    pub(super) async fn subscribe(&self, subject: String) -> Result<Subscriber, NotSent> {
        self.client.subscribe(subject).await.map_err(|_| NotSent)
    }

    /// Returns the node that wrote a message of this kind (`d`, `h`, `l`, `q`, `r`, `w`), or why it is to be dropped.
    pub(super) fn origin(&self, kind: &str, message: &Message) -> Result<u8, DropReason> {
        self.origin_of_answer(message)?;
        self.subjects.origin(kind, &message.subject).ok_or(DropReason::Origin)
    }

    /// Returns why an answer is to be dropped, if it is. Its subject names nothing: only the node that was
    /// asked knows it.
    pub(super) fn origin_of_answer(&self, message: &Message) -> Result<(), DropReason> {
        let headers = message.headers.as_ref().ok_or(DropReason::Foreign)?;
        self.identity.check(headers.get(HEADER).ok_or(DropReason::Foreign)?)?;
        // Streams add them to messages that they publish again, under a subject that their settings choose.
        let is_of_servers = |of_message: &HeaderName| {
            let name: &str = of_message.as_ref();
            let start = name.get(..SERVERS_PREFIX.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(SERVERS_PREFIX))
                && *of_message != MESSAGE_ID
        };
        if headers.iter().any(|(name, _)| is_of_servers(name)) {
            return Err(DropReason::Origin);
        }
        Ok(())
    }
}

fn connect_options(options: &NatsOptions, subjects: &Subjects) -> ConnectOptions {
    let mut connect = ConnectOptions::new()
        .name(format!("tidegate node {} of {}", options.node, options.name))
        .custom_inbox_prefix(subjects.inbox())
        .require_tls(options.requires_tls)
        .ping_interval(PING_PERIOD)
        .connection_timeout(CONNECT_TIMEOUT)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .subscription_capacity(SUBSCRIPTION_CAPACITY)
        .client_capacity(CLIENT_CAPACITY)
        .ignore_discovered_servers()
        .retain_servers_order()
        .no_echo()
        .reconnect_delay_callback(retry_pause);
    if let Some(seed) = &options.nkey {
        connect = connect.nkey(seed.clone());
    }
    if let Some((chain, key)) = &options.certificate {
        connect = connect.add_client_certificate(chain.clone(), key.clone());
    }
    if let Some(ca) = &options.ca {
        connect = connect.add_root_certificates(ca.clone());
    }
    connect
}

/// Returns the pause before an attempt. The first few are for the other servers.
fn retry_pause(attempt: usize) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX).min(10);
    let pause = Duration::from_millis(if attempt <= 1 { 0 } else { 20 });
    (pause * (1 << doublings)).min(RETRY_PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        assert_eq!(retry_pause(0), Duration::ZERO);
        assert_eq!(retry_pause(1), Duration::ZERO);
        assert_eq!(retry_pause(2), Duration::from_millis(40));
        assert_eq!(retry_pause(3), Duration::from_millis(80));
        assert_eq!(retry_pause(1000), RETRY_PAUSE_MAX);
    }
}
