use bcmr_engine::event::*; use bcmr_engine::policy::*;
struct F; impl Front for F { fn event(&self, e: Event) { match e { Event::Failed(e) => eprintln!("E {e}"), Event::Warning(e) => eprintln!("W {e}"), o => eprintln!("{o:?}") } } fn ask(&self, _: Question) -> bool { true } }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let archive = a[1].contains('a');
    let policy = CopyPolicy { recursive: true, follow: Follow::Never, preserve: if archive { Preserve::ALL } else { Preserve::NONE }, strictness: if archive { Strictness::Archive } else { Strictness::LikeCp }, specials: archive, collide: Collide::Replace, force: false, landing: Landing::Atomic, reflink: Reflink::Auto, sparse: Sparse::Auto, verify: if a[1].contains('V') { Verify::Cached } else { Verify::Off }, durability: if a[1].contains('s') { Durability::Medium } else { Durability::Cache }, one_file_system: false, filter: FilterSpec { rules: vec![], regexes: vec![], gitignore: false }, dry_run: false, jobs: if a[1].contains('1') {1} else {2}, umask: 0o22 };
    let (p, c) = (Progress::default(), Cancel::new());
    let w = Watch { front: &F, progress: &p, cancel: &c, items: false };
    let n = a.len();
    let sources = a[2..n-1].iter().map(Into::into).collect(); let target = Target::Guess(a[n-1].clone().into());
    let s = if a[1].contains('m') { bcmr_engine::move_(MoveRequest { sources, target, merge: false, policy }, w) } else { bcmr_engine::copy(CopyRequest { sources, names: None, target, policy }, w) };
    eprintln!("{s:?}");
}
