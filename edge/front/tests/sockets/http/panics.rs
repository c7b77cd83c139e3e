//! A panic in any task ends the worker, so that the process ends instead of serving no client.

use tracker::{Access, TokenFault, TokenVerifier, VerifiedToken};

use super::*;

/// Panics at the first token.
struct Panicking;

impl TokenVerifier for Panicking {
    fn verify(&self, _: &[u8]) -> Result<VerifiedToken, TokenFault> {
        panic!("a test asked for this panic");
    }
}

/// A server that panics at an announce with a token.
fn start() -> HttpServer {
    let server = HttpServer::start();
    set_access(&server.tracker, Access::Tokens);
    server.tracker.tokens().set_verifier(Some(Box::new(Panicking)));
    server
}

/// Waits until the worker has ended, and checks that it panicked.
fn expect_panic(mut server: HttpServer) {
    let worker = server.workers.remove(0);
    wait_until("the worker has ended", || worker.is_finished());
    assert!(worker.join().is_err());
}

#[test]
fn panic_in_the_accepting_task_ends_the_worker() {
    let server = start();
    server.client().send(get(&announce(1, "&jwt=x"), ""));
    expect_panic(server);
}

#[test]
fn panic_in_a_connection_task_ends_the_worker() {
    let server = start();
    let mut client = server.client();
    // The accepting task serves the first request, and the connection's own task the second.
    assert_eq!(client.request(get("/none", "")).status, 404);
    client.send(get(&announce(1, "&jwt=x"), ""));
    expect_panic(server);
}

#[test]
fn panic_in_a_websocket_task_ends_the_worker() {
    let server = start();
    let mut client = WebClient::open(server.client(), "/announce?jwt=x");
    client.announce(&leecher(1));
    expect_panic(server);
}
