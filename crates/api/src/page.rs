//! The page for people: three files in the binary, which read the API. It needs no other host.
//!
//! Its policy (W3C, Content Security Policy Level 3) permits only its own script and style, and requests to this API,
//! so a text of a peer that reached it as markup could do nothing.

use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Path, content type and contents of each file.
pub(super) const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../page/page.js")),
];

/// Whether `path` is a file of the page, which has nothing of the router in it.
pub(super) fn is_file(path: &str) -> bool {
    FILES.iter().any(|(file, ..)| *file == path)
}

/// The reply with a file.
pub(super) fn reply(content_type: &'static str, content: &'static str) -> Response {
    // A browser asks again after an upgrade.
    let headers: [(HeaderName, HeaderValue); 5] = [
        (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_would_block_nothing_that_the_page_contains() {
        let [(.., html), (.., css), (.., js)] = FILES;
        // Inline scripts, styles and handlers, and other hosts.
        for text in ["<script>", "<style", " style=", " onclick=", "http:", "https:"] {
            assert!(!html.contains(text) && !css.contains(text), "{text}");
        }
        assert!(!js.contains("https:"));
        // Markup from a string could be a peer's.
        for text in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!js.contains(text), "{text}");
        }
        for (path, ..) in &FILES[1..] {
            assert!(html.contains(path.trim_start_matches('/')), "{path}");
        }
    }
}
