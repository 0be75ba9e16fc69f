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

const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

const INDEX: &str = include_str!("../page/index.html");
const STYLE: &str = include_str!("../page/style.css");

macro_rules! asset {
    ($name:literal, $content_type:expr) => {
        Asset { name: $name, content_type: $content_type, content: include_str!(concat!("../page/", $name)) }
    };
}

/// Every file except the HTML file and the style sheet.
const ASSETS: &[Asset] = &[
    Asset { name: "icon.svg", content_type: IMAGE, content: ICON },
    asset!("app.js", SCRIPT),
    asset!("api.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("format.js", SCRIPT),
    asset!("chart.js", SCRIPT),
    asset!("sign_in.js", SCRIPT),
    asset!("keys.js", SCRIPT),
    asset!("list.js", SCRIPT),
    asset!("key.js", SCRIPT),
    asset!("examples.js", SCRIPT),
    asset!("dialogs.js", SCRIPT),
    asset!("create.js", SCRIPT),
    asset!("account.js", SCRIPT),
    asset!("contact.js", SCRIPT),
    asset!("admin.js", SCRIPT),
    asset!("admin_account.js", SCRIPT),
];

struct Asset {
    name: &'static str,
    content_type: &'static str,
    content: &'static str,
}

/// The page at `/` and its assets. `docs_url` is the link for browsers without JavaScript. The page reads the age of the geo
/// data from the lookup API at `lookup_url`.
pub fn routes(docs_url: &str, lookup_url: &str) -> Route {
    let version = version();
    let index = index(&version, docs_url, lookup_url);
    let routes = Route::new().at("/", get(named("page", move |request| index.respond(request))));
    ASSETS.iter().fold(routes, |routes, asset| {
        let file = StaticFile::new(asset.content_type, asset.content);
        let current = file.clone().header(header::CACHE_CONTROL, "public, max-age=31536000, immutable");
        // Response to requests for any other version. During a rollout, the HTML file can come from a pod of another
        // version: that page most likely works with this asset, but it must not be cached under that version.
        let other = file.header(header::CACHE_CONTROL, "no-store");
        let version = version.clone();
        let respond = move |request: &Request| match request.raw_path_param("version") {
            Some(requested) if requested == version => current.respond(request),
            _ => other.respond(request),
        };
        routes.at(format!("/assets/:version/{}", asset.name), get(named("page", respond)))
    })
}

/// A hash of all assets. One for all, because scripts import each other by relative URLs.
fn version() -> String {
    let hash = ASSETS.iter().fold(Sha256::new(), |hash, asset| {
        hash.chain_update(asset.name).chain_update([0]).chain_update(asset.content).chain_update([0])
    });
    HEXLOWER.encode(&hash.finalize()[..8])
}

fn index(version: &str, docs_url: &str, lookup_url: &str) -> StaticFile {
    let assets = format!("/assets/{version}");
    let imported = ASSETS.iter().filter(|asset| asset.content_type == SCRIPT && asset.name != "app.js");
    let preloads =
        imported.map(|asset| format!(r#"<link rel="modulepreload" href="{assets}/{}" />"#, asset.name));
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
