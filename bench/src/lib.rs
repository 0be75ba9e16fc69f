//! What the two benchmarks are made of. Both compare variants inside one run: the ratios are the message.

pub mod gate;
pub mod lookup;
pub mod seed;
pub mod stats;
pub mod store;
pub mod table;
pub mod usage;
