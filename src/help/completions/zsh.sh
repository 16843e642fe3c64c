#compdef ccm
# zsh completion of ccm: source <(ccm completions zsh), or a file _ccm in $fpath
_ccm() {
    local -a offered
    offered=("${(@f)$("$words[1]" completions -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    offered=("${(@)offered%% *}")
    [[ ${words[CURRENT]} != --*=* ]] || compset -P '*='
    case "$offered[1]" in
        '') ;;
        FILE) _files ;;
        *) compadd -- "${(@)offered}" ;;
    esac
}
compdef _ccm ccm
