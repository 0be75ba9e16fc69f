//! lookup-svc without other programs: the API, and the geo data.

mod api;
mod asn_lists;
mod built_in_geo_script;
mod geo_built_in;
mod geo_hostile;
mod geo_layouts;
mod geo_location_cache;
mod geo_log;
mod geo_reload;
mod geo_tzdata;
mod geo_update;
mod geo_update_every;
mod timezones_script;
