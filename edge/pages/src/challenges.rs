//! Responses to an ACME authority that validates a host over HTTP (RFC 8555, 8.3).

use std::sync::Arc;

use arc_swap::ArcSwapOption;

/// The path under which an authority requests a token.
const FOLDER: &[u8] = b"/.well-known/acme-challenge/";

/// The token that is being validated now. Empty except during the seconds of a validation.
#[derive(Debug, Default)]
pub struct Challenges(ArcSwapOption<Proof>);

#[derive(Debug)]
struct Proof {
    token: String,
    answer: String,
}

impl Challenges {
    /// Answers requests for `token` with the key authorization `answer`. An earlier token is forgotten.
    pub fn replace(&self, token: &str, answer: &str) {
        let proof = Proof { token: token.to_owned(), answer: answer.to_owned() };
        self.0.store(Some(Arc::new(proof)));
    }

    /// Forgets the token.
    pub fn clear(&self) {
        self.0.store(None);
    }

    /// Returns the response to a request for `path`, or `None` if that is not the token's path.
    //= rfc8555#http-challenge
    pub(crate) fn answer(&self, path: &[u8]) -> Option<String> {
        let token = path.strip_prefix(FOLDER)?;
        let proof = self.0.load();
        let proof = proof.as_ref().filter(|proof| proof.token.as_bytes() == token)?;
        Some(proof.answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rfc8555#http-challenge
    //= type=test
    #[test]
    fn answers_the_token_that_is_set_and_no_other() {
        let challenges = Challenges::default();
        let answer = |token: &str| challenges.answer(&[FOLDER, token.as_bytes()].concat());
        assert_eq!(answer("one"), None);
        challenges.replace("one", "one.thumb");
        assert_eq!(answer("one").as_deref(), Some("one.thumb"));
        assert_eq!(["", "on", "one/", "two"].map(answer), [const { None }; 4]);
        assert_eq!(challenges.answer(b"/one"), None);
        challenges.replace("two", "two.thumb");
        assert_eq!(answer("one"), None);
        challenges.clear();
        assert_eq!(answer("two"), None);
    }
}
