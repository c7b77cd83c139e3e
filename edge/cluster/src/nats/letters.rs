//! WebTorrent letters to and from browsers at other nodes.

use std::sync::Arc;

use async_nats::Subscriber;
use bytes::Bytes;
use futures_util::StreamExt;

use super::link::Link;
use super::status::Status;
use crate::host::Letters;
use crate::node::DropReason;

/// Publishes letters until the task is dropped.
pub(super) async fn send(link: Link, letters: Arc<dyn Letters>, status: Arc<Status>) {
    loop {
        letters.wait().await;
        for (to, body) in letters.take() {
            let is_sent = !status.is_mute()
                && link.publish(link.subjects.letters(to), None, Bytes::from(body)).await.is_ok();
            if !is_sent {
                status.change(|overview| overview.unsent_letters += 1);
            }
        }
    }
}

/// Delivers letters until the task is dropped. Those to be dropped are reported to `drop`.
pub(super) async fn receive(
    link: Link,
    mut messages: Subscriber,
    letters: Arc<dyn Letters>,
    status: Arc<Status>,
    drop: impl Fn(DropReason),
) {
    while let Some(message) = messages.next().await {
        match link.origin("w", &message) {
            Err(reason) => drop(reason),
            Ok(from) if status.is_ignored(from) => drop(DropReason::Ignored),
            Ok(from) => {
                if !letters.deliver(from, &message.payload) {
                    status.change(|overview| overview.damaged_letters += 1);
                }
            }
        }
    }
}
