kubectl create namespace shop
password=$(kubectl get secret databases -o jsonpath={.data.password} | base64 -d)
kubectl create secret generic shop -n shop --from-literal=PASSWORD="$password"
kubectl create configmap scripts -n shop --from-file=shop.py
kubectl apply -n shop -f shop.yaml
kubectl wait -n shop --for=condition=Complete job/migrate --timeout=90s
kubectl rollout status -n shop deployment shop --timeout=90s
kubectl run customer -n shop --labels=role=customer --image=apps.local/debian:1 --restart=Never --command -- sleep 3600
kubectl run stranger -n shop --image=apps.local/debian:1 --restart=Never --command -- sleep 3600
kubectl wait -n shop --for=condition=Ready pod/customer pod/stranger --timeout=60s
request="import sys, urllib.request as r; print(r.urlopen(r.Request('http://shop/', method=sys.argv[1]), timeout=5).read().decode())"
for number in 1 2 3; do
    kubectl exec -n shop customer -- python3 -c "$request" POST
done
kubectl exec -n shop customer -- python3 -c "$request" GET | grep -q '^3 orders'
if kubectl exec -n shop stranger -- python3 -c "$request" GET 2>/dev/null; then
    fail "the network policy lets a stranger in"
fi
kubectl auth can-i list endpoints -n shop --as=system:serviceaccount:shop:shop
within 90 autoscaler_has_metrics
