//! The memory that connections hold together.

use std::io::Write;

use super::*;

#[test]
fn closes_the_largest_holders_of_unfinished_heads() {
    const LEN: usize = 12_000;
    const MAX: usize = 20 * LEN;
    let limits = MemoryLimits { read_max: MAX, ..MemoryLimits::default() };
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
    let limits = MemoryLimits { unsent_max: 256 << 10, ..MemoryLimits::default() };
    let server = HttpServer::with_memory(patient(), limits);
    let clients: Vec<Client> = (0..8).map(|_| server.client()).collect();
    // The responses fill all buffers between client and server long before the requests end.
    let requests = get("/scrape?x", "").repeat(1000);
    let writers: Vec<_> = clients
        .iter()
        .map(|client| {
            let (mut writer, requests) = (client.0.stream.try_clone().unwrap(), requests.clone());
            std::thread::spawn(move || while writer.write_all(requests.as_bytes()).is_ok() {})
        })
        .collect();
    server.wait_for_counts(Protocol::Http, "some are closed", |it| {
        it.drops[DropReason::UnsentMemory.index()] >= 4
    });
    assert_eq!(server.client().request(get(&announce(1, ""), "")).status, 200);
    for client in &clients {
        // The server may have ended it.
        let _ = client.0.stream.shutdown(std::net::Shutdown::Both);
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}
