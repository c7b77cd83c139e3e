//! Derives of JSON Schemas. Only tests need schemas: they build the OpenAPI document from them. Elsewhere
//! the derives generate nothing.

#[cfg(not(test))]
pub(crate) use no_schema::{IntoParams, ToSchema};
#[cfg(test)]
pub(crate) use utoipa::{IntoParams, ToSchema};
