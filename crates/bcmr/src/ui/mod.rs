//! Shows a run to the user, and brings their answers and signals to the engine.
//!
//! One thread beside the engine's: it looks for signals and draws progress, and sleeps otherwise. A run that may be over in
//! a moment has none until it turns out to take longer. Everything shown goes through one [`Screen`] behind one lock. Must
//! not know what verbs do.

mod bar;
mod inline;
pub mod json;
pub mod limit;
mod plain;
pub mod receipt;
mod report;
mod root;
mod signals;
mod tree;
pub mod writer;

use crate::ask::Answers;
use crate::env;
use crate::names;
use crate::say;
use crate::show::{Again, Far, Meter, NewTarget, Show, Verb};
use bar::Bar;
use bcmr_engine::error::{About, Code, Error, Note, Op, Reason};
use bcmr_engine::event::{Cancel, Event, Front, Progress, Question, Summary, Watch};
use bcmr_engine::policy::{Collide, Verify};
use bcmr_engine::verbs::WholeFile;

use inline::Sample;
use plain::Plain;
use receipt::{Losses, Receipt};
use report::Gathered;
use signals::Signals;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Scope, Thread};
use std::time::{Duration, Instant};
use writer::Sink;

/// How long a signal may wait to be seen. Also bounds how often a run that shows nothing wakes up.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The drawing thread needs little; what it does not touch costs nothing, but may count against a limit.
const STACK_BYTES: usize = 256 * 1024;

/// What the first JSON line says of the request.
pub struct Start<'a> {
    pub sources: &'a [PathBuf],
    pub destination: Option<&'a Path>,
    pub jobs: usize,
    /// Counts what there is to do, beside the run and only when it is shown.
    pub measure: Option<Measure>,
    /// Set by the verb when scp did its work, which tells nothing of what it does.
    pub by_scp: Option<&'a AtomicBool>,
}

/// Finds totals; stops when it is told to.
pub type Measure = Box<dyn FnOnce(&Progress, &Cancel) + Send>;

/// Runs `verb`, shows it, and returns the exit code.
pub fn run<F>(show: &Show, start: Start<'_>, verb: F) -> u8
where
    F: FnOnce(Watch<'_>) -> Result<Summary, Error>,
{
    run_from(Drawing::AtOnce, show, start, verb)
}

/// When the thread that draws and looks for signals begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawing {
    AtOnce,
    /// Of a run that may be over in a moment, in which a thread would take as long to start as all of it: until the engine
    /// says that it goes on nothing is drawn, and signals do what they do by default.
    OnceItGoesOn,
}

/// The same, drawn from the moment that `drawing` says.
pub fn run_from<F>(drawing: Drawing, show: &Show, start: Start<'_>, verb: F) -> u8
where
    F: FnOnce(Watch<'_>) -> Result<Summary, Error>,
{
    let silent = |watch: Watch<'_>| verb(watch).map(|summary| (summary, ()));
    run_then(drawing, show, start, silent, |()| Ok(String::new()))
}

/// The same of a verb that finds something. What `words` says of that is printed behind a run that went well, but for machines and
/// with `-q`; an exit code instead of words has been told of.
pub fn run_then<F, T>(
    drawing: Drawing,
    show: &Show,
    start: Start<'_>,
    verb: F,
    words: impl FnOnce(T) -> Result<String, u8>,
) -> u8
where
    F: FnOnce(Watch<'_>) -> Result<(Summary, T), Error>,
{
    let ui = Ui::new(show, start.by_scp);
    if show.json {
        let line = json::start(show.verb, show.dry_run, start.sources, start.destination, start.jobs);
        ui.screen().out.line(&line);
    }
    let items = show.items || show.report.is_some();
    if show.report.is_some() {
        ui.progress.slowest.want();
    }
    if show.verify != Verify::Off {
        ui.progress.hashes.want();
    }
    let page = match show.report.as_deref().map(|file| WholeFile::begin(file, &report::is_page)).transpose() {
        Ok(page) => page,
        Err(e) => return ui.finish(Err(e), None),
    };
    let ended = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let (measure, thread) = (Mutex::new(start.measure), OnceLock::new());
        let shown = Shown { ui: &ui, scope, ended: &ended, measure, thread };
        if drawing == Drawing::AtOnce {
            shown.begin();
        }
        verb(Watch { front: &shown, progress: &ui.progress, cancel: &ui.cancel, items })
    });
    let (result, found) = match result {
        Ok((summary, found)) => (Ok(summary), Some(found)),
        Err(e) => (Err(e), None),
    };
    let exit = ui.finish(result, page);
    match found.filter(|_| exit == show.voice.exits.done).map(words) {
        Some(Ok(text)) => ui.print(&text),
        Some(Err(exit)) => exit,
        None => exit,
    }
}

/// A run that is shown: its front, and the drawing thread, once there is one.
struct Shown<'scope, 'env, 'a> {
    ui: &'scope Ui<'a>,
    scope: &'scope Scope<'scope, 'env>,
    ended: &'scope AtomicBool,
    measure: Mutex<Option<Measure>>,
    thread: OnceLock<Option<Thread>>,
}

impl Shown<'_, '_, '_> {
    /// Starts the drawing thread, if that was not done.
    fn begin(&self) {
        self.thread.get_or_init(|| {
            let (ui, ended) = (self.ui, self.ended);
            let measure = self.measure.lock().unwrap_or_else(PoisonError::into_inner).take();
            let thread = std::thread::Builder::new().name("ui".into()).stack_size(STACK_BYTES);
            let drawing = thread.spawn_scoped(self.scope, move || ui.draw_until(ended, measure)).ok()?;
            // Without the thread no signals would be looked for, so they keep their default and kill. With it, a
            // handler that cannot be set leaves the same for its signal.
            ui.signals.catch(ui.show.ignored_signals).ok();
            Some(drawing.thread().clone())
        });
    }
}

/// Ends the drawing thread when the verb ends, also by a panic: the scope would wait for that thread for ever.
impl Drop for Shown<'_, '_, '_> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.ui.counted.set();
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl Front for Shown<'_, '_, '_> {
    fn event(&self, event: Event) {
        self.ui.event(event);
    }

    fn goes_on(&self) {
        self.begin();
    }

    fn lend_terminal(&self, lent: bool) {
        self.begin();
        self.ui.lend_terminal(lent);
    }

    fn ask(&self, question: Question) -> bool {
        // The user may answer with Ctrl-C.
        self.begin();
        self.ui.ask(question)
    }
}

struct Ui<'a> {
    show: &'a Show,
    began: Instant,
    /// Shared with the thread that counts totals: it is not waited for, as it may hang in a slow file system.
    progress: Arc<Progress>,
    cancel: Cancel,
    /// Totals are not needed any more.
    counted: Arc<Cancel>,
    signals: Signals,
    answers: Mutex<Answers>,
    /// A stop took the place of an answer, so that what was asked about is not done, and not kept by choice either.
    unanswered: AtomicBool,
    screen: Mutex<Screen>,
    by_scp: Option<&'a AtomicBool>,
    /// Bytes of files that went on where an earlier run stopped: this one has not copied them.
    resumed: AtomicU64,
    /// Bytes that were there in older versions, or under other names.
    from_basis: AtomicU64,
    from_store: AtomicU64,
    from_run: AtomicU64,
}

/// Both streams and what stands on them.
struct Screen {
    out: Sink,
    err: Sink,
    plain: Plain,
    line: inline::ProgressLine,
    bar: Bar,
    /// What a report has beside the receipt.
    gathered: Option<Gathered>,
    /// Attributes that could not be kept so far.
    losses: Losses,
    /// Items that failed so far, and with what codes, each once.
    failed: (u64, Vec<Code>),
    /// The progress line stands on the terminal.
    drawn: bool,
    /// A question stands on the terminal, so nothing may be drawn.
    asking: bool,
    /// Another program may be asking something on it, so nothing may be drawn either.
    lent: bool,
}

impl Screen {
    fn has_failed(&mut self, code: Code) {
        self.failed.0 += 1;
        if !self.failed.1.contains(&code) {
            self.failed.1.push(code);
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            self.err.raw(&self.bar.clear(stderr_columns()));
        }
    }

    /// Takes away the line and what else shows progress.
    fn end_progress(&mut self) {
        self.clear();
        let end = self.bar.end();
        if !end.is_empty() {
            self.err.raw(&end);
        }
    }
}

impl Ui<'_> {
    fn event(&self, event: Event) {
        if let Event::Resumed { bytes, .. } = event {
            self.resumed.fetch_add(bytes, Ordering::Relaxed);
        }
        if let Event::Note(Note { reason, about }) = &event
            && let Some(sum) = self.saved(*reason)
            && let Some(About::Text(bytes)) = about.first()
        {
            sum.fetch_add(bytes.parse().unwrap_or(0), Ordering::Relaxed);
        }
        let screen = &mut *self.screen();
        screen.clear();
        if let Event::NewTarget = event {
            screen.plain.event(self.show, event, &mut screen.out, &mut screen.err);
            return;
        }
        if let Event::Failed(e) | Event::Warning(e) = &event {
            screen.losses.add(e);
        }
        if let Event::Failed(e) = &event {
            screen.has_failed(e.code);
        }
        if let Some(gathered) = &mut screen.gathered {
            gathered.event(self.show.voice, &event);
        }
        if self.show.json {
            let is_item = matches!(event, Event::Item { .. });
            if !is_item || self.show.items {
                let typed = self.show.typed(screen.plain.new_target(self.show));
                screen.out.line(&json::event(&typed, &event));
            }
            if matches!(event, Event::Failed(_) | Event::Warning(_)) {
                screen.out.flush();
            }
        } else {
            screen.plain.event(self.show, event, &mut screen.out, &mut screen.err);
        }
        // What was told is lost. The thread that looks for signals has yet to see this one: no more is done without a word.
        if screen.out.gave_up() || screen.err.gave_up() {
            self.cancel.set();
        }
    }

    fn lend_terminal(&self, lent: bool) {
        let screen = &mut *self.screen();
        screen.clear();
        screen.lent = lent;
    }

    fn ask(&self, question: Question) -> bool {
        // The worker that holds the answers asks; the others wait their turn, and events go on in the meantime.
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.cancel.is_set() {
            self.unanswered.store(true, Ordering::Relaxed);
            return false;
        }
        {
            let screen = &mut *self.screen();
            screen.clear();
            screen.out.flush();
            screen.err.raw(&say::question(self.show.voice, &question));
            screen.asking = true;
        }
        let yes = answers.next(&self.cancel);
        let screen = &mut *self.screen();
        screen.asking = false;
        if self.cancel.is_set() {
            self.unanswered.store(true, Ordering::Relaxed);
        } else if !(self.show.echoes && answers.was_line()) {
            // No Enter has ended the line.
            screen.err.raw("\n");
        }
        yes
    }
}

impl<'a> Ui<'a> {
    fn new(show: &'a Show, by_scp: Option<&'a AtomicBool>) -> Ui<'a> {
        let signals = Signals::default();
        let (out, err) = (Sink::stdout(show.eager).until(signals.any()), Sink::stderr().until(signals.any()));
        Ui {
            by_scp,
            resumed: AtomicU64::new(0),
            from_basis: AtomicU64::new(0),
            from_store: AtomicU64::new(0),
            from_run: AtomicU64::new(0),
            show,
            began: Instant::now(),
            progress: Arc::default(),
            cancel: Cancel::new(),
            counted: Arc::default(),
            signals,
            answers: Mutex::default(),
            unanswered: AtomicBool::new(false),
            screen: Mutex::new(Screen {
                out,
                err,
                plain: Plain::default(),
                line: inline::ProgressLine::new(show.verb),
                bar: Bar::new(show.bar_color, show.signs),
                gathered: show.report.is_some().then(Gathered::default),
                losses: Losses::default(),
                failed: (0, Vec::new()),
                drawn: false,
                asking: false,
                lent: false,
            }),
        }
    }

    /// A worker that panicked while it held the screen has left it usable: lines are written whole.
    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The second thread.
    fn draw_until(&self, ended: &AtomicBool, mut measure: Option<Measure>) {
        let every = match self.show.meter {
            Meter::Off => None,
            Meter::Inline => Some(inline::DRAWN_EVERY),
            Meter::Lines => Some(inline::LINES_EVERY),
            Meter::Events => Some(inline::EVENTS_EVERY),
        };
        let mut due = inline::SHOWN_AFTER;
        let mut stopping = false;
        while !ended.load(Ordering::Acquire) {
            std::thread::park_timeout(LOOK_EVERY);
            if !stopping && self.signals.stop().is_some() {
                stopping = true;
                self.stop();
            }
            if ended.load(Ordering::Acquire) {
                return;
            }
            let now = self.began.elapsed();
            if self.show.report.is_some() {
                let sample = Sample::of(&self.progress);
                if let Some(gathered) = &mut self.screen().gathered {
                    gathered.rate(now, sample.bytes_done.saturating_sub(sample.bytes_there));
                }
            }
            let status = self.signals.status();
            let drawn = every.filter(|_| now >= due);
            if (status || drawn.is_some())
                && let Some(measure) = measure.take()
            {
                self.count(measure);
            }
            if status {
                self.tell_status();
            }
            if let Some(every) = drawn {
                due = now + every;
                self.draw(now);
            }
        }
    }

    /// Counts totals on a thread of its own; without one there are no totals.
    fn count(&self, measure: Measure) {
        let (progress, counted) = (self.progress.clone(), self.counted.clone());
        let thread = std::thread::Builder::new().name("measure".into());
        thread.spawn(move || measure(&progress, &counted)).ok();
    }

    fn stop(&self) {
        // First the flag, then the words: the screen may be held by a thread that waits for a slow reader.
        self.cancel.set();
        self.counted.set();
        let words = say::stopping(self.show.again);
        match self.screen.try_lock() {
            Ok(mut screen) => {
                screen.end_progress();
                let newline = if screen.asking { "\n" } else { "" };
                screen.err.raw(&format!("{newline}{words}\n"));
            }
            Err(_) => Sink::stderr().until(self.signals.any()).raw(&format!("{words}\n")),
        }
    }

    fn draw(&self, now: Duration) {
        let sample = Sample::of(&self.progress);
        let screen = &mut *self.screen();
        match self.show.meter {
            Meter::Off => {}
            Meter::Inline if screen.asking || is_background() => {}
            Meter::Inline | Meter::Lines if screen.lent => {}
            Meter::Inline => {
                self.progress.under_way.show();
                let columns = stderr_columns();
                let name = self.progress.under_way.name();
                let name = names::bare(name.as_os_str().as_bytes());
                // One column stays free: a terminal that is full to the edge may wrap.
                let layout = screen.line.at(sample, now, &name, columns.saturating_sub(1));
                let doing = say::phase(self.show.verb, screen.line.phase());
                let text = screen.bar.draw(doing, &layout, columns);
                screen.err.raw(&text);
                screen.drawn = true;
            }
            Meter::Lines => {
                let line = screen.line.text(sample, now);
                screen.err.line(&self.show.voice.line(&line));
            }
            Meter::Events => {
                let shown = screen.line.shown(sample, now);
                let doing = say::phase(self.show.verb, screen.line.phase());
                screen.out.line(&json::progress(shown, doing, now));
                screen.out.flush();
            }
        }
    }

    fn tell_status(&self) {
        let sample = Sample::of(&self.progress);
        let screen = &mut *self.screen();
        if screen.lent {
            return;
        }
        screen.clear();
        let line = screen.line.text(sample, self.began.elapsed());
        screen.err.line(&self.show.voice.line(&line));
    }

    /// The last words and the exit code.
    fn finish(&self, result: Result<Summary, Error>, page: Option<WholeFile>) -> u8 {
        let (show, took) = (self.show, self.began.elapsed());
        let screen = &mut *self.screen();
        screen.end_progress();
        screen.plain.over(show, result.is_ok(), &mut screen.err);
        let result = match result {
            Err(e) if self.comes_of_a_stop(&e) => Ok(Summary { cancelled: true, ..Summary::default() }),
            other => other,
        };
        let (summary, exit) = match result {
            Ok(mut summary) => {
                summary.cancelled |= self.unanswered.load(Ordering::Relaxed);
                let mut exit = say::exit_code(&show.voice.exits, show.verb, &summary, self.signals.stop());
                // The command that proves the copy is made from all options there are, which takes as long as a small copy.
                let shown = show.json || page.is_some() || self.shows_receipt(&summary, took);
                let has = shown && self.has_receipt(&summary);
                let receipt = has.then(|| self.receipt(screen, &summary, took));
                if !show.json {
                    self.last_words(screen, &summary, receipt.as_ref(), took);
                } else if let Some(receipt) = &receipt {
                    screen.out.line(&json::receipt(show, receipt));
                }
                if let Some(page) = page {
                    exit = self.write_report(page, screen, &summary, receipt.as_ref(), exit, took);
                }
                (summary, exit)
            }
            Err(e) => {
                // Nothing was begun that a page could tell of.
                if let Some(Err(e)) = page.map(WholeFile::give_up) {
                    screen.err.line(&say::error(show.voice, &e));
                }
                let exit = say::exit_code_of(&show.voice.exits, show.verb, &e);
                // Items may have failed before what ended it all.
                screen.has_failed(e.code);
                let (failed, codes) = std::mem::take(&mut screen.failed);
                let summary = Summary { failed, codes, ..Summary::default() };
                if show.json {
                    screen
                        .out
                        .line(&json::event(&show.typed(screen.plain.new_target(show)), &Event::Failed(e)));
                } else {
                    screen.plain.trouble(show, &e, &say::error(show.voice, &e), &mut screen.err);
                }
                (summary, exit)
            }
        };
        if show.json {
            let carrier = self.is_by_scp().then_some("scp");
            screen.out.line(&json::summary(show.verb, &summary, took, exit, carrier));
        }
        self.end_output(screen, exit)
    }

    /// Prints what was asked for behind a run that went well, and returns the exit code.
    fn print(&self, text: &str) -> u8 {
        let screen = &mut *self.screen();
        if !self.show.json && !self.show.quiet {
            screen.out.raw(text);
        }
        self.end_output(screen, self.show.voice.exits.done)
    }

    /// Everything gathered goes out. The exit code, which says where that failed.
    fn end_output(&self, screen: &mut Screen, mut exit: u8) -> u8 {
        let show = self.show;
        if let Some(e) = screen.out.finish() {
            screen.err.line(&say::output_error(show.voice, &e));
            exit = say::exit_without_output(&show.voice.exits, show.verb, exit);
        }
        match self.signals.stop() {
            // The signal has cut short what was told, whatever was done by then.
            Some(signal) if screen.out.gave_up() || screen.err.gave_up() => {
                show.voice.exits.signal.saturating_add(signal)
            }
            _ => exit,
        }
    }

    /// Whether a run that could not be begun was stopped: ssh may have got the signal too, or have been stopped while it asked
    /// a person.
    fn comes_of_a_stop(&self, e: &Error) -> bool {
        let ends_with_ssh = e.code == Code::Lost || e.op == Op::ConnectTo;
        match self.signals.stop() {
            Some(_) => ends_with_ssh || e.code == Code::Interrupted,
            None => e.code == Code::Interrupted && self.cancel.is_set(),
        }
    }

    /// Whether something was copied that a receipt can speak of.
    fn has_receipt(&self, s: &Summary) -> bool {
        let copies = matches!(self.show.verb, Verb::Copy | Verb::Move | Verb::Sync) && !self.show.dry_run;
        copies && !s.cancelled && !self.is_by_scp() && s.files + s.dirs + s.others > 0
    }

    /// What a note says is added to, where it says what need not cross.
    fn saved(&self, reason: Reason) -> Option<&AtomicU64> {
        match reason {
            Reason::FromBasis => Some(&self.from_basis),
            Reason::FromStore => Some(&self.from_store),
            Reason::FromRun => Some(&self.from_run),
            _ => None,
        }
    }

    /// Bytes that this run need not copy, or send.
    fn reused(&self) -> u64 {
        let all = [&self.resumed, &self.from_basis, &self.from_store, &self.from_run];
        all.iter().fold(0, |sum, one| sum.saturating_add(one.load(Ordering::Relaxed)))
    }

    /// Whether a person is shown it unasked, or has asked.
    fn shows_receipt(&self, s: &Summary, took: Duration) -> bool {
        let proved = self.show.verify != Verify::Off && s.files + s.dirs + s.others > 0;
        self.show.verbose || self.show.stats || (self.show.watched && (proved || took >= inline::SHOWN_AFTER))
    }

    /// What closes the run beside its counts.
    fn receipt(&self, screen: &mut Screen, s: &Summary, took: Duration) -> Receipt {
        let (show, progress) = (self.show, &*self.progress);
        let reused = self.reused();
        let times = limit::Times::of(progress, show.far, took, s.bytes.saturating_sub(reused), env::spent());
        // What was left alone for another reason than that it is the same may differ.
        let may_differ =
            s.kept > 0 && matches!(show.collide, Collide::Keep | Collide::IfOlder | Collide::Ask);
        let proof =
            if s.failed == 0 && !s.of_stream && !may_differ { (show.proof)(&show.proved_line) } else { None };
        Receipt {
            files: s.files,
            bytes: s.bytes,
            took,
            verify: if s.bytes > s.streamed { show.verify } else { Verify::Off },
            verified: s.bytes.saturating_sub(s.streamed),
            root: root::of(&progress.hashes.take()),
            reused,
            from_basis: self.from_basis.load(Ordering::Relaxed),
            from_store: self.from_store.load(Ordering::Relaxed),
            from_run: self.from_run.load(Ordering::Relaxed),
            cloned: (
                progress.cloned_files.load(Ordering::Relaxed),
                progress.cloned_bytes.load(Ordering::Relaxed),
            ),
            kept: s.kept,
            collide: show.collide,
            excluded: match show.far {
                Far::From(_) => None,
                Far::Nowhere | Far::To(_) => Some(progress.excluded.load(Ordering::Relaxed)),
            },
            specials: screen.losses.specials(),
            lost: screen.losses.take(),
            limit: limit::of(&times),
            proof: proof
                .map(|words| say::proof(&words, screen.plain.new_target(self.show) == NewTarget::Yes)),
        }
    }

    /// Writes the page that was asked for; returns the exit code, which says where that failed.
    fn write_report(
        &self,
        page: WholeFile,
        screen: &mut Screen,
        s: &Summary,
        receipt: Option<&Receipt>,
        exit: u8,
        took: Duration,
    ) -> u8 {
        let (show, gathered) = (self.show, screen.gathered.take().unwrap_or_default());
        let text = report::page(&report::Page {
            show,
            summary: s,
            receipt,
            gathered: &gathered,
            slowest: &self.progress.slowest.files(),
            exit,
            took,
        });
        let Err(e) = page.end(text.as_bytes()) else { return exit };
        screen.err.line(&say::error(show.voice, &e));
        if exit == show.voice.exits.done { show.voice.exits.some_failed } else { exit }
    }

    fn is_by_scp(&self) -> bool {
        self.by_scp.is_some_and(|by| by.load(Ordering::Acquire))
    }

    fn last_words(&self, screen: &mut Screen, s: &Summary, receipt: Option<&Receipt>, took: Duration) {
        let show = self.show;
        let differs = s.differences > 0 || screen.plain.has_differences();
        // Where not everything was compared, it is not known that there are no differences.
        let found = differs || (s.failed == 0 && !s.cancelled);
        let in_shards = matches!(show.verb, Verb::Shard | Verb::Finish) && differs;
        let compares = show.verb == Verb::Check || show.verb == Verb::Sync && show.dry_run || in_shards;
        if compares && found {
            screen.plain.differences(show, s, &mut screen.out);
        }
        if show.verb == Verb::Sessions {
            screen.plain.unfinished(show, &mut screen.out);
        }
        screen.plain.rest(show, &mut screen.err);
        if show.quiet {
            return;
        }
        // Where lines of both streams meet on one terminal, the end belongs below the rest.
        screen.out.flush();
        let reused = self.reused();
        if s.cancelled {
            screen.err.line(&say::stopped(show, screen.plain.new_target(show), s, reused, took));
            return;
        }
        let done = s.files + s.dirs + s.others;
        let long = show.watched && took >= inline::SHOWN_AFTER;
        if self.is_by_scp() {
            if s.failed == 0 && (show.verbose || long) {
                screen.err.line(say::DONE_BY_SCP);
            }
            return;
        }
        // With `check` the last line of its tree says it all, with `sessions` its table does, with `plan` its own words do.
        let tells_all = compares || matches!(show.verb, Verb::Sessions | Verb::Plan);
        let closes = self.shows_receipt(s, took);
        if !tells_all && (closes || show.dry_run || (s.failed > 0 && done > 0)) {
            screen.err.line(&say::summary(show.voice, show.verb, show.dry_run, s, reused, took));
        }
        if let Some(receipt) = receipt.filter(|_| closes) {
            for line in say::receipt(show, receipt) {
                screen.err.line(&line);
            }
        }
        // Asked for once more, the same words would mean a place inside.
        let made =
            screen.plain.new_target(show) == NewTarget::Yes && s.dirs > 0 && s.failed == 0 && !show.dry_run;
        if made && show.again == Again::Resume && (show.verbose || show.watched) {
            screen.err.line(&format!("hint: {}", say::finished(show)));
        }
    }
}

/// Whether the terminal behind standard error is another job's: a line would be drawn over what is typed there.
fn is_background() -> bool {
    let front = rustix::termios::tcgetpgrp(rustix::stdio::stderr());
    front.is_ok_and(|front| front != rustix::process::getpgrp())
}

/// Columns of the terminal behind standard error; 80 where it does not say.
fn stderr_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
    size.ok().map(|s| usize::from(s.ws_col)).filter(|columns| *columns > 0).unwrap_or(80)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::show::Again;

    pub fn show(verb: Verb) -> Show {
        Show {
            voice: &crate::voice::BCMR,
            verb,
            json: false,
            verbose: false,
            quiet: true,
            items: false,
            dry_run: false,
            meter: Meter::Off,
            color: false,
            eager: false,
            echoes: false,
            watched: false,
            again: Again::Same,
            line: Vec::new(),
            proved_line: Vec::new(),
            from_plan: false,
            owners_said: false,
            one_worker: false,
            fast: false,
            verify: bcmr_engine::policy::Verify::Off,
            bar_color: false,
            signs: crate::show::Signs { taskbar: false, title: false, reflows: true },
            collide: bcmr_engine::policy::Collide::Replace,
            far: crate::show::Far::Nowhere,
            at_source: false,
            guessed_there: false,
            proof: |_| None,
            report: None,
            itemized: None,
            stats: false,
            manifest: false,
            ignored_signals: 0,
            now: 0,
        }
    }

    const NOTHING: Start<'_> =
        Start { sources: &[], destination: None, jobs: 1, measure: None, by_scp: None };

    /// It is not waited for without end by the thread that draws.
    #[test]
    fn a_panic_of_the_verb_ends_the_program() {
        for drawing in [Drawing::AtOnce, Drawing::OnceItGoesOn] {
            let verb = || {
                run_from(drawing, &show(Verb::Copy), NOTHING, |watch| {
                    watch.front.goes_on();
                    panic!("planted")
                })
            };
            assert!(std::panic::catch_unwind(verb).is_err());
        }
    }

    #[test]
    fn a_signal_reaches_the_engine_and_the_exit_code() {
        // One that is drawn from the start needs no more; each signal is sent once, as the second one ends the process.
        let exit = run_from(Drawing::OnceItGoesOn, &show(Verb::Copy), NOTHING, |watch| {
            watch.front.goes_on();
            signal_hook::low_level::raise(signal_hook::consts::SIGTERM).unwrap();
            let until = Instant::now() + Duration::from_secs(100);
            while !watch.cancel.is_set() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            // A question after a stop is answered with no, without waiting for the user.
            assert!(!watch.front.ask(Question::Replace("x".into())));
            Ok(Summary { cancelled: watch.cancel.is_set(), ..Summary::default() })
        });
        assert_eq!(exit, 143);
    }

    #[test]
    fn totals_are_counted_when_somebody_looks_and_never_waited_for() {
        use std::sync::mpsc::channel;
        let (begun, begins) = channel();
        let (release, released) = channel::<()>();
        let measure: Measure = Box::new(move |progress, cancel| {
            progress.items_found.store(7, Ordering::Relaxed);
            begun.send(()).unwrap();
            // A file system that does not answer.
            released.recv().ok();
            assert!(cancel.is_set());
        });
        let show = Show { meter: Meter::Lines, ..show(Verb::Copy) };
        let exit = run(&show, Start { measure: Some(measure), ..NOTHING }, |watch| {
            begins.recv().unwrap();
            assert_eq!(watch.progress.items_found.load(Ordering::Relaxed), 7);
            Ok(Summary::default())
        });
        assert_eq!(exit, 0);
        drop(release);
        // Nothing is shown, or not for long enough: nothing is counted.
        for meter in [Meter::Off, Meter::Lines] {
            let never: Measure = Box::new(|_, _| panic!("counted"));
            let show = Show { meter, ..self::show(Verb::Copy) };
            run(&show, Start { measure: Some(never), ..NOTHING }, |_| Ok(Summary::default()));
        }
    }
}
