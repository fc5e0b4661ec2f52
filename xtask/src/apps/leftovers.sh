kubectl delete namespace shop --wait --timeout=120s
kubectl delete pod,statefulset,deployment,service,pdb --all --wait --timeout=120s
kubectl delete pvc --all --wait --timeout=60s
no_volumes() {
    [ -z "$(kubectl get pv -o name)" ]
}
within 60 no_volumes
finalizers=$(kubectl get pods,pvc,jobs,deployments,statefulsets,services,configmaps,secrets -A \
    -o jsonpath='{range .items[?(@.metadata.finalizers)]}{.kind}/{.metadata.name} {.metadata.finalizers}{"\n"}{end}')
[ -z "$finalizers" ] || fail "$finalizers"
no_containers() {
    ! grep -E " $DATA/.*(overlay|/pods/)" /proc/self/mountinfo
}
within 60 no_containers
