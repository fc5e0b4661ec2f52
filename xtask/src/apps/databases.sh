kubectl create secret generic databases --from-literal=password="$(openssl rand -hex 16)"
kubectl create configmap scripts --from-file=ledger.py --from-file=load.py --from-file=shop.py
# Asks the image itself which users its packages made.
kubectl run passwd --image=apps.local/debian:1 --restart=Never --command -- cat /etc/passwd
within 60 phase_is passwd Succeeded
kubectl logs passwd >passwd
kubectl delete pod passwd
cp databases.yaml filled.yaml
for user in postgres mysql redis; do
    uid=$(grep "^$user:" passwd | cut -d: -f3)
    gid=$(grep "^$user:" passwd | cut -d: -f4)
    upper=$(echo $user | tr a-z A-Z)
    sed -i "s/${upper}_UID/$uid/; s/${upper}_GID/$gid/g" filled.yaml
done
kubectl apply -f filled.yaml
within 180 databases_ready
start_ledgers
check_ledgers
