//! The graphs of RFC 2544: throughput and latency over the frame size, and the frame loss over the load.

use super::report::{Report, SizeResult};
use crate::svg::label;
use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 56.0;
/// Colours that colour-blind readers can tell apart (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000", "#999999"];

/// A line through points.
pub(crate) struct Line {
    pub label: String,
    pub points: Vec<(f64, f64)>,
    pub is_dashed: bool,
}

/// A graph: its title, its axes, its lines.
pub(crate) struct Graph<'a> {
    pub title: String,
    pub subtitle: String,
    /// The label below, and the positions with names on it.
    pub x: (&'a str, Vec<(f64, String)>),
    pub lines: Vec<Line>,
    /// The least top of the scale.
    pub top: f64,
}

/// The graphs with their names.
pub fn draw(report: &Report) -> Vec<(&'static str, String)> {
    let sizes: Vec<&SizeResult> = report.sizes.iter().collect();
    let across = |value: &dyn Fn(&SizeResult) -> Option<f64>| -> Vec<(f64, f64)> {
        let of = |(place, size): (usize, &&SizeResult)| Some((place as f64, value(size)?));
        sizes.iter().enumerate().filter_map(of).filter(|point| point.1.is_finite()).collect()
    };
    let names: Vec<(f64, String)> =
        sizes.iter().enumerate().map(|(place, size)| (place as f64, size.name.clone())).collect();
    let kind = if report.plan.is_conformant { "" } else { "; not RFC 2544 conformant" };
    let subtitle = format!("{}, {}{kind}", report.machine.processor, report.wire);
    let line = |label: &str, points, is_dashed| Line { label: label.to_owned(), points, is_dashed };
    let rate = |place: usize| across(&|size| size.throughput.get(place)?.rate);
    let throughput = Graph {
        title: "Throughput, frames/s in each direction".to_owned(),
        subtitle: subtitle.clone(),
        x: ("bytes in a frame", names.clone()),
        lines: vec![
            line("NDR", rate(2), false),
            line("PDR 0.1%", rate(1), false),
            line("PDR 0.5%", rate(0), false),
            line("tester alone", across(&|size| Some(size.calibration.most)), true),
            line("line", across(&|size| size.line), true),
        ],
        top: 1.0,
    };
    let full = |size: &SizeResult| size.latency.first().cloned();
    let latency = Graph {
        title: "Latency at the throughput, us".to_owned(),
        subtitle: subtitle.clone(),
        x: ("bytes in a frame", names),
        lines: vec![
            line("typical", across(&|size| Some(full(size)?.typical)), false),
            line("worst 99.9%", across(&|size| Some(full(size)?.worst)), false),
            line("floor, median", across(&|size| Some(size.calibration.floor?.median)), true),
        ],
        top: 1.0,
    };
    let loss = Graph {
        title: "Frame loss, %".to_owned(),
        subtitle,
        x: (
            "% of the highest rate",
            (0..=10).map(|it| (f64::from(it) * 10.0, (it * 10).to_string())).collect(),
        ),
        lines: sizes
            .iter()
            .map(|size| Line {
                label: size.name.clone(),
                points: size.loss.iter().map(|it| (it.share * 100.0, it.loss * 100.0)).collect(),
                is_dashed: false,
            })
            .collect(),
        top: 100.0,
    };
    [("throughput", throughput), ("latency", latency), ("loss", loss)]
        .into_iter()
        .filter(|(_, graph)| graph.lines.iter().any(|line| !line.points.is_empty()))
        .map(|(name, graph)| (name, graph.svg()))
        .collect()
}

impl Graph<'_> {
    pub(crate) fn svg(&self) -> String {
        let values = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
        let (step, top) = scale(values.fold(self.top, f64::max));
        let (first, last) = (self.x.1.first().map_or(0.0, |it| it.0), self.x.1.last().map_or(1.0, |it| it.0));
        let span = (last - first).max(1.0);
        let x = |value: f64| LEFT + 30.0 + (WIDTH - LEFT - RIGHT - 60.0) * (value - first) / span;
        let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        svg += &label(LEFT, 24.0, "start", 17, &self.title);
        svg += &label(LEFT, 44.0, "start", 12, &self.subtitle);
        for grid in 0..=(top / step).round() as u32 {
            let (value, end) = (step * f64::from(grid), WIDTH - RIGHT);
            let at = y(value);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ccc\"/>"
            );
            svg += &label(LEFT - 8.0, at + 4.0, "end", 12, &format!("{}", (value * 1e4).round() / 1e4));
        }
        for (value, name) in &self.x.1 {
            svg += &label(x(*value), HEIGHT - BOTTOM + 20.0, "middle", 13, name);
        }
        svg += &label(f64::midpoint(LEFT, WIDTH), HEIGHT - 14.0, "middle", 13, self.x.0);
        let mut legend = LEFT;
        let shown = self.lines.iter().filter(|line| !line.points.is_empty());
        for (line, colour) in shown.zip(COLOURS.iter().cycle()) {
            svg += &line.svg(colour, &x, &y);
            let _ = writeln!(
                svg,
                "<rect x=\"{legend:.1}\" y=\"58\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"
            );
            svg += &label(legend + 17.0, 69.0, "start", 13, &line.label);
            legend += 36.0 + 7.4 * line.label.len() as f64;
        }
        svg + "</svg>\n"
    }
}

impl Line {
    fn svg(&self, colour: &str, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) -> String {
        let points: Vec<String> =
            self.points.iter().map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1))).collect();
        let dashes = if self.is_dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>",
            points.join(" ")
        );
        for (point, value) in points.iter().zip(&self.points) {
            let (cx, cy) = point.split_once(',').unwrap_or_default();
            let title = format!("{}: {:.2}", self.label, value.1);
            let _ = writeln!(
                svg,
                "<circle cx=\"{cx}\" cy=\"{cy}\" r=\"3\" fill=\"{colour}\"><title>{title}</title></circle>"
            );
        }
        svg
    }
}

/// The distance of the grid lines and the top of the scale: round numbers, at least the highest value.
fn scale(highest: f64) -> (f64, f64) {
    let least = highest / 6.0;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].map(|it| it * power).into_iter().find(|&step| step >= least);
    let step = step.unwrap_or(10.0 * power);
    (step, (highest / step).ceil() * step)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example;
    use super::*;

    #[test]
    fn points_are_as_high_as_their_values() {
        let graphs = draw(&example());
        assert_eq!(graphs.iter().map(|it| it.0).collect::<Vec<_>>(), ["throughput", "latency", "loss"]);
        let svg = &graphs[0].1;
        // Three throughputs and the tester's own at two sizes; there is no line speed.
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<circle").count()), (4, 8), "{svg}");
        let heights: Vec<f64> = svg
            .lines()
            .filter_map(|line| line.split("cy=\"").nth(1)?.split('"').next()?.parse().ok())
            .map(|y: f64| HEIGHT - BOTTOM - y)
            .collect();
        assert!((heights[0] / heights[1] - 2.0).abs() < 0.01, "1,000,000 and 500,000: {heights:?}");
        assert!(svg.contains("not RFC 2544 conformant") && svg.ends_with("</svg>\n"));
        let loss = &graphs[2].1;
        assert_eq!(loss.matches("<circle").count(), 8);
        assert!(loss.contains("<title>64: 50.00</title>"), "{loss}");
    }

    #[test]
    fn what_was_not_measured_has_no_graph() {
        let mut report = example();
        for size in &mut report.sizes {
            size.loss.clear();
            size.latency.clear();
        }
        assert_eq!(draw(&report).iter().map(|it| it.0).collect::<Vec<_>>(), ["throughput", "latency"]);
        report.sizes.clear();
        assert!(draw(&report).is_empty());
    }
}
