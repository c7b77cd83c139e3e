//! Writes small MMDB files, for tests.

use std::collections::BTreeMap;

use primitives::IpPrefix;

/// A value of the format.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// A string.
    Text(String),
    /// A number of 16 bits.
    Small(u16),
    /// A number of 32 bits.
    Number(u32),
    /// A number of 64 bits.
    Large(u64),
    /// A map.
    Map(Vec<(String, Self)>),
    /// An array.
    Array(Vec<Self>),
}

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
pub fn write(kind: &str, records: &[(IpPrefix, Field)]) -> Vec<u8> {
    let mut nodes = vec![Node::default()];
    let mut data = Vec::new();
    let mut places = BTreeMap::new();
    for (prefix, field) in records {
        let place = *places.entry(field).or_insert_with(|| {
            let place = data.len();
            append(&mut data, field);
            place
        });
        insert(&mut nodes, *prefix, Branch::Record(place));
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
    let text = |text: &str| Field::Text(text.into());
    let entry = |name: &str, field| (String::from(name), field);
    let metadata = Field::Map(vec![
        entry("binary_format_major_version", Field::Small(2)),
        entry("binary_format_minor_version", Field::Small(0)),
        entry("build_epoch", Field::Large(1_700_000_000)),
        entry("database_type", text(kind)),
        entry("description", Field::Map(vec![entry("en", text("for tests"))])),
        entry("ip_version", Field::Small(6)),
        entry("languages", Field::Array(vec![text("en")])),
        entry("node_count", Field::Number(count as u32)),
        entry("record_size", Field::Small(32)),
    ]);
    append(&mut file, &metadata);
    file
}

/// Returns a file of systems, as MaxMind writes it.
pub fn systems(records: &[(&str, u32, &str)]) -> Vec<u8> {
    let records: Vec<_> = records
        .iter()
        .filter_map(|(prefix, number, name)| {
            let number = Field::Number(*number);
            let map = vec![
                ("autonomous_system_number".into(), number),
                ("autonomous_system_organization".into(), Field::Text((*name).into())),
            ];
            Some((prefix.parse().ok()?, Field::Map(map)))
        })
        .collect();
    write("GeoLite2-ASN", &records)
}

/// Returns a file of countries, as MaxMind writes it.
pub fn countries(records: &[(&str, &str)]) -> Vec<u8> {
    let records: Vec<_> = records
        .iter()
        .filter_map(|(prefix, code)| {
            let country = vec![("iso_code".into(), Field::Text((*code).into()))];
            Some((prefix.parse().ok()?, Field::Map(vec![("country".into(), Field::Map(country))])))
        })
        .collect();
    write("GeoLite2-Country", &records)
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

fn append(out: &mut Vec<u8>, field: &Field) {
    match field {
        Field::Text(text) => {
            control(out, 2, text.len());
            out.extend(text.bytes());
        }
        Field::Small(number) => append_number(out, 5, (*number).into()),
        Field::Number(number) => append_number(out, 6, (*number).into()),
        Field::Large(number) => append_number(out, 9, *number),
        Field::Map(entries) => {
            control(out, 7, entries.len());
            for (name, field) in entries {
                append(out, &Field::Text(name.clone()));
                append(out, field);
            }
        }
        Field::Array(items) => {
            control(out, 11, items.len());
            items.iter().for_each(|item| append(out, item));
        }
    }
}

/// Writes a number without its leading zeros.
fn append_number(out: &mut Vec<u8>, kind: u8, number: u64) {
    let skipped = number.leading_zeros() as usize / 8;
    control(out, kind, 8 - skipped);
    out.extend(number.to_be_bytes().iter().skip(skipped));
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
