//! Pages that are made and not written: those of experiments and benchmarks are what their JSON gives. Knows where they
//! lie, and not what is on them.

use super::{File, Finding};
use crate::bench::report;
use crate::experiment::{RECORD, pages};

pub fn check(files: &[File]) -> Vec<Finding> {
    let mut found = experiments(files);
    found.extend(benchmarks(files));
    found
}

/// Where records and pages of benchmarks lie.
const DOCS: &str = "docs";
const AGAIN: &str = "`cargo xtask bench report docs`";

fn benchmarks(files: &[File]) -> Vec<Finding> {
    let name = |file: &File| {
        let name = file.path.strip_prefix(DOCS)?.strip_prefix('/')?;
        (!name.contains('/')).then(|| name.to_owned())
    };
    let there: Vec<(String, &File)> = files.iter().filter_map(|f| Some((name(f)?, f))).collect();
    let records = there.iter().filter(|(name, _)| report::is_record(name));
    let kept = records.map(|(name, file)| (name.clone(), file.text.clone())).collect();
    let mut found = Vec::new();
    let mut say = |name: &str, text: &str| {
        found.push(Finding::new(&format!("{DOCS}/{name}"), 0, "made", text));
    };
    let mut made = match report::files(&kept) {
        Ok(made) => made,
        Err(problem) => {
            say("benchmarks.md", &problem.to_string());
            return found;
        }
    };
    for (name, file) in &there {
        let of_benchmarks = name.starts_with("benchmarks") && !report::is_record(name);
        match made.remove(name) {
            Some(text) if text != file.text => {
                say(name, &format!("is not what its JSON gives: {AGAIN}, never by hand"))
            }
            None if of_benchmarks => say(name, &format!("follows from no record: {AGAIN}")),
            _ => {}
        }
    }
    if !kept.is_empty() {
        for name in made.keys() {
            say(name, &format!("is not there: {AGAIN}"));
        }
    }
    found
}

fn experiments(files: &[File]) -> Vec<Finding> {
    let below = |file: &File| file.path.strip_prefix(RECORD)?.strip_prefix('/').map(str::to_owned);
    let there: Vec<(String, &File)> = files.iter().filter_map(|f| Some((below(f)?, f))).collect();
    let mut found = Vec::new();
    let mut say = |path: &str, text: &str| found.push(Finding::new(path, 0, "made", text));
    let mut records = Vec::new();
    for (name, file) in there.iter().filter(|(name, _)| name.ends_with(".json")) {
        match pages::read(name, &file.text) {
            Ok(record) if record.quick => say(&file.path, "a quick run is for no record: measure it whole"),
            Ok(record) => records.push(record),
            Err(problem) => say(&file.path, &problem.to_string()),
        }
    }
    let mut made = if records.is_empty() { Default::default() } else { pages::files(records) };
    for (name, file) in there.iter().filter(|(name, _)| !name.ends_with(".json")) {
        match made.remove(name) {
            None => {
                say(&file.path, "follows from no record: `cargo xtask experiment report docs/experiments`")
            }
            Some(text) if text != file.text => say(
                &file.path,
                "is not what its JSON gives: `cargo xtask experiment report docs/experiments`, never by hand",
            ),
            Some(_) => {}
        }
    }
    for name in made.keys() {
        say(&format!("{RECORD}/{name}"), "is not there: `cargo xtask experiment report docs/experiments`");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::check;
    use crate::bench::report;
    use crate::experiment::{pages, tests::record};

    #[test]
    fn pages_of_benchmarks_are_what_their_json_gives() {
        let json = "{\"schema\":1,\"machine\":\"a\",\"commit\":\"b\",\"command\":\"c\",\"shapes\":[{\"files\":7,\
            \"shape\":\"one directory\",\"lines\":[{\"line\":\"bcmr copy\",\"ours\":true,\"peak_kib\":2048,\"wall_s\":1.5}]}]}";
        let kept = [("benchmarks-memory.json".to_owned(), json.to_owned())].into();
        let mut files: Vec<(String, String)> =
            report::files(&kept).unwrap().into_iter().map(|(n, t)| (format!("docs/{n}"), t)).collect();
        files.push(("docs/benchmarks-memory.json".to_owned(), json.to_owned()));
        files.push(("docs/json.md".to_owned(), "by hand\n".to_owned()));
        let look = |files: &[(String, String)]| {
            let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
            planted(check, &files)
        };
        assert!(look(&files).is_empty(), "{:?}", look(&files));
        assert!(look(&[]).is_empty(), "nothing was run yet");
        // Faults: a figure changed on the page, a figure changed in the record, a page too many, one that is gone.
        let mut changed = files.clone();
        changed[0].1 = changed[0].1.replace("| 2.0 |", "| 1.0 |");
        assert_ne!(changed[0].1, files[0].1);
        assert_eq!(look(&changed), ["docs/benchmarks.md:0 made"]);
        let mut figure = files.clone();
        figure[1].1 = figure[1].1.replace("2048", "1024");
        assert_eq!(look(&figure), ["docs/benchmarks.md:0 made"]);
        let mut more = files.clone();
        more.push(("docs/benchmarks-old.md".to_owned(), "by hand\n".to_owned()));
        assert_eq!(look(&more), ["docs/benchmarks-old.md:0 made"]);
        files.remove(0);
        assert_eq!(look(&files), ["docs/benchmarks.md:0 made"]);
    }

    #[test]
    fn pages_are_what_their_json_gives() {
        let text = serde_json::to_string(&record("local-7")).unwrap();
        let mut files: Vec<(String, String)> = pages::files(vec![record("local-7")])
            .into_iter()
            .map(|(name, text)| (format!("docs/experiments/{name}"), text))
            .collect();
        files.push(("docs/experiments/local-7.json".to_owned(), text.clone()));
        let look = |files: &[(String, String)]| {
            let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
            planted(check, &files)
        };
        assert!(look(&files).is_empty());
        assert!(look(&[]).is_empty(), "nothing was run yet");
        // Faults: a page changed by hand, one that is gone, one too many, a figure changed, a quick run.
        let mut changed = files.clone();
        let page = changed.iter_mut().find(|(p, _)| p.ends_with("local-7.md")).unwrap();
        page.1 = page.1.replace("0.50 - 0.53", "0.40 - 0.45");
        assert_eq!(look(&changed), ["docs/experiments/local-7.md:0 made"]);
        let mut gone = files.clone();
        gone.retain(|(p, _)| !p.ends_with("index.html"));
        assert_eq!(look(&gone), ["docs/experiments/index.html:0 made"]);
        let mut more = files.clone();
        more.push(("docs/experiments/wire.md".to_owned(), "by hand\n".to_owned()));
        assert_eq!(look(&more), ["docs/experiments/wire.md:0 made"]);
        let mut figures = files.clone();
        figures.last_mut().unwrap().1 = text.replace("2.12", "9.9");
        assert!(look(&figures).contains(&"docs/experiments/local-7.svg:0 made".to_owned()));
        files.last_mut().unwrap().1 = text.replace("\"quick\":false", "\"quick\":true");
        assert!(look(&files).contains(&"docs/experiments/local-7.json:0 made".to_owned()));
    }
}
