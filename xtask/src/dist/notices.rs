//! What others wrote and the binary contains: their licence texts, and the bill of materials.
//!
//! Follows from `cargo metadata` and Cargo.lock alone, so it cannot forget anything that is linked.

use super::release::{Arch, Release};
use serde_json::{Value, json};
use sh::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// One crate that is linked into the binary.
struct Part {
    name: String,
    version: String,
    licence: String,
    dir: PathBuf,
    ours: bool,
}

/// What `bcmr` needs at run time on `arch`, from the graph that cargo resolved; build and test dependencies are not
/// linked.
fn parts(arch: Arch) -> Result<Vec<Part>> {
    let target = arch.target();
    let text = sh::output(
        "cargo",
        &["metadata", "--format-version", "1", "--locked", "--filter-platform", &target],
    )?;
    let all: Value = serde_json::from_str(&text)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&all["packages"]).into_iter().map(|p| (text_of(&p["id"]), p)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&all["resolve"]["nodes"]).into_iter().map(|n| (text_of(&n["id"]), n)).collect();
    let root =
        packages.iter().find(|(_, p)| p["name"] == "bcmr").ok_or("there is no package bcmr")?.0.clone();
    let mut seen = BTreeSet::from([root.clone()]);
    let mut queue = vec![root];
    while let Some(id) = queue.pop() {
        let Some(node) = nodes.get(&id) else { continue };
        for dep in list(&node["deps"]) {
            let linked = list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let macros = packages.get(&text_of(&dep["pkg"])).is_some_and(is_macro);
            let id = text_of(&dep["pkg"]);
            if linked && !macros && seen.insert(id.clone()) {
                queue.push(id);
            }
        }
    }
    let mut parts: Vec<Part> = seen
        .iter()
        .filter_map(|id| packages.get(id))
        .map(|p| Part {
            name: text_of(&p["name"]),
            version: text_of(&p["version"]),
            licence: text_of(&p["license"]),
            dir: Path::new(&text_of(&p["manifest_path"])).parent().unwrap_or(Path::new("/")).to_path_buf(),
            ours: p["source"].is_null(),
        })
        .collect();
    parts.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(parts)
}

/// Procedural macros run while building and are not in the binary.
fn is_macro(package: &Value) -> bool {
    package["targets"].as_array().is_some_and(|targets| {
        targets.iter().any(|t| t["kind"].as_array().is_some_and(|k| k.contains(&json!("proc-macro"))))
    })
}

/// The licence texts of everything that is linked, each text once.
pub fn notices(arch: Arch) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for part in parts(arch)?.into_iter().filter(|p| !p.ours) {
        list += &format!("  {} {}: {}\n", part.name, part.version, part.licence);
        let mut names: Vec<PathBuf> =
            fs::read_dir(&part.dir)?.map(|e| Ok(e?.path())).collect::<std::io::Result<_>>()?;
        names.sort();
        for path in names {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let is_notice =
                ["LICEN", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"].iter().any(|w| name.starts_with(w));
            if is_notice && path.is_file() {
                let text = String::from_utf8_lossy(&fs::read(&path)?).trim().replace("\r\n", "\n");
                texts.entry(text).or_default().push(format!("{} {}", part.name, part.version));
            }
        }
    }
    let mut out = format!("bcmr contains these libraries:\n\n{list}\nTheir licences and notices:\n");
    for (text, of) in texts {
        out += &format!("\n{}\n{}\n\n{text}\n", "-".repeat(78), of.join(", "));
    }
    Ok(out)
}

/// `bcmr-VERSION-ARCH.cdx.json`: the bill of materials in the form of CycloneDX 1.5.
pub fn sbom(out: &Path, release: &Release, arch: Arch) -> Result<PathBuf> {
    let sums = checksums()?;
    let purl = |p: &Part| format!("pkg:cargo/{}@{}", p.name, p.version);
    let component = |p: &Part| {
        let mut one = json!({
            "type": "library", "name": p.name, "version": p.version, "purl": purl(p), "bom-ref": purl(p),
            "licenses": [{ "expression": p.licence.replace('/', " OR ") }],
        });
        if let Some(sum) = sums.get(&(p.name.clone(), p.version.clone())) {
            one["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        one
    };
    let parts = parts(arch)?;
    let bom = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": {
            "type": "application", "name": "bcmr", "version": release.version,
            "purl": format!("pkg:cargo/bcmr@{}", release.version), "bom-ref": format!("bcmr {}", arch.target()),
            "licenses": [{ "expression": release.licence }],
        }},
        "components": parts.iter().filter(|p| p.name != "bcmr").map(component).collect::<Vec<_>>(),
    });
    let path = out.join(format!("bcmr-{}-{}.cdx.json", release.version, arch.name()));
    fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&bom)?))?;
    Ok(path)
}

/// What Cargo.lock says of each crate's archive.
fn checksums() -> Result<BTreeMap<(String, String), String>> {
    let text = fs::read_to_string(sh::root().join("Cargo.lock"))?;
    let mut sums = BTreeMap::new();
    for block in text.split("[[package]]") {
        let field = |key: &str| {
            block.lines().find_map(|l| {
                l.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"').map(str::to_owned)
            })
        };
        if let (Some(name), Some(version), Some(sum)) = (field("name"), field("version"), field("checksum")) {
            sums.insert((name, version), sum);
        }
    }
    Ok(sums)
}
