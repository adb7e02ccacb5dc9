# Completion of albert for fish, written by: albert completion fish
function __albert_at
    set -l words (commandline -opc)
    set -l last (math 1 + (count $argv))
    test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"
end
function __albert_words
    test (count (commandline -opc)) -eq $argv[1]
end
