//! What an installed bcmr consists of, staged once below one directory: every package is a form of it.
//!
//! Must not know any package format.

use super::notices;
use super::release::{Arch, Release};
use sh::Result;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A staged tree: `bin` and `share` as they stand below a prefix.
pub struct Tree {
    /// The prefix.
    pub root: PathBuf,
}

/// Where the documents of a package lie below the prefix.
pub const DOC: &str = "share/doc/bcmr";

impl Tree {
    /// Stages `binary` with its documents. `native` runs here and writes man pages and completions.
    pub fn stage(work: &Path, binary: &Path, native: &Path, release: &Release, arch: Arch) -> Result<Tree> {
        if work.exists() {
            fs::remove_dir_all(work)?;
        }
        let tree = Tree { root: work.join("tree") };
        tree.put("bin/bcmr", &fs::read(binary)?)?;
        fs::set_permissions(tree.root.join("bin/bcmr"), fs::Permissions::from_mode(0o755))?;
        let man = tree.root.join("share/man/man1");
        fs::create_dir_all(&man)?;
        sh::run(
            std::process::Command::new(native).arg("man").arg(&man).env("SOURCE_DATE_EPOCH", &release.epoch),
        )?;
        crate::man::documents(&tree.root.join("share/man"), &release.epoch)?;
        for section in fs::read_dir(tree.root.join("share/man"))? {
            for page in fs::read_dir(section?.path())? {
                gzip(&page?.path())?;
            }
        }
        for (shell, path) in [
            ("bash", "share/bash-completion/completions/bcmr"),
            ("zsh", "share/zsh/vendor-completions/_bcmr"),
            ("fish", "share/fish/vendor_completions.d/bcmr.fish"),
        ] {
            let script = sh::output(&native.to_string_lossy(), &["completions", shell])?;
            tree.put(path, format!("{script}\n").as_bytes())?;
        }
        for document in ["README.md", "CHANGELOG.md", "LICENSE"] {
            tree.put(&format!("{DOC}/{document}"), &fs::read(sh::root().join(document))?)?;
        }
        tree.put(&format!("{DOC}/THIRD-PARTY.txt"), notices::notices(arch)?.as_bytes())?;
        Ok(tree)
    }

    /// Writes a file of the tree, mode 0644.
    pub fn put(&self, path: &str, bytes: &[u8]) -> Result {
        let path = self.root.join(path);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(&path, bytes)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?)
    }

    /// Every file, as a path below the prefix, sorted.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut dirs = vec![self.root.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir)? {
                let path = entry?.path();
                if path.is_dir() {
                    dirs.push(path);
                } else {
                    files.push(path.strip_prefix(&self.root)?.to_path_buf());
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// Copies it below `to`, each file under a new inode, for an old program may be running.
    pub fn install(&self, to: &Path) -> Result {
        for file in self.files()? {
            let (from, to) = (self.root.join(&file), to.join(&file));
            let mode = format!("{:o}", fs::metadata(&from)?.permissions().mode() & 0o777);
            sh::quiet("install", &["-D", "-m", &mode, &from.to_string_lossy(), &to.to_string_lossy()])?;
            println!("{}", to.display());
        }
        Ok(())
    }

    /// `bcmr-VERSION-ARCH-linux.tar.gz`, with a script that installs it.
    pub fn tarball(&self, out: &Path, release: &Release, arch: Arch) -> Result<PathBuf> {
        let name = format!("bcmr-{}-{}-linux", release.version, arch.name());
        let top = self.root.with_file_name(&name);
        sh::quiet("cp", &["-a", &self.root.to_string_lossy(), &top.to_string_lossy()])?;
        let script = top.join("install.sh");
        fs::write(&script, INSTALL_SH)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        let (work, made) = (top.parent().unwrap_or(out), out.join(format!("{name}.tar")));
        sh::quiet(
            "tar",
            &[
                "--create",
                "--format=ustar",
                "--sort=name",
                "--owner=0",
                "--group=0",
                "--numeric-owner",
                "--mode=go-w,a+rX",
                &format!("--mtime=@{}", release.epoch),
                &format!("--file={}", made.display()),
                &format!("--directory={}", work.display()),
                &name,
            ],
        )?;
        gzip(&made)?;
        Ok(out.join(format!("{name}.tar.gz")))
    }
}

/// Packs a file in place, without its name and time.
pub fn gzip(path: &Path) -> Result {
    sh::quiet("gzip", &["-9", "-n", "-f", &path.to_string_lossy()])
}

const INSTALL_SH: &str = r#"#!/bin/sh
# Installs bcmr below PREFIX (/usr/local), with DESTDIR before it when a package is being made.
set -eu
cd "$(dirname "$0")"
to="${DESTDIR:-}${PREFIX:-/usr/local}"
find bin share -type f | while IFS= read -r file; do
  mode=644
  case "$file" in bin/*) mode=755 ;; esac
  install -D -m "$mode" "$file" "$to/$file"
done
echo "bcmr is installed in $to/bin"
"#;
