//! The durable records, as the cluster sees them.

use std::sync::Arc;

use admin::Records;
use admin::records::{OutboxEntry, RecordsError, StreamPosition};
use cluster::{BoxFuture, Entry, Position, RecordError, RecordLog, SnapshotPart};

/// The records of this node.
pub(super) struct ClusterRecords(pub(super) Arc<Records>);

pub(super) fn position_of_records(position: Position) -> StreamPosition {
    StreamPosition { stream: position.stream, sequence: position.sequence }
}

/// Returns the place in the log of peers up to which downloads are counted.
pub(super) fn position_of_log(records: &Records) -> Position {
    let StreamPosition { stream, sequence } = records.log_position().get();
    Position { stream, sequence }
}

fn boxed(error: RecordsError) -> RecordError {
    match error {
        RecordsError::DiskFull => "the disk of state.dir is full".into(),
        RecordsError::Locked => "another process has locked the records".into(),
        RecordsError::QueueFull => "too many changes wait to be written".into(),
        RecordsError::Conflict => "the entry exists already".into(),
        RecordsError::Stopped => "the records are closed".into(),
        RecordsError::Upgrading => "a new process is taking over".into(),
        RecordsError::Other(text) => text.into(),
        error => error.to_string().into(),
    }
}

impl RecordLog for ClusterRecords {
    fn next_outgoing(&self) -> BoxFuture<'_, Result<Entry, RecordError>> {
        Box::pin(async {
            let OutboxEntry { number, body } = self.0.next_outgoing().await.map_err(boxed)?;
            Ok(Entry { number, body })
        })
    }

    fn mark_stored(&self, number: u64) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(async move { self.0.mark_stored(number).await.map_err(boxed) })
    }

    fn publish_again(&self) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(async { self.0.publish_again().await.map_err(boxed) })
    }

    fn has_joined(&self) -> bool {
        self.0.has_joined()
    }

    fn join_alone(&self) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(async { self.0.join_alone().await.map_err(boxed) })
    }

    fn position(&self) -> Position {
        let StreamPosition { stream, sequence } = self.0.position();
        Position { stream, sequence }
    }

    fn apply<'a>(
        &'a self,
        position: Position,
        from: u8,
        body: &'a [u8],
    ) -> BoxFuture<'a, Result<(), RecordError>> {
        let position = position_of_records(position);
        Box::pin(async move { self.0.apply_remote(position, from, body).await.map_err(boxed) })
    }

    fn missed(&self, next: Position) -> BoxFuture<'_, Result<(), RecordError>> {
        let next = position_of_records(next);
        Box::pin(async move { self.0.missed(next).await.map_err(boxed) })
    }

    fn snapshot(&self, cursor: Vec<u8>) -> BoxFuture<'_, Result<SnapshotPart, RecordError>> {
        Box::pin(async move {
            let admin::records::SnapshotPart { body, next } =
                self.0.snapshot(&cursor).await.map_err(boxed)?;
            Ok(SnapshotPart { body, next })
        })
    }

    fn merge_snapshot<'a>(
        &'a self,
        part: &'a [u8],
        is_last: bool,
    ) -> BoxFuture<'a, Result<(), RecordError>> {
        Box::pin(async move { self.0.merge_snapshot(part, is_last).await.map_err(boxed) })
    }
}
