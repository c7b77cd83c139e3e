//! Commands about torrents and peers.

use std::net::IpAddr;

use clap::{Args, Subcommand, ValueEnum, value_parser};
use serde_json::{Value, json};

use super::Session;
use super::api::escape;
use super::error::ApiError;
use super::rules::hashes;
use super::table::{Column, Format, Table, column, lines, plain};

#[derive(Subcommand)]
pub(super) enum TorrentsCommand {
    /// List torrents, the largest first.
    List {
        /// Sort by this column.
        #[arg(long, value_enum, default_value_t = Sort::Seeders)]
        sort: Sort,
        /// Reverse the order.
        #[arg(long)]
        ascending: bool,
        /// Only torrents whose info hash begins with these hex digits.
        #[arg(long, value_name = "DIGITS")]
        filter: Option<String>,
        /// Maximum number to print. 0 = all.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Show a torrent and its peers.
    Show {
        /// An info hash of 40 or 64 hex digits, a .torrent file or a magnet link.
        torrent: String,
        /// Maximum number of peers to print.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(1..=1000))]
        peers: u32,
    },
    /// Remove torrents and their peers, until they announce again.
    Remove(TorrentsArg),
    /// Refuse announces of torrents.
    Freeze(TorrentsArg),
    /// Accept announces of frozen torrents again.
    Unfreeze(TorrentsArg),
    /// Refuse torrents with a reason that clients show.
    Refuse {
        #[command(flatten)]
        torrents: TorrentsArg,
        /// Text of 1 to 200 ASCII characters, as in "Replaced by torrent 1234".
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Serve torrents again that were refused with a reason.
    Serve(TorrentsArg),
    /// List torrents that are refused with a reason.
    Refused {
        /// Maximum number to print. 0 = all.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
}

#[derive(Args)]
pub(super) struct TorrentsArg {
    #[arg(required = true, value_name = "TORRENT")]
    pub(super) torrents: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Seeders,
    Leechers,
    Downloads,
    Age,
    Hash,
}

impl Sort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Seeders => "seeders",
            Self::Leechers => "leechers",
            Self::Downloads => "downloads",
            Self::Age => "age",
            Self::Hash => "info_hash",
        }
    }
}

const TORRENTS: &[Column] = &[
    column("info hash", "/info_hash", Format::Text),
    column("seeders", "/seeders", Format::Count),
    column("leechers", "/leechers", Format::Count),
    column("downloads", "/downloads", Format::Count),
    column("age", "/age_s", Format::Span),
];

const REASONS: &[Column] =
    &[column("info hash", "/info_hash", Format::Text), column("reason", "/reason", Format::Text)];

const PEERS: &[Column] = &[
    column("address", "/address", Format::Text),
    column("role", "/role", Format::Text),
    column("announced", "/age_s", Format::Span),
    column("peer id", "/id", Format::Text),
];

const FOUND: &[Column] = &[
    column("info hash", "/info_hash", Format::Text),
    column("address", "/peer/address", Format::Text),
    column("role", "/peer/role", Format::Text),
    column("announced", "/peer/age_s", Format::Span),
    column("peer id", "/peer/id", Format::Text),
];

impl TorrentsCommand {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        match self {
            Self::List { sort, ascending, filter, limit } => {
                let order = if *ascending { "asc" } else { "desc" };
                let mut query = format!("&sort={}&order={order}", sort.name());
                if let Some(filter) = filter {
                    query += &format!("&filter={}", escape(&filter.to_ascii_lowercase()));
                }
                let path = format!("/torrents?limit={}{query}", page_size(*limit));
                session.list(&path, "torrents", *limit, TORRENTS)
            }
            Self::Show { torrent, peers } => {
                for hash in hashes(std::slice::from_ref(torrent))? {
                    let found = format!("GET /torrents/{hash}?peers={peers}");
                    session.print_value(&session.api.request(&found, None)?, detail)?;
                }
                Ok(())
            }
            Self::Remove(arg) => arg.change_each(session, "DELETE", "", None, "removed"),
            Self::Freeze(arg) => arg.change_each(session, "PUT", "/freeze", None, "frozen"),
            Self::Unfreeze(arg) => arg.change_each(session, "DELETE", "/freeze", None, "unfrozen"),
            Self::Refuse { torrents, reason } => {
                let body = json!({ "reason": reason });
                torrents.change_each(session, "PUT", "/access", Some(&body), "refused")
            }
            Self::Serve(arg) => arg.change_each(session, "DELETE", "/access", None, "served again"),
            Self::Refused { limit } => {
                let path = format!("/reasons?limit={}", page_size(*limit));
                session.list(&path, "torrents", *limit, REASONS)
            }
        }
    }
}

/// Returns the number of items to request at a time, if up to `limit` are printed, 0 = all.
fn page_size(limit: usize) -> usize {
    if limit == 0 { 1000 } else { limit.min(1000) }
}

impl TorrentsArg {
    fn change_each(
        &self,
        session: &Session,
        method: &str,
        what: &str,
        body: Option<&Value>,
        done: &str,
    ) -> Result<(), ApiError> {
        hashes(&self.torrents)?.iter().try_for_each(|hash| {
            session.api.request(&format!("{method} /torrents/{hash}{what}"), body)?;
            session.print_done(format_args!("{hash} {done}"))
        })
    }
}

fn detail(torrent: &Value) -> String {
    let mut figures = torrent.clone();
    let peers = figures.as_object_mut().and_then(|figures| {
        // For programs, which ask for JSON: the table says the same.
        figures.remove("breakdown");
        figures.remove("peers")
    });
    let mut text = lines(&figures);
    if let Some(Value::Array(peers)) = peers.filter(|peers| *peers != Value::Array(Vec::new())) {
        let mut table = Table::new(PEERS);
        peers.iter().for_each(|peer| table.add(peer));
        text.push('\n');
        text += &table.drain();
    }
    text
}

#[derive(Subcommand)]
pub(super) enum PeersCommand {
    /// List the peers at an IP address, with their torrents.
    #[command(alias = "find")]
    List {
        /// IP address, without a port.
        address: IpAddr,
    },
    /// Remove the peers at an IP address, until they announce again.
    Remove {
        /// IP address, without a port.
        address: IpAddr,
    },
}

impl PeersCommand {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        let query = |address: &IpAddr| escape(&address.to_string());
        match self {
            Self::List { address } => {
                session.list(&format!("/peers?address={}", query(address)), "peers", 0, FOUND)
            }
            Self::Remove { address } => {
                let request = format!("DELETE /peers?address={}", query(address));
                session.print_value(&session.api.request(&request, None)?, |removed| {
                    format!("Removed {} peers at {address}\n", plain(&removed["removed"]))
                })
            }
        }
    }
}
