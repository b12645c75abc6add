//! Parts of the charts of all benchmarks.

/// A text at a place. `anchor`: `start`, `middle` or `end`; `size` in pixels.
pub(crate) fn label(x: f64, y: f64, anchor: &str, size: u32, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>\n")
}
