//! The trackers whose files can be imported.

use crate::rivals::{
    aquatic, bittorrent_tracker, chihaya, hefur, ocelot, opentracker, torrust, unit3d, wt_tracker,
};

/// A tracker whose files can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// opentracker.
    Opentracker,
    /// Chihaya.
    Chihaya,
    /// Torrust Tracker.
    Torrust,
    /// bittorrent-tracker, of WebTorrent.
    BittorrentTracker,
    /// wt-tracker.
    WtTracker,
    /// aquatic_udp, aquatic_http and aquatic_ws.
    Aquatic,
    /// hefur.
    Hefur,
    /// UNIT3D-Announce, and the database of UNIT3D.
    Unit3d,
    /// Ocelot, and the database of Gazelle.
    Ocelot,
}

/// A key of another tracker, and what it is here.
#[derive(Clone, Copy, Debug)]
pub struct KeyRow {
    /// Its name there; several that are alike are separated by blanks. A `*` at the end stands for any ending.
    pub theirs: &'static str,
    /// The keys here; empty if there are none.
    pub ours: &'static [&'static str],
    /// A remark for users; the reason, if there is no key here.
    pub remark: &'static str,
    /// The rule by which its value is taken.
    pub(crate) rule: Rule,
}

/// The rule by which the value of another tracker's key is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// By code for this tracker, if at all.
    Own,
    /// An integer: the first key here is set to it, within these bounds.
    Number(u32, u32),
}

/// A key that code for the tracker takes.
pub(crate) const fn key(
    theirs: &'static str,
    ours: &'static [&'static str],
    remark: &'static str,
) -> KeyRow {
    KeyRow { theirs, ours, remark, rule: Rule::Own }
}

/// A key without a counterpart here.
pub(crate) const fn without(theirs: &'static str, remark: &'static str) -> KeyRow {
    key(theirs, &[], remark)
}

/// A key whose integer is that of a key here, within these bounds.
pub(crate) const fn number(
    theirs: &'static str,
    ours: &'static [&'static str],
    (low, high): (u32, u32),
    remark: &'static str,
) -> KeyRow {
    KeyRow { theirs, ours, remark, rule: Rule::Number(low, high) }
}

impl KeyRow {
    /// Returns true if the row is about a key.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.theirs.split(' ').any(|theirs| match theirs.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => theirs == name,
        })
    }
}

impl Rival {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Opentracker,
        Self::Chihaya,
        Self::Torrust,
        Self::BittorrentTracker,
        Self::WtTracker,
        Self::Aquatic,
        Self::Hefur,
        Self::Unit3d,
        Self::Ocelot,
    ];

    /// Returns the word for it on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Opentracker => "opentracker",
            Self::Chihaya => "chihaya",
            Self::Torrust => "torrust",
            Self::BittorrentTracker => "bittorrent-tracker",
            Self::WtTracker => "wt-tracker",
            Self::Aquatic => "aquatic",
            Self::Hefur => "hefur",
            Self::Unit3d => "unit3d",
            Self::Ocelot => "ocelot",
        }
    }

    /// Returns its name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Chihaya => "Chihaya",
            Self::Torrust => "Torrust",
            Self::Unit3d => "UNIT3D",
            Self::Ocelot => "Ocelot",
            other => other.word(),
        }
    }

    /// Returns its keys beside ours.
    pub fn keys(self) -> &'static [KeyRow] {
        match self {
            Self::Opentracker => opentracker::KEYS,
            Self::Chihaya => chihaya::KEYS,
            Self::Torrust => torrust::KEYS,
            Self::BittorrentTracker => bittorrent_tracker::KEYS,
            Self::WtTracker => wt_tracker::KEYS,
            Self::Aquatic => aquatic::KEYS,
            Self::Hefur => hefur::KEYS,
            Self::Unit3d => unit3d::KEYS,
            Self::Ocelot => ocelot::KEYS,
        }
    }

    /// Returns what it does otherwise than tidegate, a sentence or two each.
    pub fn differences(self) -> &'static [&'static str] {
        match self {
            Self::Opentracker => opentracker::DIFFERENCES,
            Self::Chihaya => chihaya::DIFFERENCES,
            Self::Torrust => torrust::DIFFERENCES,
            Self::BittorrentTracker => bittorrent_tracker::DIFFERENCES,
            Self::WtTracker => wt_tracker::DIFFERENCES,
            Self::Aquatic => aquatic::DIFFERENCES,
            Self::Hefur => hefur::DIFFERENCES,
            Self::Unit3d => unit3d::DIFFERENCES,
            Self::Ocelot => ocelot::DIFFERENCES,
        }
    }
}
