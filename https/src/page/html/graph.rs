//! Throughput as a graph: drawn here, so that it is there without script, with the same numbers as a table and for the script.

use super::Part;
use super::words::{bits, duration, per_second};
use gateway::facts::model::{History, InterfaceHistory};
use maud::{Markup, html};
use serde_json::json;
use std::fmt::Write;

/// Interfaces with a graph.
const MOST: usize = 16;
/// The size of a graph, in its own units.
const WIDTH: f32 = 600.0;
const HEIGHT: f32 = 120.0;
/// Points that are one row of the table.
const ROW: usize = 30;

/// A graph for each interface.
pub(super) fn graphs(history: &History) -> Part {
    let graphs = history.interfaces.iter().take(MOST).map(|interface| graph(history, interface)).collect();
    Part::around("graphs", graphs, |all| html! { div #graphs { (all) } })
}

fn graph(history: &History, of: &InterfaceHistory) -> Part {
    let id = super::id("g", &of.interface);
    let (received, sent) = (&of.received_bits_per_second, &of.sent_bits_per_second);
    // An empty graph has a scale, too.
    let most = received.iter().chain(sent).flatten().copied().fold(1000.0, f32::max);
    let span = duration(history.step * history.at.len() as u64);
    let data = json!({ "at": history.at, "received": received, "sent": sent });
    let label = format!("Throughput of {} in the last {span}", of.interface);
    let figure = html! {
        figure.graph id=(id) data-graph=(data) data-label=(label) {
            figcaption {
                strong { (of.interface) } ": receiving (solid line) and sending (dashed line), at most " (bits(Some(f64::from(most))))
                ", in the last " (span)
            }
            div.plot {
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(label) {
                    @for (class, values) in [("received", received), ("sent", sent)] {
                        path class=(class) d=(line(values, most)) fill="none" vector-effect="non-scaling-stroke" {}
                    }
                }
            }
            details { summary { "The same as a table" } (table(history, of)) }
        }
    };
    Part::new(id, figure)
}

/// The path of a line, with gaps where there are no values.
fn line(values: &[Option<f32>], most: f32) -> String {
    let step = WIDTH / values.len().saturating_sub(1).max(1) as f32;
    let (mut path, mut pen) = (String::new(), 'M');
    for (number, value) in values.iter().enumerate() {
        let Some(value) = value else {
            pen = 'M';
            continue;
        };
        let (x, y) = (step * number as f32, HEIGHT - 2.0 - (HEIGHT - 4.0) * value / most);
        let _ = write!(path, "{pen}{x:.1} {y:.1}");
        pen = 'L';
    }
    path
}

/// Means of minutes, the newest first.
fn table(history: &History, of: &InterfaceHistory) -> Markup {
    let now = history.at.last().copied().unwrap_or_default();
    let mean = |values: &[Option<f32>]| {
        let known: Vec<f64> = values.iter().flatten().map(|it| f64::from(*it)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let rows = (0..history.at.len().div_ceil(ROW)).map(|number| {
        let to = history.at.len() - ROW * number;
        let range = to.saturating_sub(ROW)..to;
        (now.saturating_sub(history.at[range.start]), range)
    });
    html! {
        table {
            thead { tr { @for head in ["Since", "Receiving", "Sending", "Dropped"] { th scope="col" { (head) } } } }
            tbody {
                @for (age, range) in rows {
                    tr {
                        th scope="row" { (duration(age)) " ago" }
                        td.number { (bits(mean(&of.received_bits_per_second[range.clone()]))) }
                        td.number { (bits(mean(&of.sent_bits_per_second[range.clone()]))) }
                        td.number { (per_second(mean(&of.dropped_per_second[range]))) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(points: usize) -> History {
        let values: Vec<Option<f32>> =
            (0..points).map(|it| (it != 1).then_some(1000.0 * it as f32)).collect();
        History {
            step: 2,
            at: (0..points as u64).map(|it| 2 * it).collect(),
            interfaces: vec![InterfaceHistory {
                interface: "wg0\"><i>".to_owned(),
                received_bits_per_second: values.clone(),
                sent_bits_per_second: values.clone(),
                dropped_per_second: values,
            }],
        }
    }

    #[test]
    fn a_line_has_gaps_and_stays_in_its_frame() {
        assert_eq!(line(&[Some(0.0), None, Some(1.0), Some(0.5)], 1.0), "M0.0 118.0M400.0 2.0L600.0 60.0");
        assert_eq!((line(&[], 1.0), line(&[Some(1.0)], 1.0)), (String::new(), "M0.0 2.0".to_owned()));
    }

    #[test]
    fn a_graph_has_its_numbers_as_a_table_and_for_the_script() {
        let text = graphs(&history(61)).html;
        assert!(text.contains("data-graph=\"{&quot;at&quot;:[0,2,4"), "{text}");
        assert!(text.contains("60.0 kbit/s") && text.contains("in the last 2 min"), "{text}");
        assert_eq!(text.matches("<th scope=\"row\">").count(), 3, "{text}");
        assert!(!text.contains("<i>") && text.contains("wg0&quot;&gt;&lt;i&gt;"), "{text}");
        for points in [0, 1, 29, 30, 31] {
            let shown = graphs(&History { interfaces: history(points).interfaces, ..history(points) });
            assert_eq!(shown.rows.len(), 1, "{points}");
        }
    }

    #[test]
    fn graphs_are_bounded() {
        let mut many = history(3);
        many.interfaces = (0..50)
            .map(|number| InterfaceHistory { interface: format!("wg{number}"), ..many.interfaces[0].clone() })
            .collect();
        assert_eq!(graphs(&many).rows.len(), MOST);
    }
}
