# Completion of thinwire for fish. As in that for bash, commands, their words and options come from
# `thinwire help`, so this file needs no update. Files are offered where nothing else is.
function __thinwire_verb
    set -l skip no
    for word in (commandline -opc)[2..]
        if test $skip = yes
            set skip no
        else if contains -- $word --config --socket
            set skip yes
        else if not string match -q -- '-*' $word
            echo $word
            return
        end
    end
    return 1
end

function __thinwire_at_verb # the word before the present one is the verb
    set -l verb (__thinwire_verb)
    and test (commandline -opc)[-1] = $verb
end

function __thinwire_verbs
    thinwire help 2>/dev/null | sed -n 's/^  \([a-z][a-zA-Z, ]*[a-zA-Z]\)   *.*/\1/p' |
        sed 's/, /\n/g' | cut -d' ' -f1
    echo help
end

function __thinwire_words
    set -l verb (__thinwire_verb)
    thinwire help $verb 2>/dev/null |
        sed -n "s/^thinwire $verb \[\{0,1\}\([a-z|]*\).*/\1/p" | tr '|' '\n' | grep .
end

function __thinwire_options
    echo --json
    echo --config
    echo --socket
    echo --color
    echo --help
    thinwire help (__thinwire_verb) 2>/dev/null | grep -oE -- '--[a-z][a-z-]+'
end

function __thinwire_after
    test (commandline -opc)[-1] = $argv[1]
end

complete -c thinwire -f -n 'not __thinwire_verb' -a '(__thinwire_verbs)'
complete -c thinwire -f -n '__thinwire_after help' -a '(__thinwire_verbs)'
complete -c thinwire -f -n '__thinwire_at_verb; and test -n "$(__thinwire_words)"' -a '(__thinwire_words)'
complete -c thinwire -n 'string match -q -- "-*" (commandline -ct)' -a '(__thinwire_options)'
complete -c thinwire -f -n '__thinwire_after --model' -a '(thinwire run models --json 2>/dev/null | sed -n \'s/.*"name": *"\([^"]*\)".*/\1/p\')'
complete -c thinwire -f -n '__thinwire_after --preset' -a '(thinwire run presets --json 2>/dev/null | sed -n \'s/.*"sync.preset": *"\([^"]*\)".*/\1/p\')'
