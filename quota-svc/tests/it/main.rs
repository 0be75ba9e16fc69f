//! quota-svc without other services: its stores, its commands and its API document.

mod cli_commands;
mod contract;
mod document;
mod model;
