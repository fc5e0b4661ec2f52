# Prepended to every script of `cargo xtask apps`.
fail() {
    echo "$*"
    exit 1
}

# within SECONDS COMMAND...: repeats the command until it succeeds.
within() {
    end=$(($(date +%s) + $1))
    shift
    until "$@" >within.out 2>&1; do
        if [ "$(date +%s)" -ge "$end" ]; then
            cat within.out
            fail "not in time: $*"
        fi
        sleep 1
    done
}

# start_ledgers: runs a client of each database that records which writes were acknowledged.
start_ledgers() {
    for database in postgres mariadb redis; do
        kubectl delete pod ledger-$database --ignore-not-found --wait
        kubectl apply -f - <<POD
apiVersion: v1
kind: Pod
metadata: {name: ledger-$database, labels: {app: ledger}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  securityContext: {runAsUser: 1000, runAsNonRoot: true}
  volumes: [{name: scripts, configMap: {name: scripts}}]
  containers:
  - name: ledger
    image: apps.local/debian:1
    command: [python3, -u, /scripts/ledger.py, $database]
    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: databases, key: password}}}]
    volumeMounts: [{name: scripts, mountPath: /scripts}]
POD
    done
    for database in postgres mariadb redis; do
        within 60 acknowledged $database 20
    done
}

# acknowledged DATABASE COUNT: true if the ledger of a database has seen this many more acknowledged writes in this run.
acknowledged() {
    [ "$(kubectl logs ledger-$1 | grep -c '^acknowledged ')" -ge "$2" ]
}

# check_ledgers: lets every ledger write a while longer, then compare what the database holds with what was acknowledged.
check_ledgers() {
    for database in postgres mariadb redis; do
        count=$(kubectl logs ledger-$database | grep -c '^acknowledged ')
        within 90 acknowledged $database $((count + 20))
        kubectl exec ledger-$database -- touch /tmp/stop
    done
    for database in postgres mariadb redis; do
        within 60 ended ledger-$database
        kubectl logs ledger-$database --tail=1
        phase_is ledger-$database Succeeded || fail "$(kubectl logs ledger-$database --tail=5)"
    done
}

ended() {
    phase_is $1 Succeeded || phase_is $1 Failed
}

phase_is() {
    [ "$(kubectl get pod $1 -o jsonpath={.status.phase})" = "$2" ]
}

restarted() {
    [ "$(kubectl get pod $1 -o jsonpath={.status.containerStatuses[0].restartCount})" -ge 1 ]
}

databases_ready() {
    for database in postgres mariadb redis; do
        kubectl rollout status statefulset $database --timeout=1s || return 1
    done
}

autoscaler_has_metrics() {
    kubectl get hpa shop -n shop -o jsonpath={.status.currentMetrics[0].resource.current.averageUtilization} | grep -q '[0-9]'
}
