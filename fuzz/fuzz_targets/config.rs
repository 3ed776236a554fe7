//! A configuration of any text: it is understood, or refused with its file, its line and harmless words.
#![no_main]

#[path = "../../crates/bcmr/src/address.rs"]
#[allow(dead_code)] // the program's own files, of which this needs a part
mod address;
#[path = "../../crates/bcmr/src/config.rs"]
#[allow(dead_code)]
mod config;
#[path = "../../crates/bcmr/src/names.rs"]
#[allow(dead_code)]
mod names;
#[path = "../../crates/bcmr/src/cli/bcmr/size.rs"]
#[allow(dead_code)]
mod size;
#[path = "../../crates/bcmr/src/usage.rs"]
mod usage;
#[path = "../../crates/bcmr/src/values.rs"]
#[allow(dead_code)]
mod values;

/// Where the program has what is above.
mod cli {
    pub mod bcmr {
        pub(crate) use crate::size;
    }
}

use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|text: &str| {
    let file = Path::new("/c/config.toml");
    let read = match config::parse(text, file) {
        Ok(read) => read,
        Err(e) => {
            let (_, rest) = e.said.split_once("'/c/config.toml' line ").expect("the file is named");
            let line: usize = rest.split(':').next().and_then(|n| n.parse().ok()).expect("the line is named");
            assert!((1..=text.split('\n').count()).contains(&line), "{}", e.said);
            assert!(!e.said.chars().any(names::is_unsafe), "{:?}", e.said);
            return;
        }
    };
    // A key that nobody knows is never passed over, before all others or in a table of its own.
    for more in
        [format!("boostrap = false\n{text}"), format!("{text}\n[host.\"\u{7f}\"]\nboostrap = false\n")]
    {
        assert!(config::parse(&more, file).is_err(), "{more:?}");
    }
    // What is said of one host holds for no other, and before what is said for all.
    let all = read.of("a host that no table names");
    let own = "[host.\"\\u007f\"]\nretries = 77\n";
    if let Ok(more) = config::parse(&format!("{text}\n{own}"), file) {
        let its = more.of("\u{7f}");
        assert_eq!(its.retries, Some(77));
        assert_eq!((its.ssh, its.bootstrap, its.direct), (all.ssh.clone(), all.bootstrap, all.direct));
        assert_eq!(more.of("a host that no table names"), all);
    }
});
