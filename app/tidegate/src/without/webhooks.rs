//! Stands for the client that posts webhooks in a build without the feature `webhooks`. The API refuses to create them,
//! because the configuration permits no port; there may be some of an earlier build.

use std::sync::Arc;

use admin::SendPost;
use anyhow::Result;
use config::Config;

pub(super) fn client(_: &Config) -> Result<SendPost> {
    Ok(Arc::new(|_| Box::pin(async { Err("this build has no `webhooks`".into()) })))
}
