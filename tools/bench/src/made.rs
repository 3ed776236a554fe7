//! Pages that are made and not written: those of experiments and benchmarks are what their JSON gives. Knows where they
//! lie, and not what is on them.

use crate::documents;
use crate::experiment::{RECORD, pages};
use sh::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// Where records and pages of benchmarks lie.
const DOCS: &str = "docs";
const BENCHMARKS_AGAIN: &str = "`cargo xtask bench report docs`";
const EXPERIMENTS_AGAIN: &str = "`cargo xtask experiment report docs/experiments`";

/// Names and texts of the files in one directory.
type Texts = BTreeMap<String, String>;

/// Looks at the repository's pages; `cargo xtask tidy` asks for it.
pub fn run() -> Result {
    let found = check(&load(&sh::root().join(DOCS))?, &load(&sh::root().join(RECORD))?);
    for finding in &found {
        println!("{finding}");
    }
    if found.is_empty() { Ok(()) } else { Err(format!("{} findings", found.len()).into()) }
}

fn load(dir: &Path) -> Result<Texts> {
    let mut texts = Texts::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // What is not text is not made.
            if let Ok(text) = String::from_utf8(std::fs::read(entry.path())?) {
                texts.insert(name, text);
            }
        }
    }
    Ok(texts)
}

/// What is wrong in `docs` and in `docs/experiments`.
fn check(docs: &Texts, record: &Texts) -> Vec<String> {
    let mut found = benchmarks(docs);
    found.extend(experiments(record));
    found
}

fn finding(dir: &str, name: &str, text: &str) -> String {
    format!("{dir}/{name}:0: [made] {text}")
}

fn benchmarks(docs: &Texts) -> Vec<String> {
    let is_record = |name: &String| documents::is_record(name);
    let kept: Texts =
        docs.iter().filter(|(n, _)| is_record(n)).map(|(n, t)| (n.clone(), t.clone())).collect();
    let mut found = Vec::new();
    let mut say = |name: &str, text: &str| found.push(finding(DOCS, name, text));
    let mut made = match documents::files(&kept) {
        Ok(made) => made,
        Err(problem) => {
            say("benchmarks.md", &problem.to_string());
            return found;
        }
    };
    for (name, text) in docs {
        let of_benchmarks = name.starts_with("benchmarks") && !is_record(name);
        match made.remove(name) {
            Some(again) if again != *text => {
                say(name, &format!("is not what its JSON gives: {BENCHMARKS_AGAIN}, never by hand"))
            }
            None if of_benchmarks => say(name, &format!("follows from no record: {BENCHMARKS_AGAIN}")),
            _ => {}
        }
    }
    if !kept.is_empty() {
        for name in made.keys() {
            say(name, &format!("is not there: {BENCHMARKS_AGAIN}"));
        }
    }
    found
}

fn experiments(texts: &Texts) -> Vec<String> {
    let mut found = Vec::new();
    let mut say = |name: &str, text: &str| found.push(finding(RECORD, name, text));
    let mut records = Vec::new();
    for (name, text) in texts.iter().filter(|(name, _)| name.ends_with(".json")) {
        match pages::read(name, text) {
            Ok(record) if record.quick => say(name, "a quick run is for no record: measure it whole"),
            Ok(record) => records.push(record),
            Err(problem) => say(name, &problem.to_string()),
        }
    }
    let mut made = if records.is_empty() { Default::default() } else { pages::files(records) };
    for (name, text) in texts.iter().filter(|(name, _)| !name.ends_with(".json")) {
        match made.remove(name) {
            None => say(name, &format!("follows from no record: {EXPERIMENTS_AGAIN}")),
            Some(again) if again != *text => {
                say(name, &format!("is not what its JSON gives: {EXPERIMENTS_AGAIN}, never by hand"))
            }
            Some(_) => {}
        }
    }
    for name in made.keys() {
        say(name, &format!("is not there: {EXPERIMENTS_AGAIN}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::record::tests::record;

    /// The files that are found to be wrong.
    fn wrong(found: Vec<String>) -> Vec<String> {
        found.iter().map(|f| f.split(':').next().unwrap().to_owned()).collect()
    }

    /// The check itself, as an ordinary test.
    #[test]
    fn the_pages_of_the_repository_are_what_their_json_gives() {
        run().unwrap();
    }

    #[test]
    fn pages_of_benchmarks_are_what_their_json_gives() {
        let json = "{\"schema\":1,\"machine\":\"a\",\"commit\":\"b\",\"command\":\"c\",\"shapes\":[{\"files\":7,\
            \"shape\":\"one directory\",\"lines\":[{\"line\":\"bcmr copy\",\"ours\":true,\"peak_kib\":2048,\"wall_s\":1.5}]}]}";
        let kept: Texts = [("benchmarks-memory.json".to_owned(), json.to_owned())].into();
        let mut files = documents::files(&kept).unwrap();
        files.extend(kept);
        files.insert("json.md".to_owned(), "by hand\n".to_owned());
        let look = |files: &Texts| wrong(benchmarks(files));
        assert!(look(&files).is_empty(), "{:?}", look(&files));
        assert!(look(&Texts::new()).is_empty(), "nothing was run yet");
        // Faults: a figure changed on the page, a figure changed in the record, a page too many, one that is gone.
        let page = "docs/benchmarks.md";
        let mut changed = files.clone();
        let text = changed.get_mut("benchmarks.md").unwrap();
        *text = text.replace("| 2.0 |", "| 1.0 |");
        assert_ne!(changed, files);
        assert_eq!(look(&changed), [page]);
        let mut figure = files.clone();
        let text = figure.get_mut("benchmarks-memory.json").unwrap();
        *text = text.replace("2048", "1024");
        assert_eq!(look(&figure), [page]);
        let mut more = files.clone();
        more.insert("benchmarks-old.md".to_owned(), "by hand\n".to_owned());
        assert_eq!(look(&more), ["docs/benchmarks-old.md"]);
        files.remove("benchmarks.md");
        assert_eq!(look(&files), [page]);
    }

    #[test]
    fn pages_of_experiments_are_what_their_json_gives() {
        let json = serde_json::to_string(&record("local-7")).unwrap();
        let mut files: Texts = pages::files(vec![record("local-7")]).into_iter().collect();
        files.insert("local-7.json".to_owned(), json.clone());
        let look = |files: &Texts| wrong(experiments(files));
        assert!(look(&files).is_empty());
        assert!(look(&Texts::new()).is_empty(), "nothing was run yet");
        // Faults: a page changed by hand, one that is gone, one too many, a figure changed, a quick run.
        let mut changed = files.clone();
        let page = changed.get_mut("local-7.md").unwrap();
        *page = page.replace("0.50 - 0.53", "0.40 - 0.45");
        assert_eq!(look(&changed), ["docs/experiments/local-7.md"]);
        let mut gone = files.clone();
        gone.remove("index.html");
        assert_eq!(look(&gone), ["docs/experiments/index.html"]);
        let mut more = files.clone();
        more.insert("wire.md".to_owned(), "by hand\n".to_owned());
        assert_eq!(look(&more), ["docs/experiments/wire.md"]);
        let mut figures = files.clone();
        figures.insert("local-7.json".to_owned(), json.replace("2.12", "9.9"));
        assert!(look(&figures).contains(&"docs/experiments/local-7.svg".to_owned()));
        files.insert("local-7.json".to_owned(), json.replace("\"quick\":false", "\"quick\":true"));
        assert!(look(&files).contains(&"docs/experiments/local-7.json".to_owned()));
    }
}
