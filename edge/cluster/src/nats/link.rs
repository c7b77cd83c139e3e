//! The connection to NATS: how it is made, what is published, and which messages are accepted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::client::PublishError;
use async_nats::connection::State;
use async_nats::header::{HeaderMap, HeaderName, HeaderValue};
use async_nats::jetstream::Context;
use async_nats::{Client, ClientError, ConnectOptions, Event, Message, Subject, Subscriber};
use bytes::Bytes;
use tokio::sync::mpsc;
use tracing::warn;

use super::options::{NatsOptions, SecretIds, Subjects, servers_in_turn};
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
/// Longest time until a connection is usable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time of a request to JetStream.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time that publishing waits for room in the client's queue. After that, the connection is about to fail.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(200);
/// Messages of a subscription that wait to be handled. More are dropped. A reader asks for up to 6,144 at once.
const SUBSCRIPTION_CAPACITY: usize = 8192;
/// Commands to the connection that wait to be sent.
const CLIENT_CAPACITY: usize = 256;
/// The meaning of a refused user, with the remedy.
pub(super) const REFUSED: &str = "this node was removed, or its join file is damaged or of another cluster: make a new \
                                  one by `tidegate cluster invite`";
/// The longest pause between two attempts to connect.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// A connection, which comes and goes.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) jetstream: Context,
    pub(super) subjects: Arc<Subjects>,
    identity: Arc<Identity>,
}

/// Secrets and kinds of listeners: named in this node's messages, and checked in those of others.
#[derive(Debug)]
struct Identity {
    secret_ids: SecretIds,
    access: String,
    accepts_any_access: bool,
    /// True if the log says that other nodes have another secret.
    has_warned: AtomicBool,
}

impl Identity {
    fn new(options: &NatsOptions) -> Self {
        let NatsOptions { secret_ids, access, accepts_any_access, .. } = options;
        Self {
            secret_ids: secret_ids.clone(),
            access: access.clone(),
            accepts_any_access: *accepts_any_access,
            has_warned: AtomicBool::new(false),
        }
    }

    /// Returns the header of this node's messages.
    fn header(&self) -> HeaderValue {
        let ids = self.secret_ids.names().join("+");
        format!("{ids} {}", self.access).as_str().into()
    }

    /// Returns why a message with this header is to be dropped, if it is.
    fn check(&self, header: &HeaderValue) -> Result<(), DropReason> {
        let text = header.as_str();
        let (ids, access) = text.split_once(' ').unwrap_or((text, ""));
        let known = self.secret_ids.names();
        if !ids.split('+').any(|id| known.iter().any(|known| known == id)) {
            if !self.has_warned.swap(true, Ordering::Relaxed) {
                warn!(
                    "another node has another secret: if the secret was changed while this node was away, make a \
                     new join file by `tidegate cluster invite`, put it in place of cluster.join, and restart"
                );
            }
            return Err(DropReason::Secret);
        }
        if access != self.access && !self.accepts_any_access {
            return Err(DropReason::Access);
        }
        Ok(())
    }
}

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
    /// If a URL or the user's key is malformed.
    pub(super) async fn start(
        options: &NatsOptions,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, async_nats::ConnectError> {
        Self::connect(options, events, |connect| connect.retry_on_initial_connect()).await
    }

    /// Connects once. Events of the connection go to `events`.
    pub(super) async fn connect_once(
        options: &NatsOptions,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, async_nats::ConnectError> {
        let attempts = options.servers.len();
        Self::connect(options, events, |connect| connect.max_reconnects(attempts)).await
    }

    async fn connect(
        options: &NatsOptions,
        events: mpsc::UnboundedSender<Event>,
        persist: impl FnOnce(ConnectOptions) -> ConnectOptions,
    ) -> Result<Self, async_nats::ConnectError> {
        let subjects = Subjects::new(&options.name, options.node);
        let connect = persist(connect_options(options, &subjects, events)?);
        let servers = servers_in_turn(&options.servers, options.node);
        let client = connect.connect(servers.as_slice()).await?;
        let mut jetstream = async_nats::jetstream::new(client.clone());
        jetstream.set_timeout(REQUEST_TIMEOUT);
        let identity = Arc::new(Identity::new(options));
        Ok(Self { client, jetstream, subjects: Arc::new(subjects), identity })
    }

    /// Returns the headers of this node's messages.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, self.identity.header());
        headers
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
        self.publish_with(self.headers(), subject, reply, body).await
    }

    /// Publishes a message to the log, which stores one message with this `id` only. Its acknowledgement goes to `reply`.
    pub(super) async fn publish_stored(
        &self,
        id: &str,
        reply: Subject,
        body: Bytes,
    ) -> Result<(), NotSent> {
        let mut headers = self.headers();
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

/// Returns how to connect. Events of the connection go to `events`.
fn connect_options(
    options: &NatsOptions,
    subjects: &Subjects,
    events: mpsc::UnboundedSender<Event>,
) -> io::Result<ConnectOptions> {
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
        .reconnect_delay_callback(retry_pause)
        .event_callback(move |event| {
            // Fails only while the receiver ends.
            let _ = events.send(in_plain_words(event));
            async {}
        });
    if let Some(user) = &options.user {
        connect = connect.credentials(&user.credentials())?;
    }
    if let Some(ca) = &options.ca {
        connect = connect.add_root_certificates(ca.clone());
    }
    Ok(connect)
}

/// Says what it means that the servers refuse the user.
fn in_plain_words(event: Event) -> Event {
    match event {
        Event::ClientError(ClientError::Other(text)) if is_refusal(&text) => {
            Event::ClientError(ClientError::Other(format!("refused: {REFUSED}")))
        }
        event => event,
    }
}

/// Returns whether an error says that the servers refuse the user.
pub(super) fn is_refusal(error: &str) -> bool {
    let error = error.to_lowercase();
    ["authorization", "authentication"].iter().any(|word| error.contains(word))
}

/// Returns the pause before an attempt. The first few are for the other servers.
fn retry_pause(attempt: usize) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX).min(10);
    let pause = Duration::from_millis(if attempt <= 1 { 0 } else { 20 });
    (pause * (1 << doublings)).min(RETRY_PAUSE_MAX)
}
