INSERT INTO `groups` (id, slug) VALUES (1, 'user');
INSERT INTO users (id, username, group_id, passkey) VALUES (3, 'bob', 1, 'bobs-passkey-bobs-passkey-bobs-1');
INSERT INTO torrents (id, name, info_hash, status)
  VALUES (7, 'a torrent', X'0123456789abcdef0123456789abcdef01234567', 1);
