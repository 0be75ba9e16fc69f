//! lookup-svc without other programs.

mod api;
