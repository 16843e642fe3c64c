# bash completion of ccm: source <(ccm completions bash)
_ccm() {
    local line=${COMP_LINE:0:COMP_POINT} words begun word offered
    read -ra words <<<"${line#*"$1"}"
    [[ $line != *[[:blank:]] ]] || words+=("")
    offered=$("$1" completions -- "${words[@]}" 2>/dev/null | cut -d' ' -f1)
    begun=${words[${#words[@]} - 1]}
    [[ $begun != --*=* ]] || begun=${begun#*=}
    # readline replaces only what follows the last of these, e.g. of a context name@cluster:port.
    word=${begun##*["$COMP_WORDBREAKS"]}
    if [[ $offered == FILE ]]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$word"))
    else
        COMPREPLY=($(compgen -W "$offered" -- "$begun"))
        COMPREPLY=("${COMPREPLY[@]#"${begun%"$word"}"}")
    fi
}
complete -F _ccm ccm
