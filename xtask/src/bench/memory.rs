//! `cargo xtask bench memory`: nothing may hold the whole tree, so a million files must fit in little memory.

use super::data::Set;
use super::{Options, binary, measure};
use crate::sh::{self, Result};

/// What any verb may take.
const MOST_MIB: f64 = 64.0;

pub fn run(options: &Options) -> Result {
    let files = if options.quick { 100_000 } else { 1_000_000 };
    let bcmr = binary(options)?.to_string_lossy().into_owned();
    let shapes = [
        ("1,000 directories", Set::Even { dirs: 1000, files_per_dir: files / 1000, bytes: 16 }),
        ("one directory", Set::Even { dirs: 1, files_per_dir: files, bytes: 16 }),
    ];
    let mut over = 0;
    for (shape, set) in shapes {
        let (src, size) = set.make(&options.dir)?;
        let src = src.to_string_lossy().into_owned();
        let dst = options.dir.join("copy").to_string_lossy().into_owned();
        let base = dst.clone() + ".cp";
        sh::quiet("rm", &["-rf", &dst, &base])?;
        println!("{} files in {shape}:", size.files);
        let lines: [(&str, Vec<&str>); 6] = [
            ("cp -r (to compare with)", vec!["cp", "-r", &src, &base]),
            ("rm -rf (to compare with)", vec!["rm", "-rf", &base]),
            ("copy -r", vec![&bcmr, "copy", "-r", &src, &dst]),
            ("copy --archive, over it", vec![&bcmr, "copy", "--archive", "-T", &src, &dst]),
            ("check", vec![&bcmr, "check", "-r", "-T", &src, &dst]),
            ("remove -r", vec![&bcmr, "remove", "-r", "-f", &dst]),
        ];
        for (name, argv) in lines {
            let ours = argv[0] == bcmr;
            let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
            match measure::once(&argv) {
                Ok(sample) => {
                    let peak_mib = sample.peak_kib as f64 / 1024.0;
                    let good = !ours || peak_mib <= MOST_MIB;
                    over += usize::from(!good);
                    let word = if good { "" } else { "  OVER THE LIMIT" };
                    println!("  {name:26} {peak_mib:>8.1} MiB {:>8.2} s{word}", sample.wall_s);
                }
                Err(problem) => {
                    over += 1;
                    println!("  {name:26} FAILED: {problem}");
                }
            }
        }
    }
    if over == 0 {
        Ok(())
    } else {
        Err(format!("{over} runs failed or took more than {MOST_MIB} MiB").into())
    }
}
