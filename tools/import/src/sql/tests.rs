use super::*;

/// Reads a dump, `piece` bytes at a time. Returns the rows as text.
fn rows_in(dump: &[u8], piece: usize) -> Result<Vec<String>, String> {
    struct Slowly<'a>(&'a [u8], usize);
    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let len = self.1.min(buffer.len()).min(self.0.len());
            let (now, later) = self.0.split_at(len);
            buffer[..len].copy_from_slice(now);
            self.0 = later;
            Ok(len)
        }
    }
    let mut rows = Vec::new();
    let is_wanted = |name: &str| ["users", "torrents", "keys"].contains(&name);
    let mut take = |row: &Row<'_>| {
        let value = |(name, field): (&String, &Field)| match field.is_null {
            true => format!("{name}=NULL"),
            false => format!("{name}={}", field.bytes.escape_ascii()),
        };
        let values: Vec<String> = row.columns.iter().zip(row.fields).map(value).collect();
        rows.push(format!("{}:{} {}", row.place.line, row.table, values.join(" ")));
        Ok(())
    };
    read(Slowly(dump, piece), &"d.sql".into(), &is_wanted, &mut take).map_err(|error| error.0)?;
    Ok(rows)
}

/// Reads a dump in pieces of all sizes, which must not matter.
fn rows(dump: &str) -> Result<Vec<String>, String> {
    let whole = rows_in(dump.as_bytes(), dump.len().max(1));
    for piece in [1, 2, 3, 7, 64] {
        assert_eq!(rows_in(dump.as_bytes(), piece), whole, "{piece}");
    }
    whole
}

#[test]
fn reads_a_dump_of_mysqldump() {
    let dump = "-- MySQL dump 10.13  Distrib 8.0.40\n/*!40101 SET NAMES utf8mb4 */;\n\
        DROP TABLE IF EXISTS `users`;\n/*!50503 SET character_set_client = utf8mb4 */;\n\
        CREATE TABLE `users` (\n  `id` int unsigned NOT NULL AUTO_INCREMENT,\n\
        `name` varchar(20) DEFAULT 'a,b;)' COMMENT 'it''s; \\' (',\n  `class` enum('0','1') NOT NULL,\n\
        `hash` binary(20),\n  PRIMARY KEY (`id`),\n  UNIQUE KEY `name` (`name`),\n  KEY `x` (`class`)\n\
        ) ENGINE=InnoDB COMMENT='; (';\n\
        LOCK TABLES `users` WRITE;\n/*!40000 ALTER TABLE `users` DISABLE KEYS */;\n\
        INSERT INTO `users` VALUES (1,'O\\'Brien, ''x''','1',_binary '\\0\\Z\\n\\\\\\''),\n\
        (2,NULL,'0',0xAbff);\nINSERT INTO `other` VALUES (1,'; INSERT INTO `users` VALUES (9)');\n\
        -- Dump completed on 2026-11-22\n";
    assert_eq!(
        rows(dump).unwrap(),
        [
            r"16:users id=1 name=O\'Brien, \'x\' class=1 hash=\x00\x1a\n\\\'",
            r"17:users id=2 name=NULL class=0 hash=\xab\xff"
        ]
    );
    let cut = dump.rsplit_once("-- Dump").unwrap().0;
    assert_eq!(
        rows(cut).unwrap_err(),
        "d.sql:19: expected `-- Dump completed` at the end, found none: the dump is not complete"
    );
}

#[test]
fn reads_a_dump_of_sqlite() {
    let dump = "PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n\
        CREATE TABLE IF NOT EXISTS \"keys\" (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, x DECIMAL(2,1), CHECK (id > 0));\n\
        INSERT INTO keys VALUES(1,'a\\',X'00Ff');\nINSERT INTO \"keys\" VALUES(-2,'b;''c',-1.5e3);\nCOMMIT;\n";
    assert_eq!(
        rows(dump).unwrap(),
        [r"4:keys id=1 key=a\\ x=\x00\xff", r"5:keys id=-2 key=b;\'c x=-1.5e3"]
    );
}

#[test]
fn reads_columns_of_the_insert_and_skips_other_statements() {
    let dump = "# note\nDELIMITER ;;\nCREATE TRIGGER x BEGIN INSERT INTO users VALUES (1); END ;;\nDELIMITER ;\n\
        CREATE VIEW users AS SELECT 1;\nINSERT IGNORE INTO db.`users` (`id`, flag, bit) VALUES (1, TRUE, b'1') , ( 2,false,b'0')\n\
        ON DUPLICATE KEY UPDATE id = VALUES(id);\nREPLACE INTO users (id) SELECT 1;\n\
        insert into users(id) value (3)";
    assert_eq!(
        rows(dump).unwrap(),
        ["6:users id=1 flag=1 bit=1", "6:users id=2 flag=0 bit=0", "9:users id=3"]
    );
}

#[test]
fn reports_what_it_cannot_read() {
    let create = "CREATE TABLE users (id int, name text);\n";
    for (dump, error) in [
        ("INSERT INTO users VALUES (1);", "d.sql:1: INSERT INTO users names no columns"),
        (
            "INSERT INTO users (id) VALUES (1, 2);",
            "d.sql:1: expected 1 values, as users has columns, found 2",
        ),
        (
            "INSERT INTO users (id) VALUES ((SELECT 1));",
            "d.sql:1: expected a value, found an expression",
        ),
        ("INSERT INTO users (id) VALUES (now());", "d.sql:1: expected a value, found now"),
        ("INSERT INTO users (id) VALUES (1 2);", "d.sql:1: expected `,` or `)`, found `2`"),
        ("INSERT INTO users (id) VALUES (0x1);", "d.sql:1: expected an even number of hex digits"),
        (
            "INSERT INTO users (id) VALUES (X'00g');",
            "d.sql:1: expected a hex digit or `'`, found `g`",
        ),
        (
            "INSERT INTO users (id) VALUES (1),\n('",
            "d.sql:2: expected the rest of a statement, found the end",
        ),
        (
            "INSERT INTO users (id) VALUES (",
            "d.sql:1: expected the rest of a statement, found the end",
        ),
        ("COPY public.users (id) FROM stdin;\n1\n\\.\n", "d.sql:1: expected INSERT, found COPY"),
        ("DELIMITER //\nx\n", "d.sql:3: expected `DELIMITER ;`, found the end"),
        ("CREATE TABLE users (id int", "d.sql:1: expected the rest of a statement, found the end"),
    ] {
        let found = rows(dump).unwrap_err();
        assert!(found.starts_with(error), "{dump}: {found}");
    }
    let found = rows(&format!("{create}INSERT INTO users VALUES (1);")).unwrap_err();
    assert_eq!(found, "d.sql:2: expected 2 values, as users has columns, found 1");
    assert_eq!(
        rows("COPY x (id) FROM stdin;\n1\tINSERT\n\\.\nINSERT INTO users (id) VALUES (1);")
            .unwrap()
            .len(),
        1
    );
    let wide = format!("CREATE TABLE users ({}id int);", "a int,".repeat(1000));
    assert!(rows(&wide).unwrap_err().ends_with("expected at most 1000 columns"));
}

#[test]
fn keeps_the_beginning_of_a_huge_value_only() {
    let len = 3_000_000;
    let dump = format!("INSERT INTO users (a, b) VALUES ('{}', 7);", "x".repeat(len));
    let mut seen = Vec::new();
    let mut take = |row: &Row<'_>| {
        seen.extend(row.fields.iter().map(|field| (field.bytes.len(), field.len)));
        Ok(())
    };
    read(dump.as_bytes(), &"d".into(), &|_| true, &mut take).unwrap();
    assert_eq!(seen, [(crate::row::VALUE_MAX, len as u64), (1, 1)]);
}

#[test]
fn an_error_of_the_taker_ends_the_reading() {
    let mut count = 0;
    let mut take = |row: &Row<'_>| {
        count += 1;
        Err(row.place.error("enough"))
    };
    let dump = "INSERT INTO users (a) VALUES (1),\n(2);";
    let error = read(dump.as_bytes(), &"d".into(), &|_| true, &mut take).unwrap_err();
    assert_eq!((error.0.as_str(), count), ("d:1: enough", 1));
}
