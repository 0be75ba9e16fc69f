//! The page's static files, embedded in the binary.

use poem::{Route, get};
use service_kit::{StaticFile, named};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! file {
    ($path:literal, $content_type:expr) => {
        (concat!("/", $path), $content_type, include_str!(concat!("../page/", $path)))
    };
}

/// Path, content type and content of every file.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("../page/index.html")),
    file!("style.css", STYLE),
    file!("icon.svg", IMAGE),
    file!("app.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("format.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("sign_in.js", SCRIPT),
    file!("keys.js", SCRIPT),
    file!("card.js", SCRIPT),
    file!("dialogs.js", SCRIPT),
    file!("create.js", SCRIPT),
    file!("account.js", SCRIPT),
];

pub fn routes() -> Route {
    FILES.iter().fold(Route::new(), |routes, (path, content_type, content)| {
        let file = StaticFile::new(content_type, *content);
        routes.at(*path, get(named("page", move |request| file.respond(request))))
    })
}
