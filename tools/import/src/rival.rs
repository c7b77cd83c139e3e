//! The trackers whose files can be imported.

types::labelled! {
    /// A tracker whose files can be imported.
    pub enum Rival {
        /// opentracker.
        Opentracker = "opentracker",
        /// Chihaya.
        Chihaya = "chihaya",
        /// Torrust Tracker.
        Torrust = "torrust",
        /// bittorrent-tracker, of WebTorrent.
        BittorrentTracker = "bittorrent-tracker",
        /// wt-tracker.
        WtTracker = "wt-tracker",
        /// aquatic_udp, aquatic_http and aquatic_ws.
        Aquatic = "aquatic",
        /// hefur.
        Hefur = "hefur",
        /// UNIT3D-Announce, and the database of UNIT3D.
        Unit3d = "unit3d",
        /// Ocelot, and the database of Gazelle.
        Ocelot = "ocelot",
    }
}

/// A key of another tracker, and what it is here: a row of the table in the tracker's page of `docs/migrate`.
#[derive(Clone, Debug)]
pub struct KeyRow {
    /// Its name there, with those that are alike. A `*` at the end stands for any ending.
    pub theirs: Vec<&'static str>,
    /// The keys here; empty if there are none.
    pub ours: Vec<&'static str>,
    /// A remark for users; the reason, if there is no key here.
    pub remark: &'static str,
}

impl KeyRow {
    /// Parses `| names there | names here, or none | remark |`, with each name between backticks.
    fn parse(line: &'static str) -> Option<Self> {
        let mut cells = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
        let [theirs, ours, remark] = [cells.next()?, cells.next()?, cells.next()?];
        let names = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect::<Vec<_>>();
        let row = Self { theirs: names(theirs), ours: names(ours), remark };
        (!row.theirs.is_empty()).then_some(row)
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.theirs.iter().any(|theirs| match theirs.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => *theirs == name,
        })
    }
}

impl Rival {
    /// Returns its name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Chihaya => "Chihaya",
            Self::Torrust => "Torrust",
            Self::Unit3d => "UNIT3D",
            Self::Ocelot => "Ocelot",
            other => other.label(),
        }
    }

    /// Returns the page for its operators.
    fn page(self) -> &'static str {
        match self {
            Self::Opentracker => include_str!("../../../docs/migrate/opentracker.md"),
            Self::Chihaya => include_str!("../../../docs/migrate/chihaya.md"),
            Self::Torrust => include_str!("../../../docs/migrate/torrust.md"),
            Self::BittorrentTracker => include_str!("../../../docs/migrate/bittorrent-tracker.md"),
            Self::WtTracker => include_str!("../../../docs/migrate/wt-tracker.md"),
            Self::Aquatic => include_str!("../../../docs/migrate/aquatic.md"),
            Self::Hefur => include_str!("../../../docs/migrate/hefur.md"),
            Self::Unit3d => include_str!("../../../docs/migrate/unit3d.md"),
            Self::Ocelot => include_str!("../../../docs/migrate/ocelot.md"),
        }
    }

    /// Returns the lines of a part of the page.
    fn part(self, name: &str) -> impl Iterator<Item = &'static str> {
        let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- end of {name} -->"));
        let lines = self.page().lines().skip_while(move |line| *line != begin);
        lines.take_while(move |line| *line != end)
    }

    /// Returns its keys beside ours.
    pub fn keys(self) -> Vec<KeyRow> {
        self.part("keys").filter_map(KeyRow::parse).collect()
    }

    /// Returns what it does otherwise than tidegate, a sentence or two each.
    pub fn differences(self) -> Vec<&'static str> {
        self.part("differences").filter_map(|line| line.strip_prefix("- ")).collect()
    }
}
