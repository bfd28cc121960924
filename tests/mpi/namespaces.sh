#!/usr/bin/env bash
# Trains with two ranks in separate network namespaces that only a virtual cable connects: MPI over TCP, as between two
# machines. Needs root, iproute2, OpenMPI, jq, and zoo with the feature `mpi`:
#   cargo build --release --features mpi && tests/mpi/namespaces.sh target/release/zoo
set -euo pipefail
zoo=$(realpath "${1:-target/release/zoo}")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
first=zoo-ranks-1 second=zoo-ranks-2
clean() {
    ip netns del $first 2>/dev/null || true
    ip netns del $second 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

ip netns add $first
ip netns add $second
ip link add zoo-cable-1 netns $first type veth peer name zoo-cable-2 netns $second
ip -n $first address add 10.77.0.1/24 dev zoo-cable-1
ip -n $second address add 10.77.0.2/24 dev zoo-cable-2
for n in 1 2; do
    ip -n zoo-ranks-$n link set zoo-cable-$n up
    ip -n zoo-ranks-$n link set lo up
done

# In the place of ssh: a command in the namespace of an address.
cat >"$work/agent" <<'AGENT'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "zoo-ranks-${host##*.}" /bin/sh -c "$*"
AGENT
chmod +x "$work/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
network="10.77.0.0/24"
apart() {
    ip netns exec $first mpirun --mca plm_rsh_agent "$work/agent" --mca btl tcp,self --mca btl_tcp_if_include $network \
        --mca oob_tcp_if_include $network --bind-to none --host 10.77.0.1,10.77.0.2 --map-by node -n 2 "$@"
}
options=(run tiny --set model.conv2.out=480 --recipes tests/fixtures/recipes --quiet --set train.sync_bn=true)
losses() { jq 'select(.event == "step").loss' "$1/events.jsonl"; }

"$zoo" "${options[@]}" --set train.epochs=4 --out "$work/one"
apart "$zoo" "${options[@]}" --set train.epochs=4 --out "$work/two"
paste <(losses "$work/one") <(losses "$work/two") | awk '
    { difference = $1 > $2 ? $1 - $2 : $2 - $1; if (difference > most) most = difference }
    END { printf "%d steps, losses differ by %.1e at most\n", NR, most; exit !(NR == 24 && most < 1e-4) }'

# A rank that dies on the other side of the cable.
long=(--set train.epochs=200 --out "$work/cut")
apart "$zoo" "${options[@]}" "${long[@]}" &
job=$!
until grep -qs checkpointed "$work/cut/events.jsonl"; do sleep 0.1; done
for id in $(ip netns pids $second); do
    if [ "$(readlink "/proc/$id/exe")" = "$zoo" ]; then kill -KILL "$id"; fi
done
SECONDS=0
wait $job && { echo "the job ended well without one of its ranks" >&2; exit 1; }
echo "the job ended $SECONDS s after one of its ranks"
((SECONDS < 30))
before=$(losses "$work/cut" | wc -l)
"$zoo" "${options[@]}" "${long[@]}" --resume
after=$(losses "$work/cut" | wc -l)
echo "$before steps together, $after in the end, alone"
((before < 1200 && after == 1200))
