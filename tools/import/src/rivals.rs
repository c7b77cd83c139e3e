//! The meaning of each tracker's configuration and data here.

pub(crate) mod aquatic;
pub(crate) mod bittorrent_tracker;
pub(crate) mod chihaya;
pub(crate) mod hefur;
pub(crate) mod ocelot;
pub(crate) mod opentracker;
pub(crate) mod torrust;
pub(crate) mod unit3d;
pub(crate) mod wt_tracker;

mod data;

pub(crate) use data::Data;

use types::InfoHash;

use crate::document::Document;
use crate::error::ImportError;
use crate::mapper::Mapper;
use crate::options::ListKind;
use crate::rival::Rival;
use crate::source::ConfigText;

/// Statements of the configuration about the data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The list that files of info hashes are for.
    pub(crate) list: Option<ListKind>,
    /// True if keys are valid after their time.
    pub(crate) ignores_expiry: bool,
    /// Peers of a user in one torrent; 0 = unlimited.
    pub(crate) peers_per_torrent: u16,
    /// Entries of lists that are in the configuration itself.
    pub(crate) entries: Vec<(ListKind, InfoHash)>,
}

impl Rival {
    pub(crate) fn parse(self, text: &ConfigText) -> Result<Document, ImportError> {
        let ConfigText { file, text } = text;
        match self {
            Self::Opentracker => Document::lines(file, text, None),
            Self::Chihaya => Document::yaml(file, text),
            Self::Torrust | Self::Aquatic => Document::toml(file, text),
            Self::BittorrentTracker => bittorrent_tracker::parse(file, text),
            Self::WtTracker => Document::json(file, text),
            Self::Hefur => Document::command_line(file, text, hefur::SWITCHES),
            Self::Unit3d => Document::lines(file, text, Some('=')),
            Self::Ocelot => ocelot::parse(file, text),
        }
    }

    /// Takes the keys of a configuration file.
    pub(crate) fn configure(
        self,
        mapper: &mut Mapper<'_>,
        plan: &mut Plan,
    ) -> Result<(), ImportError> {
        match self {
            Self::Opentracker => opentracker::configure(mapper, plan),
            Self::Chihaya => chihaya::configure(mapper, plan),
            Self::Torrust => torrust::configure(mapper, plan),
            Self::BittorrentTracker => bittorrent_tracker::configure(mapper),
            Self::WtTracker => wt_tracker::configure(mapper),
            Self::Aquatic => aquatic::configure(mapper, plan),
            Self::Hefur => hefur::configure(mapper),
            Self::Unit3d => unit3d::configure(mapper, plan),
            Self::Ocelot => ocelot::configure(mapper),
        }
    }

    /// Returns whether its tables are read.
    pub(crate) fn wants(self, table: &str) -> bool {
        let names: &[&str] = match self {
            Self::Torrust => torrust::TABLES,
            Self::Unit3d => unit3d::TABLES,
            Self::Ocelot => ocelot::TABLES,
            _ => &[],
        };
        names.iter().any(|name| name.eq_ignore_ascii_case(table))
    }
}
