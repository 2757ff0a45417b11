# Completion of the command hakmem for bash; derived by tools/gen_docs.py (make docs).
_hakmem() {
    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='run inspect report record diff set top export serve-metrics bench soak tune options doctor version'
    else
        case $verb in
            run) words='--help -q --quiet --json --summary-file --mode --set --library' ;;
            inspect) words='--help --json --blocks --freeze --events --decisions --signals --heap --all' ;;
            report) words='--help -o --output --series --freeze' ;;
            record) words='--help --every --for -o --output' ;;
            diff) words='--help --fail-above --fail-above-percent --json --all' ;;
            set) words='--help --wait --json' ;;
            top) words='--help --interval --once --json --output' ;;
            export) words='--help --json' ;;
            serve-metrics) words='--help --listen' ;;
            bench) words='--help --quick --workloads --reps --cpu --seed --scale --counts --no-counts --instructions --programs --allocators --allocator --output --baseline --metric --html --json' ;;
            soak) words='--help --minutes --allocator --threads --seed --interval-ms --output --json --leak --slowdown' ;;
            tune) words='--help --runs --goal --metric -o --output --any-build --timeout --check --pid --for --json --library' ;;
            options) words='--help --json' ;;
            doctor) words='--help --json --library' ;;
            version) words='--help --json' ;;
        esac
        case $word in
            -*) ;;
            *) compopt -o default; words= ;;
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _hakmem hakmem ./hakmem
