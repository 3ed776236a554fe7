//! The picture of one experiment: every line's median with its spread, and where the paper's ratio would put it. Knows
//! only what was found.

use super::record::{Part, Record, figure};
use crate::svg;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 250.0;
const RIGHT: f64 = 70.0;
const LINE: f64 = 18.0;
/// Values that lie further apart are drawn as points on a logarithmic scale: bars would lie there.
const LINEAR_MOST: f64 = 20.0;
const OURS: &str = "#2a7de1";
const OTHERS: &str = "#999";
const TEXT: &str = "#777";
const PUBLISHED: &str = "#d33";

/// The whole picture; its colours can be read on light and on dark paper.
pub fn draw(record: &Record) -> String {
    let mut body = String::new();
    let mut y = 40.0;
    for part in &record.parts {
        if part.base().is_some() {
            y = group(&mut body, part, y);
        }
    }
    let headline = match &record.not_run {
        Some(_) => "not run",
        None => "median, least and most; red: where the paper's ratio would put it",
    };
    svg::picture(WIDTH, y, &format!("{}: {headline}", record.id), &body)
}

/// One part from `y` on; returns where the next begins.
fn group(body: &mut String, part: &Part, mut y: f64) -> f64 {
    let Some(base) = part.base() else { return y };
    let expected = |published: Option<f64>| Some(base.median() * published? / base.published?);
    let there = || part.lines.iter().filter(|l| !l.values.is_empty());
    let all =
        || there().flat_map(|l| [Some(l.range().0), Some(l.range().1), expected(l.published)]).flatten();
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let far = least > 0.0 && most / least > LINEAR_MOST;
    let scale = |value: f64| {
        let room = WIDTH - LEFT - RIGHT;
        let part = if far { (value / least).ln() / (most / least).ln() } else { value / most };
        LEFT + room * part.clamp(0.0, 1.0)
    };
    let kind = if far { "; logarithmic" } else { "" };
    svg::text(body, 8.0, y, TEXT, &format!("{}  ({}{kind})", part.title, part.unit));
    for line in there() {
        y += LINE;
        let colour = if line.command.starts_with("bcmr") { OURS } else { OTHERS };
        svg::text(body, 16.0, y, TEXT, &line.name);
        let (low, high) = line.range();
        let at = scale(line.median());
        if far {
            svg::circle(body, at, y - 4.0, 4.0, colour);
        } else {
            svg::rect(body, LEFT, y - 10.0, at - LEFT, 12.0, colour);
        }
        if line.values.len() > 1 {
            svg::level(body, scale(low), scale(high), y - 4.0, TEXT);
        }
        let mut end = scale(high).max(at);
        if let Some(published) = expected(line.published) {
            svg::rule(body, scale(published), y - 12.0, y + 4.0, PUBLISHED, " stroke-width=\"2\"");
            end = end.max(scale(published));
        }
        svg::text(body, end + 6.0, y, TEXT, &figure(line.median()));
    }
    y + LINE + 14.0
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn a_picture_has_every_line_that_was_there_and_is_well_formed() {
        let drawn = draw(&record("local-7"));
        assert!(drawn.contains(">cp<") && drawn.contains(">ours<") && !drawn.contains("xcp"), "{drawn}");
        // cp has its own figure: both lines of the paper are drawn.
        assert_eq!(drawn.matches(PUBLISHED).count(), 2);
        assert_eq!(drawn.matches("<text").count(), drawn.matches("</text>").count());
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"));
    }

    #[test]
    fn far_apart_is_logarithmic() {
        let mut it = record("local-7");
        it.parts[0].lines[1].values = vec![0.001];
        assert!(draw(&it).contains("logarithmic"));
    }
}
