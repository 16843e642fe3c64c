# bash completion of ccm: source <(ccm completions bash)
_ccm() {
    local word=${COMP_WORDS[COMP_CWORD]} offered
    offered=$("${COMP_WORDS[0]}" completions -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -d' ' -f1)
    [[ $word != = ]] || word=
    if [[ $offered == FILE ]]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$word"))
    else
        COMPREPLY=($(compgen -W "$offered" -- "$word"))
    fi
}
complete -F _ccm ccm
