//! The table of the fields that have values, by how clients connect, in docs/fields.md is true.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::process::Stdio;

use quota_client::wire::Scope;
use serde_json::Value as Json;
use testkit::lookup::{Lookup, Stack};
use testkit::mmdb::sample;
use testkit::namespace::Namespace;
use testkit::tls::TlsFiles;
use testkit::tools::{project_root, require_tool};

/// The first cell of the table's header.
const TABLE: &str = "| fields | ";

/// The cell of fields that need the flag.
const TLS_CERT: &str = "`--tls-cert`";

/// A client that is not a trusted proxy. Its address is public, because others have no location.
const CLIENT: &str = "81.2.69.7";
/// The trusted proxy.
const PROXY: &str = "127.0.0.1";
/// The trusted load balancer, which sends its own address in the PROXY header.
const BALANCER: &str = "81.2.69.8";

const ADDRESS: &str = "X-Forwarded-For: 81.2.69.7";
/// An address in the built-in data.
const PUBLIC_ADDRESS: &str = "X-Forwarded-For: 8.8.8.8";
const FACTS: [&str; 5] = [
    "X-Edge-HTTP-Protocol: HTTP/2",
    "X-Edge-TLS-Version: TLSv1.3",
    "X-Edge-TLS-Cipher: TLS_AES_128_GCM_SHA256",
    "X-Edge-RTT: 12",
    "X-Edge-Colo: FRA",
];

/// A row: its fields, and whether only one of them has a value.
struct Row {
    fields: Vec<String>,
    one_of: bool,
    cells: Vec<String>,
}

/// The header cells and the rows of the table.
fn table() -> (Vec<String>, Vec<Row>) {
    let document = std::fs::read_to_string(project_root().join("docs/fields.md")).unwrap();
    let start = document.find(TABLE).unwrap();
    let mut lines = document[start..].lines().take_while(|line| line.starts_with('|')).map(cells);
    let header = lines.next().unwrap().split_off(1);
    let rows = lines.skip(1).map(|mut cells| {
        let first = cells.remove(0);
        let fields = first.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Row { fields, one_of: first.contains(" or "), cells }
    });
    (header, rows.collect())
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// How a client connects: a column of the table.
struct Mode<'a> {
    heading: &'a str,
    url: &'a str,
    /// The client's address on this machine.
    from: &'a str,
    /// Of curl.
    flags: &'a [&'a str],
    headers: &'a [&'a str],
}

impl Mode<'_> {
    async fn fetch(&self, key: &str) -> Json {
        let mut curl = tokio::process::Command::new("curl");
        curl.args(["-sS", "--max-time", "20", "--interface", self.from]).args(self.flags);
        curl.args(["-H", &format!("Authorization: Bearer {key}")]);
        curl.args(self.headers.iter().flat_map(|header| ["-H", header]));
        let output = curl.arg(format!("{}/api/v1/ip", self.url)).stdin(Stdio::null()).output().await.unwrap();
        let body = serde_json::from_slice::<Json>(&output.stdout);
        body.unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

/// Checks a column of the table with a response. `has_value` says whether a cell means that the fields have values.
fn check(column: usize, heading: &str, rows: &[Row], response: &Json, has_value: impl Fn(&str) -> bool) {
    let response = response.as_object().unwrap();
    let in_response: BTreeSet<&str> = response.keys().map(String::as_str).collect();
    let in_table: Vec<&str> = rows.iter().flat_map(|row| &row.fields).map(String::as_str).collect();
    assert_eq!(in_table.len(), 26, "each field is in the table once: {in_table:?}");
    assert_eq!(in_table.into_iter().collect::<BTreeSet<_>>(), in_response);
    for row in rows {
        let cell = &row.cells[column];
        let filled = row.fields.iter().filter(|field| !response[*field].is_null()).count();
        let want = match has_value(cell) {
            true if row.one_of => 1,
            true => row.fields.len(),
            false => 0,
        };
        assert_eq!(filled, want, "{heading}: {:?} should be {cell}: {response:?}", row.fields);
    }
}

#[tokio::test]
async fn as_root_table_of_fields_with_values_is_true() {
    if !require_tool("curl") {
        return;
    }
    let test = "lookup_fields::as_root_table_of_fields_with_values_is_true";
    let (addresses, hosts) = ([CLIENT, BALANCER], [("hosts", "127.0.0.1 localhost\n")]);
    let Some(namespace) = Namespace::enter(test, &addresses, &hosts) else {
        return;
    };
    let (headings, rows) = table();
    let known = ["yes", "null", "database", "`--colo`", TLS_CERT];
    for cell in rows.iter().flat_map(|row| &row.cells) {
        assert!(known.contains(&cell.as_str()), "unknown cell {cell:?}");
    }
    let (sample, files) = (sample::file(), TlsFiles::create(&namespace.folder));
    let [sample, ca, cert, key_file] =
        [sample.path(), &files.ca, &files.cert, &files.key].map(|path| path.to_str().unwrap());
    let equipped = ["--geo-db", sample, "--colo", "SJC"];
    let stack = Stack::start(&[], &equipped).await;
    let tls_flags = [&equipped[..], &["--tls-cert", cert, "--tls-key", key_file]].concat();
    let tls = Lookup::start_with_long_timeouts(stack.quota.url(), &tls_flags).await;
    let balanced_flags = [&tls_flags[..], &["--proxy-protocol", "--trusted-proxies", BALANCER]].concat();
    let balanced = Lookup::start_with_long_timeouts(stack.quota.url(), &balanced_flags).await;
    let balanced_url = format!("https://{}", balanced.addr());
    let balanced_plain_flags = [&equipped[..], &["--proxy-protocol", "--trusted-proxies", BALANCER]].concat();
    let balanced_plain = Lookup::start_with_long_timeouts(stack.quota.url(), &balanced_plain_flags).await;
    let bare = Lookup::start_with_long_timeouts(stack.quota.url(), &[]).await;
    let key = stack.key_with_scope(Scope::Full).await.secret;

    let (plain_url, tls_url) = (stack.lookup.url(), format!("https://{}", tls.addr()));
    let with_facts = [&[ADDRESS], &FACTS[..]].concat();
    let modes = [
        Mode { heading: "HTTP", url: &plain_url, from: CLIENT, flags: &[], headers: &[] },
        Mode {
            heading: "HTTPS (`--tls-cert`)",
            url: &tls_url,
            from: CLIENT,
            flags: &["--cacert", ca],
            headers: &[],
        },
        // curl sends the header before the TLS handshake.
        Mode {
            heading: "PROXY protocol (`--proxy-protocol`)",
            url: &balanced_url,
            from: BALANCER,
            flags: &["--haproxy-protocol", "--cacert", ca],
            headers: &[],
        },
        Mode {
            heading: "proxy that sends facts",
            url: &plain_url,
            from: PROXY,
            flags: &[],
            headers: &with_facts,
        },
        Mode {
            heading: "proxy that sends only the address",
            url: &plain_url,
            from: PROXY,
            flags: &[],
            headers: &[ADDRESS],
        },
    ];
    assert_eq!(headings, modes.each_ref().map(|mode| mode.heading));
    for (column, mode) in modes.iter().enumerate() {
        check(column, mode.heading, &rows, &mode.fetch(&key).await, |cell| cell != "null");
    }
    // curl sends version 1, which has no TLS facts.
    let mode = Mode { url: &balanced_plain.url(), flags: &["--haproxy-protocol"], ..modes[2] };
    check(2, mode.heading, &rows, &mode.fetch(&key).await, |cell| cell != "null" && cell != TLS_CERT);
    // Without databases and flags.
    let public_with_facts = [&[PUBLIC_ADDRESS], &FACTS[..]].concat();
    for (column, headers) in [(3, &public_with_facts[..]), (4, &[PUBLIC_ADDRESS])] {
        let mode = Mode { heading: "bare", url: &bare.url(), from: PROXY, flags: &[], headers };
        check(column, &headings[column], &rows, &mode.fetch(&key).await, |cell| cell == "yes");
    }
    namespace.finish();
}
