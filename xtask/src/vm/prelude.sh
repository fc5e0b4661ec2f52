# Prepended to every script of `cargo xtask vm`; it exits with 0 if what its step claims holds.
set -eu
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export KUBECONFIG=/var/lib/knarr/admin.kubeconfig

fail() {
    echo "$*"
    exit 1
}

# within SECONDS COMMAND...: repeats the command until it succeeds. Counts by the uptime, since some steps set the clock.
within() {
    end=$(($(cut -d. -f1 /proc/uptime) + $1))
    shift
    until "$@" >/tmp/within.out 2>&1; do
        if [ "$(cut -d. -f1 /proc/uptime)" -ge "$end" ]; then
            cat /tmp/within.out
            fail "not in time: $*"
        fi
        sleep 1
    done
}

# Runs a command that must fail, and prints what it said.
refused() {
    if "$@" >/tmp/refused.out 2>&1; then
        cat /tmp/refused.out
        fail "succeeded: $*"
    fi
    cat /tmp/refused.out
}

nodes_ready() {
    [ "$(kubectl get nodes --no-headers 2>/dev/null | grep -c ' Ready ')" = "$1" ]
}

# start_unit NAME ARGUMENTS...: runs `knarr ARGUMENTS` as a unit that `knarr` itself writes.
start_unit() {
    unit=$1
    shift
    knarr "$@" --systemd-unit >/etc/systemd/system/$unit.service
    systemctl daemon-reload
    systemctl enable --quiet --now $unit.service
}

# Builds the image vm.local/busybox:1 on this machine.
busybox_image() {
    rm -rf /tmp/busybox
    mkdir -p /tmp/busybox/bin /tmp/busybox/tmp
    chmod 1777 /tmp/busybox/tmp
    cp /bin/busybox /tmp/busybox/bin/busybox
    for applet in $(/bin/busybox --list); do
        [ $applet = busybox ] || ln -s busybox /tmp/busybox/bin/$applet
    done
    knarr image build vm.local/busybox:1 /tmp/busybox --entrypoint /bin/sh
    rm -rf /tmp/busybox
}

# pod NAME [FIELDS-OF-SPEC [FIELDS-OF-CONTAINER]]: applies a pod that sleeps, in flow style, and waits until it is ready.
pod() {
    kubectl apply -f - <<POD
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: $1}}
spec: {terminationGracePeriodSeconds: 0${2:+, $2}, containers: [{name: main, image: "vm.local/busybox:1", command: [/bin/sleep, "100000"]${3:+, $3}}]}
POD
    kubectl wait --for=condition=Ready pod/$1 --timeout=180s || { kubectl describe pod $1; exit 1; }
}

gone() {
    ! kubectl get "$@" >/dev/null 2>&1
}
