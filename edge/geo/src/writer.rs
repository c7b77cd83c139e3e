//! Writes small MMDB files, for tests.

use std::collections::BTreeMap;

use primitives::IpPrefix;
use serde_json::{Value, json};

/// A node of the tree: what is behind each bit.
#[derive(Clone, Copy, Default)]
struct Node([Branch; 2]);

#[derive(Clone, Copy, Default)]
enum Branch {
    #[default]
    Nothing,
    Node(usize),
    Record(usize),
}

/// Returns a file of IPv6 with these records, IPv4 networks under `::/96`. Of networks in another one, the
/// larger must come first.
pub fn write(kind: &str, records: &[(&str, Value)]) -> Vec<u8> {
    let mut nodes = vec![Node::default()];
    let mut data = Vec::new();
    let mut places = BTreeMap::new();
    for (prefix, record) in records {
        let place = *places.entry(record.to_string()).or_insert_with(|| {
            let place = data.len();
            append(&mut data, record);
            place
        });
        if let Ok(prefix) = prefix.parse() {
            insert(&mut nodes, prefix, Branch::Record(place));
        }
    }
    let count = nodes.len();
    let mut file = Vec::new();
    for branch in nodes.iter().flat_map(|node| node.0) {
        let word = match branch {
            Branch::Nothing => count,
            Branch::Node(at) => at,
            Branch::Record(place) => count + 16 + place,
        };
        file.extend((word as u32).to_be_bytes());
    }
    file.extend([0; 16]);
    file.extend(&data);
    file.extend(b"\xab\xcd\xefMaxMind.com");
    let metadata = json!({
        "binary_format_major_version": 2,
        "binary_format_minor_version": 0,
        "build_epoch": 1_700_000_000,
        "database_type": kind,
        "description": { "en": "for tests" },
        "ip_version": 6,
        "languages": ["en"],
        "node_count": count,
        "record_size": 32,
    });
    append(&mut file, &metadata);
    file
}

/// Returns a file of systems, as MaxMind writes it.
pub fn systems<'a>(records: &[(&'a str, u32, &str)]) -> Vec<u8> {
    let record = |(prefix, number, name): &(&'a str, u32, &str)| {
        let fields =
            json!({ "autonomous_system_number": number, "autonomous_system_organization": name });
        (*prefix, fields)
    };
    write("GeoLite2-ASN", &records.iter().map(record).collect::<Vec<_>>())
}

/// Returns a file of countries, as MaxMind writes it.
pub fn countries<'a>(records: &[(&'a str, &str)]) -> Vec<u8> {
    let record =
        |(prefix, code): &(&'a str, &str)| (*prefix, json!({ "country": { "iso_code": code } }));
    write("GeoLite2-Country", &records.iter().map(record).collect::<Vec<_>>())
}

fn insert(nodes: &mut Vec<Node>, prefix: IpPrefix, record: Branch) {
    let (first, _) = prefix.bounds();
    let bits = u32::from(prefix.bits()) + if prefix.address().is_ipv4() { 96 } else { 0 };
    let mut at = 0;
    for depth in 0..bits {
        let bit = (first >> (127 - depth) & 1) as usize;
        if depth + 1 == bits {
            nodes[at].0[bit] = record;
            return;
        }
        at = match nodes[at].0[bit] {
            Branch::Node(next) => next,
            other => {
                nodes.push(Node([other; 2]));
                let next = nodes.len() - 1;
                nodes[at].0[bit] = Branch::Node(next);
                next
            }
        };
    }
}

/// Appends a text, an array or a map, in which numbers can be.
fn append(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Array(items) => {
            control(out, 11, items.len());
            items.iter().for_each(|item| append(out, item));
        }
        Value::Object(entries) => {
            control(out, 7, entries.len());
            for (name, value) in entries {
                append_text(out, name);
                match value.as_u64() {
                    Some(number) => append_number(out, name, number),
                    None => append(out, value),
                }
            }
        }
        text => append_text(out, text.as_str().unwrap_or_default()),
    }
}

/// Appends a number without its leading zeros, in the type that readers expect of its field.
fn append_number(out: &mut Vec<u8>, name: &str, number: u64) {
    let kind = match name {
        "node_count" | "autonomous_system_number" => 6,
        "build_epoch" => 9,
        _ => 5,
    };
    let skipped = number.leading_zeros() as usize / 8;
    control(out, kind, 8 - skipped);
    out.extend(number.to_be_bytes().iter().skip(skipped));
}

fn append_text(out: &mut Vec<u8>, text: &str) {
    control(out, 2, text.len());
    out.extend(text.bytes());
}

/// Writes the type and the size of a field: sizes below 285 are enough for tests.
fn control(out: &mut Vec<u8>, kind: u8, size: usize) {
    assert!(size < 285, "a field of {size} bytes");
    let (low, more) = if size < 29 { (size as u8, None) } else { (29, Some((size - 29) as u8)) };
    match kind {
        1..=7 => out.push(kind << 5 | low),
        _ => out.extend([low, kind - 7]),
    }
    out.extend(more);
}
