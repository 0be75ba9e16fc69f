//! What all pages have in common: the theme, the logo, and a header with links to all of them.

/// The style sheet with the theme of all pages, which precedes their own.
pub const THEME: &str =
    concat!(include_str!("theme/light.css"), include_str!("theme/dark.css"), include_str!("theme/rules.css"));
/// The theme without its dark colors.
pub(crate) const LIGHT_THEME: &str =
    concat!(include_str!("theme/light.css"), include_str!("theme/rules.css"));
/// The logo, as SVG.
pub const ICON: &str = include_str!("theme/icon.svg");

/// The logo as a URL, for an attribute in double quotes.
pub fn icon_url() -> String {
    escape(&format!("data:image/svg+xml,{}", ICON.trim().replace('#', "%23")))
}

/// The URLs of the pages.
#[derive(Clone, Copy, Debug)]
pub struct PageLinks<'a> {
    /// The home page of the API.
    pub home: &'a str,
    /// The documentation of the API.
    pub docs: &'a str,
    /// Swagger UI.
    pub explorer: &'a str,
    /// The dashboard.
    pub dashboard: &'a str,
}

impl PageLinks<'_> {
    /// The header as HTML. `current` is the name of the page's own link.
    pub fn header(&self, current: &str) -> String {
        let links = [
            ("Home", self.home),
            ("Docs", self.docs),
            ("API explorer", self.explorer),
            ("Dashboard", self.dashboard),
        ];
        let links = links.map(|(name, url)| {
            let mark = if name == current { " aria-current=\"page\"" } else { "" };
            format!("<a href=\"{}\"{mark}>{name}</a>", escape(url))
        });
        format!(
            "<header class=\"top\"><a class=\"brand\" href=\"{}\">{}IP Lookup</a>\
             <nav aria-label=\"Pages\">{}</nav></header>",
            escape(self.home),
            ICON.trim().replacen("<svg ", "<svg aria-hidden=\"true\" ", 1),
            links.concat()
        )
    }
}

/// Escapes text for HTML elements and attribute values.
pub fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
        escaped
    })
}
