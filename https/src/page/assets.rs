//! The files of the page, which are the same for all, also before they log in.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// Path, kind and content.
const FILES: [(&str, &str, &str); 5] = [
    ("/style.css", "text/css; charset=utf-8", include_str!("style.css")),
    ("/live.js", "text/javascript; charset=utf-8", include_str!("live.js")),
    ("/uplot.js", "text/javascript; charset=utf-8", include_str!("../../vendor/uplot/uPlot.iife.min.js")),
    ("/uplot.css", "text/css; charset=utf-8", include_str!("../../vendor/uplot/uPlot.min.css")),
    ("/icon.svg", "image/svg+xml", include_str!("icon.svg")),
];

/// The file at a path.
pub(super) fn at(path: &str) -> Option<Response> {
    let (_, kind, content) = FILES.iter().find(|(at, ..)| *at == path)?;
    Some(([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], *content).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::hash::sha256;

    #[test]
    fn vendored_files_are_those_that_their_readme_names() {
        let named = include_str!("../../vendor/uplot/README.md");
        for path in ["/uplot.js", "/uplot.css"] {
            let (.., content) = FILES.iter().find(|(at, ..)| *at == path).expect("there");
            let sum = base16ct::lower::encode_string(&sha256(&[content.as_bytes()]));
            assert!(named.contains(&sum), "{path}: {sum}");
        }
    }

    #[test]
    fn no_file_names_another_machine() {
        let local = |content: &str| {
            let links = content.match_indices("//").filter(|(at, _)| content[..*at].ends_with(':'));
            let links: Vec<&str> =
                links.map(|(at, _)| content[at..].split(['"', ' ', ')']).next().unwrap_or("")).collect();
            links.into_iter().all(|link| {
                link.starts_with("//www.w3.org/") || link.starts_with("//github.com/leeoniya/uPlot")
            })
        };
        for (path, _, content) in FILES {
            assert!(local(content), "{path}");
        }
    }
}
