//! The memory that connections hold together.

use std::io::Write;

use super::*;

#[test]
fn closes_the_largest_holders_of_unfinished_heads() {
    const LEN: usize = 12_000;
    let limits = MemoryLimits { read_max: 20 * LEN, ..MemoryLimits::default() };
    let server = HttpServer::with_memory(patient(), limits);
    let mut small = server.client();
    let request = get(&announce(1, ""), "");
    let (begin, end) = request.split_at(request.len() / 2);
    small.send(begin);
    let long = format!("GET /announce HTTP/1.1\r\nX-Slow: {}", "x".repeat(LEN));
    let mut slow: Vec<Client> = (0..100).map(|_| server.client()).collect();
    slow.iter_mut().for_each(|client| _ = client.send(&long));
    server.wait_for_counts(Protocol::Http, "most are closed", |it| {
        let closed = it.drops[DropReason::ReadMemory.index()];
        closed >= 80 && it.connections_closed == closed
    });
    assert_eq!(small.request(end).status, 200);
    assert_eq!(server.client().request(&request).status, 200);
}

#[test]
fn closes_the_largest_holders_of_unread_responses() {
    let limits = MemoryLimits { unsent_max: 1, ..MemoryLimits::default() };
    let server = HttpServer::with_memory(patient(), limits);
    let client = server.client();
    let mut writer = client.0.stream.try_clone().unwrap();
    // The responses fill all buffers between client and server long before the requests end.
    let requests = get("/scrape?x", "").repeat(1000);
    let writing =
        std::thread::spawn(move || while writer.write_all(requests.as_bytes()).is_ok() {});
    server.wait_for_counts(Protocol::Http, "it is closed", |it| {
        it.drops[DropReason::UnsentMemory.index()] == 1
    });
    assert_eq!(server.client().request(get(&announce(1, ""), "")).status, 200);
    // Closing it ends the write that waits.
    let _ = client.0.stream.shutdown(std::net::Shutdown::Both);
    writing.join().unwrap();
}
