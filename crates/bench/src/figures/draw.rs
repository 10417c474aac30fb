//! The drawing of a figure: lines or points over categories, with a legend at the side.

use super::field::{Group, contenders};
use super::figure::{Figure, Line};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::io;
use std::ops::Range;

const WIDTH: u32 = 1200;
const HEIGHT: u32 = 560;
const LEGEND: i32 = 290;
const FONT: &str = "sans-serif";

const OURS: RGBColor = RGBColor(214, 39, 40);
const PALE: RGBColor = RGBColor(240, 150, 150);
const LIMITS: [RGBColor; 2] = [RGBColor(0, 0, 0), RGBColor(120, 120, 120)];
const BASELINES: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(23, 190, 207),
    RGBColor(188, 189, 34),
    RGBColor(0, 80, 120),
    RGBColor(227, 119, 194),
];
const PEERS: [RGBColor; 6] = [
    RGBColor(255, 127, 14),
    RGBColor(240, 180, 60),
    RGBColor(120, 60, 0),
    RGBColor(100, 140, 200),
    RGBColor(90, 170, 90),
    RGBColor(200, 100, 120),
];

/// The style of one contender.
#[derive(Clone, Copy)]
struct Style {
    color: RGBColor,
    group: Group,
}

impl Style {
    /// Returns the style of each line. A contender has one style in all figures.
    fn of(lines: &[Line]) -> Vec<Style> {
        let contenders = contenders();
        let style = |line: &Line| {
            let mut group = contenders.iter().filter(|contender| contender.group == line.group);
            let n = group.position(|contender| contender.kind.name == line.name);
            let color = match line.group {
                // A second line of this crate, as for clean openings, is paler.
                Group::Ours => n.map_or(PALE, |_| OURS),
                Group::Limit => LIMITS[n.unwrap_or(0) % LIMITS.len()],
                Group::Baseline => BASELINES[n.unwrap_or(0) % BASELINES.len()],
                Group::Peer => PEERS[n.unwrap_or(0) % PEERS.len()],
            };
            Style { color, group: line.group }
        };
        lines.iter().map(style).collect()
    }

    fn stroke(self) -> ShapeStyle {
        self.color.stroke_width(if self.group == Group::Ours { 4 } else { 2 })
    }

    fn is_dashed(self) -> bool {
        matches!(self.group, Group::Limit | Group::Peer)
    }
}

/// Returns the drawing as SVG.
///
/// # Errors
/// Returns the error of the drawing library.
pub fn svg(figure: &Figure) -> io::Result<String> {
    let mut drawing = String::new();
    draw(figure, &mut drawing).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(drawing)
}

type Any = Box<dyn std::error::Error>;

fn draw(figure: &Figure, to: &mut String) -> Result<(), Any> {
    let root = SVGBackend::with_string(to, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let title = (FONT, 20).into_font().color(&BLACK);
    root.draw(&Text::new(figure.title.clone(), (16, 12), title))?;
    let small = (FONT, 12).into_font().color(&RGBColor(90, 90, 90));
    let mut y = 38;
    for line in wrapped(&format!("After {}", figure.repeats), 165) {
        root.draw(&Text::new(line, (16, y), small.clone()))?;
        y += 15;
    }
    let (below, _) = (root.margin(y as u32 + 6, 0, 0, 0), y);
    let (plot, legend) = below.split_horizontally(WIDTH as i32 - LEGEND);
    let styles = Style::of(&figure.lines);
    plot_lines(figure, &styles, &plot)?;
    plot_legend(figure, &styles, &legend)?;
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn plot_lines(figure: &Figure, styles: &[Style], area: &Area<'_>) -> Result<(), Any> {
    let marks: Vec<f64> = (0..figure.ticks.len()).map(|n| n as f64).collect();
    let across = Axis { low: -0.5, high: marks.len() as f64 - 0.5, marks, is_log: false };
    let (low, high) = bounds(&figure.lines);
    let up = Axis { low, high, marks: marks_between(low, high), is_log: true };
    let mut chart = ChartBuilder::on(area)
        .margin_right(8)
        .margin_left(8)
        .x_label_area_size(52)
        .y_label_area_size(78)
        .build_cartesian_2d(across, up)?;
    let direction = if figure.more_is_better { "more is better" } else { "less is better" };
    let name_of = |at: &f64| figure.ticks.get(at.round() as usize).cloned().unwrap_or_default();
    chart
        .configure_mesh()
        .x_desc(figure.along)
        .y_desc(format!("{} ({direction})", figure.up))
        .axis_desc_style((FONT, 15))
        .label_style((FONT, 13))
        .x_label_formatter(&name_of)
        .y_label_formatter(&|value| number(*value))
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    // Draws this crate's line last, on top of the others.
    let mut order: Vec<usize> = (0..styles.len()).collect();
    order.sort_by_key(|&n| (styles[n].group == Group::Ours, n));
    for n in order {
        let (line, style) = (&figure.lines[n], styles[n]);
        let aside = if figure.joined || styles.len() < 2 {
            0.0
        } else {
            // Points without lines are drawn next to each other.
            (n as f64 / (styles.len() - 1) as f64 - 0.5) * 0.7
        };
        let points: Vec<(f64, f64)> = (0..)
            .zip(&line.values)
            .filter_map(|(at, value)| Some((f64::from(at) + aside, (*value)?)))
            .collect();
        if figure.joined {
            if style.is_dashed() {
                let dashed = DashedLineSeries::new(points.iter().copied(), 7, 4, style.stroke());
                chart.draw_series(dashed)?;
            } else {
                chart.draw_series(LineSeries::new(points.iter().copied(), style.stroke()))?;
            }
        }
        let filled = style.color.filled();
        match style.group {
            Group::Ours => {
                chart.draw_series(points.iter().map(|&at| Circle::new(at, 6, filled)))?
            }
            Group::Limit => {
                chart.draw_series(points.iter().map(|&at| Cross::new(at, 5, style.stroke())))?
            }
            Group::Baseline => {
                chart.draw_series(points.iter().map(|&at| Circle::new(at, 4, filled)))?
            }
            Group::Peer => {
                chart.draw_series(points.iter().map(|&at| TriangleMarker::new(at, 5, filled)))?
            }
        };
    }
    Ok(())
}

fn plot_legend(figure: &Figure, styles: &[Style], area: &Area<'_>) -> Result<(), Any> {
    let middle = Pos::new(HPos::Left, VPos::Center);
    let font = (FONT, 13).into_font().color(&BLACK).pos(middle);
    let head = (FONT, 12).into_font().color(&RGBColor(90, 90, 90)).pos(middle);
    let mut y = 14;
    let mut group = None;
    for (line, style) in figure.lines.iter().zip(styles) {
        if group != Some(style.group) {
            group = Some(style.group);
            let text = match style.group {
                Group::Ours => "this crate",
                Group::Limit => "the hardware (not atomic)",
                Group::Baseline => "the papers' ways, written here",
                Group::Peer => "what users have today",
            };
            area.draw(&Text::new(text, (8, y), head.clone()))?;
            y += 19;
        }
        let ends = [(10, y), (38, y)];
        if style.is_dashed() {
            area.draw(&DashedPathElement::new(ends, 7, 4, style.stroke()))?;
        } else {
            area.draw(&PathElement::new(ends, style.stroke()))?;
        }
        let (at, filled) = ((24, y), style.color.filled());
        match style.group {
            Group::Ours => area.draw(&Circle::new(at, 6, filled))?,
            Group::Limit => area.draw(&Cross::new(at, 5, style.stroke()))?,
            Group::Baseline => area.draw(&Circle::new(at, 4, filled))?,
            Group::Peer => area.draw(&TriangleMarker::new(at, 5, filled))?,
        }
        area.draw(&Text::new(line.name.clone(), (46, y), font.clone()))?;
        y += 20;
    }
    Ok(())
}

/// An axis with our own choice of marks.
struct Axis {
    low: f64,
    high: f64,
    marks: Vec<f64>,
    is_log: bool,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let at = |value: f64| if self.is_log { value.ln() } else { value };
        let share = (at(*value) - at(self.low)) / (at(self.high) - at(self.low));
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// Returns the bounds of the axis: those of the values, with a little room.
fn bounds(lines: &[Line]) -> (f64, f64) {
    let values = || lines.iter().flat_map(|line| line.values.iter().flatten().copied());
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(0.0, f64::max);
    if !low.is_finite() || low <= 0.0 || high <= 0.0 {
        return (1.0, 10.0);
    }
    // At least an octave, so that the axis has some marks.
    let room = (1.6 / (high / low)).sqrt().max(1.12);
    (low / room, high * room)
}

/// Returns 1, 2 and 5 of each decade. Returns only the decades if there are many.
fn marks_between(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let steps: &[f64] = match decades {
        ..0.5 => &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
        ..3.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let first = low.log10().floor() as i32;
    (first..=high.log10().ceil() as i32)
        .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
        .filter(|mark| (low..=high).contains(mark))
        .collect()
}

/// Formats a number with at most three digits, and with a unit prefix for thousands.
pub fn number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        1e9.. => (value / 1e9, " G"),
        1e6.. => (value / 1e6, " M"),
        1e4.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if digits == 0 { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
    format!("{text}{unit}")
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        if lines.last().is_some_and(|line| line.len() + word.len() >= width) {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.0123, 1.0, 1.5, 12.34, 812.3, 3402.0, 20_000.0, 1_230_000.0].map(number);
        assert_eq!(shown, ["0.012", "1", "1.5", "12.3", "812", "3402", "20 k", "1.23 M"]);
    }

    #[test]
    fn there_are_marks_on_every_axis() {
        for (low, high) in [(1.0, 1.6), (70.0, 130.0), (3.0, 4000.0), (1.0, 1e7)] {
            assert!((2..=12).contains(&marks_between(low, high).len()), "{low} to {high}");
        }
    }
}
