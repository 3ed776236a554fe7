//! Which experiments a person means. Knows their ids and nothing else of them.

use sh::Result;
use std::collections::BTreeSet;

/// The ids that are meant, in the order of the catalogue. Words are separated by commas or stand alone: an id
/// (`wire-9`), a group (`wire`), `all`, and for the paper's numbered ones a number or a range (`9`, `1-6`).
pub fn chosen<'a>(words: &[&str], ids: &[&'a str]) -> Result<Vec<&'a str>> {
    let mut wanted = BTreeSet::new();
    for word in words.iter().flat_map(|w| w.split(',')).map(str::trim).filter(|w| !w.is_empty()) {
        let range = range(word)?;
        let meant = |id: &str| {
            let (group, number) = id.split_once('-').unwrap_or((id, ""));
            // The paper and the library have no numbers of their own.
            let numbered = matches!(group, "local" | "wire" | "checkpoint");
            let within = |(least, most): (u32, u32)| {
                number.parse().is_ok_and(|n| numbered && (least..=most).contains(&n))
            };
            word == "all" || id == word || group == word || range.is_some_and(within)
        };
        let found: Vec<usize> = (0..ids.len()).filter(|n| meant(ids[*n])).collect();
        if found.is_empty() {
            return Err(format!("no experiment {word:?}; there are: all {}", ids.join(" ")).into());
        }
        wanted.extend(found);
    }
    if wanted.is_empty() {
        return Err("name experiments, or all; --list shows them".into());
    }
    Ok(wanted.into_iter().map(|n| ids[n]).collect())
}

/// `9` and `1-6`; `None` for what is no number.
fn range(word: &str) -> Result<Option<(u32, u32)>> {
    let (least, most) = word.split_once('-').unwrap_or((word, word));
    let (Ok(least), Ok(most)) = (least.parse(), most.parse()) else { return Ok(None) };
    if least > most {
        return Err(format!("{word}: from the smaller to the larger").into());
    }
    Ok(Some((least, most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_experiments() {
        const IDS: [&str; 7] =
            ["checkpoint-1", "checkpoint-2", "local-7", "wire-9", "wire-20", "paper-1", "library-7"];
        type Expected = std::result::Result<&'static [&'static str], &'static str>;
        let table: [(&[&str], Expected); 12] = [
            (&["all"], Ok(&IDS)),
            (&["wire-9"], Ok(&["wire-9"])),
            (&["wire,local"], Ok(&["local-7", "wire-9", "wire-20"])),
            (&["20", "7"], Ok(&["local-7", "wire-20"])),
            (&["1-9"], Ok(&["checkpoint-1", "checkpoint-2", "local-7", "wire-9"])),
            (&["paper"], Ok(&["paper-1"])),
            (&["wire-9", "9", "wire-9"], Ok(&["wire-9"])),
            (&["9-1"], Err("smaller")),
            (&["wire-21"], Err("no experiment \"wire-21\"")),
            (&["21"], Err("no experiment \"21\"")),
            (&["wired"], Err("no experiment")),
            (&[","], Err("name experiments")),
        ];
        for (words, expected) in table {
            match (chosen(words, &IDS), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{words:?}"),
                (Err(e), Err(part)) => assert!(e.to_string().contains(part), "{words:?}: {e}"),
                (found, expected) => panic!("{words:?}: {found:?} instead of {expected:?}"),
            }
        }
    }
}
