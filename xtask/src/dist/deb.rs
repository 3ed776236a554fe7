//! The Debian package: the tree below /usr, and what Debian's policy wants beside it.

use super::release::{Arch, Release};
use super::tree::{DOC, Tree, gzip};
use sh::Result;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Makes `bcmr_VERSION-1_ARCH.deb`. `lintian` has nothing to say about it but what the overrides in it explain.
pub fn make(tree: &Tree, out: &Path, release: &Release, arch: Arch) -> Result<PathBuf> {
    let root = tree.root.with_file_name("deb");
    let usr = Tree { root: root.join("usr") };
    fs::create_dir_all(&root)?;
    sh::quiet("cp", &["-a", &tree.root.to_string_lossy(), &usr.root.to_string_lossy()])?;
    let doc = usr.root.join(DOC);
    // Debian's names for the same things.
    fs::rename(doc.join("CHANGELOG.md"), doc.join("changelog"))?;
    gzip(&doc.join("changelog"))?;
    gzip(&doc.join("THIRD-PARTY.txt"))?;
    fs::remove_file(doc.join("LICENSE"))?;
    usr.put(&format!("{DOC}/copyright"), copyright(release).as_bytes())?;
    let version = format!("{}-1", release.version);
    let changes = format!(
        "bcmr ({version}) unstable; urgency=medium\n\n  * Release {}; changelog.gz says what is new.\n\n -- {}  {}\n",
        release.version, release.maintainer, release.date
    );
    usr.put(&format!("{DOC}/changelog.Debian"), changes.as_bytes())?;
    gzip(&doc.join("changelog.Debian"))?;
    usr.put("share/lintian/overrides/bcmr", OVERRIDES.as_bytes())?;
    let files = usr.files()?;
    let mut kib = 0;
    let mut sums = String::new();
    for file in &files {
        let path = usr.root.join(file);
        kib += fs::metadata(&path)?.len().div_ceil(1024);
        let said = sh::output("md5sum", &[&path.to_string_lossy()])?;
        let sum = said.split_whitespace().next().ok_or("md5sum says nothing")?;
        sums += &format!("{sum}  usr/{}\n", file.display());
    }
    let control = root.join("DEBIAN");
    fs::create_dir_all(&control)?;
    fs::write(control.join("md5sums"), sums)?;
    let description: String = release.description.lines().map(|l| format!(" {l}\n")).collect();
    fs::write(
        control.join("control"),
        format!(
            "Package: bcmr\nVersion: {version}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {kib}\n\
             Section: utils\nPriority: optional\nSuggests: openssh-client\nHomepage: {}\n\
             Description: {}\n{description}",
            arch.debian(),
            release.maintainer,
            release.homepage,
            release.synopsis,
        ),
    )?;
    for dir in dirs(&root)? {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    }
    let made = out.join(format!("bcmr_{version}_{}.deb", arch.debian()));
    let mut build = std::process::Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zxz", "--build"]).arg(&root).arg(&made);
    sh::run(build.env("SOURCE_DATE_EPOCH", &release.epoch))?;
    Ok(made)
}

fn dirs(root: &Path) -> Result<Vec<PathBuf>> {
    let mut dirs = vec![root.to_path_buf()];
    let mut next = 0;
    while let Some(dir) = dirs.get(next).cloned() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            }
        }
        next += 1;
    }
    Ok(dirs)
}

fn copyright(release: &Release) -> String {
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: bcmr\n\
         Source: {}\n\nFiles: *\nCopyright: {}\nLicense: {}\n On Debian systems the text of the licence is in\n \
         /usr/share/common-licenses/Apache-2.0.\nComment:\n The program is linked with libraries of others;\n \
         /usr/share/doc/bcmr/THIRD-PARTY.txt.gz has their notices.\n",
        release.homepage, release.copyright, release.licence
    )
}

const OVERRIDES: &str = "\
# One file for every machine: it is also what `bcmr --bootstrap` puts on the other side. Where the compiler can, it is
# position-independent as well, and lintian has another name for that.
bcmr [amd64]: shared-library-lacks-prerequisites [usr/bin/bcmr]
bcmr [arm64]: statically-linked-binary [usr/bin/bcmr]
# This package is not from Debian's archive.
bcmr: initial-upload-closes-no-bugs *
";
