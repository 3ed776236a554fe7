//! The RPM package: the same tree below /usr, by rpmbuild.

use super::release::{Arch, Release};
use super::tree::Tree;
use sh::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes `bcmr-VERSION-1.ARCH.rpm`.
pub fn make(tree: &Tree, out: &Path, release: &Release, arch: Arch) -> Result<PathBuf> {
    let work = tree.root.with_file_name("rpm");
    let spec = work.join("bcmr.spec");
    fs::create_dir_all(&work)?;
    let files: Vec<String> = tree.files()?.iter().map(|f| format!("/usr/{}", f.display())).collect();
    fs::write(
        &spec,
        format!(
            "Name: bcmr\nVersion: {}\nRelease: 1\nSummary: {}\nLicense: {}\nURL: {}\n\
             AutoReqProv: no\n%description\n{}\n%install\nmkdir -p %{{buildroot}}/usr\n\
             cp -a {}/. %{{buildroot}}/usr/\n%files\n{}\n",
            release.version,
            release.summary,
            release.licence,
            release.homepage,
            release.description.replace("\n.\n", "\n\n"),
            tree.root.display(),
            files.join("\n")
        ),
    )?;
    let define = |name: &str, value: &str| format!("{name} {value}");
    let top = work.join("top").display().to_string();
    let defines = [
        define("_topdir", &top),
        define("_rpmdir", &top),
        define("_rpmfilename", "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"),
        // The same bytes wherever and whenever it is made.
        define("_buildhost", "reproducible"),
        define("use_source_date_epoch_as_buildtime", "1"),
        define("clamp_mtime_to_source_date_epoch", "1"),
        define("source_date_epoch_from_changelog", "0"),
        define("__os_install_post", "%{nil}"),
        define("debug_package", "%{nil}"),
        define("_build_id_links", "none"),
    ];
    let mut build = std::process::Command::new("rpmbuild");
    build.args(["-bb", "--quiet", "--target", &format!("{}-linux", arch.name())]);
    for define in &defines {
        build.args(["--define", define]);
    }
    // rpmbuild takes paths of the tree into its own folders only; HOME would add a person's macros.
    sh::run(build.arg(&spec).env("SOURCE_DATE_EPOCH", &release.epoch).env("HOME", &work))?;
    let name = format!("bcmr-{}-1.{}.rpm", release.version, arch.name());
    fs::rename(work.join("top").join(&name), out.join(&name))?;
    Ok(out.join(name))
}
