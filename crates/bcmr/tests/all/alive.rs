//! Nothing waits for ever: what both ends do when one of them, the line, the store or the machine fails in the middle.

use crate::common::remote::*;
use crate::common::*;
use std::os::unix::fs::FileExt;

/// A block of the store whose file was written into without a trace is asked for once more, all of it.
#[test]
fn an_upload_ends_whose_block_is_no_longer_in_the_store() {
    let far = Far::pipe();
    let tmp = Tmp::new();
    let src = tmp.file("src", noise(3, 24 << 20));
    Dir::Put.copy(&far, "-T", &src, &far.home().join("first")).run().ok();
    let landed = std::fs::File::options().write(true).open(far.home().join("first")).unwrap();
    let kept = landed.metadata().unwrap().modified().unwrap();
    landed.write_all_at(b"gone", (9 << 20) + 5).unwrap();
    landed.set_modified(kept).unwrap();
    Dir::Put.copy(&far, "-T", &src, &far.home().join("second")).run().ok();
    assert!(std::fs::read(far.home().join("second")).unwrap() == std::fs::read(&src).unwrap());
}
