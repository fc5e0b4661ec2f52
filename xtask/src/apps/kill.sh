start_ledgers
# The containers of each pod share a PID namespace, so the database is not PID 1 and can be killed from inside.
kubectl exec postgres-0 -- pkill -9 -o -x postgres
kubectl exec mariadb-0 -- pkill -9 -x mariadbd
kubectl exec redis-0 -- pkill -9 -x redis-server
for database in postgres mariadb redis; do
    within 60 restarted $database-0
done
within 60 databases_ready
check_ledgers
