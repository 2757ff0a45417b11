# Starts a server, loads it as the first argument says, and ends it. $2: requests of each kind.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
port=$((20000 + $$ % 20000))
redis-server --port $port --bind 127.0.0.1 --save '' --appendonly no --dir "$folder" --logfile log &
server=$!
until redis-cli -p $port ping >/dev/null 2>&1; do sleep 0.05; done
load() { redis-benchmark -q -p $port -c 10 -P 16 "$@" >/dev/null; }
case $1 in
learn) load -n "$2" -r 100000 -d 100 -t set,get,lpush ;;
more) load -n "$2" -r 70000 -d 160 -t set,get,lpush ;;
check)
    load -n "$2" -r 80000 -d 200 -t set,sadd,hset,rpush
    load -n "$2" -r 60000 -d 40 -t set,get,zadd,lpush
    ;;
esac
redis-cli -p $port shutdown nosave || true
wait $server
