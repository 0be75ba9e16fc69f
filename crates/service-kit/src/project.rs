//! Settings of the repository's owner. RELEASING.md lists where each is set.

/// Address of the repository, from `repository` in the workspace's `Cargo.toml`. Empty if the owner has not set it.
pub const REPOSITORY_URL: &str = env!("CARGO_PKG_REPOSITORY");
