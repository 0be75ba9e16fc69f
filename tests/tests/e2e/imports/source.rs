//! Reads the paths that a source file uses. Textual: macros and re-exports are not expanded.

use std::fs;
use std::path::Path;

use testkit::tools::project_root;

/// A source file of a crate, without its unit tests and comments.
pub struct SourceFile {
    /// Path relative to the project.
    pub path: String,
    /// The file's module: `["store", "redis"]` for `src/store/redis.rs`; empty for `lib.rs` and `main.rs`.
    pub module: Vec<String>,
    text: String,
}

/// All source files in `path` (relative to the project), and the file `path.rs` beside the directory.
pub fn files_below(path: &str) -> Vec<SourceFile> {
    let mut files = Vec::new();
    let root = project_root();
    collect(&root.join(path), &mut files);
    collect(&root.join(format!("{path}.rs")), &mut files);
    files
        .into_iter()
        .filter(|path| !path.ends_with("tests.rs") && !path.contains("/tests/"))
        .map(|path| read(&root, path))
        .collect()
}

fn collect(path: &Path, files: &mut Vec<String>) {
    if let Ok(entries) = fs::read_dir(path) {
        for entry in entries {
            collect(&entry.unwrap().path(), files);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") && path.is_file() {
        files.push(path.strip_prefix(project_root()).unwrap().to_str().unwrap().to_owned());
    }
}

fn read(root: &Path, path: String) -> SourceFile {
    let text = fs::read_to_string(root.join(&path)).unwrap();
    let text = text.split("\n#[cfg(test)]\nmod tests").next().unwrap();
    let code = text.lines().map(|line| line.split("//").next().unwrap());
    let text = code.collect::<Vec<_>>().join("\n");
    let (_, inner) = path.split_once("src/").unwrap();
    let inner = inner.strip_suffix(".rs").unwrap();
    let module =
        inner.split('/').filter(|name| !matches!(*name, "lib" | "main" | "mod")).map(str::to_owned).collect();
    SourceFile { path, module, text }
}

impl SourceFile {
    /// Whether the code has a path that begins with the crate `name`.
    pub fn uses_crate(&self, name: &str) -> bool {
        paths_after(&self.text, name).next().is_some()
    }

    /// All paths within the crate that the code uses, from the crate's root: `crate::`, `self::` and `super::` paths.
    pub fn local_paths(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for (keyword, base) in [("crate", &[][..]), ("self", &self.module)] {
            for rest in paths_after(&self.text, keyword) {
                expand(rest, base.to_vec(), &mut found);
            }
        }
        let parent = &self.module[..self.module.len().saturating_sub(1)];
        for rest in paths_after(&self.text, "super") {
            // `super::super::` continues with another `super`, which `expand` resolves.
            expand(rest, parent.to_vec(), &mut found);
        }
        found
    }
}

/// The text after each `name::` that begins a path.
fn paths_after<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let start = format!("{name}::");
    let positions: Vec<_> = text.match_indices(&start).map(|(index, _)| index).collect();
    let length = start.len();
    positions.into_iter().filter_map(move |index| {
        let before = text[..index].chars().next_back();
        let inside = before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
        (!inside).then(|| &text[index + length..])
    })
}

/// Adds the paths of a use tree: `a::b`, or `{a, b::{c, d}}`. Returns the rest of the text.
fn expand<'t>(text: &'t str, mut base: Vec<String>, found: &mut Vec<Vec<String>>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(rest, base.clone(), found).trim_start();
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match name {
        "super" => drop(base.pop()),
        "self" | "" => {}
        name => base.push(name.to_owned()),
    }
    match rest.strip_prefix("::") {
        Some(more) if !more.starts_with('<') => expand(more, base, found),
        _ => {
            found.push(base);
            // Skips `as Name`.
            let end = rest.find([',', '}', ';', '\n']).unwrap_or(rest.len());
            if rest.starts_with(" as ") { &rest[end..] } else { rest }
        }
    }
}
