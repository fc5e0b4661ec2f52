kubectl apply -f web.yaml
kubectl rollout status deployment web --timeout=90s
kubectl run load --image=apps.local/debian:1 --restart=Never --overrides='{"spec": {
    "volumes": [{"name": "scripts", "configMap": {"name": "scripts"}}],
    "containers": [{"name": "load", "image": "apps.local/debian:1", "command": ["python3", "/scripts/load.py", "http://web/"],
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}]}]}}'
within 60 phase_is load Running
kubectl rollout restart deployment web
kubectl rollout status deployment web --timeout=120s
kubectl scale deployment web --replicas=6
kubectl rollout status deployment web --timeout=90s
kubectl scale deployment web --replicas=3
node=$(kubectl get pods -l app=web -o jsonpath={.items[0].spec.nodeName})
kubectl drain $node --ignore-daemonsets --force --delete-emptydir-data --pod-selector=app=web --timeout=120s
kubectl rollout status deployment web --timeout=90s
kubectl uncordon $node
kubectl exec load -- touch /tmp/stop
within 60 ended load
kubectl logs load
phase_is load Succeeded
# Access logs go to /dev/stdout, which a non-root user must be able to open.
kubectl logs deployment/web | grep -q 'GET / HTTP'
