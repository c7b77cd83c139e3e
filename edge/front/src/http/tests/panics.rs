//! A panic in any task ends the worker, so that the process ends instead of serving no client.

use super::*;
use crate::test_panic::WORD;

/// Waits until the worker has ended, and returns whether it panicked.
fn ends_by_panic(mut server: Server) -> bool {
    let worker = server.worker.take().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !worker.is_finished() {
        assert!(Instant::now() < deadline, "the worker goes on after a panic");
        std::thread::sleep(Duration::from_millis(5));
    }
    worker.join().is_err()
}

#[test]
fn panic_in_the_accepting_task_ends_the_worker() {
    let server = Server::start(HttpOptions::default());
    let mut client = server.client();
    client.write_all(get(&format!("/{WORD}"), "").as_bytes()).unwrap();
    assert!(ends_by_panic(server));
}

#[test]
fn panic_in_a_connection_task_ends_the_worker() {
    let server = Server::start(HttpOptions::default());
    let mut client = server.client();
    // The first request is served by the accepting task, the second by the connection's own.
    client.write_all(get("/none", "").as_bytes()).unwrap();
    client.read_exact(&mut [0; 16]).unwrap();
    client.write_all(get(&format!("/{WORD}"), "").as_bytes()).unwrap();
    assert!(ends_by_panic(server));
}

#[test]
fn panic_in_a_websocket_task_ends_the_worker() {
    let server = Server::start(HttpOptions::default());
    let mut client = server.client();
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    client.write_all(get("/", upgrade).as_bytes()).unwrap();
    client.read_exact(&mut [0; 16]).unwrap();
    let mut frame = Vec::new();
    wire::ws::client::text(&mut frame, [1, 2, 3, 4], WORD);
    client.write_all(&frame).unwrap();
    assert!(ends_by_panic(server));
}
