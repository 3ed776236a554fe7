//! Patterns on another machine: what is there and matches is copied, and a name that holds such signs means itself.

use crate::common::remote::*;
use crate::common::*;

fn plant(tmp: &Tmp) {
    for name in ["a.log", "b.log", ".c.log", "d.txt", "sub/e.log", "sub2/e.log", "sub2/f.txt", "[g]"] {
        tmp.file(format!("s/{name}"), name);
    }
}

#[test]
fn what_matches_there_is_copied() {
    let table: &[(&[&str], &[&str])] = &[
        (&["*.log"], &["a.log", "b.log"]),
        (&[".*.log", "d.*"], &[".c.log", "d.txt"]),
        (&["?.log", "d.txt"], &["a.log", "b.log", "d.txt"]),
        (&["sub*/f.txt"], &["f.txt"]),
        (&["s*2/*"], &["e.log", "f.txt"]),
        (&["[ab].log"], &["a.log", "b.log"]),
        // A name that is there means itself.
        (&["[g]"], &["[g]"]),
        (&["\\[g]"], &["[g]"]),
    ];
    for (typed, lands) in table {
        for relative in [false, true] {
            let (far, tmp) = (Far::pipe(), Tmp::new());
            plant(&tmp);
            let base = if relative { "away".to_owned() } else { tmp.p("s").display().to_string() };
            if relative {
                std::os::unix::fs::symlink(tmp.p("s"), far.home().join("away")).unwrap();
            }
            let dst = tmp.dir("d");
            let from = typed.iter().map(|typed| far.at(format!("{base}/{typed}")));
            far.bcmr("copy").args(from).args([&dst]).run().ok();
            assert_eq!(names(&dst), *lands, "{typed:?} {relative}");
        }
    }
}

#[test]
fn below_the_home_directory_and_between_two_others() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    for name in ["x1", "x2", "y"] {
        std::fs::write(far.home().join(name), name).unwrap();
    }
    let dst = tmp.dir("d");
    far.bcmr("copy").args([far.at("x*"), dst.clone().into()]).run().ok();
    assert_eq!(names(&dst), ["x1", "x2"]);
    let over = tmp.dir("over");
    far.bcmr("copy").args(["one:x?".to_owned(), format!("two:{}", over.display())]).run().ok();
    assert_eq!(names(&over), ["x1", "x2"]);
    // Nothing is done that a copy would not do.
    far.bcmr("copy").args(["-n".into(), far.at("*"), tmp.dir("none").into()]).run().one_of(&[0, 1]);
    assert!(names(&tmp.p("none")).is_empty());
}

#[test]
fn nothing_that_matches_is_an_error_and_one_name_takes_one_source() {
    let (far, tmp) = (Far::pipe(), Tmp::new());
    plant(&tmp);
    let dst = tmp.dir("d");
    let at = |name: &str| far.at(tmp.p("s").join(name));
    for typed in ["*.none", "none*/x", "a.log/*", "sub/*.txt"] {
        let ran = far.bcmr("copy").args([at(typed), dst.clone().into()]).run();
        assert!(ran.code != 0 && ran.err.contains("matches it"), "{typed}: {ran:?}");
    }
    let ran = far.bcmr("copy").args(["-T".into(), at("*.log"), tmp.p("one").into()]).run();
    assert!(ran.code != 0 && ran.err.contains("one source"), "{ran:?}");
    // One match is one source.
    far.bcmr("copy").args(["-T".into(), at("a*"), tmp.p("one").into()]).run().ok();
    assert_eq!(std::fs::read_to_string(tmp.p("one")).unwrap(), "a.log");
    assert!(names(&dst).is_empty());
}
