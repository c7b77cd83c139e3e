//! Posts the batches of a site's feed to the webhook that wants them: in order, each until it is accepted. The feed
//! keeps what is not accepted, so nothing is dropped.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::deliveries::DeliveryOutcome;
use super::{Webhooks, recorded_kinds};
use crate::events::EventKind;
use crate::records::tables::webhooks::WebhookRow;
use crate::site::{FeedBatch, SiteSource};

/// The pause before the next look for a batch.
const PERIOD: Duration = Duration::from_secs(1);
/// The last pauses of events are too long here: a site waits for its users' bytes.
const PAUSES: usize = 4;

/// The outcome of a turn.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Accepted,
    Failed(String),
    /// There is no batch, no feed or no webhook for it.
    Idle,
}

/// Posts batches for ever. `site` is set once if there is one.
pub(crate) async fn post_feed(webhooks: &Webhooks, site: &OnceLock<Arc<dyn SiteSource>>) {
    let mut failures = 0;
    loop {
        match turn(webhooks, site.get(), failures + 1).await {
            Turn::Accepted if failures > 0 => {
                info!("batches of the site are accepted again");
                failures = 0;
            }
            Turn::Accepted => {}
            Turn::Idle => sleep(PERIOD).await,
            Turn::Failed(reason) => {
                if failures == 0 {
                    let remedy = "it is posted until it is accepted";
                    warn!(reason, "a batch of the site was not accepted; {remedy}");
                }
                let pause = webhooks.pauses[(failures as usize).min(PAUSES - 1)];
                failures = failures.saturating_add(1);
                // Another webhook need not wait for the end of this one's pause.
                let _ = timeout(pause, webhooks.added_for_site.notified()).await;
            }
        }
    }
}

/// Posts the oldest batch that is not confirmed once, and confirms it if it is accepted.
async fn turn(webhooks: &Webhooks, site: Option<&Arc<dyn SiteSource>>, attempt: u32) -> Turn {
    let Some(site) = site else { return Turn::Idle };
    let Some(row) = webhooks.of_accounting() else { return Turn::Idle };
    let source = Arc::clone(site);
    let Ok(Ok(Some(batch))) = tokio::task::spawn_blocking(move || source.next_unconfirmed()).await
    else {
        // An upgrade's old process has the feed, or the disk fails, which the site's status says.
        return Turn::Idle;
    };
    let about = (batch.sequence, EventKind::Accounting.label(), attempt);
    let delivery = webhooks.post(&row, &body(&batch, (webhooks.time)()), about).await;
    webhooks.log.add(row.id, delivery.clone());
    if delivery.outcome != DeliveryOutcome::Delivered {
        webhooks.failed.fetch_add(1, Ordering::Relaxed);
        return Turn::Failed(delivery.failure());
    }
    webhooks.delivered.fetch_add(1, Ordering::Relaxed);
    let source = Arc::clone(site);
    let confirmed = tokio::task::spawn_blocking(move || source.confirm_feed(&batch.cursor)).await;
    match confirmed {
        Ok(Ok(())) => Turn::Accepted,
        // It is posted again. Receivers recognize it by its cursor.
        _ => Turn::Failed("the disk does not take the confirmation".into()),
    }
}

/// Returns a batch in the form of an event.
fn body(batch: &FeedBatch, time: i64) -> String {
    let FeedBatch { sequence, json, .. } = batch;
    let kind = EventKind::Accounting.label();
    format!("{{\"id\":{sequence},\"time\":{time},\"kind\":\"{kind}\",\"data\":{json}}}")
}

impl Webhooks {
    /// Returns the webhook that batches of the site are posted to.
    pub(crate) fn of_accounting(&self) -> Option<WebhookRow> {
        let wants = |row: &WebhookRow| recorded_kinds(&row.events).contains(&EventKind::Accounting);
        self.rows().into_iter().find(|row| wants(row) && self.is_active(row))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::tests::{row, run, webhooks};
    use super::*;
    use crate::outbound::{PostRequest, SendPost};
    use crate::site::FeedError;

    /// A feed of three batches.
    #[derive(Default)]
    struct Feed(Mutex<u64>);

    impl SiteSource for Feed {
        fn has_feed(&self) -> bool {
            true
        }

        fn read_feed(&self, _: Option<&str>, _: usize) -> Result<Vec<FeedBatch>, FeedError> {
            Err(FeedError::NoFeed)
        }

        fn next_unconfirmed(&self) -> Result<Option<FeedBatch>, FeedError> {
            let sequence = *self.0.lock().unwrap() + 1;
            let (cursor, json) =
                (format!("a-{sequence}"), format!("{{\"cursor\":\"a-{sequence}\"}}"));
            Ok((sequence <= 3).then_some(FeedBatch { cursor, sequence, json }))
        }

        fn confirm_feed(&self, cursor: &str) -> Result<(), FeedError> {
            *self.0.lock().unwrap() = cursor[2..].parse().unwrap();
            Ok(())
        }
    }

    #[test]
    fn batches_are_posted_in_order_until_they_are_accepted() {
        let posts = Arc::<Mutex<Vec<PostRequest>>>::default();
        let answers = Mutex::new(vec![Ok(204), Err("timed out".to_owned()), Ok(500), Ok(200)]);
        let sink = Arc::clone(&posts);
        let send_post: SendPost = Arc::new(move |post| {
            sink.lock().unwrap().push(post);
            let answer = answers.lock().unwrap().pop().unwrap_or(Ok(204));
            Box::pin(async { answer })
        });
        let webhooks = webhooks(vec![row(1, "ban"), row(2, "ban accounting")], send_post);
        let site: Arc<dyn SiteSource> = Arc::new(Feed::default());
        let mut turns = Vec::new();
        run(async {
            for attempt in 1..=6 {
                turns.push(turn(&webhooks, Some(&site), attempt).await);
            }
        });
        let failed = |text: &str| Turn::Failed(text.into());
        let expected = [
            Turn::Accepted,
            failed("the response has status 500"),
            failed("timed out"),
            Turn::Accepted,
            Turn::Accepted,
            Turn::Idle,
        ];
        assert_eq!(turns, expected);
        let posts = posts.lock().unwrap();
        let sequences: Vec<_> = posts.iter().map(|post| post.body.as_bytes()[6]).collect();
        assert_eq!(sequences, *b"12223");
        let body = r#"{"id":1,"time":12,"kind":"accounting","data":{"cursor":"a-1"}}"#;
        assert_eq!((posts[0].body.as_str(), &*posts[0].url), (body, &*row(2, "").url));
        assert_eq!(posts[0].signature, super::super::sign("secret", 12, body));
        assert_eq!(webhooks.log.last(2).unwrap().event_id, 3);
    }
}
