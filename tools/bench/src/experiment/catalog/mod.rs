//! Every experiment as data: what it says, how it is repeated here, and the paper's own figures. Measures nothing.

mod checkpoint;
mod library;
mod local;
mod paper;
mod wire;

use crate::experiment::entry::Experiment;

/// Every experiment. `quick` is less data, to see that it runs; its figures are for no record.
pub fn all(quick: bool) -> Vec<Experiment> {
    let mut all = local::all(quick);
    all.extend(wire::all(quick));
    all.extend(checkpoint::all(quick));
    all.extend(paper::all(quick));
    all.extend(library::all(quick));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Set;
    use crate::experiment::entry::{PartSpec, Work, line, ours, part, warm};

    /// The lines that a part will have.
    fn names(part: &PartSpec) -> Vec<String> {
        match &part.work {
            Work::Lines(lines) => lines.lines.iter().map(|l| l.name.clone()).collect(),
            Work::Wire { row, .. } => row.lanes.iter().map(|l| l.name.to_owned()).collect(),
            Work::Resume { sizes, .. } => {
                let modes = ["-s", "-C", "-C --fast"];
                sizes.iter().flat_map(|(mib, _)| modes.map(|m| format!("{m}, {mib} MiB"))).collect()
            }
            // Checked by a run of `cargo xtask ci`.
            Work::Codecs(_) | Work::Store(_) => Vec::new(),
        }
    }

    #[test]
    fn words_are_taken_over_where_the_lines_are_the_same() {
        let mut record = crate::experiment::record::tests::record("local-7");
        let lines =
            vec![line("cp", "cp SRC DST", 1.0), ours("ours", "ours SRC DST"), ours("xcp", "xcp {s} {d}")];
        let it = |lines| Experiment {
            id: "local-7",
            title: "new",
            text: "new",
            hypothesis: "new",
            method: "new",
            differs: "new",
            parts: vec![part("new", "s", warm(Set::One { bytes: 1 }, 3, lines))],
            claims: Vec::new(),
            never: None,
        };
        let before = serde_json::to_string(&record).unwrap();
        let mut other = lines.clone();
        other[1].line.push_str(" --faster");
        assert!(!it(other).reword(&mut record), "another command");
        assert!(!it(lines[..2].to_vec()).reword(&mut record), "a line less");
        let mut larger = it(lines.clone());
        larger.parts[0].work = warm(Set::One { bytes: 2 }, 3, lines.clone());
        assert!(!larger.reword(&mut record), "other data");
        assert_eq!(serde_json::to_string(&record).unwrap(), before);
        assert!(it(lines).reword(&mut record));
        assert!(record.claims.is_empty() && record.title == "new" && record.parts[0].title == "new");
        assert_eq!(record.parts[0].lines[0].values, [1.0, 4.0, 4.0], "what was measured stays");
    }

    #[test]
    fn claims_name_lines_that_exist_and_everything_has_its_words() {
        for quick in [false, true] {
            let mut ids: Vec<&str> = Vec::new();
            for it in all(quick) {
                assert!(!ids.contains(&it.id), "{} twice", it.id);
                ids.push(it.id);
                for words in [it.title, it.text, it.hypothesis, it.method] {
                    assert!(!words.is_empty() && !words.contains('\n'), "{}", it.id);
                }
                assert_eq!(it.parts.is_empty(), it.never.is_some(), "{}", it.id);
                assert_eq!(it.claims.is_empty(), it.never.is_some(), "{}", it.id);
                for claim in &it.claims {
                    let part = it.parts.get(claim.part).expect(it.id);
                    let names = names(part);
                    for line in std::iter::once(&claim.line).chain(&claim.against) {
                        assert!(names.is_empty() || names.contains(line), "{}: {line} in {names:?}", it.id);
                    }
                }
                for part in &it.parts {
                    if let Work::Wire { row, published, .. } = &part.work {
                        for (lane, _) in published {
                            assert!(row.lanes.iter().any(|l| l.name == *lane), "{}: {lane}", it.id);
                        }
                    }
                }
            }
            let of = |group: &str| -> Vec<u32> {
                ids.iter().filter_map(|id| id.strip_prefix(group)?.strip_prefix('-')?.parse().ok()).collect()
            };
            assert_eq!(of("local"), [7, 8, 10, 13, 16]);
            assert_eq!(of("wire"), [9, 11, 12, 14, 15, 17, 18, 19, 20]);
            assert_eq!(of("checkpoint"), [1, 2, 3, 4, 5, 6, 7]);
            assert_eq!((of("paper").len(), of("library").len()), (8, 6));
        }
    }
}
