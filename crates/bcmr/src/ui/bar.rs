//! The progress line on a terminal: indicatif draws it into memory, from where the one writer takes it, beside what else a
//! terminal can be told of progress.
//!
//! Must not know what the line says (that is `inline`), nor write anywhere itself.

use super::inline::Layout;
use crate::show::Signs;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Full, the head, and empty.
const CELLS: &str = "=> ";
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// What stands on the terminal, and what is to be sent there.
#[derive(Debug, Default)]
struct Canvas {
    bytes: Mutex<String>,
    /// Columns of the terminal.
    width: AtomicUsize,
    /// Columns that were drawn last.
    stands: AtomicUsize,
    /// What a terminal makes of a line when it becomes narrower: further lines.
    reflows: bool,
    /// Nothing is drawn while several things are set one after the other.
    muted: AtomicBool,
}

impl Canvas {
    fn put(&self, text: &str) {
        if !self.muted.load(Ordering::Relaxed) {
            self.bytes.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
        }
    }

    fn take(&self) -> String {
        std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes away what stands there, all the lines that it has become.
    fn erase(&self) {
        if self.muted.load(Ordering::Relaxed) {
            return;
        }
        self.put("\r\x1b[K");
        let (stands, width) =
            (self.stands.swap(0, Ordering::Relaxed), self.width.load(Ordering::Relaxed).max(1));
        let further = if self.reflows { stands.saturating_sub(1) / width } else { 0 };
        for _ in 0..further {
            self.put("\x1b[A\x1b[K");
        }
    }
}

/// What indicatif takes for a terminal.
#[derive(Debug)]
struct Pen(Arc<Canvas>);

impl TermLike for Pen {
    fn width(&self) -> u16 {
        // One column stays free: a terminal that is full to the edge may wrap.
        u16::try_from(self.0.width.load(Ordering::Relaxed).saturating_sub(1)).unwrap_or(u16::MAX).max(1)
    }
    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        if lines > 0 {
            self.0.put(&format!("\x1b[{lines}A"));
        }
        Ok(())
    }
    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        if lines > 0 {
            self.0.put(&format!("\x1b[{lines}B"));
        }
        Ok(())
    }
    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        if columns > 0 {
            self.0.put(&format!("\x1b[{columns}C"));
        }
        Ok(())
    }
    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        if columns > 0 {
            self.0.put(&format!("\x1b[{columns}D"));
        }
        Ok(())
    }
    fn write_line(&self, line: &str) -> io::Result<()> {
        self.0.put(line);
        self.0.put("\r\n");
        Ok(())
    }
    fn write_str(&self, text: &str) -> io::Result<()> {
        // What fills a line up to its end would be wrapped with it when the terminal becomes narrower.
        if !text.is_empty() && text.bytes().all(|b| b == b' ') {
            return Ok(());
        }
        self.0.put(text);
        Ok(())
    }
    fn clear_line(&self) -> io::Result<()> {
        self.0.erase();
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The line, the taskbar and the title.
pub struct Bar {
    canvas: Arc<Canvas>,
    bar: ProgressBar,
    with_bar: ProgressStyle,
    without: ProgressStyle,
    signs: Signs,
    /// What the taskbar and the title were told last; `None`: nothing.
    told: Option<Option<u64>>,
}

impl Bar {
    pub fn new(color: bool, signs: Signs) -> Bar {
        let canvas = Arc::new(Canvas { reflows: signs.reflows, ..Canvas::default() });
        let target = ProgressDrawTarget::term_like(Box::new(Pen(Arc::clone(&canvas))));
        let bar = ProgressBar::with_draw_target(Some(100), target);
        let (on, off) = if color { (CYAN, PLAIN) } else { ("", "") };
        let style = |template: &str| {
            let style = ProgressStyle::with_template(template);
            style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars(CELLS)
        };
        let with_bar = style(&format!("{{prefix}}{on}{{bar:{}}}{off}{{msg}}", super::inline::BAR_CELLS));
        Bar { canvas, bar, with_bar, without: style("{prefix}"), signs, told: None }
    }

    /// What brings the line onto a terminal of so many columns, in the place of the one that stands there.
    pub fn draw(&mut self, doing: &str, layout: &Layout, columns: usize) -> String {
        self.canvas.width.store(columns, Ordering::Relaxed);
        self.canvas.muted.store(true, Ordering::Relaxed);
        let style = if layout.cells > 0 { &self.with_bar } else { &self.without };
        self.bar.set_style(style.clone());
        self.bar.set_prefix(layout.before.clone());
        self.bar.set_message(layout.after.clone());
        self.bar.set_position(layout.percent.unwrap_or(0));
        self.canvas.muted.store(false, Ordering::Relaxed);
        self.bar.force_draw();
        self.canvas.stands.store(layout.columns(), Ordering::Relaxed);
        let mut text = self.canvas.take();
        if self.told != Some(layout.percent) {
            let is_first = self.told.replace(layout.percent).is_none();
            text.push_str(&self.signs.tell(doing, layout.percent, is_first));
        }
        text
    }

    /// What takes the line away.
    pub fn clear(&self, columns: usize) -> String {
        self.canvas.width.store(columns, Ordering::Relaxed);
        self.canvas.erase();
        self.canvas.take()
    }

    /// What takes back what the taskbar and the title were told.
    pub fn end(&mut self) -> String {
        if self.told.take().is_some() { self.signs.forget() } else { String::new() }
    }
}

impl Signs {
    /// OSC 9;4 for taskbars and tabs, OSC 0 for the title, which is kept first. No name is ever in them.
    fn tell(&self, doing: &str, percent: Option<u64>, is_first: bool) -> String {
        let mut text = String::new();
        if self.taskbar {
            text.push_str(&match percent {
                Some(percent) => format!("\x1b]9;4;1;{percent}\x07"),
                None => "\x1b]9;4;3;0\x07".to_owned(),
            });
        }
        if self.title {
            let percent = percent.map(|percent| format!(" {percent}%")).unwrap_or_default();
            let keep = if is_first { "\x1b[22;0t" } else { "" };
            text.push_str(&format!("{keep}\x1b]0;bcmr {doing}{percent}\x07"));
        }
        text
    }

    fn forget(&self) -> String {
        let taskbar = if self.taskbar { "\x1b]9;4;0;0\x07" } else { "" };
        let title = if self.title { "\x1b[23;0t" } else { "" };
        format!("{taskbar}{title}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Signs = Signs { taskbar: false, title: false, reflows: true };

    fn layout(percent: Option<u64>, cells: usize) -> Layout {
        Layout { before: "copying [".into(), cells, after: "] x".into(), percent }
    }

    #[test]
    fn a_line_takes_the_place_of_the_one_before() {
        let mut bar = Bar::new(false, NONE);
        assert_eq!(
            bar.draw("copying", &layout(Some(50), 20), 80),
            "\r\x1b[Kcopying [==========>         ] x"
        );
        assert_eq!(
            bar.draw("copying", &layout(Some(100), 20), 80),
            "\r\x1b[Kcopying [====================] x"
        );
        assert_eq!(bar.clear(80), "\r\x1b[K");
        // It has become two lines on a terminal that is half as wide.
        bar.draw("copying", &layout(Some(50), 20), 80);
        assert_eq!(bar.clear(20), "\r\x1b[K\x1b[A\x1b[K");
        assert_eq!(bar.clear(20), "\r\x1b[K", "nothing stands there");
        let mut cut = Bar::new(false, Signs { reflows: false, ..NONE });
        cut.draw("copying", &layout(None, 20), 80);
        assert_eq!(cut.clear(20), "\r\x1b[K");
    }

    #[test]
    fn colour_is_of_the_bar_alone() {
        let drawn = Bar::new(true, NONE).draw("copying", &layout(Some(0), 20), 80);
        assert_eq!(drawn, "\r\x1b[Kcopying [\x1b[36m                    \x1b[0m] x");
        let none = layout(None, 0);
        assert_eq!(Bar::new(true, NONE).draw("copying", &none, 80), "\r\x1b[Kcopying [");
    }

    #[test]
    fn taskbar_and_title_are_told_of_changes_and_given_back() {
        let mut bar = Bar::new(false, Signs { taskbar: true, title: true, reflows: true });
        let unknown = bar.draw("copying", &layout(None, 0), 80);
        assert!(unknown.ends_with("\x1b]9;4;3;0\x07\x1b[22;0t\x1b]0;bcmr copying\x07"), "{unknown:?}");
        let half = bar.draw("copying", &layout(Some(50), 0), 80);
        assert!(half.ends_with("\x1b]9;4;1;50\x07\x1b]0;bcmr copying 50%\x07"), "{half:?}");
        assert!(!bar.draw("copying", &layout(Some(50), 0), 80).contains('\x07'));
        assert_eq!(bar.end(), "\x1b]9;4;0;0\x07\x1b[23;0t");
        assert_eq!(bar.end(), "");
    }
}
