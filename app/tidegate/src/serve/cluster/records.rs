//! The durable records, as the cluster sees them: rows.

use std::sync::Arc;

use admin::Records;
use admin::records;
use cluster::{BoxFuture, Rows, RowsError, RowsPart};

pub(super) struct ClusterRecords(pub(super) Arc<Records>);

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
            let records::RowsPart { body, next } = self.0.read_ranges(kind, ranges, cursor).await?;
            Ok(RowsPart { body, next })
        })
    }

    fn merge(&self, from: u8, body: Vec<u8>) -> BoxFuture<'_, Result<(), RowsError>> {
        Box::pin(async move { Ok(self.0.merge(from, body).await?) })
    }
}
