//! quota-svc without other services: its stores and its commands.

mod cli_commands;
mod contract;
mod model;
