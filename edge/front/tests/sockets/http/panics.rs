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

#[test]
fn panic_in_a_task_ends_the_worker() {
    let panicking = get(&announce(1, "&jwt=x"), "");
    let in_tasks: [&dyn Fn(&HttpServer); 3] = [
        // The accepting task serves the first request of a connection.
        &|server| _ = server.client().send(&panicking),
        // The connection's own task serves the second.
        &|server| {
            let mut client = server.client();
            assert_eq!(client.request(PROBE).status, 404);
            client.send(&panicking);
        },
        &|server| WebClient::open(server.client(), "/announce?jwt=x").announce(&leecher(1)),
    ];
    for panic_in in in_tasks {
        let mut server = start();
        panic_in(&server);
        let worker = server.workers.remove(0);
        wait_until("the worker has ended", || worker.is_finished());
        assert!(worker.join().is_err());
    }
}
