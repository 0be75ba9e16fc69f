//! How the page's files are served: URLs, caching, compression.

use std::collections::BTreeSet;

use reqwest::header::HeaderMap;
use testkit::http;

use crate::harness::Harness;

async fn get(url: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, String) {
    let request = http::client().get(url);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, String::from_utf8_lossy(&response.bytes().await.unwrap()).into_owned())
}

/// The texts between `before` and `after`.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Vec<&'t str> {
    text.split(before).skip(1).filter_map(|rest| rest.split(after).next()).collect()
}

/// Paths of the assets that the HTML file names.
fn assets(html: &str) -> BTreeSet<String> {
    let links = [between(html, "href=\"", "\""), between(html, "src=\"", "\"")].concat();
    links.into_iter().filter(|link| link.starts_with("/assets/")).map(str::to_owned).collect()
}

#[tokio::test]
async fn page_is_revalidated_and_its_assets_are_cached_forever() {
    let harness = Harness::start().await;
    let (status, headers, html) = get(&harness.url, &[]).await;
    assert_eq!(status, 200);
    assert_eq!(headers["cache-control"], "no-cache");
    let etag = headers["etag"].to_str().unwrap();
    assert_eq!(get(&harness.url, &[("If-None-Match", etag)]).await.0, 304);
    assert!(!html.contains("{{"), "every placeholder is replaced: {html}");
    let compressed = get(&harness.url, &[("Accept-Encoding", "gzip")]).await;
    assert_eq!(compressed.1["content-encoding"], "gzip");
    let length: usize = compressed.1["content-length"].to_str().unwrap().parse().unwrap();
    assert!(length < 14_000, "{length} bytes don't fit in the first round trip of a connection");

    let assets = assets(&html);
    assert_eq!(assets.len(), 17, "{assets:?}");
    for asset in assets {
        let url = format!("{}{asset}", harness.url);
        let (status, headers, _) = get(&url, &[("Accept-Encoding", "gzip")]).await;
        assert_eq!(status, 200, "{asset}");
        assert_eq!(headers["cache-control"], "public, max-age=31536000, immutable", "{asset}");
        assert_eq!(headers["content-encoding"], "gzip", "{asset}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{asset}");
    }
}

#[tokio::test]
async fn every_imported_script_is_preloaded() {
    let harness = Harness::start().await;
    let (_, _, html) = get(&harness.url, &[]).await;
    let preloaded: BTreeSet<_> =
        between(&html, "rel=\"modulepreload\" href=\"", "\"").into_iter().map(str::to_owned).collect();
    let entry = between(&html, "<script type=\"module\" src=\"", "\"")[0].to_owned();
    let directory = entry.rsplit_once('/').unwrap().0.to_owned();
    let (mut imported, mut queue) = (BTreeSet::new(), vec![entry]);
    while let Some(script) = queue.pop() {
        let (status, _, text) = get(&format!("{}{script}", harness.url), &[]).await;
        assert_eq!(status, 200, "{script}");
        let imports =
            between(&text, " from \"./", "\"").into_iter().map(|name| format!("{directory}/{name}"));
        queue.extend(imports.filter(|import| imported.insert(import.clone())));
    }
    assert_eq!(preloaded, imported);
}

#[tokio::test]
async fn asset_of_another_version_is_served_but_not_cached() {
    let harness = Harness::start().await;
    let (_, _, html) = get(&harness.url, &[]).await;
    let script = assets(&html).into_iter().find(|asset| asset.ends_with("/app.js")).unwrap();
    let (_, _, current) = get(&format!("{}{script}", harness.url), &[]).await;
    let (status, headers, other) = get(&format!("{}/assets/0123456789abcdef/app.js", harness.url), &[]).await;
    assert_eq!((status, other), (200, current));
    assert_eq!(headers["cache-control"], "no-store");
    assert_eq!(get(&format!("{}/assets/0123456789abcdef/other.js", harness.url), &[]).await.0, 404);
}
