//! The site's users and torrents: loaded at the start, changed by its calls.

use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::{HashMap, HashSet};
use types::{InfoHash, PeerId};

use crate::bytes::{Reader, Writer};
use crate::config::DonorRule;
use crate::credit::{Factors, Gifts};
use crate::id_map::IdMap;
use crate::torrents::{Moderation, Torrent, Torrents};

pub(crate) const PASSKEY_LEN: usize = 32;
/// Prefixes of peer ids.
const PREFIXES_MAX: usize = 1_000;

pub(crate) type Passkey = [u8; PASSKEY_LEN];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) group: i32,
    pub(crate) passkey: Passkey,
    pub(crate) can_download: bool,
    pub(crate) is_donor: bool,
    pub(crate) is_lifetime: bool,
    /// True if others must not learn its address from the database.
    pub(crate) is_protected: bool,
}

/// Users with the same rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) slug: String,
    pub(crate) slots: Option<u32>,
    pub(crate) is_immune: bool,
    pub(crate) factors: Factors,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) users: IdMap<User>,
    pub(crate) groups: HashMap<i32, Group>,
    pub(crate) torrents: Torrents,
    pub(crate) tokens: HashSet<(u32, u32)>,
    pub(crate) personal: HashSet<u32>,
    pub(crate) featured: HashSet<u32>,
    /// Prefixes of the peer ids of clients that are not served.
    pub(crate) refused: Vec<String>,
    /// Prefixes of the peer ids of clients that alone are served, if there are any.
    pub(crate) allowed: Vec<String>,
    pub(crate) bad_passkeys: u64,
    pub(crate) duplicate_hashes: u64,
}

/// The factors of all users, and those of donors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generosity {
    pub(crate) everybody: Factors,
    pub(crate) donor: DonorRule,
    pub(crate) lifetime: DonorRule,
}

impl Generosity {
    /// Returns the rule of a user, if it is a donor.
    fn rule(&self, user: &User) -> DonorRule {
        match (user.is_lifetime, user.is_donor) {
            (true, _) => self.lifetime,
            (_, true) => self.donor,
            _ => DonorRule::default(),
        }
    }

    /// Returns how the bytes of a user in a torrent are credited.
    pub(crate) fn factors(
        &self,
        user: &User,
        group: &Group,
        torrent: &Torrent,
        gifts: Gifts,
    ) -> Factors {
        if torrent.is_neutral {
            return Factors { upload: 0, download: 0 };
        }
        let rule = self.rule(user);
        let donor = Factors {
            upload: rule.upload_factor.unwrap_or(0),
            download: rule.download_factor.unwrap_or(u16::MAX),
        };
        self.everybody.or(group.factors).or(torrent.factors).or(donor).with(gifts)
    }
}

impl Model {
    /// Returns everything that a user need not pay for in a torrent.
    pub(crate) fn gifts(&self, user: u32, torrent: u32) -> Gifts {
        Gifts {
            token: self.tokens.contains(&(user, torrent)),
            personal: self.personal.contains(&user),
            featured: self.featured.contains(&torrent),
        }
    }

    /// Returns whether the client with this peer id is served.
    pub(crate) fn is_served(&self, peer_id: &PeerId) -> bool {
        let has = |prefix: &String| peer_id.0.starts_with(prefix.as_bytes());
        let is_allowed = self.allowed.is_empty() || self.allowed.iter().any(has);
        is_allowed && !self.refused.iter().any(has)
    }

    /// Inserts or replaces a torrent. Counts it if another one has its info hash.
    pub(crate) fn put_torrent(&mut self, id: u32, torrent: Torrent) {
        self.duplicate_hashes += u64::from(self.torrents.put(id, torrent));
    }

    /// Adds the prefix of a peer id to a list. Returns false if there is no room, or it is no prefix.
    pub(crate) fn add_prefix(list: &mut Vec<String>, prefix: &str) -> bool {
        if prefix.is_empty() || prefix.len() > 20 || list.len() >= PREFIXES_MAX {
            return false;
        }
        if !list.iter().any(|other| other == prefix) {
            list.push(prefix.to_owned());
        }
        true
    }

    /// Makes room, so that no announce waits until a table has grown.
    pub(crate) fn reserve(&mut self) {
        self.users.reserve();
        self.torrents.reserve();
        self.tokens.reserve(self.tokens.len() / 8 + 1_000);
    }
}

const MAGIC: [u8; 4] = *b"TGM1";

impl Model {
    /// Returns everything as bytes, for a start without the database.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer(MAGIC.to_vec());
        writer.varint(self.users.len() as u64);
        for (id, user) in self.users.iter() {
            writer.varint(id.into());
            writer.signed(user.group.into());
            writer.bytes(&user.passkey);
            let bits = [user.can_download, user.is_donor, user.is_lifetime, user.is_protected];
            writer.bytes(&[bits_of(bits)]);
        }
        writer.varint(self.groups.len() as u64);
        for (id, group) in &self.groups {
            writer.signed((*id).into());
            writer.varint(group.slug.len() as u64);
            writer.bytes(group.slug.as_bytes());
            writer.varint(group.slots.map_or(0, |slots| u64::from(slots) + 1));
            writer.varint(group.factors.upload.into());
            writer.varint(group.factors.download.into());
            writer.bytes(&[u8::from(group.is_immune)]);
        }
        writer.varint(self.torrents.len() as u64);
        for (id, torrent) in self.torrents.iter() {
            writer.varint(id.into());
            writer.bytes(&torrent.info_hash.0);
            writer.bytes(&[torrent.moderation as u8]);
            writer.bytes(&[bits_of([torrent.is_deleted, torrent.is_neutral, false, false])]);
            writer.varint(torrent.factors.upload.into());
            writer.varint(torrent.factors.download.into());
            writer.varint(torrent.completed.load(Ordering::Relaxed).into());
        }
        writer.varint(self.tokens.len() as u64);
        for (user, torrent) in &self.tokens {
            writer.varint((*user).into());
            writer.varint((*torrent).into());
        }
        for set in [&self.personal, &self.featured] {
            writer.varint(set.len() as u64);
            set.iter().for_each(|id| writer.varint((*id).into()));
        }
        for list in [&self.refused, &self.allowed] {
            writer.varint(list.len() as u64);
            for prefix in list {
                writer.varint(prefix.len() as u64);
                writer.bytes(prefix.as_bytes());
            }
        }
        let crc = crc32c::crc32c(&writer.0);
        writer.bytes(&crc.to_le_bytes());
        writer.0
    }

    /// Reads what [`Model::encode`] returned. Returns `None` if it is damaged or of another form.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (covered, crc) = bytes.split_last_chunk()?;
        if crc32c::crc32c(covered) != u32::from_le_bytes(*crc) {
            return None;
        }
        let mut reader = Reader(covered);
        if reader.array()? != MAGIC {
            return None;
        }
        let mut model = Self::default();
        for _ in 0..reader.varint()? {
            let id = reader.number()?;
            let group = reader.signed()?.try_into().ok()?;
            let passkey = reader.array()?;
            let [can_download, is_donor, is_lifetime, is_protected] = bits_from(reader.array()?);
            let user = User { group, passkey, can_download, is_donor, is_lifetime, is_protected };
            model.users.insert(id, user);
        }
        for _ in 0..reader.varint()? {
            let id = reader.signed()?.try_into().ok()?;
            let slug = text(&mut reader)?;
            let slots = reader.number()?.checked_sub(1);
            let factors = factors(&mut reader)?;
            let [is_immune, ..] = bits_from(reader.array()?);
            model.groups.insert(id, Group { slug, slots, is_immune, factors });
        }
        for _ in 0..reader.varint()? {
            let id = reader.number()?;
            let info_hash = InfoHash(reader.array()?);
            let [moderation] = reader.array::<1>()?;
            let [is_deleted, is_neutral, ..] = bits_from(reader.array()?);
            let factors = factors(&mut reader)?;
            let completed = AtomicU32::new(reader.number()?);
            let moderation = Moderation::of(moderation.into())?;
            let torrent =
                Torrent { info_hash, moderation, is_deleted, is_neutral, factors, completed };
            model.put_torrent(id, torrent);
        }
        for _ in 0..reader.varint()? {
            model.tokens.insert((reader.number()?, reader.number()?));
        }
        for set in [&mut model.personal, &mut model.featured] {
            for _ in 0..reader.varint()? {
                set.insert(reader.number()?);
            }
        }
        for list in [&mut model.refused, &mut model.allowed] {
            for _ in 0..reader.varint()? {
                list.push(text(&mut reader)?);
            }
        }
        model.reserve();
        reader.0.is_empty().then_some(model)
    }
}

fn bits_of(bits: [bool; 4]) -> u8 {
    bits.iter().rev().fold(0, |bits, bit| bits << 1 | u8::from(*bit))
}

fn bits_from([bits]: [u8; 1]) -> [bool; 4] {
    [1, 2, 4, 8].map(|bit| bits & bit != 0)
}

fn text(reader: &mut Reader<'_>) -> Option<String> {
    let len = usize::try_from(reader.varint()?).ok()?;
    String::from_utf8(reader.take(len)?.to_vec()).ok()
}

fn factors(reader: &mut Reader<'_>) -> Option<Factors> {
    let upload = reader.number()?.try_into().ok()?;
    Some(Factors { upload, download: reader.number()?.try_into().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torrents::tests::torrent;

    const USER: User = User {
        group: 3,
        passkey: [b'k'; PASSKEY_LEN],
        can_download: true,
        is_donor: true,
        is_lifetime: false,
        is_protected: false,
    };

    #[test]
    fn donors_get_the_best_of_all() {
        let donor = DonorRule { upload_factor: Some(300), download_factor: None };
        let generosity =
            Generosity { everybody: Factors::PLAIN, donor, lifetime: DonorRule::default() };
        let group =
            Group { slug: String::new(), slots: None, is_immune: false, factors: Factors::PLAIN };
        let one = torrent(1, Moderation::Approved, false);
        let factors = generosity.factors(&USER, &group, &one, Gifts::default());
        assert_eq!(factors, Factors { upload: 300, download: 100 });
        let lifetime = User { is_lifetime: true, ..USER };
        assert_eq!(generosity.factors(&lifetime, &group, &one, Gifts::default()), Factors::PLAIN);
        let neutral = Torrent { is_neutral: true, ..one };
        let nothing = Factors { upload: 0, download: 0 };
        assert_eq!(generosity.factors(&USER, &group, &neutral, Gifts::default()), nothing);
    }

    #[test]
    fn models_round_trip_and_damage_is_noticed() {
        let mut model = Model::default();
        model.users.insert(7, USER);
        let factors = Factors { upload: 200, download: 0 };
        let slots = Some(0);
        let group = Group { slug: "user".to_owned(), slots, is_immune: true, factors };
        model.groups.insert(-1, group);
        model.put_torrent(5, torrent(1, Moderation::Postponed, true));
        model.tokens.insert((7, 5));
        model.personal.insert(7);
        model.featured.insert(5);
        assert!(Model::add_prefix(&mut model.refused, "-XX"));
        assert!(!Model::add_prefix(&mut model.refused, ""));
        let bytes = model.encode();
        let read = Model::decode(&bytes).unwrap();
        assert_eq!(read.users.get(7), Some(&USER));
        assert_eq!((read.users.len(), &read.groups), (1, &model.groups));
        assert_eq!((&read.tokens, &read.personal), (&model.tokens, &model.personal));
        assert_eq!((&read.featured, &read.refused), (&model.featured, &model.refused));
        let torrents = |model: &Model| format!("{:?}", model.torrents.iter().collect::<Vec<_>>());
        assert_eq!(torrents(&read), torrents(&model));
        assert_eq!(read.torrents.id_of(&InfoHash([1; 20])), Some(5));
        for len in 0..bytes.len() {
            assert!(Model::decode(&bytes[..len]).is_none());
        }
    }
}
