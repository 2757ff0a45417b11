# A cluster of its own, loaded by pgbench as the first argument says. $2: transactions of a client.
set -e
binaries=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
folder=$(mktemp -d)
as=
if [ "$(id -u)" = 0 ]; then
    chown nobody "$folder"
    as='setpriv --reuid=nobody --clear-groups'
fi
trap 'rm -rf "$folder"' EXIT
# The empty cluster is made once for each user.
cluster=${TMPDIR:-/tmp}/hakmem-postgres-$(id -u)
if [ ! -d "$cluster" ]; then
    (cd "$folder" && $as "$binaries/initdb" -D made -A trust -U postgres --no-sync >/dev/null)
    mv "$folder/made" "$cluster"
fi
cd "$folder"
cp -rp "$cluster" data
options="-p $((20000 + $$ % 20000)) -h 127.0.0.1 -U postgres"
$as "$binaries/postgres" -D data -p $((20000 + $$ % 20000)) -h 127.0.0.1 -k "$folder" -F >log 2>&1 &
server=$!
until "$binaries/pg_isready" -q $options; do sleep 0.05; done
"$binaries/pgbench" $options -i -q -s 2 postgres 2>/dev/null
case $1 in
learn)
    echo "SELECT count(*), string_agg(md5(aid::text), ',' ORDER BY abalance, aid) FROM pgbench_accounts
WHERE aid < 20000;" >query
    "$binaries/pgbench" $options -n -b tpcb-like@7 -f query@1 -c 2 -t "$2" postgres >/dev/null
    ;;
check)
    echo "SELECT bid, json_agg(json_build_object('a', aid, 'f', filler)) FROM pgbench_accounts
WHERE aid % 17 = 0 GROUP BY bid;" >query
    "$binaries/pgbench" $options -n -b select-only@9 -f query@1 -c 2 -t "$2" postgres >/dev/null
    ;;
esac
kill -INT $server
wait $server
