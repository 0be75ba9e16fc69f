//! Builder for a redis-server with non-default settings.

use std::fmt::Write as _;
use std::path::Path;

use super::Redis;
use crate::tls::TlsFiles;

/// User and password of the harness on servers with ACL users. The user has all permissions.
const ADMINISTRATOR: (&str, &str) = ("harness", "harness");

/// Builder of a [`Redis`].
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    program: Option<String>,
    password: Option<String>,
    users: Vec<String>,
    tls: bool,
    sentinel: bool,
    lines: Vec<String>,
}

impl RedisOptions {
    /// Starts the server.
    ///
    /// # Panics
    /// If it does not start. The message includes its log.
    pub async fn start(self) -> Redis {
        Redis::launch(self).await
    }

    /// Keeps data across restarts: an append-only file, synced every second.
    #[must_use]
    pub fn appendonly(self) -> Self {
        self.directive("appendonly yes").directive("appendfsync everysec")
    }

    /// Requires this password from all clients (`requirepass`).
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.directive(&format!("requirepass {password}"))
    }

    /// Disables anonymous access and adds the ACL user `name` with `rules` such as `~ipl:* +@all`.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str, rules: &str) -> Self {
        self.users.push(format!("user {name} on >{password} {rules}"));
        self
    }

    /// Uses TLS on the TCP port, with a certificate signed by a new authority ([`Redis::ca_file`]).
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Limits the server's memory (such as `8mb`). Beyond the limit, writes fail with OOM.
    #[must_use]
    pub fn maxmemory(self, size: &str) -> Self {
        self.directive(&format!("maxmemory {size}")).directive("maxmemory-policy noeviction")
    }

    /// Adds a line to the configuration file, such as `replicaof 127.0.0.1 7000`.
    #[must_use]
    pub fn directive(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Runs another compatible server, such as `valkey-server`, instead of `redis-server`.
    #[must_use]
    pub fn server(mut self, program: &str) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Runs the server as a Sentinel, which has other commands and no data.
    pub(crate) fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    pub(super) fn program(&self) -> &str {
        self.program.as_deref().unwrap_or("redis-server")
    }

    /// Arguments after the configuration file.
    pub(super) fn mode(&self) -> &'static [&'static str] {
        if self.sentinel { &["--sentinel"] } else { &[] }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls
    }

    /// User and password with all permissions, if the server requires authentication.
    pub(super) fn administrator(&self) -> Option<(String, String)> {
        if !self.users.is_empty() {
            return Some((ADMINISTRATOR.0.to_owned(), ADMINISTRATOR.1.to_owned()));
        }
        self.password.clone().map(|password| ("default".to_owned(), password))
    }

    /// Returns the content of the configuration file. With TLS, also writes the certificates.
    pub(super) fn config(&self, dir: &Path, port: u16) -> String {
        let mut config = String::from("bind 127.0.0.1\nprotected-mode no\ndaemonize no\n");
        let dir_path = dir.display();
        let _ = write!(
            config,
            "dir {dir_path}\nlogfile {dir_path}/redis.log\nunixsocket {dir_path}/redis.sock\n"
        );
        config.push_str(&self.port_lines(dir, port));
        if !self.sentinel {
            // Snapshots, so that quota-svc doesn't warn, but only after a day: nothing but the append-only file survives a
            // restart. Replicas sync without delay.
            config.push_str("save 86400 1\nrepl-diskless-sync-delay 0\n");
        }
        for line in self.user_lines().iter().chain(&self.lines) {
            let _ = writeln!(config, "{line}");
        }
        config
    }

    fn port_lines(&self, dir: &Path, port: u16) -> String {
        if !self.tls {
            return format!("port {port}\n");
        }
        let TlsFiles { ca, cert, key } = TlsFiles::create(dir);
        let (ca, cert, key) = (ca.display(), cert.display(), key.display());
        format!(
            "port 0\ntls-port {port}\ntls-auth-clients no\n\
             tls-ca-cert-file {ca}\ntls-cert-file {cert}\ntls-key-file {key}\n"
        )
    }

    fn user_lines(&self) -> Vec<String> {
        if self.users.is_empty() {
            return Vec::new();
        }
        let (name, password) = ADMINISTRATOR;
        let mut lines =
            vec!["user default off".to_owned(), format!("user {name} on >{password} ~* &* +@all")];
        lines.extend(self.users.iter().cloned());
        lines
    }
}
