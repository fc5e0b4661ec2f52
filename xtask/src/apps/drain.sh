# The volumes are directories of one node: a drained database waits until its node may run pods again.
start_ledgers
node=$(kubectl get pod postgres-0 -o jsonpath={.spec.nodeName})
kubectl drain $node --ignore-daemonsets --delete-emptydir-data --force --timeout=120s --pod-selector='app in (postgres,mariadb,redis)'
within 30 phase_is postgres-0 Pending
kubectl uncordon $node
within 90 databases_ready
check_ledgers
