//! The answers to an ACME authority that asks over HTTP for a proof that a host is ours (RFC 8555, 8.3).

use std::sync::Arc;

use arc_swap::ArcSwapOption;

/// Where an authority asks.
const FOLDER: &[u8] = b"/.well-known/acme-challenge/";

/// What is to be answered now. Empty but for the seconds in which a proof is due.
#[derive(Debug, Default)]
pub struct Challenges(ArcSwapOption<Proof>);

#[derive(Debug)]
struct Proof {
    token: String,
    answer: String,
}

impl Challenges {
    /// Answers `token` with the key authorization `answer`, and no other token any more.
    pub fn replace(&self, token: &str, answer: &str) {
        let proof = Proof { token: token.to_owned(), answer: answer.to_owned() };
        self.0.store(Some(Arc::new(proof)));
    }

    /// Answers nothing any more.
    pub fn clear(&self) {
        self.0.store(None);
    }

    /// The answer to a request for `path`, if there is one.
    //= rfc8555#http-challenge
    pub(super) fn answer(&self, path: &[u8]) -> Option<String> {
        let token = path.strip_prefix(FOLDER)?;
        let proof = self.0.load();
        let proof = proof.as_ref().filter(|proof| proof.token.as_bytes() == token)?;
        Some(proof.answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_is_answered_at_a_time() {
        let challenges = Challenges::default();
        let asked = |token: &str| {
            challenges.answer(format!("/.well-known/acme-challenge/{token}").as_bytes())
        };
        assert_eq!(asked(""), None);
        challenges.replace("one", "one.thumb");
        assert_eq!(asked("one").as_deref(), Some("one.thumb"));
        for other in ["", "on", "one/", "one.thumb", "two"] {
            assert_eq!(asked(other), None, "{other}");
        }
        assert_eq!(challenges.answer(b"/one"), None);
        challenges.replace("two", "two.thumb");
        assert_eq!((asked("one"), asked("two")), (None, Some("two.thumb".into())));
        challenges.clear();
        assert_eq!(asked("two"), None);
    }
}
