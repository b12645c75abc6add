//! A chart for each subject: bars by size, a colour for each engine, pale where instructions were left out. SVG.

use super::report::{Report, Row};
use crate::Outcome;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 56.0;
/// Told apart by people who see no red or green, too (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9"];

/// Writes a chart of each subject and direction into `directory`; returns their names.
pub fn write(report: &Report, directory: &Path) -> Outcome<Vec<PathBuf>> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let mut written = Vec::new();
    for group in report.groups() {
        let name = group[0].title().replace(' ', "-");
        let path = directory.join(format!("{name}.svg"));
        std::fs::write(&path, draw(report, group)).map_err(|error| failed(&path, error))?;
        written.push(path);
    }
    Ok(written)
}

/// A bar of a group of bars: its label, its colour, whether it is pale, and its speeds by size.
struct Series<'a> {
    label: String,
    colour: &'a str,
    pale: bool,
    speed: Box<dyn Fn(usize) -> Option<f64> + 'a>,
}

fn series(group: &[Row]) -> Vec<Series<'_>> {
    let mut all = Vec::new();
    for (row, colour) in group.iter().zip(COLOURS.iter().cycle()) {
        let speed = |size| Some(row.speed_at(size)).filter(|speed| speed.is_finite());
        all.push(Series { label: row.engine.clone(), colour, pale: false, speed: Box::new(speed) });
        if row.sizes.iter().any(|it| it.without.is_some()) {
            let label = format!("{} without", row.engine);
            all.push(Series { label, colour, pale: true, speed: Box::new(|size| row.speed_without(size)) });
        }
    }
    all
}

fn draw(report: &Report, group: &[Row]) -> String {
    let series = series(group);
    let sizes: Vec<usize> = group[0].sizes.iter().map(|it| it.size).collect();
    let speeds = series.iter().flat_map(|it| sizes.iter().filter_map(|&size| (it.speed)(size)));
    // Logarithms: from 16 bytes to 16 KiB, and from no instructions to all, speeds differ a thousandfold.
    let (lowest, highest) = decades(&speeds.collect::<Vec<_>>());
    let y = |speed: f64| {
        let part = (speed.log10() - f64::from(lowest)) / f64::from(highest - lowest);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part.max(0.0)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    svg += &label(
        LEFT,
        24.0,
        "start",
        17,
        &format!("{}, MB/s (each line is ten times the one below)", group[0].title()),
    );
    svg += &label(LEFT, 44.0, "start", 12, &subtitle(report));
    let mut x = LEFT;
    for it in &series {
        svg += &bar(x, 58.0, 12.0, 12.0, it);
        svg += &label(x + 17.0, 69.0, "start", 13, &it.label);
        x += 34.0 + 7.4 * it.label.len() as f64;
    }
    for decade in lowest..=highest {
        let (end, at) = (WIDTH - RIGHT, y(10f64.powi(decade)));
        let _ =
            writeln!(svg, "<line x1=\"{LEFT}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ccc\"/>");
        svg += &label(LEFT - 8.0, at + 4.0, "end", 12, &format!("{}", 10f64.powi(decade - 6)));
    }
    let room = (WIDTH - LEFT - RIGHT) / sizes.len() as f64;
    let width = room * 0.84 / series.len() as f64;
    for (place, &size) in sizes.iter().enumerate() {
        let start = LEFT + room * (place as f64 + 0.08);
        for (index, it) in series.iter().enumerate() {
            let Some(speed) = (it.speed)(size) else { continue };
            svg += &bar(start + width * index as f64, y(speed), width * 0.92, HEIGHT - BOTTOM - y(speed), it);
        }
        svg += &label(start + room * 0.42, HEIGHT - BOTTOM + 20.0, "middle", 13, &size.to_string());
    }
    svg + &label(f64::midpoint(LEFT, WIDTH), HEIGHT - 14.0, "middle", 13, "bytes in a packet") + "</svg>\n"
}

fn subtitle(report: &Report) -> String {
    let threads = if report.threads == 1 { String::new() } else { format!(", {} threads", report.threads) };
    let without = report.without.as_ref().map(|it| format!("; pale: without {}", it.hidden.join(", ")));
    format!("{}{threads}{}", report.machine.processor, without.unwrap_or_default())
}

fn label(x: f64, y: f64, anchor: &str, size: u32, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>\n")
}

fn bar(x: f64, y: f64, width: f64, height: f64, series: &Series<'_>) -> String {
    let opacity = if series.pale { 0.35 } else { 1.0 };
    format!(
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\" \
         fill-opacity=\"{opacity}\"><title>{}</title></rect>\n",
        series.colour, series.label
    )
}

/// The powers of ten around all speeds.
fn decades(speeds: &[f64]) -> (i32, i32) {
    let lowest = speeds.iter().copied().fold(f64::MAX, f64::min).max(1.0).log10().floor() as i32;
    let highest = speeds.iter().copied().fold(1.0, f64::max).log10().ceil() as i32;
    (lowest.min(highest - 1), highest)
}

#[cfg(test)]
mod tests {
    use super::super::report::example;
    use super::*;

    #[test]
    fn a_chart_has_a_bar_for_each_speed() {
        let report = example();
        let svg = draw(&report, report.groups()[0]);
        // The ground, three in the legend; at two sizes two engines, and one of them without.
        assert_eq!(svg.matches("<rect").count(), 1 + 3 + 6);
        assert!(svg.contains(">aws-lc without</text>") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn the_scale_is_whole_powers_of_ten() {
        assert_eq!(decades(&[4e8, 9.1e9]), (8, 10));
        assert_eq!(decades(&[1e9]), (8, 9));
        assert_eq!(decades(&[2e9, 3e9]), (9, 10));
        assert_eq!(decades(&[]), (-1, 0), "never a scale without height");
    }
}
