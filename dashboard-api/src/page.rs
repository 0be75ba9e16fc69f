//! The dashboard page: its files are embedded in the binary.
//!
//! The HTML file contains the style sheet, so that the first response shows something. It names all scripts, so that the
//! browser requests them at once and not one import after the other. Their URLs contain a hash of their content, so that
//! browsers can cache them forever; the HTML file itself is revalidated each time.

use data_encoding::HEXLOWER;
use http::header;
use poem::{Request, Route, get};
use service_kit::{ICON, StaticFile, THEME, csp_hash, named};
use sha2::{Digest, Sha256};

const INDEX: &str = include_str!("../page/index.html");
const STYLE: &str = include_str!("../page/style.css");

macro_rules! scripts {
    ($($name:literal),+ $(,)?) => { &[$(($name, include_str!(concat!("../page/", $name)))),+] };
}

/// Names and contents. `app.js` is the entry point.
const SCRIPTS: &[(&str, &str)] = scripts![
    "app.js",
    "api.js",
    "dom.js",
    "format.js",
    "chart.js",
    "sign_in.js",
    "keys.js",
    "list.js",
    "key.js",
    "examples.js",
    "dialogs.js",
    "create.js",
    "account.js",
    "contact.js",
    "admin.js",
    "admin_account.js",
];

/// The page at `/` and its assets. `docs_url` is the link for browsers without JavaScript. The page reads the age of the geo
/// data from the lookup API at `lookup_url`.
pub fn routes(docs_url: &str, lookup_url: &str) -> Route {
    let version = version();
    let index = index(&version, docs_url, lookup_url);
    let routes = Route::new().at("/", get(named("page", move |request| index.respond(request))));
    let scripts = SCRIPTS.iter().map(|(name, content)| ("text/javascript; charset=utf-8", *name, *content));
    scripts.chain([("image/svg+xml", "icon.svg", ICON)]).fold(
        routes,
        |routes, (content_type, name, content)| {
            let file = StaticFile::new(content_type, content);
            let current = file.clone().header(header::CACHE_CONTROL, "public, max-age=31536000, immutable");
            // Response to requests for any other version. During a rollout, the HTML file can come from a pod of another
            // version: that page most likely works with this asset, but it must not be cached under that version.
            let other = file.header(header::CACHE_CONTROL, "no-store");
            let version = version.clone();
            let respond = move |request: &Request| match request.raw_path_param("version") {
                Some(requested) if requested == version => current.respond(request),
                _ => other.respond(request),
            };
            routes.at(format!("/assets/:version/{name}"), get(named("page", respond)))
        },
    )
}

/// A hash of all assets. One for all, because scripts import each other by relative URLs.
fn version() -> String {
    let assets = SCRIPTS.iter().chain(&[("icon.svg", ICON)]);
    let hash = assets.fold(Sha256::new(), |hash, (name, content)| {
        hash.chain_update(name).chain_update([0]).chain_update(content).chain_update([0])
    });
    HEXLOWER.encode(&hash.finalize()[..8])
}

fn index(version: &str, docs_url: &str, lookup_url: &str) -> StaticFile {
    let assets = format!("/assets/{version}");
    let preloads = SCRIPTS[1..]
        .iter()
        .map(|(name, _)| format!(r#"<link rel="modulepreload" href="{assets}/{name}" />"#));
    let style = [THEME, STYLE].concat();
    let html = INDEX
        .replace("{{style}}", &style)
        .replace("{{preloads}}", &preloads.collect::<Vec<_>>().join("\n    "))
        .replace("{{assets}}", &assets)
        .replace("{{docs}}", &docs_url.replace('&', "&amp;").replace('"', "&quot;"));
    StaticFile::new("text/html; charset=utf-8", html)
        .header(header::CACHE_CONTROL, "no-cache")
        .header(header::CONTENT_SECURITY_POLICY, &policy(&csp_hash(&style), lookup_url))
}

/// Content security policy of the page: it may use its own scripts and images, the inline style sheet with this hash, its
/// own API, and the age of the geo data.
fn policy(style_hash: &str, lookup_url: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src {style_hash}; img-src 'self'; connect-src 'self' {lookup_url}/geo-data.json; \
         manifest-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    )
}
