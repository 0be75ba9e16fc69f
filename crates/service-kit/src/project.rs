//! Names that only the owner of the project knows. RELEASING.md lists where each is set.

/// Address of the repository, from `repository` in the workspace's `Cargo.toml`. Empty if the owner has not set it.
pub const REPOSITORY_URL: &str = env!("CARGO_PKG_REPOSITORY");
