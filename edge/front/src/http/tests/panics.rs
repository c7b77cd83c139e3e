//! A panic in any task ends the worker, so that the process ends instead of serving no client.

use crate::test_panic::WORD;
use crate::testing::{HttpServer, WebClient, wait_until};

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Waits until the worker has ended, and checks that it panicked.
fn expect_panic(mut server: HttpServer) {
    let worker = server.workers.remove(0);
    wait_until("the worker has ended", || worker.is_finished());
    assert!(worker.join().is_err());
}

#[test]
fn panic_in_the_accepting_task_ends_the_worker() {
    let server = HttpServer::start();
    server.client().send(get(&format!("/{WORD}")));
    expect_panic(server);
}

#[test]
fn panic_in_a_connection_task_ends_the_worker() {
    let server = HttpServer::start();
    let mut client = server.client();
    // The accepting task serves the first request, and the connection's own task the second.
    assert_eq!(client.request(get("/none")).status, 404);
    client.send(get(&format!("/{WORD}")));
    expect_panic(server);
}

#[test]
fn panic_in_a_websocket_task_ends_the_worker() {
    let server = HttpServer::start();
    let mut client = WebClient::open(server.client(), "/");
    client.send_text(WORD);
    expect_panic(server);
}
