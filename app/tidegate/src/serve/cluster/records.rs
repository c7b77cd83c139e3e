//! The durable records, as the cluster sees them: rows.

use std::sync::Arc;

use admin::Records;
use admin::records::{self, RecordsError};
use cluster::{BoxFuture, Rows, RowsError, RowsPart};

/// The records of this node.
pub(super) struct ClusterRecords(pub(super) Arc<Records>);

fn boxed(error: RecordsError) -> RowsError {
    match error {
        RecordsError::DiskFull => "the disk of state.dir is full".into(),
        RecordsError::Locked => "another process has locked the records".into(),
        RecordsError::QueueFull => "too many changes wait to be written".into(),
        RecordsError::Stopped => "the records are closed".into(),
        RecordsError::Upgrading => "a new process is taking over".into(),
        RecordsError::Other(text) => text.into(),
        error => error.to_string().into(),
    }
}

impl Rows for ClusterRecords {
    fn digests(&self) -> Vec<u64> {
        self.0.digests()
    }

    fn range_digests(&self, kind: u8) -> Vec<u64> {
        self.0.range_digests(kind)
    }

    fn next_changes(&self) -> BoxFuture<'_, Vec<u8>> {
        Box::pin(self.0.next_changes())
    }

    fn read_ranges(
        &self,
        kind: u8,
        ranges: Vec<u16>,
        cursor: Vec<u8>,
    ) -> BoxFuture<'_, Result<RowsPart, RowsError>> {
        Box::pin(async move {
            let read = self.0.read_ranges(kind, ranges, cursor).await;
            let records::RowsPart { body, next } = read.map_err(boxed)?;
            Ok(RowsPart { body, next })
        })
    }

    fn merge(&self, from: u8, body: Vec<u8>) -> BoxFuture<'_, Result<(), RowsError>> {
        Box::pin(async move { self.0.merge(from, body).await.map_err(boxed) })
    }
}
