//! `cargo xtask ci deny`: licences, banned crates, wildcards and sources of everything that Cargo.lock holds, by deny.toml.
//!
//! Needs no network and nothing installed. Must not know of advisories: their database is a network's, and cargo-deny reads
//! it, by the same deny.toml.

use serde_json::Value;
use sh::Result;
use std::collections::{BTreeMap, BTreeSet};

/// What deny.toml allows and forbids; only what is read here.
#[derive(serde::Deserialize)]
struct Rules {
    licenses: Licences,
    bans: Bans,
}

#[derive(serde::Deserialize)]
struct Licences {
    allow: Vec<String>,
}

#[derive(serde::Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(serde::Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

/// The registry that cargo uses by default, as `cargo metadata` names it.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Says every breach, and which crates stand in the graph in more than one version.
pub fn run() -> Result {
    let rules: Rules = toml::from_str(&std::fs::read_to_string(sh::root().join("deny.toml"))?)?;
    let text = sh::output("cargo", &["metadata", "--format-version", "1", "--locked", "--all-features"])?;
    let graph: Value = serde_json::from_str(&text)?;
    let packages = graph["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    for (name, versions) in versions(packages).iter().filter(|(_, versions)| versions.len() > 1) {
        println!(
            "{name} is there {} times: {}",
            versions.len(),
            Vec::from_iter(versions.iter().copied()).join(", ")
        );
    }
    let breaches = breaches(packages, &rules);
    for breach in &breaches {
        println!("{breach}");
    }
    println!("deny: {} crates, {} breaches of deny.toml", packages.len(), breaches.len());
    if breaches.is_empty() { Ok(()) } else { Err(format!("{} breaches of deny.toml", breaches.len()).into()) }
}

fn versions(packages: &[Value]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        found.entry(word(&package["name"])).or_default().insert(word(&package["version"]));
    }
    found
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn breaches(packages: &[Value], rules: &Rules) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages {
        let (name, about) =
            (word(&package["name"]), format!("{} {}", word(&package["name"]), word(&package["version"])));
        if let Some(ban) = rules.bans.deny.iter().find(|ban| ban.name == name) {
            found.push(format!("{about} is banned: {}", ban.reason));
        }
        match &package["source"] {
            Value::Null => {}
            source if word(source) == REGISTRY => {}
            source => {
                found.push(format!("{about} comes from {source}; sources are {REGISTRY} and this repository"))
            }
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if dependency["req"] == "*" && dependency["path"].is_null() {
                found.push(format!("{about} takes any version of {}; name one", word(&dependency["name"])));
            }
        }
        // What is never published is under this project's own licence.
        let private = package["publish"].as_array().is_some_and(Vec::is_empty);
        let licence = word(&package["license"]);
        if private {
            continue;
        }
        match allowed(licence, &rules.licenses.allow) {
            Some(true) => {}
            Some(false) => found.push(format!("{about}: {licence:?} is not among the allowed licences")),
            None => {
                found.push(format!("{about}: {licence:?} is no licence expression; read its licence by eye"))
            }
        }
    }
    found
}

/// Whether the allowed licences are enough for an SPDX expression (`/` is how `OR` used to be written); `None` where it is
/// none. `AND` binds tighter than `OR`.
fn allowed(expression: &str, allow: &[String]) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let value = either(&mut rest, allow)?;
    rest.is_empty().then_some(value)
}

fn either(rest: &mut &[&str], allow: &[String]) -> Option<bool> {
    let mut value = both(rest, allow)?;
    while let ["OR", after @ ..] = *rest {
        *rest = after;
        value |= both(rest, allow)?;
    }
    Some(value)
}

fn both(rest: &mut &[&str], allow: &[String]) -> Option<bool> {
    let mut value = one(rest, allow)?;
    while let ["AND", after @ ..] = *rest {
        *rest = after;
        value &= one(rest, allow)?;
    }
    Some(value)
}

fn one(rest: &mut &[&str], allow: &[String]) -> Option<bool> {
    const WORDS: [&str; 5] = ["AND", "OR", "WITH", "(", ")"];
    if let ["(", after @ ..] = *rest {
        *rest = after;
        let value = either(rest, allow)?;
        let [")", after @ ..] = *rest else { return None };
        *rest = after;
        return Some(value);
    }
    let (licence, after) = match *rest {
        [licence, "WITH", exception, after @ ..] if !WORDS.contains(exception) => {
            (format!("{licence} WITH {exception}"), after)
        }
        [licence, after @ ..] if !WORDS.contains(licence) => ((*licence).to_owned(), after),
        _ => return None,
    };
    *rest = after;
    Some(allow.contains(&licence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules() -> Rules {
        let text = "[licenses]\nallow = ['MIT', 'ISC', 'Apache-2.0 WITH LLVM-exception']\n\
                    [bans]\ndeny = [{ crate = 'tokio', reason = 'no' }]\n";
        toml::from_str(text).expect("rules")
    }

    #[test]
    fn expressions() {
        let allow = rules().licenses.allow;
        for (expression, enough) in [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("GPL-3.0-only OR MIT", Some(true)),
            ("GPL-3.0-only/MIT", Some(true)),
            ("MIT AND GPL-3.0-only", Some(false)),
            ("MIT AND ISC", Some(true)),
            ("MIT OR GPL-3.0-only AND GPL-2.0-only", Some(true)),
            ("(MIT OR GPL-3.0-only) AND GPL-2.0-only", Some(false)),
            ("(GPL-3.0-only OR MIT) AND (ISC)", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("Apache-2.0", Some(false)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("", None),
            ("MIT AND", None),
            ("(MIT", None),
            ("MIT)", None),
            ("MIT ISC", None),
            ("OR", None),
            ("MIT OR WITH", None),
        ] {
            assert_eq!(allowed(expression, &allow), enough, "{expression:?}");
        }
    }

    #[test]
    fn each_breach_is_told() {
        let good = json!({"name": "a", "version": "1.0.0", "license": "MIT", "source": REGISTRY, "publish": null,
            "dependencies": [{"name": "b", "req": "^1", "path": null}]});
        let private = json!({"name": "x", "version": "0.0.0", "license": null, "source": null, "publish": [],
            "dependencies": [{"name": "a", "req": "*", "path": "/here"}]});
        let told = |package: &Value| breaches(std::slice::from_ref(package), &rules());
        assert!(told(&good).is_empty() && told(&private).is_empty());
        for (key, value, said) in [
            ("name", json!("tokio"), "is banned: no"),
            ("license", json!("GPL-3.0-only"), "not among the allowed"),
            ("license", json!(null), "read its licence by eye"),
            ("source", json!("git+https://example.org/a"), "comes from"),
            ("source", json!("registry+https://example.org/index"), "comes from"),
            ("dependencies", json!([{"name": "b", "req": "*", "path": null}]), "any version of b"),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            let told = told(&bad);
            assert!(told.len() == 1 && told[0].contains(said), "{key}: {told:?}");
        }
    }
}
