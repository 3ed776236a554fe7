//! For which machines packages are made, and what all packages of one release have in common. Must not know how a package
//! is laid out.

use clap::ValueEnum;
use sh::Result;

/// A machine that packages are made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
}

impl Arch {
    pub fn here() -> Result<Arch> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Arch::X86_64),
            "aarch64" => Ok(Arch::Aarch64),
            other => Err(format!("no packages are made for {other}").into()),
        }
    }

    /// As Rust and RPM call it.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    /// As Debian calls it.
    pub fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::Aarch64 => "arm64",
        }
    }

    pub fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.name())
    }
}

/// What is the same in all packages of one release.
pub struct Release {
    pub version: String,
    /// Of the commit: seconds since 1970. Everything in a package has this time.
    pub epoch: String,
    /// The same in the form of RFC 5322.
    pub date: String,
    pub maintainer: String,
    pub homepage: String,
    pub licence: String,
    pub summary: String,
    /// The summary in a few words, as package lists show it.
    pub synopsis: String,
    /// Years and holders.
    pub copyright: String,
    pub description: String,
}

impl Release {
    pub fn read() -> Result<Release> {
        let text = sh::output("cargo", &["metadata", "--no-deps", "--format-version", "1", "--locked"])?;
        let metadata: serde_json::Value = serde_json::from_str(&text)?;
        let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
        let ours = packages.iter().find(|p| p["name"] == "bcmr").ok_or("there is no package bcmr")?;
        let word = |value: &serde_json::Value, what: &str| -> Result<String> {
            Ok(value.as_str().ok_or_else(|| format!("Cargo.toml has no {what}"))?.to_owned())
        };
        let dist = &metadata["metadata"]["dist"];
        Ok(Release {
            version: word(&ours["version"], "version")?,
            epoch: sh::output("git", &["log", "-1", "--format=%ct"])?,
            date: sh::output("git", &["log", "-1", "--format=%cD"])?,
            maintainer: word(&dist["maintainer"], "workspace.metadata.dist.maintainer")?,
            homepage: word(&dist["homepage"], "workspace.metadata.dist.homepage")?,
            licence: word(&ours["license"], "license")?,
            summary: word(&ours["description"], "description")?,
            synopsis: word(&dist["synopsis"], "workspace.metadata.dist.synopsis")?,
            copyright: word(&dist["copyright"], "workspace.metadata.dist.copyright")?,
            description: word(&dist["description"], "workspace.metadata.dist.description")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    /// docs/name.md: every crate of ours has a name for the registry, the page has the same, and only names that are ours.
    #[test]
    fn every_crate_has_a_name_for_the_registry() {
        let root = sh::root();
        let manifest: toml::Table =
            toml::from_str(&std::fs::read_to_string(root.join("Cargo.toml")).unwrap()).unwrap();
        let table = manifest["workspace"]["metadata"]["dist"]["registry"].as_table().unwrap();
        let named: BTreeMap<String, &str> =
            table.iter().map(|(name, as_what)| (name.clone(), as_what.as_str().unwrap())).collect();
        let crates = std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap());
        // What says itself that it is not for the registry needs no name there.
        let is_for_it = |path: std::path::PathBuf| {
            std::fs::read_to_string(path.join("Cargo.toml"))
                .is_ok_and(|text| !text.contains("publish = false"))
        };
        let mut ours: Vec<String> = crates
            .filter(|entry| is_for_it(entry.path()))
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        ours.sort();
        assert_eq!(named.keys().cloned().collect::<Vec<_>>(), ours);
        let page = std::fs::read_to_string(root.join("docs/name.md")).unwrap();
        for (name, on_registry) in named {
            assert!(page.contains(&format!("\n| `{name}` | `{on_registry}` |")), "{name}");
            assert!(on_registry != "bcmr" && on_registry.starts_with("bcmr-"), "{on_registry}");
        }
    }
}
