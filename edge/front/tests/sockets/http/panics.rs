//! A panic in any task ends the worker, so that the process ends instead of serving no client.

use super::*;

#[test]
fn panic_in_a_task_ends_the_worker() {
    // The accepting task serves the first request of a connection, and its own task the second.
    for begin in ["", PROBE] {
        let mut server = HttpServer::with_hook(|| panic!("a test asked for this panic"));
        let mut client = server.client();
        if !begin.is_empty() {
            assert_eq!(client.request(begin).status, 404);
        }
        client.send(get("/hook", ""));
        let worker = server.workers.remove(0);
        wait_until("the worker has ended", || worker.is_finished());
        assert!(worker.join().is_err());
    }
}
