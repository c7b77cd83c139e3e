//! The end of a request's access while its response is still being sent, as that of a stream is.

use std::time::Duration;

use super::auth::Caller;
use super::state::{Api, Shared};

/// Period of the check for expiry. Revocation is noticed at once.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Completes when `caller` loses its access: its token is revoked or expires, or its session ends.
pub(super) async fn access_end(api: Shared, caller: Caller) {
    loop {
        let changed = api.access_changed.notified();
        tokio::pin!(changed);
        // Before the check, so that no change is missed.
        changed.as_mut().enable();
        if !has_access(&api, &caller) {
            return;
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(CHECK_PERIOD) => {}
        }
    }
}

fn has_access(api: &Api, caller: &Caller) -> bool {
    api.authenticator().is_valid(caller.token, api.now())
        && caller.session.as_ref().is_none_or(|session| api.sessions.is_open(session))
}
