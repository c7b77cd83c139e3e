//! The description of a route in the OpenAPI document. Only tests build the document: elsewhere a
//! description is empty, and any handler has one.

#[cfg(test)]
pub(super) use super::openapi::{DescribeHandler, Operation};
#[cfg(not(test))]
pub(super) use empty::{AnyHandler as DescribeHandler, NoDescription as Operation};

#[cfg(not(test))]
mod empty {
    pub(in crate::api) struct NoDescription;

    pub(in crate::api) trait AnyHandler<Arguments> {
        fn describe(_method: &'static str, _summary: &'static str) -> NoDescription {
            NoDescription
        }
    }

    impl<H> AnyHandler<()> for H {}
}
