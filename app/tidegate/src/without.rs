//! Stands for the commands of subsystems that a build lacks.

use std::ffi::OsString;

use clap::Args;

#[derive(Args)]
pub(crate) struct MissingCommand {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl MissingCommand {
    pub(crate) fn text(&self, feature: &str) -> String {
        format!("this build has no `{feature}`: use a build with the cargo feature `{feature}`")
    }
}
