#compdef kubectl
compdef _kubectl kubectl

# zsh completion for kubectl                               -*- shell-script -*-

_kubectl()
{
    local out directive line name description
    local -a candidates lines extensions
    out=$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null) || return
    lines=("${(@f)out}")
    directive=${lines[-1]#:}
    lines=("${(@)lines[1,-2]}")
    if (( directive & 1 )); then
        return
    fi
    if [[ $PREFIX == -*=* ]]; then
        compset -P '*='
    fi
    if (( directive & 8 )); then
        extensions=('*.'${^lines})
        _files -g "(${(j:|:)extensions})"
        return
    fi
    for line in "${lines[@]}"; do
        [[ -n $line ]] || continue
        name=${line%%$'\t'*}
        description=
        [[ $line == *$'\t'* ]] && description=${line#*$'\t'}
        candidates+=("${name//:/\\:}${description:+:$description}")
    done
    local -a options
    (( directive & 2 )) && options=(-S '')
    if (( ${#candidates} )); then
        _describe 'completions' candidates "${options[@]}"
    elif (( (directive & 4) == 0 )); then
        _files
    fi
}

# Do not run the function when the script is sourced.
if [ "$funcstack[1]" = "_kubectl" ]; then
    _kubectl
fi
