//! Horizontal bars, written out by hand. Knows only labels and numbers.

use std::fmt::Write;

pub struct Bar {
    pub label: String,
    pub value: f64,
    pub ours: bool,
}

/// The bars of one workload; `base` is 1 by definition.
pub struct Group {
    pub title: String,
    pub base: String,
    pub bars: Vec<Bar>,
    pub goal: Option<f64>,
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 50.0;
const LINE: f64 = 18.0;
/// Bars longer than this are cut, and say their value.
const MOST: f64 = 2.0;

/// The whole picture; its colours can be read on light and on dark paper.
pub fn draw(headline: &str, groups: &[Group]) -> String {
    let scale = (WIDTH - LEFT - RIGHT) / MOST;
    let mut body = String::new();
    let mut y = 44.0;
    for group in groups {
        let top = y + 8.0;
        text(&mut body, 8.0, y, "#777", &format!("{}   ({} = 1)", group.title, group.base));
        for bar in &group.bars {
            let long = bar.value.min(MOST) * scale;
            let colour = if bar.ours { "#2a7de1" } else { "#999" };
            y += LINE;
            text(&mut body, 8.0, y, "#777", &bar.label);
            rect(&mut body, LEFT, y - 10.0, long, 12.0, colour);
            text(&mut body, LEFT + long + 4.0, y, "#777", &format!("{:.2}", bar.value));
        }
        rule(&mut body, LEFT + scale, top, y + 4.0, "#777", "");
        if let Some(goal) = group.goal {
            rule(&mut body, LEFT + goal * scale, top, y + 4.0, "#d33", " stroke-dasharray=\"3 2\"");
        }
        y += LINE + 12.0;
    }
    picture(WIDTH, y, &format!("wall time, shorter is faster; dashed: goal; {headline}"), &body)
}

/// What is drawn, below its headline.
pub fn picture(width: f64, height: f64, headline: &str, body: &str) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    text(&mut out, 8.0, 18.0, "#777", headline);
    out + body + "</svg>\n"
}

pub fn rect(out: &mut String, x: f64, y: f64, width: f64, height: f64, colour: &str) {
    let _infallible = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{colour}\"/>"
    );
}

pub fn circle(out: &mut String, x: f64, y: f64, radius: f64, colour: &str) {
    let _infallible = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>");
}

/// From one place to another at the same height.
pub fn level(out: &mut String, left: f64, right: f64, y: f64, colour: &str) {
    let _infallible = writeln!(
        out,
        "<line x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\"/>"
    );
}

pub fn text(out: &mut String, x: f64, y: f64, colour: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _infallible = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{words}</text>");
}

pub fn rule(out: &mut String, x: f64, top: f64, bottom: f64, colour: &str, more: &str) {
    let _infallible = writeln!(
        out,
        "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"{colour}\"{more}/>"
    );
}
