//! Commands about access: keys, lists, bans and tokens.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use client::Torrent;
use serde_json::{Value, json};
use tracker::IpPrefix;
use types::InfoHash;

use super::api::escape;
use super::error::ApiError;
use super::table::{Column, Format, column, date, lines, plain};
use super::torrents::TorrentsArg;
use super::{Session, items_of};
use crate::dates::Expiry;

/// When something expires.
#[derive(Args)]
pub(super) struct ExpiryArg {
    /// Expiry: a duration from now (12h, 30d, 2w), a date (2030-12-31, UTC), seconds since 1970, or
    /// never.
    #[arg(long, value_name = "WHEN")]
    expires: Option<Expiry>,
}

impl ExpiryArg {
    /// Adds it to a request body, if given; `never` becomes null.
    fn body(&self, body: &mut Value) {
        if let Some(Expiry(at)) = self.expires {
            body["expires"] = json!(at);
        }
    }
}

/// Removes what `words` name in the list `all` of the API. `one` is the name of each in messages.
pub(super) fn remove_each(
    session: &Session,
    all: &str,
    one: &str,
    words: &[String],
) -> Result<(), ApiError> {
    words.iter().try_for_each(|word| {
        let id = id_of(session, all, word)?;
        session.api.request(&format!("DELETE /{all}/{id}"), None)?;
        session.print_done(format_args!("{one} {id} removed"))
    })
}

/// Stands for a key or token in the help.
const ID_OR_NAME: &str = "ID|NAME";

/// Returns the id of the key, token or webhook that `word` names: by its id, or by its name or URL if no other has the
/// same. `all` is the list in the API: `keys`, `tokens` or `webhooks`.
fn id_of(session: &Session, all: &str, word: &str) -> Result<u64, ApiError> {
    if let Ok(id) = word.parse::<u32>() {
        return Ok(id.into());
    }
    // Webhooks are few, and come at once.
    let (name, query) = match all {
        "webhooks" => ("url", String::new()),
        _ => ("name", format!("?limit=1000&q={}", escape(word))),
    };
    let mut ids = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = session.api.request(&format!("GET /{all}{query}{cursor}"), None)?;
        let of_name = items_of(&page, all)?.iter().filter(|item| item[name] == *word);
        ids.extend(of_name.filter_map(|item| item["id"].as_u64()));
        if page["next"].is_null() {
            break;
        }
        cursor = format!("&cursor={}", page["next"]);
    }
    match ids.as_slice() {
        // Without a name, it is one of those that have none.
        [id] if !word.is_empty() => Ok(*id),
        [] | [_] => {
            let one = all.trim_end_matches('s');
            Err(ApiError::Failed(format!(
                "no {one} has the id or the {name} `{word}`: `tidegate admin {all} list` shows them"
            )))
        }
        several => {
            let ids: Vec<_> = several.iter().map(u64::to_string).collect();
            Err(ApiError::Failed(format!(
                "several {all} have the {name} `{word}`, with the ids {}: give the id",
                ids.join(", ")
            )))
        }
    }
}

#[derive(Subcommand)]
pub(super) enum KeysCommand {
    /// List all keys.
    List,
    /// Create a key, and print it with its announce URLs.
    Create {
        /// Use the key in this file (`-` = standard input) instead of a random one.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        #[command(flatten)]
        rules: KeyRulesArgs,
    },
    /// Show a key and its user's traffic.
    Show {
        #[arg(value_name = ID_OR_NAME)]
        key: String,
    },
    /// Change a key's name or limits, or the key itself. Options that are not given stay as they are.
    Change {
        #[arg(value_name = ID_OR_NAME)]
        key: String,
        /// Replace the key by the one in this file (`-` = standard input). Totals stay, and the old key is unknown.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        #[command(flatten)]
        rules: KeyRulesArgs,
    },
    /// Remove keys: their users are no longer served.
    #[command(alias = "revoke")]
    Remove {
        #[arg(required = true, value_name = ID_OR_NAME)]
        keys: Vec<String>,
    },
}

/// The name and the limits of a key.
#[derive(Args)]
pub(super) struct KeyRulesArgs {
    /// Name, for your information.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    expiry: ExpiryArg,
    /// Maximum number of torrents at a time. 0 = unlimited, here and below.
    #[arg(long, value_name = "N")]
    torrents: Option<u32>,
    /// Maximum number of peers per torrent.
    #[arg(long, value_name = "N")]
    peers_per_torrent: Option<u16>,
    /// Maximum number of IP addresses at a time.
    #[arg(long, value_name = "N")]
    addresses: Option<u16>,
    /// Maximum number of announces per minute.
    #[arg(long, value_name = "N")]
    announces_per_minute: Option<u16>,
    /// True if the user may only seed.
    #[arg(long, value_name = "BOOL")]
    seed_only: Option<bool>,
    /// Maximum number of torrents that are downloaded at a time (with site.kind = "feed").
    #[arg(long, value_name = "N")]
    download_slots: Option<u32>,
}

const KEYS: &[Column] = &[
    column("id", "/id", Format::Count),
    column("name", "/name", Format::Text),
    column("key", "/key", Format::Text),
    column("expires", "/expires", Format::Date),
    column("torrents", "/torrents", Format::Limit),
    column("peers", "/peers_per_torrent", Format::Limit),
    column("addresses", "/addresses", Format::Limit),
    column("per minute", "/announces_per_minute", Format::Limit),
    column("first used", "/first_used", Format::Date),
    column("uploaded", "/totals/uploaded", Format::Bytes),
    column("downloaded", "/totals/downloaded", Format::Bytes),
];

impl KeysCommand {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        match self {
            Self::List => session.list("/keys?limit=1000", "keys", 0, KEYS),
            Self::Create { key_file, rules } => {
                let body = rules.body(key_file.as_deref())?;
                session.print_value(&session.api.request("POST /keys", Some(&body))?, with_urls)
            }
            Self::Show { key } => {
                let id = id_of(session, "keys", key)?;
                let key = session.api.request(&format!("GET /keys/{id}"), None)?;
                session.print_value(&key, with_urls)
            }
            Self::Change { key, key_file, rules } => {
                let request = format!("PATCH /keys/{}", id_of(session, "keys", key)?);
                let body = rules.body(key_file.as_deref())?;
                session.print_value(&session.api.request(&request, Some(&body))?, with_urls)
            }
            Self::Remove { keys } => remove_each(session, "keys", "Key", keys),
        }
    }
}

impl KeyRulesArgs {
    /// Returns a request body with the options that are given, and with the key in a file.
    fn body(&self, key_file: Option<&Path>) -> Result<Value, ApiError> {
        let mut body = json!({
            "key": key_file.map(read_key).transpose()?,
            "name": self.name,
            "torrents": self.torrents,
            "peers_per_torrent": self.peers_per_torrent,
            "addresses": self.addresses,
            "announces_per_minute": self.announces_per_minute,
            "seed_only": self.seed_only,
            "download_slots": self.download_slots,
        });
        if let Value::Object(rules) = &mut body {
            rules.retain(|_, value| !value.is_null());
        }
        self.expiry.body(&mut body);
        Ok(body)
    }
}

/// Returns a key as text, with its URLs one per line, so that they can be copied. A token without `keys:read` gets
/// neither from a change.
fn with_urls(key: &Value) -> String {
    let mut key = key.clone();
    let urls = key.as_object_mut().and_then(|members| members.remove("announce_urls"));
    let mut text = lines(&key);
    if key["key"].is_null() {
        return text;
    }
    match urls.as_ref().and_then(Value::as_array).map(Vec::as_slice) {
        None | Some([]) => {
            text += "No listener is private (access.private), so no announce URL takes a key.\n";
        }
        Some(urls) => {
            text += "Announce URLs (behind a proxy or NAT, replace the host by the public one):\n";
            text.extend(urls.iter().map(|url| format!("  {}\n", plain(url))));
        }
    }
    text
}

fn read_key(file: &Path) -> Result<String, ApiError> {
    let (_, bytes) = read(file)?;
    Ok(String::from_utf8_lossy(&bytes).trim().into())
}

/// Reads a file, or standard input if it is `-`. Returns its name for messages, too.
fn read(file: &Path) -> Result<(String, Vec<u8>), ApiError> {
    let is_stdin = file == Path::new("-");
    let name = if is_stdin { "standard input".into() } else { file.display().to_string() };
    let mut bytes = Vec::new();
    let read =
        if is_stdin { io::stdin().read_to_end(&mut bytes).map(|_| bytes) } else { fs::read(file) };
    match read {
        Ok(bytes) => Ok((name, bytes)),
        Err(error) => Err(ApiError::Usage(format!("cannot read {name}: {error}"))),
    }
}

#[derive(Args)]
pub(super) struct ListsArgs {
    /// The list.
    list: List,
    #[command(subcommand)]
    command: ListCommand,
}

#[derive(Clone, Copy, ValueEnum)]
enum List {
    /// Torrents served when access.mode is allow or both.
    Allow,
    /// Torrents that are not served, whatever access.mode is.
    Deny,
}

#[derive(Subcommand)]
enum ListCommand {
    /// Add torrents: info hashes of 40 or 64 hex digits, .torrent files, magnet links.
    Add(TorrentsArg),
    /// Remove torrents. Exit code 1 if one was not on the list.
    Remove(TorrentsArg),
    /// Print all entries, one per line. Those of list files have a comment that names the file.
    #[command(aliases = ["show", "export"])]
    List,
    /// Add the entries of a file, one info hash per line, optionally followed by a note. # starts a
    /// comment. If a line is invalid, nothing is added.
    Import {
        /// The file; `-` = standard input.
        #[arg(default_value = "-")]
        file: PathBuf,
        /// Remove the entries instead.
        #[arg(long)]
        remove: bool,
    },
}

impl ListsArgs {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        let path = match self.list {
            List::Allow => "/lists/allow",
            List::Deny => "/lists/deny",
        };
        let send = |method: &str, arg: &TorrentsArg| {
            let hashes: Value = hashes(&arg.torrents)?.iter().map(InfoHash::to_string).collect();
            session.api.request(&format!("{method} {path}"), Some(&hashes))
        };
        let (outcome, done) = match &self.command {
            ListCommand::Add(arg) => (send("POST", arg)?, "Added"),
            ListCommand::Remove(arg) => (send("DELETE", arg)?, "Removed"),
            ListCommand::List => return show(session, path),
            ListCommand::Import { file, remove } => {
                let (method, done) =
                    if *remove { ("DELETE", "Removed") } else { ("POST", "Added") };
                (session.api.upload(&format!("{method} {path}"), read_list(file)?)?, done)
            }
        };
        session.print_value(&outcome, |outcome| changed(outcome, done))?;
        let is_partial = outcome["changed"] != outcome["requested"];
        if is_partial && matches!(self.command, ListCommand::Remove(_)) {
            return Err(ApiError::Failed("some of the torrents were not on the list".into()));
        }
        Ok(())
    }
}

/// Returns the info hashes of torrents; a hybrid torrent has two.
pub(super) fn hashes(torrents: &[String]) -> Result<Vec<InfoHash>, ApiError> {
    let mut hashes = Vec::new();
    for text in torrents {
        hashes.extend(Torrent::read(text).map_err(|bad| ApiError::Usage(bad.to_string()))?.hashes);
    }
    Ok(hashes)
}

fn changed(outcome: &Value, done: &str) -> String {
    let Value::Object(outcome) = outcome else { return lines(outcome) };
    let figure = |name: &str| plain(outcome.get(name).unwrap_or(&Value::Null));
    let (requested, changed, total) = (figure("requested"), figure("changed"), figure("total"));
    let entries = if total == "1" { "entry" } else { "entries" };
    format!("{done} {changed} of {requested}; the list has {total} {entries}\n")
}

fn show(session: &Session, path: &str) -> Result<(), ApiError> {
    let list = session.api.text(&format!("GET {path}"))?;
    if session.json {
        return session
            .print(&list.lines().map(|line| format!("{}\n", entry(line))).collect::<String>());
    }
    session.print(&list)
}

/// Returns a line of a list as JSON. An entry of a list file has a comment that names the file.
fn entry(line: &str) -> Value {
    match line.split_once(" # ") {
        Some((info_hash, file)) => json!({ "info_hash": info_hash, "file": file }),
        None => json!({ "info_hash": line }),
    }
}

/// Returns the info hashes of a file, one a line.
fn read_list(file: &Path) -> Result<String, ApiError> {
    let (name, bytes) = read(file)?;
    let mut list = String::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let hash = InfoHash::from_line(line).map_err(|error| {
            ApiError::Failed(format!("{name}:{number}: {error} (nothing was changed)"))
        })?;
        list.extend(hash.map(|hash| format!("{hash}\n")));
    }
    Ok(list)
}

#[derive(Subcommand)]
pub(super) enum BansCommand {
    /// List the current bans.
    List,
    /// Ban an address or a network.
    Add {
        /// Address, or network such as 192.0.2.0/24.
        network: IpPrefix,
        /// Reason, for your information.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        expiry: ExpiryArg,
        /// Ban a network of /0 to /3, too: a large part of the internet.
        #[arg(long)]
        force: bool,
    },
    /// Remove bans.
    Remove {
        #[arg(required = true, value_name = "NETWORK")]
        networks: Vec<IpPrefix>,
    },
}

const BANS: &[Column] = &[
    column("network", "/network", Format::Text),
    column("created", "/created", Format::Date),
    column("expires", "/expires", Format::Date),
    column("automatic", "/automatic", Format::Text),
    column("reason", "/reason", Format::Text),
];

impl BansCommand {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        match self {
            Self::List => session.list("/bans?limit=1000", "bans", 0, BANS),
            Self::Add { network, reason, expiry, force } => {
                let network = network.to_string();
                let mut body = json!({ "network": network, "reason": reason, "force": force });
                expiry.body(&mut body);
                let ban = session.api.request("POST /bans", Some(&body))?;
                session.print_value(&ban, |ban| {
                    let network = plain(&ban["network"]);
                    match ban["expires"].as_u64() {
                        Some(expires) => format!("{network} banned until {} UTC\n", date(expires)),
                        None => format!("{network} banned until the ban is removed\n"),
                    }
                })
            }
            Self::Remove { networks } => networks.iter().try_for_each(|network| {
                session.api.request(&format!("DELETE /bans/{network}"), None)?;
                session.print_done(format_args!("Ban on {network} removed"))
            }),
        }
    }
}

#[derive(Subcommand)]
pub(super) enum TokensCommand {
    /// List all tokens, without their secrets.
    List,
    /// Create a token, and print it. It is shown only once.
    Create {
        /// Name, for your information.
        name: String,
        /// Permissions, separated by commas, e.g. stats:read,keys:read (see docs/api.md).
        #[arg(long, value_name = "SCOPE", required = true, value_delimiter = ',')]
        scope: Vec<String>,
        #[command(flatten)]
        expiry: ExpiryArg,
    },
    /// Remove tokens: who has one is refused.
    #[command(alias = "revoke")]
    Remove {
        #[arg(required = true, value_name = ID_OR_NAME)]
        tokens: Vec<String>,
    },
}

const TOKENS: &[Column] = &[
    column("id", "/id", Format::Count),
    column("name", "/name", Format::Text),
    column("created", "/created", Format::Date),
    column("expires", "/expires", Format::Date),
    column("scopes", "/scopes", Format::Text),
];

impl TokensCommand {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        match self {
            Self::List => session.list("/tokens?limit=1000", "tokens", 0, TOKENS),
            Self::Create { name, scope, expiry } => {
                let mut body = json!({ "name": name, "scopes": scope });
                expiry.body(&mut body);
                let token = session.api.request("POST /tokens", Some(&body))?;
                session.print_value(&token, |token| {
                    let secret = plain(&token["secret"]);
                    format!("Token {}  {secret}  (shown once)\n", plain(&token["id"]))
                })
            }
            Self::Remove { tokens } => remove_each(session, "tokens", "Token", tokens),
        }
    }
}
