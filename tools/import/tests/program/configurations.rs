//! Configurations that were imported, and the pages about them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tidegate_import::Rival;

use crate::{Directory, run, run_program, stderr, stdout, tidegate};

/// The pages for the operators of other trackers.
const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/migrate");

/// Returns the names of the tracker's keys.
fn known_keys() -> BTreeSet<String> {
    let shown = stdout(&run_program(&tidegate(), &["config", "show"]));
    shown.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

#[test]
fn every_key_of_ours_is_in_the_table_of_keys() {
    let known = known_keys();
    for rival in Rival::ALL {
        let rows = rival.keys();
        assert!(rows.len() > 5 && rival.differences().len() > 2, "{}", rival.label());
        for row in rows {
            row.ours
                .iter()
                .for_each(|key| assert!(known.contains(*key), "{:?}: {key}", row.theirs));
            assert!(!row.ours.is_empty() || !row.remark.is_empty(), "{:?}: no reason", row.theirs);
        }
    }
}

#[test]
fn the_comparison_names_keys_that_exist() {
    let known = known_keys();
    let sections: BTreeSet<&str> = known.iter().filter_map(|key| key.split('.').next()).collect();
    let page = fs::read_to_string(Path::new(PAGES).join("../compare.md")).unwrap();
    let mut count = 0;
    for (promised, ours) in page.lines().filter_map(|line| line.split_once(" | **")) {
        let words = ours.split('`').skip(1).step_by(2);
        let keys = words.filter_map(|word| word.split(' ').next());
        let keys = keys.filter(|key| key.split_once('.').is_some_and(|it| sections.contains(it.0)));
        for key in keys {
            assert!(known.contains(key), "{promised}: {key}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

/// The outcome of an import.
struct Imported {
    is_done: bool,
    text: String,
    /// Keys that do not hold, notes and errors.
    messages: String,
}

/// Imports files without writing anything.
fn imported(rival: Rival, inputs: &[(&str, &str)], more: &[&str]) -> Imported {
    let directory = Directory::new().unwrap();
    let write = |(name, text): &(&str, &str)| directory.write(name, text).unwrap();
    let paths = inputs.iter().map(|input| write(input).display().to_string());
    let paths: Vec<String> = paths.collect();
    let mut arguments = vec![rival.label(), "--dry-run"];
    arguments.extend(more);
    arguments.extend(paths.iter().map(String::as_str));
    let output = run(&arguments);
    Imported { is_done: output.status.success(), text: stdout(&output), messages: stderr(&output) }
}

/// A configuration of each tracker with all keys that it knows. Lines that the result must have follow.
const FULL: &[(Rival, &str, &str, &[&str])] = &[
    (
        Rival::Opentracker,
        "opentracker.conf",
        "listen.tcp_udp 0.0.0.0\nlisten.tcp 192.0.2.1:80\nlisten.udp [2001:db8::1]:6970\nlisten.udp.workers 2\n\
         access.stats 192.0.2.0/24\naccess.stats_path s\naccess.proxy 10.0.0.1\ntracker.rootdir /x\n\
         tracker.user no-such-user\ntracker.redirect_url http://x/\nlivesync.cluster.listen 1.2.3.4:9\n\
         livesync.cluster.node_ip 1.2.3.4\nbatchsync.cluster.admin_ip 1.2.3.4\naccess.fifo_add a\naccess.fifo_delete b\n",
        &[
            "listen = [\"0.0.0.0:6969\", \"[2001:db8::1]:6970\"]",
            "listen = [\"0.0.0.0:6969\", \"192.0.2.1:80\"]",
            "workers = 2",
            "# user = \"no-such-user\"",
            "stats_path = \"/s\"",
        ],
    ),
    (
        Rival::Chihaya,
        "chihaya.yaml",
        "chihaya:\n  announce_interval: 20m\n  min_announce_interval: \"10m\"\n  metrics_addr: \"127.0.0.1:6880\"\n\
         \x20 http:\n    addr: \":6969\"\n    https_addr: \"0.0.0.0:6443\"\n    tls_cert_path: /no/cert\n    tls_key_path: /no/key\n\
         \x20   read_timeout: 5s\n    write_timeout: 6s\n    idle_timeout: 30s\n    enable_keepalive: yes\n    enable_request_timing: no\n\
         \x20   announce_routes: [\"/announce\", \"/announce.php\"]\n    scrape_routes: [\"/scrape\"]\n    allow_ip_spoofing: false\n\
         \x20   real_ip_header: x-real-ip\n    max_numwant: 100\n    default_numwant: 40\n    max_scrape_infohashes: 50\n\
         \x20 udp:\n    addr: \"0.0.0.0:6969\"\n    max_clock_skew: 10s\n    private_key: secret-secret\n    max_numwant: 90\n\
         \x20 storage:\n    name: redis\n    config:\n      peer_lifetime: 31m\n      gc_interval: 3m\n      redis_broker: redis://pw@x\n\
         \x20 prehooks:\n  - name: jwt\n    options:\n      issuer: i\n      audience: a\n      jwk_set_url: https://x.example/keys\n\
         \x20     jwk_set_update_interval: 5m\n  - name: client approval\n    options:\n      whitelist: [TR3000]\n\
         \x20 - name: interval variation\n    options:\n      modify_response_probability: 0.2\n      max_increase_delta: 60\n\
         \x20 - name: torrent approval\n    options:\n      blacklist:\n      - \"abababababababababababababababababababab\"\n",
        &[
            "interval_s = 1200",
            "interval_min_s = 600",
            "numwant_max = 100",
            "listen = [\"0.0.0.0:6969\", \"[::]:6969\"]",
            "listen = [\"127.0.0.1:6880\"]",
            "# listen = [\"0.0.0.0:6443\"]",
            "clients_allow = [\"-TR3000\", \"TR3000\"]",
            "mode = \"deny\"",
            "jwt = true",
            "jwt_issuer = \"i\"",
            "jwt_audience = \"a\"",
            "jwt_keys = \"https://x.example/keys\"",
        ],
    ),
    (
        Rival::Chihaya,
        "empty.yaml",
        "chihaya:\n  udp:\n    addr: 192.0.2.1:9\n  prehooks:\n",
        &["listen = [\"192.0.2.1:9\"]", "listen = []"],
    ),
    (
        Rival::Torrust,
        "tracker.toml",
        "[metadata]\nschema_version = \"3.0.0\"\n[logging]\ntrace_filter = \"warn\"\ntrace_style = \"json\"\n[core]\nlisted = true\n\
         private = true\ninactive_peer_cleanup_interval = 600\ntracker_usage_statistics = true\n[core.database]\ndriver = \"mysql\"\n\
         path = \"mysql://u:hidden-password@h/db\"\n[core.announce_policy]\ninterval = 120\ninterval_min = 100\nmax_peers_per_announce = 74\n\
         [core.tracker_policy]\nmax_peer_timeout = 900\npersistent_torrent_completed_stat = true\n[core.net]\non_reverse_proxy = true\n\
         external_ip = \"203.0.113.7\"\n[udp_tracker_server]\nip_bans_reset_interval_in_secs = 600\n\
         [[udp_trackers]]\nbind_address = \"0.0.0.0:6868\"\n[udp_trackers.cookie_lifetime]\nsecs = 100\nnanos = 0\n[[udp_trackers]]\n\
         bind_address = \"[::]:6969\"\nmax_connection_id_errors_per_ip = 10\npublic_url = \"udp://tracker.example:6969/announce\"\n[udp_trackers.network]\n\
         external_ip = \"2001:db8::7\"\n[[http_trackers]]\nbind_address = \"0.0.0.0:7070\"\n\
         [[http_trackers]]\nbind_address = \"0.0.0.0:7071\"\n[http_trackers.network]\non_reverse_proxy = true\nexternal_ip = \"203.0.113.8\"\n[[http_trackers]]\n\
         bind_address = \"0.0.0.0:7072\"\n[http_trackers.tsl_config]\nssl_cert_path = \"/no/c\"\nssl_key_path = \"/no/k\"\n[http_api]\n\
         bind_address = \"0.0.0.0:1212\"\n[http_api.tsl_config]\nssl_cert_path = \"/no/c\"\nssl_key_path = \"/no/k\"\n[http_api.access_tokens]\nadmin = \"hidden-token\"\n[health_check_api]\nbind_address = \"127.0.0.1:1313\"\n",
        &[
            "interval_s = 120",
            "listen = [\"0.0.0.0:6868\", \"0.0.0.0:6969\", \"[::]:6969\"]",
            "private = true",
            "mode = \"allow\"",
            "level = \"warn\"",
            "format = \"json\"",
            "[[listener]]",
            "http.trusted_proxies = [\"127.0.0.0/8\", \"::1\"]",
            "# listen = [\"0.0.0.0:1212\"]",
            "external_address = [\"203.0.113.7\", \"2001:db8::7\"]",
            "# external_address = [\"203.0.113.8\"]",
            "public_host = \"tracker.example\"",
            "# tls = true",
        ],
    ),
    (
        Rival::BittorrentTracker,
        "start.txt",
        "exec bittorrent-tracker -p 8001 --http-hostname 127.0.0.1 --interval=900000 \\\n  --trust-proxy --no-stats --quiet\n",
        &[
            "listen = [\"127.0.0.1:8001\"]",
            "listen = [\"0.0.0.0:8001\", \"[::]:8001\"]",
            "websocket = true",
            "interval_s = 900",
            "stats = \"off\"",
            "level = \"error\"",
        ],
    ),
    (
        Rival::BittorrentTracker,
        "options.json",
        "{\"udp\": false, \"http\": true, \"ws\": true, \"stats\": true, \"trustProxy\": false, \"interval\": 60000, \"peersCacheTtl\": 1200000}",
        &["listen = []", "listen = [\"0.0.0.0:8000\", \"[::]:8000\"]", "stats = \"page\""],
    ),
    (
        Rival::WtTracker,
        "config.json",
        "{\"servers\": [{\"server\": {\"port\": 8000, \"host\": \"0.0.0.0\"}, \"websockets\": {\"path\": \"/*\", \"maxPayloadLength\": 65536,\
         \"idleTimeout\": 240, \"compression\": 1, \"maxConnections\": 7}}, {\"server\": {\"port\": 8001}, \"websockets\": {\"path\": \"/ws\", \
         \"maxConnections\": 9}}, {\"server\": {\"port\": 8443, \"key_file_name\": \"k\", \"cert_file_name\": \"c\", \"passphrase\": \"hidden-phrase\"}}],\
         \"tracker\": {\"maxOffers\": 20, \"announceInterval\": 90}, \"websocketsAccess\": {\"allowOrigins\": [\"https://a.example\"], \
         \"denyOrigins\": [\"https://b.example\"], \"denyEmptyOrigin\": true}}",
        &[
            "listen = [\"0.0.0.0:8000\"]",
            "websocket_interval_s = 90",
            "websocket_origins_deny = [\"https://b.example\", \"\"]",
            "[[listener]]",
            "http.connections_max = 9",
            "# listen = [\"0.0.0.0:8443\"]",
        ],
    ),
    (
        Rival::Aquatic,
        "aquatic-udp.toml",
        "socket_workers = 3\nlog_level = \"warn\"\n[network]\nuse_ipv4 = true\nuse_ipv6 = false\naddress_ipv4 = \"0.0.0.0:3000\"\n\
         address_ipv6 = \"[::]:3000\"\nsocket_recv_buffer_size = 8000000\npoll_timeout_ms = 50\n[protocol]\nmax_scrape_torrents = 70\n\
         max_response_peers = 30\npeer_announce_interval = 900\n[statistics]\ninterval = 5\nrun_prometheus_endpoint = true\n\
         prometheus_endpoint_address = \"0.0.0.0:9000\"\n[cleaning]\nmax_connection_age = 120\nmax_peer_age = 1200\n[privileges]\n\
         drop_privileges = true\nchroot_path = \".\"\nuser = \"no-such-user\"\ngroup = \"no-such-group\"\n[access_list]\nmode = \"off\"\npath = \"./x\"\n[scrape_exports]\n\
         enable_scrape_exports = false\n",
        &[
            "listen = [\"0.0.0.0:3000\"]",
            "workers = 3",
            "interval_s = 900",
            "numwant_max = 30",
            "# user = \"no-such-user\"",
            "# listen = [\"0.0.0.0:9000\"]",
            "mode = \"open\"",
        ],
    ),
    (
        Rival::Aquatic,
        "aquatic-ws.toml",
        "socket_workers = 1\n[network]\naddress = \"0.0.0.0:3001\"\nenable_tls = true\ntls_certificate_path = \"/no/c\"\n\
         tls_private_key_path = \"/no/k\"\nwebsocket_max_message_size = 65536\n[protocol]\nmax_offers = 10\npeer_announce_interval = 110\n\
         [cleaning]\nmax_peer_age = 180\nmax_connection_idle = 180\n",
        &["websocket_interval_s = 110", "# listen = [\"0.0.0.0:3001\"]"],
    ),
    (
        Rival::Aquatic,
        "http.toml",
        "[network]\nkeep_alive = true\nruns_behind_reverse_proxy = true\n[protocol]\nmax_peers = 50\n",
        &[
            "listen = [\"0.0.0.0:3000\", \"[::]:3000\"]",
            "trusted_proxies = [\"127.0.0.0/8\", \"::1\"]",
        ],
    ),
    (
        Rival::Hefur,
        "hefurd.service",
        "[Service]\nExecStart=/usr/bin/hefurd -torrent-dir /tmp -scan-interval 5 --announce-interval=20 -scrape-interval 9 \\\n\
         \x20 -http-timeout 2500 -max-numwant 80 -max-peers 9 -reverse-proxy-from 192.0.2.9 -allow-proxy -ipv6 -udp-port 0 \\\n\
         \x20 -http-cert /no/c -http-key /no/k -bind-addr :: -log-level warning -log-file /x -uid no-such-user -gid no-such-group\nUser=hefur\n",
        &[
            "mode = \"allow\"",
            "allow_torrents = \"/tmp\"",
            "interval_s = 1200",
            "numwant_max = 80",
            "trusted_proxies = [\"192.0.2.9\"]",
            "level = \"warn\"",
            "listen = []",
            "listen = [\"0.0.0.0:6969\", \"[::]:6969\"]",
            "# listen = [\"0.0.0.0:6970\", \"[::]:6970\"]",
            "# user = \"no-such-user\"",
        ],
    ),
    (
        Rival::Hefur,
        "plain.txt",
        "hefurd --torrent-dir /tmp\n",
        &["listen = [\"0.0.0.0:6969\"]", "interval_s = 900", "allow_torrents = \"/tmp\""],
    ),
    (
        Rival::Unit3d,
        "unit3d-new.env",
        "RUST_LOG=\"unit3d_announce=info\"\nFLUSH_INTERVAL_MILLISECONDS=3000\nMAX_BATCHES_PER_FLUSH=1\nMAX_RECORDS_PER_BATCH=1000\n\
         ANNOUNCE_MIN=1800\nANNOUNCE_MIN_ENFORCED=1740\nANNOUNCE_MAX=3600\nLISTENING_UNIX_SOCKET=\"/run/x.sock\"\n\
         REQUIRE_PEER_CONNECTIVITY=false\nUSER_RECEIVE_SEED_LIST_RATE_LIMITS = \"60=10;900=25\"\n\
         USER_RECEIVE_LEECH_LIST_RATE_LIMITS = \"60=20\"\nDONOR_IMMUNITY_OVERRIDE=true\nLIFETIME_DONOR_UPLOAD_FACTOR_OVERRIDE=100\n",
        &[
            "interval_min_s = 1740",
            "enforce_interval_min = true",
            "interval_s = 2700",
            "seed_lists = \"60=10;900=25\"",
            "leech_lists = \"60=20\"",
        ],
    ),
    (
        Rival::Unit3d,
        "unit3d-probes.env",
        "DATABASE_URL=mysql://u:hidden-password@h/db?ssl-mode=VERIFY_CA&ssl-ca=/etc/ca.pem\nIS_CONNECTIVITY_CHECK_ENABLED=true\n\
         REQUIRE_PEER_CONNECTIVITY=true\nANNOUNCE_MIN=900\nANNOUNCE_MAX=600\n",
        &[
            "# connectable_from = [\"203.0.113.7\"]",
            "# connectable_required = true",
            "# database = \"mysql://u@h/db\"",
            "# database_ca = \"/etc/ca.pem\"",
            "interval_s = 900",
        ],
    ),
    (
        Rival::Unit3d,
        "unit3d.env",
        "DATABASE_URL=mysql://u:hidden-password@h/db\nFLUSH_INTERVAL=3\nNUMWANT_DEFAULT=25\nNUMWANT_MAX=50\nANNOUNCE_MIN=1800\n\
         ANNOUNCE_MAX=3600\nUPLOAD_FACTOR=100\nDOWNLOAD_FACTOR=100\nPEER_EXPIRY_INTERVAL=1800\nACTIVE_PEER_TTL=7200\n\
         INACTIVE_PEER_TTL=1814400\nMAX_PEERS_PER_TORRENT_PER_USER=3\nAPIKEY=hidden-key\nLISTENING_IP_ADDRESS=\"127.0.0.1\"\n\
         LISTENING_PORT=6969\nIS_CONNECTIVITY_CHECK_ENABLED=false\nCONNECTIVITY_CHECK_INTERVAL=1800\nIS_ANNOUNCE_LOGGING_ENABLED=false\n\
         REVERSE_PROXY_CLIENT_IP_HEADER_NAME=\"X-Real-IP\"\n",
        &[
            "listen = [\"127.0.0.1:6969\"]",
            "listen = []",
            "interval_s = 2700",
            "private = true",
            "mode = \"allow\"",
            "clients_per_torrent = 3",
            "# kind = \"unit3d\"",
            "# database = \"mysql://u@h/db\"",
        ],
    ),
    (
        Rival::Ocelot,
        "ocelot.conf",
        "# note\nlisten_port = 34000\nmax_connections = 128\nmax_middlemen = 20000\nmax_read_buffer = 4096\nconnection_timeout = 10\n\
         keepalive_timeout = 0\nannounce_interval = 1800\nmax_request_size = 4096\nnumwant_limit = 50\nrequest_log_size = 500\nmysql_host =\n\
         mysql_username = u\nmysql_password = hidden-password\nmysql_db = g\nreport_password = hidden-a\nsite_password = hidden-b\n\
         peers_timeout = 7200\ndel_reason_lifetime = 86400\nreap_peers_interval = 1800\nschedule_interval = 3\nreadonly = false\nsite_host = h\n",
        &[
            "listen = [\"0.0.0.0:34000\"]",
            "connections_max = 20000",
            "numwant_max = 50",
            "private = true",
        ],
    ),
];

/// The result of each is a valid configuration, has what was taken, names what was not, and reveals no secret.
#[test]
fn every_configuration_becomes_a_valid_one() {
    for (rival, name, text, lines) in FULL {
        let Imported { is_done, text, messages } =
            imported(*rival, &[(name, text)], &["--state", "/tmp"]);
        assert!(is_done && !messages.contains("not in effect"), "{name}: {messages}");
        for line in *lines {
            assert!(text.lines().any(|it| it == *line), "{name}: no {line} in\n{text}");
        }
        assert!(!text.contains("hidden") && !text.contains("secret-secret"), "{name}:\n{text}");
        assert!(!text.contains(&format!("no key of {}", rival.title())), "{name}:\n{text}");
        assert!(text.lines().all(|line| line.len() < 400), "{name}:\n{text}");
    }
}

#[test]
fn files_of_aquatic_become_one_configuration() {
    let udp = "[network]\nsocket_recv_buffer_size = 1\naddress_ipv4 = \"0.0.0.0:1\"\nuse_ipv6 = false\n[protocol]\npeer_announce_interval = 900\n";
    let http = "[network]\nkeep_alive = true\nuse_ipv6 = false\naddress_ipv4 = \"0.0.0.0:2\"\n[protocol]\npeer_announce_interval = 120\n";
    let inputs = [("udp.toml", udp), ("http.toml", http)];
    let Imported { text, .. } = imported(Rival::Aquatic, &inputs, &[]);
    assert!(
        text.contains("listen = [\"0.0.0.0:1\"]") && text.contains("listen = [\"0.0.0.0:2\"]"),
        "{text}"
    );
    // Comments are wrapped, depending on the names of files in them.
    let unwrapped = text.replace("\n# ", " ");
    assert!(text.contains("interval_s = 900") && unwrapped.contains("That is 120"), "{text}");
}

#[test]
fn keys_that_cannot_hold_are_comments_unless_they_protect() {
    let inputs = |access: &str| {
        format!(
            "{{\"servers\": [{{\"server\": {{\"port\": 1}}}}], \"websocketsAccess\": {{\"{access}\": [\"a.example\"]}}}}"
        )
    };
    let Imported { text, messages, .. } =
        imported(Rival::WtTracker, &[("c.json", &inputs("allowOrigins"))], &[]);
    assert!(messages.contains("not in effect: http.websocket_origins_allow: "), "{messages}");
    assert!(text.contains("# websocket_origins_allow"), "{text}");
    let denied = imported(Rival::WtTracker, &[("c.json", &inputs("denyOrigins"))], &[]);
    assert!(
        !denied.is_done && denied.messages.contains("cannot be used here"),
        "{}",
        denied.messages
    );
    assert!(denied.messages.contains("tidegate.toml:"), "{}", denied.messages);
}
