//! Commands of the management API.

use std::time::Duration;

use admin::Command;

use super::reload::PendingReplies;
use super::serving::Serving;

impl Serving {
    /// Executes a command, and replies to it.
    pub(super) fn execute(&mut self, command: Command) {
        let mut command = command;
        for module in &mut self.modules {
            let Some(other) = module.execute(command) else { return };
            command = other;
        }
        let events = &self.events;
        match command {
            // Fails only if the requester has given up, here and below.
            Command::Settings(reply) => drop(reply.send(self.reloader.list())),
            Command::Reload(reply) => {
                self.reloader.reload_and_reply(events, PendingReplies::to(reply))
            }
            Command::SetOverrides { values, dry_run: true, reply } => {
                self.reloader.validate(values, reply);
            }
            Command::SetOverrides { values, dry_run: false, reply } => {
                self.reloader.overrides = values;
                self.reloader.reload_and_reply(events, PendingReplies::to(reply));
            }
            Command::ReloadFiles(reply) => {
                self.reloader.reload_files_and_reply(events, PendingReplies::to_result(reply));
            }
            Command::Drain { for_s, reply } => {
                self.workers.drain(Duration::from_secs(for_s.into()));
                let _ = reply.send(());
            }
            // Outside clusters nothing is recorded, and the API refuses a change.
            Command::NodeIgnored { .. }
            | Command::ChangeSecret { .. }
            | Command::SecretsRecorded(_) => {}
            Command::Upgrade(reply) => {
                let outcome = match self.upgrader.obstacle() {
                    Some(obstacle) => Err(obstacle),
                    None if self.request_upgrade() => Ok(()),
                    None => Err("an upgrade is already in progress".into()),
                };
                drop(reply.send(outcome));
            }
            Command::LogLevels(levels, reply) => {
                let log = &mut self.reloader.log;
                levels.into_iter().for_each(|levels| log.set_levels(levels));
                drop(reply.send(log.levels().clone()));
            }
        }
    }
}
