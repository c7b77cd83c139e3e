//! The folder of a cluster's operator, made by the commands of a tracker's program, and users of its NATS servers.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

use crate::output;

/// The operator of a cluster.
#[derive(Debug)]
pub struct Operator {
    program: PathBuf,
    folder: PathBuf,
}

/// The credentials of a user.
#[derive(Clone, Debug)]
pub struct User {
    jwt: String,
    seed: String,
}

/// The rights of a user that a test makes.
#[derive(Clone, Copy, Debug)]
pub struct UserRights<'a> {
    /// Patterns of subjects.
    pub publish: &'a [&'a str],
    /// Patterns of subjects.
    pub subscribe: &'a [&'a str],
    /// Seconds from now at which they end; below 0 = they have ended.
    pub ends_in_s: i64,
}

impl Operator {
    /// Makes the new folder of the cluster `name` with NATS servers at these hosts, as `tidegate cluster init` does.
    ///
    /// # Errors
    ///
    /// If `program`, a tracker, refuses: what it says.
    pub fn init(program: &Path, folder: &Path, name: &str, servers: &[String]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["cluster", "init", "--name", name, "--servers", &servers.join(","), "--dir"]);
        command.arg(folder);
        output(command)?;
        Ok(Self { program: program.to_owned(), folder: folder.to_owned() })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs `tidegate cluster COMMAND` with this folder, such as `set` or `invite 4`. Returns what it prints.
    ///
    /// # Errors
    ///
    /// If it fails: what it says.
    pub fn run(&self, command: &str) -> Result<String> {
        let mut program = Command::new(&self.program);
        program.arg("cluster").args(command.split(' ')).arg("--dir").arg(&self.folder);
        output(program)
    }

    /// Runs a command that also uses the API of a node, with this token.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn run_by_api(&self, command: &str, api: SocketAddr, token: &str) -> Result<String> {
        let mut program = Command::new(&self.program);
        program.arg("cluster").args(command.split(' ')).arg("--dir").arg(&self.folder);
        program.args(["--url", &format!("http://{api}")]).env("TIDEGATE_ADMIN_TOKEN", token);
        output(program)
    }

    /// Makes the join file of a node.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn invite(&self, node: u8) -> Result<PathBuf> {
        self.run(&format!("invite {node}"))?;
        Ok(self.folder.join(format!("node-{node}.join")))
    }

    /// Returns the configuration of a server, counted from 0, with its files where they are and its data in `data`.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn server_configuration(&self, server: usize, data: &Path) -> Result<String> {
        let files = self.folder.join(format!("server-{}", server + 1));
        let text = fs::read_to_string(files.join("nats-server.conf"))?;
        let path = |path: &Path| path.display().to_string();
        // An option names it.
        let is_kept = |line: &&str| !line.trim_start().starts_with("store_dir:");
        let lines: Vec<&str> = text.lines().filter(is_kept).collect();
        let text = (lines.join("\n") + "\n").replace("/etc/nats", &path(&files));
        let here = path(&files.canonicalize()?.join("data"));
        Ok(text.replace("/var/lib/nats", &path(data)).replace(&here, &path(data)))
    }

    /// Returns the user of a join file.
    ///
    /// # Errors
    ///
    /// If it has none.
    pub fn user_of(join: &Path) -> Result<User> {
        let text = fs::read_to_string(join)?;
        let part = |name| Ok::<_, anyhow::Error>(field(&text, name)?.to_owned());
        Ok(User { jwt: part("jwt")?, seed: part("seed")? })
    }

    /// Makes a reader of accounts, and returns its user.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn reader(&self, name: &str) -> Result<User> {
        self.run(&format!("reader {name}"))?;
        let text = fs::read_to_string(self.folder.join(format!("{name}.creds")))?;
        let mut parts = text.lines().filter(|line| !line.is_empty() && !line.starts_with('-'));
        let mut part =
            || Ok::<_, anyhow::Error>(parts.next().context("no credentials")?.to_owned());
        Ok(User { jwt: part()?, seed: part()? })
    }

    /// Returns a user that may do everything in the account of the cluster.
    ///
    /// # Errors
    ///
    /// As [`Self::user`].
    pub fn superuser(&self) -> Result<User> {
        self.user(UserRights { publish: &[">"], subscribe: &[">"], ends_in_s: 86_400 })
    }

    /// Makes a user with these rights, which no command of the program gives.
    ///
    /// # Errors
    ///
    /// If the folder has no keys.
    pub fn user(&self, rights: UserRights<'_>) -> Result<User> {
        let text = fs::read_to_string(self.folder.join("cluster.toml"))?;
        let account = KeyPair::from_seed(field(&text, "account_seed")?)?;
        let user = KeyPair::new_user();
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let claims = json!({
            "jti": user.public_key(),
            "iat": now,
            "exp": now.saturating_add_signed(rights.ends_in_s),
            "iss": account.public_key(),
            "name": "test",
            "sub": user.public_key(),
            "nats": {
                "type": "user",
                "version": 2,
                "pub": { "allow": rights.publish },
                "sub": { "allow": rights.subscribe },
                "subs": -1,
                "data": -1,
                "payload": -1,
            },
        });
        let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = URL_SAFE_NO_PAD.encode(account.sign(signed.as_bytes())?);
        Ok(User { jwt: format!("{signed}.{signature}"), seed: user.seed()? })
    }

    /// Replaces the user of a join file.
    ///
    /// # Errors
    ///
    /// If it has none.
    pub fn replace_user(join: &Path, user: &User) -> Result<()> {
        let old = Self::user_of(join)?;
        let text = fs::read_to_string(join)?;
        let text = text.replace(&old.jwt, &user.jwt).replace(&old.seed, &user.seed);
        Ok(fs::write(join, text)?)
    }
}

impl User {
    /// Returns what a client answers to the nonce of a server.
    pub(super) fn proof(&self, nonce: &str) -> Result<[(&'static str, Value); 2]> {
        let signature = KeyPair::from_seed(&self.seed)?.sign(nonce.as_bytes())?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok([("jwt", self.jwt.clone().into()), ("sig", signature.into())])
    }
}

/// Returns the text of a field in a file of lines such as `name = "text"`.
fn field<'a>(text: &'a str, name: &str) -> Result<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
    let value = value.and_then(|value| value.strip_suffix('"'));
    value.with_context(|| format!("no {name}"))
}
