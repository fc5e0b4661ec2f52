# bash completion for kubectl                              -*- shell-script -*-

__start_kubectl()
{
    local cur cword words out directive line candidate
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref -n "=:" cur cword words
    else
        cur=${COMP_WORDS[COMP_CWORD]}
        cword=$COMP_CWORD
        words=("${COMP_WORDS[@]}")
    fi
    out=$("${words[0]}" __complete "${words[@]:1:cword}" 2>/dev/null) || return
    directive=${out##*:}
    out=${out%:*}
    # Bash completes the part behind the equal sign.
    if [[ $cur == -*=* ]]; then
        cur=${cur#*=}
    fi
    if (( directive & 1 )); then
        return
    fi
    if (( directive & 8 )); then
        local pattern
        while IFS= read -r line; do
            [[ -n $line ]] && pattern="${pattern:+$pattern|}$line"
        done <<< "$out"
        compopt -o filenames 2>/dev/null
        while IFS= read -r candidate; do
            if [[ -d $candidate ]] || [[ $candidate =~ \.($pattern)$ ]]; then
                COMPREPLY+=("$candidate")
            fi
        done < <(compgen -f -- "$cur")
        return
    fi
    while IFS= read -r line; do
        candidate=${line%%$'\t'*}
        [[ -n $candidate && $candidate == "$cur"* ]] && COMPREPLY+=("$(printf '%q' "$candidate")")
    done <<< "$out"
    if (( directive & 2 )); then
        compopt -o nospace 2>/dev/null
    fi
    if (( (directive & 4) == 0 )) && (( ${#COMPREPLY[@]} == 0 )); then
        compopt -o default 2>/dev/null
    fi
    if declare -F __ltrim_colon_completions >/dev/null 2>&1; then
        __ltrim_colon_completions "$cur"
    fi
}

complete -F __start_kubectl kubectl
