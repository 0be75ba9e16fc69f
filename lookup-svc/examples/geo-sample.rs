//! Writes the built-in sample database: `cargo run -p lookup-svc --example geo-sample`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/sample.mmdb");
    std::fs::write(path, testkit::mmdb::sample::build())
}
