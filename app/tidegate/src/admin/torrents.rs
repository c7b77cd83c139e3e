//! Torrents and peers.

use std::net::IpAddr;

use clap::{Subcommand, ValueEnum, value_parser};
use serde_json::Value;

use super::api::escape;
use super::error::ApiError;
use super::rules::hashes;
use super::table::{Column, Format, Table, column, lines, plain};
use super::{Pages, Session};

#[derive(Subcommand)]
pub(super) enum Torrents {
    /// Torrents in an order, most first.
    List {
        /// By what they are sorted.
        #[arg(long, value_enum, default_value_t = Sort::Seeders)]
        sort: Sort,
        /// Least first.
        #[arg(long)]
        ascending: bool,
        /// Only those whose hexadecimal info hash begins so.
        #[arg(long, value_name = "DIGITS")]
        filter: Option<String>,
        /// How many are printed at most; 0 is all there are.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// A torrent with its peers.
    Show {
        /// A hash of 40 or 64 digits, a .torrent file or a magnet link, as below.
        torrent: String,
        /// Peers that are printed at most.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(1..=1000))]
        peers: u32,
    },
    /// Forget torrents with their peers, who may announce again.
    Remove {
        #[arg(required = true, value_name = "TORRENT")]
        torrents: Vec<String>,
    },
    /// Refuse the announces of torrents.
    Freeze {
        #[arg(required = true, value_name = "TORRENT")]
        torrents: Vec<String>,
    },
    /// Take them again.
    Unfreeze {
        #[arg(required = true, value_name = "TORRENT")]
        torrents: Vec<String>,
    },
}

/// Orders that the API knows.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    Seeders,
    Leechers,
    Downloads,
    Age,
    Hash,
}

impl Sort {
    /// Its name in the API.
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

impl Torrents {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        match self {
            Self::List { sort, ascending, filter, limit } => {
                let order = if *ascending { "asc" } else { "desc" };
                let mut query = format!("&sort={}&order={order}", sort.name());
                if let Some(filter) = filter {
                    query += &format!("&filter={}", escape(&filter.to_ascii_lowercase()));
                }
                let pages = Pages { path: "/torrents", query, of: "torrents", size: 1000 };
                session.pages(&pages, if *limit == 0 { usize::MAX } else { *limit }, TORRENTS)
            }
            Self::Show { torrent, peers } => {
                for hash in hashes(std::slice::from_ref(torrent))? {
                    let found = format!("GET /torrents/{hash}?peers={peers}");
                    session.print_value(&session.api.request(&found, None)?, detail)?;
                }
                Ok(())
            }
            Self::Remove { torrents } => change_each(session, torrents, "DELETE", "", "is removed"),
            Self::Freeze { torrents } => {
                change_each(session, torrents, "PUT", "/freeze", "is frozen")
            }
            Self::Unfreeze { torrents } => {
                change_each(session, torrents, "DELETE", "/freeze", "is frozen no more")
            }
        }
    }
}

/// Does the same to all of them.
fn change_each(
    session: &Session,
    torrents: &[String],
    method: &str,
    what: &str,
    done: &str,
) -> Result<(), ApiError> {
    hashes(torrents)?.iter().try_for_each(|hash| {
        session.api.request(&format!("{method} /torrents/{hash}{what}"), None)?;
        session.print_done(format_args!("{hash} {done}"))
    })
}

/// Figures a line, and then peers a row.
fn detail(torrent: &Value) -> String {
    let mut figures = torrent.clone();
    let peers = figures.as_object_mut().and_then(|figures| figures.remove("peers"));
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
pub(super) enum Peers {
    /// The peers at an address, with their torrents.
    Find {
        /// Without a port.
        address: IpAddr,
    },
    /// Forget the peers at an address, who may announce again.
    Remove {
        /// Without a port.
        address: IpAddr,
    },
}

impl Peers {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        let query = |address: &IpAddr| escape(&address.to_string());
        match self {
            Self::Find { address } => {
                session.list(&format!("GET /peers?address={}", query(address)), "peers", FOUND)
            }
            Self::Remove { address } => {
                let request = format!("DELETE /peers?address={}", query(address));
                session.print_value(&session.api.request(&request, None)?, |removed| {
                    format!("{} peers at {address} are removed\n", plain(&removed["removed"]))
                })
            }
        }
    }
}
