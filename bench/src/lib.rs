//! Three benchmarks and a soak test. The benchmarks compare variants within one run, because only ratios are meaningful:
//! absolute figures differ from machine to machine.

pub mod admin;
pub mod gate;
pub mod lookup;
pub mod seed;
pub mod soak;
pub mod stats;
pub mod store;
pub mod table;
pub mod usage;
