INSERT INTO users_main (ID, Enabled, Visible, can_leech, torrent_pass, IP)
  VALUES (3, '1', '1', 1, 'bobs-passkey-bobs-passkey-bobs-1', '203.0.113.9');
INSERT INTO torrents (ID, info_hash) VALUES (7, X'0123456789abcdef0123456789abcdef01234567');
