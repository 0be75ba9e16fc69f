//! What the two benchmarks and the soak are made of. The benchmarks compare variants inside one run: the ratios are
//! the message.

pub mod gate;
pub mod lookup;
pub mod seed;
pub mod soak;
pub mod stats;
pub mod store;
pub mod table;
pub mod usage;
