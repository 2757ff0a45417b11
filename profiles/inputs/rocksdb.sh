# db_bench on a database of its own, two threads and small memtables, as in bench/programs/rocksdb.py. $2: keys of a thread.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
load() {
    db_bench --db="$folder/db" --threads=2 --num="$keys" --compression_type=none --disable_wal=true \
        --write_buffer_size=4194304 --cache_size=8388608 --open_files=64 "$@" >/dev/null 2>&1
}
keys=$2
case $1 in
learn) load --seed=1 --benchmarks=fillrandom,overwrite,readrandom,seekrandom ;;
more) load --seed=7 --value_size=400 --benchmarks=fillseq,readwhilewriting,deleterandom,readseq ;;
check) load --seed=3 --value_size=60 --benchmarks=filluniquerandom,updaterandom,readrandomwriterandom,readreverse,compact ;;
esac
