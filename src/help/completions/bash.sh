# bash completion of ccm: source <(ccm completions bash)
_ccm() {
    local line=${COMP_LINE:0:COMP_POINT} words begun word offered one
    read -ra words <<<"${line#*"$1"}"
    [[ $line != *[[:blank:]] ]] || words+=("")
    offered=$("$1" completions -- "${words[@]}" 2>/dev/null)
    begun=${words[${#words[@]} - 1]}
    [[ $begun != --*=* ]] || begun=${begun#*=}
    # readline replaces only what follows the last of these, e.g. of a context name@cluster:port.
    word=${begun##*["$COMP_WORDBREAKS"]}
    COMPREPLY=()
    # Line by line, and without compgen -W, which would expand and run what is offered.
    if [[ $offered == FILE ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r one; do
            COMPREPLY+=("$one")
        done < <(compgen -f -- "$word")
    else
        while IFS= read -r one; do
            one=${one%% *}
            [[ -z $one || $one != "$begun"* ]] || COMPREPLY+=("${one#"${begun%"$word"}"}")
        done <<<"$offered"
    fi
}
complete -F _ccm ccm
