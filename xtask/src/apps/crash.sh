# A power failure as far as processes go: every process of the cluster and of its containers dies at once.
in_container() {
    awk -v data="$DATA" '$5 == "/" && index($0, data) { found = 1 } END { exit !found }' /proc/$1/mountinfo 2>/dev/null
}

start_ledgers
for path in /proc/[0-9]*; do
    pid=${path#/proc/}
    if in_container $pid || tr '\0' ' ' <$path/cmdline 2>/dev/null | grep -q "knarr.*$DATA"; then
        kill -9 $pid 2>/dev/null || true
    fi
done
knarr up -d --nodes 3 --data-dir "$DATA"
# The logs of the dead ledgers name the writes that were acknowledged before the crash.
for database in postgres mariadb redis; do
    kubectl logs ledger-$database >before-$database
    [ "$(grep -c '^acknowledged ' before-$database)" -ge 20 ] || fail "the log of ledger-$database is lost"
done
within 120 databases_ready
start_ledgers
for database in postgres mariadb redis; do
    kubectl exec -i ledger-$database -- python3 /scripts/ledger.py $database verify <before-$database
done
check_ledgers
