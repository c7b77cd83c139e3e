//! Derives named as utoipa's that accept the same attributes and generate nothing.
//!
//! `tidegate-admin` derives with these wherever no schema is needed, that is, outside of its tests. So
//! utoipa is not in shipped builds, and no type needs a second form of its attributes for them.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

/// Stands for `utoipa::ToSchema`.
#[proc_macro_derive(ToSchema, attributes(schema))]
pub fn to_schema(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// Stands for `utoipa::IntoParams`.
#[proc_macro_derive(IntoParams, attributes(param))]
pub fn into_params(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}
