# fish completion of ccm: ccm completions fish | source
function __ccm_offered
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l last (commandline -ct)
    set -l offered ($program completions -- $words "$last" 2>/dev/null)
    set -l flag (string match -r -- '^--[^=]*=' "$last")
    if test "$offered[1]" = FILE
        printf '%s\n' "$flag"(__fish_complete_path (string replace -- "$flag" '' "$last"))
    else
        for line in $offered
            printf '%s\n' "$flag"(string replace -- ' ' \t "$line")
        end
    end
end
complete -c ccm -f -a '(__ccm_offered)'
