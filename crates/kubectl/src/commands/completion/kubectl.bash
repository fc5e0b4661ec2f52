# bash completion for kubectl                              -*- shell-script -*-

# Sets words to the words up to the cursor. Bash also splits at colons and equal signs.
__kubectl_words()
{
    local line=$COMP_LINE word
    words=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ ${#words[@]} -eq 0 || $line == [[:blank:]]* ]]; then
            words+=("$word")
        else
            words[${#words[@]}-1]+=$word
        fi
        line=${line#"${line%%[![:blank:]]*}"}
        line=${line#"$word"}
    done
}

__start_kubectl()
{
    local cur done words out directive line candidate
    COMPREPLY=()
    __kubectl_words
    cur=${words[${#words[@]}-1]}
    out=$("${words[0]}" __complete "${words[@]:1}" 2>/dev/null) || return
    directive=${out##*:}
    out=${out%:*}
    # Bash completes the part after the equal sign.
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
    # Bash completes the part after the last colon.
    done=
    if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then
        done=${cur%"${cur##*:}"}
    fi
    while IFS= read -r line; do
        candidate=${line%%$'\t'*}
        if [[ -n $candidate && $candidate == "$cur"* ]]; then
            printf -v candidate '%q' "${candidate#"$done"}"
            # A comma needs no quotes.
            COMPREPLY+=("${candidate//\\,/,}")
        fi
    done <<< "$out"
    if (( directive & 2 )); then
        compopt -o nospace 2>/dev/null
    fi
    if (( (directive & 4) == 0 )) && (( ${#COMPREPLY[@]} == 0 )); then
        compopt -o default 2>/dev/null
    fi
}

complete -F __start_kubectl kubectl
