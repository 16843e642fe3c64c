//! `ccm completions SHELL`: a script that completes commands, flags and words of choices.
//!
//! All three are made from the same lists: the commands, and the table of settings. Names of
//! nodes and Services are not completed: that would ask the cluster at every key.

use super::output::{Exit, Printer, usage};
use super::{commands, explain, topics};
use crate::settings::{Command, Kind, Setting, TABLE};
use std::ffi::OsString;

const SHELLS: &[&str] = &["bash", "zsh", "fish"];

pub(super) fn completions(words: &[OsString]) -> Exit {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        ["-h" | "--help"] => Printer::stdout(&commands::help("completions")),
        ["bash"] => Printer::stdout(&posix(BASH)),
        ["zsh"] => Printer::stdout(&posix(ZSH)),
        ["fish"] => Printer::stdout(&fish()),
        [other] => commands::unknown("shell", other, SHELLS),
        _ => usage("completions takes one word: bash, zsh or fish"),
    }
}

/// Both shells run the same two functions; only what surrounds them differs. `$1` is what stands
/// before the word to complete, `$2` the flag whose value it is, if any.
const BASH: &str = "\
# bash completion of ccm: source <(ccm completions bash)
_ccm() {
    local word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} equals=
    if [[ $word == = ]]; then word= equals=yes
    elif [[ $flag == = ]]; then flag=${COMP_WORDS[COMP_CWORD-2]} equals=yes
    fi
    local values=$(_ccm_values \"$flag\" $equals)
    case $values in
        '') COMPREPLY=($(compgen -W \"$(_ccm_words \"${COMP_WORDS[@]:1:COMP_CWORD-1}\")\" -- \"$word\")) ;;
        FILE) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$word\")) ;;
        ANY) COMPREPLY=() ;;
        *) COMPREPLY=($(compgen -W \"$values\" -- \"$word\")) ;;
    esac
}
complete -F _ccm ccm
";

const ZSH: &str = "\
#compdef ccm
# zsh completion of ccm: source <(ccm completions zsh), or a file _ccm in $fpath
_ccm() {
    local flag=${words[CURRENT-1]} equals= values
    if [[ ${words[CURRENT]} == --*=* ]]; then
        flag=${words[CURRENT]%%=*} equals=yes
        compset -P '*='
    fi
    values=$(_ccm_values \"$flag\" $equals)
    case $values in
        '') compadd -- ${=$(_ccm_words \"${(@)words[2,CURRENT-1]}\")} ;;
        FILE) _files ;;
        ANY) ;;
        *) compadd -- ${=values} ;;
    esac
}
compdef _ccm ccm
";

fn posix(shell: &str) -> String {
    let mut text = format!("{shell}\n_ccm_values() {{\n    case $1 in\n");
    for setting in TABLE.iter().filter(|setting| !setting.hidden) {
        if let (Some(names), Some(values)) = (names(setting, "|"), values(setting)) {
            text += &format!("        {names}) echo '{values}' ;;\n");
        }
    }
    text += "    esac\n    [ -n \"$2\" ] || return 0\n    case $1 in\n";
    for setting in TABLE.iter().filter(|setting| !setting.takes_value()) {
        if let Some(names) = names(setting, "|") {
            text += &format!("        {names}) echo 'true false' ;;\n");
        }
    }
    text += "    esac\n}\n_ccm_words() {\n    case \"$1 $2\" in\n";
    for command in Command::ALL.iter().rev() {
        let flags = flags(*command);
        let name = command.name();
        let pattern = match command {
            // A flag as first word is the daemon's.
            Command::Run => format!("{name}\\ *|-*"),
            _ if name.contains(' ') => name.replace(' ', "\\ "),
            _ => format!("{name}\\ *"),
        };
        text += &format!("        {pattern}) echo '{flags}' ;;\n");
    }
    for (word, below) in below() {
        text += &format!("        {word}\\ |help\\ {word}) echo '{below}' ;;\n");
    }
    let top = commands::top().join(" ");
    text + &format!("        ' ') echo '{top} --help --version' ;;\n    esac\n}}\n")
}

const FISH: &str = "\
# fish completion of ccm: ccm completions fish | source
function __ccm_is
    set -l words (commandline -opc)
    set -e words[1]
    switch \"$words[1] $words[2]\"
        case $argv
            return 0
    end
    return 1
end
complete -c ccm -f
";

fn fish() -> String {
    let mut text = FISH.to_owned();
    let top = commands::top().join(" ");
    text += &format!("complete -c ccm -n \"__ccm_is ' '\" -a '{top}'\n");
    for (word, below) in below() {
        let is = format!("\"__ccm_is '{word} ' 'help {word}'\"");
        text += &format!("complete -c ccm -n {is} -a '{below}'\n");
    }
    for setting in TABLE.iter().filter(|setting| !setting.hidden) {
        let commands = Command::ALL.iter();
        let commands = commands.filter(|command| setting.is_for(**command));
        let commands: String = commands.map(|command| fish_pattern(*command)).collect();
        let values = match values(setting).as_deref() {
            None => " -a 'true false'".to_owned(),
            Some("FILE") => " -rF".to_owned(),
            Some("ANY") => " -x".to_owned(),
            Some(values) => format!(" -x -a '{values}'"),
        };
        let first = setting.help.split(['.', ':', ';']).next();
        let about = first.unwrap_or_default().replace('\'', "\\'");
        let mut short = setting.short.map(|letter| format!(" -s {letter}"));
        for flag in setting.flags {
            let short = short.take().unwrap_or_default();
            text += &format!(
                "complete -c ccm -n \"__ccm_is{commands}\" -l {flag}{short}{values} -d '{about}'\n"
            );
        }
    }
    text
}

fn fish_pattern(command: Command) -> String {
    match command.name() {
        "run" => " 'run *' '-*'".to_owned(),
        name if name.contains(' ') => format!(" '{name}'"),
        name => format!(" '{name} *'"),
    }
}

/// What follows a word that is no whole command.
fn below() -> Vec<(&'static str, String)> {
    let top = commands::top();
    let topics: Vec<&str> = top.iter().copied().chain(topics::names()).collect();
    let mut below = vec![
        ("help", topics.join(" ")),
        ("completions", SHELLS.join(" ")),
        ("explain", explain::names().join(" ")),
    ];
    for word in top {
        let verbs = commands::verbs(word);
        if !verbs.is_empty() {
            below.push((word, verbs.join(" ")));
        }
    }
    below
}

/// `--output|-o`; none without a flag.
fn names(setting: &Setting, between: &str) -> Option<String> {
    let flags = setting.flags.iter();
    let mut names: Vec<String> = flags.map(|flag| format!("--{flag}")).collect();
    names.extend(setting.short.map(|letter| format!("-{letter}")));
    (!setting.flags.is_empty()).then(|| names.join(between))
}

fn flags(command: Command) -> String {
    let settings = TABLE.iter();
    let settings = settings.filter(|setting| !setting.hidden && setting.is_for(command));
    let names: Vec<String> = settings.filter_map(|setting| names(setting, " ")).collect();
    names.join(" ") + " --help"
}

/// What can be written after the flag: words, `FILE`, or `ANY`thing; none after a boolean.
fn values(setting: &Setting) -> Option<String> {
    match setting.kind {
        Kind::Boolean => None,
        Kind::Choice(words) => Some(words.join(" ")),
        Kind::Path => Some("FILE".to_owned()),
        Kind::Text(_)
        | Kind::Duration
        | Kind::Integer
        | Kind::Number
        | Kind::List(_)
        | Kind::Url => Some("ANY".to_owned()),
    }
}
