//! Images in a Docker engine of their own, and the scripts of a release.

mod images;
mod release;
