//! Schemas of IP addresses and networks.

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{
    AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, SchemaFormat, Type,
};

use crate::api::bans::MANY_MAX;

/// Returns the schema of a network: an address, or CIDR notation.
///
/// It is one pattern with an example that holds a slash. Request generators such as schemathesis
/// discard path values with a slash (sent as `%2F`) unless an example has one; with most values
/// discarded they give up.
pub(in crate::api) fn network_schema() -> Schema {
    let v4_bits = "(3[0-2]|[12]?[0-9])";
    let v6_bits = "(12[0-8]|1[01][0-9]|[1-9]?[0-9])";
    let (v4, v6) = (v4_pattern(), v6_pattern());
    ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(format!("^({v4}(/{v4_bits})?|({v6})(/{v6_bits})?)$")))
        .description(Some("An address, or a network in CIDR notation"))
        .examples(["192.0.2.0/24", "2001:db8::/32"])
        .into()
}

pub(in crate::api) fn networks_schema() -> Schema {
    ArrayBuilder::new()
        .items(RefOr::T(network_schema()))
        .min_items(Some(1))
        .max_items(Some(MANY_MAX))
        .into()
}

pub(super) fn address_schema() -> Schema {
    let format = |name: &str| {
        let format = Some(SchemaFormat::Custom(name.into()));
        ObjectBuilder::new().schema_type(Type::String).format(format)
    };
    AnyOfBuilder::new().item(format("ipv4")).item(format("ipv6")).into()
}

fn v4_pattern() -> String {
    let byte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    format!("{byte}(\\.{byte}){{3}}")
}

/// Returns a pattern for v6 addresses in all forms of RFC 4291, section 2.2, as alternatives.
fn v6_pattern() -> String {
    let group = "[0-9a-fA-F]{1,4}";
    // With groups on both sides of `::`, at most `groups` in all. A pattern cannot count both sides
    // together, so there is an alternative for each bound on the second side.
    let both_sides = |groups: usize, end: &str| {
        let alternative = |after: usize| {
            let before = groups - after;
            format!("|({group}:){{1,{before}}}(:{group}){{1,{after}}}{end}")
        };
        (1..groups).map(alternative).collect::<String>()
    };
    let hex = format!("({group}:){{7}}{group}|({group}:){{1,7}}:|::|:(:{group}){{1,7}}");
    // `start` matches the groups before a v4 address, which takes the place of the last two groups.
    let start = format!("({group}:){{6}}|({group}:){{1,5}}:|::({group}:){{0,5}}");
    let (hex_both, start_both) = (both_sides(7, ""), both_sides(5, ":"));
    format!("{hex}{hex_both}|({start}{start_both}){}", v4_pattern())
}
