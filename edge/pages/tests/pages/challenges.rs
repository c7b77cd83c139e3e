//! Challenges of certificate authorities.

use std::sync::Arc;

use super::*;

//= rfc8555#http-challenge
//= type=test
#[test]
fn serves_the_challenges_that_are_set_and_no_others() {
    let pages = PageOptions::default();
    let challenges = Arc::clone(&pages.challenges);
    let server = start(HttpOptions::default(), pages);
    let mut client = server.client();
    let mut request = |target: &str| client.request(get(target, ""));
    let path = "/.well-known/acme-challenge/a-token_1";
    assert_eq!(request(path).status, 404);
    challenges.replace("a-token_1", "a-token_1.thumb");
    let response = request(path);
    assert_eq!((response.status, response.text().as_str()), (200, "a-token_1.thumb"));
    for other in ["/a-token_1", &path[..path.len() - 1], &format!("{path}/")] {
        assert_eq!(request(other).status, 404, "{other}");
    }
    challenges.replace("two", "two.thumb");
    assert_eq!(request(path).status, 404);
    challenges.clear();
    assert_eq!(request("/.well-known/acme-challenge/two").status, 404);
}
