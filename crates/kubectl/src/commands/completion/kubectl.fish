# fish completion for kubectl                              -*- shell-script -*-

function __kubectl_complete
    set -l args (commandline -opc)
    set -l last (commandline -ct)
    set -l lines ($args[1] __complete $args[2..-1] "$last" 2>/dev/null)
    test (count $lines) -gt 0; or return
    set -l directive (string sub -s 2 -- $lines[-1])
    set -e lines[-1]
    set -l prefix (string match -r -- '^-[^=]*=' "$last")
    if test (math "bitand($directive, 8)") -ne 0
        set -l pattern '(/|\.('(string join '|' $lines)'))(\t|$)'
        for file in (__fish_complete_path (string replace -- "$prefix" '' "$last"))
            string match -qr -- $pattern $file; and echo "$prefix$file"
        end
        return
    end
    for line in $lines
        echo "$prefix$line"
    end
    if test (count $lines) -eq 0; and test (math "bitand($directive, 4)") -eq 0
        __fish_complete_path "$last"
    end
end

complete -c kubectl -e
complete -c kubectl -f -a '(__kubectl_complete)'
