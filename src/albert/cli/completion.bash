# Completion of albert for bash, written by: albert completion bash
_albert() {
    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="${COMP_WORDS[1]}"
    local place=2 words=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W @COMMANDS@ -- "$current"))
        return
    fi
    case "$command" in
@PARTS@
    esac
    case "$command $before" in
@VALUES@
    esac
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$current"))
        return
    fi
    case "$current" in
    -*)
        case "$command" in
@OPTIONS@
        esac
        COMPREPLY=($(compgen -W "$words" -- "$current"))
        return ;;
    esac
    if [ "$COMP_CWORD" -eq "$place" ]; then
        case "$command" in
@FIRST@
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current") $(compgen -f -- "$current"))
    compopt -o filenames 2>/dev/null
}
complete -F _albert albert
