//! `completions`: for bash, zsh and fish a function that asks `bcmr complete` what may stand where the cursor is; for other
//! shells a script made from the definitions.

use crate::cli::bcmr;
use clap_complete::Shell;

// Bash breaks words at colons and equals signs, which belong to them here. What is put in their place is then the end of
// what stands there.
const BASH: &str = r#"_bcmr() {
  local word line=() index=0 count=0 join=0 cur candidates
  for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
    word=${COMP_WORDS[i]}
    if ((join || i && count > 1)) && [[ $word == [:=]* || $join == 1 ]]; then
      line[count-1]+=$word
    else
      line[count++]=$word
    fi
    join=0
    [[ $word == *[:=] && $word != --* ]] && join=1
    ((i == COMP_CWORD)) && index=$((count - 1))
  done
  cur=${line[index]}
  mapfile -t candidates < <(bcmr complete --index "$index" -- "${line[@]}" 2>/dev/null)
  COMPREPLY=()
  local keep=${cur%"${cur##*[:=]}"}
  for word in "${candidates[@]}"; do
    word=${word%%$'\t'*}
    COMPREPLY+=("$(printf '%q' "${word#"$keep"}")")
  done
  if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *[/:=] ]]; then compopt -o nospace; fi
}
complete -o nosort -F _bcmr bcmr
"#;

const ZSH: &str = r#"#compdef bcmr
_bcmr() {
  local line candidates=() values=() notes=() open=() 
  while IFS= read -r line; do
    values+=("${line%%$'\t'*}")
  done < <(bcmr complete --index $((CURRENT - 1)) -- "${words[@]}" 2>/dev/null)
  for line in "${values[@]}"; do
    if [[ $line == *[/:=] ]]; then open+=("$line"); else candidates+=("$line"); fi
  done
  ((${#candidates})) && compadd -Q -- "${(@q)candidates}"
  ((${#open})) && compadd -Q -S '' -- "${(@q)open}"
}
if [ "$funcstack[1]" = "_bcmr" ]; then _bcmr "$@"; else compdef _bcmr bcmr; fi
"#;

const FISH: &str = r#"function __bcmr_complete
  set -l line (commandline -opc)
  bcmr complete --index (count $line) -- $line (commandline -ct) 2>/dev/null
end
complete -c bcmr -f -a '(__bcmr_complete)'
"#;

/// Prints them for one shell.
pub fn run(shell: Shell) -> u8 {
    match shell {
        Shell::Bash => super::verb::print(BASH),
        Shell::Zsh => super::verb::print(ZSH),
        Shell::Fish => super::verb::print(FISH),
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut bcmr::command(), "bcmr", &mut script);
            super::verb::print(&String::from_utf8_lossy(&script))
        }
    }
}
