//! The geo data and `geo-update`. Tests of the command's output and processes start the program lookup-svc.

mod asn_lists;
mod built_in;
mod built_in_script;
mod hostile;
mod layouts;
mod location_cache;
mod log;
mod reload;
mod timezones_script;
mod tzdata;
mod update;
mod update_every;
