//! A chart: for each pair, and either direction of one TCP stream, a bar of four parts: client and server, user and system.

use super::measure::{TO_CLIENT, TO_SERVER};
use super::report::{Cost, Measurement, Report, Run};
use crate::svg::label;
use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 200.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 92.0;
const ROW: f64 = 44.0;
const BAR: f64 = 16.0;
/// The parts in order, with colours that colour-blind readers can tell apart (Okabe and Ito).
const PARTS: [(&str, &str); 4] = [
    ("client, user", "#56b4e9"),
    ("client, system", "#0072b2"),
    ("server, user", "#e69f00"),
    ("server, system", "#d55e00"),
];

/// The parts of one bar.
fn parts(measurement: &Measurement, pair: usize) -> [f64; 4] {
    let of = |end: fn(&Run) -> Option<&Cost>, part: fn(&Cost) -> f64| {
        measurement.median(pair, |run| end(run).map(part))
    };
    let both = |end: fn(&Run) -> Option<&Cost>| [of(end, |cost| cost.user), of(end, |cost| cost.system)];
    let ([client_user, client_system], [server_user, server_system]) = (both(Run::client), both(Run::server));
    [client_user, client_system, server_user, server_system]
}

/// The chart as SVG.
pub(super) fn draw(report: &Report) -> String {
    let shown: Vec<&Measurement> =
        [TO_SERVER, TO_CLIENT].into_iter().filter_map(|name| report.measurement(name)).collect();
    let bars = || (0..report.pairs.len()).flat_map(|pair| shown.iter().map(move |it| (pair, it)));
    let total = |(pair, it): (usize, &&Measurement)| parts(it, pair).iter().sum::<f64>();
    let most = bars().map(total).filter(|total| total.is_finite()).fold(0.1, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let height = TOP + ROW * report.pairs.len() as f64 + 16.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    svg += &label(
        16.0,
        26.0,
        "start",
        17,
        "CPU s/GB of one TCP stream: above to the server, below to the client",
    );
    svg += &label(16.0, 46.0, "start", 12, &report.machine.processor);
    for (place, (name, colour)) in PARTS.iter().enumerate() {
        let x = LEFT + 150.0 * place as f64;
        svg += &rectangle(x, 60.0, 12.0, 12.0, colour, name);
        svg += &label(x + 17.0, 71.0, "start", 13, name);
    }
    for (pair, names) in report.pairs.iter().enumerate() {
        let top = TOP + ROW * pair as f64;
        svg += &label(LEFT - 8.0, top + 21.0, "end", 13, &names.name);
        for (place, measurement) in shown.iter().enumerate() {
            let (y, mut x) = (top + (BAR + 2.0) * place as f64, LEFT);
            let parts = parts(measurement, pair);
            if parts.iter().any(|part| !part.is_finite()) {
                continue;
            }
            for (part, (name, colour)) in parts.iter().zip(PARTS) {
                svg += &rectangle(x, y, part * scale, BAR, colour, name);
                x += part * scale;
            }
            let speed = measurement.median(pair, |run| Some(run.value));
            let told = format!("{:.2}; {speed:.1} Gbit/s", parts.iter().sum::<f64>());
            svg += &label(x + 6.0, y + 12.0, "start", 11, &told);
        }
    }
    svg + "</svg>\n"
}

fn rectangle(x: f64, y: f64, width: f64, height: f64, colour: &str, title: &str) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"><title>{title}</title></rect>"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{report, run};
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_cost() {
        let svg = draw(&report(&[
            ("postern", run(8.0, [0.5, 0.5], [0.5, 0.5])),
            ("openvpn", run(1.0, [2.0, 1.0], [2.0, 1.0])),
        ]));
        // The background, four in the legend, four for each pair.
        assert_eq!(svg.matches("<rect").count(), 1 + 4 + 8);
        let widths: Vec<f64> = svg
            .lines()
            .filter_map(|line| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .skip(4)
            .collect();
        assert!((widths[4] / widths[0] - 4.0).abs() < 0.05, "{widths:?}");
        assert!(svg.contains(">6.00; 1.0 Gbit/s</text>") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
