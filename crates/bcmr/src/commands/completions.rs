//! `completions`: for bash, zsh and fish a function that asks `bcmr complete` what may stand where the cursor is; for other
//! shells a script made from the definitions.

use crate::cli::{bcmr, init};
use clap_complete::Shell;

// Bash breaks words at colons and equals signs, which belong to them here. What is put in their place is then the end of
// what stands there. A word that the shell still has to expand or unquote is the shell's to complete. What an alias stands for is asked about, and aliases that are there already are completed too.
const BASH: &str = r#"_bcmr() {
  local i word words line=() index=0 count=0 join=0 cur candidates
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
  if [[ $cur == [\~\$\'\"]* || $cur == *\\* ]]; then
    COMPREPLY=()
    compopt -o default
    return
  fi
  if [[ ${BASH_ALIASES[${line[0]}]-} == 'bcmr '* ]]; then
    read -ra words <<<"${BASH_ALIASES[${line[0]}]}"
    line=("${words[@]}" "${line[@]:1}")
    index=$((index + ${#words[@]} - 1))
  fi
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
for _bcmr_alias in "${!BASH_ALIASES[@]}"; do
  [[ ${BASH_ALIASES[$_bcmr_alias]} == 'bcmr '* ]] && complete -o nosort -F _bcmr "$_bcmr_alias"
done
unset _bcmr_alias
"#;

// An alias that zsh does not resolve by itself (`setopt complete_aliases`) is resolved here.
const ZSH: &str = r#"#compdef bcmr
_bcmr() {
  if [[ ${words[CURRENT]} == [\~\$\'\"]* || ${words[CURRENT]} == *\\* ]]; then
    _files
    return
  fi
  local line index=$((CURRENT - 1)) candidates=() values=() open=() asked=("${words[@]}")
  if [[ ${aliases[${words[1]}]-} == 'bcmr '* ]]; then
    asked=(${(z)aliases[${words[1]}]} "${(@)words[2,-1]}")
    index=$((index + ${#asked} - ${#words}))
  fi
  while IFS= read -r line; do
    values+=("${line%%$'\t'*}")
  done < <(bcmr complete --index $index -- "${asked[@]}" 2>/dev/null)
  for line in "${values[@]}"; do
    if [[ $line == *[/:=] ]]; then open+=("$line"); else candidates+=("$line"); fi
  done
  ((${#candidates})) && compadd -Q -- "${(@q)candidates}"
  ((${#open})) && compadd -Q -S '' -- "${(@q)open}"
}
if [ "$funcstack[1]" = "_bcmr" ]; then _bcmr "$@"; elif (( $+functions[compdef] )); then compdef _bcmr bcmr ${(k)aliases[(R)bcmr *]}; fi
"#;

// Each statement ends with a semicolon: `eval (...)` joins lines by spaces. An alias is a function whose description says
// what it stands for.
const FISH: &str = r#"function __bcmr_complete;
  set -l line (commandline -opc);
  set -l stands (functions -- $line[1] 2>/dev/null | string replace -rf ".*--description '?alias [^ =]+[ =](bcmr [^']*)'?.*" '$1');
  set -q stands[1]; and set line (string split -n ' ' -- $stands[1]) $line[2..-1];
  bcmr complete --index (count $line) -- $line (commandline -ct) 2>/dev/null;
end;
complete -c bcmr -f -a '(__bcmr_complete)';
"#;

/// What a shell is to be told about `bcmr` and the aliases that are there.
pub fn script(shell: init::Shell) -> &'static str {
    match shell {
        init::Shell::Bash => BASH,
        init::Shell::Zsh => ZSH,
        init::Shell::Fish => FISH,
    }
}

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
