//! Files and calls of a site, from the site and from other nodes: the first byte names the reader. Batches and calls that
//! are read are the same after they are written.

use site::scan_segment;

/// Segments and batches of a site's spool, and the calls of a site.
pub fn check(bytes: &[u8]) {
    let Some((reader, bytes)) = bytes.split_first() else { return };
    match reader % 7 {
        0 => {
            let mut last = 0;
            let end = scan_segment(bytes, &mut |frame, offset| {
                assert!(offset >= last && offset + frame.len <= bytes.len() as u64);
                last = offset + frame.len;
                frame.batch().map(drop).ok_or("no batch")
            });
            if let Ok(end) = end {
                assert!(end.len <= bytes.len() as u64);
            }
        }
        1 => assert!(site::reads_batch_as_written(bytes)),
        2 => drop(site::read_body("torrents", bytes)),
        3 => drop(site::read_body("users", bytes)),
        4 => drop(site::read_body("groups", bytes)),
        5 => {
            let text = String::from_utf8_lossy(bytes);
            assert!(site::read_query(&text) <= text.matches('=').count());
        }
        _ => assert!(site::reads_call_as_written(bytes)),
    }
}
