//! Responses of DNS servers, and the TXT records of trackers in them (BEP 34). The first two bytes are the ID of the
//! query.

use client::DnsRecord;
use client::dns::texts;

/// Responses of DNS servers are refused, or read without harm.
pub fn check(bytes: &[u8]) {
    let Some((id, _)) = bytes.split_first_chunk() else { return };
    let id = u16::from_be_bytes(*id);
    // A response to another query is refused, whatever it holds.
    assert!(texts(!id, bytes).is_err());
    let found = match texts(id, bytes) {
        Ok(found) => found,
        Err(error) => return assert!(!error.is_empty()),
    };
    for record in found.iter().filter_map(|text| DnsRecord::parse(text)) {
        // A record that is written and read again is the same.
        let words = record.ports.iter().map(|port| format!(" {port}")).collect::<String>();
        assert_eq!(DnsRecord::parse(&format!("BITTORRENT{words}")), Some(record));
    }
}
